package bench

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqsub/sqsub"
)

var held120k = flag.Int("held", 10_000, "hold at most so many deliveries at once; SQS allows 120,000")

const holdTimeout = 30 * time.Second

// TestHold holds many deliveries for ten minutes, in a bubble. None may be lost,
// extensions have to travel in tens and leave in time, and memory must be small.
func TestHold(t *testing.T) {
	for _, n := range []int{1000, 10_000, 120_000} {
		if n > *held120k {
			break
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { hold(t, n) }) })
	}
}

func hold(t *testing.T, n int) {
	const halves = 40 // half timeouts in ten minutes
	queue := &memory{latency: 5 * time.Millisecond, size: n, messages: make([]held, 0, n)}
	empty := footprintNow()
	release := make(chan struct{})
	sub, err := sqsub.Subscribe(t.Context(), queue, memoryURL, func(ctx context.Context, d *sqsub.Delivery) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}, sqsub.WithConcurrency(n), sqsub.WithVisibility(holdTimeout), sqsub.WithDrainTimeout(0), quiet)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute)
	before := queue.snapshot()
	if len(queue.messages) != n {
		t.Fatalf("%d of %d messages received in a minute", len(queue.messages), n)
	}
	memory := footprintNow().less(empty).over(n)
	cpu, start := processCPU(), time.Now()
	time.Sleep(halves * holdTimeout / 2)
	cpu = processCPU() - cpu
	after := queue.snapshot()
	close(release)
	sub.Shutdown(t.Context())

	end, stats := queue.snapshot(), sub.Stats()
	requests := float64(after.changes-before.changes) / halves / float64(n)
	t.Logf("%d held for %v: %d lost, %.4f extension requests a delivery and half period, at most %v late, %v a delivery, %v CPU an extension (without SDK)",
		n, time.Since(start), end.lost, requests, after.late, memory, cpu/time.Duration(after.extended-before.extended))
	if end.lost > 0 || stats.VisibilityLost > 0 || stats.Deleted != uint64(n) {
		t.Errorf("lost %d, %+v", end.lost, stats)
	}
	if requests > 0.105 {
		t.Errorf("%.4f extension requests a delivery and half period, want 0.1", requests)
	}
	if after.late > 250*time.Millisecond {
		t.Errorf("an extension left %v after half of the timeout", after.late)
	}
	if memory.heap+memory.stack > 8<<10 {
		t.Errorf("%v a delivery, want at most 8 KiB", memory)
	}
}

// A footprint is memory in use.
type footprint struct{ heap, stack, goroutines int64 }

func footprintNow() footprint {
	runtime.GC()
	runtime.GC() // what finalizers and pools have held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{int64(m.HeapInuse), int64(m.StackInuse), int64(runtime.NumGoroutine())}
}

func (f footprint) less(g footprint) footprint {
	return footprint{f.heap - g.heap, f.stack - g.stack, f.goroutines - g.goroutines}
}

func (f footprint) over(n int) footprint {
	return footprint{f.heap / int64(n), f.stack / int64(n), f.goroutines / int64(n)}
}

func (f footprint) String() string {
	return fmt.Sprintf("%d B heap + %d B stacks of %d goroutines", f.heap, f.stack, f.goroutines)
}
