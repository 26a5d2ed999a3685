package sqsub_test

import (
	"context"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

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
