package sqstest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/sqsub/sqsub/sqstest"
)

// inject gives the calls of one operation a fault.
func (f *fixture) inject(op string, fault sqstest.Fault) {
	f.Inject(func(c sqstest.Call) sqstest.Fault {
		if c.Op != op {
			return sqstest.Fault{}
		}
		return fault
	})
}

// loseFirst loses the answer to the first call of an operation.
func (f *fixture) loseFirst(op string) {
	var calls atomic.Int32
	f.Inject(func(c sqstest.Call) sqstest.Fault {
		return sqstest.Fault{Reset: c.Op == op && calls.Add(1) == 1, After: true}
	})
}

func (f *fixture) lastCall() sqstest.Call {
	calls := f.Calls()
	return calls[len(calls)-1]
}

func TestFaultDelayComesBeforeTheEffectAndLagAfter(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		f.inject("ReceiveMessage", sqstest.Fault{Delay: 3 * time.Second, Lag: 4 * time.Second})
		start := time.Now()
		f.receiveOne()
		f.wantElapsed(start, 7*time.Second)
		f.wantStates("a in flight 26s")
		if c := f.lastCall(); c.At != start || c.Done.Sub(c.At) != 7*time.Second {
			t.Errorf("call from %v to %v", c.At, c.Done)
		}
	})
}

func TestFaultResetInsteadOfTheEffect(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		f.inject("ReceiveMessage", sqstest.Fault{Reset: true})
		_, err := f.tryReceive(t.Context())
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("error %v, want a reset connection", err)
		}
		f.wantStates("a visible")
		if c := f.lastCall(); c.Status != 0 || c.Done.IsZero() {
			t.Errorf("call %+v", c)
		}
	})
}

func TestFaultRefuse(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		for _, after := range []bool{false, true} {
			f.inject("ReceiveMessage", sqstest.Fault{Refuse: true, After: after})
			_, err := f.tryReceive(t.Context())
			var op *net.OpError
			if !errors.As(err, &op) || op.Op != "dial" {
				t.Errorf("error %v, want a refused connection", err)
			}
			f.wantStates("a visible")
			if c := f.lastCall(); c.Status != 0 || c.Done.IsZero() {
				t.Errorf("call %+v", c)
			}
		}
	})
}

func TestFaultResetAfterTheEffect(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		f.inject("ReceiveMessage", sqstest.Fault{Reset: true, After: true})
		if _, err := f.tryReceive(t.Context()); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("error %v, want a reset connection", err)
		}
		f.wantStates("a in flight 30s")
	})
}

// S9: the SDK retries it; what the first try received is hidden from the second (S11).
func TestResetIsRetriedByTheSDK(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		f.client = f.Client()
		f.loseFirst("ReceiveMessage")
		f.wantReceive()
		if got := len(f.Calls()); got != 4 {
			t.Errorf("%d calls, want 4", got)
		}
	})
}

func TestFaultHangLastsUntilTheClientGivesUp(t *testing.T) {
	for _, after := range []bool{false, true} {
		bubble(t, func(t *testing.T, f *fixture) {
			f.standard()
			f.send("a")
			m := f.receiveOne()
			f.inject("DeleteMessage", sqstest.Fault{Hang: true, After: after})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			start := time.Now()
			_, err := f.client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &f.url, ReceiptHandle: m.ReceiptHandle})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
			f.wantElapsed(start, time.Hour)
			if left := len(f.Messages("q")); left == 0 != after {
				t.Errorf("After %v left %d messages", after, left)
			}
		})
	}
}

// S8: half an answer is no answer, and not retried.
func TestFaultTruncate(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		f.client = f.Client()
		f.inject("ReceiveMessage", sqstest.Fault{Truncate: true, After: true})
		_, err := f.tryReceive(t.Context())
		var broken *smithy.DeserializationError
		if !errors.As(err, &broken) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("error %v", err)
		}
		f.wantStates("a in flight 30s")
		if c := f.lastCall(); c.Status != 200 || len(c.Entries) != 1 {
			t.Errorf("call %+v", c)
		}
	})
}

// W4, W5: type, code, status and fault follow from the query code.
func TestFaultCodeBringsTheWholeError(t *testing.T) {
	for _, c := range []struct {
		fault  sqstest.Fault
		typed  any
		status int
		blame  smithy.ErrorFault
	}{
		{sqstest.Fault{Code: "RequestThrottled"}, new(*types.RequestThrottled), 403, smithy.FaultClient},
		{sqstest.Fault{Code: "OverLimit"}, new(*types.OverLimit), 403, smithy.FaultClient},
		{sqstest.Fault{Code: "AWS.SimpleQueueService.MessageNotInflight"}, new(*types.MessageNotInflight), 400, smithy.FaultClient},
		{sqstest.Fault{Code: "KMS.ThrottlingException"}, new(*types.KmsThrottled), 400, smithy.FaultClient},
		{sqstest.Fault{Code: "AccessDenied"}, new(*smithy.GenericAPIError), 403, smithy.FaultClient},
		{sqstest.Fault{Code: "ServiceUnavailable"}, new(*smithy.GenericAPIError), 503, smithy.FaultServer},
		{sqstest.Fault{Code: "NeverHeardOf"}, new(*smithy.GenericAPIError), 400, smithy.FaultClient},
		{sqstest.Fault{Code: "NeverHeardOf", Status: 500}, new(*smithy.GenericAPIError), 500, smithy.FaultServer},
	} {
		bubble(t, func(t *testing.T, f *fixture) {
			f.standard()
			if c.fault.Message = "so it is"; strings.HasSuffix(c.fault.Code, "MessageNotInflight") {
				c.fault.Message = "" // V10: the type has no message
			}
			f.inject("ReceiveMessage", c.fault)
			_, err := f.tryReceive(t.Context())
			var api smithy.APIError
			var response *awshttp.ResponseError
			if !errors.As(err, c.typed) || !errors.As(err, &api) || !errors.As(err, &response) {
				t.Fatalf("error %v", err)
			}
			if api.ErrorCode() != c.fault.Code || api.ErrorMessage() != c.fault.Message || api.ErrorFault() != c.blame ||
				response.HTTPStatusCode() != c.status {
				t.Errorf("%s: error %v", c.fault.Code, err)
			}
			if call := f.lastCall(); call.Code != c.fault.Code || call.Status != c.status {
				t.Errorf("%s: call %+v", c.fault.Code, call)
			}
		})
	}
}

func TestFaultErrorAfterTheEffect(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		m := f.receiveOne()
		f.inject("DeleteMessage", sqstest.Fault{Code: "InternalError", After: true})
		if err := f.delete(m); err == nil {
			t.Error("no error")
		}
		f.wantStates()
	})
}

// What the server would have said is lost, be it good or bad.
func TestFaultErrorAfterACallThatFails(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.url = "none"
		f.inject("ReceiveMessage", sqstest.Fault{Code: "ServiceUnavailable", Message: "down", After: true})
		_, err := f.tryReceive(t.Context())
		f.wantError(err, "ServiceUnavailable", "down")
	})
}

// S16: an error without a JSON document has a status and no code. The SDK makes one up for an empty body only.
func TestFaultBareStatusAndForeignBody(t *testing.T) {
	for body, code := range map[string]string{"": "UnknownError", "<html>down</html>": ""} {
		bubble(t, func(t *testing.T, f *fixture) {
			f.standard()
			f.inject("ReceiveMessage", sqstest.Fault{Status: 503, Body: body})
			_, err := f.tryReceive(t.Context())
			var response *awshttp.ResponseError
			if !errors.As(err, &response) || response.HTTPStatusCode() != 503 {
				t.Errorf("error %v", err)
			}
			var api smithy.APIError
			if errors.As(err, &api) != (code != "") || code != "" && api.ErrorCode() != code {
				t.Errorf("body %q: error %v", body, err)
			}
		})
	}
}

// B4.
func TestFaultFailEntries(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a", "b", "c")
		m := f.receive()
		f.inject("DeleteMessageBatch", sqstest.Fault{FailEntries: []int{0, 2}})
		out := f.deleteBatch(m...)
		if len(out.Successful) != 1 || *out.Successful[0].Id != "1" || len(out.Failed) != 2 ||
			*out.Failed[0].Code != "InternalError" || out.Failed[0].SenderFault || out.Failed[0].Message != nil {
			t.Errorf("%+v", out)
		}
		f.wantStates("a in flight 30s", "c in flight 30s")
		if e := f.lastCall().Entries; e[0].Code != "InternalError" || e[1].Code != "" {
			t.Errorf("entries %+v", e)
		}
	})
}

// S13.
func TestFaultBadMD5(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		f.inject("ReceiveMessage", sqstest.Fault{BadMD5: true})
		if _, err := f.tryReceive(t.Context()); err == nil || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("error %v", err)
		}
		f.wantStates("a in flight 30s")
	})
}

// R10.
func TestFaultDuplicate(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a", "b")
		f.inject("ReceiveMessage", sqstest.Fault{Duplicate: true})
		m := f.receive(atMost(3))
		if got := bodies(m); !equal(got, []string{"a", "a"}) || *m[0].ReceiptHandle == *m[1].ReceiptHandle || count(m[1]) != 2 {
			t.Errorf("received %q", got)
		}
		f.must(f.delete(m[0]))
		f.wantStates("b visible")
	})
}

// R7.
func TestFaultEmptyAnswersAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		f.inject("ReceiveMessage", sqstest.Fault{Empty: true})
		start := time.Now()
		if m := f.receive(wait(20)); m != nil {
			t.Errorf("received %q", bodies(m))
		}
		f.wantElapsed(start, 0)
		f.wantStates("a visible")
		f.Inject(nil)
		f.wantReceive("a")
	})
}

// The function may use the server, and sees what the call asks for.
func TestInjectSeesTheCallAndHoldsNoLock(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		m := f.receiveOne()
		var seen sqstest.Call
		f.Inject(func(c sqstest.Call) sqstest.Fault {
			seen = c
			if c.Op == "ChangeMessageVisibility" {
				f.wantStates("a in flight 30s") // not changed yet
			}
			return sqstest.Fault{}
		})
		f.must(f.change(m, 50))
		want := sqstest.Entry{MessageID: *m.MessageId, ReceiptHandle: *m.ReceiptHandle, Visibility: 50}
		if seen.Op != "ChangeMessageVisibility" || seen.Queue != "q" || !seen.Done.IsZero() || len(seen.Entries) != 1 || seen.Entries[0] != want {
			t.Errorf("saw %+v", seen)
		}
		f.receive(wait(2), atMost(3), visibility(4))
		if seen.MaxMessages != 3 || seen.WaitSeconds != 2 || seen.Visibility != 4 {
			t.Errorf("saw %+v", seen)
		}
		_, err := f.client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &f.url})
		f.must(err)
		if seen.MaxMessages != 0 || seen.WaitSeconds != 0 || seen.Visibility != -1 {
			t.Errorf("saw %+v", seen)
		}
	})
}

func TestCallsAreACopy(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		f.lastCall().Entries[0].MessageID = "changed"
		if f.lastCall().Entries[0].MessageID == "changed" {
			t.Error("the log was changed through a copy")
		}
	})
}

// A handle tells its message when the message is long gone.
func TestCallOfADeletedMessageNamesIt(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		m := f.receiveOne()
		f.must(f.delete(m))
		f.must(f.delete(m))
		if e := f.lastCall().Entries[0]; e.MessageID != *m.MessageId {
			t.Errorf("entry %+v, want message %s", e, *m.MessageId)
		}
	})
}

func TestCancelledContextNeverReachesTheServer(t *testing.T) {
	s := sqstest.NewServer()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", "https://sqs.us-east-1.amazonaws.com/", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client().Options().HTTPClient.Do(r); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if got := len(s.Calls()); got != 0 {
		t.Errorf("%d calls, want none", got)
	}
}
