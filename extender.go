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
// or lost. It has a goroutine of its own while it extends, and between that a
// timer: a stack for each of 120,000 deliveries that are held would cost more
// memory than all else about them, and one for each that is handled at once
// more time.
type extender struct {
	s       *Subscription
	d       *delivery
	receipt string
	lead    time.Duration // how long an extension may wait for company

	mu         sync.Mutex // guards the following
	hold       hold
	extensions int
	timer      *time.Timer // runs until the next round, unless one is under way; nil = there is no hold
	round      *round      // under way; nil = none
	notBefore  time.Time   // no extension leaves, unless it is urgent
	yielded    bool        // the handler has returned
	stopped    bool
	warned     bool  // that the hold cannot be lengthened any more
	cause      error // why the visibility was lost
	deleted    bool  // an extension was told so, after the handler returned
}

// A round is the tries to have one extension granted.
type round struct {
	interrupt chan struct{} // closed = do not wait any more, for company or for another try
	done      chan struct{} // closed when it is over
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

// start begins to keep the hold h on d.
func (e *extender) start(s *Subscription, d *delivery, h hold) {
	e.s, e.d, e.hold = s, d, h
	e.receipt = aws.ToString(d.Message.ReceiptHandle)
	e.lead = min(s.batchDelay, h.timeout/10)
	if h.timeout == 0 {
		return // SQS hides nothing: there is no hold to keep or to lose
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s.goroutines.Add(1)
	e.timer = time.AfterFunc(time.Until(e.next()), e.run)
}

// due is when the next extension has to leave. After the handler has returned,
// what follows, a delete as a rule, gets a moment before another extension is
// worth its price (B016), but time is left for retries.
func (e *extender) due() time.Time {
	due := e.hold.due()
	if e.notBefore.After(due) {
		return earlier(e.notBefore, e.hold.since.Add(e.hold.timeout*3/4))
	}
	return due
}

// next is when the next round begins: in time for company, or, if nothing can
// lengthen the hold, at its end.
func (e *extender) next() time.Time {
	due := e.due()
	if e.hold.ask(due) == 0 {
		return e.hold.end()
	}
	return due.Add(-e.lead)
}

// rearm sets the timer anew. The caller holds the lock, and the timer does not
// run.
func (e *extender) rearm() {
	e.s.goroutines.Add(1)
	e.timer.Reset(time.Until(e.next()))
}

// run is one round. The timer calls it.
func (e *extender) run() {
	defer e.s.goroutines.Done()
	r := e.begin()
	if r == nil {
		return
	}
	defer close(r.done)
	switch err := e.extend(r.interrupt); err {
	case nil, errInterrupted:
		e.goOn()
	case errSettled:
	default:
		e.mu.Lock()
		e.cause = err
		e.mu.Unlock()
		e.s.visibilityLost(e.d, err)
	}
}

// begin begins a round, unless there must not be one, or not yet.
func (e *extender) begin() *round {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return nil
	}
	if time.Now().Before(e.next()) { // it was put off when the timer had fired
		e.rearm()
		return nil
	}
	e.round = &round{make(chan struct{}), make(chan struct{})}
	return e.round
}

// goOn ends a round after which the delivery is held.
func (e *extender) goOn() {
	e.mu.Lock()
	e.round = nil
	last := e.extensions > 0 && !e.warned && e.hold.ask(e.due()) == 0
	e.warned = e.warned || last
	end := e.hold.end()
	if !e.stopped {
		e.rearm()
	}
	e.mu.Unlock()
	if last {
		e.s.lastExtension(e.d, end)
	}
}

// yield says that the handler has returned: the hold goes on, but an extension
// that has not left yet is put off for a quarter of the timeout.
func (e *extender) yield() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.yielded = true
	due := e.due()
	e.notBefore = time.Now().Add(e.hold.timeout / 4)
	if e.round == nil && e.due().Equal(due) {
		return // it is not due before that anyway
	}
	if e.disarm() {
		e.rearm()
	}
}

// stop ends the extender. It returns when no extension is under way any more,
// since one that is overtaken by a delay would undo it (V13).
func (e *extender) stop() {
	e.mu.Lock()
	e.stopped = true
	e.disarm()
	r := e.round
	e.mu.Unlock()
	if r != nil {
		<-r.done
	}
}

// disarm stops the timer, or interrupts the round. It reports whether the timer
// ran. The caller holds the lock.
func (e *extender) disarm() bool {
	if e.timer == nil {
		return false
	}
	if e.round != nil {
		select {
		case <-e.round.interrupt:
		default:
			close(e.round.interrupt)
		}
		return false
	}
	if e.timer.Stop() {
		e.s.goroutines.Done()
		return true
	}
	return false // it has fired, and run is about to look
}

// err is why the visibility was lost, or nil while the hold lasts. It asks the
// clock too: after a pause of the process the extender may not have run yet.
func (e *extender) err() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cause != nil || e.hold.timeout == 0 || !passed(time.Now(), e.hold.end()) {
		return e.cause
	}
	if e.hold.ask(e.due()) == 0 {
		return ErrHoldLimit
	}
	return overdue(nil)
}

func (e *extender) hasWarned() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.warned
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

// extend has one extension granted. It returns an ErrVisibilityLost when the
// hold is over.
func (e *extender) extend(interrupt <-chan struct{}) error {
	e.mu.Lock()
	h, due := e.hold, e.due() // only a round changes the hold
	e.mu.Unlock()
	end := h.end()
	var failure error
	for try := 0; ; try++ {
		now := time.Now()
		leaveBy := later(now, due)
		ask := h.ask(leaveBy) // the latest it can leave, so that it fits the limit in any case
		switch {
		case ask == 0:
			return runOut(end, interrupt, ErrHoldLimit)
		case passed(now, end):
			return overdue(failure)
		}
		sent, err := e.s.queue.Change(e.receipt, ask, queue.Deadline{LeaveBy: leaveBy, Limit: callLimit(end.Sub(now), failure), Withdrawn: interrupt})
		if err == queue.ErrWithdrawn {
			return errInterrupted
		}
		e.s.extensionTried(e.d, Extension{Timeout: ask, Latency: time.Since(sent), Err: err})
		if err == nil {
			return e.granted(sent, ask, end)
		}
		failure = err
		switch queue.Classify(err) {
		case queue.Gone:
			return e.gone(err)
		case queue.Limit: // not a loss: what was granted before still stands (V6)
			return runOut(end, interrupt, ErrHoldLimit)
		case queue.Invalid: // another try would not help
			return runOut(end, interrupt, overdue(failure))
		}
		now = time.Now()
		left := end.Sub(now)
		again := earlier(now.Add(retryPause(left, try)), end)
		due = again.Add(min(e.lead, left/10))
		if !sleepUntil(again, interrupt) {
			return errInterrupted
		}
	}
}

// granted takes note of an extension that SQS has granted. If the hold was over
// by then it proves nothing (V8).
func (e *extender) granted(sent time.Time, timeout time.Duration, end time.Time) error {
	if passed(time.Now(), end) {
		return overdue(errors.New("an extension was answered too late"))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hold = e.hold.extended(sent, timeout)
	e.extensions++
	return nil
}

// gone says what it means that SQS does not know the receipt handle any more.
// After the handler has returned it is most likely that the delete has overtaken
// the extension (B016, B018), and the answer to that tells what has become of the
// message.
func (e *extender) gone(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.yielded || e.stopped {
		e.deleted = queue.IsDeleted(err)
		return errSettled
	}
	return fmt.Errorf("%w: %w", ErrVisibilityLost, err)
}

// runOut waits for the end of a hold that cannot be lengthened, and returns the
// cause then.
func runOut(end time.Time, interrupt <-chan struct{}, cause error) error {
	if !sleepUntil(end, interrupt) {
		return errInterrupted
	}
	return cause
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

// sleepUntil waits until t. It is false if it was interrupted.
func sleepUntil(t time.Time, interrupt <-chan struct{}) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-interrupt:
		return false
	}
}

// A holdContext is a handler's context: its deadline is the limit of the hold.
// The extender ends it, not a timer of its own.
type holdContext struct {
	context.Context
	deadline time.Time
}

func (c holdContext) Deadline() (time.Time, bool) { return c.deadline, true }
