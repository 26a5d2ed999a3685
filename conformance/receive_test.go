package conformance

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub"
)

// A long poll ends when there is a message: one that was sent, whose timeout has lapsed, or that was released.
func TestLongPoll(t *testing.T) {
	t.Parallel()
	for name, appear := range map[string]func(q *queue, idle func()) (due time.Time){
		"send": func(q *queue, idle func()) time.Time {
			idle()
			due := time.Now()
			q.send("m")
			return due
		},
		"lapse": func(q *queue, idle func()) time.Time {
			q.send("m")
			q.rivalGets(2 * timeout)
			due := time.Now().Add(2 * timeout)
			idle()
			return due
		},
		"release": func(q *queue, idle func()) time.Time {
			q.send("m")
			m := q.rivalGets(long)
			idle()
			due := time.Now()
			q.change(m.ReceiptHandle, 0)
			return due
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(t, standard)
			due := appear(q, func() { q.idle(q.subscribe(succeeds, sqsub.WithVisibility(long), sqsub.WithWaitTime(longPoll))) })
			q.want(sqsub.Deleted)
			if late := q.wantRuns(1)[0].from.Sub(due); late < -time.Second || late > soon {
				q.Errorf("the message was late by %v", late)
			}
		})
	}
}

// rivalGets is one message that another consumer receives.
func (q *queue) rivalGets(hide time.Duration) types.Message {
	q.Helper()
	got := q.receive(soon, hide)
	if len(got) != 1 {
		q.Fatalf("received %d messages, want one", len(got))
	}
	return got[0]
}

// A queue is found by its URL, its name and its ARN.
func TestOpen(t *testing.T) {
	t.Parallel()
	for name, id := range map[string]func(q *queue) string{
		"URL":  func(q *queue) string { return q.url },
		"name": func(q *queue) string { return q.name },
		"ARN":  func(q *queue) string { return arnOf(q.T, q.url) },
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(t, standard)
			q.send("m")
			q.through(consuming, id(q), succeeds)
			q.want(sqsub.Deleted)
		})
	}
}

// A queue that does not exist is an error of Subscribe.
func TestMissingQueue(t *testing.T) {
	skipDeviation(t)
	t.Parallel()
	_, err := sqsub.Subscribe(t.Context(), client, prefix+"missing", succeeds)
	if missing := (*types.QueueDoesNotExist)(nil); !errors.As(err, &missing) {
		t.Errorf("%v", err)
	}
}

// A delivery is the message as it was sent.
func TestMessage(t *testing.T) {
	kinds(t, func(q *queue) {
		const body = "Grüße, 世界 <&>\n"
		in := &sqs.SendMessageInput{QueueUrl: &q.url, MessageBody: aws.String(body), MessageAttributes: map[string]types.MessageAttributeValue{
			"text":   {DataType: aws.String("String"), StringValue: aws.String("ü")},
			"number": {DataType: aws.String("Number"), StringValue: aws.String("1.50")},
			"bytes":  {DataType: aws.String("Binary"), BinaryValue: []byte{0, 1, 255}},
		}}
		if q.kind == fifo {
			in.MessageGroupId = aws.String("the-group")
		}
		sent := time.Now()
		out, err := client.SendMessage(q.Context(), in)
		if err != nil {
			q.Fatal(err)
		}
		q.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
			if d.ID() != *out.MessageId || d.Body() != body || d.ReceiveCount() != 1 || d.GroupID() != aws.ToString(in.MessageGroupId) || d.QueueURL != q.url {
				q.Errorf("%+v", d)
			}
			if d.Attribute("text") != "ü" || d.Attribute("number") != "1.50" || !bytes.Equal(d.Message.MessageAttributes["bytes"].BinaryValue, []byte{0, 1, 255}) {
				q.Errorf("%+v", d.Message.MessageAttributes)
			}
			if off := d.SentAt().Sub(sent).Abs(); off > time.Minute {
				q.Errorf("sent at %v, not %v", d.SentAt(), sent)
			}
			return nil
		}, sqsub.WithVisibility(long))
		q.want(sqsub.Deleted)
	})
}
