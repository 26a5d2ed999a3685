package bench

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"gocloud.dev/pubsub/awssnssqs"

	"github.com/sqsub/sqsub"
)

// A consumer empties a queue.
type consumer struct {
	name string
	start
}

// A start begins to consume a queue with so many handlers at once. It ends with
// ctx, and stop waits for that.
type start func(ctx context.Context, tb testing.TB, client *sqs.Client, url string, concurrency int, handler func()) (stop func())

var consumers = []consumer{
	{"raw-batch", rawLoops(deleteBatch)},
	{"raw-single", rawLoops(deleteSingly)},
	{"gocloud", gocloud},
	{"sqsub-single", subscription(sqsub.WithBatchDelay(0))},
	{"sqsub", subscription()},
	{"sqsub-prefetch", subscription(sqsub.WithPrefetch(100))},
	{"sqsub-ten-connections", tenConnections(subscription())},
}

// rawLoops is what one writes by hand: a tenth as many loops as handlers, each
// receiving ten messages and deleting them. It extends nothing and survives no
// error.
func rawLoops(finish func(context.Context, *sqs.Client, string, []types.Message, func())) start {
	return func(ctx context.Context, _ testing.TB, client *sqs.Client, url string, concurrency int, handler func()) func() {
		var loops sync.WaitGroup
		for range max(1, concurrency/10) {
			loops.Go(func() {
				for {
					out, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
						QueueUrl: &url, MaxNumberOfMessages: 10, WaitTimeSeconds: 20,
						MessageAttributeNames:       []string{"All"},
						MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
					})
					if err != nil {
						return // ctx has ended
					}
					finish(ctx, client, url, out.Messages, handler)
				}
			})
		}
		return loops.Wait
	}
}

func deleteBatch(ctx context.Context, client *sqs.Client, url string, messages []types.Message, handler func()) {
	entries := make([]types.DeleteMessageBatchRequestEntry, len(messages))
	for i, m := range messages {
		handler()
		id := strconv.Itoa(i)
		entries[i] = types.DeleteMessageBatchRequestEntry{Id: &id, ReceiptHandle: m.ReceiptHandle}
	}
	client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: entries})
}

func deleteSingly(ctx context.Context, client *sqs.Client, url string, messages []types.Message, handler func()) {
	var handlers sync.WaitGroup
	for _, m := range messages {
		handlers.Go(func() {
			handler()
			client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle})
		})
	}
	handlers.Wait()
}

// gocloud is the loop that gocloud.dev/pubsub documents, with its defaults.
func gocloud(ctx context.Context, _ testing.TB, client *sqs.Client, url string, concurrency int, handler func()) func() {
	sub := awssnssqs.OpenSubscription(ctx, client, url, &awssnssqs.SubscriptionOptions{Raw: true, WaitTime: 20 * time.Second})
	var handlers sync.WaitGroup
	slots := make(chan struct{}, concurrency)
	handlers.Go(func() {
		for {
			m, err := sub.Receive(ctx)
			if err != nil {
				return // ctx has ended
			}
			slots <- struct{}{}
			handlers.Go(func() {
				defer func() { <-slots }()
				handler()
				m.Ack()
			})
		}
	})
	return func() {
		handlers.Wait()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		sub.Shutdown(ctx)
	}
}

func subscription(opts ...sqsub.Option) start {
	return func(ctx context.Context, tb testing.TB, client *sqs.Client, url string, concurrency int, handler func()) func() {
		opts := append([]sqsub.Option{
			sqsub.WithConcurrency(concurrency), sqsub.WithVisibility(30 * time.Second), quiet,
		}, opts...)
		sub, err := sqsub.Subscribe(ctx, client, url, func(context.Context, *sqsub.Delivery) error {
			handler()
			return nil
		}, opts...)
		if err != nil {
			tb.Fatal(err)
		}
		return func() { sub.Close() }
	}
}

// tenConnections consumes without sqsub.Connections: the SDK's own client keeps
// ten idle connections to a host.
func tenConnections(s start) start {
	return func(ctx context.Context, tb testing.TB, client *sqs.Client, url string, concurrency int, handler func()) func() {
		client = sqs.New(client.Options(), func(o *sqs.Options) { o.HTTPClient = awshttp.NewBuildableClient() })
		return s(ctx, tb, client, url, concurrency, handler)
	}
}
