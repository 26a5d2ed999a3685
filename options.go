package sqsub

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"
)

// An Option changes one setting of a [Subscription]. A later option overrides
// an earlier one of the same name.
type Option func(*config)

// The defaults of the options.
const (
	DefaultConcurrency  = 10
	DefaultWaitTime     = 20 * time.Second
	DefaultBatchDelay   = 100 * time.Millisecond
	DefaultDrainTimeout = 25 * time.Second
)

const (
	defaultRetryBase = time.Second
	defaultRetryMax  = 5 * time.Minute
	maxWaitTime      = 20 * time.Second // R1
)

type config struct {
	visibility    time.Duration // whole seconds; 0 = the queue's own, or none
	visibilitySet bool
	maxReceives   int           // of the queue's redrive policy; 0 = none, or not known
	retention     time.Duration // how long the queue keeps a message; 0 = not known
	maxHold       time.Duration
	concurrency   int
	prefetch      int
	waitTime      time.Duration // whole seconds
	retryDelay    func(*Delivery, error) time.Duration
	batchDelay    time.Duration
	drainTimeout  time.Duration
	logger        *slog.Logger
	hooks         Hooks
}

// newConfig applies the options and checks the outcome in one pass, so that
// every fault is reported at once.
func newConfig(opts []Option) (config, error) {
	c := config{
		maxHold:      sqsMaxHold,
		concurrency:  DefaultConcurrency,
		waitTime:     DefaultWaitTime,
		retryDelay:   ExponentialBackoff(defaultRetryBase, defaultRetryMax),
		batchDelay:   DefaultBatchDelay,
		drainTimeout: DefaultDrainTimeout,
	}
	for _, opt := range opts {
		if opt != nil {
			opt(&c)
		}
	}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	return c, c.check()
}

// check reports every fault, and rounds the settings that SQS counts in whole
// seconds.
func (c *config) check() error {
	var faults []error
	fault := func(option string, value any, format string, args ...any) {
		faults = append(faults, &OptionError{option, value, fmt.Sprintf(format, args...)})
	}
	if c.visibilitySet && (c.visibility < time.Second || c.visibility > sqsMaxHold) {
		fault("WithVisibility", c.visibility, "must be 1s to 12h, as SQS counts visibility")
		c.visibility = 0
	}
	c.visibility = ceilSeconds(c.visibility)
	if c.visibility > 0 && c.maxHold < c.visibility {
		fault("WithMaxHold", c.maxHold, "must be at least the visibility timeout, which is %v", c.visibility)
	} else if c.maxHold < time.Second || c.maxHold > sqsMaxHold {
		fault("WithMaxHold", c.maxHold, "must be at least the visibility timeout and at most 12h, SQS's limit")
	}
	if c.concurrency < 1 {
		fault("WithConcurrency", c.concurrency, "must be at least 1")
	}
	if c.prefetch < 0 {
		fault("WithPrefetch", c.prefetch, "must not be negative")
	}
	if c.waitTime < time.Second || c.waitTime > maxWaitTime {
		fault("WithWaitTime", c.waitTime, "must be 1s to 20s, as SQS allows")
	}
	c.waitTime = ceilSeconds(c.waitTime)
	if c.retryDelay == nil {
		fault("WithRetryDelay", nil, "must be a function")
	}
	if c.batchDelay < 0 {
		fault("WithBatchDelay", c.batchDelay, "must not be negative")
	}
	if c.drainTimeout < 0 {
		fault("WithDrainTimeout", c.drainTimeout, "must not be negative; 0 means no limit")
	}
	return errors.Join(faults...)
}

// WithVisibility sets the visibility timeout: every receive and every extension
// asks SQS to hide the message for d. It is how long a message stays hidden
// after its consumer has crashed; a slow handler needs no longer one. 30 s to a
// few minutes suit most queues. d is 1 s to 12 h; a fraction of a second rounds
// up. By default the queue's own timeout is read once, which needs the permission
// sqs:GetQueueAttributes. With a FIFO queue that moves messages to a dead-letter
// queue the default is better: its limit is read too, and a group does not wait for
// a message that is not going to come back. So is the retention of any queue, and the
// log warns of a retry delay that outlasts it.
func WithVisibility(d time.Duration) Option {
	return func(c *config) { c.visibility, c.visibilitySet = d, true }
}

// WithMaxHold bounds how long one delivery may be held. At the end the handler's
// context ends with [ErrHoldLimit] and SQS hands the message on. d is the
// visibility timeout to 12 h. Defaults to 12 h: SQS allows no more, and counts
// from the request that received the message, so that the end comes some seconds
// earlier. The time counts while the delivery waits, too: for a slot, or for those before
// it in its group, which are up to nine that came with it.
func WithMaxHold(d time.Duration) Option {
	return func(c *config) { c.maxHold = d }
}

// WithConcurrency sets how many handlers run at once: in a FIFO queue, how many
// message groups. n is at least 1. Defaults to 10.
//
// While the queue has more messages than there are slots, slots that come free one by
// one wait for each other, a second at most, to be filled by one receive: fewer than one
// in ten are idle then, one in twenty on average. [WithPrefetch] keeps them all busy.
func WithConcurrency(n int) Option {
	return func(c *config) { c.concurrency = n }
}

// WithPrefetch sets how many deliveries (in a FIFO queue, groups) are held
// ready beyond those that run, so that no handler waits for a receive. With 20 or
// more, receives also bring ten messages each, as long as the queue has them. What
// waits is extended like the rest, and released at a stop. Defaults to 0.
//
// Whatever n is, an answer that comes later than a second after the wait time may
// bring up to ten more, since the next receive does not wait for one that seems lost.
// A message that is delivered again while its handler runs takes up no place; nor do,
// up to one for each slot, those whose deletes are not confirmed yet.
func WithPrefetch(n int) Option {
	return func(c *config) { c.prefetch = n }
}

// WithWaitTime sets how long a receive waits for a message to come. A shorter
// time makes idle polling dearer and a graceful stop quicker. The timeout of the HTTP
// client has to be longer; if it is not, receives wait less, and that is logged. d is
// 1 s to 20 s; a fraction of a second rounds up. Defaults to 20 s.
func WithWaitTime(d time.Duration) Option {
	return func(c *config) { c.waitTime = d }
}

// WithRetryDelay sets how long a message stays hidden after a handler failed
// with an error that is no verdict of its own. f is called once for each
// failure, by several goroutines at once; what it returns is rounded up to
// whole seconds, clipped to what is left of SQS's 12 hours, and zero if it is
// negative. If f panics, the default is used, and that is logged. Defaults to
// [ExponentialBackoff] from 1 s to 5 min.
func WithRetryDelay(f func(d *Delivery, err error) time.Duration) Option {
	return func(c *config) { c.retryDelay = f }
}

// WithBatchDelay bounds how long a delete, an extension or a retry delay may wait
// for others to share a request with: ten in a batch cost as much as one alone. A
// delete or a retry delay waits for a tenth of what is left of its hold at most, in
// a FIFO queue not at all, and a retry delay counts from when it is sent. An
// extension leaves up to d before it is due instead, and never later; where more is
// in hand than d / 10 µs, it may leave earlier still: 10 µs for each delivery, up to
// 1.2 s. It is never more than a tenth of the timeout. d is not negative; zero makes
// every call a single one. Defaults to 100 ms.
func WithBatchDelay(d time.Duration) Option {
	return func(c *config) { c.batchDelay = d }
}

// WithDrainTimeout bounds a graceful stop: handlers that still run when d has
// passed since the stop began have their contexts cancelled with [ErrShutdown],
// and a receive that is still open is aborted. If d is shorter than the time of
// [WithWaitTime], that befalls the receive of an idle subscription. What is to be
// deleted or handed back then gets some seconds more. Zero means no bound for
// handlers; when the last has returned, the rest gets 40 s. Defaults to 25 s, which
// fits the 30 s that container platforms leave between SIGTERM and SIGKILL.
func WithDrainTimeout(d time.Duration) Option {
	return func(c *config) { c.drainTimeout = d }
}

// WithLogger sets where the subscription logs: at Warn what is retried or
// discarded, at Error what is given up and what panics, at Info what works again or
// came right in the end, and nothing above Debug for normal work. Defaults to
// [slog.Default] at the time of [Subscribe], also for nil.
func WithLogger(l *slog.Logger) Option {
	return func(c *config) { c.logger = l }
}

// WithHooks sets functions to be called on the events of a subscription: see
// [Hooks]. Defaults to none.
func WithHooks(h Hooks) Option {
	return func(c *config) { c.hooks = h }
}

// ExponentialBackoff returns a retry delay for [WithRetryDelay]: random between
// zero and base·2^(n-1) for a message received for the nth time, but no more
// than limit. The count is SQS's, so it holds across consumers and restarts.
// Random delays keep messages that failed together from coming back together. SQS
// counts whole seconds, so that the first delay of a base of 1 s is always 1 s.
func ExponentialBackoff(base, limit time.Duration) func(*Delivery, error) time.Duration {
	return func(d *Delivery, _ error) time.Duration {
		return backoff(base, limit, d.ReceiveCount()-1)
	}
}

// backoff is a random duration up to base doubled n times, at most limit.
func backoff(base, limit time.Duration, n int) time.Duration {
	if base <= 0 || limit <= 0 {
		return 0
	}
	ceiling := base
	for ; n > 0 && ceiling < limit; n-- {
		if ceiling > limit/2 {
			ceiling = limit
			break
		}
		ceiling *= 2
	}
	return rand.N(min(ceiling, limit)) + 1
}
