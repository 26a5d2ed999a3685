package sqsub

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sqsub/sqsub/internal/queue"
)

const (
	// settleLimit is how long one delete or delay may take.
	settleLimit = 5 * time.Second

	// stopLimit is how long a call may take when a stop has run out of time. For half
	// of that it is tried again: together with DefaultDrainTimeout that is less than
	// the 30 s after which container platforms kill a process.
	stopLimit = 2 * time.Second

	// followersBehind is how much later than the message that failed the rest of
	// its group comes back: see fail.
	followersBehind = 2 * time.Second
)

// leaveBy is until when a delete or a delay may wait for others. A FIFO queue's
// never does: the next of its group waits for it. Nor does a second try, or one
// whose hold is near its end, or any when a stop has begun.
func (s *Subscription) leaveBy(h hold, now time.Time, urgent bool) time.Time {
	if s.fifo || urgent || closed(s.draining) {
		return now
	}
	if h.timeout == 0 {
		return now.Add(s.batchDelay)
	}
	return now.Add(min(s.batchDelay, max(0, h.end().Sub(now)/10)))
}

// latest is when a call that begins now has to be over, if a stop has begun: not
// much later than that runs out of time.
func (s *Subscription) latest(now time.Time) time.Time {
	switch {
	case closed(s.aborting):
		return now.Add(stopLimit)
	case closed(s.draining) && s.drainTimeout > 0:
		return later(now, s.drainedBy).Add(stopLimit)
	}
	return now.Add(sqsMaxHold)
}

// fail hands a message back whose handler failed, and what must not overtake it.
func (s *Subscription) fail(d *delivery, r Result) {
	after := make(chan aftermath, 1)
	s.events <- failed{d, s.lastReceive(d), after}
	rest := <-after
	if s.visibility == 0 {
		r.Delay = 0 // SQS hides nothing, so that there is nothing to delay
	}
	s.logFailure(d, r, rest.superseded)
	if rest.superseded {
		d.ext.stop()
		r.Outcome, r.Delay = Lost, 0
		s.finish(d, r)
		return
	}
	// Too many groups wait for a failed message already (see parking). SQS hands
	// out the earlier messages of a group while later ones are hidden, never the
	// other way round (F2). So the rest of the group comes back behind the message
	// that failed, last to first (F3), and a little later, so that at least the
	// next receive takes that message alone (B070).
	var back []outgoing
	for _, f := range slices.Backward(rest.followers) {
		delay := min(r.Delay, sqsMaxHold) + followersBehind
		s.warnOfExpiry(f, delay)
		back = append(back, outgoing{d: f, r: Result{Outcome: Released, Delay: delay}})
	}
	s.handBack(append(back, outgoing{d: d, r: r}))
}

// lastReceive reports whether SQS is not going to deliver a message again but to
// move it to the dead-letter queue at the next receive (X3). The limit is asked
// for again, since an operator may have raised it meanwhile: none of the group may
// overtake a message that comes back.
func (s *Subscription) lastReceive(d *delivery) bool {
	if !s.fifo || s.maxReceives == 0 || d.ReceiveCount() < s.maxReceives {
		return false
	}
	now, err := s.attributes(s.polling)
	return err == nil && now.MaxReceiveCount > 0 && d.ReceiveCount() >= now.MaxReceiveCount
}

func (s *Subscription) logFailure(d *delivery, r Result, superseded bool) {
	r.Delay = ceilSeconds(r.Delay)
	p, panicked := r.Err.(*PanicError)
	switch {
	case panicked && p != nil:
		s.log.Error("handler panicked", d.attrs("error", r.Err, "delay", r.Delay, "stack", string(p.Stack))...)
		if r.Outcome == Retried && !superseded && d.ext.err() == nil {
			s.warnOfExpiry(d, r.Delay)
		}
	case r.Outcome == Released, d.ext.err() != nil: // its context has ended, and that is told
		s.log.Debug("handler failed", d.attrs("error", r.Err)...)
	case superseded:
		s.log.Warn("handler failed: the message has been delivered again, and that runs at once", d.attrs("error", r.Err)...)
	case s.warnOfExpiry(d, r.Delay, "error", r.Err):
	default:
		s.log.Warn("handler failed: the message is retried", d.attrs("error", r.Err, "delay", r.Delay)...)
	}
}

// warnOfExpiry warns of a message that is about to be handed back and is not going to
// be seen again, not even in the dead-letter queue: SQS deletes it before its delay
// ends. The retention counts from the sending, whatever becomes of the message meanwhile
// (M10), or from its move to a FIFO dead-letter queue, which is a sending (X5). It is the
// one that Subscribe read: an operator may have changed it. warnOfExpiry reports whether
// it warned.
func (s *Subscription) warnOfExpiry(d *delivery, delay time.Duration, more ...any) bool {
	sent := d.SentAt()
	if s.retention == 0 || sent.IsZero() {
		return false
	}
	now, h, expires := time.Now(), d.ext.current(), sent.Add(s.retention)
	delay = h.clip(now, delay)
	if now.Add(delay).Before(expires) {
		return false
	}
	s.log.Warn("a message goes back for longer than its queue keeps it: SQS deletes it before it can be retried", d.attrs(append(more, "delay", delay, "expires", expires)...)...)
	return true
}

// outgoing is a delivery on its way back to the queue, with the outcome it has
// once it is there.
type outgoing struct {
	d *delivery
	r Result

	// visibleAt is when the message may be visible again, by a try whose answer was
	// lost, for the reason why; zero = no try may have taken effect.
	visibleAt time.Time
	why       error
}

// handBack makes messages visible again, each after the delay of its result, in
// the order given. Their extenders are stopped first: an extension that arrived
// later would undo the delay (V13).
func (s *Subscription) handBack(back []outgoing) {
	for _, o := range back {
		o.d.ext.stop()
	}
	began := time.Now()
	for try := 0; ; try++ {
		var held []outgoing
		for _, o := range back {
			if !s.givenUp(o) {
				held = append(held, o)
			}
		}
		if len(held) == 0 {
			return
		}
		tried := time.Now()
		errs := s.change(held, try)
		back = nil
		var failures []error // of those
		for i, o := range held {
			if !s.handedBack(o, errs[i]) {
				continue
			}
			if o.visibleAt.IsZero() && queue.MayHaveTakenEffect(errs[i]) {
				o.visibleAt, o.why = tried.Add(o.r.Delay), errs[i]
			}
			back, failures = append(back, o), append(failures, errs[i])
		}
		if len(back) > 0 && !s.pause(retryPause(timeLeft(back), try), began) {
			for i, o := range back {
				s.unsettled(o, fmt.Errorf("the stop ran out of time: %w", failures[i]))
			}
			return
		}
	}
}

// givenUp ends a delivery that cannot be handed back, since it is not held any
// more: on a standard queue the call would act on whoever holds it now (V9).
func (s *Subscription) givenUp(o outgoing) bool {
	if !s.fifo && !o.visibleAt.IsZero() && passed(time.Now(), o.visibleAt) {
		s.unsettled(o, fmt.Errorf("SQS may have done it all the same: %w", o.why))
		return true
	}
	lost := o.d.ext.err()
	switch {
	case lost == nil && s.visibility > 0:
		return false
	case lost == nil: // it is visible all the time
		s.finish(o.d, o.r)
		return true
	}
	s.visibilityLost(o.d, lost)
	o.r.Outcome, o.r.Delay = Lost, 0
	o.r.Err = cmp.Or(o.r.Err, lost)
	s.finish(o.d, o.r)
	return true
}

// change makes one try to hand deliveries back. The delays of their results become
// those that SQS allows.
func (s *Subscription) change(back []outgoing, try int) []error {
	now := time.Now()
	latest := s.latest(now)
	limit := min(settleLimit, latest.Sub(now))
	changes := make([]queue.Change, len(back))
	for i, o := range back {
		h := o.d.ext.current()
		limit = min(limit, s.changeLimit(h.end().Sub(now), o.r.Delay))
		changes[i] = queue.Change{Receipt: o.d.receipt, Timeout: h.clip(now, o.r.Delay), By: earlier(h.end(), latest)}
		if try == 0 && changes[i].Timeout < o.r.Delay {
			s.log.Warn("a delay is clipped to what SQS allows", o.d.attrs("asked", o.r.Delay, "delay", changes[i].Timeout)...) // B027
		}
		back[i].r.Delay = changes[i].Timeout
	}
	if len(back) == 1 && !s.fifo {
		h := back[0].d.ext.current()
		leaveBy := s.leaveBy(h, now, try > 0)
		limit = min(limit, h.end().Sub(leaveBy)) // nothing is sent once the hold has ended (V9)
		err := s.queue.Change(changes[0].Receipt, changes[0].Timeout, queue.Deadline{LeaveBy: leaveBy, Limit: limit})
		return []error{err}
	}
	return s.queue.ChangeAll(changes, limit, s.fifo)
}

// changeLimit is how long a call may take that makes a message visible after
// delay when so much is left of its hold. On a standard queue none is tried again
// once the message may be visible (see givenUp): if that leaves no time for
// another, the first gets all there is.
func (s *Subscription) changeLimit(left, delay time.Duration) time.Duration {
	limit := callLimit(left, nil)
	if !s.fifo && delay <= limit {
		return left
	}
	return limit
}

// handedBack takes note of one try. It reports whether another is worth it.
func (s *Subscription) handedBack(o outgoing, err error) bool {
	if err == nil {
		s.finish(o.d, o.r)
		return false
	}
	s.stats.settleFailures.Add(1)
	switch queue.Classify(err) {
	case queue.Gone:
		s.visibilityLost(o.d, fmt.Errorf("%w: %w", ErrVisibilityLost, err))
		o.r.Outcome, o.r.Delay = Lost, 0
		s.finish(o.d, o.r)
		return false
	case queue.Limit, queue.Invalid:
		s.unsettled(o, err)
		return false
	}
	return true
}

// unsettled ends a delivery that could not be handed back.
func (s *Subscription) unsettled(o outgoing, err error) {
	s.log.Error("a message could not be handed back: it comes back when its visibility timeout lapses, at the latest", o.d.attrs("error", err)...)
	o.r.Outcome, o.r.Delay = Unsettled, 0
	o.r.Err = errors.Join(o.r.Err, err)
	s.finish(o.d, o.r)
}

// timeLeft is how long all of the deliveries are still held.
func timeLeft(back []outgoing) time.Duration {
	left := retryMax
	for _, o := range back {
		h := o.d.ext.current()
		left = min(left, time.Until(h.end()))
	}
	return max(0, left)
}

// pause waits before another try. first is when the first one began. It is false if
// there must not be another, since a stop has run out of time.
func (s *Subscription) pause(d time.Duration, first time.Time) bool {
	aborting := s.aborting
	if closed(aborting) {
		left := stopLimit/2 - time.Since(later(first, s.abortedAt))
		if left <= 0 {
			return false
		}
		d, aborting = min(d, left), nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-aborting:
	}
	return true
}
