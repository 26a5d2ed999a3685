package conformance

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/sqsub/sqsub"
)

// kinds runs a test on a queue of each kind.
func kinds(t *testing.T, test func(q *queue)) {
	t.Parallel()
	t.Run("standard", func(t *testing.T) { test(newQueue(t, standard)) })
	t.Run("fifo", func(t *testing.T) { test(newQueue(t, fifo)) })
}

// A handler that takes several timeouts has its message for itself, while another consumer asks for it all the time.
func TestSlowHandler(t *testing.T) {
	kinds(t, func(q *queue) {
		running := make(chan struct{})
		q.send("slow")
		sub := q.subscribe(func(ctx context.Context, d *sqsub.Delivery) error {
			close(running) // panics if there is a second run
			return works(3*timeout+timeout/2)(ctx, d)
		}, sqsub.WithVisibility(timeout))
		q.wait("a run", running)
		rival := q.rival()
		if r := q.await(); r.Outcome != sqsub.Deleted || r.Late {
			q.Errorf("%+v", r)
		}
		q.wantNothing(rival)
		if r := q.wantRuns(1)[0]; r.cause != nil {
			q.Errorf("the handler was cancelled: %v", r.cause)
		}
		if st := sub.Stats(); st.Extended < 5 || st.VisibilityLost > 0 {
			q.Errorf("%+v", st)
		}
		q.wantEmpty()
	})
}

// So have many at once, whose extensions travel together.
func TestSlowHandlers(t *testing.T) {
	q := newQueue(t, standard)
	const n = 25
	q.sendNumbers(n)
	spy := &spy{Client: consuming}
	sub := q.through(spy, q.url, works(3*timeout), sqsub.WithVisibility(timeout), sqsub.WithConcurrency(n))
	q.until("all in hand", func() bool { return q.received.Load() == n })
	rival := q.rival()
	q.want(all(n, sqsub.Deleted)...)
	q.wantNothing(rival)
	q.wantRuns(n)
	if st := sub.Stats(); st.VisibilityLost > 0 {
		q.Errorf("%+v", st)
	}
	if spy.changeBatches.Load() == 0 {
		q.Error("no extensions travelled together")
	}
	q.wantEmpty()
}

// A message that somebody else deletes is lost for its handler, and for no other whose extension travels with it.
func TestMessageGone(t *testing.T) {
	q := newQueue(t, standard)
	q.send("gone", "held", "held")
	q.subscribe(func(ctx context.Context, d *sqsub.Delivery) error {
		if d.Body() == "held" {
			return works(2*timeout)(ctx, d)
		}
		q.remove(d.Message.ReceiptHandle)
		return obeys(ctx, d)
	}, sqsub.WithVisibility(timeout))
	q.want(sqsub.Lost, sqsub.Deleted, sqsub.Deleted)
	for _, r := range q.wantRuns(3) {
		if gone := r.body == "gone"; errors.Is(r.cause, sqsub.ErrVisibilityLost) != gone {
			q.Errorf("%s: the context's cause is %v", r.body, r.cause)
		} else if took := r.to.Sub(r.from); gone && took > timeout {
			q.Errorf("cancelled after %v", took)
		}
	}
	q.wantEmpty()
}

// When no extension succeeds the handler is cancelled before the timeout is over. It finishes all the same, and its
// message is not handled a second time: a standard queue takes the late delete, a FIFO queue refuses it, and the
// message is deleted when it comes back.
func TestVisibilityLost(t *testing.T) {
	kinds(t, func(q *queue) {
		deaf := &spy{Client: consuming, change: func(*sqs.ChangeMessageVisibilityInput) error { return errors.New("no connection") }}
		q.send("m")
		q.through(deaf, q.url, func(ctx context.Context, d *sqsub.Delivery) error {
			<-ctx.Done()
			if held := time.Since(d.ReceivedAt); held >= timeout || held < timeout/2 {
				q.Errorf("cancelled after %v", held)
			}
			time.Sleep(timeout / 2)
			return nil
		}, sqsub.WithVisibility(timeout), sqsub.WithConcurrency(1), sqsub.WithBatchDelay(0))
		r := q.await()
		switch {
		case q.kind == standard && (r.Outcome != sqsub.Deleted || !r.Late):
			q.Errorf("%+v", r)
		case q.kind == fifo && r.Outcome != sqsub.Lost:
			q.Errorf("%+v", r)
		case q.kind == fifo:
			q.want(sqsub.Deleted)
		}
		if r := q.wantRuns(1)[0]; !errors.Is(r.cause, sqsub.ErrVisibilityLost) {
			q.Errorf("the context's cause is %v", r.cause)
		}
		q.wantEmpty()
	})
}

// A message that nobody settles comes back when its timeout lapses.
func TestLapse(t *testing.T) {
	q := newQueue(t, standard)
	q.send("m")
	q.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
		if q.received.Load() == 1 {
			runtime.Goexit()
		}
		return nil
	}, sqsub.WithVisibility(timeout))
	q.want(sqsub.Unsettled, sqsub.Deleted)
	runs := q.wantRuns(2)
	if after := runs[1].from.Sub(runs[0].from); after < timeout*3/4 || after > timeout+soon {
		q.Errorf("the message came back after %v", after)
	}
	q.wantEmpty()
}

// WithMaxHold ends a hold, and another consumer gets the message.
func TestMaxHold(t *testing.T) {
	q := newQueue(t, standard)
	q.send("m")
	q.subscribe(obeys, sqsub.WithVisibility(timeout), sqsub.WithMaxHold(2*timeout), sqsub.WithConcurrency(1), sqsub.WithDrainTimeout(time.Second))
	q.want(sqsub.Lost)
	r := q.wantRuns(1)[0]
	if took := r.to.Sub(r.from); took < timeout+timeout/4 || took > 2*timeout || !errors.Is(r.cause, sqsub.ErrHoldLimit) {
		q.Errorf("after %v: %v", took, r.cause)
	}
	q.until("the message comes back", func() bool { return q.received.Load() == 2 })
}

// A delay of 12 hours is clipped to what SQS allows, and so it is not refused.
func TestLongestDelay(t *testing.T) {
	q := newQueue(t, standard)
	q.send("m")
	q.subscribe(func(context.Context, *sqsub.Delivery) error { return sqsub.RetryAfter(12*time.Hour, nil) }, sqsub.WithVisibility(timeout))
	r := q.await()
	if r.Outcome != sqsub.Retried || r.Delay >= 12*time.Hour || r.Delay < 12*time.Hour-time.Minute {
		q.Errorf("%+v", r)
	}
	q.wantEmpty()
}

// An extension that SQS refuses since it would end beyond 12 hours is no loss: what was granted before stands. The spy
// asks for too much to have one refused.
func TestBeyondTheLimit(t *testing.T) {
	q := newQueue(t, standard)
	greedy := &spy{Client: consuming, change: func(in *sqs.ChangeMessageVisibilityInput) error {
		in.VisibilityTimeout = 43200
		return nil
	}}
	q.send("m")
	q.through(greedy, q.url, obeys, sqsub.WithVisibility(timeout), sqsub.WithBatchDelay(0), sqsub.WithConcurrency(1), sqsub.WithDrainTimeout(time.Second))
	q.want(sqsub.Lost)
	r := q.wantRuns(1)[0]
	if took := r.to.Sub(r.from); took < timeout*3/4 || took > timeout || !errors.Is(r.cause, sqsub.ErrHoldLimit) {
		q.Errorf("after %v: %v", took, r.cause)
	}
}
