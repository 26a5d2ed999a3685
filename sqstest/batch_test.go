package sqstest_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// deleteBatch deletes messages under the ids 0, 1, 2...
func (f *fixture) deleteBatch(messages ...types.Message) *sqs.DeleteMessageBatchOutput {
	f.Helper()
	in := &sqs.DeleteMessageBatchInput{QueueUrl: &f.url}
	for i, m := range messages {
		in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle})
	}
	out, err := f.client.DeleteMessageBatch(f.Context(), in)
	f.must(err)
	return out
}

func (f *fixture) changeBatch(seconds int32, messages ...types.Message) *sqs.ChangeMessageVisibilityBatchOutput {
	f.Helper()
	in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &f.url}
	for i, m := range messages {
		in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: seconds,
		})
	}
	out, err := f.client.ChangeMessageVisibilityBatch(f.Context(), in)
	f.must(err)
	return out
}

// failures are spelled id, code, fault and message.
func failures(entries []types.BatchResultErrorEntry) []string {
	var list []string
	for _, e := range entries {
		list = append(list, fmt.Sprintf("%s %s %v %s", *e.Id, *e.Code, e.SenderFault, aws.ToString(e.Message)))
	}
	return list
}

// B1: entries succeed and fail one by one.
func TestBatchEntriesFailOneByOne(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a", "b")
		m := f.receive()
		garbage := types.Message{ReceiptHandle: aws.String("X")}
		changed := f.changeBatch(60, m[0], garbage, m[1])
		want := []string{`1 ReceiptHandleIsInvalid true The input receipt handle "X" is not a valid receipt handle.`}
		if got := failures(changed.Failed); !equal(got, want) || len(changed.Successful) != 2 {
			t.Errorf("failures %q, want %q", got, want)
		}
		f.wantStates("a in flight 1m0s", "b in flight 1m0s")
		deleted := f.deleteBatch(garbage, m[1])
		want[0] = strings.Replace(want[0], "1", "0", 1)
		if got := failures(deleted.Failed); !equal(got, want) || len(deleted.Successful) != 1 {
			t.Errorf("failures %q, want %q", got, want)
		}
		f.wantStates("a in flight 1m0s")
	})
}

// B4, U8.
func TestBatchEntryErrorsOfLostMessages(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a", "b")
		m := f.receive()
		f.must(f.delete(m[0]))
		time.Sleep(time.Second)
		want := []string{
			"0 InvalidParameterValue true Value " + *m[0].ReceiptHandle + " for parameter ReceiptHandle is invalid. " +
				"Reason: Message does not exist or is not available for visibility timeout change.",
			"1 InvalidParameterValue true Value 43200 for parameter VisibilityTimeout is invalid. " +
				"Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds]",
		}
		if got := failures(f.changeBatch(43200, m...).Failed); !equal(got, want) {
			t.Errorf("failures %q, want %q", got, want)
		}
	})
}

// B4: another code and text than a single delete has.
func TestBatchEntryErrorOfAnExpiredHandle(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo("VisibilityTimeout", "1")
		f.sendTo("g", "a")
		m := f.receive()
		time.Sleep(time.Second)
		want := []string{"0 ReceiptHandleIsInvalid true The receipt handle has expired"}
		if got := failures(f.deleteBatch(m...).Failed); !equal(got, want) {
			t.Errorf("failures %q, want %q", got, want)
		}
	})
}

// D1.
func TestDeletedMessagesAreDeletedAgainInABatch(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a", "b")
		m := f.receive()
		f.deleteBatch(m[0])
		if out := f.deleteBatch(m...); len(out.Successful) != 2 {
			t.Errorf("successful %v", out.Successful)
		}
	})
}

func sendEntry(id, body string) types.SendMessageBatchRequestEntry {
	return types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &body}
}

// B2: the call fails as a whole, before anything happens.
func TestBatchFailsAsAWhole(t *testing.T) {
	many := make([]types.SendMessageBatchRequestEntry, 20)
	for i := range many {
		many[i] = sendEntry(strconv.Itoa(i), "x")
	}
	const badID = "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long."
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		for _, c := range []struct {
			entries       []types.SendMessageBatchRequestEntry
			code, message string
		}{
			{[]types.SendMessageBatchRequestEntry{}, "EmptyBatchRequest", "There should be at least one SendMessageBatchRequestEntry in the request."},
			{many, "TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10. You have sent 20."},
			{[]types.SendMessageBatchRequestEntry{sendEntry("id_1", "x"), sendEntry("id_2", "x"), sendEntry("id_2", "x")}, "BatchEntryIdsNotDistinct", "Id id_2 repeated."},
			{[]types.SendMessageBatchRequestEntry{sendEntry("", "x")}, "InvalidBatchEntryId", badID},
			{[]types.SendMessageBatchRequestEntry{sendEntry(strings.Repeat("x", 81), "x")}, "InvalidBatchEntryId", badID},
			{[]types.SendMessageBatchRequestEntry{sendEntry("invalid:id", "x")}, "InvalidBatchEntryId", badID},
			{[]types.SendMessageBatchRequestEntry{sendEntry("1", strings.Repeat("x", 1<<19)), sendEntry("2", strings.Repeat("x", 1<<19+1))}, "BatchRequestTooLong", "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes."},
		} {
			_, err := f.client.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &f.url, Entries: c.entries})
			f.wantError(err, "AWS.SimpleQueueService."+c.code, c.message)
		}
		f.wantStates()
		_, err := f.client.DeleteMessageBatch(t.Context(), &sqs.DeleteMessageBatchInput{QueueUrl: &f.url, Entries: []types.DeleteMessageBatchRequestEntry{}})
		f.wantError(err, "AWS.SimpleQueueService.EmptyBatchRequest", "There should be at least one DeleteMessageBatchRequestEntry in the request.")
		var empty *types.EmptyBatchRequest
		_, err = f.client.ChangeMessageVisibilityBatch(t.Context(), &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &f.url, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{}})
		if !errors.As(err, &empty) {
			t.Errorf("error %v", err)
		}
	})
}

// B4.
func TestOversizedEntryFailsAlone(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard("MaximumMessageSize", "1024")
		out, err := f.client.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &f.url, Entries: []types.SendMessageBatchRequestEntry{
			sendEntry("long", strings.Repeat("x", 1025)), sendEntry("short", strings.Repeat("x", 1024)),
		}})
		f.must(err)
		want := []string{"long InvalidParameterValue true One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes."}
		if got := failures(out.Failed); !equal(got, want) || len(out.Successful) != 1 || *out.Successful[0].Id != "short" {
			t.Errorf("failures %q, want %q", got, want)
		}
	})
}
