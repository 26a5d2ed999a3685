package sqsub

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqsub/sqsub/internal/queue"
)

// An extender keeps one delivery hidden, from the receive until it is settled or
// lost. It has no goroutine of its own: a timer and the answers to its calls move
// it on. A stack for each of 120,000 deliveries that are held would cost more
// memory than all else about them, and one for each that is handled at once more
// time.
type extender struct {
	s    *Subscription
	d    *delivery
	call *queue.Call // the extension that is under way; nil = there was none yet

	mu        sync.Mutex // guards the following
	hold      hold
	timer     *time.Timer // fires when there is something to do; nil = there is no hold
	calling   bool        // an extension is under way
	telling   int         // answers and losses of which hooks and the loop are still being told
	failure   error       // of the last try; nil once one is granted
	tries     int         // failed since the last that was granted
	again     time.Time   // no retry before
	notBefore time.Time   // since the handler returned: no extension before, unless the hold runs short
	hopeless  error       // no other try is worth it: why the hold is going to be lost
	yielded   bool        // the handler has returned
	stopped   bool
	quiet     chan struct{} // closed when nothing is under way any more; nil = nobody waits for that
	warned    bool          // that the hold cannot be lengthened any more
	cause     error         // why the visibility was lost
	deleted   bool          // after the handler returned SQS answered an extension that the message is deleted
}

const (
	minCall = 250 * time.Millisecond
	maxCall = 10 * time.Second

	retryBase = 50 * time.Millisecond
	retryMax  = 30 * time.Second
)

// leadAtMost is how long before it is due an extension may leave if all slots are in
// use. The timer is set by that, and asks what is in hand when it fires.
func (e *extender) leadAtMost() time.Duration {
	slots := min(e.s.concurrency, maxInFlight) + min(e.s.prefetch, maxInFlight) // either may be as large as an int can be
	return lead(e.hold.timeout, e.s.batchDelay, slots)
}

// leadNow goes by what is in hand, as the loop last told.
func (e *extender) leadNow() time.Duration {
	return lead(e.hold.timeout, e.s.batchDelay, int(e.s.stats.inFlight.Load()))
}

// start begins to keep the hold h on d.
func (e *extender) start(s *Subscription, d *delivery, h hold) {
	e.s, e.d, e.hold = s, d, h
	if h.timeout == 0 {
		return // SQS hides nothing: there is no hold to keep or to lose
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s.goroutines.Add(1)
	e.timer = time.AfterFunc(time.Until(e.next(e.leadAtMost())), e.wake)
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

// next is when there is something to do: to extend, in time for company; or, if
// that is under way or nothing can lengthen the hold, to find it lost at its end.
func (e *extender) next(lead time.Duration) time.Time {
	switch due := e.due(); {
	case e.calling, e.hopeless != nil, !e.hold.extendable(due):
		return e.hold.end()
	case e.tries > 0:
		return later(e.again, due.Add(-lead))
	default:
		return due.Add(-lead)
	}
}

// leaveBy is until when an extension that begins now may wait for company.
func (e *extender) leaveBy(now time.Time) time.Time {
	if closed(e.s.draining) {
		return now
	}
	if e.tries > 0 {
		return now.Add(min(e.s.batchDelay, e.hold.end().Sub(now)/10))
	}
	return later(now, e.due())
}

// arm sets the timer to what is next. The caller holds the lock.
func (e *extender) arm(lead time.Duration) {
	if !e.timer.Stop() {
		e.s.goroutines.Add(1)
	}
	e.timer.Reset(time.Until(e.next(lead)))
}

func (e *extender) disarm() {
	if e.timer != nil && e.timer.Stop() {
		e.s.goroutines.Done()
	}
}

// wake does what is due. The timer calls it.
func (e *extender) wake() {
	defer e.s.goroutines.Done()
	if lost := e.proceed(); lost != nil {
		defer e.told()
		e.s.visibilityLost(e.d, lost)
	}
}

// proceed begins an extension, if it is time for one, and returns why the
// visibility is lost, if it is. The caller tells, without the lock.
func (e *extender) proceed() (lost error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped || e.cause != nil {
		return nil
	}
	now, end := time.Now(), e.hold.end()
	if passed(now, end) {
		e.telling++
		return e.lose(e.expiry())
	}
	lead := e.leadNow()
	if !now.Before(e.next(lead)) { // else it was put off when the timer had fired, or less is in hand than may be
		leaveBy := e.leaveBy(now)
		ask := e.hold.ask(leaveBy) // the latest it can leave, so that it fits the limit in any case
		switch {
		case ask == 0 && e.failure == nil:
			e.hopeless = ErrHoldLimit
		case ask == 0:
			e.hopeless = lapsed(e.failure)
		default:
			e.calling = true
			e.call = &queue.Call{Receipt: e.d.receipt, Timeout: ask, Caller: e}
			limit := callLimit(end.Sub(now), e.failure)
			if !closed(e.s.aborting) || now.Sub(e.s.abortedAt) < stopLimit { // later it is not what a stop waits for
				limit = min(limit, e.s.latest(now).Sub(now))
			}
			e.s.queue.BeginChange(e.call, queue.Deadline{LeaveBy: leaveBy, Limit: limit})
		}
	}
	e.arm(lead)
	return nil
}

// expiry is why a hold that comes to its end is lost.
func (e *extender) expiry() error {
	switch {
	case e.hopeless != nil:
		return e.hopeless
	case !e.hold.extendable(e.due()):
		return ErrHoldLimit
	}
	return lapsed(e.failure)
}

// Done takes the answer to an extension. Who listens is told on a goroutine of its
// own: a hook that takes its time must not keep others from the answers of the
// same request.
func (e *extender) Done(sent, answered time.Time, err error) {
	try := Extension{Timeout: e.call.Timeout, Latency: answered.Sub(sent), Err: err}
	last, lost := e.answered(sent, answered, err)
	if e.s.hooks.Extended == nil && !last && lost == nil {
		e.told()
		return
	}
	e.s.goroutines.Go(func() {
		defer e.told()
		e.s.extensionTried(e.d, try)
		if last {
			e.s.lastExtension(e.d)
		}
		if lost != nil {
			e.s.visibilityLost(e.d, lost)
		}
	})
}

// answered takes note of the answer to an extension. It reports whether that was
// the last that the hold allows, and why it is lost, if it is. The caller tells,
// without the lock.
func (e *extender) answered(sent, now time.Time, err error) (last bool, lost error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calling = false
	e.telling++
	kind := queue.Classify(err)
	// Most likely the delete has overtaken the extension (B016, B018): the answer to
	// that tells what has become of the message.
	overtaken := kind == queue.Gone && e.yielded
	switch {
	case err == nil:
		e.s.stats.extended.Add(1)
	case !overtaken:
		e.s.stats.extendFailures.Add(1)
	}
	if e.cause != nil {
		return false, nil // it was lost meanwhile
	}
	end := e.hold.end()
	switch {
	case err == nil && passed(now, end): // it proves nothing (V8)
		return false, e.lose(lapsed(errors.New("an extension was answered too late")))
	case err == nil:
		e.hold = e.hold.extended(sent, e.call.Timeout)
		e.failure, e.tries = nil, 0
		last = !e.warned && !e.hold.extendable(e.due())
		e.warned = e.warned || last
	case overtaken:
		e.deleted = queue.IsDeleted(err)
		e.disarm()
		return false, nil
	case kind == queue.Gone:
		return false, e.lose(fmt.Errorf("%w: %w", ErrVisibilityLost, err))
	case kind == queue.Limit: // not a loss: what was granted before still stands (V6)
		e.hopeless = ErrHoldLimit
	case kind == queue.Invalid:
		e.hopeless = lapsed(err)
	default:
		left := end.Sub(now)
		e.failure = err
		pause := retryPause(left, e.tries)
		if kind == queue.Denied || queue.IsThrottled(err) { // Q12, V11: a second apart, where the timeout has some
			pause = max(pause, min(time.Second, e.hold.timeout/15, left/2))
		}
		e.again = earlier(now.Add(pause), end)
		e.tries++
	}
	if !e.stopped {
		e.arm(e.leadAtMost())
	}
	return last, nil
}

// lose ends the hold.
func (e *extender) lose(cause error) error {
	e.cause = cause
	e.calling = e.calling && !e.call.Withdraw()
	e.disarm()
	return cause
}

// told says that something has been told, and lets go who waits until nothing is
// under way any more.
func (e *extender) told() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.telling--
	if e.quiet != nil && !e.busy() {
		close(e.quiet)
		e.quiet = nil
	}
}

// busy reports whether an extension is under way, or its answer is being told.
func (e *extender) busy() bool { return e.calling || e.telling > 0 }

// yield says that the handler has returned: the hold goes on, but an extension
// that has not left yet is put off for a quarter of the timeout.
func (e *extender) yield(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.yielded = true
	due := e.due()
	e.notBefore = now.Add(e.hold.timeout / 4)
	switch {
	case e.timer == nil, e.cause != nil:
		return
	case e.calling:
		if !e.call.Withdraw() {
			return // the answer sets the timer
		}
		e.calling = false
	case e.tries == 0 && e.due().Equal(due):
		return // it is not due before that anyway
	}
	e.failure, e.tries = nil, 0
	e.arm(e.leadAtMost())
}

// stop ends the extender. It returns when no extension is under way any more,
// since one that is overtaken by a delay would undo it (V13).
func (e *extender) stop() {
	if quiet := e.halt(); quiet != nil {
		<-quiet
	}
}

// halt ends the extender. If something is under way, the channel is closed when
// that is over; else it is nil.
func (e *extender) halt() (quiet <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = true
	e.disarm()
	e.calling = e.calling && !e.call.Withdraw()
	if e.busy() && e.quiet == nil {
		e.quiet = make(chan struct{})
	}
	return e.quiet
}

// err is why the visibility is lost, or nil while the hold lasts.
func (e *extender) err() error { return e.errAt(time.Now()) }

func (e *extender) errAt(now time.Time) error {
	_, lost := e.at(now)
	return lost
}

// at is the hold, and why the visibility was lost by the given time. It goes by
// that too: after a pause of the process the extender may not have run yet.
func (e *extender) at(now time.Time) (h hold, lost error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cause != nil || e.hold.timeout == 0 || !passed(now, e.hold.end()) {
		return e.hold, e.cause
	}
	return e.hold, e.expiry()
}

func (e *extender) current() hold {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hold
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

func lapsed(failure error) error {
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
// the hold: short at first, then longer, but never so long that it was the last.
func retryPause(left time.Duration, try int) time.Duration {
	return max(retryBase, backoff(2*retryBase, min(retryMax, left/5), try))
}

// A holdContext is a handler's context: its deadline is the limit of the hold.
// The extender ends it, not a timer of its own.
type holdContext struct {
	context.Context
	deadline time.Time
}

func (c holdContext) Deadline() (time.Time, bool) { return c.deadline, true }
