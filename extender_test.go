package sqsub_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// extended lists when, after the start, extensions were granted.
func (f *fixture) extended() []time.Duration {
	var at []time.Duration
	for _, e := range f.changes() {
		if e.code == "" {
			at = append(at, e.at)
		}
	}
	return at
}

func (f *fixture) wantExtended(seconds ...int) {
	f.Helper()
	var want []time.Duration
	for _, s := range seconds {
		want = append(want, time.Duration(s)*time.Second)
	}
	if got := f.extended(); !slices.Equal(got, want) {
		f.Errorf("extensions at %v, want %v", got, want)
	}
}

// undisturbed checks that there was one run, that its context never ended, and
// that its message was deleted.
func (f *fixture) undisturbed() {
	f.Helper()
	if r := f.onlyRun(); r.count != 1 || r.cause != nil {
		f.Errorf("run %+v, want one of the first receive whose context does not end", r)
	}
	if got := f.Foreign(); len(got) > 0 {
		f.Errorf("rivals received %d messages", len(got))
	}
	if r := f.onlyResult(); r.Outcome != sqsub.Deleted || r.Late || r.Err != nil {
		f.Errorf("result %+v, want deleted", r)
	}
	f.wantHeld()
}

// during is a fault for the calls of one operation that arrive between two times.
func (f *fixture) during(op string, from, to time.Duration, fault sqstest.Fault) func(sqstest.Call) sqstest.Fault {
	return func(c sqstest.Call) sqstest.Fault {
		if at := c.At.Sub(f.start); strings.TrimSuffix(c.Op, "Batch") != op || at < from || at >= to {
			return sqstest.Fault{}
		}
		return fault
	}
}

// The failures that a call can have and that pass.
var passing = map[string]sqstest.Fault{
	"500":               {Status: 500},
	"503 with XML":      {Status: 503, Body: "<ServiceUnavailableException/>"},
	"429":               {Status: 429},
	"throttle":          {Code: "RequestThrottled"},
	"FIFO throttle":     {Code: "ThrottlingException"},
	"KMS throttle":      {Code: "KMS.ThrottlingException"},
	"expired token":     {Code: "ExpiredToken", Status: 403},
	"hung":              {Hang: true},
	"hung after effect": {Hang: true, After: true},
	"reset":             {Reset: true},
	"cut off":           {Truncate: true, After: true}, // the SDK reads no answer of a change
	"denied":            {Code: "AccessDenied", Status: 403},
}

// B008: one execution, and another consumer gets nothing meanwhile.
func TestSlowHandlerIsNotRaced(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(works(5*time.Second-1), sqsub.WithVisibility(2*time.Second)) // ends just before an extension is due
		f.wait(0)
		f.rivals(2)
		f.wait(20 * time.Second)
		f.stop(sub)
		f.undisturbed()
		f.wantExtended(1, 2, 3, 4)
		for _, e := range f.changes() {
			if e.visibility != 2*time.Second {
				f.Errorf("%v, want 2s", e)
			}
		}
		if st := sub.Stats(); st.Extended != 4 || st.Deleted != 1 || st.ExtendFailures != 0 {
			f.Errorf("stats %+v", st)
		}
	})
}

func TestHandlerOfAlmostTwelveHours(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(works(11*time.Hour+59*time.Minute), sqsub.WithConcurrency(1))
		f.wait(11 * time.Hour)
		f.rivals(1)
		f.wait(12*time.Hour + time.Minute)
		f.stop(sub)
		f.undisturbed()
		if n, want := len(f.changes()), 4*(11*60+59); n != want && n != want-1 { // one is due at the very end
			f.Errorf("%d extensions", n)
		}
		if loud := f.loud(); len(loud) > 0 { // B041: no silent end, and no noise
			f.Errorf("logged %q", loud)
		}
	})
}

// B027, B029
func TestHandlerBeyondTwelveHours(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		const poll = 7 * time.Second // the open receive is older than the message
		sub := f.subscribe(works(12*time.Hour+30*time.Minute), sqsub.WithConcurrency(1))
		f.wait(poll)
		f.send("m")
		f.wait(11 * time.Hour)
		f.rivals(1)
		f.wait(13 * time.Hour)
		f.stop(sub)

		r := f.onlyRun()
		if !errors.Is(r.cause, sqsub.ErrHoldLimit) || !errors.Is(r.cause, sqsub.ErrVisibilityLost) {
			f.Errorf("cause %v, want ErrHoldLimit", r.cause)
		}
		if r.ended > 12*time.Hour || r.ended < 12*time.Hour-25*time.Second {
			f.Errorf("the context ended after %v", r.ended)
		}
		if n := len(f.logged(`msg="visibility lost`)); n != 1 {
			f.Errorf("the loss is logged %d times", n)
		}
		all := f.changes()
		last := all[len(all)-1]
		if end := last.at + last.visibility; last.code != "" || last.visibility >= 30*time.Second || end > 12*time.Hour || end < 12*time.Hour-25*time.Second {
			f.Errorf("the last extension %v, want a clipped one that ends at the limit", last)
		}
		for _, e := range all {
			if e.code != "" {
				f.Errorf("refused: %v", e)
			}
		}
		if got := len(f.logged("level=WARN", "extended for the last time")); got != 1 {
			f.Errorf("the last extension is warned of %d times", got)
		}
		if n := len(f.Foreign()); n != 1 {
			f.Errorf("the message was handed on %d times, want once", n)
		}
		if d := f.deletes(); len(d) != 1 || d[0].code == "" {
			f.Errorf("late deletes %v, want one, refused", d) // D5
		}
		if got := len(f.logged("handled but not deleted")); got != 1 {
			f.Errorf("the refused delete is logged %d times", got)
		}
		if res := f.onlyResult(); res.Outcome != sqsub.Lost || res.Late {
			f.Errorf("result %+v, want lost", res)
		}
	})
}

// The context ends at the limit or a little before, never later, whatever the
// age of the receive that brought the message.
func TestHoldLimitIsNeverOverrun(t *testing.T) {
	for _, visibility := range []time.Duration{time.Hour, 7*time.Hour + time.Second, 12*time.Hour - time.Second, 12 * time.Hour} {
		t.Run(visibility.String(), func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.subscribe(works(13*time.Hour), sqsub.WithVisibility(visibility), sqsub.WithConcurrency(1))
				f.wait(19 * time.Second)
				f.send("m")
				f.wait(12*time.Hour + time.Second)
				r := f.onlyRun()
				if !errors.Is(r.cause, sqsub.ErrHoldLimit) {
					f.Errorf("cause %v", r.cause)
				}
				if r.ended > 12*time.Hour || r.ended < 12*time.Hour-25*time.Second {
					f.Errorf("the context ended after %v", r.ended)
				}
				for _, e := range f.changes() {
					if e.code != "" {
						f.Errorf("refused: %v", e)
					}
				}
				if visibility >= 12*time.Hour-5*time.Second && len(f.changes()) > 0 {
					f.Errorf("changes %v gain nothing", f.changes())
				}
				if got := len(f.logged("level=WARN")); got != 1 {
					f.Errorf("%d warnings, want one: %q", got, f.loud())
				}
			})
		})
	}
}

// A FIFO receive that is repeated with its id brings what the first one took,
// and the 12 hours count from that one (R12, R18).
func TestHoldLimitOfARepeatedReceive(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.send("m")
		f.Inject(on(receiveOp, func(n int) sqstest.Fault { return sqstest.Fault{Hang: n < 3, After: true} }))
		f.subscribe(works(13*time.Hour), sqsub.WithConcurrency(1), sqsub.WithVisibility(2*time.Hour))
		f.wait(12*time.Hour + 5*time.Minute)
		if r := f.onlyRun(); !errors.Is(r.cause, sqsub.ErrHoldLimit) || r.ended > 12*time.Hour || r.from < time.Minute {
			f.Errorf("run %+v", r)
		}
		for _, e := range f.changes() {
			if e.code != "" {
				f.Errorf("refused: %v", e)
			}
		}
	})
}

func TestMaxHold(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(works(70*time.Minute), sqsub.WithMaxHold(time.Hour), sqsub.WithConcurrency(1))
		f.wait(2 * time.Hour)
		f.stop(sub)
		if r := f.onlyRun(); !errors.Is(r.cause, sqsub.ErrHoldLimit) {
			f.Errorf("cause %v, want ErrHoldLimit", r.cause)
		}
		changes := f.changes()
		if last := changes[len(changes)-1]; last.at+last.visibility > time.Hour {
			f.Errorf("%v is beyond the limit", last)
		}
		if r := f.Results()[0]; r.Outcome != sqsub.Deleted || !r.Late {
			f.Errorf("result %+v, want a late delete", r)
		}
		if st := sub.Stats(); st.DeletedLate != 1 {
			f.Errorf("stats %+v", st)
		}
		f.wantHeld()
	})
}

// Near the limit a failed extension is tried again as anywhere else, and it is the
// failure that the handler is told of.
func TestExtensionsFailNearTheLimit(t *testing.T) {
	for _, c := range []struct{ timeout, longest time.Duration }{
		{30 * time.Second, 31500 * time.Millisecond}, {30 * time.Second, 33500 * time.Millisecond}, {30 * time.Second, 40 * time.Second},
		{3 * time.Second, 4900 * time.Millisecond}, {2 * time.Second, 3500 * time.Millisecond},
	} {
		bubble(t, "q", func(f *fixture) {
			f.send("m")
			f.Inject(always(changeOp, sqstest.Fault{Code: "InternalError", Status: 500}))
			f.subscribe(obeys(time.Hour), sqsub.WithVisibility(c.timeout), sqsub.WithMaxHold(c.longest), sqsub.WithConcurrency(1))
			f.wait(c.timeout - 10*time.Millisecond)
			if tries := f.changes(); tries[len(tries)-1].at < c.timeout*9/10 {
				f.Errorf("%v: the last try was made at %v", c, tries[len(tries)-1].at)
			}
			if cause := f.onlyRun().cause; errors.Is(cause, sqsub.ErrHoldLimit) || !strings.Contains(cause.Error(), "InternalError") {
				f.Errorf("%v: cause %v", c, cause)
			}
		})
	}
}

// V11, Q12: who is throttled, or not allowed, does not ask faster and faster.
func TestThrottledExtensionsKeepTheirPace(t *testing.T) {
	for _, code := range []string{"RequestThrottled", "ThrottlingException", "KMS.ThrottlingException", "AccessDenied"} {
		bubble(t, "q", func(f *fixture) {
			f.send("m")
			f.Inject(always(changeOp, sqstest.Fault{Code: code, Status: 400}))
			f.subscribe(obeys(time.Hour), sqsub.WithConcurrency(1))
			f.wait(30 * time.Second)
			tries := f.changes()
			if n := len(tries); n < 8 || n > 20 {
				f.Errorf("%s: %d tries", code, n)
			}
			for i, c := range tries[1:] {
				if gap := c.at - tries[i].at; gap < time.Second && c.at < 28500*time.Millisecond {
					f.Errorf("%s: tried at %v and %v later", code, tries[i].at, gap)
				}
			}
		})
	}
}

// B146, B039: what passes within the hold disturbs nobody.
func TestExtensionsFailForAWhile(t *testing.T) {
	for name, fault := range passing {
		t.Run(name, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.send("m")
				f.Inject(f.during(changeOp, 15*time.Second, 21*time.Second, fault)) // 40 % of what is left of 30 s
				sub := f.subscribe(works(70 * time.Second))
				f.wait(0)
				f.rivals(2)
				f.wait(100 * time.Second)
				f.stop(sub)
				f.undisturbed()
				// After the recovery the rhythm is resumed, from the last success on.
				granted := f.extended()
				if granted[0] < 15*time.Second || granted[0] > 26*time.Second {
					f.Errorf("first granted at %v", granted[0])
				}
				for i := range granted[1:] {
					if gap := granted[i+1] - granted[i]; !near(gap, 15*time.Second, 200*time.Millisecond) && name != "hung after effect" {
						f.Errorf("extensions at %v", granted)
					}
				}
				if n := len(f.logged("level=WARN")); n > 1 {
					f.Errorf("%d warnings, want one a state: %q", n, f.loud())
				}
				if n := len(f.logged("level=ERROR")); n > 0 {
					f.Errorf("errors logged: %q", f.loud())
				}
			})
		})
	}
}

// However it fails (B179): before another consumer can have the message, the handler
// is told, with the reason.
func TestExtensionsFailToTheEnd(t *testing.T) {
	for name, fault := range passing {
		if fault.After {
			continue // an extension that takes effect is no failure to the end
		}
		for _, visibility := range []time.Duration{time.Second, 30 * time.Second} {
			t.Run(fmt.Sprint(name, ", ", visibility), func(t *testing.T) {
				bubble(t, "q", func(f *fixture) {
					f.send("m")
					f.Inject(always(changeOp, fault))
					sub := f.subscribe(works(10*visibility), sqsub.WithVisibility(visibility), sqsub.WithConcurrency(1))
					f.wait(0)
					f.rivals(2)
					f.wait(visibility - 1)
					r := f.onlyRun()
					if !errors.Is(r.cause, sqsub.ErrVisibilityLost) || errors.Is(r.cause, sqsub.ErrHoldLimit) {
						f.Fatalf("cause %v just before the end", r.cause)
					}
					if r.ended < visibility*9/10 {
						f.Errorf("given up at %v of %v", r.ended, visibility)
					}
					var op *smithy.OperationError
					if !errors.As(r.cause, &op) {
						f.Errorf("the cause does not wrap the call's error: %v", r.cause)
					}
					if fault.Code != "" && !strings.Contains(r.cause.Error(), fault.Code) {
						f.Errorf("the cause does not tell %s: %v", fault.Code, r.cause)
					}
					tries := len(f.changes())
					if least := 2 + int(visibility/(15*time.Second)); tries < least || tries > 75 {
						f.Errorf("%d tries in %v", tries, visibility/2)
					}
					f.wait(visibility)
					if n := len(f.Foreign()); n != 1 {
						f.Errorf("rivals received %d messages, want the one that was lost", n)
					}
					f.Inject(nil)
					f.wait(11 * visibility)
					f.stop(sub)
					if n := len(f.changes()); n != tries {
						f.Errorf("%d changes after the loss", n-tries) // V9
					}
					if n := len(f.logged(`msg="visibility lost`)); n != 1 || sub.Stats().VisibilityLost != 1 {
						f.Errorf("the loss is logged %d times and counted as %d", n, sub.Stats().VisibilityLost)
					}
				})
			})
		}
	}
}

// B002: calls that take long, a sixth of the timeout here, but come back, are no reason
// to lose a message.
func TestSlowExtensions(t *testing.T) {
	for _, fault := range []sqstest.Fault{{Delay: 3 * time.Second}, {Lag: 3 * time.Second}} {
		bubble(t, "q", func(f *fixture) {
			f.send("m")
			f.Inject(always(changeOp, fault))
			sub := f.subscribe(works(100*time.Second), sqsub.WithVisibility(20*time.Second))
			f.wait(0)
			f.rivals(1)
			f.wait(2 * time.Minute)
			f.stop(sub)
			f.undisturbed()
		})
	}
}

// The rhythm counts from the sending of the last call, not from its answer.
func TestRhythmOfSlowExtensions(t *testing.T) {
	for _, fault := range []sqstest.Fault{{Delay: 2 * time.Second}, {Lag: 2 * time.Second}} {
		bubble(t, "q", func(f *fixture) {
			f.send("m")
			f.Inject(always(changeOp, fault))
			f.subscribe(works(65*time.Second), sqsub.WithVisibility(20*time.Second))
			f.wait(2 * time.Minute)
			f.wantExtended(10, 20, 30, 40, 50, 60)
			f.undisturbed()
		})
	}
}

// B012, B044: fast handlers cost no call.
func TestFastHandlersAreNotExtended(t *testing.T) {
	eachWay(t, "q", func(f *fixture) {
		sub := f.subscribe(works(29*time.Second), sqsub.WithVisibility(time.Minute), sqsub.WithConcurrency(100))
		for range 10 {
			f.send("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
			f.wait(f.now() + time.Second)
		}
		f.wait(5 * time.Minute)
		f.stop(sub)
		if n := len(f.changes()); n > 0 {
			f.Errorf("%d extensions", n)
		}
		f.wantHeld()
	})
}

// B014
func TestLongTimeoutIsExtendedRarely(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(works(7000*time.Second), sqsub.WithVisibility(time.Hour))
		f.wait(2 * time.Hour)
		f.stop(sub)
		f.wantExtended(1800, 3600, 5400)
		f.undisturbed()
	})
}

// B004
func TestShortTimeouts(t *testing.T) {
	for _, visibility := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second} {
		for _, work := range []time.Duration{0, 3 * visibility} {
			bubble(t, "q", func(f *fixture) {
				f.send("m")
				f.Inject(always(changeOp, sqstest.Fault{Lag: 30 * time.Millisecond}))
				sub := f.subscribe(works(work), sqsub.WithVisibility(visibility))
				f.wait(0)
				f.rivals(1)
				f.wait(time.Minute)
				f.stop(sub)
				f.undisturbed()
			})
		}
	}
}

// B007, B056: what waits for a handler is extended from the receive on.
func TestWaitingDeliveriesAreExtended(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		bodies := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
		f.send(bodies...)
		sub := f.subscribe(works(4*time.Second), sqsub.WithVisibility(10*time.Second), sqsub.WithConcurrency(1), sqsub.WithPrefetch(9))
		f.wait(0)
		f.rivals(1)
		f.wait(time.Second)
		if st := sub.Stats(); st.InFlight != 10 || st.Waiting != 9 {
			f.Errorf("%d in flight, %d of them waiting; want 10 and 9", st.InFlight, st.Waiting)
		}
		f.wait(time.Minute)
		f.stop(sub)
		for i, r := range f.Runs() {
			if r.count != 1 || r.body != bodies[i] || r.cause != nil {
				f.Errorf("run %+v", r)
			}
		}
		if len(f.Runs()) != 10 || len(f.Foreign()) != 0 {
			f.Errorf("%d runs, %d with rivals", len(f.Runs()), len(f.Foreign()))
		}
		f.wantHeld()
	})
}

func TestLostWhileWaitingIsNotStarted(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("a", "b")
		f.Inject(always(changeOp, sqstest.Fault{Reset: true}))
		f.subscribe(works(time.Minute), sqsub.WithVisibility(10*time.Second), sqsub.WithConcurrency(1), sqsub.WithPrefetch(1))
		f.wait(0)
		f.rivals(1)
		f.wait(2 * time.Minute)
		if r := f.onlyRun(); r.body != "a" {
			f.Errorf("run %+v", r)
		}
		if len(f.Foreign()) != 2 {
			f.Errorf("%d with rivals, want both", len(f.Foreign()))
		}
	})
}

// B016: an extension that was under way when its handler returned, and fails, is
// not tried again before the delete had its time.
func TestExtensionFailsAfterTheHandlerReturned(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.Inject(func(c sqstest.Call) sqstest.Fault {
			switch strings.TrimSuffix(c.Op, "Batch") {
			case changeOp:
				return sqstest.Fault{Delay: time.Second, Status: 500}
			case deleteOp:
				return sqstest.Fault{Delay: 4 * time.Second}
			}
			return sqstest.Fault{}
		})
		sub := f.subscribe(works(15500 * time.Millisecond))
		f.wait(2 * time.Minute)
		f.stop(sub)
		if changes := f.changes(); len(changes) != 1 {
			f.Errorf("%d extensions, want the one that was under way: %v", len(changes), changes)
		}
	})
}

// B016, B018: handlers that end when an extension is due make no noise, and no
// extension follows a delete.
func TestHandlersEndWhenAnExtensionIsDue(t *testing.T) {
	eachWay(t, "q", func(f *fixture) {
		const n = 200
		for range n / 10 {
			f.send("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
		}
		var next atomic.Int64
		f.Inject(func(sqstest.Call) sqstest.Fault {
			return sqstest.Fault{Delay: time.Duration(next.Add(1)%7) * 5 * time.Millisecond, Lag: time.Duration(next.Add(1)%5) * 5 * time.Millisecond}
		})
		sub := f.subscribe(func(ctx context.Context, d *sqsub.Delivery) error {
			time.Sleep(time.Until(d.ReceivedAt.Add(5*time.Second + time.Duration(next.Add(1)%41-20)*time.Millisecond)))
			return nil
		}, sqsub.WithVisibility(10*time.Second), sqsub.WithConcurrency(50))
		f.wait(2 * time.Minute)
		f.stop(sub)
		if loud := f.loud(); len(loud) > 0 {
			f.Errorf("logged %q", loud)
		}
		if st := sub.Stats(); st.Deleted != n || st.VisibilityLost != 0 || st.DeletedLate != 0 {
			f.Errorf("stats %+v", st)
		}
		f.wantHeld()
		deleted := map[string]time.Duration{}
		for _, e := range f.deletes() {
			deleted[e.receipt] = e.at
		}
		for _, e := range f.changes() {
			if e.at > deleted[e.receipt] {
				f.Errorf("%v follows the delete at %v", e, deleted[e.receipt])
			}
		}
	})
}

// V8, V10: every answer by which SQS says that the message is gone.
var goneAnswers = []sqstest.Fault{
	{Code: "ReceiptHandleIsInvalid", Message: `The input receipt handle "x" is not a valid receipt handle.`},
	{Code: "InvalidParameterValue", Message: "Value x for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."},
	{Code: "InvalidParameterValue", Message: "Value x for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available for visibility timeout change."},
	{Code: "AWS.SimpleQueueService.MessageNotInflight"},
}

// B022, B203
func TestGoneIsALoss(t *testing.T) {
	for _, answer := range goneAnswers {
		t.Run(answer.Code+answer.Message, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.send("m")
				f.Inject(always(changeOp, answer))
				f.subscribe(obeys(time.Hour))
				f.wait(16 * time.Second)
				r := f.onlyRun()
				if r.to != 15*time.Second || !errors.Is(r.cause, sqsub.ErrVisibilityLost) || errors.Is(r.cause, sqsub.ErrHoldLimit) {
					f.Errorf("run %+v, want it told at the first extension", r)
				}
				var api smithy.APIError
				if !errors.As(r.cause, &api) || api.ErrorCode() != answer.Code {
					f.Errorf("the cause does not wrap SQS's error: %v", r.cause) // B199
				}
				if n := len(f.changes()); n != 1 {
					f.Errorf("%d calls, want one", n)
				}
				consequence := "another consumer may get the message"
				if strings.Contains(answer.Message, "does not exist or is not available") {
					consequence = "the message has been deleted"
				}
				if n := len(f.logged("level=WARN", consequence)); n != 1 || len(f.loud()) != 1 {
					f.Errorf("logged %q, want one warning", f.loud())
				}
				f.Inject(nil)
				f.wait(40 * time.Second) // it comes back, and is handled again
				if n := len(f.Runs()); n != 2 {
					f.Errorf("%d runs", n)
				}
			})
		})
	}
}

// What SQS itself answers, alone and in a batch, when somebody else deleted the
// messages or, in a FIFO queue, has them.
func TestTakenAwayByAnother(t *testing.T) {
	for _, queue := range []string{"q", "q.fifo"} {
		for _, alone := range []bool{true, false} {
			for _, deleted := range []bool{true, false} {
				if queue == "q" && !deleted {
					continue // SQS accepts the old handle of a standard queue (V8)
				}
				t.Run(fmt.Sprintf("%s,alone=%v,deleted=%v", queue, alone, deleted), func(t *testing.T) {
					bubble(t, queue, func(f *fixture) {
						f.sendTo("a", "a")
						if !alone {
							f.sendTo("b", "b")
						}
						slots := 2
						if alone {
							slots = 1
						}
						f.subscribe(works(20*time.Second), sqsub.WithConcurrency(slots))
						f.wait(time.Second)
						f.takeAway(deleted)
						f.wait(16 * time.Second)
						for _, r := range f.Runs() {
							if !near(r.ended, 15*time.Second, 100*time.Millisecond) || !errors.Is(r.cause, sqsub.ErrVisibilityLost) {
								f.Errorf("run %+v, want it told at the next extension", r)
							}
						}
						batches := slices.DeleteFunc(f.Calls(), func(c sqstest.Call) bool { return c.Op != changeOp+"Batch" })
						if (len(batches) > 0) == alone {
							f.Errorf("%d batches", len(batches))
						}
						f.wait(2 * time.Minute)
						if n := len(f.Runs()); n != slots {
							f.Errorf("%d runs, want %d", n, slots)
						}
						if n := len(f.logged("level=WARN", "visibility lost")); n != len(f.Runs()) {
							f.Errorf("logged %q", f.loud())
						}
					})
				})
			}
		}
	}
}

// takeAway deletes all messages that are held, or receives them.
func (f *fixture) takeAway(deleted bool) {
	f.Helper()
	for _, c := range f.calls(receiveOp) {
		for _, e := range c.Entries {
			if deleted {
				f.meddle(e.ReceiptHandle, deleteOp)
			} else {
				f.meddle(e.ReceiptHandle, changeOp)
				f.receive(0)
			}
		}
	}
}

// V6: "beyond the limit" takes nothing away that was granted before.
func TestBeyondTheLimitIsNoLoss(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.Inject(f.during(changeOp, 20*time.Second, time.Hour, sqstest.Fault{
			Code:    "InvalidParameterValue",
			Message: "Value 30 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds]",
		}))
		f.subscribe(obeys(time.Hour))
		f.wait(44 * time.Second) // extended at 15 s, refused at 30 s, held until 45 s
		if r := f.onlyRun(); r.cause != nil {
			f.Fatalf("ended after %v: %v", r.to, r.cause)
		}
		f.wait(45*time.Second - 1)
		if r := f.onlyRun(); !errors.Is(r.cause, sqsub.ErrHoldLimit) {
			f.Errorf("cause %v, want ErrHoldLimit", r.cause)
		}
		if n := len(f.changes()); n != 2 {
			f.Errorf("%d calls, want no other after the refusal", n)
		}
	})
}

// B019, V13: the delay that was asked for stands, whenever the handler fails
// while an extension is travelling.
func TestExtensionTravelsWhenTheHandlerFails(t *testing.T) {
	for _, fault := range []sqstest.Fault{{Delay: 2 * time.Second}, {Lag: 2 * time.Second}, {Delay: time.Second, Hang: true, After: true}} {
		for _, failAt := range []time.Duration{15*time.Second - 1, 15*time.Second + 1, 16 * time.Second} {
			bubble(t, "q", func(f *fixture) {
				f.send("m")
				f.Inject(on(changeOp, func(n int) sqstest.Fault {
					if n == 0 && failAt >= 15*time.Second {
						return fault
					}
					return sqstest.Fault{}
				}))
				f.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
					if d.ReceiveCount() > 1 {
						return nil
					}
					time.Sleep(failAt)
					return sqsub.RetryAfter(5*time.Second, errHandler)
				})
				f.wait(29 * time.Second)
				changes := f.changes()
				last := changes[len(changes)-1]
				if last.visibility != 5*time.Second || last.code != "" {
					f.Errorf("the last change is %v, want the delay", last)
				}
				runs := f.Runs()
				if len(runs) != 2 || runs[1].from != last.at+5*time.Second {
					f.Errorf("fault %+v, failed at %v: runs %+v, want a second one 5s after %v", fault, failAt, runs, last.at)
				}
			})
		}
	}
}

// B049, Q3: a change of the queue's own timeout does not shorten a hold.
func TestQueueTimeoutIsLowered(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(works(119 * time.Second))
		f.wait(time.Second)
		f.set("VisibilityTimeout", "1")
		f.rivals(1)
		f.wait(3 * time.Minute)
		f.undisturbed()
		if got := sub.Visibility(); got != 30*time.Second {
			f.Errorf("Visibility() = %v", got)
		}
		for _, c := range f.calls(receiveOp) {
			if c.Visibility != 30 {
				f.Errorf("a receive asks for %d s", c.Visibility)
			}
		}
		f.wantExtended(15, 30, 45, 60, 75, 90, 105)
	})
}

// B009, B038: the rhythm goes on for as long as the handler, whatever it does
// or waits for: a retry of its own, say (B015), or one attempt after another (B179).
func TestExtensionsGoOn(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.subscribe(works(95 * time.Second))
		f.wait(2 * time.Minute)
		f.undisturbed()
		f.wantExtended(15, 30, 45, 60, 75, 90)
		if d := f.deletes(); len(d) != 1 || !near(d[0].at, 95*time.Second, 100*time.Millisecond) {
			f.Errorf("deletes %v", d)
		}
	})
}

// B204, V8: a success that comes after the end of the hold proves nothing, nor
// does an extension that left too late (B033).
func TestLateSuccessIsNoHold(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.through(&tardy{Client: f.client, until: f.start.Add(31 * time.Second)}, obeys(time.Hour))
		f.wait(40 * time.Second)
		if r := f.Runs()[0]; !errors.Is(r.cause, sqsub.ErrVisibilityLost) || r.ended > 31*time.Second {
			f.Errorf("run %+v, want lost", r)
		}
	})
}

// tardy is a client whose changes return late and heed no context, as after a
// suspend of the machine.
type tardy struct {
	*sqs.Client
	until time.Time
}

func (c *tardy) ChangeMessageVisibility(ctx context.Context, in *sqs.ChangeMessageVisibilityInput, opts ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	time.Sleep(time.Until(c.until))
	return c.Client.ChangeMessageVisibility(context.WithoutCancel(ctx), in, opts...)
}

func TestExtensionsTravelTogether(t *testing.T) {
	for _, c := range []struct {
		delay          time.Duration
		batches, plain int
	}{
		{100 * time.Millisecond, 2, 0},
		{0, 0, 20},
	} {
		bubble(t, "q", func(f *fixture) {
			for range 20 {
				f.send("m")
			}
			f.subscribe(works(20*time.Second), sqsub.WithConcurrency(20), sqsub.WithBatchDelay(c.delay))
			f.wait(19 * time.Second)
			batches := f.calls(changeOp + "Batch")
			if len(batches) != c.batches || len(f.calls(changeOp)) != c.plain {
				f.Errorf("batch delay %v: %d batches and %d plain calls, want %d and %d", c.delay, len(batches), len(f.calls(changeOp)), c.batches, c.plain)
			}
			for _, e := range f.changes() {
				if e.at < 15*time.Second-c.delay || e.at > 15*time.Second {
					f.Errorf("%v, want it at 15s or as much earlier as company allows", e)
				}
			}
		})
	}
}

// Two deliveries whose halves are as far apart as the batch delay travel
// together; neither waits past its half.
func TestCompanyIsSoughtBeforeTheHalf(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("a")
		f.subscribe(works(20 * time.Second))
		f.wait(90 * time.Millisecond)
		f.send("b")
		f.wait(16 * time.Second)
		if n := len(f.calls(changeOp + "Batch")); n != 1 {
			f.Errorf("%d batches, want one: %v", n, f.changes())
		}
		for _, e := range f.changes() {
			if e.at > 15*time.Second {
				f.Errorf("%v is late", e)
			}
		}
	})
}

// One entry that fails is tried again alone, and nobody notices.
func TestEntryOfABatchFails(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("a", "b", "c")
		f.Inject(on(changeOp, func(n int) sqstest.Fault {
			if n == 0 {
				return sqstest.Fault{FailEntries: []int{1}}
			}
			return sqstest.Fault{}
		}))
		sub := f.subscribe(works(20 * time.Second))
		f.wait(18 * time.Second)
		if n := len(f.changes()); n != 4 {
			f.Errorf("changes %v, want three and one more", f.changes())
		}
		f.wait(time.Minute)
		f.stop(sub)
		if st := sub.Stats(); st.Extended != 3 || st.ExtendFailures != 1 || st.Deleted != 3 || st.VisibilityLost != 0 {
			f.Errorf("stats %+v", st)
		}
		if loud := f.loud(); len(loud) > 0 { // about one entry in 16,000 does that (B4)
			f.Errorf("logged %q", loud)
		}
	})
}

// B023: the loss of one delivery is nothing to the others.
func TestOneLossAmongMany(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		bodies := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
		f.send(bodies...)
		sub := f.subscribe(works(40 * time.Second))
		f.wait(time.Second)
		first := f.calls(receiveOp)[0].Entries[3]
		f.meddle(first.ReceiptHandle, deleteOp)
		f.wait(time.Minute)
		f.stop(sub)
		for _, r := range f.Runs() {
			if lost := r.cause != nil; lost != (r.body == f.body(first.MessageID)) {
				f.Errorf("run %+v", r)
			}
		}
		if st := sub.Stats(); st.Deleted != 10 || st.DeletedLate != 1 || st.VisibilityLost != 1 {
			f.Errorf("stats %+v", st)
		}
	})
}

// M10, B187: a message that leaves by its retention is lost like any other.
func TestRetentionEndsWhileHandling(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.subscribe(obeys(time.Hour))
		f.wait(75 * time.Second)
		if r := f.onlyRun(); !errors.Is(r.cause, sqsub.ErrVisibilityLost) || r.to > 75*time.Second {
			f.Errorf("run %+v, want it told", r)
		}
	}, "MessageRetentionPeriod", "60")
}

// An unknown refusal of the request is said once and not repeated in a loop (B022).
func TestInvalidExtensionIsNotRepeated(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.Inject(always(changeOp, sqstest.Fault{Code: "InvalidParameterValue", Message: "Value 30 for parameter Whatever is invalid."}))
		f.subscribe(func(ctx context.Context, d *sqsub.Delivery) error {
			if d.ReceiveCount() > 1 {
				return works(20*time.Second)(ctx, d) // returns between the refusal and the end
			}
			return obeys(time.Hour)(ctx, d)
		})
		f.wait(30*time.Second - 1)
		if r := f.onlyRun(); !errors.Is(r.cause, sqsub.ErrVisibilityLost) || r.to < 29*time.Second {
			f.Errorf("run %+v, want it held to the end", r)
		}
		if n := len(f.changes()); n != 1 {
			f.Errorf("%d calls", n)
		}
		f.wait(time.Minute)
		f.wantHeld()
	})
}

// Slots that are free change nothing: an extension leaves with the company that it
// finds, and a failed one is tried again soon.
func TestManySlots(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.sendMany(10)
		f.Inject(func(c sqstest.Call) (fault sqstest.Fault) {
			if strings.HasPrefix(c.Op, changeOp) && c.At.Sub(f.start) <= 15*time.Second {
				fault.Code = "InternalError"
			}
			return fault
		})
		f.subscribe(works(20*time.Second), sqsub.WithConcurrency(120_000))
		f.wait(time.Minute)
		changes := f.calls(changeOp + "Batch")
		if len(changes) < 2 {
			f.Fatalf("%d changes", len(changes))
		}
		first, second := changes[0].At.Sub(f.start), changes[1].At.Sub(f.start)
		if first < 14900*time.Millisecond || first > 15*time.Second || second > first+300*time.Millisecond {
			f.Errorf("an extension left at %v, and again at %v", first, second)
		}
	})
}

// What is received at once is due at once. With much in hand extensions leave a
// little earlier, so that all of them leave in time.
func TestMuchInHand(t *testing.T) {
	const n = 1000 // 10 ms
	bubble(t, "q", func(f *fixture) {
		f.sendMany(n)
		f.subscribe(works(20*time.Second), sqsub.WithConcurrency(n), sqsub.WithBatchDelay(time.Millisecond))
		f.wait(time.Minute)
		left := f.extended()
		if len(left) != n {
			f.Fatalf("%d extensions, want %d", len(left), n)
		}
		if first, last := slices.Min(left), slices.Max(left); first != 14990*time.Millisecond || last != first {
			f.Errorf("extensions left from %v to %v, want 14.99s", first, last)
		}
	})
}

// What is in hand is asked for each extension anew.
func TestMuchComesInHand(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.sendMany(10)
		f.subscribe(works(40*time.Second), sqsub.WithConcurrency(10_000), sqsub.WithBatchDelay(time.Millisecond))
		f.wait(20 * time.Second)
		f.sendMany(990)
		f.wait(34 * time.Second)
		left := f.extended()
		if len(left) < 20 {
			f.Fatalf("%d extensions", len(left))
		}
		for i, want := range []time.Duration{14999 * time.Millisecond, 29989 * time.Millisecond} {
			if first, last := slices.Min(left[10*i:10*i+10]), slices.Max(left[10*i:10*i+10]); first != want || last != want {
				f.Errorf("extensions left from %v to %v, want %v", first, last, want)
			}
		}
		f.wait(time.Minute)
	})
}
