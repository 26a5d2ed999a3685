package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub"
)

// A record is everything that happened in a run, as the connections and the
// handlers saw it. Its moments order what happened at one instant of the
// bubble's clock.
type record struct {
	began time.Time

	mu         sync.Mutex
	clock      int
	sent       map[string]message
	purged     map[string]bool
	deliveries map[string]*delivery // by receipt handle
	requests   []*request
	handlings  []*handling
	stops      []*stop
	aborts     map[int][]time.Time // by consumer: receives that it did not wait for
	polls      map[int][]poll      // by consumer
	lines      []string
	problems   []problem
}

// A moment is a place in the order of events.
type moment struct {
	n  int
	at time.Time
}

func (m moment) is() bool             { return m.n > 0 }
func (m moment) before(n moment) bool { return m.is() && m.n < n.n }

// A delivery is a message that a receive brought to a consumer.
type delivery struct {
	consumer  *consumer
	number    string // of the message
	messageID string
	handle    string
	received  moment
	since     time.Time // when SQS hid the message at the latest: an overdue answer was under way (R18)
	stayed    bool      // a request for it was held in a pause until its time was over
	lost      moment    // as the library reported it
	lostBy    error
	finished  moment
	outcome   sqsub.Result
}

type operation string

const (
	remove operation = "delete"
	change operation = "change"
)

// A request is one entry of a settling call.
type request struct {
	consumer   int
	op         operation
	handle     string
	visibility time.Duration
	sent       moment
	answer     moment
	err        error
}

func (r *request) granted() bool { return r.answer.is() && r.err == nil }

// refused reports whether SQS said that the receipt handle is worth nothing any
// more (V8, V10, B4).
func (r *request) refused() bool {
	if r.err == nil {
		return false
	}
	text := r.err.Error()
	return strings.Contains(text, "InvalidParameterValue") || strings.Contains(text, "ReceiptHandleIsInvalid") || strings.Contains(text, "MessageNotInflight")
}

// unsure reports whether a request failed and may have taken effect all the same.
func (r *request) unsure() bool {
	if op := (*net.OpError)(nil); errors.As(r.err, &op) && op.Op == "dial" {
		return false
	}
	var answer interface{ HTTPStatusCode() int }
	if errors.As(r.err, &answer) {
		status := answer.HTTPStatusCode()
		return status < 400 || status > 499
	}
	return r.err != nil
}

// A handling is one call of a handler.
type handling struct {
	consumer  *consumer
	number    string
	group     string
	handle    string
	nth       int // of this message by this consumer
	begun     moment
	ended     moment
	cancelled moment // when its context ended before it did
	cause     error
	gone      bool   // the message was not in the queue when it began
	before    string // an earlier message of its group that was
	verdict   verdict
	delay     time.Duration
	stop      func() bool
}

// A stop is the end of a consumer.
type stop struct {
	consumer int
	how      how
	at       time.Time
	aborted  time.Time // when handlers were cancelled at the latest; zero = never
	done     time.Time
	err      error
}

type problem struct {
	number string // of the message; "" = none
	text   string
}

func newRecord() *record {
	return &record{
		began: time.Now(), sent: make(map[string]message), purged: make(map[string]bool),
		deliveries: make(map[string]*delivery), aborts: make(map[int][]time.Time), polls: make(map[int][]poll),
	}
}

// now is the present moment. r.mu is held.
func (r *record) now() moment {
	r.clock++
	return moment{r.clock, time.Now()}
}

func (r *record) addSent(m message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent[fmt.Sprint(m.number)] = m
}

func (r *record) purge(number string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.purged[number] = true
}

func (r *record) problem(number, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problems = append(r.problems, problem{number, fmt.Sprintf(format, args...)})
}

func (r *record) received(c *consumer, m types.Message, due time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	handle, now := aws.ToString(m.ReceiptHandle), r.now()
	if now.at.Before(due) {
		due = now.at
	}
	r.deliveries[handle] = &delivery{
		consumer: c, number: aws.ToString(m.Body), messageID: aws.ToString(m.MessageId), handle: handle, received: now, since: due,
	}
}

func (r *record) polled(consumer int, sent time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.polls[consumer] = append(r.polls[consumer], poll{sent, time.Now(), isMissing(err)})
}

func (r *record) aborted(consumer int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.aborts[consumer] = append(r.aborts[consumer], time.Now())
}

func (r *record) numberOfHandle(handle string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.deliveries[handle]; d != nil {
		return d.number
	}
	return "?"
}

func (r *record) request(consumer int, op operation, handle string, seconds int32) *request {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := &request{consumer: consumer, op: op, handle: handle, visibility: time.Duration(seconds) * time.Second, sent: r.now()}
	r.requests = append(r.requests, q)
	return q
}

func (r *record) stays(handle string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.deliveries[handle]; d != nil {
		d.stayed = true
	}
}

func (r *record) answered(q *request, err error) {
	if q == nil {
		return // it stayed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	q.answer, q.err = r.now(), err
}

// failed records the answer to what an answer says nothing of: all entries of a
// batch that failed as a whole.
func (r *record) failed(entries map[string]*request, err error) {
	for _, id := range sortedKeys(entries) {
		r.answered(entries[id], err)
	}
}

func (r *record) begin(c *consumer, ctx context.Context, d *sqsub.Delivery) *handling {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &handling{
		consumer: c, number: d.Body(), group: d.GroupID(), handle: aws.ToString(d.Message.ReceiptHandle),
		nth: 1, begun: r.now(),
	}
	for _, other := range r.handlings {
		if other.consumer == c && other.number == h.number {
			h.nth++
		}
	}
	h.stop = context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		h.cancelled, h.cause = r.now(), context.Cause(ctx)
	})
	r.handlings = append(r.handlings, h)
	return h
}

func (r *record) end(h *handling) {
	h.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	h.ended = r.now()
}

func (r *record) finished(consumer int, d *sqsub.Delivery, res sqsub.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.deliveries[aws.ToString(d.Message.ReceiptHandle)]
	if own.finished.is() {
		r.problems = append(r.problems, problem{own.number, fmt.Sprintf("(d) consumer %d finished a delivery twice: %s and %s", consumer, own.outcome.Outcome, res.Outcome)})
	}
	own.finished, own.outcome = r.now(), res
}

func (r *record) lost(consumer int, d *sqsub.Delivery, cause error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.deliveries[aws.ToString(d.Message.ReceiptHandle)]
	own.lost, own.lostBy = r.now(), cause
	r.line("consumer %d loses message %s: %v", consumer, own.number, cause)
}

// stopped records the end of a consumer, and checks that nothing of it is left.
func (r *record) stopped(s *stop, sub *sqsub.Subscription) {
	held, stats := sub.InFlight(), sub.Stats()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stops = append(r.stops, s)
	r.line("consumer %d has ended: %v", s.consumer, s.err)
	if len(held) > 0 || stats.InFlight > 0 || stats.Receiving > 0 {
		r.problems = append(r.problems, problem{"", fmt.Sprintf("(g) consumer %d has ended with %v in hand, %+v", s.consumer, held, stats)})
	}
	for _, h := range r.handlings {
		if h.consumer.number == s.consumer && !h.ended.is() {
			r.problems = append(r.problems, problem{h.number, fmt.Sprintf("(g) consumer %d has ended and a handler of it still runs", s.consumer)})
		}
	}
}

func (r *record) losses() int {
	n := 0
	for _, h := range r.handlings {
		if errors.Is(h.cause, sqsub.ErrVisibilityLost) {
			n++
		}
	}
	return n
}

// overlaps are the pairs of handlings of one message of which the younger began
// before the older had returned.
func (r *record) overlaps() [][2]*handling {
	var pairs [][2]*handling
	for i, younger := range r.handlings {
		for _, older := range r.handlings[:i] {
			if older.number == younger.number && !older.ended.before(younger.begun) {
				pairs = append(pairs, [2]*handling{older, younger})
			}
		}
	}
	return pairs
}
