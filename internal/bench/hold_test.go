package bench

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/sqsub/sqsub"
)

var (
	most    = flag.Int("held", 10_000, "hold at most so many deliveries at once in TestHold; SQS allows 120,000")
	hereNow = flag.Int("real", 0, "hold so many deliveries for two real minutes in TestHoldReal")
	company = flag.Duration("delay", sqsub.DefaultBatchDelay, "how long a call may wait for company in TestHoldReal")
)

const holdTimeout = 30 * time.Second

// TestHold holds many deliveries for ten minutes, in a bubble. None may be lost,
// extensions have to travel in tens and leave in time, and memory must be small.
func TestHold(t *testing.T) {
	for _, n := range []int{1000, 10_000, 120_000} {
		if n > *most {
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
	sub, err := sqsub.Subscribe(t.Context(), queue, memoryURL, waitFor(release), sqsub.WithConcurrency(n), sqsub.WithVisibility(holdTimeout), sqsub.WithDrainTimeout(0), quiet)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Minute + holdTimeout/4) // between two extensions
	before := queue.snapshot()
	if len(queue.messages) != n {
		t.Fatalf("%d of %d messages received in time", len(queue.messages), n)
	}
	memory := footprintNow().less(empty).over(n)
	cpu := processCPU()
	time.Sleep(halves * holdTimeout / 2)
	cpu = processCPU() - cpu
	after := queue.snapshot()
	close(release)
	sub.Shutdown(t.Context())

	end, stats := queue.snapshot(), sub.Stats()
	requests := float64(after.changes-before.changes) / halves / float64(n)
	t.Logf("%d held for %v: %d lost, %.4f extension requests a delivery and half period, at most %v late, %v a delivery, %v CPU an extension (without SDK)",
		n, halves*holdTimeout/2, end.lost, requests, after.late, memory, cpu/time.Duration(after.extended-before.extended))
	if end.lost > 0 || stats.VisibilityLost > 0 || stats.Deleted != uint64(n) {
		t.Errorf("lost %d, %+v", end.lost, stats)
	}
	early := max(sqsub.DefaultBatchDelay, time.Duration(n)*10*time.Microsecond) // see WithBatchDelay
	if most := 0.102 * float64(holdTimeout/2) / float64(holdTimeout/2-early); requests > most {
		t.Errorf("%.4f extension requests a delivery and half period, want at most %.4f", requests, most)
	}
	if after.late > 250*time.Millisecond {
		t.Errorf("an extension left %v after half of the timeout", after.late)
	}
	if memory.heap+memory.stack > 8<<10 && !raceDetector {
		t.Errorf("%v a delivery, want at most 8 KiB", memory)
	}
}

// waitFor is a handler that ends when release is closed.
func waitFor(release chan struct{}) sqsub.Handler {
	return func(ctx context.Context, d *sqsub.Delivery) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// TestHoldReal holds deliveries for two minutes with the SDK and a server in
// another process.
func TestHoldReal(t *testing.T) {
	n := *hereNow
	if n == 0 {
		t.Skip("without -real")
	}
	const halves = 8 // half timeouts in two minutes
	s := startServer(t, 0, n)
	client := &watch{Client: s.client(), since: make(map[string]time.Time, n)}
	empty := footprintNow()
	release := make(chan struct{})
	sub, err := sqsub.Subscribe(t.Context(), client, s.queueURL(), waitFor(release),
		sqsub.WithConcurrency(n), sqsub.WithVisibility(holdTimeout), sqsub.WithBatchDelay(*company), sqsub.WithDrainTimeout(0), quiet)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for sub.Stats().Received < uint64(n) {
		if time.Since(start) > 2*time.Minute {
			t.Fatalf("received %d in %v", sub.Stats().Received, time.Since(start))
		}
		time.Sleep(time.Second / 10)
	}
	t.Logf("%d received in %v", n, time.Since(start))
	before, cpu, extended := s.usage(), processCPU(), sub.Stats().Extended
	for range halves {
		time.Sleep(holdTimeout / 2)
		t.Logf("%+v", sub.Stats())
	}
	after, stats := s.usage(), sub.Stats()
	cpu = processCPU() - cpu
	memory := footprintNow().less(empty).over(n)
	close(release)
	s.awaitDeleted(n)
	sub.Close()

	extended = stats.Extended - extended
	requests := after.total() - before.total()
	t.Logf("%d held: %d lost, %d failures, %d extensions in %d requests: %.4f a delivery and half period; %s; %v a delivery, %v CPU an extension",
		n, stats.VisibilityLost, stats.ExtendFailures, extended, requests, float64(requests)/halves/float64(n), client.lateness(), memory, cpu/time.Duration(extended))
	if stats.VisibilityLost > 0 || stats.Received != uint64(n) {
		t.Errorf("lost %d, received %d", stats.VisibilityLost, stats.Received)
	}
}

// A watch is a client that notes how late extensions leave.
type watch struct {
	*sqs.Client

	mu    sync.Mutex
	since map[string]time.Time // when the visibility timeout of a receipt handle began
	late  []time.Duration
}

func (w *watch) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, opts ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	out, err := w.Client.ReceiveMessage(ctx, in, opts...)
	if err != nil {
		return out, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range out.Messages {
		w.since[*m.ReceiptHandle] = time.Now()
	}
	return out, nil
}

func (w *watch) ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput, opts ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	w.leaves(in.ReceiptHandle)
	return w.Client.ChangeMessageVisibility(ctx, in, opts...)
}

func (w *watch) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, opts ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	for _, e := range in.Entries {
		w.leaves(e.ReceiptHandle)
	}
	return w.Client.ChangeMessageVisibilityBatch(ctx, in, opts...)
}

func (w *watch) leaves(handle *string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.late = append(w.late, now.Sub(w.since[*handle])-holdTimeout/2)
	w.since[*handle] = now
}

func (w *watch) lateness() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.late)
	at := func(share float64) time.Duration {
		return w.late[int(share*float64(len(w.late)-1))].Round(time.Millisecond)
	}
	return fmt.Sprintf("extensions leave late by %v (median), %v (99 %%), %v (99.9 %%), %v (most)", at(0.5), at(0.99), at(0.999), at(1))
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
