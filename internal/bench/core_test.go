package bench

import (
	"testing"
	"time"

	"github.com/sqsub/sqsub"
)

// BenchmarkCore consumes with instant handlers, 100 at once, from a queue that
// costs nothing: what is left is the library's own cost.
func BenchmarkCore(b *testing.B) {
	queue := &memory{size: b.N, messages: make([]held, 0, b.N)}
	b.ReportAllocs()
	cpu := processCPU()
	b.ResetTimer()
	done := make(chan struct{})
	count := make(chan struct{}, 100)
	go func() {
		for range b.N {
			<-count
		}
		close(done)
	}()
	sub, err := sqsub.Subscribe(b.Context(), queue, memoryURL, nothing,
		sqsub.WithConcurrency(100), sqsub.WithVisibility(30*time.Second), quiet,
		sqsub.WithHooks(sqsub.Hooks{Finished: func(*sqsub.Delivery, sqsub.Result) { count <- struct{}{} }}))
	if err != nil {
		b.Fatal(err)
	}
	<-done
	cpu = processCPU() - cpu
	b.StopTimer()
	sub.Close()
	c := queue.snapshot()
	b.ReportMetric(float64(cpu.Nanoseconds())/1e3/float64(b.N), "cpu-µs/msg")
	b.ReportMetric(float64(c.requests())/float64(b.N), "req/msg")
}
