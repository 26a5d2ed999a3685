package sqsub_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/sqsub/sqsub"
)

// scripted is a client whose receives bring what the test says, one response a
// receive, and whose deletes and changes succeed. Then it is an empty queue.
type scripted struct {
	sqsub.Client
	mu       sync.Mutex
	receives [][]types.Message
	deleted  []string // receipt handles
}

func (c *scripted) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, fns ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	c.mu.Lock()
	if len(c.receives) > 0 {
		defer c.mu.Unlock()
		messages := c.receives[0]
		c.receives = c.receives[1:]
		return &sqs.ReceiveMessageOutput{Messages: messages}, nil
	}
	c.mu.Unlock()
	return c.Client.ReceiveMessage(ctx, in, fns...)
}

func (c *scripted) DeleteMessage(_ context.Context, in *sqs.DeleteMessageInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted = append(c.deleted, *in.ReceiptHandle)
	return &sqs.DeleteMessageOutput{}, nil
}

func (c *scripted) DeleteMessageBatch(_ context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &sqs.DeleteMessageBatchOutput{}
	for _, e := range in.Entries {
		c.deleted = append(c.deleted, *e.ReceiptHandle)
		out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: e.Id})
	}
	return out, nil
}

func (c *scripted) ChangeMessageVisibility(context.Context, *sqs.ChangeMessageVisibilityInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	return &sqs.ChangeMessageVisibilityOutput{}, nil
}

func (c *scripted) ChangeMessageVisibilityBatch(_ context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	out := &sqs.ChangeMessageVisibilityBatchOutput{}
	for _, e := range in.Entries {
		out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: e.Id})
	}
	return out, nil
}

// A hostile client answers in every way that the SDK's types allow, as its
// choices say: it is what a broken proxy, a stand-in for SQS or a test double
// may do.
type hostile struct {
	mu      sync.Mutex
	choices []byte
}

// choose makes the next choice among n. When the choices are used up, it is
// always the first.
func (c *hostile) choose(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.choices) == 0 {
		return 0
	}
	b := c.choices[0]
	c.choices = c.choices[1:]
	return int(b) % n
}

func (c *hostile) err() error {
	switch c.choose(8) {
	case 1:
		return errors.New("no reason")
	case 2:
		return &smithy.GenericAPIError{}
	case 3:
		return &types.ReceiptHandleIsInvalid{}
	case 4:
		return &types.QueueDoesNotExist{}
	case 5:
		return &smithy.GenericAPIError{Code: "InvalidParameterValue"}
	case 6:
		return &smithy.GenericAPIError{Code: "OverLimit", Message: "beyond the limit"}
	}
	return nil
}

func (c *hostile) text() *string {
	texts := []string{"m", "", "0", "-1", "99999999999999999999", "\x00\xff", "g"}
	if i := c.choose(len(texts) + 1); i < len(texts) {
		return &texts[i]
	}
	return nil
}

func (c *hostile) message() types.Message {
	m := types.Message{MessageId: c.text(), ReceiptHandle: c.text(), Body: c.text()}
	if c.choose(3) > 0 {
		m.Attributes = map[string]string{}
		for _, name := range []string{"ApproximateReceiveCount", "SentTimestamp", "MessageGroupId", "SequenceNumber"} {
			if text := c.text(); text != nil {
				m.Attributes[name] = *text
			}
		}
	}
	if c.choose(3) > 0 {
		m.MessageAttributes = map[string]types.MessageAttributeValue{"a": {StringValue: c.text()}, "": {}}
	}
	return m
}

func (c *hostile) GetQueueUrl(context.Context, *sqs.GetQueueUrlInput, ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error) {
	if c.choose(4) == 1 {
		return nil, c.err()
	}
	return &sqs.GetQueueUrlOutput{QueueUrl: c.text()}, c.err()
}

func (c *hostile) GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	if c.choose(4) == 1 {
		return nil, c.err()
	}
	out := &sqs.GetQueueAttributesOutput{}
	if c.choose(4) > 0 {
		out.Attributes = map[string]string{"VisibilityTimeout": aws.ToString(c.text()), "RedrivePolicy": aws.ToString(c.text())}
	}
	return out, c.err()
}

func (c *hostile) ReceiveMessage(ctx context.Context, _ *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	c.mu.Lock()
	over := len(c.choices) == 0
	c.mu.Unlock()
	if over { // an empty queue from now on
		timer := time.NewTimer(20 * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
			return &sqs.ReceiveMessageOutput{}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	out := &sqs.ReceiveMessageOutput{}
	for range c.choose(13) { // more than anybody asked for, too
		out.Messages = append(out.Messages, c.message())
	}
	if c.choose(8) == 1 {
		out = nil
	}
	return out, c.err()
}

func (c *hostile) DeleteMessage(context.Context, *sqs.DeleteMessageInput, ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	return nil, c.err()
}

func (c *hostile) ChangeMessageVisibility(context.Context, *sqs.ChangeMessageVisibilityInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	return nil, c.err()
}

func (c *hostile) failed() []types.BatchResultErrorEntry {
	var failed []types.BatchResultErrorEntry
	for range c.choose(4) {
		failed = append(failed, types.BatchResultErrorEntry{Id: c.text(), Code: c.text(), Message: c.text(), SenderFault: c.choose(2) == 1})
	}
	return failed
}

func (c *hostile) DeleteMessageBatch(_ context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	out := &sqs.DeleteMessageBatchOutput{Failed: c.failed()}
	for _, e := range in.Entries {
		switch c.choose(6) {
		case 0, 1:
			out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: e.Id})
		case 2:
			out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: c.text()})
		}
	}
	if c.choose(8) == 1 {
		out = nil
	}
	return out, c.err()
}

func (c *hostile) ChangeMessageVisibilityBatch(_ context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	out := &sqs.ChangeMessageVisibilityBatchOutput{Failed: c.failed()}
	for _, e := range in.Entries {
		switch c.choose(6) {
		case 0, 1:
			out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: e.Id})
		case 2:
			out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: c.text()})
		}
	}
	if c.choose(8) == 1 {
		out = nil
	}
	return out, c.err()
}

// A scribbler changes what it is given, and refuses every batch.
type scribbler struct{ sqsub.Client }

func (s scribbler) DeleteMessageBatch(_ context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	for i := range in.Entries {
		*in.Entries[i].ReceiptHandle = "scribbled"
	}
	return nil, &types.UnsupportedOperation{}
}

func (s scribbler) ChangeMessageVisibilityBatch(_ context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	for i := range in.Entries {
		*in.Entries[i].ReceiptHandle = "scribbled"
	}
	return nil, &types.UnsupportedOperation{}
}

func TestClientChangesItsInput(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.sendMany(10)
		f.through(scribbler{f.client}, works(20*time.Second)) // extended once
		f.wait(time.Minute)
		for _, r := range f.Results() {
			if r.Outcome != sqsub.Deleted || r.Late {
				f.Errorf("result %+v", r)
			}
		}
		f.wantHeld()
	})
}

// FuzzResponses: whatever a client answers, nothing panics, each delivery has one
// outcome, and a stop ends with nothing left running.
func FuzzResponses(f *testing.F) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		choices := make([]byte, 1<<(i%11))
		for j := range choices {
			choices[j] = byte(random.Uint32())
		}
		f.Add(choices, i%2 == 0, i%3 == 0)
	}
	f.Fuzz(func(t *testing.T, choices []byte, fifo, named bool) {
		if len(choices) > 4096 {
			t.Skip("long enough")
		}
		synctest.Test(t, func(t *testing.T) { survive(t, choices, fifo, named) })
	})
}

// survive runs a subscription on a hostile client for ten minutes.
func survive(t *testing.T, choices []byte, fifo, named bool) {
	queue := "https://sqs.us-east-1.amazonaws.com/123456789012/q"
	opts := []sqsub.Option{sqsub.WithVisibility(10 * time.Second)}
	if named { // and its timeout is asked for
		queue, opts = "q", nil
	}
	if fifo {
		queue += ".fifo"
	}
	var mu sync.Mutex
	received, outcomes := 0, map[*sqsub.Delivery]int{}
	opts = append(opts, sqsub.WithLogger(slog.New(slog.DiscardHandler)), sqsub.WithHooks(sqsub.Hooks{
		Received: func(*sqsub.Delivery) {
			mu.Lock()
			defer mu.Unlock()
			received++
		},
		Finished: func(d *sqsub.Delivery, _ sqsub.Result) {
			mu.Lock()
			defer mu.Unlock()
			outcomes[d]++
		},
	}))
	var runs atomic.Int64
	sub, err := sqsub.Subscribe(t.Context(), &hostile{choices: choices}, queue, func(ctx context.Context, d *sqsub.Delivery) error {
		n := runs.Add(1)
		_, _, _, _, _, _ = d.ID(), d.Body(), d.ReceiveCount(), d.SentAt(), d.GroupID(), d.Attribute("a")
		time.Sleep(time.Duration(n%4) * 4 * time.Second)
		switch n % 5 {
		case 0:
			return errHandler
		case 1:
			return sqsub.RetryAfter(time.Second, nil)
		case 2:
			return sqsub.Discard(nil)
		case 3:
			panic("no")
		}
		return nil
	}, opts...)
	if err != nil {
		return
	}
	time.Sleep(10 * time.Minute)
	sub.InFlight()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := sub.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	sub.Wait()
	if len(outcomes) != received {
		t.Errorf("%d deliveries, %d with an outcome", received, len(outcomes))
	}
	for d, n := range outcomes {
		if n != 1 {
			t.Errorf("delivery %q has %d outcomes", d.ID(), n)
		}
	}
}
