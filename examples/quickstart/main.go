// Quickstart sends three reports to a queue, and renders what it receives. A
// receive hides a report from other consumers for 2 seconds, and the annual
// report takes 5: watch how it stays hidden until it is done.
//
// With no flags it brings its own SQS, in memory, and ends when the reports are
// done. With -queue it uses a queue on AWS, until Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/sqsub/sqsub"
)

// visibility is shorter than most handlers need. It is how long a report stays
// hidden after the process that renders it has crashed.
const visibility = 2 * time.Second

// concurrency is how many reports are rendered at once.
const concurrency = 32

func main() {
	queue := flag.String("queue", "", "the name, URL or ARN of a standard `queue` on AWS, one that is there to be played with")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once

	var err error
	if *queue == "" {
		err = demo(ctx)
	} else {
		err = onAWS(ctx, *queue)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func onAWS(ctx context.Context, queue string) error {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	client := sqs.NewFromConfig(cfg, sqsub.Connections(concurrency))
	return consume(ctx, client, queue, &timeline{})
}

// consume renders reports until ctx ends. Those that it has received by then it
// finishes.
func consume(ctx context.Context, client *sqs.Client, queue string, tl *timeline) error {
	tl.begin(ctx)
	sub, err := sqsub.Subscribe(ctx, client, queue, tl.watch(render),
		sqsub.WithVisibility(visibility),
		sqsub.WithConcurrency(concurrency),
		sqsub.WithWaitTime(time.Second), // so that Ctrl-C is quick; the default, 20 s, is cheaper
		sqsub.WithHooks(tl.hooks()))
	if err != nil {
		return err
	}
	if err := sendReports(ctx, client, sub.QueueURL()); err != nil {
		return errors.Join(err, sub.Close())
	}
	err = sub.Wait()
	tl.end(sub.Stats())
	return err
}

// render is the handler. When it returns nil, the report is deleted from the
// queue. After an error it is visible again, once a retry delay has passed.
func render(ctx context.Context, d *sqsub.Delivery) error {
	work, ok := reports[d.Body()]
	if !ok {
		return fmt.Errorf("no report is called %q", d.Body())
	}
	select {
	case <-time.After(work):
		return nil
	case <-ctx.Done(): // another consumer may have the report now, or a stop ran out of time
		return context.Cause(ctx)
	}
}
