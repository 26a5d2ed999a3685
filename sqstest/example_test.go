package sqstest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub/sqstest"
)

// A queue, a message, and what became of it.
func Example() {
	ctx := context.Background()
	server := sqstest.NewServer()
	client := server.Client()

	queue, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("reports")})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: queue.QueueUrl, MessageBody: aws.String("2026-11")})
	if err != nil {
		fmt.Println(err)
		return
	}
	received, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue.QueueUrl})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("received", *received.Messages[0].Body)
	for _, m := range server.Messages("reports") {
		fmt.Printf("%s is %s, received %d time(s)\n", m.Body, m.State, m.ReceiveCount)
	}
	// Output:
	// received 2026-11
	// 2026-11 is in flight, received 1 time(s)
}

// The client is a plain *sqs.Client. Here it does not retry, so that each fault is seen.
func ExampleServer_Client() {
	server := sqstest.NewServer()
	client := server.Client(func(o *sqs.Options) { o.RetryMaxAttempts = 1 })

	_, err := client.ReceiveMessage(context.Background(), &sqs.ReceiveMessageInput{QueueUrl: aws.String("reports")})
	var missing *types.QueueDoesNotExist
	fmt.Println(errors.As(err, &missing))
	// Output:
	// true
}

// Any SDK can use the server over HTTP.
func ExampleServer_ServeHTTP() {
	ts := httptest.NewServer(sqstest.NewServer())
	defer ts.Close()

	client := sqs.New(sqs.Options{
		BaseEndpoint: &ts.URL,
		Region:       "us-east-1",
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "any", SecretAccessKey: "any"}, nil
		}),
		HTTPClient: ts.Client(),
	})
	queue, err := client.CreateQueue(context.Background(), &sqs.CreateQueueInput{QueueName: aws.String("reports")})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println((*queue.QueueUrl)[len(ts.URL):])
	// Output:
	// /123456789012/reports
}

// The first delete is done, but its answer is lost.
func ExampleServer_Inject() {
	ctx := context.Background()
	server := sqstest.NewServer()
	client := server.Client()
	client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("reports")})
	client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: aws.String("reports"), MessageBody: aws.String("2026-11")})
	received, _ := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: aws.String("reports")})

	var deletes atomic.Int32
	server.Inject(func(c sqstest.Call) sqstest.Fault {
		if c.Op == "DeleteMessage" && deletes.Add(1) == 1 {
			return sqstest.Fault{Reset: true, After: true}
		}
		return sqstest.Fault{}
	})
	_, err := client.DeleteMessage(ctx, &sqs.DeleteMessageInput{
		QueueUrl:      aws.String("reports"),
		ReceiptHandle: received.Messages[0].ReceiptHandle,
	})
	fmt.Println("error:", err)
	for _, c := range server.Calls() {
		fmt.Println(c.Op, c.Status)
	}
	// Output:
	// error: <nil>
	// CreateQueue 200
	// SendMessage 200
	// ReceiveMessage 200
	// DeleteMessage 0
	// DeleteMessage 200
}

// The call log tells what was asked of the queue: here, of a message that was extended once and then deleted.
func ExampleServer_Calls() {
	ctx := context.Background()
	server := sqstest.NewServer()
	client := server.Client()
	queue := aws.String("reports")
	client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: queue})
	client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: queue, MessageBody: aws.String("2026-11")})

	received, _ := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue, VisibilityTimeout: 60})
	handle := received.Messages[0].ReceiptHandle
	client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: queue, ReceiptHandle: handle, VisibilityTimeout: 90})
	client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: queue, ReceiptHandle: handle})

	for _, c := range server.Calls() {
		for _, e := range c.Entries {
			fmt.Println(c.Op, e.ReceiveCount, e.Visibility)
		}
	}
	// Output:
	// SendMessage 0 0
	// ReceiveMessage 1 60
	// ChangeMessageVisibility 0 90
	// DeleteMessage 0 0
}
