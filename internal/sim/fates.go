package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/sqsub/sqsub"
)

// noneLost is (a), at the end of a time without faults: every message has been
// handled successfully and is deleted, or is a dead letter; none is stuck.
func (j *judge) noneLost() {
	there := make(map[string]bool)
	for _, m := range j.server.Messages(j.queue) {
		there[m.Body] = true
		j.broken(m.Body, "(a, h) it is still in the queue, %s until %v, received %d times", m.State, m.VisibleAt.Sub(j.began), m.ReceiveCount)
	}
	for _, m := range j.server.Messages(j.deadQueue()) {
		there[m.Body] = true
	}
	for _, number := range sortedKeys(j.sent) {
		if there[number] || j.purged[number] {
			continue
		}
		if !slices.ContainsFunc(j.handlings, func(h *handling) bool { return h.number == number && h.verdict.done() }) {
			j.broken(number, "(a) it is gone and was never handled successfully")
		}
	}
}

// deletedAfterSuccess is the other half of (a): a message is deleted only by
// who has handled it.
func (j *judge) deletedAfterSuccess(l *life) {
	for _, q := range l.requests {
		if q.op != remove {
			continue
		}
		done := func(h *handling) bool {
			return h.consumer == l.consumer && h.number == l.number && h.verdict.done() && h.ended.before(q.sent)
		}
		if !slices.ContainsFunc(j.handlings, done) {
			j.broken(l.number, "(a) consumer %d deletes it without having handled it", q.consumer)
		}
	}
}

// verdictHeeded: a message that a handler wants back after a delay does not come
// sooner, and a handler is told that its message is lost only if it is.
func (j *judge) verdictHeeded(l *life) {
	h := l.handling
	if h == nil || l.dead() {
		return
	}
	if errors.Is(h.cause, sqsub.ErrVisibilityLost) && !j.lostForAReason(l, h.cancelled) {
		j.broken(l.number, "(b) consumer %d cancels its handler and has no reason to: %v", l.consumer.number, h.cause)
	}
	if h.verdict != retryAfter || l.outcome.Outcome == sqsub.Lost { // what was lost may have been extended after its handler
		return
	}
	var last *request
	for _, q := range l.requests {
		if q.op == change && h.ended.before(q.sent) { // one may be an extension that left at the same instant
			last = q
		}
	}
	if last == nil || last.visibility >= h.delay {
		return
	}
	if last.sent.at.Add(h.delay).Sub(l.received.at) < 11*time.Hour { // else it is clipped (V5)
		j.broken(l.number, "(h) consumer %d hands it back for %v, its handler asked for %v", last.consumer, last.visibility, h.delay)
	}
}

// settled: each delivery of a consumer that did not die has an outcome, and
// unless its visibility was lost someone asked SQS for it, or tried to when the
// process stood still.
func (j *judge) settled(l *life) {
	if l.dead() {
		return
	}
	if !l.finished.is() {
		j.broken(l.number, "(g) consumer %d ended without an outcome for it", l.consumer.number)
		return
	}
	asked := func(op operation) bool {
		return slices.ContainsFunc(l.requests, func(q *request) bool {
			return q.op == op && (l.handling == nil || l.handling.ended.before(q.sent))
		})
	}
	h := l.handling
	switch {
	case h != nil && h.verdict.done():
		if !asked(remove) {
			j.broken(l.number, "(a) consumer %d has handled it and does not delete it", l.consumer.number)
		}
		over := l.lost.is() || !l.finished.at.Before(l.ownedUntil(l.finished)) // whoever finds out at the end of a pause
		if l.outcome.Outcome == sqsub.Unsettled && !over && !l.refused(l.finished.at) && !j.hurried(l) {
			j.broken(l.number, "(a) consumer %d gives up deleting it although it holds it: %v", l.consumer.number, l.outcome.Err)
		}
	case h != nil && h.verdict == exits:
	case l.outcome.Outcome == sqsub.Lost:
		if !j.lostForAReason(l, l.finished) {
			j.broken(l.number, "(h) consumer %d calls it lost, and has no reason to", l.consumer.number)
		}
	case h == nil && asked(remove): // handled before
	case !asked(change) && !l.stayed && !j.behindHung(l):
		j.broken(l.number, "(h) consumer %d does not hand it back", l.consumer.number)
	}
}

// behindHung reports whether a delivery was to go back behind another of its consumer
// whose change had no answer before the stop was over: in a FIFO queue they go one
// after another (F3).
func (j *judge) behindHung(l *life) bool {
	return j.fifo && l.outcome.Outcome == sqsub.Unsettled && j.hurried(l) && slices.ContainsFunc(j.requests, func(q *request) bool {
		hung := q.answer.at.Sub(q.sent.at) >= time.Second && q.answer.at.Equal(l.finished.at)
		return q.consumer == l.consumer.number && q.op == change && hung
	})
}

// hurried reports whether a stop had run out of time when a delivery was given up.
// Without a limit for handlers there is one of 40 s for what they leave behind.
func (j *judge) hurried(l *life) bool {
	return slices.ContainsFunc(j.stops, func(s *stop) bool {
		end := s.aborted
		if end.IsZero() {
			end = s.at.Add(40 * time.Second)
		}
		return s.consumer == l.consumer.number && !l.finished.at.Before(end)
	})
}
