package sqsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/sqsub/sqsub/internal/queue"
)

// A Client makes the calls of a [Subscription]. *[sqs.Client] is one. A wrapper
// around it gets receipt handles back unchanged in all settling calls, and has to
// pass the option functions on: they turn off the SDK's retries, since the
// subscription knows better how long a message is still held.
type Client interface {
	GetQueueUrl(context.Context, *sqs.GetQueueUrlInput, ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error)
	GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessage(context.Context, *sqs.DeleteMessageInput, ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error)
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
	ChangeMessageVisibility(context.Context, *sqs.ChangeMessageVisibilityInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error)
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
}

var _ Client = (*sqs.Client)(nil)

// A Handler handles one delivery. What it returns decides what becomes of the
// message:
//
//   - nil: it is deleted.
//   - [RetryAfter]: it is visible again after that delay.
//   - [Discard]: it failed, and is deleted all the same.
//   - any other error: it is visible again after the retry delay, see
//     [WithRetryDelay]; at once, if the handler was cancelled by a stop.
//
// A panic counts as an error, a [PanicError]. After [runtime.Goexit] nothing is
// sent, and the message comes back when its visibility timeout lapses.
//
// A Handler is called by many goroutines at once, and by each of them for one
// message after another: it has to undo what it does to its goroutine, such as
// [runtime.LockOSThread] or pprof labels. The message stays hidden from
// other consumers until it returns, so all work on the message has to be done by
// then. It may keep d, but not modify it.
//
// ctx has the values of Subscribe's context but not its cancellation. It ends
// early if the message may be with another consumer ([ErrVisibilityLost],
// [ErrHoldLimit]) or a stop waits no longer ([ErrShutdown]); [context.Cause]
// tells which. Its deadline is 5 s before the end of SQS's 12 hours, or the end of
// [WithMaxHold]; it may be cancelled up to three seconds before that, since
// SQS counts extensions in whole seconds.
// A cancelled handler keeps its hold, if there still is one, until it returns.
type Handler func(ctx context.Context, d *Delivery) error

// A Subscription receives the messages of one queue and hands them to a
// handler, until it is stopped. Its methods may be called by anyone, any number
// of times, in any order; but see them, and [Hooks], for what a handler or a hook may
// call.
type Subscription struct {
	config
	queue      *queue.Queue
	fifo       bool
	attributes func(context.Context) (queue.Attributes, error) // of the queue, now
	handler    Handler
	log        *slog.Logger // with the queue's name

	base          context.Context // Subscribe's values, without its cancellation
	polling       context.Context // of the receives; ends when they are aborted
	cancelPolling context.CancelFunc

	draining chan struct{} // closed by drain
	drain    func()
	aborting chan struct{} // closed by abort
	abort    func()

	drainedBy time.Time // when the drain timeout ends; valid when draining is closed
	abortedAt time.Time // valid when aborting is closed

	// What happens to deliveries and receives is told to the loop, which alone
	// owns the state of the subscription. looped is closed when it has ended.
	events chan event
	looped chan struct{}

	workers    workers
	worker     func()         // s.work: made once, since a go statement on a method allocates
	returned   report         // deliveries whose handler has returned
	removed    report         // deliveries deleted at the first try
	goroutines sync.WaitGroup // all that it starts but the loop and the calls of queue
	done       chan struct{}
	err        error // valid when done is closed

	stats    counters
	receives trouble
	deletes  trouble
	changes  trouble
}

// Subscribe starts to receive the messages of a queue and to hand them to
// handler, each hidden from other consumers for as long as its handler runs.
// queue is a queue URL, a queue name, or a queue ARN, which may be of another
// account. Whoever calls Subscribe has to call [Subscription.Wait] or
// [Subscription.Shutdown] before the process ends.
//
// When ctx ends, the subscription stops as by [Subscription.Shutdown]: handlers
// run on, for the time of [WithDrainTimeout].
//
// Subscribe reports all faults in its arguments and options at once, each an
// [OptionError], before it makes any call; only what depends on the queue's own
// timeout comes after that. It also returns an error, and starts nothing, if a
// call fails that it needs: GetQueueUrl for a name or an ARN,
// GetQueueAttributes without [WithVisibility]. ctx bounds these calls too, and
// each takes 15 seconds at most. A queue given by its URL and with
// WithVisibility needs neither: if it is missing, the log says so, and after
// two minutes [Subscription.Wait]; if a permission is, the log does, and
// receiving goes on when it is granted. A FIFO queue whose own timeout is 0 is
// an error, since SQS refuses every delete on it.
func Subscribe(ctx context.Context, client Client, queue string, handler Handler, opts ...Option) (*Subscription, error) {
	cfg, err := newConfig(opts)
	id, idErr := parseQueue(queue)
	if handler == nil {
		err = errors.Join(&OptionError{"handler", nil, "must be a function"}, err)
	}
	if c, ok := client.(*sqs.Client); client == nil || ok && c == nil {
		err = errors.Join(&OptionError{"client", nil, "must not be nil"}, err)
	}
	if err := errors.Join(idErr, err); err != nil {
		return nil, err
	}

	url, err := id.Resolve(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("sqsub: %w", err)
	}
	attributesNow := attributesOf(id, client, url)
	if !cfg.visibilitySet {
		attributes, err := attributesNow(ctx)
		if err != nil {
			return nil, fmt.Errorf("sqsub: %w", err)
		}
		cfg.visibility, cfg.maxReceives, cfg.retention = attributes.VisibilityTimeout, attributes.MaxReceiveCount, attributes.Retention
		if err := cfg.check(); err != nil { // now against the queue's own timeout
			return nil, err
		}
		if cfg.visibility == 0 && id.FIFO() {
			return nil, fmt.Errorf("sqsub: the visibility timeout of queue %s is 0, and SQS refuses every delete on such a FIFO queue: set the queue's timeout or WithVisibility", id.Name)
		}
	}

	s := newSubscription(ctx, client, url, handler, cfg)
	s.fifo, s.attributes = id.FIFO(), attributesNow
	s.log = cfg.logger.With("queue", id.Name)
	if cfg.visibility == 0 {
		s.log.Warn("the queue's visibility timeout is 0: messages are not hidden, not extended and not delayed, and may be handled several times at once; set the queue's timeout or WithVisibility")
	}
	if theirs, ours := id.ForeignRegion(client); theirs != "" {
		s.log.Warn("the queue's URL names another region than the client's, and the SDK goes by the client's", "url_region", theirs, "client_region", ours)
	}
	go s.run(ctx)
	return s, nil
}

func parseQueue(id string) (queue.Identifier, error) {
	parsed, err := queue.Parse(id)
	if err != nil {
		return parsed, &OptionError{"queue", id, err.Error()}
	}
	return parsed, nil
}

func attributesOf(id queue.Identifier, client Client, url string) func(context.Context) (queue.Attributes, error) {
	return func(ctx context.Context) (queue.Attributes, error) { return id.Attributes(ctx, client, url) }
}

func newSubscription(ctx context.Context, client Client, url string, handler Handler, cfg config) *Subscription {
	s := &Subscription{
		config:   cfg,
		handler:  handler,
		base:     context.WithoutCancel(ctx),
		draining: make(chan struct{}),
		aborting: make(chan struct{}),
		events:   make(chan event, eventBurst),
		looped:   make(chan struct{}),
		done:     make(chan struct{}),

		receives: trouble{op: "ReceiveMessage"},
		deletes:  trouble{op: "DeleteMessage", moment: troubleMoment},
		changes:  trouble{op: "ChangeMessageVisibility", moment: troubleMoment},
	}
	s.worker = s.work
	s.queue = queue.New(ctx, client, url, cfg.batchDelay > 0, s.called)
	s.polling, s.cancelPolling = context.WithCancel(s.base)
	s.drain = sync.OnceFunc(func() {
		s.drainedBy = time.Now().Add(s.drainTimeout)
		close(s.draining)
	})
	s.abort = sync.OnceFunc(func() {
		s.abortedAt = time.Now()
		close(s.aborting)
	})
	return s
}

// run is the life of the subscription: the loop, then the end of whatever it
// started.
func (s *Subscription) run(ctx context.Context) {
	s.err = s.loop(ctx)
	close(s.looped)
	s.goroutines.Wait()
	s.queue.Close()
	s.cancelPolling()
	close(s.done)
}

// QueueURL returns the URL that all calls use.
func (s *Subscription) QueueURL() string { return s.queue.URL() }

// Visibility returns the timeout that every receive and every extension asks
// for, in whole seconds. Zero means that the queue's own timeout is 0, and
// nothing is extended.
func (s *Subscription) Visibility() time.Duration { return s.visibility }

// Shutdown stops the subscription gracefully and waits until all is settled. No
// receive is started any more; the open one ends by itself, within its wait
// time, since SQS may hand messages to an aborted one all the same; what it
// brings, and what was received but not started, is made visible again at once.
// Handlers run on, and their messages stay hidden.
//
// If ctx or the time of [WithDrainTimeout] ends first, the open receive is
// aborted and the contexts of the handlers are cancelled with [ErrShutdown].
// When ctx ends, Shutdown returns an error that wraps ctx's and says what is
// unfinished; [Subscription.Wait] still waits for it.
//
// Shutdown returns nil when all is settled, also if the subscription had ended by
// itself: [Subscription.Wait] tells. A handler that calls it waits for
// itself until ctx ends: with the handler's own context, when the drain timeout has
// passed; with one that never ends, for ever.
func (s *Subscription) Shutdown(ctx context.Context) error {
	s.drain()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
	}
	select { // both may have been ready
	case <-s.done:
		return nil
	default:
	}
	unfinished := s.unfinished()
	s.abort()
	return fmt.Errorf("sqsub: shutdown ran out of time with %s unfinished: %w", unfinished, ctx.Err())
}

// unfinished names what is in hand for an error text, the first few deliveries by
// id. It does not wait for a loop that a hook holds up.
func (s *Subscription) unfinished() string {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	held, err := s.inFlight(ctx)
	if err != nil {
		return "some deliveries"
	}
	ids := make([]string, len(held))
	for i, h := range held {
		ids[i] = h.ID
	}
	switch n := len(held); n {
	case 0:
		return "only a receive"
	case 1:
		return "1 delivery (" + some(ids) + ")"
	default:
		return fmt.Sprintf("%d deliveries (%s)", n, some(ids))
	}
}

// some lists the first few.
func some(ids []string) string {
	const few = 3
	if len(ids) > few {
		ids = append(ids[:few:few], "...")
	}
	return strings.Join(ids, ", ")
}

// Close stops the subscription at once: the open receive is aborted, and may
// strand messages until their visibility timeout lapses; what was not started
// is released; the contexts of the handlers are cancelled with [ErrShutdown].
// Close waits until the handlers have returned and their outcomes are settled,
// and returns nil; the error is there for [io.Closer]. A handler must not call
// Close: it would wait for itself for ever. It can let another goroutine do so.
func (s *Subscription) Close() error {
	s.drain()
	s.abort()
	<-s.done
	return nil
}

// Wait waits until the subscription has ended and nothing of it runs any more:
// no handler, no call, no goroutine. It returns nil after a stop, or the error
// that ended the subscription: that the queue has not existed for two minutes,
// which wraps SQS's *types.QueueDoesNotExist. A handler must not call Wait.
func (s *Subscription) Wait() error {
	<-s.done
	return s.err
}

// Done returns a channel that is closed when Wait would return.
func (s *Subscription) Done() <-chan struct{} { return s.done }

// Stats returns a snapshot of the subscription's numbers.
func (s *Subscription) Stats() Stats { return s.stats.snapshot() }
