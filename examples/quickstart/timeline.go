package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sqsub/sqsub"
)

// A timeline prints what happens to each report, and when.
type timeline struct {
	start time.Time

	mu   sync.Mutex
	left int    // reports that are not done yet; 0 = not counted
	stop func() // is called when all are
}

func (tl *timeline) begin(ctx context.Context) {
	tl.start = time.Now()
	fmt.Printf("A receive hides a report for %v. The annual report takes %v to render.\n\n", visibility, reports["annual"])
	context.AfterFunc(ctx, func() { tl.print("", "stopping: nothing more is received, what is in hand is finished") })
}

func (tl *timeline) end(s sqsub.Stats) {
	fmt.Printf("\n%d received, %d extensions, %d deleted, %d lost\n", s.Received, s.Extended, s.Deleted, s.VisibilityLost)
}

func (tl *timeline) print(report, format string, args ...any) {
	fmt.Printf("%5.1fs  %-8s%s\n", time.Since(tl.start).Seconds(), report, fmt.Sprintf(format, args...))
}

// hooks print what the subscription does.
func (tl *timeline) hooks() sqsub.Hooks {
	return sqsub.Hooks{
		Received: func(d *sqsub.Delivery) {
			tl.print(d.Body(), "received, receive count %d", d.ReceiveCount())
		},
		Extended: func(d *sqsub.Delivery, e sqsub.Extension) {
			if e.Err != nil {
				tl.print(d.Body(), "not extended: %v", e.Err)
				return
			}
			tl.print(d.Body(), "extended, hidden for %v from now", e.Timeout)
		},
		Lost: func(d *sqsub.Delivery, cause error) {
			tl.print(d.Body(), "lost: %v", cause)
		},
		Finished: func(d *sqsub.Delivery, r sqsub.Result) {
			tl.print(d.Body(), "%s", r.Outcome)
			if r.Outcome == sqsub.Deleted {
				tl.done()
			}
		},
	}
}

func (tl *timeline) done() {
	tl.mu.Lock()
	defer tl.mu.Unlock()
	if tl.left--; tl.left == 0 {
		tl.stop()
	}
}

// watch prints what a handler does.
func (tl *timeline) watch(next sqsub.Handler) sqsub.Handler {
	return func(ctx context.Context, d *sqsub.Delivery) error {
		err := next(ctx, d)
		if err != nil {
			tl.print(d.Body(), "failed: %v", err)
		} else {
			tl.print(d.Body(), "rendered")
		}
		return err
	}
}
