package sqsub

import (
	"errors"
	"fmt"
	"time"

	"github.com/sqsub/sqsub/internal/queue"
)

// lateLimit is for how long the delete of a message is tried whose visibility
// was lost: nothing keeps it from another consumer any more.
const lateLimit = 30 * time.Second

// A removal is the delete of a message that is done with. The extender goes on
// until the delete is confirmed. As a rule the first try is all that there is, and
// no goroutine waits for it.
type removal struct {
	s    *Subscription
	d    *delivery
	r    Result // as it is if the delete succeeds
	call queue.Call

	lost   bool      // the visibility, before the last try
	lostAt time.Time // when that was noticed
	last   bool      // no other try is worth it
	inTime bool      // a try before that may have taken effect
	sent   time.Time // the first try
	ended  time.Time // when the answer to the last try came
}

// remove deletes a message that is done with.
func (s *Subscription) remove(d *delivery, r Result, now time.Time) {
	d.handled = true
	d.ext.yield(now)
	m := &d.removal
	m.s, m.d, m.r = s, d, r
	m.call = queue.Call{Receipt: d.receipt, Caller: m}
	s.queue.BeginDelete(&m.call, m.deadline(now, false))
}

// deadline is that of the next try.
func (m *removal) deadline(now time.Time, again bool) queue.Deadline {
	h, lost := m.d.ext.at(now)
	m.lost = lost != nil
	if m.lost && m.lostAt.IsZero() {
		m.lostAt = now
	}
	m.last = m.lost && now.Sub(m.lostAt) > lateLimit
	return queue.Deadline{LeaveBy: m.s.leaveBy(h, now, m.lost || again), Limit: min(settleLimit, m.s.latest(now).Sub(now))}
}

// Done takes the answer to the first try. Others wait for the answers of the same
// request: what may take its time, as hooks and logs may, is left to a goroutine.
func (m *removal) Done(sent, answered time.Time, err error) {
	m.sent, m.ended = sent, answered
	if err != nil || m.d.ext.halt() != nil || m.lost || m.s.listened() {
		m.s.goroutines.Go(func() { m.retry(err) })
		return
	}
	m.s.tally(m.d, &m.r)
	m.s.removed.add(m.d)
}

// tellRemoved tells the loop what has been deleted.
func (s *Subscription) tellRemoved() {
	if ds := s.removed.take(); len(ds) > 0 {
		s.tell(settled{ds})
	}
}

// retry tries again until it is over. err is that of the first try.
func (m *removal) retry(err error) {
	for try := 0; !m.over(err); try++ {
		if !m.s.pause(backoff(retryBase, lateLimit/3, try), m.sent) {
			m.giveUp(Unsettled, err)
			break
		}
		err = m.s.queue.Delete(m.d.receipt, m.deadline(time.Now(), true))
		m.ended = time.Now()
	}
	m.d.ext.stop()
	m.s.finish(m.d, m.r)
}

// over takes note of how a try went. It reports whether it was the last.
func (m *removal) over(err error) bool {
	if err == nil {
		m.r.Late = m.lost && !m.inTime
		return true
	}
	m.s.stats.settleFailures.Add(1)
	m.inTime = m.inTime || !m.lost && queue.MayHaveTakenEffect(err) // it may have been this one
	if m.inTime && m.d.ext.isDeleted() {
		return true
	}
	switch kind := queue.Classify(err); {
	case kind == queue.Gone: // D4, D5
		m.s.visibilityLost(m.d, fmt.Errorf("%w: %w", ErrVisibilityLost, err))
		m.giveUp(Lost, err)
	case kind == queue.Invalid, m.last:
		m.giveUp(Unsettled, err)
	default:
		return false
	}
	return true
}

func (m *removal) giveUp(outcome Outcome, err error) {
	m.s.log.Error("a message was handled but not deleted: it may be delivered again", m.d.attrs("error", err)...)
	m.r.Outcome, m.r.Err = outcome, errors.Join(m.r.Err, err)
}
