package sqsub_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// Whatever the handlers do to which a receive has brought a message, all start at
// once, and each slot is free again when its handler has returned.
func TestHandlersOfOneReceive(t *testing.T) {
	for name, c := range map[string]struct {
		handler sqsub.Handler
		takes   time.Duration
	}{
		"return":  {works(0), 0},
		"block":   {works(time.Hour), time.Hour},
		"fail":    {fails(errHandler), 0},
		"discard": {fails(sqsub.Discard(errHandler)), 0},
		"panic":   {panics("boom"), 0},
		"exit":    {exits, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.sendMany(20)
				f.subscribe(c.handler, sqsub.WithConcurrency(10), retriesAfter(3*time.Hour), sqsub.WithVisibility(3*time.Hour))
				f.wait(2 * time.Hour)
				runs := f.Runs()
				if len(runs) != 20 {
					f.Fatalf("%d runs, want 20", len(runs))
				}
				for i, r := range runs {
					if want := time.Duration(i/10) * c.takes; r.from != want {
						f.Errorf("run %d began at %v, want %v", i, r.from, want)
					}
				}
			})
		})
	}
}

// Slow handlers delay neither the others of their receive nor the next receive,
// wherever in the response their messages stand, and nor do slow deletes.
func TestSlowHandlersOfAReceive(t *testing.T) {
	for i := range 10 {
		for name, slow := range map[string]func(message string) bool{
			"slow":  func(message string) bool { return message == fmt.Sprint(i) },
			"quick": func(message string) bool { return message != fmt.Sprint(i) && len(message) == 1 },
		} {
			t.Run(fmt.Sprint(i, " ", name), func(t *testing.T) {
				bubble(t, "q", func(f *fixture) {
					f.sendMany(20)
					f.Inject(func(c sqstest.Call) (fault sqstest.Fault) {
						if strings.HasPrefix(c.Op, deleteOp) {
							fault.Delay = 3 * time.Second
						}
						return fault
					})
					f.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
						if slow(d.Body()) {
							time.Sleep(time.Hour)
						}
						return nil
					}, sqsub.WithConcurrency(10))
					f.wait(time.Second)
					if n := len(f.Runs()); n != 20 {
						f.Errorf("%d of 20 have run in a second", n)
					}
					f.wait(2 * time.Hour)
				})
			})
		}
	}
}

// Without hooks and Debug logs deletes go another way, on which each message is
// settled too, also where a request fails for some.
func TestNobodyListens(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.sendMany(500)
		var batches atomic.Int64
		f.Inject(func(c sqstest.Call) (fault sqstest.Fault) {
			if c.Op == "DeleteMessageBatch" && batches.Add(1) <= 20 {
				fault.FailEntries = []int{3, 7}
			}
			return fault
		})
		sub := f.subscribe(works(0), sqsub.WithConcurrency(100), sqsub.WithHooks(sqsub.Hooks{}), sqsub.WithLogger(slog.New(slog.DiscardHandler)))
		f.wait(time.Minute)
		if st := sub.Stats(); st.Deleted != 500 || st.InFlight != 0 || st.Settling != 0 || st.SettleFailures != 40 {
			f.Errorf("%+v", st)
		}
		f.stop(sub)
		f.wantHeld()
	})
}
