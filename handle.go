package sqsub

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"
)

// handle runs the handler of a delivery and begins to settle it by what the
// handler returned. What is on its stack while a handler runs is there for each
// of them, so that it leaves all else to others: a Result in this frame, and a held
// handler takes 4 KiB of stack instead of 2.
func (s *Subscription) handle(d *delivery) {
	started, judged := time.Now(), false
	if s.refused(d, started) {
		return
	}
	defer func() {
		if !judged { // runtime.Goexit: only what is deferred still runs
			s.exit(d, time.Since(started))
		}
	}()
	s.settle(d, s.call(d), started, &judged)
}

// refused ends a delivery that was lost before its handler could be called: it
// waited, and the process stood still.
func (s *Subscription) refused(d *delivery, now time.Time) bool {
	lost := d.ext.errAt(now)
	if lost == nil || d.deleteOnly {
		return false
	}
	s.visibilityLost(d, lost)
	s.events <- returned{[]*delivery{d}}
	d.ext.stop()
	s.finish(d, Result{Outcome: Lost, Err: lost})
	return true
}

// settle begins to do what a handler's error asks for. It sets judged when it is known
// what that is.
func (s *Subscription) settle(d *delivery, err error, started time.Time, judged *bool) {
	r := s.judge(d, err)
	*judged = true
	now := time.Now()
	r.Duration = now.Sub(started)
	switch r.Outcome {
	case Deleted, Discarded:
		s.handlerReturned(d, r.Duration)
		s.remove(d, r, now)
	default:
		s.fail(d, r)
	}
}

// call runs the handler. A panic is an error.
func (s *Subscription) call(d *delivery) (err error) {
	if d.deleteOnly {
		s.log.Debug("deleting a message that was handled before", d.attrs()...)
		return nil
	}
	returned := false // or it panicked, perhaps with nil, which GODEBUG=panicnil=1 allows; or it called Goexit, and nobody reads err
	defer func() {
		if v := recover(); v != nil || !returned {
			err = &PanicError{v, debug.Stack()}
		}
	}()
	if f := s.hooks.Started; f != nil {
		f(&d.Delivery)
	}
	err = s.handler(d.ctx, &d.Delivery)
	returned = true
	return err
}

// judge says what a handler's error asks for.
func (s *Subscription) judge(d *delivery, err error) Result {
	if err == nil {
		return Result{Outcome: Deleted}
	}
	switch v := verdictOf(err); {
	case v != nil:
		if v.outcome == Discarded {
			s.log.Warn("message discarded", d.attrs("error", err)...)
		}
		return Result{Outcome: v.outcome, Err: err, Delay: v.delay}
	case errors.Is(context.Cause(d.ctx), ErrShutdown):
		return Result{Outcome: Released, Err: err}
	}
	return Result{Outcome: Retried, Err: err, Delay: s.delayAfter(d, err)}
}

// verdictOf is the verdict in a handler's error. A panic is none, whatever its
// value. Nor is an error that cannot even be asked: a nil pointer of some error
// type panics then, as a rule.
func verdictOf(err error) (v *verdict) {
	if _, panicked := err.(*PanicError); panicked {
		return nil
	}
	defer func() {
		if recover() != nil {
			v = nil
		}
	}()
	errors.As(err, &v)
	return v
}

// delayAfter is what the user's retry delay says. If that panics, one message
// must not end all consumers, as with a handler.
func (s *Subscription) delayAfter(d *delivery, err error) (delay time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("the function of WithRetryDelay panicked: using its default", d.attrs("error", fmt.Sprint(v), "stack", string(debug.Stack()))...)
			delay = ExponentialBackoff(defaultRetryBase, defaultRetryMax)(&d.Delivery, err)
		}
	}()
	return max(0, s.retryDelay(&d.Delivery, err))
}

// exit leaves a delivery alone whose handler called runtime.Goexit: whether it
// did its work is not known.
func (s *Subscription) exit(d *delivery, ran time.Duration) {
	s.log.Error("handler called runtime.Goexit: the message comes back when its visibility timeout lapses", d.attrs()...)
	s.events <- returned{[]*delivery{d}}
	d.ext.stop()
	s.finish(d, Result{Outcome: Unsettled, Duration: ran})
}
