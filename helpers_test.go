package sqsub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// A fixture is a server with one queue, and the record of what happened on it.
type fixture struct {
	*testing.T
	*sqstest.Server
	client *sqs.Client
	queue  string // its name
	url    string
	start  time.Time

	unheard bool // see eachWay

	mu       sync.Mutex
	log      bytes.Buffer
	sent     map[string]string // bodies by message id
	runs     []run
	received int
	results  []result
	foreign  []types.Message
	meddled  map[string]bool // receipt handles that others used
}

// A run is one call of a handler. Times count from the start of the test.
type run struct {
	body     string
	count    int // receive count
	from, to time.Duration
	ended    time.Duration // when its context did, if it did before it returned
	cause    error         // of that
}

// A result is the outcome of one delivery.
type result struct {
	body string
	at   time.Duration
	sqsub.Result
}

// bubble runs a test in a synctest bubble, which fails if the test leaves a
// goroutine or a timer behind. The queue is a FIFO queue if its name says so;
// its attributes are given as names and values in turn. In the bubble f stands
// in for t.
func bubble(t *testing.T, queue string, test func(f *fixture), attributes ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, Server: sqstest.NewServer(), queue: queue, start: time.Now(), sent: map[string]string{}, meddled: map[string]bool{}}
		f.client = f.Client()
		f.url = f.create(queue, attributes...)
		test(f)
	})
}

// eachWay runs a test twice: with the fixture's hooks and its log at Debug, and as most
// users have it, without hooks and with a log at Info. A delete that succeeds takes
// another path then, since nobody is told of it.
func eachWay(t *testing.T, queue string, test func(f *fixture), attributes ...string) {
	t.Helper()
	for _, unheard := range []bool{false, true} {
		t.Run(fmt.Sprintf("unheard=%v", unheard), func(t *testing.T) {
			bubble(t, queue, func(f *fixture) {
				f.unheard = unheard
				test(f)
			}, attributes...)
		})
	}
}

// create makes one more queue.
func (f *fixture) create(queue string, attributes ...string) (url string) {
	f.Helper()
	if strings.HasSuffix(queue, ".fifo") {
		attributes = append(attributes, "FifoQueue", "true", "ContentBasedDeduplication", "true")
	}
	out, err := f.client.CreateQueue(f.Context(), &sqs.CreateQueueInput{QueueName: &queue, Attributes: pairs(attributes)})
	if err != nil {
		f.Fatal(err)
	}
	return *out.QueueUrl
}

func (f *fixture) set(attributes ...string) {
	f.Helper()
	_, err := f.client.SetQueueAttributes(f.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &f.url, Attributes: pairs(attributes)})
	if err != nil {
		f.Fatal(err)
	}
}

func pairs(list []string) map[string]string {
	m := map[string]string{}
	for pair := range slices.Chunk(list, 2) {
		m[pair[0]] = pair[1]
	}
	return m
}

// send sends messages; to the group "g" of a FIFO queue.
func (f *fixture) send(bodies ...string) {
	f.Helper()
	group := ""
	if strings.HasSuffix(f.queue, ".fifo") {
		group = "g"
	}
	f.sendTo(group, bodies...)
}

func (f *fixture) sendTo(group string, bodies ...string) {
	f.Helper()
	for _, body := range bodies {
		in := &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: &body}
		if group != "" {
			in.MessageGroupId = &group
		}
		out, err := f.client.SendMessage(context.Background(), in)
		if err != nil {
			f.Fatal(err)
		}
		f.mu.Lock()
		f.sent[*out.MessageId] = body
		f.mu.Unlock()
	}
}

// subscribe starts a subscription that logs and reports to the fixture. It is
// closed at the end of the test, if that has not stopped it, and checked.
func (f *fixture) subscribe(handler sqsub.Handler, opts ...sqsub.Option) *sqsub.Subscription {
	f.Helper()
	return f.through(f.client, handler, opts...)
}

// through subscribes by a client of the test's own.
func (f *fixture) through(client sqsub.Client, handler sqsub.Handler, opts ...sqsub.Option) *sqsub.Subscription {
	f.Helper()
	sub, err := sqsub.Subscribe(context.Background(), client, f.queue, f.recorded(handler), f.options(opts)...)
	if err != nil {
		f.Fatal(err)
	}
	f.watch(sub)
	return sub
}

func (f *fixture) options(opts []sqsub.Option) []sqsub.Option {
	own := []sqsub.Option{sqsub.WithLogger(f.logger()), sqsub.WithHooks(f.hooks())}
	if f.unheard {
		own = own[:1]
	}
	return append(own, opts...)
}

// watch sees to it that nothing of a subscription runs when the test is over.
func (f *fixture) watch(sub *sqsub.Subscription) {
	f.Cleanup(func() {
		sub.Close()
		sub.Wait()
		f.checkCalls()
		if st := sub.Stats(); st.InFlight != 0 || st.Waiting != 0 || st.Receiving != 0 {
			f.Errorf("after Wait: %d in flight, %d waiting, %d receives open", st.InFlight, st.Waiting, st.Receiving)
		}
		f.checkBooks(sub)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.received != len(f.results) {
			f.Errorf("%d deliveries have %d outcomes", f.received, len(f.results))
		}
	})
}

// checkBooks checks that the counts of a subscription that has ended balance.
func (f *fixture) checkBooks(sub *sqsub.Subscription) {
	f.Helper()
	st := sub.Stats()
	if sum := st.Deleted + st.Discarded + st.Retried + st.Released + st.Unsettled + st.Lost; sum != st.Received {
		f.Errorf("%d messages received have %d outcomes: %+v", st.Received, sum, st)
	}
	if st.DeletedLate > st.Deleted+st.Discarded {
		f.Errorf("more were deleted late than deleted: %+v", st)
	}
}

// recorded adds each run of a handler to the fixture.
func (f *fixture) recorded(handler sqsub.Handler) sqsub.Handler {
	return func(ctx context.Context, d *sqsub.Delivery) error {
		f.mu.Lock()
		i := len(f.runs)
		f.runs = append(f.runs, run{body: d.Body(), count: d.ReceiveCount(), from: f.now()})
		f.mu.Unlock()
		ended := func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if r := &f.runs[i]; r.cause == nil {
				r.ended, r.cause = f.now(), context.Cause(ctx)
			}
		}
		stop := context.AfterFunc(ctx, ended)
		defer func() {
			if !stop() {
				ended()
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.runs[i].to = f.now()
		}()
		return handler(ctx, d)
	}
}

// hooks are the fixture's own. A test that gives WithHooks does without results.
func (f *fixture) hooks() sqsub.Hooks {
	return sqsub.Hooks{
		Received: func(*sqsub.Delivery) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.received++
		},
		Finished: func(d *sqsub.Delivery, r sqsub.Result) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.results = append(f.results, result{d.Body(), f.now(), r})
		},
	}
}

// Runs and Results are what has happened so far.
func (f *fixture) Runs() []run {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.runs)
}

func (f *fixture) Results() []result {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.results)
}

// onlyRun and onlyResult fail if there is not exactly one.
func (f *fixture) onlyRun() run {
	f.Helper()
	return only(f, "run", f.Runs())
}

func (f *fixture) onlyResult() result {
	f.Helper()
	return only(f, "result", f.Results())
}

func only[T any](f *fixture, what string, list []T) T {
	f.Helper()
	if len(list) != 1 {
		f.Fatalf("%d %ss, want one: %+v", len(list), what, list)
	}
	return list[0]
}

// now is the time since the start of the test.
func (f *fixture) now() time.Duration { return time.Since(f.start) }

// wait lets time pass until d after the start, and then all that is due happen.
func (f *fixture) wait(d time.Duration) {
	time.Sleep(time.Until(f.start.Add(d)))
	synctest.Wait()
}

// stop shuts a subscription down without a bound.
func (f *fixture) stop(sub *sqsub.Subscription) {
	f.Helper()
	if err := sub.Shutdown(context.Background()); err != nil {
		f.Fatal(err)
	}
	if err := sub.Wait(); err != nil {
		f.Fatal(err)
	}
}

// works returns a handler that works for d, whatever its context says.
func works(d time.Duration) sqsub.Handler {
	return func(context.Context, *sqsub.Delivery) error {
		time.Sleep(d)
		return nil
	}
}

// obeys returns a handler that works for d, or until its context ends.
func obeys(d time.Duration) sqsub.Handler {
	return func(ctx context.Context, _ *sqsub.Delivery) error {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// fails returns a handler that fails at once.
func fails(err error) sqsub.Handler {
	return func(context.Context, *sqsub.Delivery) error { return err }
}

// rivalHold marks the receives of rivals: a rival keeps what it gets.
const rivalHold = 43200

// rivals are other consumers of the queue, which receive until the test ends.
// What they get is in Foreign.
func (f *fixture) rivals(n int) {
	for range n {
		go func() {
			for f.Context().Err() == nil {
				f.receive(20)
			}
		}()
	}
}

// receive is another consumer's receive of up to ten messages, which hides them
// for 12 hours. They are added to Foreign.
func (f *fixture) receive(wait int32) []types.Message {
	out, err := f.client.ReceiveMessage(f.Context(), &sqs.ReceiveMessageInput{
		QueueUrl: &f.url, MaxNumberOfMessages: 10, WaitTimeSeconds: wait, VisibilityTimeout: rivalHold,
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	})
	if err != nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.foreign = append(f.foreign, out.Messages...)
	return out.Messages
}

func (f *fixture) Foreign() []types.Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.foreign)
}

// meddle has somebody else delete a message that is held, or make it visible,
// by its own receipt handle.
func (f *fixture) meddle(receipt, op string) {
	f.Helper()
	f.meddled[receipt] = true
	var err error
	if op == deleteOp {
		_, err = f.client.DeleteMessage(f.Context(), &sqs.DeleteMessageInput{QueueUrl: &f.url, ReceiptHandle: &receipt})
	} else {
		_, err = f.client.ChangeMessageVisibility(f.Context(), &sqs.ChangeMessageVisibilityInput{QueueUrl: &f.url, ReceiptHandle: &receipt})
	}
	if err != nil {
		f.Fatal(err)
	}
}

// An entry is one delete or one change of one message, alone or in a batch.
type entry struct {
	op         string // of the single call
	body       string
	receipt    string
	at, done   time.Duration
	visibility time.Duration // asked for
	code       string        // empty = it had an answer, and that was no error
}

func (e entry) String() string {
	s := fmt.Sprintf("%v %s(%s)", e.at, e.op, e.body)
	if e.op == changeOp {
		s = fmt.Sprintf("%v %s(%s, %v)", e.at, e.op, e.body, e.visibility)
	}
	if e.code != "" {
		s += " " + e.code
	}
	return s
}

const (
	receiveOp = "ReceiveMessage"
	deleteOp  = "DeleteMessage"
	changeOp  = "ChangeMessageVisibility"
)

// entries lists all deletes and changes so far, in the order of their arrival.
func (f *fixture) entries() []entry {
	var list []entry
	for _, c := range f.Calls() {
		op := strings.TrimSuffix(c.Op, "Batch")
		if op != deleteOp && op != changeOp {
			continue
		}
		for _, e := range c.Entries {
			x := entry{
				op: op, body: f.body(e.MessageID), receipt: e.ReceiptHandle, at: c.At.Sub(f.start), done: c.Done.Sub(f.start),
				visibility: time.Duration(e.Visibility) * time.Second, code: c.Code + e.Code,
			}
			if x.code == "" && c.Status != 200 {
				x.code = fmt.Sprint(c.Status)
			}
			list = append(list, x)
		}
	}
	return list
}

func (f *fixture) body(id string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent[id]
}

// changes and deletes are the entries of one operation.
func (f *fixture) changes() []entry { return f.entriesOf(changeOp) }
func (f *fixture) deletes() []entry { return f.entriesOf(deleteOp) }

func (f *fixture) entriesOf(op string) []entry {
	return slices.DeleteFunc(f.entries(), func(e entry) bool { return e.op != op })
}

// calls are those of an operation so far, but not the rivals' receives.
func (f *fixture) calls(op string) []sqstest.Call {
	return slices.DeleteFunc(f.Calls(), func(c sqstest.Call) bool { return c.Op != op || c.Visibility == rivalHold })
}

// checkCalls checks what holds in every test: no call is open, none about a
// receipt handle overtakes a change of it (V13), and none follows its delete.
func (f *fixture) checkCalls() {
	f.Helper()
	for _, c := range f.calls(receiveOp) {
		if c.Done.IsZero() {
			f.Errorf("a receive is still open since %v", c.At.Sub(f.start))
		}
	}
	last := map[string]entry{}
	for _, e := range f.entries() {
		before, ok := last[e.receipt]
		switch {
		case f.meddled[e.receipt]:
		case e.done < 0:
			f.Errorf("still open: %v", e)
		case ok && before.op == changeOp && e.op == changeOp && before.done > e.at:
			f.Errorf("%v was under way when this left: %v", before, e)
		case ok && before.op == deleteOp && before.code == "" && before.done < e.at:
			f.Errorf("follows the delete: %v", e)
		}
		last[e.receipt] = e
	}
}

// held are the bodies that the queue still holds, with their states.
func (f *fixture) held() map[string]sqstest.Message {
	held := map[string]sqstest.Message{}
	for _, m := range f.Messages(f.queue) {
		held[m.Body] = m
	}
	return held
}

func (f *fixture) wantHeld(bodies ...string) {
	f.Helper()
	if got := slices.Sorted(maps.Keys(f.held())); !slices.Equal(got, slices.Sorted(slices.Values(bodies))) {
		f.Errorf("the queue holds %q, want %q", got, bodies)
	}
}

// logger logs to the fixture, one line a record.
func (f *fixture) logger() *slog.Logger {
	level := slog.LevelDebug
	if f.unheard {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler((*logWriter)(f), &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}

type logWriter fixture

func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

// logged are the lines of the log that contain all of the texts.
func (f *fixture) logged(texts ...string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	for line := range strings.Lines(f.log.String()) {
		if !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(line, s) }) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// loud are the lines above Debug.
func (f *fixture) loud() []string {
	return slices.DeleteFunc(f.logged(), func(line string) bool { return strings.HasPrefix(line, "level=DEBUG") })
}

// on returns faults for the calls of one operation, batches of it included:
// fault decides by the number of the call, counting from zero.
func on(op string, fault func(n int) sqstest.Fault) func(sqstest.Call) sqstest.Fault {
	var mu sync.Mutex
	n := -1
	return func(c sqstest.Call) sqstest.Fault {
		if strings.TrimSuffix(c.Op, "Batch") != op {
			return sqstest.Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		n++
		return fault(n)
	}
}

// always is a fault for every call of an operation.
func always(op string, fault sqstest.Fault) func(sqstest.Call) sqstest.Fault {
	return on(op, func(int) sqstest.Fault { return fault })
}

// near reports whether two times are the same but for jitter and batching.
func near(got, want, tolerance time.Duration) bool {
	return got >= want-tolerance && got <= want+tolerance
}

var errHandler = errors.New("the handler's error")
