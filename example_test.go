package sqsub_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"log"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// A consumer that a signal stops: in a program ctx is that of
// signal.NotifyContext, and the client is sqs.NewFromConfig(cfg).
func ExampleSubscribe() {
	ctx, stop := context.WithCancel(context.Background())
	client := exampleClient("annual report")

	render := func(ctx context.Context, d *sqsub.Delivery) error {
		fmt.Println("rendering the", d.Body())
		stop()
		return nil // deletes the message
	}

	sub, err := sqsub.Subscribe(ctx, client, "reports", render,
		sqsub.WithVisibility(2*time.Minute), sqsub.WithWaitTime(time.Second))
	if err != nil {
		log.Fatal(err)
	}
	if err := sub.Wait(); err != nil { // nil after a clean stop
		log.Fatal(err)
	}
	fmt.Println("messages deleted:", sub.Stats().Deleted)
	// Output:
	// rendering the annual report
	// messages deleted: 1
}

// The message is visible again when the other side says that it has time.
func ExampleRetryAfter() {
	errBusy := errors.New("the printer is busy")

	handler := func(ctx context.Context, d *sqsub.Delivery) error {
		return sqsub.RetryAfter(5*time.Minute, errBusy)
	}

	r := exampleResult(handler)
	fmt.Printf("%s, visible again in %v: %v\n", r.Outcome, r.Delay, r.Err)
	fmt.Println("busy:", errors.Is(r.Err, errBusy))
	// Output:
	// retried, visible again in 5m0s: retry after 5m0s: the printer is busy
	// busy: true
}

// No other attempt would help, so the message is deleted. It does not reach a
// dead-letter queue either.
func ExampleDiscard() {
	handler := func(ctx context.Context, d *sqsub.Delivery) error {
		return sqsub.Discard(fmt.Errorf("the customer of the %s has left", d.Body()))
	}

	r := exampleResult(handler)
	fmt.Printf("%s: %v\n", r.Outcome, r.Err)
	// Output:
	// discarded: discard: the customer of the annual report has left
}

// Metrics: any library that can count will do.
func ExampleWithHooks() {
	var outcomes, extensions expvar.Map
	var finished sync.WaitGroup
	finished.Add(3)

	hooks := sqsub.Hooks{
		Finished: func(d *sqsub.Delivery, r sqsub.Result) {
			outcomes.Add(string(r.Outcome), 1) // and r.Duration into a histogram
			finished.Done()
		},
		Extended: func(d *sqsub.Delivery, e sqsub.Extension) {
			if e.Err != nil {
				extensions.Add("failed", 1)
				return
			}
			extensions.Add("granted", 1) // and e.Latency into a histogram
		},
	}

	handler := func(ctx context.Context, d *sqsub.Delivery) error {
		if d.Body() == "lost report" {
			return sqsub.Discard(errors.New("no such report"))
		}
		return nil
	}

	client := exampleClient("daily report", "weekly report", "lost report")
	sub, err := sqsub.Subscribe(context.Background(), client, "reports", handler,
		sqsub.WithHooks(hooks), sqsub.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	finished.Wait()
	sub.Close()
	fmt.Println("outcomes:", outcomes.String())
	fmt.Println("extensions:", extensions.String())
	// Output:
	// outcomes: {"deleted": 2, "discarded": 1}
	// extensions: {}
}

// Tracing is a middleware: a function from Handler to Handler. This one opens a
// span for each delivery, as a child of the sender's.
func ExampleHandler_middleware() {
	traced := func(next sqsub.Handler) sqsub.Handler {
		return func(ctx context.Context, d *sqsub.Delivery) error {
			fmt.Println("span begins, parent", d.Attribute("traceparent"))
			err := next(ctx, d) // with the span in ctx
			fmt.Println("span ends, error", err)
			return err
		}
	}

	handler := func(ctx context.Context, d *sqsub.Delivery) error {
		fmt.Println("rendering the", d.Body())
		return nil
	}

	r := exampleResult(traced(handler))
	fmt.Println(r.Outcome)
	// Output:
	// span begins, parent 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
	// rendering the annual report
	// span ends, error <nil>
	// deleted
}

// A Delivery is plain data: to test a handler, call it.
func ExampleDelivery() {
	handler := func(ctx context.Context, d *sqsub.Delivery) error {
		if d.Body() == "" {
			return sqsub.Discard(errors.New("a report needs a name"))
		}
		return fmt.Errorf("attempt %d at the %s failed", d.ReceiveCount(), d.Body())
	}

	fmt.Println(handler(context.Background(), &sqsub.Delivery{}))
	fmt.Println(handler(context.Background(), &sqsub.Delivery{Message: types.Message{
		Body:       aws.String("annual report"),
		Attributes: map[string]string{"ApproximateReceiveCount": "3"},
	}}))
	// Output:
	// discard: a report needs a name
	// attempt 3 at the annual report failed
}

// exampleClient is a client of an SQS in memory. Its queue "reports" holds
// messages of the given bodies.
func exampleClient(bodies ...string) *sqs.Client {
	ctx := context.Background()
	client := sqstest.NewServer().Client()
	queue, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("reports")})
	if err != nil {
		log.Fatal(err)
	}
	for _, body := range bodies {
		_, err := client.SendMessage(ctx, &sqs.SendMessageInput{
			QueueUrl: queue.QueueUrl, MessageBody: &body,
			MessageAttributes: map[string]types.MessageAttributeValue{"traceparent": {
				DataType:    aws.String("String"),
				StringValue: aws.String("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
			}},
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	return client
}

// exampleResult is what comes of one message, the annual report, by a handler.
func exampleResult(handler sqsub.Handler) sqsub.Result {
	results := make(chan sqsub.Result, 1)
	hooks := sqsub.Hooks{Finished: func(_ *sqsub.Delivery, r sqsub.Result) { results <- r }}
	sub, err := sqsub.Subscribe(context.Background(), exampleClient("annual report"), "reports", handler,
		sqsub.WithHooks(hooks), sqsub.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	defer sub.Close()
	return <-results
}
