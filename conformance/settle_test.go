package conformance

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/sqsub/sqsub"
)

// A failed message is visible again after its delay, neither before nor when its timeout would have lapsed.
func TestRetryDelay(t *testing.T) {
	const delay = 2 * time.Second
	kinds(t, func(q *queue) {
		q.send("m")
		q.subscribe(failsFirst(errors.New("try again")), sqsub.WithVisibility(long),
			sqsub.WithRetryDelay(func(*sqsub.Delivery, error) time.Duration { return delay }))
		q.want(sqsub.Retried, sqsub.Deleted)
		runs := q.wantRuns(2)
		if after := runs[1].from.Sub(runs[0].to); after < delay-delay/4 || after > delay+soon {
			q.Errorf("the second run came after %v", after)
		}
		q.wantEmpty()
	})
}

// A message that is released is visible at once, also one whose timeout has been extended.
func TestRelease(t *testing.T) {
	kinds(t, func(q *queue) {
		q.send("m")
		first := true
		q.subscribe(func(ctx context.Context, d *sqsub.Delivery) error {
			if !first {
				return nil
			}
			first = false
			time.Sleep(timeout)
			return sqsub.RetryAfter(0, nil)
		}, sqsub.WithVisibility(timeout), sqsub.WithConcurrency(1))
		q.want(sqsub.Retried, sqsub.Deleted)
		runs := q.wantRuns(2)
		if after := runs[1].from.Sub(runs[0].to); after > timeout*3/4 {
			q.Errorf("the second run came after %v", after)
		}
		q.wantEmpty()
	})
}

// The receive count is that of the message, over all its deliveries.
func TestReceiveCount(t *testing.T) {
	q := newQueue(t, standard)
	q.send("m")
	q.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
		if d.ReceiveCount() < 3 && q.received.Load() < 10 {
			return sqsub.RetryAfter(0, nil)
		}
		return nil
	}, sqsub.WithVisibility(long))
	q.want(sqsub.Retried, sqsub.Retried, sqsub.Deleted)
	for i, r := range q.wantRuns(3) {
		if r.count != i+1 {
			q.Errorf("run %d has the receive count %d", i+1, r.count)
		}
	}
}

// A message that keeps failing moves to the dead-letter queue, and one that is discarded does not.
func TestDeadLetterQueue(t *testing.T) {
	kinds := map[string]string{"standard": standard, "fifo": fifo}
	t.Parallel()
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			dead := newQueue(t, kind)
			q := &queue{T: t, kind: kind, results: make(chan result, 10)}
			q.name, q.url = create(t, kind, "VisibilityTimeout", strconv.Itoa(int(long.Seconds())),
				"RedrivePolicy", fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":2}`, arnOf(t, dead.url)))
			q.sendTo("a", "poison")
			q.sendTo("b", "discarded")
			sub := q.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
				if d.Body() == "discarded" {
					return sqsub.Discard(errors.New("of no use"))
				}
				return sqsub.RetryAfter(0, errors.New("never works"))
			})
			if sub.Visibility() != long {
				t.Errorf("the timeout is %v, not the queue's own", sub.Visibility())
			}
			q.want(sqsub.Retried, sqsub.Retried, sqsub.Discarded)
			if got := dead.collect(1); len(got) == 1 && got[0] != "poison" {
				t.Errorf("dead: %q", got)
			}
			q.wantRuns(3)
			dead.wantEmpty()
			q.wantEmpty()
		})
	}
}

// Deletes that are due together travel together.
func TestDeletesTravelTogether(t *testing.T) {
	q := newQueue(t, standard)
	const n = 30
	q.sendNumbers(n)
	together := make(chan struct{})
	spy := &spy{Client: consuming}
	q.through(spy, q.url, func(context.Context, *sqsub.Delivery) error {
		<-together
		return nil
	}, sqsub.WithVisibility(long), sqsub.WithConcurrency(n))
	q.until("all in hand", func() bool { return q.received.Load() == n })
	close(together)
	q.want(all(n, sqsub.Deleted)...)
	if calls := spy.deletes.Load() + spy.deleteBatches.Load(); calls > n/3 {
		q.Errorf("%d deletes in %d calls", n, calls)
	}
	q.wantRuns(n)
	q.wantEmpty()
}

// WithBatchDelay(0) needs no batch calls.
func TestNoBatches(t *testing.T) {
	q := newQueue(t, standard)
	const n = 8
	q.sendNumbers(n)
	spy := &spy{Client: consuming}
	q.through(spy, q.url, works(2*timeout), sqsub.WithVisibility(timeout), sqsub.WithBatchDelay(0))
	q.want(all(n, sqsub.Deleted)...)
	if spy.deleteBatches.Load() > 0 || spy.changeBatches.Load() > 0 {
		q.Errorf("%d batches of deletes, %d of extensions", spy.deleteBatches.Load(), spy.changeBatches.Load())
	}
	if spy.deletes.Load() < n || spy.changes.Load() < n {
		q.Errorf("%d deletes, %d extensions of %d messages", spy.deletes.Load(), spy.changes.Load(), n)
	}
	q.wantRuns(n)
	q.wantEmpty()
}

// A backlog is drained, each message in one run.
func TestDrain(t *testing.T) {
	q := newQueue(t, standard)
	const n = 200
	q.sendNumbers(n)
	q.subscribe(succeeds, sqsub.WithVisibility(long), sqsub.WithConcurrency(20))
	q.want(all(n, sqsub.Deleted)...)
	ran := map[string]bool{}
	for _, r := range q.wantRuns(n) {
		ran[r.body] = true
	}
	if len(ran) != n {
		q.Errorf("%d of %d messages", len(ran), n)
	}
	q.wantEmpty()
}

// A second delivery of a message that is being handled waits, and is deleted rather than handled.
func TestDuplicateDelivery(t *testing.T) {
	q := newQueue(t, standard)
	q.send("m")
	q.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
		q.change(d.Message.ReceiptHandle, 0)
		q.until("a second delivery", func() bool { return q.received.Load() > 1 })
		time.Sleep(time.Second) // it would run now
		return nil
	}, sqsub.WithVisibility(long))
	q.want(sqsub.Deleted, sqsub.Deleted)
	q.wantRuns(1)
	q.wantEmpty()
}
