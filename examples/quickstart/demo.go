package main

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/sqsub/sqsub/sqstest"
)

// reports are how long each report takes to render.
var reports = map[string]time.Duration{
	"daily":  300 * time.Millisecond,
	"weekly": 1500 * time.Millisecond,
	"annual": 5 * time.Second,
}

// demo runs the consumer on an SQS in memory until each report is done.
func demo(ctx context.Context) error {
	client := sqstest.NewServer().Client()
	const queue = "reports"
	if _, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(queue)}); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	return consume(ctx, client, queue, &timeline{left: len(reports), stop: stop})
}

func sendReports(ctx context.Context, client *sqs.Client, queueURL string) error {
	for name := range reports {
		if _, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &queueURL, MessageBody: &name}); err != nil {
			return err
		}
	}
	return nil
}
