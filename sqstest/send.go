package sqstest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxSize       = 1_048_576 // L1, of a message and of a batch
	maxDelay      = 900
	maxAttributes = 10
	maxTypeLength = 256
)

// outgoing is what SendMessage and an entry of SendMessageBatch have in common.
type outgoing struct {
	MessageBody             string
	DelaySeconds            *int
	MessageAttributes       map[string]attributeValue
	MessageSystemAttributes map[string]attributeValue
	MessageDeduplicationID  *string `json:"MessageDeduplicationId"`
	MessageGroupID          *string `json:"MessageGroupId"`
}

type sendMessage struct {
	onQueue
	outgoing
}

type sentMessage struct {
	ID                           string `json:"Id,omitempty"`
	MessageID                    string `json:"MessageId"`
	MD5OfMessageBody             string
	MD5OfMessageAttributes       string `json:",omitempty"`
	MD5OfMessageSystemAttributes string `json:",omitempty"`
	SequenceNumber               string `json:",omitempty"`
}

func (o *outgoing) entry() Entry {
	e := Entry{}
	if o.MessageGroupID != nil {
		e.GroupID = *o.MessageGroupID
	}
	return e
}

func (in *sendMessage) describe(_ *Server, c *Call) { c.Entries = []Entry{in.entry()} }

func (in *sendMessage) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	q, err := x.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	if q.fifo {
		if in.MessageGroupID == nil {
			return nil, errMissing("MessageGroupId") // F10
		}
		if err := in.checkDeduplication(q); err != nil {
			return nil, err
		}
	}
	if in.size() > q.settings.MaximumMessageSize {
		return nil, invalidParameterValue.errorf("One or more parameters are invalid. "+
			"Reason: Message must be shorter than %d bytes.", q.settings.MaximumMessageSize) // M9
	}
	sent, err := q.send(&in.outgoing, x.trace())
	if err != nil {
		return nil, err
	}
	x.call.Entries[0].MessageID = sent.MessageID
	return sent, nil
}

// trace is the trace header of the request itself, which its messages inherit (M1).
func (x *exchange) trace() string { return x.r.Header.Get("X-Amzn-Trace-Id") }

// checkDeduplication is the check that fails a whole batch (F10).
func (o *outgoing) checkDeduplication(q *queue) error {
	if o.MessageDeduplicationID == nil && !q.settings.ContentBasedDeduplication {
		return invalidParameterValue.errorf("The queue should either have ContentBasedDeduplication enabled " +
			"or MessageDeduplicationId provided explicitly")
	}
	return nil
}

// size is what counts against the limits: the body, and all of the attributes (M5).
func (o *outgoing) size() int {
	n := len(o.MessageBody)
	for name, v := range o.MessageAttributes {
		n += len(name) + v.size()
	}
	return n
}

// send puts a message into the queue. Whether it has a group and a deduplication id if the queue needs them has been
// checked.
func (q *queue) send(o *outgoing, trace string) (sentMessage, error) {
	if err := o.check(q); err != nil {
		return sentMessage{}, err
	}
	m := &message{body: o.MessageBody, bodyMD5: bodyMD5(o.MessageBody), attributes: o.MessageAttributes, trace: trace}
	if header, ok := o.MessageSystemAttributes["AWSTraceHeader"]; ok {
		m.trace = header.StringValue
	}
	if o.MessageGroupID != nil {
		m.group = *o.MessageGroupID // F14: on a standard queue too
	}
	sent := sentMessage{
		MD5OfMessageBody:             m.bodyMD5,
		MD5OfMessageAttributes:       attributesMD5(o.MessageAttributes),
		MD5OfMessageSystemAttributes: attributesMD5(o.MessageSystemAttributes),
	}
	if !q.fifo {
		q.accept(m, o.DelaySeconds)
		sent.MessageID = m.id
		return sent, nil
	}
	if o.MessageDeduplicationID != nil {
		m.dedupID = *o.MessageDeduplicationID
	} else {
		sum := sha256.Sum256([]byte(m.body)) // F9: of the body alone
		m.dedupID = hex.EncodeToString(sum[:])
	}
	key := m.dedupID
	if q.settings.DeduplicationScope == "messageGroup" {
		key = m.group + "\x00" + m.dedupID
	}
	first, duplicate := q.sent.get(key, q.server.now)
	if !duplicate {
		q.accept(m, nil)
		first = sending{m.id, m.sequence}
		q.sent.put(key, first, q.server.now)
	}
	sent.MessageID, sent.SequenceNumber = first.id, first.sequence
	return sent, nil
}

// accept gives a new message its identity and its place.
func (q *queue) accept(m *message, delay *int) {
	s := q.server
	s.serial++
	m.serial, m.sentAt = s.serial, s.now
	m.id = s.messageID(m.serial)
	q.place(m)
	seconds := q.settings.DelaySeconds
	if delay != nil {
		seconds = *delay
	}
	q.insert(m, s.now.Add(time.Duration(seconds)*time.Second))
}

// place puts a message behind all others.
func (q *queue) place(m *message) {
	q.server.order++
	m.order = q.server.order
	if q.fifo {
		m.sequence = fmt.Sprintf("1888%016d", m.order*256) // M1: 20 digits, increasing
	}
}

func (o *outgoing) check(q *queue) error {
	if o.MessageBody == "" {
		return errMissing("MessageBody") // M4
	}
	if err := checkText(o.MessageBody); err != nil {
		return err
	}
	if err := checkAttributes(o.MessageAttributes); err != nil {
		return err
	}
	if err := checkSystemAttributes(o.MessageSystemAttributes); err != nil {
		return err
	}
	if d := o.DelaySeconds; d != nil {
		if q.fifo && *d > 0 {
			return errInvalid(*d, "DelaySeconds", "The request include parameter that is not valid for this queue type.")
		}
		if *d < 0 || *d > maxDelay {
			return errRange("DelaySeconds", *d, maxDelay)
		}
	}
	if id := o.MessageGroupID; id != nil {
		if err := checkFIFOID("MessageGroupId", *id); err != nil {
			return err
		}
	}
	if id := o.MessageDeduplicationID; id != nil {
		if !q.fifo {
			return errInvalid(*id, "MessageDeduplicationId",
				"The request include parameter that is not valid for this queue type.")
		}
		return checkFIFOID("MessageDeduplicationId", *id)
	}
	return nil
}

// checkText is for bodies, and for the values of attributes too (M4, M5).
func checkText(s string) error {
	if validText(s) {
		return nil
	}
	return invalidMessageContents.errorf("Invalid characters found. Valid unicode characters are " +
		"#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF.")
}

// validText reports whether a string has allowed characters only.
func validText(s string) bool {
	for _, c := range s {
		if c < ' ' && c != '\t' && c != '\n' && c != '\r' || c == 0xfffe || c == 0xffff {
			return false
		}
	}
	return utf8.ValidString(s)
}

// checkFIFOID checks a group, deduplication or attempt id (F10).
func checkFIFOID(parameter, id string) error {
	ok := len(id) >= 1 && len(id) <= 128
	for i := 0; i < len(id); i++ {
		ok = ok && id[i] > ' ' && id[i] <= '~'
	}
	if !ok {
		return errInvalid(id, parameter, parameter+" can only include alphanumeric and punctuation characters. 1 to 128 in length.")
	}
	return nil
}

// checkAttributes is M5.
func checkAttributes(attributes map[string]attributeValue) error {
	if n := len(attributes); n > maxAttributes {
		return invalidParameterValue.errorf("Number of message attributes [%d] exceeds the allowed maximum [%d].", n, maxAttributes)
	}
	for name, v := range attributes {
		if !validAttributeName(name) {
			return invalidParameterValue.errorf("Invalid message attribute name '%s'.", name)
		}
		kind, label, custom := strings.Cut(v.DataType, ".")
		if custom && label == "" || utf8.RuneCountInString(v.DataType) > maxTypeLength || !validText(v.DataType) {
			return invalidParameterValue.errorf("The type of message (user) attribute '%s' is invalid.", name)
		}
		empty := v.StringValue == ""
		switch kind {
		case "String", "Number":
		case "Binary":
			empty = len(v.BinaryValue) == 0
		default:
			return invalidParameterValue.errorf("The type of message (user) attribute '%s' is invalid. "+
				"You must use only the following supported type prefixes: Binary, Number, String.", name)
		}
		if empty {
			return invalidParameterValue.errorf("Message (user) attribute '%s' must contain a non-empty value of type '%s'.", name, kind)
		}
		if kind == "Number" && !validNumber(v.StringValue) {
			return invalidParameterValue.errorf("Can't cast the value of message (user) attribute '%s' to a number.", name)
		}
		if err := checkText(v.StringValue); err != nil {
			return err
		}
	}
	return nil
}

// checkSystemAttributes allows the one that a sender can set (M1). The texts are a guess.
func checkSystemAttributes(attributes map[string]attributeValue) error {
	for name, v := range attributes {
		if name != "AWSTraceHeader" {
			return invalidParameterValue.errorf("Message system attribute name '%s' is invalid.", name)
		}
		if v.DataType != "String" {
			return invalidParameterValue.errorf("The type of message (system) attribute '%s' is invalid. It must be String.", name)
		}
		if v.StringValue == "" {
			return invalidParameterValue.errorf("Message (system) attribute '%s' must contain a non-empty value of type 'String'.", name)
		}
		if err := checkText(v.StringValue); err != nil {
			return err
		}
	}
	return nil
}

// validNumber reports whether a string is a decimal number: Go knows more kinds.
func validNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil && strings.Trim(s, "0123456789+-.eE") == ""
}

func validAttributeName(name string) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return false
		}
	}
	lower := strings.ToLower(name)
	return len(name) >= 1 && len(name) <= 256 && !strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.") &&
		name[0] != '.' && name[len(name)-1] != '.' && !strings.Contains(name, "..")
}
