package bench

import (
	"testing"
	"time"

	"github.com/sqsub/sqsub"
)

// BenchmarkCore consumes with instant handlers, 100 at once, from a queue that
// costs nothing: what is left is the library's own cost. With a hook that is told
// of every outcome each message costs one more goroutine.
func BenchmarkCore(b *testing.B) {
	b.Run("plain", func(b *testing.B) { core(b) })
	b.Run("hook", func(b *testing.B) {
		core(b, sqsub.WithHooks(sqsub.Hooks{Finished: func(*sqsub.Delivery, sqsub.Result) {}}))
	})
}

func core(b *testing.B, opts ...sqsub.Option) {
	queue := &memory{size: b.N, messages: make([]held, 0, b.N), emptied: make(chan struct{})}
	opts = append(opts, sqsub.WithConcurrency(100), sqsub.WithVisibility(30*time.Second), quiet)
	b.ReportAllocs()
	b.ResetTimer()
	cpu := processCPU()
	sub, err := sqsub.Subscribe(b.Context(), queue, memoryURL, nothing, opts...)
	if err != nil {
		b.Fatal(err)
	}
	<-queue.emptied
	cpu = processCPU() - cpu
	b.StopTimer()
	sub.Close()
	c := queue.snapshot()
	b.ReportMetric(float64(cpu.Nanoseconds())/1e3/float64(b.N), "cpu-µs/msg")
	b.ReportMetric(float64(c.requests())/float64(b.N), "req/msg")
}
