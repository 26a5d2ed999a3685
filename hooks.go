package sqsub

import "time"

// Hooks are functions that a [Subscription] calls on its events, for metrics,
// traces and tests. Any of them may be nil. For one delivery Received comes first
// and Finished last, always. In between come Started, if its handler runs, and
// Extended and Lost as they happen: a delivery is extended while it waits, too.
//
// Hooks are called synchronously, by many goroutines at once, and have to
// return at once: one that blocks holds up a delivery, or all receiving. A hook
// must not modify d, and of the methods of the Subscription may call Stats
// alone. A panic in Started counts as the handler's, and so does a [runtime.Goexit],
// which a test's FailNow calls; either ends the process in any other hook.
//
// Adding a field breaks nobody who names the fields.
type Hooks struct {
	// Received is called for each message that a receive brought.
	Received func(d *Delivery)

	// Started is called right before the handler is.
	Started func(d *Delivery)

	// Finished is called once for each message received, when it has its
	// outcome.
	Finished func(d *Delivery, r Result)

	// Extended is called after each try to extend a delivery. The next try does not
	// wait for it to return.
	Extended func(d *Delivery, e Extension)

	// Lost is called when a delivery's visibility was lost. The cause is that of
	// the handler's context: an [ErrVisibilityLost], perhaps an [ErrHoldLimit].
	Lost func(d *Delivery, cause error)

	// Polled is called after each receive.
	Polled func(p Poll)
}

// An Outcome is how a delivery ended.
type Outcome string

// Each delivery has one of these outcomes.
const (
	Deleted   Outcome = "deleted"   // after the handler succeeded
	Discarded Outcome = "discarded" // deleted after a [Discard]
	Retried   Outcome = "retried"   // to be visible again after a delay
	Released  Outcome = "released"  // handed back unstarted, or when a stop cancelled its handler: visible again at once, or behind the message of its group that failed
	Lost      Outcome = "lost"      // its visibility was lost, see [ErrVisibilityLost], or a newer delivery of the message is here: it was neither deleted nor handed back
	Unsettled Outcome = "unsettled" // comes back when its visibility timeout lapses: the call that was to settle it failed to the end, or the handler called runtime.Goexit
)

// A Result is how a delivery ended.
type Result struct {
	Outcome  Outcome
	Err      error         // the handler's error, or that of the call that was to settle the delivery
	Duration time.Duration // how long the handler ran; zero for one that was not started
	Delay    time.Duration // until the message is visible again, as it was set: rounded up and clipped
	Late     bool          // it was deleted after its visibility was lost: another consumer may handle it again
}

// An Extension is one try to extend a delivery's visibility.
type Extension struct {
	Timeout time.Duration // what was asked for
	Latency time.Duration // from the request to the answer
	Err     error         // nil = granted
}

// A Poll is one receive.
type Poll struct {
	Asked    int           // messages asked for
	Received int           // messages received
	Duration time.Duration // from the request to the answer
	Err      error
	Open     int // other receives that are open now; zero = this was the only one
}
