package sqsub

import "time"

// maxUnconfirmed is how many deletes and delays beyond one for each slot may be
// unconfirmed before receiving pauses, so that a queue that does not answer
// cannot fill the memory (B193).
const maxUnconfirmed = 100

// longPause is what no queue that works makes the receiving wait for.
const longPause = 2 * settleLimit

// unconfirmed is whether receiving has paused for deletes and delays that are not
// confirmed. Short pauses are none of the user's concern; a long one is logged once.
type unconfirmed struct {
	since time.Time // zero = it has not
	told  bool
}

// pause takes note that receiving has to wait. It returns when to look again.
func (u *unconfirmed) pause(l *dispatcher) time.Time {
	now := time.Now()
	if u.since.IsZero() {
		u.since = now
	}
	worthTelling := u.since.Add(longPause)
	switch {
	case u.told:
		return time.Time{}
	case now.Before(worthTelling):
		return worthTelling
	}
	l.log.Error("receiving pauses: too many deletes and delays are not confirmed", "unconfirmed", l.settling)
	u.told = true
	return time.Time{}
}

// resume takes note that receiving need not wait.
func (u *unconfirmed) resume(l *dispatcher) {
	u.since = time.Time{}
	if u.told && l.settling <= l.concurrency {
		l.log.Info("receiving goes on: deletes and delays are confirmed again")
		u.told = false
	}
}
