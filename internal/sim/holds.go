package sim

import (
	"slices"
	"time"
)

// hiddenAsLongAsOwned is (h), and the other half of (d): no request hides a
// message for longer than one timeout, but one that sets a delay; none is sent
// when the hold is over, since it would act on the next owner's (V8, V9); none
// makes a message visible that is being handled. A request that leaves at the end
// of a pause was decided on in it (see pause.go); its time limit is in the hold all
// the same.
func (j *judge) hiddenAsLongAsOwned(l *life) {
	timeout := l.timeout()
	held := l.since.Add(timeout)
	h := l.handling
	var shown time.Time // when it may be visible after a try whose answer was lost
	for _, q := range l.requests {
		if q.op != change {
			continue
		}
		failed := h != nil && !h.verdict.done() && h.ended.before(q.sent)
		if !shown.IsZero() && q.sent.at.After(shown) && !j.fifo && !l.consumer.resumed(q.sent.at) {
			j.broken(l.number, "(d) consumer %d changes its visibility although a call before may have made it visible for others", q.consumer)
		}
		if q.unsure() && (failed || q.visibility == 0) {
			shown = q.sent.at.Add(q.visibility)
		}
		if q.sent.at.After(held) {
			j.broken(l.number, "(d) consumer %d changes its visibility %v after its hold was over", q.consumer, q.sent.at.Sub(held))
		}
		if q.granted() {
			held = q.sent.at.Add(q.visibility)
		}
		running := h != nil && h.begun.before(q.sent) && !h.ended.before(q.sent)
		switch longest := j.longestDelay(l); {
		case failed || h == nil || !h.begun.before(q.sent):
			if q.visibility > max(timeout, longest) {
				j.broken(l.number, "(h) consumer %d hides it for %v, longer than its timeout or any delay", q.consumer, q.visibility)
			}
		case q.visibility == 0 && running:
			j.broken(l.number, "(b) consumer %d makes it visible while its handler runs", q.consumer)
		case q.visibility == 0:
			j.broken(l.number, "(a) consumer %d hands it back although it was handled successfully", q.consumer)
		case q.visibility > timeout:
			j.broken(l.number, "(h) consumer %d extends it by %v, its timeout is %v", q.consumer, q.visibility, timeout)
		}
	}
}

// longestDelay is the longest that a delivery, or a later one of the group of
// one that failed, may be handed back for: the delay asked for in whole seconds,
// and the two seconds that followers stay behind.
func (j *judge) longestDelay(l *life) time.Duration {
	longest := l.consumer.retryDelay
	for _, h := range j.handlings {
		if h.consumer == l.consumer && (h == l.handling || j.fifo && h.group == j.groupOf(l.number)) {
			longest = max(longest, h.delay)
		}
	}
	return longest + 3*time.Second
}

// silentAfterOutcome is (d): once a message is deleted or visible again, or its
// delivery has its outcome, there is no other request with its receipt handle.
// An extension may have left at the instant of the answer.
func (j *judge) silentAfterOutcome(l *life) {
	var answered time.Time
	for _, q := range l.requests {
		if l.finished.before(q.sent) {
			j.broken(l.number, "(d) consumer %d asks to %s it although it had its outcome", q.consumer, q.op)
			return
		}
		if !answered.IsZero() && q.sent.at.After(answered) {
			j.broken(l.number, "(d) consumer %d asks to %s it although it was told that it is deleted or visible", q.consumer, q.op)
			return
		}
		if q.granted() && (q.op == remove || q.visibility == 0) {
			answered = q.answer.at
		}
	}
}

// neverNeglected is the other side of (h): as long as a handler runs uncancelled,
// and until the delete after it is granted, the hold is kept, or someone tries to
// keep it, at least once in a timeout in which its process runs.
func (j *judge) neverNeglected(l *life) {
	if l.handling == nil || l.dead() || l.ranOut() {
		return
	}
	tried := l.received.at
	check := func(t time.Time, what string) {
		if l.lost.is() && !t.Before(l.lost.at) || l.refused(t) {
			return
		}
		if gap := l.consumer.active(tried, t); gap > l.timeout() {
			j.broken(l.number, "(h) consumer %d neglects it for %v before %s, its timeout is %v", l.consumer.number, gap, what, l.timeout())
		}
	}
	for _, q := range l.requests {
		if q.op == remove {
			check(q.sent.at, "a delete")
			continue
		}
		tried = q.sent.at
	}
	if c := l.handling; !c.cancelled.is() && !slices.ContainsFunc(l.requests, func(q *request) bool { return c.ended.before(q.sent) && q.op == change }) {
		check(c.ended.at, "the end of its handler")
	}
}

// oneChangeAtATime: an extension that is overtaken by a delay would undo it
// (V13), so that each change waits for the answer to the one before.
func (j *judge) oneChangeAtATime(l *life) {
	var before *request
	for _, q := range l.requests {
		if q.op != change {
			continue
		}
		if before != nil && !before.answer.before(q.sent) {
			j.broken(l.number, "(d) consumer %d changes its visibility while another change is under way", q.consumer)
		}
		before = q
	}
}
