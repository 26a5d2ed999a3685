package sqstest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/sqsub/sqsub/sqstest"
)

// TestMain fails if a goroutine outlives the tests.
func TestMain(m *testing.M) {
	code := m.Run()
	for range 100 {
		if runtime.NumGoroutine() == 1 {
			os.Exit(code)
		}
		runtime.Gosched()
		time.Sleep(time.Millisecond) // network connections take a moment to end
	}
	buf := make([]byte, 1<<20)
	fmt.Fprintf(os.Stderr, "goroutines left:\n%s\n", buf[:runtime.Stack(buf, true)])
	os.Exit(1)
}

// fixture is a server with one queue, and a client that does not retry.
type fixture struct {
	*testing.T
	*sqstest.Server
	client *sqs.Client
	url    string
}

// bubble runs a test in a synctest bubble, which fails too if the test leaves a goroutine behind. Time stands still
// but for waiting.
func bubble(t *testing.T, test func(*testing.T, *fixture)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, Server: sqstest.NewServer()}
		f.client = f.Client(func(o *sqs.Options) { o.Retryer = aws.NopRetryer{} })
		test(t, f)
	})
}

// standard and fifo make the queue of most tests.
func (f *fixture) standard(attributes ...string) { f.Helper(); f.url = f.create("q", attributes...) }

func (f *fixture) fifo(attributes ...string) {
	f.Helper()
	f.url = f.create("q.fifo", append(attributes, "FifoQueue", "true", "ContentBasedDeduplication", "true")...)
}

// create makes a queue with attributes given as names and values in turn.
func (f *fixture) create(name string, attributes ...string) string {
	f.Helper()
	out, err := f.client.CreateQueue(f.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: pairs(attributes)})
	if err != nil {
		f.Fatal(err)
	}
	return *out.QueueUrl
}

func pairs(list []string) map[string]string {
	m := map[string]string{}
	for pair := range slices.Chunk(list, 2) {
		m[pair[0]] = pair[1]
	}
	return m
}

func (f *fixture) set(attributes ...string) {
	f.Helper()
	f.must(f.trySet(attributes...))
}

func (f *fixture) trySet(attributes ...string) error {
	_, err := f.client.SetQueueAttributes(f.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &f.url, Attributes: pairs(attributes)})
	return err
}

func (f *fixture) attribute(name string) string {
	f.Helper()
	out, err := f.client.GetQueueAttributes(f.Context(), &sqs.GetQueueAttributesInput{
		QueueUrl: &f.url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeName(name)},
	})
	if err != nil {
		f.Fatal(err)
	}
	return out.Attributes[name]
}

// arn is made the way all ARNs are.
func arn(queue string) string { return "arn:aws:sqs:us-east-1:123456789012:" + queue }

func redrive(queue string, receives int) string {
	return fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, arn(queue), receives)
}

func (f *fixture) send(bodies ...string) {
	f.Helper()
	for _, body := range bodies {
		if _, err := f.client.SendMessage(f.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: &body}); err != nil {
			f.Fatal(err)
		}
	}
}

// sendTo sends messages to a group of a FIFO queue.
func (f *fixture) sendTo(group string, bodies ...string) {
	f.Helper()
	for _, body := range bodies {
		_, err := f.client.SendMessage(f.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: &body, MessageGroupId: &group})
		if err != nil {
			f.Fatal(err)
		}
	}
}

type receiveOption func(*sqs.ReceiveMessageInput)

func wait(seconds int32) receiveOption {
	return func(in *sqs.ReceiveMessageInput) { in.WaitTimeSeconds = seconds }
}

func visibility(seconds int32) receiveOption {
	return func(in *sqs.ReceiveMessageInput) { in.VisibilityTimeout = seconds }
}

func attempt(id string) receiveOption {
	return func(in *sqs.ReceiveMessageInput) { in.ReceiveRequestAttemptId = &id }
}

func atMost(n int32) receiveOption {
	return func(in *sqs.ReceiveMessageInput) { in.MaxNumberOfMessages = n }
}

// tryReceive asks for ten messages with all of their attributes.
func (f *fixture) tryReceive(ctx context.Context, options ...receiveOption) ([]types.Message, error) {
	in := &sqs.ReceiveMessageInput{
		QueueUrl:                    &f.url,
		MaxNumberOfMessages:         10,
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	}
	for _, option := range options {
		option(in)
	}
	out, err := f.client.ReceiveMessage(ctx, in)
	if err != nil {
		return nil, err
	}
	return out.Messages, nil
}

func (f *fixture) receive(options ...receiveOption) []types.Message {
	f.Helper()
	messages, err := f.tryReceive(f.Context(), options...)
	if err != nil {
		f.Fatal(err)
	}
	return messages
}

// receiveOne fails unless there is exactly one message.
func (f *fixture) receiveOne(options ...receiveOption) types.Message {
	f.Helper()
	messages := f.receive(options...)
	if len(messages) != 1 {
		f.Fatalf("received %q, want one message", bodies(messages))
	}
	return messages[0]
}

func (f *fixture) wantReceive(want ...string) []types.Message {
	f.Helper()
	messages := f.receive()
	if got := bodies(messages); !slices.Equal(got, want) {
		f.Fatalf("received %q, want %q", got, want)
	}
	return messages
}

func bodies(messages []types.Message) []string {
	var list []string
	for _, m := range messages {
		list = append(list, *m.Body)
	}
	return list
}

func (f *fixture) delete(m types.Message) error {
	_, err := f.client.DeleteMessage(f.Context(), &sqs.DeleteMessageInput{QueueUrl: &f.url, ReceiptHandle: m.ReceiptHandle})
	return err
}

func (f *fixture) change(m types.Message, seconds int32) error {
	_, err := f.client.ChangeMessageVisibility(f.Context(), &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &f.url, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds,
	})
	return err
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// wantError checks the code and the exact text of an error.
func (f *fixture) wantError(err error, code, message string) {
	f.Helper()
	var e smithy.APIError
	if !errors.As(err, &e) {
		f.Fatalf("error %v, want %s", err, code)
	}
	if e.ErrorCode() != code || e.ErrorMessage() != message {
		f.Fatalf("error\n\t%s: %s\nwant\n\t%s: %s", e.ErrorCode(), e.ErrorMessage(), code, message)
	}
}

// wantStates checks the messages of the queue: body, state, and seconds until visible.
func (f *fixture) wantStates(want ...string) {
	f.Helper()
	var got []string
	for _, m := range f.Messages(f.url) {
		s := m.Body + " " + string(m.State)
		if m.State != sqstest.Visible {
			s += " " + time.Until(m.VisibleAt).String()
		}
		got = append(got, s)
	}
	if !slices.Equal(got, want) {
		f.Fatalf("queue holds %q, want %q", got, want)
	}
}

func (f *fixture) wantElapsed(since time.Time, want time.Duration) {
	f.Helper()
	if got := time.Since(since); got != want {
		f.Fatalf("took %v, want %v", got, want)
	}
}

func count(m types.Message) int {
	n, _ := strconv.Atoi(m.Attributes["ApproximateReceiveCount"])
	return n
}
