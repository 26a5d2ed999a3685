package sim

import (
	"slices"
	"time"
)

// noOverlap is (b). What the handlers of a dead consumer do does not count. Nor
// does the context of one whose process stands still have to end before it can:
// when the process runs again.
func (j *judge) noOverlap() {
	for _, pair := range j.overlaps() {
		older, younger := pair[0], pair[1]
		awake := older.consumer.awake(younger.begun.at)
		told := older.cancelled.is() && !older.cancelled.at.After(awake)
		if awake.After(younger.begun.at) {
			told = told || !older.ended.at.After(awake)
		}
		if older.verdict == died || younger.verdict == died || told {
			continue
		}
		if j.stale(older, younger.begun.at) || j.stale(younger, younger.begun.at) {
			continue
		}
		j.broken(younger.number, "(b) consumer %d begins it while the handler of consumer %d runs and was not cancelled", younger.consumer.number, older.consumer.number)
	}
}

// stale reports whether a handling had lost its message by t without any means
// to know. The answer to a long poll does not tell when in the poll SQS took the
// message (R18): if the answer was under way for long, the hold ends so much
// earlier than its consumer believes, who can tell only that an answer was
// overdue. Once it has, SQS accepts a change on a
// standard queue all the same, and lets it act on the next owner's delivery (V8),
// who has no means to know either.
func (j *judge) stale(h *handling, t time.Time) bool {
	own := j.byHandle[h.handle]
	if own.lag > 0 && !t.Before(own.held()) {
		return true
	}
	for _, l := range j.byHandle {
		if l.number != h.number || l == own || l.lag == 0 || j.fifo {
			continue
		}
		held := l.held()
		if slices.ContainsFunc(l.requests, func(q *request) bool {
			return q.op == change && !q.sent.at.Before(held) && !q.sent.at.After(t)
		}) {
			return true
		}
	}
	return false
}

// held is until when SQS hid the message for this delivery at least.
func (l *life) held() time.Time {
	held := l.received.at.Add(l.timeout() - l.lag)
	for _, q := range l.requests {
		if q.op == change && q.granted() && !q.sent.at.After(held) {
			held = q.sent.at.Add(q.visibility)
		}
	}
	return held
}
