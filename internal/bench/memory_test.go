package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub"
)

// A memory is a queue without SDK, JSON and HTTP: a sqsub.Client that costs next
// to nothing, so that hours of 120,000 deliveries can be simulated, and that the
// library's own cost can be told from the SDK's. It looks after what is held: a
// message whose visibility lapses before it is deleted is counted as lost.
type memory struct {
	sqsub.Client // nil: nothing else is called when URL and visibility are given

	latency time.Duration // of every answer
	size    int           // messages in all; they are received once
	emptied chan struct{} // closed when all are deleted; nil = nobody waits for that

	mu       sync.Mutex
	messages []held
	counts   counts
}

type counts struct {
	receives, deletes, changes int           // requests
	deleted, extended          int           // messages, extensions
	lost                       int           // messages touched after their visibility had lapsed
	late                       time.Duration // by how much an extension left after half of the timeout, at most
}

func (c counts) requests() int { return c.receives + c.deletes + c.changes }

type held struct {
	since   time.Time // when the visibility timeout began
	timeout time.Duration
	deleted bool
}

const memoryURL = "https://sqs.us-east-1.amazonaws.com/123456789012/memory"

var errUnknown = errors.New("no such receipt handle")

func (m *memory) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	if err := m.wait(ctx, m.latency); err != nil {
		return nil, err
	}
	out := m.receive(int(in.MaxNumberOfMessages), time.Duration(in.VisibilityTimeout)*time.Second)
	if len(out.Messages) == 0 {
		return out, m.wait(ctx, time.Duration(in.WaitTimeSeconds)*time.Second)
	}
	return out, nil
}

func (m *memory) wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (m *memory) receive(n int, timeout time.Duration) *sqs.ReceiveMessageOutput {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.receives++
	now := time.Now()
	out := &sqs.ReceiveMessageOutput{}
	for n = min(n, m.size-len(m.messages)); n > 0; n-- {
		out.Messages = append(out.Messages, message(len(m.messages), now))
		m.messages = append(m.messages, held{since: now, timeout: timeout})
	}
	return out
}

var handleTail = ":" + strings.Repeat("x", 350) // handles are that long

// message is what the SDK returns for a message, without its body.
func message(i int, now time.Time) types.Message {
	at := strconv.FormatInt(now.UnixMilli(), 10)
	return types.Message{
		MessageId:     aws.String(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)),
		ReceiptHandle: aws.String(strconv.Itoa(i) + handleTail),
		MD5OfBody:     aws.String(strings.Repeat("0", 32)),
		Body:          new(string),
		Attributes: map[string]string{
			"ApproximateReceiveCount":          "1",
			"SentTimestamp":                    at,
			"ApproximateFirstReceiveTimestamp": at,
			"SenderId":                         "AIDAIENQZJOLO23YVJ4VO",
		},
	}
}

func (m *memory) DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	_, err := m.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{
		Entries: []types.DeleteMessageBatchRequestEntry{{Id: aws.String("0"), ReceiptHandle: in.ReceiptHandle}},
	})
	return &sqs.DeleteMessageOutput{}, err
}

func (m *memory) DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	if err := m.wait(ctx, m.latency); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.deletes++
	out := &sqs.DeleteMessageBatchOutput{Successful: make([]types.DeleteMessageBatchResultEntry, 0, len(in.Entries))}
	for _, e := range in.Entries {
		h, err := m.find(e.ReceiptHandle)
		if err != nil {
			return nil, err
		}
		m.counts.deleted++
		h.deleted = true
		out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: e.Id})
	}
	if m.counts.deleted == m.size && m.emptied != nil {
		close(m.emptied)
	}
	return out, nil
}

func (m *memory) ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	_, err := m.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{
		Entries: []types.ChangeMessageVisibilityBatchRequestEntry{{Id: aws.String("0"), ReceiptHandle: in.ReceiptHandle, VisibilityTimeout: in.VisibilityTimeout}},
	})
	return &sqs.ChangeMessageVisibilityOutput{}, err
}

func (m *memory) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	sent := time.Now()
	if err := m.wait(ctx, m.latency); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.changes++
	out := &sqs.ChangeMessageVisibilityBatchOutput{Successful: make([]types.ChangeMessageVisibilityBatchResultEntry, 0, len(in.Entries))}
	for _, e := range in.Entries {
		h, err := m.find(e.ReceiptHandle)
		if err != nil {
			return nil, err
		}
		if e.VisibilityTimeout > 0 {
			m.counts.extended++
			m.counts.late = max(m.counts.late, sent.Sub(h.since)-h.timeout/2)
		}
		h.since, h.timeout = time.Now(), time.Duration(e.VisibilityTimeout)*time.Second
		out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: e.Id})
	}
	return out, nil
}

// find returns the message of a receipt handle, and counts it if its visibility
// has lapsed.
func (m *memory) find(handle *string) (*held, error) {
	digits, _, _ := strings.Cut(*handle, ":")
	i, err := strconv.Atoi(digits)
	if err != nil || i >= len(m.messages) {
		return nil, errUnknown
	}
	h := &m.messages[i]
	if !h.deleted && time.Since(h.since) >= h.timeout {
		m.counts.lost++
	}
	return h, nil
}

func (m *memory) snapshot() counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts
}
