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
// until the delete is confirmed. The first try needs no goroutine, and is all that
// there is as a rule.
type removal struct {
	s    *Subscription
	d    *delivery // with the result, as far as it is known
	want Outcome
	call queue.Call

	tries  int
	lost   bool      // the visibility, before the last try
	lostAt time.Time // when that was noticed
	last   bool      // no other try is worth it
	inTime bool      // a try before that may have taken effect
}

// remove deletes a message that is done with.
func (s *Subscription) remove(d *delivery, r Result) {
	now := time.Now()
	d.result, d.succeeded = r, true
	d.ext.yield()
	m := &removal{s: s, d: d, want: r.Outcome}
	m.call = queue.Call{Receipt: d.receipt, Caller: m}
	s.queue.BeginDelete(&m.call, m.deadline(now))
}

// deadline is that of the next try.
func (m *removal) deadline(now time.Time) queue.Deadline {
	h, lost := m.d.ext.current()
	m.lost = lost != nil
	if m.lost && m.lostAt.IsZero() {
		m.lostAt = now
	}
	m.last = m.lost && now.Sub(m.lostAt) > lateLimit
	return queue.Deadline{LeaveBy: m.s.company(h, now, m.lost || m.tries > 0), Limit: settleLimit}
}

// Done takes the answer to the first try. If there is more to do, or a hook has to
// be called, which may take its time, a goroutine does it: others wait for the
// answers of the same request.
func (m *removal) Done(_ time.Time, err error) {
	if err == nil && m.d.ext.halt() == nil && m.s.hooks.Finished == nil {
		m.over(nil)
		m.s.finish(m.d, m.d.result)
		return
	}
	m.s.goroutines.Go(func() { m.insist(err) })
}

// insist tries again until it is over. err is that of the first try.
func (m *removal) insist(err error) {
	for !m.over(err) {
		try := m.tries - 1
		if !m.s.pause(backoff(retryBase, lateLimit/3, try), try) {
			m.giveUp(err)
			break
		}
		err = m.s.queue.Delete(m.d.receipt, m.deadline(time.Now()))
	}
	m.d.ext.stop()
	m.s.finish(m.d, m.d.result)
}

// over takes note of how a try went. It reports whether it was the last.
func (m *removal) over(err error) bool {
	m.tries++
	if err == nil {
		m.d.result.Outcome, m.d.result.Late = m.want, m.lost && !m.inTime
		return true
	}
	m.inTime = m.inTime || !m.lost && queue.Unsure(err) // it may have been this one
	if m.inTime && m.d.ext.isDeleted() {
		m.d.result.Outcome = m.want
		return true
	}
	switch kind := queue.Classify(err); {
	case kind == queue.Gone: // D4, D5
		m.s.visibilityLost(m.d, fmt.Errorf("%w: %w", ErrVisibilityLost, err))
		m.giveUp(err)
		m.d.result.Outcome = Lost
		return true
	case kind == queue.Invalid, m.last:
		m.giveUp(err)
		return true
	}
	return false
}

func (m *removal) giveUp(err error) {
	m.s.log.Error("a message was handled but not deleted: it may be delivered again", m.d.attrs("error", err)...)
	m.d.result.Outcome, m.d.result.Err = Unsettled, errors.Join(m.d.result.Err, err)
}
