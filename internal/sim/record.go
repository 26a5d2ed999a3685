package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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

// note adds a line to the story of the run.
func (r *record) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line(format, args...)
}

// line is note with r.mu held.
func (r *record) line(format string, args ...any) {
	r.lines = append(r.lines, stamp(r.now(), r.began)+fmt.Sprintf(format, args...))
}

func stamp(m moment, began time.Time) string {
	return fmt.Sprintf("%6d %14v  ", m.n, m.at.Sub(began))
}

// history is the story of the messages given, and of what concerns all.
func (r *record) history(numbers ...string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	type event struct {
		m    moment
		text string
	}
	var events []event
	add := func(m moment, format string, args ...any) {
		if m.is() {
			events = append(events, event{m, fmt.Sprintf(format, args...)})
		}
	}
	of := func(number string) bool { return slices.Contains(numbers, number) }
	short := func(handle string) string { return handle[max(0, len(handle)-24):] }
	for _, d := range r.deliveries {
		if of(d.number) {
			add(d.received, "consumer %d receives message %s as %s", d.consumer.number, d.number, short(d.handle))
			add(d.finished, "consumer %d finishes message %s: %s %v", d.consumer.number, d.number, d.outcome.Outcome, d.outcome.Err)
		}
	}
	for _, q := range r.requests {
		if d := r.deliveries[q.handle]; d != nil && of(d.number) {
			add(q.sent, "consumer %d asks to %s message %s (%v) %s", q.consumer, q.op, d.number, q.visibility, short(q.handle))
			add(q.answer, "consumer %d is answered: %s message %s: %v", q.consumer, q.op, d.number, q.err)
		}
	}
	for _, h := range r.handlings {
		if of(h.number) {
			add(h.begun, "consumer %d begins message %s", h.consumer.number, h.number)
			add(h.cancelled, "consumer %d: context of message %s ends: %v", h.consumer.number, h.number, h.cause)
			add(h.ended, "consumer %d ends message %s: %s %v", h.consumer.number, h.number, h.verdict, h.delay)
		}
	}
	slices.SortFunc(events, func(a, b event) int { return a.m.n - b.m.n })
	lines := slices.Clone(r.lines)
	for _, e := range events {
		lines = append(lines, stamp(e.m, r.began)+e.text)
	}
	slices.SortFunc(lines, strings.Compare) // the stamp begins with the place in the order
	return strings.Join(lines, "\n")
}

// logOf returns where a consumer logs to.
func (r *record) logOf(consumer int) slog.Handler { return logged{r, consumer} }

// logged puts the warnings of a consumer into the story.
type logged struct {
	r        *record
	consumer int
}

func (l logged) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (l logged) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l logged) WithGroup(string) slog.Handler                    { return l }

func (l logged) Handle(_ context.Context, rec slog.Record) error {
	var attrs []string
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key != "stack" {
			attrs = append(attrs, a.String())
		}
		return true
	})
	l.r.note("consumer %d logs %s: %s %v", l.consumer, rec.Level, rec.Message, attrs)
	return nil
}
