package sqstest

import (
	"fmt"
	"net/http"
)

// errorKind is one kind of error as the JSON protocol shows it (W5): the shape names the type, the query code of the
// older protocol travels in a header, and SDKs report the latter.
type errorKind struct {
	shape  string
	code   string
	status int
}

const queryPrefix = "AWS.SimpleQueueService."

var (
	batchEntryIdsNotDistinct     = errorKind{"BatchEntryIdsNotDistinct", queryPrefix + "BatchEntryIdsNotDistinct", 400}
	batchRequestTooLong          = errorKind{"BatchRequestTooLong", queryPrefix + "BatchRequestTooLong", 400}
	emptyBatchRequest            = errorKind{"EmptyBatchRequest", queryPrefix + "EmptyBatchRequest", 400}
	invalidBatchEntryID          = errorKind{"InvalidBatchEntryId", queryPrefix + "InvalidBatchEntryId", 400}
	tooManyEntriesInBatchRequest = errorKind{"TooManyEntriesInBatchRequest", queryPrefix + "TooManyEntriesInBatchRequest", 400}
	unsupportedOperation         = errorKind{"UnsupportedOperation", queryPrefix + "UnsupportedOperation", 400}
	queueDoesNotExist            = errorKind{"QueueDoesNotExist", queryPrefix + "NonExistentQueue", 400}
	queueDeletedRecently         = errorKind{"QueueDeletedRecently", queryPrefix + "QueueDeletedRecently", 400}
	queueNameExists              = errorKind{"QueueNameExists", "QueueAlreadyExists", 400}
	purgeQueueInProgress         = errorKind{"PurgeQueueInProgress", queryPrefix + "PurgeQueueInProgress", 403}
	receiptHandleIsInvalid       = errorKind{"ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 404}
	overLimit                    = errorKind{"OverLimit", "OverLimit", 403}
	invalidAttributeName         = errorKind{"InvalidAttributeName", "InvalidAttributeName", 400}
	invalidAttributeValue        = errorKind{"InvalidAttributeValue", "InvalidAttributeValue", 400}
	invalidMessageContents       = errorKind{"InvalidMessageContents", "InvalidMessageContents", 400}
	invalidParameterValue        = errorKind{"InvalidParameterValueException", "InvalidParameterValue", 400}
	missingParameter             = errorKind{"MissingRequiredParameterException", "MissingParameter", 400}
	serializationException       = errorKind{"SerializationException", "SerializationException", 400}
	invalidAction                = errorKind{"InvalidAction", "InvalidAction", 400}
	internalError                = errorKind{"InternalError", "InternalError", 500}
)

// errorKinds is what an injected code is looked up in: the kinds above and those only a fault can bring about (W5).
var errorKinds = func() map[string]errorKind {
	kinds := map[string]errorKind{}
	for _, k := range []errorKind{
		batchEntryIdsNotDistinct, batchRequestTooLong, emptyBatchRequest, invalidBatchEntryID,
		tooManyEntriesInBatchRequest, unsupportedOperation, queueDoesNotExist, queueDeletedRecently, queueNameExists,
		purgeQueueInProgress, receiptHandleIsInvalid, overLimit, invalidAttributeName, invalidAttributeValue,
		invalidMessageContents, invalidParameterValue, missingParameter, serializationException, invalidAction,
		internalError,
		{"MessageNotInflight", queryPrefix + "MessageNotInflight", 400},
		{"InvalidIdFormat", "InvalidIdFormat", 400},
		{"RequestThrottled", "RequestThrottled", 403},
		{"InvalidAddress", "InvalidAddress", 404},
		{"InvalidSecurity", "InvalidSecurity", 403},
		{"ResourceNotFoundException", "ResourceNotFoundException", 404},
		{"KmsAccessDenied", "KMS.AccessDeniedException", 400},
		{"KmsDisabled", "KMS.DisabledException", 400},
		{"KmsInvalidKeyUsage", "KMS.InvalidKeyUsageException", 400},
		{"KmsInvalidState", "KMS.InvalidStateException", 400},
		{"KmsNotFound", "KMS.NotFoundException", 400},
		{"KmsThrottled", "KMS.ThrottlingException", 400},
		{"KmsOptInRequired", "KMS.OptInRequired", 403},
		// Not modelled; the shapes of these are a guess (U9).
		{"AccessDeniedException", "AccessDenied", 403},
		{"ExpiredTokenException", "ExpiredToken", 403},
		{"UnrecognizedClientException", "InvalidClientTokenId", 403},
		{"InvalidSignatureException", "SignatureDoesNotMatch", 403},
		{"InternalFailure", "InternalFailure", 500},
		{"ServiceUnavailable", "ServiceUnavailable", 503},
	} {
		kinds[k.code] = k
	}
	return kinds
}()

// kindOf is the error a query code stands for; an unknown code is its own shape, with status 400.
func kindOf(code string) errorKind {
	if k, ok := errorKinds[code]; ok {
		return k
	}
	return errorKind{code, code, http.StatusBadRequest}
}

// apiError is an error that SQS answers with.
type apiError struct {
	errorKind
	message string
	inBatch *apiError // what a batch call says of the entry instead, where SQS differs (B4)
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

func (k errorKind) errorf(format string, args ...any) *apiError {
	return &apiError{errorKind: k, message: fmt.Sprintf(format, args...)}
}

func errMissing(parameter string) *apiError {
	return missingParameter.errorf("The request must contain the parameter %s.", parameter)
}

// errInvalid is the frame most of SQS's complaints about a parameter come in (R2, V6, V8, F10).
func errInvalid(value any, parameter, reason string) *apiError {
	return invalidParameterValue.errorf("Value %v for parameter %s is invalid. Reason: %s", value, parameter, reason)
}
