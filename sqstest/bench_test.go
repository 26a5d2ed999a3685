package sqstest_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/sqsub/sqsub/sqstest"
)

// The cost of an operation must not grow with what the queue holds: 200,000 messages, of which up to 120,000 are in
// flight. The benchmarks speak JSON to the handler, so that they measure the server and not the SDK.

var sizes = []int{1_000, 10_000, 200_000}

// bench is a server with n messages in one queue.
func bench(b *testing.B, n int, fifo bool) (*sqstest.Server, string) {
	s := sqstest.NewServer()
	if !fifo {
		post(s, "CreateQueue", `{"QueueName":"q","Attributes":{"VisibilityTimeout":"43200"}}`)
		fill(s, "q", 0, n)
		return s, "q"
	}
	post(s, "CreateQueue", `{"QueueName":"q.fifo","Attributes":{"FifoQueue":"true","ContentBasedDeduplication":"true","VisibilityTimeout":"43200"}}`)
	fill(s, "q.fifo", 0, n)
	return s, "q.fifo"
}

// fill sends messages; on a FIFO queue each tenth begins a group.
func fill(s *sqstest.Server, queue string, from, n int) {
	for i := from; i < from+n; i++ {
		post(s, "SendMessage", fmt.Sprintf(`{"QueueUrl":%q,"MessageBody":"message %d","MessageGroupId":"%d"}`, queue, i, i/10))
	}
}

func receiveHandles(s *sqstest.Server, queue string) []string {
	var out struct {
		Messages []struct{ ReceiptHandle string }
	}
	json.Unmarshal([]byte(read(post(s, "ReceiveMessage", fmt.Sprintf(`{"QueueUrl":%q,"MaxNumberOfMessages":10}`, queue)))), &out)
	var handles []string
	for _, m := range out.Messages {
		handles = append(handles, m.ReceiptHandle)
	}
	return handles
}

func forSizes(b *testing.B, run func(b *testing.B, n int, fifo bool)) {
	for _, fifo := range []bool{false, true} {
		for _, n := range sizes {
			kind := "standard"
			if fifo {
				kind = "fifo"
			}
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) { run(b, n, fifo) })
		}
	}
}

// One message sent, received and deleted, with n waiting behind it.
func BenchmarkRoundTrip(b *testing.B) {
	forSizes(b, func(b *testing.B, n int, fifo bool) {
		s, queue := bench(b, n, fifo)
		var handles []string
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			fill(s, queue, n+i, 1)
			if len(handles) == 0 {
				handles = receiveHandles(s, queue)
			}
			post(s, "DeleteMessage", fmt.Sprintf(`{"QueueUrl":%q,"ReceiptHandle":%q}`, queue, handles[0]))
			handles = handles[1:]
		}
	})
}

// One message extended, with all n in flight, or as many as can be.
func BenchmarkChangeVisibility(b *testing.B) {
	forSizes(b, func(b *testing.B, n int, fifo bool) {
		s, queue := bench(b, n, fifo)
		var handles []string
		for range min(n, 120_000) / 10 {
			handles = append(handles, receiveHandles(s, queue)...)
		}
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			post(s, "ChangeMessageVisibility", fmt.Sprintf(`{"QueueUrl":%q,"ReceiptHandle":%q,"VisibilityTimeout":%d}`,
				queue, handles[i*7919%len(handles)], 100+i%1000))
		}
	})
}

// One call through the SDK's client, for scale.
func BenchmarkClient(b *testing.B) {
	f := &fixture{Server: sqstest.NewServer()}
	post(f.Server, "CreateQueue", `{"QueueName":"q"}`)
	f.client, f.url = f.Client(), "q"
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.tryReceive(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
