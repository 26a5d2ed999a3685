package sqsub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sqsub/sqsub/internal/queue"
)

const (
	// missingLimit is how long a queue may be missing before the subscription
	// ends: a deletion takes up to 60 s, and the name is free again 60 s after
	// it (Q7).
	missingLimit = 2 * time.Minute

	// gatherLimit is how long, with more messages in the queue than slots, free
	// slots wait for others to fill with the same receive; gatherMoment how long
	// when they are almost enough.
	gatherLimit  = time.Second
	gatherMoment = 20 * time.Millisecond

	// maxOpen bounds the receives that are open at once, for subscriptions
	// with thousands of slots: it is enough for 50,000 messages a second at 20 ms
	// a receive.
	maxOpen = 100

	// answerTime is what an answer of SQS takes beyond the wait time at most, as a
	// rule.
	answerTime = time.Second

	// attemptLimit is how long a receive can be repeated by its attempt id: SQS
	// says 5 minutes (R12).
	attemptLimit = 4 * time.Minute

	receiveRetryBase = 100 * time.Millisecond
	receiveRetryMax  = 30 * time.Second
)

// A receiver decides when to receive and how many messages to ask for. It
// belongs to the loop.
type receiver struct {
	s    *Subscription
	open []*attempt // receives that are open, the oldest first

	// target is how many may be open: one for a queue that may be empty, more
	// while they come back full.
	target  int
	backlog bool      // the last one came back full
	asked   time.Time // when the last one was sent that was answered
	freeAt  time.Time // since when slots are free and gathered for a receive

	failures int           // in a row
	retryAt  time.Time     // no receive before
	missing  time.Time     // since when the queue does not exist
	repeat   []attempt     // failed receives of a FIFO queue
	rejected bool          // the last one for its attempt id
	hurried  int           // in a row: empty, and long before the wait time was over
	cutOff   time.Duration // after which the last receive timed out; zero = it did not
	waitTime time.Duration
	aborted  bool // a receive, and that was told
	fatal    error
}

// An attempt is a receive. One of a FIFO queue has an id and can be repeated
// (R12).
type attempt struct {
	id      string
	n       int
	wait    time.Duration
	first   time.Time
	overdue time.Time // from then on another one is worth its price
}

type pollResult struct {
	*attempt
	queue.Received
}

func newReceiver(s *Subscription) receiver {
	return receiver{s: s, target: 1, waitTime: s.waitTime}
}

// fill opens the receives that room asks for: room is how many messages can be
// taken in hand, busy how many slots are occupied. It returns when to ask again if
// nothing happens before; zero is never.
func (r *receiver) fill(room, busy int) time.Time {
	now := time.Now()
	if now.Before(r.retryAt) {
		return r.retryAt
	}
	hung := 0
	if r.hangs(now) {
		hung = 1
	}
	for len(r.open) < r.target+hung {
		n := min(queue.BatchSize, room-r.reserved(hung))
		if n <= 0 {
			r.freeAt = time.Time{}
			break
		}
		if at, wait := r.gather(n, busy, now); wait {
			return at
		}
		r.freeAt = time.Time{}
		r.poll(n, now)
	}
	if len(r.open) > 0 && hung == 0 {
		return r.open[0].overdue
	}
	return time.Time{}
}

// hangs reports whether the oldest receive should have had its answer. Another one
// is made then: a single dead connection must not keep the queue waiting until it
// is given up.
func (r *receiver) hangs(now time.Time) bool {
	return len(r.open) > 0 && !now.Before(r.open[0].overdue)
}

// reserved is how many messages the open receives may bring, but for those that
// hang. An answer that is that late may bring more than there are places for.
func (r *receiver) reserved(hung int) (n int) {
	for _, a := range r.open[hung:] {
		n += a.n
	}
	return n
}

// gather reports whether n free places wait for others to fill with the same
// receive, and until when: while the queue has more messages than there are slots.
// A tenth of the slots is worth a receive, after a moment a twelfth, so that at
// least 95 % are busy on average (internal/bench has the other policies).
func (r *receiver) gather(n, busy int, now time.Time) (until time.Time, wait bool) {
	switch {
	case !r.backlog || busy == 0:
		return time.Time{}, false
	case busy >= r.s.concurrency: // only places of a prefetch are free; the next handler to return asks again
		r.freeAt = time.Time{}
		return time.Time{}, n < min(queue.BatchSize, (r.s.prefetch+1)/2)
	case n >= r.share(10):
		return time.Time{}, false
	case r.freeAt.IsZero():
		r.freeAt = now
	}
	until = r.freeAt.Add(gatherLimit)
	if n >= r.share(12) {
		until = r.freeAt.Add(gatherMoment)
	}
	return until, now.Before(until)
}

// share is that part of the slots, and as many more as places of a prefetch keep
// busy; at most what one receive can bring.
func (r *receiver) share(part int) int {
	return min(queue.BatchSize, max(1, r.s.concurrency/part)+min(queue.BatchSize, r.s.prefetch))
}

// couldBring reports whether receives could have brought a message that is visible since
// then: one that was sent later and answered, or one that is open and seems to wait.
func (r *receiver) couldBring(since time.Time) bool {
	waits := r.failures == 0 && len(r.open) > 0 && time.Since(r.open[0].first) >= patience
	return waits || !r.asked.Before(since)
}

func (r *receiver) poll(n int, now time.Time) {
	a := &attempt{n: n, first: now}
	if r.s.fifo {
		a.id = rand.Text()
		for len(r.repeat) > 0 {
			old := r.repeat[0]
			r.repeat = r.repeat[1:]
			if now.Sub(old.first) < attemptLimit {
				a.id, a.n, a.first = old.id, min(n, old.n), old.first
				break
			}
		}
	}
	a.wait = r.waitTime
	a.overdue = now.Add(a.wait + answerTime)
	r.open = append(r.open, a)
	r.s.queue.BeginReceive(r.s.polling, queue.Receiving{
		Max: a.n, Visibility: r.s.visibility, Wait: a.wait, AttemptID: a.id,
	}, func(answer queue.Received) { r.s.events <- pollResult{a, answer} })
}

// takeAnswer takes note of how a receive ended.
func (r *receiver) takeAnswer(res pollResult) {
	r.open = slices.DeleteFunc(r.open, func(a *attempt) bool { return a == res.attempt })
	took := res.Answered.Sub(res.Sent)
	if f := r.s.hooks.Polled; f != nil {
		hook(func() {
			f(Poll{Asked: res.n, Received: len(res.Messages), Duration: took, Err: res.Err, Open: len(r.open)})
		})
	}
	if res.Err != nil {
		r.takeFailure(res, took)
		return
	}
	answered := res.Answered // not &res.Answered, which would keep the messages
	r.s.stats.lastReceive.Store(&answered)
	r.s.stats.receivesFailSince.Store(nil)
	r.s.receives.ok(r.s.log)
	r.failures, r.rejected, r.missing, r.retryAt = 0, false, time.Time{}, time.Time{}
	r.cutOff = 0
	r.asked = later(r.asked, res.Sent)
	r.backlog = len(res.Messages) >= res.n
	switch {
	case r.backlog:
		r.target = max(r.target, min(2*r.target, len(r.open)+2, maxOpen)) // grows only as far as it is used
	case len(res.Messages) == 0:
		r.target = 1
	default:
		r.target = max(1, r.target/2)
	}
	if len(res.Messages) > 0 || took > r.waitTime/2 {
		r.hurried = 0
		return
	}
	// SQS answers early with nothing now and then (R8). A server that always does
	// must not be asked as fast as it answers.
	if r.hurried++; r.hurried > 1 {
		r.retryAt = res.Answered.Add(backoff(receiveRetryBase, time.Second, r.hurried))
	}
}

// takeFailure takes note of a receive that failed: the next one waits.
func (r *receiver) takeFailure(res pollResult, took time.Duration) {
	if r.s.polling.Err() != nil {
		r.abandoned()
		return
	}
	kind := queue.Classify(res.Err)
	if kind == queue.AttemptIDRefused && !r.rejected {
		r.rejected = true
		return // this attempt is not repeated, and the next receive need not wait (B079)
	}
	r.s.stats.receiveFailures.Add(1)
	// A receive that was sent before the last that succeeded proves nothing.
	if st, since := &r.s.stats, res.Answered; st.receivesFailSince.Load() == nil && !res.Sent.Before(st.lastReceived()) {
		st.receivesFailSince.Store(&since)
	}
	switch stopping := closed(r.s.draining); {
	case isTimeout(res.Err) && stopping:
		r.abandoned() // no other receive will tell
	case isTimeout(res.Err):
		r.s.stats.receivesAbandoned.Add(1)
		r.shorten(took)
	}
	if res.id != "" && kind == queue.Transient {
		r.repeat = append(r.repeat, *res.attempt)
	}
	r.target, r.backlog = 1, false
	limit := receiveRetryMax
	if kind != queue.NoQueue {
		r.missing = time.Time{}
	} else {
		limit = receiveRetryMax / 3
		if r.missing.IsZero() {
			r.missing = res.Answered
		}
		// An answer proves nothing about later than when its request was sent.
		if missing := res.Sent.Sub(r.missing); missing >= missingLimit {
			r.giveUp(fmt.Errorf("sqsub: queue %s has not existed for %v: %w", r.s.queue.URL(), missing.Truncate(time.Second), res.Err))
		}
	}
	r.retryAt = res.Answered.Add(backoff(receiveRetryBase, limit, r.failures))
	r.failures++
	r.s.receives.failed(r.s.log, res.Err)
}

// giveUp ends the subscription. That is told at once: handlers may go on for long.
func (r *receiver) giveUp(err error) {
	if r.fatal == nil {
		r.fatal = err
		r.s.log.Error("the subscription ends by itself", "error", err)
	}
}

// abandoned counts an open receive that did not end by itself when the subscription
// was stopped, and tells of the first.
func (r *receiver) abandoned() {
	r.s.stats.receivesAbandoned.Add(1)
	if r.aborted {
		return
	}
	r.aborted = true
	r.s.log.Warn("a receive had no answer when the subscription stopped: messages that SQS has handed to it stay hidden until their visibility timeout lapses", "timeout", r.s.visibility) // R13
}

// shorten adapts the wait time to an HTTP client that gives up before SQS
// answers, twice in a row after the same time: every idle receive would fail, and
// strand what it was about to bring (B142).
func (r *receiver) shorten(took time.Duration) {
	again := r.cutOff > 0 && (took-r.cutOff).Abs() < time.Second
	r.cutOff = took
	wait := max(time.Second, floorSeconds(took-time.Second))
	if !again || took < time.Second || wait >= r.waitTime {
		return
	}
	r.waitTime = wait
	r.s.log.Warn("a receive timed out before its wait time was over: the HTTP client's timeout has to be longer than WithWaitTime; waiting less from now on",
		"timed_out_after", took, "wait_time", r.waitTime)
}

// isTimeout reports whether a request was sent and its answer not awaited to the
// end: a timeout, but not of the connection.
func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	timedOut := errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
	return timedOut && !queue.NotSent(err)
}
