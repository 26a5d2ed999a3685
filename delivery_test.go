package sqsub_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub"
)

// A Delivery is plain data: a handler's test writes one by hand, with as much
// of it as the handler looks at.
func TestDeliveryOfNothing(t *testing.T) {
	var d sqsub.Delivery
	if d.ID() != "" || d.Body() != "" || d.ReceiveCount() != 0 || !d.SentAt().IsZero() || d.GroupID() != "" || d.Attribute("a") != "" {
		t.Errorf("%q %q %d %v %q %q", d.ID(), d.Body(), d.ReceiveCount(), d.SentAt(), d.GroupID(), d.Attribute("a"))
	}
}

func TestDeliveryByHand(t *testing.T) {
	d := &sqsub.Delivery{Message: types.Message{
		MessageId: aws.String("id"),
		Body:      aws.String("body"),
		Attributes: map[string]string{
			"ApproximateReceiveCount": "3", "SentTimestamp": "1700000000123", "MessageGroupId": "group",
		},
		MessageAttributes: map[string]types.MessageAttributeValue{
			"text":   {DataType: aws.String("String"), StringValue: aws.String("value")},
			"number": {DataType: aws.String("Number"), StringValue: aws.String("7")},
			"binary": {DataType: aws.String("Binary"), BinaryValue: []byte("bytes")},
		},
	}}
	if d.ID() != "id" || d.Body() != "body" || d.GroupID() != "group" {
		t.Errorf("%q %q %q", d.ID(), d.Body(), d.GroupID())
	}
	if d.ReceiveCount() != 3 || d.SentAt().UnixMilli() != 1700000000123 {
		t.Errorf("%d %v", d.ReceiveCount(), d.SentAt())
	}
	if d.Attribute("text") != "value" || d.Attribute("number") != "7" || d.Attribute("binary") != "" || d.Attribute("none") != "" {
		t.Errorf("%q %q %q %q", d.Attribute("text"), d.Attribute("number"), d.Attribute("binary"), d.Attribute("none"))
	}
}

// B163: what was not told, or makes no sense, is unknown.
func TestDeliveryWithOddAttributes(t *testing.T) {
	for _, value := range []string{"", "x", "-1", "1.5", "99999999999999999999"} {
		d := &sqsub.Delivery{Message: types.Message{Attributes: map[string]string{"ApproximateReceiveCount": value, "SentTimestamp": value}}}
		if d.ReceiveCount() != 0 || !d.SentAt().IsZero() {
			t.Errorf("%q: %d %v", value, d.ReceiveCount(), d.SentAt())
		}
	}
}

// Everything that SQS knows of a message is asked for (B170: the trace header).
func TestDeliveryHasAllAttributes(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		sent := time.Now()
		text := types.MessageAttributeValue{DataType: aws.String("String.custom"), StringValue: aws.String("value")}
		_, err := f.client.SendMessage(f.Context(), &sqs.SendMessageInput{
			QueueUrl: &f.url, MessageBody: aws.String("body"), MessageGroupId: aws.String("tenant"),
			MessageAttributes: map[string]types.MessageAttributeValue{
				"text": text, "binary": {DataType: aws.String("Binary"), BinaryValue: []byte{0, 1}},
			},
			MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{
				"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String("Root=1-5759e988-bd862e3fe1be46a994272793")},
			},
		})
		if err != nil {
			f.Fatal(err)
		}
		f.wait(10 * time.Second)
		f.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
			if d.Body() != "body" || d.ReceiveCount() != 1 || !d.SentAt().Equal(sent) || d.GroupID() != "tenant" || d.ID() == "" {
				f.Errorf("%+v", d.Message)
			}
			if d.Attribute("text") != "value" || string(d.Message.MessageAttributes["binary"].BinaryValue) != "\x00\x01" {
				f.Errorf("attributes %+v", d.Message.MessageAttributes)
			}
			for _, name := range []string{"SenderId", "ApproximateFirstReceiveTimestamp", "AWSTraceHeader"} {
				if d.Message.Attributes[name] == "" {
					f.Errorf("%s is missing in %v", name, d.Message.Attributes)
				}
			}
			if !d.ReceivedAt.Equal(time.Now()) || d.QueueURL != f.url {
				f.Errorf("received at %v from %s", d.ReceivedAt, d.QueueURL)
			}
			return nil
		})
		f.wait(11 * time.Second)
		f.wantHeld()
	})
}

// B163: some stand-ins know the old parameter only, some the new one.
func TestBothAttributeParametersAreSent(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		client := &wrapper{Client: f.client}
		sub := f.through(client, works(0))
		f.wait(time.Second)
		f.stop(sub)
		in := client.received[0]
		//lint:ignore SA1019 the old parameter
		if !slices.Contains(in.AttributeNames, "All") || !slices.Contains(in.MessageSystemAttributeNames, "All") || !slices.Contains(in.MessageAttributeNames, "All") {
			f.Errorf("a receive asks for %+v", in)
		}
	})
}

// B168: some stand-ins tell a wrong checksum of the attributes. The SDK does not
// look at it (S13), and nor does anybody else.
func TestWrongChecksumOfAttributes(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		_, err := f.client.SendMessage(f.Context(), &sqs.SendMessageInput{
			QueueUrl: &f.url, MessageBody: aws.String("m"),
			MessageAttributes: map[string]types.MessageAttributeValue{"a": {DataType: aws.String("String"), StringValue: aws.String("value")}},
		})
		if err != nil {
			f.Fatal(err)
		}
		sum := regexp.MustCompile(`("MD5OfMessageAttributes":)"\w+"`)
		wrong := 0
		f.client = f.Client(func(o *sqs.Options) {
			inner := o.HTTPClient
			o.HTTPClient = doer(func(r *http.Request) (*http.Response, error) {
				resp, err := inner.Do(r)
				if err != nil {
					return nil, err
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if sum.Match(body) {
					wrong++
				}
				resp.Body = io.NopCloser(bytes.NewReader(sum.ReplaceAll(body, []byte(`$1""`))))
				resp.ContentLength = -1
				return resp, err
			})
		})
		sub := f.subscribe(works(time.Second))
		f.wait(2 * time.Second)
		f.stop(sub)
		f.undisturbed()
		if wrong != 1 {
			f.Errorf("%d answers had a checksum to change", wrong)
		}
	})
}

// B197: the age of a message, its wait since this receive and the time of its
// handler are three things, and the attempt is known.
func TestTimesOfARetriedMessage(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
			age, waited := time.Since(d.SentAt()), time.Since(d.ReceivedAt)
			if want := time.Duration(d.ReceiveCount()-1) * 62 * time.Second; age != want || waited != 0 {
				f.Errorf("attempt %d at the age of %v, want %v, %v after the receive", d.ReceiveCount(), age, want, waited)
			}
			time.Sleep(2 * time.Second)
			if d.ReceiveCount() < 3 {
				return errHandler
			}
			return nil
		}, retriesAfter(time.Minute), sqsub.WithBatchDelay(0))
		f.wait(5 * time.Minute)
		f.stop(sub)
		f.wantHeld()
		for i, r := range f.Results() {
			if r.Duration != 2*time.Second {
				f.Errorf("attempt %d took %v", i+1, r.Duration)
			}
		}
	})
}

// B172: a client that wraps another may put its own into the receipt handles,
// and gets them back unchanged in all settling calls.
func TestReceiptHandlesComeBackUnchanged(t *testing.T) {
	for _, messages := range []int{1, 3} {
		bubble(t, "q", func(f *fixture) {
			for range messages {
				f.send("delete", "retry")
			}
			client := &wrapper{Client: f.client, prefix: "s3-pointer:"}
			sub := f.through(client, func(_ context.Context, d *sqsub.Delivery) error {
				time.Sleep(20 * time.Second)
				if d.Body() == "retry" && d.ReceiveCount() == 1 {
					return errHandler
				}
				return nil
			}, sqsub.WithConcurrency(2*messages))
			f.wait(2 * time.Minute)
			f.stop(sub)
			f.wantHeld()
			if client.foreign > 0 {
				f.Errorf("%d handles are not the wrapper's", client.foreign)
			}
			if st := sub.Stats(); int(st.Deleted) != 2*messages || st.VisibilityLost > 0 {
				f.Errorf("stats %+v", st)
			}
		})
	}
}

// A wrapper is a client that marks receipt handles, and notes what it is asked.
type wrapper struct {
	*sqs.Client
	prefix string

	mu       sync.Mutex
	urls     map[string]string // queue URLs by operation
	received []*sqs.ReceiveMessageInput
	foreign  int // handles without the mark
}

func (c *wrapper) note(op string, url *string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.urls == nil {
		c.urls = map[string]string{}
	}
	c.urls[op] = *url
}

func (c *wrapper) unmarked(handle *string) *string {
	inner, marked := strings.CutPrefix(*handle, c.prefix)
	if !marked {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.foreign++
	}
	*handle = inner // what it is given is its own
	return handle
}

func (c *wrapper) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, opts ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	c.note("ReceiveMessage", in.QueueUrl)
	c.mu.Lock()
	c.received = append(c.received, in)
	c.mu.Unlock()
	out, err := c.Client.ReceiveMessage(ctx, in, opts...)
	if err == nil {
		for i, m := range out.Messages {
			out.Messages[i].ReceiptHandle = aws.String(c.prefix + *m.ReceiptHandle)
		}
	}
	return out, err
}

func (c *wrapper) DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, opts ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	c.note("DeleteMessage", in.QueueUrl)
	inner := *in
	inner.ReceiptHandle = c.unmarked(in.ReceiptHandle)
	return c.Client.DeleteMessage(ctx, &inner, opts...)
}

func (c *wrapper) DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, opts ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	c.note("DeleteMessageBatch", in.QueueUrl)
	inner := *in
	inner.Entries = slices.Clone(in.Entries)
	for i, e := range in.Entries {
		inner.Entries[i].ReceiptHandle = c.unmarked(e.ReceiptHandle)
	}
	return c.Client.DeleteMessageBatch(ctx, &inner, opts...)
}

func (c *wrapper) ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput, opts ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	c.note("ChangeMessageVisibility", in.QueueUrl)
	inner := *in
	inner.ReceiptHandle = c.unmarked(in.ReceiptHandle)
	return c.Client.ChangeMessageVisibility(ctx, &inner, opts...)
}

func (c *wrapper) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, opts ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	c.note("ChangeMessageVisibilityBatch", in.QueueUrl)
	inner := *in
	inner.Entries = slices.Clone(in.Entries)
	for i, e := range in.Entries {
		inner.Entries[i].ReceiptHandle = c.unmarked(e.ReceiptHandle)
	}
	return c.Client.ChangeMessageVisibilityBatch(ctx, &inner, opts...)
}

// B158: all calls use one URL.
func TestAllCallsUseOneURL(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		client := &wrapper{Client: f.client}
		sub := f.through(client, func(_ context.Context, d *sqsub.Delivery) error {
			time.Sleep(20 * time.Second)
			if d.Body() == "c" && d.ReceiveCount() == 1 {
				return errHandler
			}
			return nil
		})
		f.send("a", "b", "c")
		f.wait(time.Minute)
		f.send("alone")
		f.wait(2 * time.Minute)
		f.stop(sub)
		if len(client.urls) != 5 {
			f.Errorf("called %v, want all five operations", client.urls)
		}
		for op, url := range client.urls {
			if url != sub.QueueURL() {
				f.Errorf("%s uses %s, want %s", op, url, sub.QueueURL())
			}
		}
		f.wantHeld()
	})
}

// A middleware may hand the next handler a delivery of its own (B173: payloads
// are loaded after the receive, one by one), and change the one it was given.
func TestMiddlewareChangesTheDelivery(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("a", "dangling", "b")
		unwrap := func(next sqsub.Handler) sqsub.Handler {
			return func(ctx context.Context, d *sqsub.Delivery) error {
				if d.Body() == "dangling" {
					return errHandler
				}
				own := *d
				own.Message.Body = aws.String("payload of " + d.Body())
				d.Message.ReceiptHandle, d.Message.Body = nil, nil
				return next(ctx, &own)
			}
		}
		var handled []string
		var mu sync.Mutex
		sub := f.subscribe(unwrap(func(_ context.Context, d *sqsub.Delivery) error {
			mu.Lock()
			handled = append(handled, d.Body())
			mu.Unlock()
			time.Sleep(40 * time.Second)
			return nil
		}), sqsub.WithRetryDelay(func(*sqsub.Delivery, error) time.Duration { return time.Hour }))
		f.wait(time.Minute)
		f.stop(sub)
		slices.Sort(handled)
		if !slices.Equal(handled, []string{"payload of a", "payload of b"}) {
			f.Errorf("handled %q", handled)
		}
		f.wantHeld("dangling")
	})
}
