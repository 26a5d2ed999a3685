package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// A line is a consumer's connection to SQS. What passes over it is recorded.
// When its consumer dies it goes dead: calls under way break off for the
// server, and for the caller they hang like all later ones. It can be cut for a
// while, too.
type line struct {
	c     *consumer
	sqs   *sqs.Client
	began time.Time
	cuts  []span
	dead  context.Context
	die   context.CancelFunc
}

func newLine(c *consumer, cuts []span) *line {
	l := &line{c: c, sqs: c.client(), began: c.record.began, cuts: cuts}
	l.dead, l.die = context.WithCancel(context.Background())
	return l
}

var errCut = errors.New("the line is cut")

// pass makes a call, if the line lets it.
func pass[In, Out any](ctx context.Context, l *line, f func(context.Context, In, ...func(*sqs.Options)) (Out, error), in In, opts []func(*sqs.Options)) (Out, error) {
	var none Out
	if err := l.c.stand(ctx); err != nil {
		return none, err
	}
	if err := l.open(ctx); err != nil {
		return none, err
	}
	held, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.dead, cancel)()
	out, err := f(held, in, opts...)
	if late := l.c.stand(ctx); late != nil && l.c.outrun(fmt.Sprintf("%T", in)) {
		return none, late
	}
	if err := l.open(ctx); err != nil { // died or was cut meanwhile: the answer does not get through
		return none, err
	}
	return out, err
}

// open waits as long as the line is cut, and forever if it is dead; the caller
// has its own time limit.
func (l *line) open(ctx context.Context) error {
	if l.dead.Err() != nil {
		<-ctx.Done()
		return ctx.Err()
	}
	now := time.Since(l.began)
	for _, cut := range l.cuts {
		if !cut.has(now) || !l.c.eventful() {
			continue
		}
		timer := time.NewTimer(cut.to - now)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		case <-l.c.calm:
		}
		return errCut
	}
	return nil
}

// request takes note of what is asked for, unless its time was over in a pause: it
// never leaves then.
func (l *line) request(over error, op operation, handle string, seconds int32) *request {
	if over != nil {
		l.c.record.stays(handle)
		return nil
	}
	return l.c.record.request(l.c.number, op, handle, seconds)
}

func (l *line) GetQueueUrl(ctx context.Context, in *sqs.GetQueueUrlInput, opts ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error) {
	return pass(ctx, l, l.sqs.GetQueueUrl, in, opts)
}

func (l *line) GetQueueAttributes(ctx context.Context, in *sqs.GetQueueAttributesInput, opts ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	return pass(ctx, l, l.sqs.GetQueueAttributes, in, opts)
}

func (l *line) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, opts ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	sent := time.Now()
	due := sent.Add(time.Duration(in.WaitTimeSeconds)*time.Second + time.Second)
	out, err := pass(ctx, l, l.sqs.ReceiveMessage, in, opts)
	l.c.record.polled(l.c.number, sent, err)
	if err == nil {
		for _, m := range out.Messages {
			l.c.record.received(l.c, m, due)
		}
	} else if errors.Is(ctx.Err(), context.Canceled) {
		l.c.record.aborted(l.c.number)
	}
	return out, err
}

func (l *line) DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, opts ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	over := l.c.stand(ctx)
	r := l.request(over, remove, aws.ToString(in.ReceiptHandle), 0)
	out, err := pass(ctx, l, l.sqs.DeleteMessage, in, opts)
	l.c.record.answered(r, err)
	return out, err
}

func (l *line) DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, opts ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	over := l.c.stand(ctx)
	asked := make(map[string]*request)
	for _, e := range in.Entries {
		asked[*e.Id] = l.request(over, remove, aws.ToString(e.ReceiptHandle), 0)
	}
	out, err := pass(ctx, l, l.sqs.DeleteMessageBatch, in, opts)
	if err == nil {
		for _, e := range out.Successful {
			l.c.record.answered(asked[*e.Id], nil)
			delete(asked, *e.Id)
		}
		for _, e := range out.Failed {
			l.c.record.answered(asked[*e.Id], entryError(*e.Code))
			delete(asked, *e.Id)
		}
	}
	l.c.record.failed(asked, err)
	return out, err
}

func (l *line) ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput, opts ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	over := l.c.stand(ctx)
	r := l.request(over, change, aws.ToString(in.ReceiptHandle), in.VisibilityTimeout)
	out, err := pass(ctx, l, l.sqs.ChangeMessageVisibility, in, opts)
	l.c.record.answered(r, err)
	return out, err
}

func (l *line) ChangeMessageVisibilityBatch(ctx context.Context, in *sqs.ChangeMessageVisibilityBatchInput, opts ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	over := l.c.stand(ctx)
	asked := make(map[string]*request)
	for _, e := range in.Entries {
		asked[*e.Id] = l.request(over, change, aws.ToString(e.ReceiptHandle), e.VisibilityTimeout)
	}
	out, err := pass(ctx, l, l.sqs.ChangeMessageVisibilityBatch, in, opts)
	if err == nil {
		for _, e := range out.Successful {
			l.c.record.answered(asked[*e.Id], nil)
			delete(asked, *e.Id)
		}
		for _, e := range out.Failed {
			l.c.record.answered(asked[*e.Id], entryError(*e.Code))
			delete(asked, *e.Id)
		}
	}
	l.c.record.failed(asked, err)
	return out, err
}

// An entryError is the code of an entry of a batch that failed.
type entryError string

func (e entryError) Error() string { return "the entry failed: " + string(e) }
