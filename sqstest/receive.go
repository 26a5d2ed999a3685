package sqstest

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	maxBatch      = 10
	maxWait       = 20
	maxVisibility = 43_200
)

type receiveMessage struct {
	onQueue
	AttributeNames              []string // the older name of the next (R4)
	MessageSystemAttributeNames []string
	MessageAttributeNames       []string
	MaxNumberOfMessages         *int
	VisibilityTimeout           *int
	WaitTimeSeconds             *int
	ReceiveRequestAttemptID     *string `json:"ReceiveRequestAttemptId"`
}

type receivedMessages struct {
	Messages []receivedMessage `json:",omitempty"` // R6
}

type receivedMessage struct {
	MessageID              string `json:"MessageId"`
	ReceiptHandle          string
	MD5OfBody              string
	Body                   string
	Attributes             map[string]string         `json:",omitempty"`
	MD5OfMessageAttributes string                    `json:",omitempty"`
	MessageAttributes      map[string]attributeValue `json:",omitempty"`
}

func (in *receiveMessage) describe(_ *Server, c *Call) {
	c.Visibility = -1
	if in.VisibilityTimeout != nil {
		c.Visibility = *in.VisibilityTimeout
	}
	if in.MaxNumberOfMessages != nil {
		c.MaxMessages = *in.MaxNumberOfMessages
	}
	if in.WaitTimeSeconds != nil {
		c.WaitSeconds = *in.WaitTimeSeconds
	}
	if in.ReceiveRequestAttemptID != nil {
		c.AttemptID = *in.ReceiveRequestAttemptID
	}
}

func (in *receiveMessage) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	q, err := x.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	if err := in.check(q); err != nil {
		return nil, err
	}
	p := &poll{call: x.call, arrived: x.call.At, max: 1, visibility: -1, fault: &x.fault}
	if in.MaxNumberOfMessages != nil {
		p.max = *in.MaxNumberOfMessages
	}
	if in.VisibilityTimeout != nil {
		p.visibility = *in.VisibilityTimeout
	}
	if in.ReceiveRequestAttemptID != nil {
		p.attemptID = *in.ReceiveRequestAttemptID
	}
	wait := q.settings.ReceiveMessageWaitTimeSeconds // R3, R9: as good as asked for
	if in.WaitTimeSeconds != nil {
		wait = *in.WaitTimeSeconds
	}
	if x.fault.Empty {
		return receivedMessages{}, nil
	}
	if wait == 0 && !q.fifo && q.inFlight >= x.inFlightLimit() {
		return nil, overLimit.errorf("Too many messages have been received without being deleted. " +
			"Please delete your received messages or let them timeout before receiving more.") // R14
	}
	found, err := q.take(p, x.now)
	if len(found) == 0 && err == nil && wait > 0 {
		p.deadline = x.now.Add(time.Duration(wait) * time.Second)
		found, err = x.wait(q, p)
	}
	if err != nil {
		return nil, err
	}
	return in.response(found, x.fault.BadMD5), nil
}

func (in *receiveMessage) check(q *queue) error {
	if n := in.MaxNumberOfMessages; n != nil && (*n < 1 || *n > maxBatch) {
		return errInvalid(*n, "MaxNumberOfMessages", "Must be between 1 and 10, if provided.") // R2
	}
	if n := in.WaitTimeSeconds; n != nil && (*n < 0 || *n > maxWait) {
		return errRange("WaitTimeSeconds", *n, maxWait)
	}
	if n := in.VisibilityTimeout; n != nil && (*n < 0 || *n > maxVisibility) {
		return errRange("VisibilityTimeout", *n, maxVisibility)
	}
	if id := in.ReceiveRequestAttemptID; id != nil {
		if !q.fifo { // R12, U7; the text is the one of F10
			return errInvalid(*id, "ReceiveRequestAttemptId",
				"The request include parameter that is not valid for this queue type.")
		}
		return checkFIFOID("ReceiveRequestAttemptId", *id)
	}
	return nil
}

// errRange is the complaint of R2.
func errRange(parameter string, value, most int) *apiError {
	return errInvalid(value, parameter, "Must be >= 0 and <= "+strconv.Itoa(most)+", if provided.")
}

func (in *receiveMessage) response(found []delivery, badMD5 bool) receivedMessages {
	names := slices.Concat(in.AttributeNames, in.MessageSystemAttributeNames) // R4
	messages := make([]receivedMessage, len(found))
	for i, d := range found {
		attributes := chosenAttributes(d.m.attributes, in.MessageAttributeNames)
		messages[i] = receivedMessage{
			MessageID:              d.m.id,
			ReceiptHandle:          d.handle,
			MD5OfBody:              d.m.bodyMD5,
			Body:                   d.m.body,
			Attributes:             systemAttributes(d, names),
			MD5OfMessageAttributes: attributesMD5(attributes), // R5: of those returned
			MessageAttributes:      attributes,
		}
		if badMD5 {
			messages[i].MD5OfBody = bodyMD5(d.m.body + " ")
		}
	}
	return receivedMessages{messages}
}

// chosenAttributes applies R5: a name, a prefix with .* after it, or All.
func chosenAttributes(all map[string]attributeValue, names []string) map[string]attributeValue {
	if len(all) == 0 || len(names) == 0 {
		return nil
	}
	chosen := map[string]attributeValue{}
	for name, v := range all {
		for _, n := range names {
			prefix, wild := strings.CutSuffix(n, "*")
			if n == name || n == "All" || n == ".*" || wild && strings.HasPrefix(name, strings.TrimSuffix(prefix, ".")) {
				chosen[name] = v
				break
			}
		}
	}
	return chosen
}

// senderID is the user all messages are from.
const senderID = "AIDACKCEVSQ6C2EXAMPLE"

// systemAttributes are those of M1 that the message has and the receive asked for.
func systemAttributes(d delivery, names []string) map[string]string {
	if len(names) == 0 {
		return nil
	}
	m := d.m
	all := slices.Contains(names, "All")
	attributes := map[string]string{}
	add := func(name, value string) {
		if value != "" && (all || slices.Contains(names, name)) {
			attributes[name] = value
		}
	}
	add("SenderId", senderID)
	add("SentTimestamp", strconv.FormatInt(m.sentAt.UnixMilli(), 10))
	add("ApproximateReceiveCount", strconv.Itoa(d.count))
	add("ApproximateFirstReceiveTimestamp", strconv.FormatInt(m.firstReceived.UnixMilli(), 10))
	add("MessageGroupId", m.group)
	add("MessageDeduplicationId", m.dedupID)
	add("SequenceNumber", m.sequence)
	add("AWSTraceHeader", m.trace)
	add("DeadLetterQueueSourceArn", m.source)
	return attributes
}
