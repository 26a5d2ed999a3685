package sqstest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub/sqstest"
)

func TestReceivedMessageIsHiddenUntilItsTimeoutLapses(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard("VisibilityTimeout", "40")
		f.send("a")
		f.receiveOne()
		f.wantStates("a in flight 40s")
		time.Sleep(40*time.Second - time.Nanosecond)
		f.wantReceive()
		time.Sleep(time.Nanosecond)
		if m := f.receiveOne(); count(m) != 2 {
			t.Errorf("receive count %d, want 2", count(m))
		}
	})
}

// V3: the new timeout replaces the old one, and the next receive knows nothing of it.
func TestChangeReplacesTheTimeoutOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		m := f.receiveOne()
		time.Sleep(20 * time.Second)
		f.must(f.change(m, 5))
		f.wantStates("a in flight 5s")
		time.Sleep(5 * time.Second)
		f.receiveOne()
		f.wantStates("a in flight 30s")
	})
}

// V4, M2.
func TestReleaseMakesVisibleAndKeepsTheCount(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a", "b")
		m := f.receive()
		f.must(f.change(m[0], 0))
		f.wantStates("a visible", "b in flight 30s")
		if m := f.receiveOne(); count(m) != 2 {
			t.Errorf("receive count %d, want 2", count(m))
		}
	})
}

// V14, V15: one handle, extended again and again.
func TestHandleStaysGoodThroughExtensions(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard("VisibilityTimeout", "2")
		f.send("a")
		m := f.receiveOne()
		for range 100 {
			time.Sleep(time.Second)
			f.must(f.change(m, 2))
		}
		f.must(f.delete(m))
		f.wantStates()
	})
}

// V5, V6, R18: the 12 hours count from the arrival of the receive, and what goes beyond is refused.
func TestExtensionBeyondTwelveHoursIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard("DelaySeconds", "10")
		f.send("a")
		m := f.receiveOne(wait(20)) // it takes 10 s of the 12 hours
		f.wantError(f.change(m, 43191), "InvalidParameterValue", "Value 43191 for parameter VisibilityTimeout is invalid. "+
			"Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds]")
		f.wantStates("a in flight 30s")
		f.must(f.change(m, 43190))
		f.wantStates(fmt.Sprintf("a in flight %v", 43190*time.Second))
	})
}

// V5, R18: not beyond the 12 hours, even if the poll has waited.
func TestReceiveHidesUntilItsHandleExpires(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard("DelaySeconds", "10")
		f.send("a")
		m := f.receiveOne(wait(20), visibility(43200))
		f.wantStates(fmt.Sprintf("a in flight %v", 43190*time.Second))
		time.Sleep(43190*time.Second - time.Nanosecond)
		f.must(f.change(m, 0))
	})
}

// The example of the package's documentation.
func TestExtendUntilRefused(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		m := f.receiveOne(visibility(120))
		start := time.Now()
		for {
			time.Sleep(time.Minute)
			if f.change(m, 120) != nil {
				break
			}
		}
		f.wantElapsed(start, 11*time.Hour+59*time.Minute)
	})
}

func TestNewReceiveHasTwelveHoursAgain(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		m := f.receiveOne()
		time.Sleep(time.Second)
		f.must(f.change(m, 43199))
		time.Sleep(43199 * time.Second)
		m = f.receiveOne()
		f.must(f.change(m, 43200))
	})
}

// V8, D5.
func TestHandleExpiresAfterTwelveHours(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		m := f.receiveOne()
		time.Sleep(12 * time.Hour)
		text := "Value " + *m.ReceiptHandle + " for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
		f.wantError(f.change(m, 30), "InvalidParameterValue", text)
		f.wantError(f.delete(m), "InvalidParameterValue", text)
		f.wantStates("a visible")
	})
}

// V8: on a standard queue any handle of the message acts on it.
func TestOldHandleOfStandardQueueActsOnTheNewDelivery(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		old := f.receiveOne(visibility(1))
		time.Sleep(time.Second)
		f.receiveOne()
		f.must(f.change(old, 100))
		f.wantStates("a in flight 1m40s")
		f.must(f.change(old, 0))
		f.wantStates("a visible")
		f.receiveOne()
		f.must(f.delete(old))
		f.wantStates()
	})
}

// V8, U1.
func TestChangeAfterTheLapseOfAStandardMessageDoesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		m := f.receiveOne(visibility(1))
		time.Sleep(time.Second)
		f.must(f.change(m, 100))
		f.wantStates("a visible")
	})
}

// D2.
func TestDeleteAfterTheLapseOfAStandardMessageDeletes(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		m := f.receiveOne(visibility(1))
		time.Sleep(time.Second)
		f.must(f.delete(m))
		f.wantStates()
	})
}

// V8, D1.
func TestDeletedMessageCanBeDeletedButNotChanged(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		m := f.receiveOne()
		f.must(f.delete(m))
		f.must(f.delete(m))
		f.wantError(f.change(m, 1), "InvalidParameterValue", "Value "+*m.ReceiptHandle+" for parameter ReceiptHandle is invalid. "+
			"Reason: Message does not exist or is not available for visibility timeout change.")
	})
}

// V8, D7.
func TestForeignHandleIsInvalid(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.url = f.create("other")
		f.send("a")
		foreign := f.receiveOne()
		f.standard()
		garbage := types.Message{ReceiptHandle: aws.String("garbage")}
		text := `The input receipt handle "garbage" is not a valid receipt handle.`
		f.wantError(f.delete(garbage), "ReceiptHandleIsInvalid", text)
		f.wantError(f.change(garbage, 1), "ReceiptHandleIsInvalid", text)
		text = `The receipt handle "` + *foreign.ReceiptHandle + `" is not valid for this queue.`
		f.wantError(f.delete(foreign), "ReceiptHandleIsInvalid", text)
		f.wantError(f.change(foreign, 1), "ReceiptHandleIsInvalid", text)

		there := &fixture{T: t, Server: sqstest.NewServer()}
		there.client = there.Client()
		there.standard()
		there.send("a")
		elsewhere := there.receiveOne()
		f.wantError(f.delete(elsewhere), "ReceiptHandleIsInvalid",
			`The input receipt handle "`+*elsewhere.ReceiptHandle+`" is not a valid receipt handle.`)
	})
}

// M3.
func TestHandlesLookLikeThoseOfSQSAndAreNew(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		first, second := f.receiveOne(visibility(1)), types.Message{}
		time.Sleep(time.Second)
		second = f.receiveOne()
		if *first.ReceiptHandle == *second.ReceiptHandle || !strings.HasPrefix(*first.ReceiptHandle, "AQEB") {
			t.Errorf("handles %s and %s", *first.ReceiptHandle, *second.ReceiptHandle)
		}
		if *first.MessageId != *second.MessageId {
			t.Errorf("message ids %s and %s differ", *first.MessageId, *second.MessageId)
		}
	})
}

// R2, V7.
func TestValuesOutOfRange(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		_, err := f.tryReceive(f.Context(), atMost(11))
		f.wantError(err, "InvalidParameterValue", "Value 11 for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.")
		_, err = f.tryReceive(f.Context(), wait(21))
		f.wantError(err, "InvalidParameterValue", "Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.")
		_, err = f.tryReceive(f.Context(), wait(-1))
		f.wantError(err, "InvalidParameterValue", "Value -1 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.")
		_, err = f.tryReceive(f.Context(), visibility(43201))
		f.wantError(err, "InvalidParameterValue", "Value 43201 for parameter VisibilityTimeout is invalid. Reason: Must be >= 0 and <= 43200, if provided.")
		f.send("a")
		f.wantError(f.change(f.receiveOne(), 43201), "InvalidParameterValue", "Value 43201 for parameter VisibilityTimeout is invalid. Reason: Must be >= 0 and <= 43200, if provided.")
	})
}

// R11: the queue's timeout can be 0, though the SDK cannot ask for it (R3).
func TestTimeoutOfZeroDeliversAndDoesNotHide(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard("VisibilityTimeout", "0")
		f.send("a")
		for i := range 3 {
			if m := f.receiveOne(); count(m) != i+1 {
				t.Errorf("receive count %d, want %d", count(m), i+1)
			}
			f.wantStates("a visible")
		}
	})
}

func TestReceiveReturnsNoMoreThanAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a", "b", "c")
		if got := len(f.receive(atMost(2))); got != 2 {
			t.Errorf("received %d, want 2", got)
		}
		f.receiveOne(atMost(0)) // the SDK leaves the 0 out: it means one
	})
}

// M10, D6.
func TestRetentionEndsMessagesInFlightToo(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard("MessageRetentionPeriod", "60")
		f.send("a")
		time.Sleep(50 * time.Second)
		f.send("b")
		m := f.receive()
		time.Sleep(10*time.Second - time.Nanosecond)
		f.wantStates("a in flight 20.000000001s", "b in flight 20.000000001s")
		time.Sleep(time.Nanosecond)
		f.wantStates("b in flight 20s")
		f.must(f.delete(m[0]))
		time.Sleep(20 * time.Second)
		f.wantReceive("b")
	})
}

func TestDelayHidesUntilItIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard("DelaySeconds", "10")
		f.send("queue's")
		_, err := f.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String("own"), DelaySeconds: 5})
		f.must(err)
		f.wantStates("queue's delayed 10s", "own delayed 5s")
		time.Sleep(5 * time.Second)
		f.wantReceive("own")
		time.Sleep(5 * time.Second)
		f.wantReceive("queue's")
	})
}

// R14.
func TestInFlightLimitOfAStandardQueue(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.InFlightLimit = 2
		f.standard()
		f.send("a", "b", "c")
		m := f.wantReceive("a", "b")
		_, err := f.tryReceive(t.Context())
		f.wantError(err, "OverLimit", "Too many messages have been received without being deleted. "+
			"Please delete your received messages or let them timeout before receiving more.")
		start := time.Now()
		if m := f.receive(wait(5)); m != nil {
			t.Errorf("received %q beyond the limit", bodies(m))
		}
		f.wantElapsed(start, 5*time.Second)
		f.must(f.delete(m[0]))
		f.wantReceive("c")
	})
}

// F14: a group on a standard queue orders and locks nothing.
func TestGroupOfAStandardQueueLocksNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.sendTo("g", "a", "b")
		if m := f.receiveOne(atMost(1)); m.Attributes["MessageGroupId"] != "g" || m.Attributes["SequenceNumber"] != "" {
			t.Errorf("attributes %v", m.Attributes)
		}
		f.wantReceive("b")
	})
}

// Q3.
func TestAttributeLagDelaysSettings(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.AttributeLag = time.Minute
		f.standard()
		f.send("a")
		f.receiveOne(visibility(3600)) // something that happens later must not hold the settings up
		f.set("VisibilityTimeout", "100")
		f.set("DelaySeconds", "1")
		time.Sleep(time.Minute - time.Nanosecond)
		if got := f.attribute("VisibilityTimeout"); got != "30" {
			t.Errorf("VisibilityTimeout %s, want still 30", got)
		}
		time.Sleep(time.Nanosecond)
		if v, d := f.attribute("VisibilityTimeout"), f.attribute("DelaySeconds"); v != "100" || d != "1" {
			t.Errorf("VisibilityTimeout %s, DelaySeconds %s, want 100 and 1", v, d)
		}
	})
}
