package queue

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// A batchCall sends a batch request and returns the two lists of its answer.
type batchCall func(ctx context.Context) (ok []*string, failed []types.BatchResultErrorEntry, err error)

func (q *Queue) sendDeletes(batch []*Call) {
	q.sendBatch("DeleteMessage", batch, q.sendDelete, func(ctx context.Context) (ok []*string, _ []types.BatchResultErrorEntry, _ error) {
		entries := make([]types.DeleteMessageBatchRequestEntry, len(batch))
		receipts := receiptsOf(batch)
		for i := range batch {
			entries[i] = types.DeleteMessageBatchRequestEntry{Id: id(i), ReceiptHandle: &receipts[i]}
		}
		out, err := q.client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: q.url, Entries: entries}, withoutRetries)
		if err != nil || out == nil {
			return nil, nil, cmp.Or(err, errNoAnswer)
		}
		for _, s := range out.Successful {
			ok = append(ok, s.Id)
		}
		return ok, out.Failed, nil
	})
}

func (q *Queue) sendDelete(ctx context.Context, c *Call) error {
	_, err := q.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: q.url, ReceiptHandle: aws.String(c.Receipt)}, withoutRetries)
	return err
}

func (q *Queue) sendChanges(batch []*Call) {
	q.sendBatch("ChangeMessageVisibility", batch, q.sendChange, func(ctx context.Context) (ok []*string, _ []types.BatchResultErrorEntry, _ error) {
		entries := make([]types.ChangeMessageVisibilityBatchRequestEntry, len(batch))
		receipts := receiptsOf(batch)
		for i, c := range batch {
			entries[i] = types.ChangeMessageVisibilityBatchRequestEntry{Id: id(i), ReceiptHandle: &receipts[i], VisibilityTimeout: seconds(c.Timeout)}
		}
		out, err := q.client.ChangeMessageVisibilityBatch(ctx, &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: q.url, Entries: entries}, withoutRetries)
		if err != nil || out == nil {
			return nil, nil, cmp.Or(err, errNoAnswer)
		}
		for _, s := range out.Successful {
			ok = append(ok, s.Id)
		}
		return ok, out.Failed, nil
	})
}

func (q *Queue) sendChange(ctx context.Context, c *Call) error {
	_, err := q.client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: q.url, ReceiptHandle: aws.String(c.Receipt), VisibilityTimeout: seconds(c.Timeout),
	}, withoutRetries)
	return err
}

// sendBatch sends a batch and gives each entry its result. A batch that SQS
// refused as a whole for its form is sent again one by one: one bad entry may
// be the reason, or a server that knows no batches (B206).
func (q *Queue) sendBatch(op string, batch []*Call, single func(context.Context, *Call) error, call batchCall) {
	if len(batch) == 1 {
		q.sendSingle(op, batch[0], single)
		return
	}
	ctx, cancel := context.WithDeadline(q.base, earliest(batch))
	defer cancel()
	sent := time.Now()
	ok, failed, err := call(ctx)
	switch {
	case err == nil:
		q.called(op, answerEach(op, batch, sent, ok, failed))
	case refused(err):
		var all sync.WaitGroup // side by side: each has a deadline of its own
		for _, c := range batch {
			all.Go(func() { q.sendSingle(op, c, single) })
		}
		all.Wait()
	default:
		answered := time.Now()
		for _, c := range batch {
			c.Caller.Done(sent, answered, err)
		}
		q.called(op, err)
	}
}

func (q *Queue) sendSingle(op string, c *Call, single func(context.Context, *Call) error) {
	ctx, cancel := context.WithDeadline(q.base, c.deadline)
	defer cancel()
	sent := time.Now()
	err := single(ctx, c)
	c.Caller.Done(sent, time.Now(), err)
	q.called(op, err)
}

// refused reports whether the server will refuse the same batch again. Some that
// know no batches answer with a status alone.
func refused(err error) bool {
	switch Classify(err) {
	case Invalid, Gone, Limit:
		return true
	case Transient:
		status := statusOf(err)
		return !as[smithy.APIError](err) && (status == 400 || status == 404 || status == 405)
	}
	return false
}

// answerEach matches the entries of an answer to those of the request, by id:
// their order is not promised (B1). Ids that nobody sent are ignored. It returns
// the first entry's error.
func answerEach(op string, batch []*Call, sent time.Time, ok []*string, failed []types.BatchResultErrorEntry) error {
	errs := make([]error, len(batch))
	for i := range errs {
		errs[i] = errNoResult
	}
	for _, id := range ok {
		if i, ok := position(id, len(batch)); ok {
			errs[i] = nil
		}
	}
	for _, f := range failed {
		if i, ok := position(f.Id, len(batch)); ok {
			errs[i] = &EntryError{Op: op, Code: aws.ToString(f.Code), Message: aws.ToString(f.Message), SenderFault: f.SenderFault}
		}
	}
	answered := time.Now()
	for i, c := range batch {
		c.Caller.Done(sent, answered, errs[i])
	}
	return cmp.Or(errs...)
}

// Ids are positions: receipt handles have characters that an id cannot have,
// and message ids may come twice in one batch (B3).
var ids = [BatchSize]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}

func id(i int) *string { return &ids[i] }

func position(id *string, n int) (int, bool) {
	i, err := strconv.Atoi(aws.ToString(id))
	return i, err == nil && i >= 0 && i < n
}

// receiptsOf are copies, whatever a client does to them: a batch that is refused is
// sent again one by one.
func receiptsOf(batch []*Call) []string {
	receipts := make([]string, len(batch))
	for i, c := range batch {
		receipts[i] = c.Receipt
	}
	return receipts
}

func earliest(batch []*Call) time.Time {
	first := batch[0].deadline
	for _, c := range batch[1:] {
		first = earlier(first, c.deadline)
	}
	return first
}
