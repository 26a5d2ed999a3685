package conformance

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub"
)

// timeout is short, so that what should be extended and is not shows soon.
var timeout = cmp.Or(dialects[server].timeout, 3*time.Second)

const (
	standard = ""
	fifo     = ".fifo"

	// long is the timeout of messages that have to come back before it lapses.
	long = time.Minute

	// soon is how late something may be that is due at once. It is less than what a long poll waits.
	soon     = 4 * time.Second
	longPoll = 10 * time.Second

	// patience is how long a test waits for what has to come.
	patience = 30 * time.Second
)

// A queue is the one queue of a test, and the record of what its subscriptions did. It stands in for t.
type queue struct {
	*testing.T
	kind, name, url string
	results         chan result
	received        atomic.Int64 // deliveries

	mu   sync.Mutex
	runs []run
}

// A run is one call of a handler.
type run struct {
	body     string
	group    string
	count    int // receive count
	from, to time.Time
	cause    error // of its context, if that ended before it returned
	err      error
}

func (r run) String() string {
	return fmt.Sprintf("%s %q, receive %d: %v", r.group, r.body, r.count, r.err)
}

// A result is the outcome of one delivery.
type result struct {
	body string
	at   time.Time
	sqsub.Result
}

// newQueue makes a queue of a kind; its attributes are given as names and values in turn. The test becomes a parallel
// one.
func newQueue(t *testing.T, kind string, attributes ...string) *queue {
	t.Helper()
	if testing.Short() {
		t.Skip("takes real time")
	}
	skipDeviation(t)
	t.Parallel()
	q := &queue{T: t, kind: kind, results: make(chan result, 1000)}
	q.name, q.url = create(t, kind, attributes...)
	return q
}

func create(t *testing.T, kind string, attributes ...string) (name, url string) {
	t.Helper()
	in := &sqs.CreateQueueInput{QueueName: aws.String(prefix + strings.ToLower(rand.Text()) + kind), Attributes: map[string]string{}}
	if kind == fifo {
		in.Attributes["FifoQueue"], in.Attributes["ContentBasedDeduplication"] = "true", "true"
	}
	for i := 0; i < len(attributes); i += 2 {
		in.Attributes[attributes[i]] = attributes[i+1]
	}
	out, err := client.CreateQueue(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := client.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: out.QueueUrl}); err != nil {
			t.Error(err)
		}
	})
	return *in.QueueName, *out.QueueUrl
}

// arnOf asks for the ARN of a queue.
func arnOf(t *testing.T, url string) string {
	t.Helper()
	out, err := client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Attributes["QueueArn"]
}

// send sends messages; to the group "g" of a FIFO queue.
func (q *queue) send(bodies ...string) {
	q.Helper()
	q.sendTo("g", bodies...)
}

// sendNumbers sends n messages.
func (q *queue) sendNumbers(n int) {
	q.Helper()
	for i := range n {
		q.send(strconv.Itoa(i))
	}
}

func (q *queue) sendTo(group string, bodies ...string) {
	q.Helper()
	for _, body := range bodies {
		in := &sqs.SendMessageInput{QueueUrl: &q.url, MessageBody: &body}
		if q.kind == fifo {
			in.MessageGroupId, in.MessageDeduplicationId = &group, aws.String(rand.Text())
		}
		if _, err := client.SendMessage(q.Context(), in); err != nil {
			q.Fatal(err)
		}
	}
}

// subscribe starts a subscription that is recorded, and stopped at the end of the test.
func (q *queue) subscribe(handler sqsub.Handler, opts ...sqsub.Option) *sqsub.Subscription {
	q.Helper()
	return q.through(consuming, q.url, handler, opts...)
}

// through subscribes by a client, and by an identifier of the queue, of the test's own.
func (q *queue) through(client sqsub.Client, id string, handler sqsub.Handler, opts ...sqsub.Option) *sqsub.Subscription {
	q.Helper()
	sub, err := sqsub.Subscribe(context.Background(), client, id, q.recorded(handler), append([]sqsub.Option{
		sqsub.WithWaitTime(time.Second),
		sqsub.WithLogger(slog.New(slog.NewTextHandler(q.Output(), nil))),
		sqsub.WithHooks(sqsub.Hooks{
			Received: func(*sqsub.Delivery) { q.received.Add(1) },
			Finished: func(d *sqsub.Delivery, r sqsub.Result) { q.results <- result{d.Body(), time.Now(), r} },
		}),
	}, opts...)...)
	if err != nil {
		q.Fatal(err)
	}
	q.Cleanup(func() {
		q.stop(sub)
		if st := sub.Stats(); st.InFlight != 0 || st.Waiting != 0 || st.Receiving != 0 {
			q.Errorf("after the stop: %+v", st)
		}
	})
	return sub
}

// stop stops a subscription gracefully.
func (q *queue) stop(sub *sqsub.Subscription) {
	q.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := sub.Shutdown(ctx); err != nil {
		q.Error(err)
	}
}

func (q *queue) recorded(handler sqsub.Handler) sqsub.Handler {
	return func(ctx context.Context, d *sqsub.Delivery) (err error) {
		r := run{body: d.Body(), group: d.GroupID(), count: d.ReceiveCount(), from: time.Now()}
		defer func() {
			r.to, r.cause, r.err = time.Now(), context.Cause(ctx), err
			q.mu.Lock()
			defer q.mu.Unlock()
			q.runs = append(q.runs, r)
		}()
		return handler(ctx, d)
	}
}

// Runs are the calls of handlers that have returned, in that order.
func (q *queue) Runs() []run {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.runs)
}

// wantRuns fails if there were not so many, which it returns.
func (q *queue) wantRuns(n int) []run {
	q.Helper()
	runs := q.Runs()
	if len(runs) != n {
		q.Fatalf("%d runs, want %d: %v", len(runs), n, runs)
	}
	return runs
}

// await waits for the next outcome.
func (q *queue) await() result {
	q.Helper()
	select {
	case r := <-q.results:
		return r
	case <-time.After(patience):
		q.Fatalf("no further outcome; runs so far: %v", q.Runs())
		panic("not reached")
	}
}

// want waits for the next outcomes, which have to be these in any order.
func (q *queue) want(outcomes ...sqsub.Outcome) {
	q.Helper()
	missing := map[sqsub.Outcome]int{}
	for _, o := range outcomes {
		missing[o]++
	}
	for range outcomes {
		r := q.await()
		if missing[r.Outcome]--; missing[r.Outcome] < 0 {
			q.Errorf("unexpected outcome of %q: %+v", r.body, r.Result)
		}
	}
}

func all(n int, o sqsub.Outcome) []sqsub.Outcome {
	list := make([]sqsub.Outcome, n)
	for i := range list {
		list[i] = o
	}
	return list
}

// wait waits until a channel is closed.
func (q *queue) wait(what string, done <-chan struct{}) {
	q.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		q.Fatal("in vain: ", what)
	}
}

// until waits for a condition.
func (q *queue) until(what string, ok func() bool) {
	q.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			q.Fatal("in vain: ", what)
		}
	}
}

// idle waits until the long poll of a subscription has arrived at the server.
func (q *queue) idle(sub *sqsub.Subscription) {
	q.Helper()
	q.until("an open receive", func() bool { return sub.Stats().Receiving > 0 })
	time.Sleep(500 * time.Millisecond) // only the server could tell
}

// receive is another consumer's receive of up to ten messages.
func (q *queue) receive(wait, hide time.Duration) []types.Message {
	q.Helper()
	out, err := consuming.ReceiveMessage(context.Background(), &sqs.ReceiveMessageInput{
		QueueUrl: &q.url, MaxNumberOfMessages: 10,
		WaitTimeSeconds: int32(wait.Seconds()), VisibilityTimeout: int32(hide.Seconds()),
	})
	if err != nil {
		q.Error(err)
		return nil
	}
	return out.Messages
}

// change is another consumer's change of a message's timeout.
func (q *queue) change(receipt *string, hide time.Duration) {
	q.Helper()
	_, err := client.ChangeMessageVisibility(context.Background(), &sqs.ChangeMessageVisibilityInput{QueueUrl: &q.url, ReceiptHandle: receipt, VisibilityTimeout: int32(hide.Seconds())})
	if err != nil {
		q.Error(err)
	}
}

// remove is another consumer's delete.
func (q *queue) remove(receipt *string) {
	q.Helper()
	_, err := client.DeleteMessage(context.Background(), &sqs.DeleteMessageInput{QueueUrl: &q.url, ReceiptHandle: receipt})
	if err != nil {
		q.Error(err)
	}
}

// rival is another consumer that polls all the time, until it is stopped. It returns what it got.
func (q *queue) rival() (stop func() []types.Message) {
	done := make(chan struct{})
	got := make(chan []types.Message, 1)
	go func() {
		var all []types.Message
		for {
			select {
			case <-done:
				got <- all
				return
			default:
				all = append(all, q.receive(time.Second, long)...)
			}
		}
	}()
	stop = sync.OnceValue(func() []types.Message { close(done); return <-got })
	q.Cleanup(func() { stop() })
	return stop
}

// wantNothing stops a rival, which is to have got nothing.
func (q *queue) wantNothing(stop func() []types.Message) {
	q.Helper()
	for _, m := range stop() {
		q.Errorf("another consumer got %q", *m.Body)
	}
}

// collect receives and deletes n messages that are to be visible now, and returns their bodies in the order received.
func (q *queue) collect(n int) []string {
	q.Helper()
	var bodies []string
	for end := time.Now().Add(soon); len(bodies) < n && time.Now().Before(end); {
		for _, m := range q.receive(time.Second, long) {
			bodies = append(bodies, *m.Body)
			q.remove(m.ReceiptHandle)
		}
	}
	if len(bodies) != n {
		q.Errorf("visible at once: %q, want %d", bodies, n)
	}
	return bodies
}

// wantEmpty fails if there is a message, visible or hidden for no longer than the timeout.
func (q *queue) wantEmpty() {
	q.Helper()
	for end := time.Now().Add(timeout + time.Second); time.Now().Before(end); {
		for _, m := range q.receive(time.Second, long) {
			q.Errorf("still in the queue: %q", *m.Body)
		}
	}
}

// works returns a handler that works for d, whatever its context says.
func works(d time.Duration) sqsub.Handler {
	return func(context.Context, *sqsub.Delivery) error {
		time.Sleep(d)
		return nil
	}
}

// obeys returns a handler that works until its context ends.
func obeys(ctx context.Context, _ *sqsub.Delivery) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(patience):
		return nil
	}
}

// succeeds is a handler.
func succeeds(context.Context, *sqsub.Delivery) error { return nil }

// failsFirst returns a handler that fails with err on the first call, and succeeds from then on.
func failsFirst(err error) sqsub.Handler {
	var called atomic.Bool
	return func(context.Context, *sqsub.Delivery) error {
		if called.CompareAndSwap(false, true) {
			return err
		}
		return nil
	}
}

// A spy is a client that counts the calls, and may change them.
type spy struct {
	sqsub.Client
	change func(*sqs.ChangeMessageVisibilityInput) error

	deletes, deleteBatches, changes, changeBatches atomic.Int64
}

func (s *spy) DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, opts ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	s.deletes.Add(1)
	return s.Client.DeleteMessage(ctx, in, opts...)
}

func (s *spy) DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, opts ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	s.deleteBatches.Add(1)
	return s.Client.DeleteMessageBatch(ctx, in, opts...)
}

func (s *spy) ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput, opts ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	s.changes.Add(1)
	if s.change != nil {
		if err := s.change(in); err != nil {
			return nil, err
		}
	}
	return s.Client.ChangeMessageVisibility(ctx, in, opts...)
}

func (s *spy) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, opts ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	s.changeBatches.Add(1)
	return s.Client.ChangeMessageVisibilityBatch(ctx, in, opts...)
}
