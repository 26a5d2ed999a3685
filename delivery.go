package sqsub

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// A Delivery is one receive of one message. It is plain data: a handler's test
// can write &Delivery{Message: ...}. Every accessor works on the zero value.
//
// The receipt handle in Message is the library's to use: a handler that
// deletes the message or changes its visibility itself works against it.
type Delivery struct {
	Message    types.Message // as SQS sent it, with all attributes
	QueueURL   string
	ReceivedAt time.Time // when the answer to the receive had arrived
}

// ID returns the message id, the same in every delivery of a message.
func (d *Delivery) ID() string { return aws.ToString(d.Message.MessageId) }

// Body returns the message body.
func (d *Delivery) Body() string { return aws.ToString(d.Message.Body) }

// ReceiveCount returns how often the message has been received, this delivery
// included. SQS calls the number approximate. Zero means that it was not told.
func (d *Delivery) ReceiveCount() int {
	n, err := strconv.Atoi(d.system(types.MessageSystemAttributeNameApproximateReceiveCount))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// SentAt returns when the message was sent to the queue. The zero time means
// that it was not told.
func (d *Delivery) SentAt() time.Time {
	ms, err := strconv.ParseInt(d.system(types.MessageSystemAttributeNameSentTimestamp), 10, 64)
	if err != nil || ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// GroupID returns the message group id, or "". Messages of a FIFO queue have
// one; those of a standard queue may have one, which orders nothing.
func (d *Delivery) GroupID() string {
	return d.system(types.MessageSystemAttributeNameMessageGroupId)
}

// Attribute returns the string value of the message attribute of that name, or
// "" if there is none.
func (d *Delivery) Attribute(name string) string {
	return aws.ToString(d.Message.MessageAttributes[name].StringValue)
}

func (d *Delivery) system(name types.MessageSystemAttributeName) string {
	return d.Message.Attributes[string(name)]
}

// A delivery is a Delivery in hand.
type delivery struct {
	Delivery
	receipt string // the handle, whatever a handler makes of the message
	ext     extender
	ctx     context.Context // its handler's
	cancel  context.CancelCauseFunc
	removal removal

	// These belong to the loop, which sets deleteOnly before it starts the delivery.
	place      int    // in held
	response   uint64 // which one brought it
	lane       *lane
	own        lane // see newLane
	state      State
	early      *parking // it may run during that: it was sent before the message that is awaited
	deleteOnly bool     // its message was handled in an earlier delivery: delete it, run nothing
	again      bool     // its message was delivered again while its handler ran, and that was told

	handled bool    // its handler has succeeded, or discarded it
	result  *Result // set when it has its outcome, before the loop is told

	announced <-chan struct{} // closed when the Received hook has returned for all of its response; nil = there is no such hook
	lossOnce  sync.Once       // reports the loss of its visibility
}

func (d *delivery) sequence() string {
	return d.system(types.MessageSystemAttributeNameSequenceNumber)
}

func (d *delivery) sameMessage(other *delivery) bool {
	return d.ID() != "" && d.ID() == other.ID()
}

// attrs are the log attributes of a delivery.
func (d *delivery) attrs(more ...any) []any {
	return append([]any{"message", d.ID(), "receive_count", d.ReceiveCount()}, more...)
}
