package conformance

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sqsub/sqsub"
)

// A graceful stop finishes what runs, and makes the rest visible at once: in a FIFO queue in its order.
func TestGracefulStop(t *testing.T) {
	kinds(t, func(q *queue) {
		bodies := []string{"0", "1", "2", "3", "4", "5"}
		q.send(bodies...)
		finish := make(chan struct{})
		sub := q.subscribe(func(context.Context, *sqsub.Delivery) error {
			<-finish
			return nil
		}, sqsub.WithVisibility(long), sqsub.WithConcurrency(1), sqsub.WithPrefetch(len(bodies)-1))
		q.until("a run", func() bool { st := sub.Stats(); return st.InFlight > st.Waiting })
		if q.kind == standard {
			q.until("all in hand", func() bool { return q.received.Load() == int64(len(bodies)) })
		}
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			q.stop(sub)
		}()
		q.until("the rest is released", func() bool { st := sub.Stats(); return st.Waiting == 0 && st.InFlight == 1 && st.Receiving == 0 })
		close(finish)
		q.wait("the end of the stop", stopped)
		if runs := q.wantRuns(1); q.kind == fifo {
			if got := q.collect(len(bodies) - 1); !slices.Equal(got, bodies[1:]) {
				q.Errorf("after the stop: %q", got)
			}
		} else {
			got := append(q.collect(len(bodies)-1), runs[0].body)
			if slices.Sort(got); !slices.Equal(got, bodies) {
				q.Errorf("after the stop: %q", got)
			}
		}
		q.wantEmpty()
	})
}

// What the last poll of a stop brings is handed back.
func TestStopWhilePolling(t *testing.T) {
	q := newQueue(t, standard)
	sub := q.subscribe(succeeds, sqsub.WithVisibility(long), sqsub.WithWaitTime(longPoll))
	q.idle(sub)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		q.stop(sub)
	}()
	time.Sleep(100 * time.Millisecond) // a stop is not seen from outside before it ends
	q.send("m")
	q.wait("the end of the stop", stopped)
	q.want(sqsub.Released)
	q.wantRuns(0)
	q.collect(1)
}

// A stop that runs out of time cancels the handlers, and makes their messages visible at once.
func TestStopOutOfTime(t *testing.T) {
	kinds(t, func(q *queue) {
		q.send("m")
		sub := q.subscribe(obeys, sqsub.WithVisibility(long), sqsub.WithConcurrency(1)) // no poll is open that could get it
		q.until("a run", func() bool { return q.received.Load() == 1 })
		ctx, cancel := context.WithTimeout(q.Context(), 500*time.Millisecond)
		defer cancel()
		if err := sub.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			q.Errorf("Shutdown: %v", err)
		}
		q.want(sqsub.Released)
		if r := q.wantRuns(1)[0]; !errors.Is(r.cause, sqsub.ErrShutdown) {
			q.Errorf("the context's cause is %v", r.cause)
		}
		q.collect(1)
	})
}
