package sqsub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/sqsub/sqsub/internal/queue"
)

// An extender keeps one delivery hidden, from the receive until it is settled
// or lost. One goroutine runs it.
type extender struct {
	s       *Subscription
	d       *delivery
	receipt string
	lead    time.Duration // how long an extension may wait for company

	mu         sync.Mutex // guards the following; only run writes them
	hold       hold
	extensions int
	cause      error // why the visibility was lost
	deleted    bool  // an extension was told so, after the handler returned

	returned chan struct{} // closed by yield, or by stop
	yielded  bool          // it is
	stopped  chan struct{} // closed by stop
	done     chan struct{} // closed when run has returned
}

func (e *extender) init(s *Subscription, d *delivery, h hold) {
	e.s, e.d = s, d
	e.receipt = aws.ToString(d.Message.ReceiptHandle)
	e.lead = min(s.batchDelay, h.timeout/10)
	e.hold = h
	e.returned = make(chan struct{})
	e.stopped = make(chan struct{})
	e.done = make(chan struct{})
}

var (
	errInterrupted = errors.New("interrupted")
	errSettled     = errors.New("settled")
)

const (
	minCall = 250 * time.Millisecond
	maxCall = 10 * time.Second

	retryBase = 50 * time.Millisecond
	retryMax  = 30 * time.Second
)

// run extends the hold until stop, or until it is lost.
func (e *extender) run() {
	defer close(e.done)
	if e.hold.timeout == 0 {
		return // SQS hides nothing: there is no hold to keep or to lose
	}
	timer := time.NewTimer(e.hold.timeout)
	defer timer.Stop()

	interrupt := e.returned
	notBefore := time.Time{}
	for {
		err := e.keep(timer, notBefore, interrupt)
		switch {
		case err == nil:
		case err == errSettled:
			return
		case err != errInterrupted:
			e.mu.Lock()
			e.cause = err
			e.mu.Unlock()
			e.s.visibilityLost(e.d, err)
			return
		case interrupt == e.stopped:
			return
		default:
			// The handler has returned. What follows, a delete as a rule, gets a
			// moment before another extension is worth its price (B016).
			interrupt = e.stopped
			notBefore = time.Now().Add(e.hold.timeout / 4)
		}
	}
}

// yield says that the handler has returned: the hold goes on, but an extension
// that has not left yet is put off for a quarter of the timeout.
func (e *extender) yield() {
	e.yielded = true
	close(e.returned)
}

// yielding reports whether the handler has returned.
func (e *extender) yielding() bool {
	select {
	case <-e.returned:
		return true
	default:
		return false
	}
}

// stop ends the extender. It returns when no extension is under way any more,
// since one that is overtaken by a delay would undo it (V13).
func (e *extender) stop() {
	if !e.yielded {
		e.yield()
	}
	close(e.stopped)
	<-e.done
}

// err is why the visibility was lost, or nil while the hold lasts. It asks the
// clock too: after a pause of the process the extender may not have run yet.
func (e *extender) err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cause == nil && e.hold.timeout > 0 && passed(time.Now(), e.hold.end()) {
		return overdue(nil)
	}
	return e.cause
}

// isDeleted reports whether an extension was told that the message has been
// deleted, after its handler returned.
func (e *extender) isDeleted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.deleted
}

func (e *extender) current() (h hold, extensions int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hold, e.extensions
}

// keep waits until an extension is due and has it granted. It returns an
// ErrVisibilityLost when the hold is over.
func (e *extender) keep(timer *time.Timer, notBefore time.Time, interrupt <-chan struct{}) error {
	due := e.hold.due()
	if notBefore.After(due) { // but leave time for retries
		due = earlier(notBefore, e.hold.since.Add(e.hold.timeout*3/4))
	}
	if e.hold.ask(due) == 0 {
		return e.runOut(timer, interrupt)
	}
	if err := sleepUntil(timer, due.Add(-e.lead), interrupt); err != nil {
		return err
	}
	var failure error
	for try := 0; ; try++ {
		now, end := time.Now(), e.hold.end()
		if passed(now, end) {
			return overdue(failure)
		}
		leaveBy := later(now, due)
		ask := e.hold.ask(leaveBy) // the latest it can leave, so that it fits the limit in any case
		if ask == 0 {
			return e.runOut(timer, interrupt)
		}
		sent, err := e.s.queue.Change(e.receipt, ask, queue.Deadline{LeaveBy: leaveBy, Limit: callLimit(end.Sub(now), failure), Withdrawn: interrupt})
		if errors.Is(err, queue.ErrWithdrawn) {
			return errInterrupted
		}
		e.s.extensionTried(e.d, Extension{Timeout: ask, Latency: time.Since(sent), Err: err})
		if err == nil {
			if passed(time.Now(), end) {
				return overdue(errors.New("an extension was answered after the end of the hold, which proves nothing")) // V8
			}
			e.mu.Lock()
			e.hold = e.hold.extended(sent, ask)
			e.extensions++
			e.mu.Unlock()
			return nil
		}
		failure = err
		switch queue.Classify(err) {
		case queue.Gone:
			if e.yielding() {
				// Most likely the delete has overtaken it (B016, B018). The answer to
				// that says what has become of the message.
				e.mu.Lock()
				e.deleted = queue.IsDeleted(err)
				e.mu.Unlock()
				return errSettled
			}
			return fmt.Errorf("%w: %w", ErrVisibilityLost, err)
		case queue.Limit: // not a loss: what was granted before still stands (V6)
			return e.runOut(timer, interrupt)
		case queue.Invalid:
			if err := sleepUntil(timer, end, interrupt); err != nil {
				return err
			}
			return overdue(failure)
		}
		now = time.Now()
		left := end.Sub(now)
		again := earlier(now.Add(retryPause(left, try)), end)
		due = again.Add(min(e.lead, left/10))
		if err := sleepUntil(timer, again, interrupt); err != nil {
			return err
		}
	}
}

// runOut waits for the end of a hold that cannot be lengthened.
func (e *extender) runOut(timer *time.Timer, interrupt <-chan struct{}) error {
	if e.extensions > 0 {
		e.s.lastExtension(e.d, e.hold.end())
	}
	if err := sleepUntil(timer, e.hold.end(), interrupt); err != nil {
		return err
	}
	return ErrHoldLimit
}

func overdue(failure error) error {
	if failure == nil {
		return fmt.Errorf("%w: the visibility timeout ran out", ErrVisibilityLost)
	}
	return fmt.Errorf("%w: no extension succeeded in time: %w", ErrVisibilityLost, failure)
}

// callLimit is how long a call may take when so much is left of the hold: a
// quarter, so that one hung connection leaves room for several more tries; a
// half after a try that took too long, since SQS may be slow (B002).
func callLimit(left time.Duration, failure error) time.Duration {
	share := left / 4
	if errors.Is(failure, context.DeadlineExceeded) {
		share = left / 2
	}
	return min(left, max(share, minCall), maxCall)
}

// retryPause is how long a failed try waits for the next when so much is left of
// the hold: short at first, and never so short that the last second is full of
// tries.
func retryPause(left time.Duration, try int) time.Duration {
	return max(retryBase, backoff(2*retryBase, min(retryMax, left/5), try))
}

// sleepUntil waits until t, or returns errInterrupted.
func sleepUntil(timer *time.Timer, t time.Time, interrupt <-chan struct{}) error {
	timer.Reset(time.Until(t))
	select {
	case <-timer.C:
		return nil
	case <-interrupt:
		return errInterrupted
	}
}

// A holdContext is a handler's context: its deadline is the limit of the hold.
// The extender ends it, not a timer of its own.
type holdContext struct {
	context.Context
	deadline time.Time
}

func (c holdContext) Deadline() (time.Time, bool) { return c.deadline, true }
