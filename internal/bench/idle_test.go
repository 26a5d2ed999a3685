package bench

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// TestIdle: an idle queue costs three requests a minute, and one open poll.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const minutes = 60
		server := sqstest.NewServer()
		client := server.Client()
		if err := fill(client, 0); err != nil {
			t.Fatal(err)
		}
		mostOpen := 0
		sub, err := sqsub.Subscribe(t.Context(), client, queueName, nothing, sqsub.WithConcurrency(100), quiet,
			sqsub.WithHooks(sqsub.Hooks{Polled: func(p sqsub.Poll) { mostOpen = max(mostOpen, p.Open+1) }}))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		before, cpu := len(server.Calls()), processCPU()
		time.Sleep(minutes * time.Minute)
		cpu = processCPU() - cpu
		requests := len(server.Calls()) - before
		sub.Close()
		t.Logf("%d requests in %d minutes, %d open at once, %v of CPU a minute, server included", requests, minutes, mostOpen, cpu/minutes)
		if requests != 3*minutes || mostOpen != 1 {
			t.Errorf("want %d requests, one open at a time", 3*minutes)
		}
	})
}

func nothing(context.Context, *sqsub.Delivery) error { return nil }

// BenchmarkLatency sends messages one by one to a queue whose consumer is idle.
// An operation is the time from the send to the start of the handler. What a
// consumer adds is its difference to the raw loop.
func BenchmarkLatency(b *testing.B) {
	for _, latency := range []time.Duration{0, 5 * time.Millisecond} {
		for _, c := range consumers {
			switch c.name {
			case "raw-batch", "gocloud", "sqsub":
				b.Run(fmt.Sprintf("latency=%v/%s", latency, c.name), func(b *testing.B) { wake(b, c, latency) })
			}
		}
	}
}

func wake(b *testing.B, c consumer, latency time.Duration) {
	s := startServer(b, latency, 0)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	started := make(chan struct{}, 1)
	stop := c.start(ctx, b, s.client(), s.queueURL(), 10, func() { started <- struct{}{} })
	sender := s.client()
	for b.Loop() {
		b.StopTimer()
		time.Sleep(2*latency + 3*time.Millisecond) // until it polls again
		b.StartTimer()
		if _, err := sender.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: aws.String(s.queueURL()), MessageBody: aws.String("x")}); err != nil {
			b.Fatal(err)
		}
		<-started
	}
	b.StopTimer()
	cancel()
	stop()
}
