// Package queue is one SQS queue as a consumer uses it: receive, delete and
// change visibility. Every call has its own time limit, calls that are due
// together travel together, and every error has a [Kind].
package queue

import (
	"context"
	"crypto/fips140"
	"errors"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Client is what a Queue needs of an SQS client.
type Client interface {
	GetQueueUrl(context.Context, *sqs.GetQueueUrlInput, ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error)
	GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput, ...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error)
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	DeleteMessage(context.Context, *sqs.DeleteMessageInput, ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error)
	DeleteMessageBatch(context.Context, *sqs.DeleteMessageBatchInput, ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error)
	ChangeMessageVisibility(context.Context, *sqs.ChangeMessageVisibilityInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error)
	ChangeMessageVisibilityBatch(context.Context, *sqs.ChangeMessageVisibilityBatchInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error)
}

const (
	// BatchSize is how many messages or entries one request carries (B1, R1).
	BatchSize = 10

	// receiveSlack is what a receive may take beyond its wait time: answers
	// some seconds late have been seen (B143), and the messages in one that comes
	// when nobody waits any more stay hidden until their timeout lapses (R13).
	receiveSlack = 10 * time.Second
)

// A Queue makes the calls of one consumer.
type Queue struct {
	client  Client
	url     *string
	base    context.Context
	called  func(op string, err error)
	pool    pool
	deletes *batcher
	changes *batcher
}

// New returns the queue of that URL. Its delete and change calls use the
// values of ctx but outlive its cancellation: a caller that is told to stop
// still has to finish what it holds (B116). Without batching every delete and
// every change is a request of its own. called is told how each request
// went, after its callers: op is the plain call also of a batch, err that of the
// call or of its first entry that failed. Close ends the queue.
func New(ctx context.Context, client Client, url string, batching bool, called func(op string, err error)) *Queue {
	size := 1
	if batching {
		size = BatchSize
	}
	q := &Queue{client: client, url: &url, base: context.WithoutCancel(ctx), called: called}
	q.deletes = newBatcher(size, q.sendDeletes, &q.pool)
	q.changes = newBatcher(size, q.sendChanges, &q.pool)
	return q
}

// URL is the queue's URL, the same in every request (B158).
func (q *Queue) URL() string { return *q.url }

// Flush sends what waits for company, and makes nothing wait from now on.
func (q *Queue) Flush() {
	q.deletes.flush()
	q.changes.flush()
}

// Close flushes and returns when no call is under way any more.
func (q *Queue) Close() {
	q.deletes.close()
	q.changes.close()
	q.pool.close()
}

// Receiving is the parameters of a receive.
type Receiving struct {
	Max        int
	Visibility time.Duration // whole seconds; 0 = the queue's own
	Wait       time.Duration // whole seconds
	AttemptID  string        // FIFO queues: the same over the retries of one receive (R12)
}

// BeginReceive makes one ReceiveMessage call with every attribute asked for and
// tells done of it. It takes no longer than the wait time and a slack of ten
// seconds.
func (q *Queue) BeginReceive(ctx context.Context, r Receiving, done func(Received)) {
	q.pool.run(func() {
		a := Received{Sent: time.Now()}
		a.Messages, a.Err = q.receive(ctx, r)
		a.Answered = time.Now()
		done(a)
	})
}

// Received is the answer to a receive.
type Received struct {
	Messages       []types.Message
	Err            error
	Sent, Answered time.Time
}

func (q *Queue) receive(ctx context.Context, r Receiving) ([]types.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, r.Wait+receiveSlack)
	defer cancel()
	in := &sqs.ReceiveMessageInput{
		QueueUrl:                    q.url,
		MaxNumberOfMessages:         int32(r.Max),
		VisibilityTimeout:           seconds(r.Visibility),
		WaitTimeSeconds:             seconds(r.Wait),
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		// SQS takes both names of this list (R4); some stand-ins know only the
		// old one (B163).
		//lint:ignore SA1019 asked for beside the new name
		AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	}
	if r.AttemptID != "" {
		in.ReceiveRequestAttemptId = &r.AttemptID
	}
	out, err := q.client.ReceiveMessage(ctx, in, withoutRetries, withoutMD5InFIPSMode)
	if err != nil {
		return nil, err
	}
	if out == nil {
		return nil, errNoAnswer
	}
	return out.Messages, nil
}

// withoutMD5InFIPSMode turns off the SDK's check of bodies where MD5 is not to
// be had: it fails after SQS has handed the messages out, and strands them (B167).
func withoutMD5InFIPSMode(o *sqs.Options) {
	if fips140.Enabled() {
		o.DisableMessageChecksumValidation = true
	}
}

// withoutRetries turns the SDK's retries off. A call is retried by whoever knows
// how long the message is still held, or whether the subscription is being
// stopped; the SDK's token bucket, shared by all calls of a client, may be empty
// just then (S3). The SDK goes on to correct its clock (S10).
func withoutRetries(o *sqs.Options) { o.Retryer = aws.NopRetryer{} }

var (
	errNoAnswer = errors.New("the client returned neither an answer nor an error")
	errNoResult = errors.New("the batch answer names the entry neither as successful nor as failed") // B080
	errTooLate  = errors.New("the call's time was over before it could be sent")
)

// BeginDelete deletes the message behind c's receipt handle.
func (q *Queue) BeginDelete(c *Call, d Deadline) { q.deletes.begin(c, d) }

// BeginChange makes the message behind c's receipt handle visible again after
// c's timeout.
func (q *Queue) BeginChange(c *Call, d Deadline) { q.changes.begin(c, d) }

// Delete deletes the message behind receipt and waits until that is done.
func (q *Queue) Delete(receipt string, d Deadline) error {
	w := newWaiting(receipt, 0)
	q.BeginDelete(&w.Call, d)
	return w.await()
}

// Change makes the message behind receipt visible again after timeout, in whole
// seconds, and waits until that is done.
func (q *Queue) Change(receipt string, timeout time.Duration, d Deadline) error {
	w := newWaiting(receipt, timeout)
	q.BeginChange(&w.Call, d)
	return w.await()
}

// A waiting is a call whose caller waits for it.
type waiting struct {
	Call
	result chan error // buffered, so that a sender never waits
}

func newWaiting(receipt string, timeout time.Duration) *waiting {
	w := &waiting{Call: Call{Receipt: receipt, Timeout: timeout}, result: make(chan error, 1)}
	w.Caller = w
	return w
}

func (w *waiting) Done(_, _ time.Time, err error) { w.result <- err }

// await returns the result of a call, at its deadline at the latest: one that has
// not left then is given up, and one that has left has its result.
func (w *waiting) await() error {
	select { // some have a result and never began
	case err := <-w.result:
		return err
	default:
	}
	timer := time.NewTimer(time.Until(w.deadline))
	defer timer.Stop()
	select {
	case err := <-w.result:
		return err
	case <-timer.C:
	}
	if w.Withdraw() {
		return errTooLate
	}
	return <-w.result
}

// A Change is one message to be made visible again after Timeout. It is not sent
// later than By.
type Change struct {
	Receipt string
	Timeout time.Duration
	By      time.Time
}

// ChangeAll makes the changes at once, ten a request, each request taking no
// longer than limit. In order means that a request waits for the one before.
// The errors are those of the changes, by position.
func (q *Queue) ChangeAll(changes []Change, limit time.Duration, inOrder bool) []error {
	errs := make([]error, 0, len(changes))
	var open []*waiting
	await := func() {
		for _, w := range open {
			errs = append(errs, w.await())
		}
		open = nil
	}
	for batch := range slices.Chunk(changes, q.changes.size) {
		now := time.Now()
		var inTime []*Call
		for _, c := range batch {
			w := newWaiting(c.Receipt, c.Timeout)
			open = append(open, w)
			if !now.Before(c.By) {
				w.Done(now, now, errTooLate)
				continue
			}
			w.deadline = earlier(now.Add(limit), c.By)
			inTime = append(inTime, &w.Call)
		}
		if len(inTime) > 0 {
			q.changes.leave(inTime)
		}
		if inOrder {
			await()
		}
	}
	await()
	return errs
}

func seconds(d time.Duration) int32 { return int32(d / time.Second) }
