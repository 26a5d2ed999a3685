package bench

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqsub/sqsub"
)

var tables = flag.Bool("tables", false, "measure all of the frontier of requests and busy slots")

// A load is a full queue and handlers that are its bottleneck.
type load struct {
	concurrency, prefetch int
	handler               time.Duration // on average: uniform from half to one and a half
	batchDelay            time.Duration
}

// A cost is what a load costs.
type cost struct {
	requests float64 // per message
	busy     float64 // share of the slots
	receive  float64 // messages per receive
}

func (c cost) String() string {
	return fmt.Sprintf("%.3f requests a message, %.2f%% busy, %.1f messages a receive", c.requests, 100*c.busy, c.receive)
}

// TestSlots: with more messages than slots, few requests and few idle slots.
func TestSlots(t *testing.T) {
	for _, x := range []struct {
		load
		requests, busy float64 // at most, at least
	}{
		{load{100, 0, time.Second, sqsub.DefaultBatchDelay}, 0.35, 0.95},
		{load{100, 20, time.Second, sqsub.DefaultBatchDelay}, 0.22, 0.99},
	} {
		got := x.load.measure(t)
		t.Logf("%+v: %v", x.load, got)
		if got.requests > x.requests || got.busy < x.busy {
			t.Errorf("want at most %v requests a message, at least %v busy", x.requests, x.busy)
		}
	}
}

// TestSlotsTable prints the frontier.
func TestSlotsTable(t *testing.T) {
	if !*tables {
		t.Skip("without -tables")
	}
	fmt.Println("| concurrency | prefetch | batch delay | handlers of | requests/message | busy slots | messages/receive |")
	fmt.Println("|--:|--:|--:|--:|--:|--:|--:|")
	for _, l := range []load{
		{concurrency: 100, prefetch: 0, batchDelay: sqsub.DefaultBatchDelay},
		{concurrency: 100, prefetch: 20, batchDelay: sqsub.DefaultBatchDelay},
		{concurrency: 100, prefetch: 20, batchDelay: time.Second},
		{concurrency: 10, prefetch: 0, batchDelay: sqsub.DefaultBatchDelay},
		{concurrency: 10, prefetch: 10, batchDelay: sqsub.DefaultBatchDelay},
		{concurrency: 10, prefetch: 10, batchDelay: time.Second},
	} {
		for _, l.handler = range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second, 10 * time.Second, time.Minute} {
			c := l.measure(t)
			fmt.Printf("| %d | %d | %v | %v | %.3f | %.1f %% | %.1f |\n", l.concurrency, l.prefetch, l.batchDelay, l.handler, c.requests, 100*c.busy, c.receive)
		}
	}
}

// measure runs a load in a bubble, where it takes no time and nothing disturbs
// it.
func (l load) measure(t *testing.T) (c cost) {
	synctest.Test(t, func(t *testing.T) {
		queue := &memory{latency: 10 * time.Millisecond, size: math.MaxInt}
		var slots meter
		sub, err := sqsub.Subscribe(t.Context(), queue, memoryURL, func(context.Context, *sqsub.Delivery) error {
			slots.add(1)
			defer slots.add(-1)
			time.Sleep(l.handler/2 + rand.N(l.handler))
			return nil
		}, sqsub.WithConcurrency(l.concurrency), sqsub.WithPrefetch(l.prefetch), sqsub.WithBatchDelay(l.batchDelay), sqsub.WithVisibility(30*time.Second), quiet)
		if err != nil {
			t.Fatal(err)
		}
		window := 50*l.handler + 10*time.Second
		time.Sleep(10*l.handler + 10*time.Second)
		before, busy := queue.snapshot(), slots.area()
		time.Sleep(window)
		after := queue.snapshot()
		busy = slots.area() - busy
		sub.Close()

		messages := float64(after.deleted - before.deleted)
		c.requests = float64(after.requests()-before.requests()) / messages
		c.busy = float64(busy) / float64(window) / float64(l.concurrency)
		c.receive = messages / float64(after.receives-before.receives)
	})
	return c
}

var quiet = sqsub.WithLogger(slog.New(slog.DiscardHandler))

// A meter is the area under a number that goes up and down.
type meter struct {
	mu    sync.Mutex
	n     int
	since time.Time
	sum   time.Duration
}

func (m *meter) add(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sum += m.grown()
	m.n, m.since = m.n+n, time.Now()
}

func (m *meter) grown() time.Duration { return time.Duration(m.n) * time.Since(m.since) }

func (m *meter) area() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sum + m.grown()
}
