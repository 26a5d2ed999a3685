package sqsub_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// returns is a handler's way to end, and what has to come of it.
type returns struct {
	name    string
	handler sqsub.Handler
	outcome sqsub.Outcome
	delay   time.Duration // of a change; negative = there is none
	deletes int
	lost    sqsub.Outcome // the outcome if the visibility was lost meanwhile
}

func panics(value any) sqsub.Handler {
	return func(context.Context, *sqsub.Delivery) error { panic(value) }
}

// A badError cannot even be asked for a verdict.
type badError struct{}

func (badError) Error() string { return "bad" }
func (badError) As(any) bool   { panic("bad") }

func exits(context.Context, *sqsub.Delivery) error {
	runtime.Goexit()
	return nil
}

// The retry delay of these tests.
const plainDelay = 7 * time.Second

func plainly(*sqsub.Delivery, error) time.Duration { return plainDelay }

var verdicts = []returns{
	{"nil", fails(nil), sqsub.Deleted, -1, 1, sqsub.Deleted},
	{"an error", fails(errHandler), sqsub.Retried, plainDelay, 0, sqsub.Lost},
	{"a nil pointer for an error", fails((*fs.PathError)(nil)), sqsub.Retried, plainDelay, 0, sqsub.Lost}, // whose Unwrap panics
	{"a nil pointer for a panic", fails((*sqsub.PanicError)(nil)), sqsub.Retried, plainDelay, 0, sqsub.Lost},
	{"an error whose As panics", fails(badError{}), sqsub.Retried, plainDelay, 0, sqsub.Lost},
	{"a context's error", fails(context.Canceled), sqsub.Retried, plainDelay, 0, sqsub.Lost},
	{"ErrShutdown without a stop", fails(sqsub.ErrShutdown), sqsub.Retried, plainDelay, 0, sqsub.Lost},
	{"ErrVisibilityLost without a loss", fails(sqsub.ErrVisibilityLost), sqsub.Retried, plainDelay, 0, sqsub.Lost},
	{"RetryAfter", fails(sqsub.RetryAfter(90*time.Second, errHandler)), sqsub.Retried, 90 * time.Second, 0, sqsub.Lost},
	{"RetryAfter without a reason", fails(sqsub.RetryAfter(90*time.Second, nil)), sqsub.Retried, 90 * time.Second, 0, sqsub.Lost},
	{"RetryAfter of a fraction", fails(sqsub.RetryAfter(1200*time.Millisecond, nil)), sqsub.Retried, 2 * time.Second, 0, sqsub.Lost},
	{"RetryAfter zero", fails(sqsub.RetryAfter(0, nil)), sqsub.Retried, 0, 0, sqsub.Lost},
	{"RetryAfter less than zero", fails(sqsub.RetryAfter(-time.Hour, nil)), sqsub.Retried, 0, 0, sqsub.Lost},
	{"RetryAfter, wrapped", fails(fmt.Errorf("render: %w", sqsub.RetryAfter(3*time.Second, errHandler))), sqsub.Retried, 3 * time.Second, 0, sqsub.Lost},
	{"RetryAfter, joined", fails(errors.Join(errHandler, sqsub.RetryAfter(3*time.Second, nil))), sqsub.Retried, 3 * time.Second, 0, sqsub.Lost},
	{"Discard", fails(sqsub.Discard(errHandler)), sqsub.Discarded, -1, 1, sqsub.Discarded},
	{"Discard without a reason", fails(sqsub.Discard(nil)), sqsub.Discarded, -1, 1, sqsub.Discarded},
	{"Discard, wrapped", fails(fmt.Errorf("render: %w", sqsub.Discard(errHandler))), sqsub.Discarded, -1, 1, sqsub.Discarded},
	{"the outer verdict counts: RetryAfter", fails(sqsub.RetryAfter(3*time.Second, sqsub.Discard(errHandler))), sqsub.Retried, 3 * time.Second, 0, sqsub.Lost},
	{"the outer verdict counts: Discard", fails(sqsub.Discard(sqsub.RetryAfter(3*time.Second, errHandler))), sqsub.Discarded, -1, 1, sqsub.Discarded},
	{"a panic", panics("poison"), sqsub.Retried, plainDelay, 0, sqsub.Lost},
	{"a panic with nil", panics(nil), sqsub.Retried, plainDelay, 0, sqsub.Lost},
	{"a panic with a verdict", panics(sqsub.Discard(errHandler)), sqsub.Retried, plainDelay, 0, sqsub.Lost},
	{"a panic of the runtime", func(_ context.Context, d *sqsub.Delivery) error { _ = []int{}[d.ReceiveCount()]; return nil }, sqsub.Retried, plainDelay, 0, sqsub.Lost},
	{"Goexit", exits, sqsub.Unsettled, -1, 0, sqsub.Unsettled},
}

func TestVerdicts(t *testing.T) {
	for _, c := range verdicts {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.send("m")
				sub := f.subscribe(once(c.handler, time.Second), sqsub.WithRetryDelay(plainly), sqsub.WithConcurrency(1))
				f.wait(500 * time.Millisecond)
				f.stop(sub)
				r := f.onlyResult()
				if r.Outcome != c.outcome || r.Duration != time.Second || r.Late {
					f.Errorf("result %+v, want %s", r, c.outcome)
				}
				var delay time.Duration = -1
				for _, e := range f.changes() {
					delay = e.visibility
				}
				if delay != c.delay || len(f.changes()) > 1 || len(f.deletes()) != c.deletes {
					f.Errorf("changes %v and deletes %v, want a delay of %v and %d deletes", f.changes(), f.deletes(), c.delay, c.deletes)
				}
				if r.Delay != max(0, c.delay) {
					f.Errorf("the result says a delay of %v", r.Delay)
				}
				if held := len(f.held()); held != 1-c.deletes {
					f.Errorf("the queue holds %d messages", held)
				}
			})
		})
	}
}

// A test of a handler can ask which verdict it returned.
func TestVerdictIs(t *testing.T) {
	other := errors.New("other")
	for _, c := range []struct {
		name        string
		err, target error
		want        bool
	}{
		{"a delay", sqsub.RetryAfter(time.Minute, errHandler), sqsub.RetryAfter(time.Minute, nil), true},
		{"a delay and its reason", sqsub.RetryAfter(time.Minute, fmt.Errorf("render: %w", errHandler)), sqsub.RetryAfter(time.Minute, errHandler), true},
		{"another reason", sqsub.RetryAfter(time.Minute, errHandler), sqsub.RetryAfter(time.Minute, other), false},
		{"no reason", sqsub.RetryAfter(time.Minute, nil), sqsub.RetryAfter(time.Minute, errHandler), false},
		{"another delay", sqsub.RetryAfter(time.Minute, errHandler), sqsub.RetryAfter(time.Hour, nil), false},
		{"the delay in whole seconds", sqsub.RetryAfter(1200*time.Millisecond, nil), sqsub.RetryAfter(2*time.Second, nil), true},
		{"no delay", sqsub.RetryAfter(-time.Second, nil), sqsub.RetryAfter(0, nil), true},
		{"wrapped", fmt.Errorf("render: %w", sqsub.RetryAfter(time.Minute, nil)), sqsub.RetryAfter(time.Minute, nil), true},
		{"discarded", sqsub.Discard(errHandler), sqsub.Discard(nil), true},
		{"discarded for another reason", sqsub.Discard(errHandler), sqsub.Discard(other), false},
		{"discarded, not retried", sqsub.Discard(errHandler), sqsub.RetryAfter(0, nil), false},
		{"retried, not discarded", sqsub.RetryAfter(0, errHandler), sqsub.Discard(nil), false},
		{"the reason", sqsub.RetryAfter(time.Minute, errHandler), errHandler, true},
		{"an error", errHandler, sqsub.Discard(nil), false},
		{"nil", nil, sqsub.Discard(nil), false},
	} {
		if got := errors.Is(c.err, c.target); got != c.want {
			t.Errorf("%s: errors.Is(%q, %q) = %v", c.name, c.err, c.target, got)
		}
	}
}

// once returns a handler that calls another at the first receive only, after a while.
func once(first sqsub.Handler, after time.Duration) sqsub.Handler {
	return func(ctx context.Context, d *sqsub.Delivery) error {
		if d.ReceiveCount() > 1 {
			return nil
		}
		time.Sleep(after)
		return first(ctx, d)
	}
}

// After the visibility was lost, nothing is sent but a delete after success, and
// that is told to be late: SQS may answer with success and delete nothing (B008, B099).
func TestVerdictsAfterTheVisibilityWasLost(t *testing.T) {
	for _, c := range verdicts {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.send("m")
				f.Inject(on(changeOp, func(n int) sqstest.Fault { return sqstest.Fault{Status: 500} }))
				sub := f.subscribe(once(c.handler, 40*time.Second), sqsub.WithRetryDelay(plainly), sqsub.WithConcurrency(1))
				f.wait(30 * time.Second)
				f.rivals(1) // one of which has it now
				f.wait(35 * time.Second)
				before := len(f.entries())
				f.Inject(nil)
				f.wait(2 * time.Minute)
				f.stop(sub)
				r := f.onlyResult()
				if r.Outcome != c.lost || r.Late != (c.deletes > 0) || r.Delay != 0 {
					f.Errorf("result %+v, want %s", r, c.lost)
				}
				if n := len(f.entries()) - before; n != c.deletes {
					f.Errorf("%v were sent, want %d deletes", f.entries()[before:], c.deletes)
				}
				if n := len(f.logged(`level=WARN msg="a message was deleted after its visibility was lost`)); n != c.deletes {
					f.Errorf("%d late deletes are logged: %q", n, f.loud())
				}
				if st := sub.Stats(); int(st.DeletedLate) != c.deletes || st.VisibilityLost != 1 || st.Retried != 0 {
					f.Errorf("stats %+v", st)
				}
			})
		})
	}
}

// F6, D4: a FIFO queue refuses a late delete. B075, B096: one report, and life goes on.
func TestLateDeleteOfAFIFOQueue(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.sendTo("a", "a")
		f.sendTo("b", "b")
		f.Inject(f.during(changeOp, 0, 31*time.Second, sqstest.Fault{Reset: true}))
		slow := once(works(0), 40*time.Second)
		sub := f.subscribe(func(ctx context.Context, d *sqsub.Delivery) error {
			if d.Body() == "b" {
				return nil
			}
			return slow(ctx, d)
		}, sqsub.WithConcurrency(2))
		f.wait(39 * time.Second)
		f.sendTo("c", "c")
		f.wait(2 * time.Minute)
		f.stop(sub)
		if n := len(f.logged("level=ERROR", "not deleted")); n != 1 {
			f.Errorf("the refused delete is logged %d times: %q", n, f.loud())
		}
		if st := sub.Stats(); st.VisibilityLost != 1 {
			f.Errorf("stats %+v", st)
		}
		f.wantHeld()
	})
}

// B189: one message that panics is that message's failure, and no other's.
func TestPanicIsReported(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("poison", "a", "b", "c", "d", "e", "f", "g", "h", "i")
		sub := f.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
			if d.Body() == "poison" {
				panicHere()
			}
			time.Sleep(40 * time.Second)
			return nil
		}, sqsub.WithRetryDelay(func(d *sqsub.Delivery, err error) time.Duration {
			var p *sqsub.PanicError
			if !errors.As(err, &p) || p.Value != errHandler || !strings.Contains(string(p.Stack), "panicHere") {
				f.Errorf("the retry delay is asked for %v", err)
			}
			return time.Hour
		}))
		f.wait(time.Minute)
		f.stop(sub)
		if st := sub.Stats(); st.Deleted != 9 || st.Retried != 1 {
			f.Errorf("stats %+v", st)
		}
		if n := len(f.logged("level=ERROR", "panicHere", "the handler's error", "message=", "receive_count=1", "queue=q")); n != 1 {
			f.Errorf("the panic is logged %d times with its stack: %q", n, f.loud())
		}
		for _, r := range f.Results() {
			if panicked := errors.Is(r.Err, errHandler); panicked != (r.body == "poison") {
				f.Errorf("result %+v", r)
			}
		}
	})
}

// Nor does a handler succeed that panics with nil, where that is still allowed.
func TestPanicWithNil(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.subscribe(once(func(context.Context, *sqsub.Delivery) error { panic(nil) }, 0), retriesAfter(time.Hour))
		f.wait(time.Second)
		var p *sqsub.PanicError
		if r := f.Results()[0]; r.Outcome != sqsub.Retried || !errors.As(r.Err, &p) || !strings.Contains(string(p.Stack), "TestPanicWithNil") {
			f.Errorf("result %+v", r)
		}
	})
}

func panicHere() { panic(errHandler) }

func TestGoexitLeavesTheMessage(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.subscribe(once(exits, 20*time.Second), sqsub.WithConcurrency(1))
		f.wait(time.Minute)
		if runs := f.Runs(); len(runs) != 2 || runs[1].from != 45*time.Second {
			f.Errorf("runs %+v, want a second one when the timeout has lapsed", runs)
		}
		f.wantExtended(15)
		if n := len(f.logged("level=ERROR", "Goexit")); n != 1 {
			f.Errorf("logged %q", f.loud())
		}
	})
}

// A panic in the function of WithRetryDelay is no reason to end all consumers.
func TestRetryDelayPanics(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(once(fails(errHandler), 0), sqsub.WithRetryDelay(func(*sqsub.Delivery, error) time.Duration { panic("delay") }))
		f.wait(time.Minute)
		f.stop(sub)
		if len(f.Runs()) != 2 || len(f.logged("level=ERROR", "WithRetryDelay")) != 1 {
			f.Errorf("%d runs, logged %q", len(f.Runs()), f.loud())
		}
	})
}

// Nor is a Goexit there, which ends the goroutine that was to settle the message:
// the message is left alone, as if the handler had called it, and the stop ends.
func TestRetryDelayExits(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(once(fails(errHandler), 10*time.Second), sqsub.WithConcurrency(1), sqsub.WithRetryDelay(func(*sqsub.Delivery, error) time.Duration {
			runtime.Goexit()
			return 0
		}))
		f.wait(time.Minute) // its timeout of 30 s has lapsed, and its slot is free again
		f.stop(sub)
		results := f.Results()
		if len(results) != 2 || results[0].Outcome != sqsub.Unsettled || results[0].at != 10*time.Second || results[1].Outcome != sqsub.Deleted {
			f.Errorf("results %+v, want it unsettled at 10s, then deleted", results)
		}
		if n := len(f.logged("level=ERROR", "Goexit")); n != 1 || len(f.changes()) > 0 {
			f.Errorf("changes %v, logged %q", f.changes(), f.loud())
		}
	})
}

type contextKey struct{}

func TestHandlersContext(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		parent, cancel := context.WithCancel(context.WithValue(context.Background(), contextKey{}, "value"))
		defer cancel()
		f.wait(3 * time.Second)
		f.send("m")
		handler := func(ctx context.Context, d *sqsub.Delivery) error {
			if ctx.Value(contextKey{}) != "value" {
				f.Error("the values of Subscribe's context are missing")
			}
			if deadline, ok := ctx.Deadline(); !ok || !near(deadline.Sub(d.ReceivedAt), time.Hour, 0) {
				f.Errorf("the deadline is %v after the receive, want the hold limit", deadline.Sub(d.ReceivedAt))
			}
			derived, stop := context.WithTimeout(ctx, 2*time.Hour)
			defer stop()
			if deadline, _ := derived.Deadline(); !near(deadline.Sub(d.ReceivedAt), time.Hour, 0) {
				f.Error("a derived context does not know the deadline")
			}
			cancel()
			time.Sleep(20 * time.Second)
			if err := ctx.Err(); err != nil {
				f.Errorf("it ends with Subscribe's context: %v", err)
			}
			return nil
		}
		sub, err := sqsub.Subscribe(parent, f.client, f.url, f.recorded(handler), append(f.options(nil), sqsub.WithMaxHold(time.Hour))...)
		if err != nil {
			f.Fatal(err)
		}
		f.watch(sub)
		if err := sub.Wait(); err != nil {
			f.Error(err)
		}
		f.undisturbed() // B116: the delete survives the cancellation
	})
}

// A queue with timeout 0 hides nothing, so that no hold ends for the handler.
func TestContextOfAQueueWithTimeoutZero(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(func(ctx context.Context, _ *sqsub.Delivery) error {
			if deadline, ok := ctx.Deadline(); ok {
				f.Errorf("the deadline is %v after the start, want none", deadline.Sub(f.start))
			}
			time.Sleep(time.Second)
			return ctx.Err()
		}, sqsub.WithConcurrency(1))
		f.wait(500 * time.Millisecond)
		f.stop(sub)
		f.handledOnce(1)
	}, "VisibilityTimeout", "0")
}

// The last of a hold and the end of the handler before it fall together: what
// waits is not started any more, not even with a context that has ended.
func TestNothingIsStartedAfterItsHold(t *testing.T) {
	for range 20 {
		bubble(t, "q", func(f *fixture) {
			f.send("a", "b")
			f.Inject(always(changeOp, sqstest.Fault{Code: "InternalError"}))
			started := []string{}
			handler := works(9750 * time.Millisecond) // when SQS may hand both on, but for a guard
			sub := f.subscribe(func(ctx context.Context, d *sqsub.Delivery) error {
				started = append(started, d.Body())
				return handler(ctx, d)
			}, sqsub.WithVisibility(10*time.Second), sqsub.WithConcurrency(1), sqsub.WithPrefetch(1))
			f.wait(9800 * time.Millisecond)
			sub.Close()
			if !slices.Equal(started, []string{"a"}) {
				f.Errorf("started %v, want a alone", started)
			}
		})
	}
}

// After the handler has returned, its context is over, so that whatever it
// left behind is told (B195).
func TestContextEndsWithTheHandler(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		var left context.Context
		f.subscribe(func(ctx context.Context, _ *sqsub.Delivery) error {
			left = ctx
			return nil
		})
		f.wait(time.Second)
		if err := left.Err(); !errors.Is(err, context.Canceled) {
			f.Errorf("the context's error is %v", err)
		}
		if cause := context.Cause(left); errors.Is(cause, sqsub.ErrVisibilityLost) || errors.Is(cause, sqsub.ErrShutdown) {
			f.Errorf("the cause is %v", cause)
		}
	})
}

// A cancelled handler keeps its hold until it returns. B178: then the message
// is visible at once, for another consumer.
func TestReturnsAfterAStop(t *testing.T) {
	for _, c := range []struct {
		name    string
		err     error
		outcome sqsub.Outcome
		delay   time.Duration
	}{
		{"nil", nil, sqsub.Deleted, -1},
		{"an error", errHandler, sqsub.Released, 0},
		{"the cause", sqsub.ErrShutdown, sqsub.Released, 0},
		{"RetryAfter", sqsub.RetryAfter(3*time.Second, errHandler), sqsub.Retried, 3 * time.Second},
		{"Discard", sqsub.Discard(errHandler), sqsub.Discarded, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.send("m")
				sub := f.subscribe(func(ctx context.Context, _ *sqsub.Delivery) error {
					<-ctx.Done()
					time.Sleep(40 * time.Second)
					return c.err
				}, sqsub.WithRetryDelay(plainly), sqsub.WithConcurrency(1))
				f.wait(5 * time.Second)
				go sub.Close()
				f.wait(10 * time.Second)
				f.rivals(1)
				f.wait(44 * time.Second)
				if n := len(f.Foreign()); n > 0 {
					f.Errorf("a cancelled handler is raced")
				}
				if err := sub.Wait(); err != nil {
					f.Error(err)
				}
				if r := f.onlyRun(); r.cause != sqsub.ErrShutdown || r.ended != 5*time.Second {
					f.Errorf("run %+v, want its context to end with ErrShutdown", r)
				}
				if r := f.onlyResult(); r.Outcome != c.outcome || r.at != 45*time.Second {
					f.Errorf("result %+v, want %s at once", r, c.outcome)
				}
				f.wait(time.Minute)
				changes := f.changes()
				last := changes[len(changes)-1]
				if c.delay >= 0 && last.visibility != c.delay {
					f.Errorf("the last change is %v, want %v", last, c.delay)
				}
				if visible := len(f.Foreign()); visible != 1 && c.delay >= 0 || visible != 0 && c.delay < 0 {
					f.Errorf("rivals received %d messages", visible)
				}
			})
		})
	}
}

// B027, B028: a delay beyond the 12 hours is clipped, and that is said.
func TestDelaysAreClipped(t *testing.T) {
	for _, delay := range []time.Duration{12 * time.Hour, 24 * time.Hour, math.MaxInt64} {
		bubble(t, "q", func(f *fixture) {
			f.send("m")
			sub := f.subscribe(once(fails(sqsub.RetryAfter(delay, nil)), 10*time.Minute), sqsub.WithConcurrency(1))
			f.wait(11 * time.Minute)
			f.stop(sub)
			changes := f.changes()
			last := changes[len(changes)-1]
			if end := last.at + last.visibility; last.code != "" || end > 12*time.Hour || end < 12*time.Hour-10*time.Second {
				f.Errorf("delay %v: %v, want it clipped to the 12 hours", delay, last)
			}
			if n := len(f.logged("level=WARN", "clipped")); n != 1 {
				f.Errorf("%d warnings: %q", n, f.loud())
			}
			if r := f.Results()[0]; r.Outcome != sqsub.Retried || r.Delay != last.visibility {
				f.Errorf("result %+v", r)
			}
			if m := f.held()["m"]; m.VisibleAt.Sub(f.start) != last.at+last.visibility {
				f.Errorf("it is hidden until %v", m.VisibleAt)
			}
		})
	}
}

// WithMaxHold bounds how long a handler may take, not how long a message waits
// for its next try.
func TestMaxHoldClipsNoDelay(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.subscribe(fails(sqsub.RetryAfter(time.Hour, nil)), sqsub.WithMaxHold(time.Minute))
		f.wait(time.Second)
		if e := f.changes(); len(e) != 1 || e[0].visibility != time.Hour {
			f.Errorf("changes %v, want one hour", e)
		}
	})
}

// B132, B176: each failure hands the message back, later each time, and after
// as many receives as its queue allows it is dead.
func TestFailuresReachTheDeadLetterQueue(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.create("dead")
		f.set("RedrivePolicy", `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:123456789012:dead","maxReceiveCount":3}`)
		f.send("m")
		sub := f.subscribe(fails(errHandler))
		f.wait(5 * time.Minute)
		f.stop(sub)
		runs := f.Runs()
		if len(runs) != 3 {
			f.Fatalf("runs %+v, want three", runs)
		}
		for i, r := range runs {
			if r.count != i+1 {
				f.Errorf("run %+v, want receive %d", r, i+1)
			}
			if i > 0 && r.from-runs[i-1].to > time.Second<<i {
				f.Errorf("run %+v comes late", r)
			}
		}
		if dead := f.Messages("dead"); len(dead) != 1 || dead[0].Body != "m" {
			f.Errorf("dead letters %v", dead)
		}
		if n := len(f.deletes()); n > 0 { // B183, B184: only an explicit verdict deletes
			f.Errorf("%d deletes", n)
		}
		f.wantHeld()
	})
}

// B132, B136: messages that fail for ever cause no storm of requests, and give
// their slots back, however they fail.
func TestFailingMessagesHoldUpNobody(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		const bad, good = 100, 100
		f.sendMany(bad)
		failures := []sqsub.Handler{fails(errHandler), panics("undecodable"), exits}
		sub := f.subscribe(func(ctx context.Context, d *sqsub.Delivery) error {
			if d.Body() == "good" {
				return nil
			}
			return failures[d.Body()[0]%3](ctx, d)
		})
		f.wait(time.Minute)
		for range good {
			f.send("good")
		}
		f.wait(f.now() + 5*time.Second)
		if n := sub.Stats().Deleted; n != good {
			f.Errorf("%d good ones of %d are handled", n, good)
		}
		f.wait(10 * time.Minute)
		if n, received := len(f.calls(receiveOp)), int(sub.Stats().Received); n > received+60 { // one a message, and idle polls
			f.Errorf("%d receives of %d messages in ten minutes", n, received)
		}
		// Those that exit come back each 30 s, the others about eleven times; a retry each
		// second would be more than 40,000.
		if n := sub.Stats().Received; n > 2500 {
			f.Errorf("%d messages were received in ten minutes", n)
		}
		if n := len(f.held()); n != bad {
			f.Errorf("the queue holds %d messages, want the bad ones", n)
		}
		sub.Close()
	})
}

// B177: with a long timeout a failure does not have to wait for it.
func TestRetryComesBeforeTheTimeout(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.subscribe(once(fails(sqsub.RetryAfter(5*time.Second, errHandler)), time.Second), sqsub.WithVisibility(30*time.Minute))
		f.wait(10 * time.Second)
		if runs := f.Runs(); len(runs) != 2 || !near(runs[1].from, 6*time.Second, 100*time.Millisecond) {
			f.Errorf("runs %+v, want the second at 6s", runs)
		}
	})
}

// A delay takes no effect once the message is with another consumer (V9), though it
// waited for company when the hold was near its end.
func TestLateDelayIsNotSent(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		const returns = 25500 * time.Millisecond
		f.Inject(func(c sqstest.Call) sqstest.Fault {
			switch {
			case c.Op == changeOp && f.now() < returns:
				return sqstest.Fault{Reset: true}
			case c.Op == changeOp:
				return sqstest.Fault{Delay: 4150 * time.Millisecond}
			case c.Op == receiveOp && c.Visibility != rivalHold:
				return sqstest.Fault{Empty: f.now() > 0}
			}
			return sqstest.Fault{}
		})
		f.subscribe(once(fails(sqsub.RetryAfter(0, errHandler)), returns), sqsub.WithVisibility(30*time.Second), sqsub.WithBatchDelay(time.Second))
		f.wait(26 * time.Second)
		f.rivals(1)
		f.wait(40 * time.Second)
		if m := f.held()["m"]; m.ReceiveCount != 2 || m.VisibleAt.Sub(f.start) < time.Hour {
			t.Errorf("%+v, want it hidden by the other consumer", m)
		}
	})
}

// B057: a delay does not take up a slot.
func TestDelayedMessagesTakeNoSlot(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.subscribe(once(fails(sqsub.RetryAfter(10*time.Minute, errHandler)), 0), sqsub.WithConcurrency(1))
		f.wait(time.Second)
		f.send("n")
		f.wait(2 * time.Second)
		if runs := f.Runs(); len(runs) != 2 || runs[1].body != "n" {
			f.Errorf("runs %+v", runs)
		}
	})
}

// B135: handing back is tried again for as long as the message is held; then it
// is lost, and said once. Neither holds up anything else.
func TestHandingBackFailsForAWhile(t *testing.T) {
	for name, fault := range passing {
		if fault.After {
			continue // a delay that takes effect is another matter
		}
		for _, outage := range []time.Duration{10 * time.Second, time.Minute} {
			t.Run(fmt.Sprint(name, ", ", outage), func(t *testing.T) {
				bubble(t, "q", func(f *fixture) {
					f.send("m")
					f.Inject(f.during(changeOp, 0, outage, fault))
					first := once(fails(sqsub.RetryAfter(10*time.Minute, errHandler)), time.Second)
					sub := f.subscribe(func(ctx context.Context, d *sqsub.Delivery) error {
						if d.Body() == "n" {
							return nil
						}
						return first(ctx, d)
					})
					f.wait(2 * time.Second)
					f.send("n")
					f.wait(25 * time.Minute)
					f.stop(sub)
					f.wantHeld()
					if tries := len(f.changes()); tries < 3 || tries > 80 {
						f.Errorf("%d tries", tries)
					}
					r, held := f.Results()[1], outage < 30*time.Second // [0] is that of n
					if held && (r.Outcome != sqsub.Retried || r.at > 25*time.Second) || !held && (r.Outcome != sqsub.Lost || r.at > 30*time.Second) {
						f.Errorf("result %+v", r)
					}
					second := f.Runs()[2]
					if held && second.from < 10*time.Minute || !held && second.from != 30*time.Second {
						f.Errorf("run again at %v", second.from)
					}
					if n := len(f.logged(`msg="visibility lost`)); held && n != 0 || !held && n != 1 {
						f.Errorf("logged %q", f.loud())
					}
				})
			})
		}
	}
}

// What SQS says is gone, or will never accept, is reported once and left alone.
func TestHandingBackIsRefused(t *testing.T) {
	type refusal struct {
		answer  sqstest.Fault
		outcome sqsub.Outcome
		line    string
	}
	cases := []refusal{
		{sqstest.Fault{Code: "InvalidParameterValue", Message: "whatever"}, sqsub.Unsettled, "level=ERROR"},
		{sqstest.Fault{Code: "InvalidParameterValue", Message: "it is beyond the limit"}, sqsub.Unsettled, "level=ERROR"},
	}
	for _, answer := range goneAnswers {
		cases = append(cases, refusal{answer, sqsub.Lost, `level=WARN msg="visibility lost`})
	}
	for _, c := range cases {
		t.Run(c.answer.Code+c.answer.Message, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.send("m")
				f.Inject(always(changeOp, c.answer))
				sub := f.subscribe(once(fails(errHandler), time.Second), sqsub.WithRetryDelay(plainly))
				f.wait(29 * time.Second)
				if r := f.onlyResult(); r.Outcome != c.outcome || r.Delay != 0 || !errors.Is(r.Err, errHandler) {
					f.Errorf("result %+v, want %s", r, c.outcome)
				}
				if n := len(f.changes()); n != 1 {
					f.Errorf("%d calls", n)
				}
				if n := len(f.logged(c.line, c.answer.Code)); n != 1 {
					f.Errorf("logged %q", f.loud())
				}
				f.wait(31 * time.Second)
				f.stop(sub)
				f.wantHeld()
			})
		})
	}
}

// A queue that hides nothing has the message back already.
func TestFailureOnAQueueWithTimeoutZero(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.Inject(always(receiveOp, sqstest.Fault{Lag: 20 * time.Millisecond}))
		f.send("m")
		sub := f.subscribe(once(fails(sqsub.RetryAfter(time.Minute, errHandler)), 0))
		f.wait(5 * time.Second)
		f.stop(sub)
		if n := len(f.changes()); n > 0 {
			f.Errorf("changes %v", f.changes())
		}
		if r := f.Results()[0]; r.Outcome != sqsub.Retried || r.Delay != 0 {
			f.Errorf("result %+v", r)
		}
		if n := len(f.logged("level=WARN", "the message is retried", "delay=0s")); n != 1 {
			f.Errorf("logged %q", f.loud())
		}
		f.wantHeld()
	}, "VisibilityTimeout", "0")
}

// The retry delay is asked for once, and for no verdict.
func TestRetryDelayIsAskedOnce(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("plain", "verdict", "good")
		var asked []string
		f.Inject(on(changeOp, func(n int) sqstest.Fault {
			if n < 3 {
				return sqstest.Fault{Status: 500}
			}
			return sqstest.Fault{}
		}))
		f.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
			switch d.Body() {
			case "plain":
				return errHandler
			case "verdict":
				return sqsub.RetryAfter(time.Hour, errHandler)
			}
			return nil
		}, sqsub.WithRetryDelay(func(d *sqsub.Delivery, err error) time.Duration {
			if err != errHandler {
				f.Errorf("asked for %v", err)
			}
			asked = append(asked, d.Body())
			return time.Hour
		}))
		f.wait(time.Minute)
		if fmt.Sprint(asked) != "[plain]" {
			f.Errorf("asked for %q", asked)
		}
	})
}

// B186: nothing is sent while the handler has not returned.
func TestNothingIsSettledBeforeTheHandlerReturns(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(works(10 * time.Second))
		f.wait(9 * time.Second)
		if e := f.entries(); len(e) > 0 {
			f.Errorf("%v", e)
		}
		f.stop(sub)
	})
}

// A standard queue's hand-back is not tried again once the message may be visible:
// where that is at once, a slow answer is waited for as long as there is time.
func TestSlowHandBack(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.Inject(f.during(changeOp, 3*time.Second, time.Hour, sqstest.Fault{Delay: 1500 * time.Millisecond}))
		f.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
			if d.ReceiveCount() > 1 {
				return nil
			}
			time.Sleep(3300 * time.Millisecond)
			return sqsub.RetryAfter(0, errHandler)
		}, sqsub.WithVisibility(4*time.Second), sqsub.WithConcurrency(1)) // extended at 1.9 s: 2.4 s are left
		f.wait(10 * time.Second)
		if r := f.Results(); len(r) != 2 || r[0].Outcome != sqsub.Retried || r[1].Outcome != sqsub.Deleted {
			f.Errorf("results %+v, want it retried, then deleted", r)
		}
	})
}

const expiryWarning = "SQS deletes it before it can be retried"

// M10, B187: SQS deletes a message when its retention has passed since it was sent, also
// while it is delayed. A failure that hands it back for longer is told so, on one line.
func TestDelayBeyondTheRetention(t *testing.T) {
	const retention = time.Minute
	told := func(attributes string) func(f *fixture) {
		return func(f *fixture) {
			f.Inject(always("GetQueueAttributes", sqstest.Fault{Body: `{"Attributes":{"VisibilityTimeout":"30"` + attributes + `}}`}))
		}
	}
	panicking := func(context.Context, *sqsub.Delivery) error { panic(sqsub.RetryAfter(10*time.Minute, errHandler)) }
	for name, c := range map[string]struct {
		before  func(f *fixture)
		handler sqsub.Handler
		opts    []sqsub.Option
		warned  bool
		loud    int
	}{
		"beyond":                {handler: fails(sqsub.RetryAfter(10*time.Minute, errHandler)), warned: true, loud: 1},
		"by WithRetryDelay":     {handler: fails(errHandler), opts: []sqsub.Option{retriesAfter(10 * time.Minute)}, warned: true, loud: 1},
		"a panic":               {handler: panicking, opts: []sqsub.Option{retriesAfter(10 * time.Minute)}, warned: true, loud: 2},
		"at the end":            {handler: fails(sqsub.RetryAfter(retention, errHandler)), warned: true, loud: 1},
		"before the end":        {handler: fails(sqsub.RetryAfter(retention-time.Second, errHandler)), loud: 1},
		"discarded":             {handler: fails(sqsub.Discard(errHandler)), loud: 1},
		"not read":              {handler: fails(sqsub.RetryAfter(10*time.Minute, errHandler)), opts: []sqsub.Option{sqsub.WithVisibility(time.Minute)}, loud: 1},
		"not told":              {before: told(""), handler: fails(sqsub.RetryAfter(10*time.Minute, errHandler)), loud: 1},
		"no number":             {before: told(`,"MessageRetentionPeriod":"P1D"`), handler: fails(sqsub.RetryAfter(10*time.Minute, errHandler)), loud: 1},
		"out of SQS's range":    {before: told(`,"MessageRetentionPeriod":"0"`), handler: fails(sqsub.RetryAfter(10*time.Minute, errHandler)), loud: 1},
		"far too large a one":   {before: told(`,"MessageRetentionPeriod":"9223372036854775807"`), handler: fails(sqsub.RetryAfter(10*time.Minute, errHandler)), loud: 1},
		"as told, not as it is": {before: told(`,"MessageRetentionPeriod":"1200"`), handler: fails(sqsub.RetryAfter(10*time.Minute, errHandler)), loud: 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.send("m")
				if c.before != nil {
					c.before(f)
				}
				f.subscribe(c.handler, c.opts...)
				f.wait(time.Second)
				expires := "expires=" + f.start.Add(retention).Format("2006-01-02T15:04:05.000Z07:00")
				if n := len(f.logged("level=WARN", expiryWarning, "message=", "receive_count=1", "delay=", expires)); (n == 1) != c.warned || n != len(f.logged(expiryWarning)) {
					t.Errorf("logged %q, want a warning: %v", f.loud(), c.warned)
				}
				if loud := f.loud(); len(loud) != c.loud {
					t.Errorf("logged %q, want %d lines", loud, c.loud)
				}
				f.wait(20 * time.Minute)
				if c.warned {
					f.onlyRun() // it was right
					f.wantHeld()
				}
			}, "MessageRetentionPeriod", fmt.Sprint(retention.Seconds()))
		})
	}
}

// What is handed back behind a message that failed is delayed for as long, and a bit
// longer (B187).
func TestFollowersBeyondTheRetention(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.sendTo("a", "a1", "a2")
		f.sendTo("b", "b1", "b2")
		f.subscribe(fails(errHandler), retriesAfter(59*time.Second), sqsub.WithConcurrency(1), sqsub.WithPrefetch(3)) // a2 waits for a1, and no other group may
		f.wait(time.Second)
		if lines := f.logged("level=WARN", expiryWarning); len(lines) != 1 || !strings.Contains(lines[0], "delay=1m1s") {
			t.Errorf("warned %q, want it of b2", lines)
		}
	}, "MessageRetentionPeriod", "60")
}
