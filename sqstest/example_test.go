package sqstest_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

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

// In a bubble of testing/synctest a message is held for twelve hours, and the test takes milliseconds.
func ExampleServer_Client() {
	test := func(t *testing.T) {
		ctx := t.Context()
		server := sqstest.NewServer()
		client := server.Client()
		queue, _ := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("reports")})
		client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: queue.QueueUrl, MessageBody: aws.String("2026-11")})
		received, _ := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue.QueueUrl, VisibilityTimeout: 120})

		// Extend by two minutes every minute, for as long as SQS allows it.
		start := time.Now()
		for {
			time.Sleep(time.Minute)
			_, err := client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
				QueueUrl:          queue.QueueUrl,
				ReceiptHandle:     received.Messages[0].ReceiptHandle,
				VisibilityTimeout: 120,
			})
			if err != nil {
				break
			}
		}
		refused := time.Since(start)
		time.Sleep(time.Until(server.Messages("reports")[0].VisibleAt))
		fmt.Printf("refused after %v, visible after %v\n", refused, time.Since(start))
	}
	runExample(func(t *testing.T) { synctest.Test(t, test) })
	// Output:
	// refused after 11h59m0s, visible after 12h0m0s
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

// runExample runs a test function where there is no *testing.T, as in an example.
func runExample(test func(*testing.T)) {
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "Example", F: test}}, nil, nil)
}
