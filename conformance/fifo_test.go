package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sqsub/sqsub"
)

// The messages of a group succeed in order and one at a time, although one of them fails at first, and although
// there are two consumers.
func TestGroupsInOrder(t *testing.T) {
	q := newQueue(t, fifo)
	groups := []string{"a", "b", "c"}
	bodies := []string{"1", "2", "3", "4", "5"}
	for _, body := range bodies {
		for _, group := range groups {
			q.sendTo(group, body)
		}
	}
	for range 2 {
		q.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
			time.Sleep(100 * time.Millisecond)
			if d.Body() == "2" && d.ReceiveCount() == 1 {
				return sqsub.RetryAfter(time.Second, errors.New("not yet"))
			}
			return nil
		}, sqsub.WithVisibility(timeout), sqsub.WithConcurrency(len(groups)))
	}
	q.until("all succeed", func() bool { return len(q.succeeded("")) >= len(groups)*len(bodies) })
	for _, group := range groups {
		if got := q.succeeded(group); !slices.Equal(got, bodies) {
			q.Errorf("group %s succeeded in the order %q", group, got)
		}
		q.checkApart(group)
	}
	q.wantEmpty()
}

// succeeded are the bodies of a group, or of all, whose handler succeeded, in that order.
func (q *queue) succeeded(group string) []string {
	var bodies []string
	for _, r := range q.Runs() {
		if r.err == nil && (group == "" || r.group == group) {
			bodies = append(bodies, r.body)
		}
	}
	return bodies
}

// checkApart checks that no two runs of a group overlap.
func (q *queue) checkApart(group string) {
	q.Helper()
	var end time.Time
	for _, r := range q.Runs() {
		if r.group != group {
			continue
		}
		if r.from.Before(end) {
			q.Errorf("group %s: the run of %s began before the one before had ended", group, r.body)
		}
		end = r.to
	}
}

// A group that is held is hidden as a whole, and groups run in parallel.
func TestGroupsInParallel(t *testing.T) {
	q := newQueue(t, fifo)
	q.sendTo("slow", "1")
	running := make(chan struct{})
	q.subscribe(func(ctx context.Context, d *sqsub.Delivery) error {
		if d.GroupID() != "slow" || d.Body() != "1" {
			return nil
		}
		close(running)
		return works(2*timeout)(ctx, d)
	}, sqsub.WithVisibility(timeout))
	q.wait("a run", running)
	q.sendTo("slow", "2")
	for i := range 5 {
		q.sendTo(fmt.Sprint("quick", i), "1")
	}
	q.want(all(7, sqsub.Deleted)...)
	runs := q.wantRuns(7)
	if last := runs[len(runs)-2:]; last[0].body+last[1].body != "12" || last[1].group != "slow" {
		q.Errorf("the slow group was not the last: %v", runs)
	}
	q.checkApart("slow")
	q.wantEmpty()
}
