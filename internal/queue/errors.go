package queue

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// A Kind says what an error of SQS means to a consumer.
type Kind int

const (
	Transient        Kind = iota // try again: network, 5xx, throttles, expired tokens, anything unknown
	Gone                         // the receipt handle holds the message no longer
	Limit                        // the 12 hours are over
	Denied                       // an operator has to allow it
	NoQueue                      // the queue does not exist
	OverLimit                    // too many messages are in flight
	AttemptIDRefused             // the receive request attempt id cannot be used again
	Invalid                      // SQS will never accept this request
)

var byCode = map[string]Kind{
	"MessageNotInflight":     Gone,
	"ReceiptHandleIsInvalid": Gone,

	"NonExistentQueue":  NoQueue,
	"QueueDoesNotExist": NoQueue,

	"OverLimit": OverLimit,

	"AccessDenied":                        Denied,
	"AccessDeniedException":               Denied,
	"AuthFailure":                         Denied,
	"InvalidClientTokenId":                Denied,
	"InvalidSecurity":                     Denied,
	"InvalidSignatureException":           Denied,
	"KMS.AccessDeniedException":           Denied,
	"KMS.DisabledException":               Denied,
	"KMS.InvalidKeyUsageException":        Denied,
	"KMS.InvalidStateException":           Denied,
	"KMS.NotFoundException":               Denied,
	"KMS.OptInRequired":                   Denied,
	"KmsAccessDenied":                     Denied,
	"KmsDisabled":                         Denied,
	"KmsInvalidKeyUsage":                  Denied,
	"KmsInvalidState":                     Denied,
	"KmsNotFound":                         Denied,
	"KmsOptInRequired":                    Denied,
	"MissingAuthenticationToken":          Denied,
	"OptInRequired":                       Denied,
	"SignatureDoesNotMatch":               Denied,
	"UnauthorizedOperation":               Denied,
	"UnrecognizedClientException":         Denied,
	"MissingAuthenticationTokenException": Denied,

	"BatchEntryIdsNotDistinct":          Invalid,
	"BatchRequestTooLong":               Invalid,
	"EmptyBatchRequest":                 Invalid,
	"InvalidAction":                     Invalid,
	"InvalidAddress":                    Invalid,
	"InvalidBatchEntryId":               Invalid,
	"InvalidIdFormat":                   Invalid,
	"MissingParameter":                  Invalid,
	"MissingRequiredParameterException": Invalid,
	"TooManyEntriesInBatchRequest":      Invalid,
	"UnknownOperationException":         Invalid,
	"UnsupportedOperation":              Invalid,
	"ValidationException":               Invalid,
}

// unauthenticated are the codes of those that are denied because SQS does not know who
// asks.
var unauthenticated = map[string]bool{
	"AuthFailure":                         true,
	"InvalidClientTokenId":                true,
	"InvalidSignatureException":           true,
	"MissingAuthenticationToken":          true,
	"MissingAuthenticationTokenException": true,
	"OptInRequired":                       true,
	"SignatureDoesNotMatch":               true,
	"UnrecognizedClientException":         true,
}

// Classify says what err means. It looks at the code with and without its
// prefix, since the shape name and the query code of one error differ and SDK
// versions surface either (W6, B160), and at the text where the code alone
// does not tell (V6).
func Classify(err error) Kind {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return Transient
	}
	if entry := (*EntryError)(nil); errors.As(err, &entry) && !entry.SenderFault {
		return Transient // B5
	}
	code := strings.TrimPrefix(api.ErrorCode(), "AWS.SimpleQueueService.")
	switch code {
	case "InvalidParameterValue", "InvalidParameterValueException":
		return byReason(api.ErrorMessage())
	}
	if kind, ok := byCode[code]; ok {
		return kind
	}
	return byType(err)
}

// byReason tells apart what SQS reports as InvalidParameterValue (V6, V8, D4, R12).
func byReason(message string) Kind {
	switch {
	case strings.Contains(message, "beyond the limit"):
		return Limit
	case strings.Contains(message, "receipt handle has expired"),
		strings.Contains(message, "does not exist or is not available"):
		return Gone
	case strings.Contains(message, "ReceiveRequestAttemptId"):
		return AttemptIDRefused
	}
	return Invalid
}

// byType is for errors whose code was overridden on the way.
func byType(err error) Kind {
	if as[*types.ReceiptHandleIsInvalid](err) || as[*types.MessageNotInflight](err) {
		return Gone
	}
	if as[*types.QueueDoesNotExist](err) {
		return NoQueue
	}
	if as[*types.OverLimit](err) {
		return OverLimit
	}
	return Transient
}

// as reports whether err is an E.
func as[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// MayHaveTakenEffect reports whether a call that failed may have taken effect all
// the same: whether it was anything but refused, or not sent.
func MayHaveTakenEffect(err error) bool {
	if entry := (*EntryError)(nil); errors.As(err, &entry) {
		return !entry.SenderFault
	}
	refused := statusOf(err)/100 == 4
	return !refused && !NotSent(err)
}

// NotSent reports whether a call failed before its request could leave: its time
// was over, or no connection came about.
func NotSent(err error) bool {
	var op *net.OpError
	return errors.Is(err, errTooLate) || errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") ||
		strings.Contains(err.Error(), "TLS handshake timeout") // net/http has no type for it
}

// statusOf is the HTTP status of the answer that err tells of; 0 = there was none.
func statusOf(err error) int {
	var answer interface{ HTTPStatusCode() int }
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}

// IsThrottled reports whether err says that too many requests were made (L4).
func IsThrottled(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && strings.Contains(api.ErrorCode(), "hrottl")
}

// IsDeleted reports whether err says that the message has been deleted (V8).
func IsDeleted(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && strings.Contains(api.ErrorMessage(), "does not exist or is not available")
}

// An EntryError is the failure of one entry of a batch request that as a whole
// succeeded (B1). It is a smithy.APIError, as the single call's error would be.
type EntryError struct {
	Op          string
	Code        string
	Message     string
	SenderFault bool
}

func (e *EntryError) Error() string {
	return fmt.Sprintf("%s entry failed: %s: %s", e.Op, e.Code, e.Message)
}

func (e *EntryError) ErrorCode() string    { return e.Code }
func (e *EntryError) ErrorMessage() string { return e.Message }

func (e *EntryError) ErrorFault() smithy.ErrorFault {
	if e.SenderFault {
		return smithy.FaultClient
	}
	return smithy.FaultServer
}
