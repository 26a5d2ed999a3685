package sqstest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

const jsonType = "application/x-amz-json-1.0"

// operations makes the input of each operation (W7).
var operations = map[string]func() input{
	"SendMessage":                  func() input { return new(sendMessage) },
	"SendMessageBatch":             func() input { return new(sendMessageBatch) },
	"ReceiveMessage":               func() input { return new(receiveMessage) },
	"DeleteMessage":                func() input { return new(deleteMessage) },
	"DeleteMessageBatch":           func() input { return new(deleteMessageBatch) },
	"ChangeMessageVisibility":      func() input { return new(changeMessageVisibility) },
	"ChangeMessageVisibilityBatch": func() input { return new(changeMessageVisibilityBatch) },
	"CreateQueue":                  func() input { return new(createQueue) },
	"DeleteQueue":                  func() input { return new(deleteQueue) },
	"PurgeQueue":                   func() input { return new(purgeQueue) },
	"GetQueueUrl":                  func() input { return new(getQueueURL) },
	"GetQueueAttributes":           func() input { return new(getQueueAttributes) },
	"SetQueueAttributes":           func() input { return new(setQueueAttributes) },
	"ListQueues":                   func() input { return new(listQueues) },
	"ListDeadLetterSourceQueues":   func() input { return new(listDeadLetterSourceQueues) },
	"TagQueue":                     func() input { return new(tagQueue) },
	"UntagQueue":                   func() input { return new(untagQueue) },
	"ListQueueTags":                func() input { return new(listQueueTags) },
	"AddPermission":                func() input { return new(unsupported) },
	"RemovePermission":             func() input { return new(unsupported) },
	"StartMessageMoveTask":         func() input { return new(unsupported) },
	"CancelMessageMoveTask":        func() input { return new(unsupported) },
	"ListMessageMoveTasks":         func() input { return new(unsupported) },
}

// onQueue is the part of a request that names the queue.
type onQueue struct {
	QueueURL string `json:"QueueUrl"`
}

func (in *onQueue) queueName() string       { return in.QueueURL }
func (in *onQueue) describe(*Server, *Call) {}

type attributeValue struct {
	StringValue string `json:",omitempty"`
	BinaryValue []byte `json:",omitempty"`
	DataType    string
}

func (v attributeValue) size() int { return len(v.DataType) + len(v.StringValue) + len(v.BinaryValue) }

// answer is an HTTP response.
type answer struct {
	status     int
	code       string // of an error
	queryError string // the header with the error's old code
	body       []byte
	raw        bool // the body is no JSON document
}

func dataAnswer(document any) answer {
	a := answer{status: http.StatusOK}
	if document != nil { // W3: operations without a result have no document either
		a.body = encode(document)
	}
	return a
}

func errorAnswer(e *apiError, queryMode bool) answer {
	a := answer{status: e.status, code: e.code}
	if !queryMode && a.status < 500 {
		a.status = http.StatusBadRequest // W5: only the old protocol told them apart
	}
	document := struct {
		Type    string `json:"__type"`
		Message string `json:"message,omitempty"`
	}{"com.amazonaws.sqs#" + e.shape, e.message}
	a.body = encode(document)
	a.setFault(queryMode)
	return a
}

// setFault says whose fault the error is (W4).
func (a *answer) setFault(queryMode bool) {
	switch {
	case !queryMode:
	case a.status >= 500:
		a.queryError = a.code + ";Receiver"
	default:
		a.queryError = a.code + ";Sender"
	}
}

func (a *answer) writeHeader(w http.ResponseWriter, length int) {
	h := w.Header()
	h.Set("x-amzn-RequestId", uuid(rand.Uint64(), rand.Uint64()))
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat)) // K9: the clock that the timeouts run by
	h.Set("Content-Length", strconv.Itoa(length))
	if a.raw {
		h.Set("Content-Type", http.DetectContentType(a.body))
	} else {
		h.Set("Content-Type", jsonType)
	}
	if a.queryError != "" {
		h.Set("x-amzn-query-error", a.queryError)
	}
	w.WriteHeader(a.status)
}

func encode(document any) []byte {
	b, err := json.Marshal(document)
	if err != nil {
		panic(err) // all documents are plain strings and numbers
	}
	return b
}

// uuid spells 128 bits as a random UUID.
func uuid(a, b uint64) string {
	a = a&^0xf000 | 0x4000
	b = b&^(3<<62) | 2<<62
	return fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", a>>32, a>>16&0xffff, a&0xffff, b>>48, b&(1<<48-1))
}
