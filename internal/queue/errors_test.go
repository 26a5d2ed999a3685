package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/sqsub/sqsub/sqstest"
)

const (
	expired = "Value x for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
	gone    = "Value x for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for visibility timeout change."
	beyond  = "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds]"
	attempt = "Value x for parameter ReceiveRequestAttemptId is invalid. Reason: The receiveRequestAttemptId is not valid anymore since the receive call is not retryable."
)

// answers are what SQS answers, and what each has to mean.
var answers = []struct {
	code, message string
	want          Kind
}{
	// The message is gone (B022, V8, V10, B4, D4).
	{"ReceiptHandleIsInvalid", "", Gone},
	{"ReceiptHandleIsInvalid", "The receipt handle has expired", Gone},
	{"AWS.SimpleQueueService.ReceiptHandleIsInvalid", "", Gone},
	{"MessageNotInflight", "", Gone},
	{"AWS.SimpleQueueService.MessageNotInflight", "", Gone},
	{"InvalidParameterValue", expired, Gone},
	{"InvalidParameterValueException", expired, Gone},
	{"InvalidParameterValue", gone, Gone},
	{"InvalidParameterValueException", gone, Gone},

	// The same code, and no loss (V6, R12, M9).
	{"InvalidParameterValue", beyond, Limit},
	{"InvalidParameterValueException", beyond + ".", Limit},
	{"InvalidParameterValue", attempt, AttemptIDRefused},
	{"InvalidParameterValue", "Value 43201 for parameter VisibilityTimeout is invalid. Reason: Must be >= 0 and <= 43200, if provided.", Invalid},
	{"InvalidParameterValue", "", Invalid},

	// The queue (B160, Q6).
	{"QueueDoesNotExist", "", NoQueue},
	{"NonExistentQueue", "", NoQueue},
	{"AWS.SimpleQueueService.NonExistentQueue", "", NoQueue},
	{"AWS.SimpleQueueService.QueueDoesNotExist", "", NoQueue},

	{"OverLimit", "", OverLimit},

	// What an operator has to change (B153).
	{"AccessDenied", "", Denied},
	{"AccessDeniedException", "", Denied},
	{"KMS.AccessDeniedException", "", Denied},
	{"KmsAccessDenied", "", Denied},
	{"KMS.DisabledException", "", Denied},
	{"KmsNotFound", "", Denied},
	{"KMS.OptInRequired", "", Denied},
	{"InvalidClientTokenId", "", Denied},
	{"UnrecognizedClientException", "", Denied},
	{"SignatureDoesNotMatch", "", Denied},
	{"InvalidSecurity", "", Denied},

	// What passes: the next call fetches fresh credentials (B148), a throttle ends.
	{"ExpiredToken", "", Transient},
	{"ExpiredTokenException", "", Transient},
	{"RequestExpired", "", Transient},
	{"RequestTimeTooSkewed", "", Transient},
	{"RequestThrottled", "", Transient},
	{"Throttling", "", Transient},
	{"ThrottlingException", "", Transient},
	{"KMS.ThrottlingException", "", Transient},
	{"KmsThrottled", "", Transient},
	{"InternalError", "", Transient},
	{"InternalFailure", "", Transient},
	{"ServiceUnavailable", "", Transient},
	{"NeverHeardOf", "", Transient},
	{"", "", Transient},

	// What will be refused again.
	{"InvalidAddress", "", Invalid},
	{"MissingParameter", "", Invalid},
	{"MissingRequiredParameterException", "", Invalid},
	{"InvalidAction", "", Invalid},
	{"ValidationException", "", Invalid},
	{"AWS.SimpleQueueService.UnsupportedOperation", "", Invalid},
	{"UnsupportedOperation", "", Invalid},
	{"AWS.SimpleQueueService.TooManyEntriesInBatchRequest", "", Invalid},
	{"AWS.SimpleQueueService.EmptyBatchRequest", "", Invalid},
	{"AWS.SimpleQueueService.BatchEntryIdsNotDistinct", "", Invalid},
	{"AWS.SimpleQueueService.InvalidBatchEntryId", "", Invalid},
	{"AWS.SimpleQueueService.BatchRequestTooLong", "", Invalid},
}

func TestClassifyByCode(t *testing.T) {
	for _, c := range answers {
		for _, err := range []error{
			&smithy.GenericAPIError{Code: c.code, Message: c.message},
			fmt.Errorf("wrapped: %w", &smithy.GenericAPIError{Code: c.code, Message: c.message}),
			&EntryError{Code: c.code, Message: c.message, SenderFault: true},
		} {
			if got := Classify(err); got != c.want {
				t.Errorf("%T %s %q is %v, want %v", err, c.code, c.message, got, c.want)
			}
		}
	}
}

// The same through the SDK, which makes types of some of the answers and plain
// errors of others (W6).
func TestClassifyWhatTheSDKReturns(t *testing.T) {
	server := sqstest.NewServer()
	q := New(t.Context(), server.Client(), "q", false, func(string, error) {})
	defer q.Close()
	for _, c := range answers {
		if c.code == "" {
			continue
		}
		server.Inject(func(sqstest.Call) sqstest.Fault { return sqstest.Fault{Code: c.code, Message: c.message} })
		_, err := q.receive(t.Context(), Receiving{Max: 1, Wait: 1})
		if got := Classify(err); got != c.want {
			t.Errorf("%s %q is %v, want %v: %v", c.code, c.message, got, c.want, err)
		}
	}
}

func TestClassifyByType(t *testing.T) {
	odd := aws.String("SomethingElse")
	for _, c := range []struct {
		err  error
		want Kind
	}{
		{&types.ReceiptHandleIsInvalid{}, Gone},
		{&types.ReceiptHandleIsInvalid{ErrorCodeOverride: odd}, Gone},
		{&types.MessageNotInflight{}, Gone},
		{&types.MessageNotInflight{ErrorCodeOverride: odd}, Gone},
		{&types.QueueDoesNotExist{}, NoQueue},
		{&types.QueueDoesNotExist{ErrorCodeOverride: odd}, NoQueue},
		{&types.OverLimit{}, OverLimit},
		{&types.OverLimit{ErrorCodeOverride: odd}, OverLimit},
		{&types.RequestThrottled{}, Transient},
		{&types.KmsThrottled{}, Transient},
		{&types.KmsAccessDenied{}, Denied},
		{&types.KmsDisabled{}, Denied},
		{&types.KmsInvalidKeyUsage{}, Denied},
		{&types.KmsInvalidState{}, Denied},
		{&types.KmsNotFound{}, Denied},
		{&types.KmsOptInRequired{}, Denied},
		{&types.InvalidSecurity{}, Denied},
		{&types.InvalidAddress{}, Invalid},
		{&types.UnsupportedOperation{}, Invalid},
	} {
		if got := Classify(&smithy.OperationError{ServiceID: "SQS", Err: c.err}); got != c.want {
			t.Errorf("%T is %v, want %v", c.err, got, c.want)
		}
	}
}

// What is no answer of SQS passes (S16: a 5xx with an HTML page is no APIError).
func TestClassifyWhatIsNoAnswer(t *testing.T) {
	for _, err := range []error{
		io.ErrUnexpectedEOF, context.DeadlineExceeded, context.Canceled, errors.New("dial tcp: lookup failed"),
		&smithy.DeserializationError{Err: io.EOF}, errNoAnswer, errNoResult, nil,
	} {
		if got := Classify(err); got != Transient {
			t.Errorf("%v is %v", err, got)
		}
	}
}

// B5: an entry that failed by no fault of the sender is tried again, whatever
// its code.
func TestEntryFaults(t *testing.T) {
	for _, c := range answers {
		if got := Classify(&EntryError{Code: c.code, Message: c.message}); got != Transient {
			t.Errorf("%s without a sender's fault is %v", c.code, got)
		}
	}
	server := &EntryError{Op: "DeleteMessageBatch", Code: "InternalError", Message: "try again"}
	if server.ErrorFault() != smithy.FaultServer || server.ErrorCode() != "InternalError" || server.ErrorMessage() != "try again" {
		t.Errorf("%+v", server)
	}
	if (&EntryError{SenderFault: true}).ErrorFault() != smithy.FaultClient {
		t.Error("a sender's fault is no client's")
	}
}

// Q12: batch calls have no IAM action of their own. No action helps who SQS does not know.
func TestDeniedAdvice(t *testing.T) {
	for op, want := range map[string]string{
		"ReceiveMessage":               "sqs:ReceiveMessage (for an encrypted queue also kms:Decrypt)",
		"DeleteMessageBatch":           "sqs:DeleteMessage",
		"ChangeMessageVisibilityBatch": "sqs:ChangeMessageVisibility",
	} {
		if got := DeniedAdvice(op, &smithy.GenericAPIError{Code: "AccessDenied"}); !strings.HasSuffix(got, " "+want) {
			t.Errorf("%s: %q", op, got)
		}
	}
	for _, code := range []string{
		"AuthFailure", "InvalidClientTokenId", "InvalidSignatureException", "MissingAuthenticationToken",
		"MissingAuthenticationTokenException", "OptInRequired", "SignatureDoesNotMatch", "UnrecognizedClientException",
	} {
		if got := DeniedAdvice("DeleteMessage", &smithy.GenericAPIError{Code: code}); got != badCredentials {
			t.Errorf("%s: %q", code, got)
		}
	}
}
