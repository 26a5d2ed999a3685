package bench

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"
)

// BenchmarkDrain consumes a full queue with instant handlers, 100 at once, over
// loopback. An operation is a message. CPU is that of this process; server-µs
// is what the other one used, which shares the cores.
func BenchmarkDrain(b *testing.B) {
	for _, latency := range []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond} {
		for _, c := range consumers {
			b.Run(fmt.Sprintf("latency=%v/%s", latency, c.name), func(b *testing.B) {
				drain(b, c, latency)
			})
		}
	}
}

func drain(b *testing.B, c consumer, latency time.Duration) {
	const concurrency = 100
	const more = 2000 // so that the queue is still full at the end
	s := startServer(b, latency, b.N+more)
	before, client := s.usage(), s.client()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	runtime.GC()

	b.ReportAllocs()
	b.ResetTimer()
	cpu := processCPU()
	stop := c.start(ctx, b, client, s.queueURL(), concurrency, func() {})
	s.awaitDeleted(b.N)
	cpu = processCPU() - cpu
	b.StopTimer()

	after := s.usage()
	cancel()
	stop()
	n := float64(b.N)
	b.ReportMetric(float64(cpu.Microseconds())/n, "cpu-µs/msg")
	b.ReportMetric(float64(after.total()-before.total())/n, "req/msg")
	b.ReportMetric(float64((after.CPU-before.CPU).Microseconds())/n, "server-µs/msg")
	b.ReportMetric(n/b.Elapsed().Seconds(), "msg/s")
}
