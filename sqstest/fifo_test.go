package sqstest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// F1.
func TestReceiveFillsUpWithOneGroupBeforeTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		f.sendTo("1", "g1-m1")
		f.sendTo("2", "g2-m1")
		f.sendTo("1", "g1-m2", "g1-m3")
		f.sendTo("2", "g2-m2")
		m := f.receive(atMost(4))
		if got, want := bodies(m), []string{"g1-m1", "g1-m2", "g1-m3", "g2-m1"}; !equal(got, want) {
			t.Errorf("received %q, want %q", got, want)
		}
	})
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// F2: an invisible message blocks the later ones of its group and no earlier one.
func TestExtendedMessageBlocksTheLaterOnesOfItsGroup(t *testing.T) {
	for extended, want := range [][]string{{}, {"foo"}, {"foo", "bar"}} {
		bubble(t, func(t *testing.T, f *fixture) {
			f.fifo("VisibilityTimeout", "1")
			f.sendTo("g", "foo", "bar", "baz")
			m := f.receive()
			f.must(f.change(m[extended], 20))
			time.Sleep(time.Second)
			f.wantReceive(want...)
		})
	}
}

// F3.
func TestReleasedFirstMessageComesBackAlone(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		f.sendTo("g", "a", "b", "c")
		m := f.receive(atMost(2))
		f.must(f.change(m[0], 0))
		f.wantReceive("a")
		f.must(f.delete(m[1])) // the second consumer has a, and still b can be deleted
		f.wantStates("a in flight 30s", "c visible")
	})
}

// F3.
func TestGroupReleasedLastToFirstComesBackAsOne(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		f.sendTo("g", "a", "b", "c")
		m := f.receive()
		for i := len(m) - 1; i >= 0; i-- {
			f.wantReceive()
			f.must(f.change(m[i], 0))
		}
		f.wantReceive("a", "b", "c")
	})
}

// F4, D9.
func TestGroupIsLockedUntilAllItsReceivedMessagesAreDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		f.sendTo("g", "a", "b")
		m := f.receive()
		f.sendTo("g", "c")
		f.sendTo("h", "d")
		f.must(f.delete(m[0]))
		f.wantReceive("d")
		f.must(f.delete(m[1]))
		f.wantReceive("c")
	})
}

// F5.
func TestLapsedGroupComesBackInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo("VisibilityTimeout", "1")
		f.sendTo("g", "a", "b", "c")
		f.wantReceive("a", "b", "c")
		time.Sleep(time.Second)
		f.wantReceive("a", "b", "c")
	})
}

// D4, F6, U2.
func TestHandleOfAFIFOQueueExpiresWithItsTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		f.sendTo("g", "a")
		m := f.receiveOne(visibility(1))
		time.Sleep(time.Second)
		text := "Value " + *m.ReceiptHandle + " for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
		f.wantError(f.delete(m), "InvalidParameterValue", text)
		f.wantError(f.change(m, 10), "InvalidParameterValue", text)
		f.receiveOne()
		f.wantError(f.delete(m), "InvalidParameterValue", text)
		f.wantError(f.change(m, 10), "InvalidParameterValue", text)
		f.wantStates("a in flight 30s")
	})
}

// V14.
func TestDeleteOnAFIFOQueueAfterAnExtension(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo("VisibilityTimeout", "2")
		f.sendTo("g", "a")
		m := f.receiveOne()
		f.must(f.change(m, 10))
		time.Sleep(9 * time.Second)
		f.must(f.delete(m))
	})
}

// R11.
func TestTimeoutOfZeroLocksNoGroup(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo("VisibilityTimeout", "0")
		f.sendTo("g", "a", "b")
		m := f.wantReceive("a", "b")
		f.wantReceive("a", "b")
		f.wantError(f.delete(m[0]), "InvalidParameterValue",
			"Value "+*m[0].ReceiptHandle+" for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.")
	})
}

// F8.
func TestBlockedMessagesCountAsVisible(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		for _, g := range []string{"1", "2", "3"} {
			f.sendTo(g, g+"a", g+"b")
		}
		f.receive(atMost(2))
		if v, n := f.attribute("ApproximateNumberOfMessages"), f.attribute("ApproximateNumberOfMessagesNotVisible"); v != "4" || n != "2" {
			t.Errorf("%s visible, %s not visible; want 4 and 2", v, n)
		}
	})
}

// R15.
func TestInFlightLimitOfAFIFOQueueIsSilent(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.InFlightLimit = 1
		f.fifo()
		f.sendTo("g", "a")
		f.sendTo("h", "b")
		f.wantReceive("a")
		f.wantReceive()
	})
}

func (f *fixture) sendDedup(group, id, body string) *sqs.SendMessageOutput {
	f.Helper()
	out, err := f.client.SendMessage(f.Context(), &sqs.SendMessageInput{
		QueueUrl: &f.url, MessageBody: &body, MessageGroupId: &group, MessageDeduplicationId: &id,
	})
	f.must(err)
	return out
}

// F11: what is visible stays so.
func TestNewDelayOfAFIFOQueueHoldsForDelayedMessagesToo(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		f.sendTo("g", "a")
		f.set("DelaySeconds", "60")
		f.sendTo("h", "b")
		time.Sleep(10 * time.Second)
		f.sendTo("i", "c")
		f.wantStates("a visible", "b delayed 50s", "c delayed 1m0s")
		f.set("DelaySeconds", "100")
		f.wantStates("a visible", "b delayed 1m30s", "c delayed 1m40s")
		f.set("DelaySeconds", "5")
		f.wantStates("a visible", "b visible", "c delayed 5s")
		time.Sleep(5 * time.Second)
		f.wantReceive("a", "b", "c")
	})
}

// F11.
func TestNewDelayOfAStandardQueueIsForNewMessages(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard("DelaySeconds", "60")
		f.send("a")
		f.set("DelaySeconds", "5")
		f.send("b")
		f.wantStates("a delayed 1m0s", "b delayed 5s")
	})
}

// F9.
func TestDuplicateIsAcceptedAndDropped(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		first := f.sendDedup("g", "id", "a")
		f.must(f.delete(f.receiveOne()))
		time.Sleep(5*time.Minute - time.Nanosecond)
		second := f.sendDedup("h", "id", "b") // another group, another body, after the delete
		if *first.MessageId != *second.MessageId || *first.SequenceNumber != *second.SequenceNumber {
			t.Errorf("duplicate is %s, want %s", *second.MessageId, *first.MessageId)
		}
		f.wantStates()
		time.Sleep(time.Nanosecond)
		f.sendDedup("g", "id", "c")
		f.wantStates("c visible")
	})
}

// F9: the hash is of the body alone.
func TestContentBasedDeduplication(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		f.sendTo("g", "a", "a")
		f.sendTo("h", "a")
		m := f.receiveOne()
		if got := m.Attributes["MessageDeduplicationId"]; got != "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb" {
			t.Errorf("deduplication id %s", got)
		}
	})
}

// F9.
func TestDeduplicationPerMessageGroup(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo("DeduplicationScope", "messageGroup")
		f.sendDedup("g", "id", "a")
		f.sendDedup("g", "id", "b")
		f.sendDedup("h", "id", "c")
		f.wantReceive("a", "c")
	})
}

// F9.
func TestPurgeForgetsDeduplication(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		f.sendTo("g", "a")
		_, err := f.client.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: &f.url})
		f.must(err)
		f.sendTo("g", "a")
		f.wantReceive("a")
	})
}

// M1.
func TestSequenceNumbersIncrease(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		sent := f.sendDedup("g", "1", "a")
		f.sendDedup("g", "2", "b")
		m := f.receive()
		first, second := m[0].Attributes["SequenceNumber"], m[1].Attributes["SequenceNumber"]
		if len(first) != 20 || first >= second || first != *sent.SequenceNumber {
			t.Errorf("sequence numbers %s and %s", first, second)
		}
	})
}

// F10.
func TestSendErrorsOfAFIFOQueue(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.url = f.create("q.fifo", "FifoQueue", "true")
		group, bad, long := aws.String("g"), aws.String("a b"), aws.String("")
		for _, c := range []struct {
			in            sqs.SendMessageInput
			code, message string
		}{
			{sqs.SendMessageInput{MessageDeduplicationId: group}, "MissingParameter", "The request must contain the parameter MessageGroupId."},
			{sqs.SendMessageInput{MessageGroupId: group}, "InvalidParameterValue", "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"},
			{sqs.SendMessageInput{MessageGroupId: bad, MessageDeduplicationId: group}, "InvalidParameterValue", "Value a b for parameter MessageGroupId is invalid. Reason: MessageGroupId can only include alphanumeric and punctuation characters. 1 to 128 in length."},
			{sqs.SendMessageInput{MessageGroupId: group, MessageDeduplicationId: long}, "InvalidParameterValue", "Value  for parameter MessageDeduplicationId is invalid. Reason: MessageDeduplicationId can only include alphanumeric and punctuation characters. 1 to 128 in length."},
			{sqs.SendMessageInput{MessageGroupId: group, MessageDeduplicationId: group, DelaySeconds: 2}, "InvalidParameterValue", "Value 2 for parameter DelaySeconds is invalid. Reason: The request include parameter that is not valid for this queue type."},
		} {
			c.in.QueueUrl, c.in.MessageBody = &f.url, aws.String("x")
			_, err := f.client.SendMessage(t.Context(), &c.in)
			f.wantError(err, c.code, c.message)
		}
		for _, c := range []struct {
			entry   types.SendMessageBatchRequestEntry
			message string
		}{
			{types.SendMessageBatchRequestEntry{MessageDeduplicationId: group}, "The request must contain the parameter MessageGroupId."},
			{types.SendMessageBatchRequestEntry{MessageGroupId: group}, "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"},
		} {
			c.entry.Id, c.entry.MessageBody = aws.String("0"), aws.String("x")
			_, err := f.client.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{QueueUrl: &f.url, Entries: []types.SendMessageBatchRequestEntry{c.entry}})
			f.wantError(err, "InvalidParameterValue", c.message)
		}
		f.wantStates()
	})
}

const notRetryable = "Value 1 for parameter ReceiveRequestAttemptId is invalid. Reason: " +
	"The receiveRequestAttemptId is not valid anymore since the receive call is not retryable."

// R12.
func TestRetriedReceiveGetsTheSameMessagesAndHandles(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		f.sendTo("g", "a", "b")
		first := f.receive(attempt("1"), atMost(1))
		time.Sleep(10 * time.Second)
		second := f.receive(attempt("1"))
		if len(second) != 1 || *first[0].ReceiptHandle != *second[0].ReceiptHandle || count(second[0]) != 1 {
			t.Errorf("second receive got %q with other handles or counts", bodies(second))
		}
		f.wantStates("a in flight 30s", "b visible") // hidden anew
		f.must(f.delete(first[0]))
	})
}

// R12.
func TestRetriedReceiveFailsAfterAnythingWasDoneWithItsMessages(t *testing.T) {
	for name, do := range map[string]func(f *fixture, m []types.Message){
		"delete": func(f *fixture, m []types.Message) { f.must(f.delete(m[0])) },
		"change": func(f *fixture, m []types.Message) { f.must(f.change(m[0], 30)) },
		"lapse":  func(*fixture, []types.Message) { time.Sleep(30 * time.Second) },
		"another receive": func(f *fixture, _ []types.Message) {
			time.Sleep(30 * time.Second)
			f.receive()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fixture) {
				f.fifo()
				f.sendTo("g", "a", "b")
				do(f, f.receive(attempt("1")))
				_, err := f.tryReceive(t.Context(), attempt("1"))
				f.wantError(err, "InvalidParameterValue", notRetryable)
			})
		})
	}
}

// R12, V5: the 12 hours count from the first receive.
func TestRetriedReceiveHidesUntilItsHandleExpires(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		f.sendTo("g", "a")
		f.receiveOne(attempt("1"), visibility(43200))
		time.Sleep(4 * time.Minute)
		m := f.receiveOne(attempt("1"), visibility(43200))
		f.wantStates("a in flight 11h56m0s")
		time.Sleep(11*time.Hour + 56*time.Minute - time.Nanosecond)
		f.must(f.delete(m))
	})
}

// R12.
func TestReceiveAttemptIsForgottenAfterFiveMinutes(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		f.sendTo("g", "a")
		f.receiveOne(attempt("1"), visibility(400))
		f.sendTo("h", "b")
		time.Sleep(5 * time.Minute)
		if m := f.receiveOne(attempt("1")); *m.Body != "b" {
			t.Errorf("received %s, want b", *m.Body)
		}
	})
}

// An attempt that brought nothing can be repeated until it does.
func TestEmptyReceiveAttemptIsNotRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		f.receive(attempt("1"))
		f.sendTo("g", "a")
		f.receiveOne(attempt("1"))
	})
}

// R12, U7.
func TestReceiveAttemptOnAStandardQueue(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		_, err := f.tryReceive(t.Context(), attempt("1"))
		var e smithy.APIError
		if !errors.As(err, &e) || e.ErrorCode() != "InvalidParameterValue" {
			t.Errorf("error %v", err)
		}
	})
}

// R12: what the SDK's retries are for.
func TestSDKRetryOfALostReceiveGetsTheSameMessages(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		f.sendTo("g", "a")
		f.client = f.Client()
		f.loseFirst("ReceiveMessage")
		if m := f.receiveOne(attempt("1")); count(m) != 1 {
			t.Errorf("receive count %d, want 1", count(m))
		}
	})
}

// F11: a new delay moves what is delayed, and nothing that has been received.
func TestNewDelayLeavesReceivedMessages(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo("DelaySeconds", "5")
		f.sendTo("g", "a")
		time.Sleep(5 * time.Second)
		f.receiveOne(visibility(30))
		f.sendTo("h", "b")
		f.set("DelaySeconds", "60")
		f.wantStates("a in flight 30s", "b delayed 1m0s")
	})
}

// F10: the queue's delay applies, to each message from its own sending.
func TestDelayOfAFIFOQueue(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo("DelaySeconds", "10")
		f.sendTo("g", "a")
		time.Sleep(5 * time.Second)
		f.sendTo("g", "b")
		f.wantReceive()
		time.Sleep(5 * time.Second)
		m := f.wantReceive("a")
		f.wantStates("a in flight 30s", "b delayed 5s")
		f.must(f.delete(m[0]))
		f.wantReceive()
		time.Sleep(5 * time.Second)
		f.wantReceive("b")
	})
}
