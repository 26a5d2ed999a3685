package sqsub

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrVisibilityLost is the cause of a handler's context when its message
	// may be with another consumer from now on: an extension found it gone, or
	// none succeeded before the visibility timeout ran out. Ask for it with
	// errors.Is(context.Cause(ctx), ErrVisibilityLost); ctx.Err() tells only that
	// the context has ended. The cause wraps the last error of SQS, if there was
	// one.
	ErrVisibilityLost = errors.New("sqsub: visibility lost")

	// ErrHoldLimit is the cause of a handler's context when its message has
	// been held for as long as SQS allows, 12 hours from the receive, or for as
	// long as [WithMaxHold] says. It also is an [ErrVisibilityLost].
	ErrHoldLimit = fmt.Errorf("%w: held for as long as it may be", ErrVisibilityLost)

	// ErrShutdown is the cause of a handler's context when a stop waits no longer,
	// or at once by [Subscription.Close]. Its message is still held.
	ErrShutdown = errors.New("sqsub: shutting down")
)

// RetryAfter is a handler's verdict: it failed because of err, which may be
// nil, and the message is to be visible again after delay; zero is at once. The
// delay is rounded up to whole seconds, clipped to what is left of SQS's 12 hours,
// and zero if it is negative. The verdict counts wrapped as well, as far as
// [errors.As] finds it; of several the outermost counts.
//
// A test of a handler asks for it with errors.Is(err, RetryAfter(delay, nil)), which
// finds one inside another verdict too, and for its reason with errors.Is(err, reason).
func RetryAfter(delay time.Duration, err error) error {
	return &verdict{Retried, ceilSeconds(delay), err}
}

// Discard is a handler's verdict: it failed because of err, which may be nil,
// no other attempt will help, and the message is deleted all the same. It does
// not reach a dead-letter queue. The verdict counts wrapped as well, as far as
// [errors.As] finds it; of several the outermost counts.
//
// A test of a handler asks for it with errors.Is(err, Discard(nil)), and for its
// reason with errors.Is(err, reason).
func Discard(err error) error {
	return &verdict{Discarded, 0, err}
}

// A verdict is what [RetryAfter] and [Discard] return.
type verdict struct {
	outcome Outcome
	delay   time.Duration // whole seconds
	err     error
}

func (v *verdict) Error() string {
	text := "discard"
	if v.outcome == Retried {
		text = fmt.Sprintf("retry after %v", v.delay)
	}
	if v.err != nil {
		text += ": " + v.err.Error()
	}
	return text
}

func (v *verdict) Unwrap() error { return v.err }

// Is reports whether target is the same verdict, for that or for no reason.
func (v *verdict) Is(target error) bool {
	t, ok := target.(*verdict)
	return ok && v.outcome == t.outcome && v.delay == t.delay && (t.err == nil || errors.Is(v.err, t.err))
}

// An OptionError is a fault in what [Subscribe] was given.
type OptionError struct {
	Option string // "WithVisibility", or the name of a parameter of Subscribe
	Value  any    // as it was given
	Reason string // the rule it breaks
}

func (e *OptionError) Error() string {
	format := "sqsub: %s(%v): %s"
	if _, ok := e.Value.(string); ok {
		format = "sqsub: %s(%q): %s"
	}
	return fmt.Sprintf(format, e.Option, e.Value, e.Reason)
}

// A PanicError is the error of a handler that panicked. The message is retried
// as after any other error.
type PanicError struct {
	Value any    // what was given to panic
	Stack []byte // where, as [runtime/debug.Stack] formats it
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("handler panicked: %v", e.Value)
}

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
