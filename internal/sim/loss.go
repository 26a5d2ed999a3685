package sim

import (
	"slices"
	"time"
)

// toldInTime is (b) for the consumer itself, whether another one takes the message
// or not: when a hold is over, as far as its consumer can know, the context of the
// handler has ended, or it ends as soon as the process runs again. No handler
// begins after that.
func (j *judge) toldInTime(l *life) {
	h := l.handling
	if h == nil || l.dead() {
		return
	}
	if late := h.begun.at.Sub(l.ownedUntil(h.begun)); late > 0 {
		j.broken(l.number, "(b) consumer %d begins it %v after its hold was over", l.consumer.number, late)
	}
	end := l.consumer.awake(l.ownedUntil(h.ended))
	if h.ended.at.After(end) && !(h.cancelled.is() && !h.cancelled.at.After(end)) {
		j.broken(l.number, "(b) consumer %d does not cancel its handler %v after the end of its hold", l.consumer.number, h.ended.at.Sub(end))
	}
}

// ownedUntil is the end of the hold as far as its consumer can know at m: an answer
// that comes after it proves nothing (V8).
func (l *life) ownedUntil(m moment) time.Time {
	held := l.since.Add(l.timeout())
	for _, q := range l.requests {
		if q.op == change && q.granted() && q.answer.before(m) && !q.answer.at.After(held) {
			held = q.sent.at.Add(q.visibility)
		}
	}
	return held
}

// lostForAReason: by m SQS had said so, or the hold had run out as far as its
// consumer could know, or it had received the message again.
func (j *judge) lostForAReason(l *life, m moment) bool {
	if l.refused(m.at) {
		return true
	}
	held := l.since.Add(l.timeout())
	for _, q := range l.requests {
		if q.op == change && q.granted() && q.sent.before(m) && q.answer.at.Before(held.Add(-guard)) { // a later answer proves nothing (V8)
			held = l.consumer.decided(q.sent.at).Add(q.visibility) // its consumer counts from there
		}
	}
	if !m.at.Before(held.Add(-guard)) || l.consumer.maxHold > 0 && !m.at.Before(l.since.Add(l.consumer.maxHold)) {
		return true
	}
	for _, other := range j.byHandle {
		if other != l && other.number == l.number && other.consumer == l.consumer && other.received.before(m) {
			return true
		}
	}
	return false
}

// guard is how much before the end of a hold a consumer may give it up at most.
const guard = 250 * time.Millisecond

// refused reports whether SQS had refused a change by t, as for a message gone.
func (l *life) refused(t time.Time) bool {
	return slices.ContainsFunc(l.requests, func(q *request) bool {
		return q.op == change && q.answer.is() && !q.answer.at.After(t) && q.refused()
	})
}
