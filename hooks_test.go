package sqsub_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// A journal notes the calls of all hooks, by message.
type journal struct {
	mu     sync.Mutex
	start  time.Time
	events map[string][]string // by body
	polls  []sqsub.Poll
	counts map[string]uint64
}

func newJournal() *journal {
	return &journal{start: time.Now(), events: map[string][]string{}, counts: map[string]uint64{}}
}

func (j *journal) note(d *sqsub.Delivery, kind, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts[kind]++
	j.events[d.Body()] = append(j.events[d.Body()], fmt.Sprintf("%v %s", time.Since(j.start), kind)+fmt.Sprintf(format, args...))
}

func (j *journal) hooks() sqsub.Hooks {
	return sqsub.Hooks{
		Received: func(d *sqsub.Delivery) { j.note(d, "received", " %d", d.ReceiveCount()) },
		Started:  func(d *sqsub.Delivery) { j.note(d, "started", "") },
		Finished: func(d *sqsub.Delivery, r sqsub.Result) {
			j.note(d, string(r.Outcome), " after %v, delay %v, late %v, error %v", r.Duration, r.Delay, r.Late, r.Err)
		},
		Extended: func(d *sqsub.Delivery, e sqsub.Extension) {
			kind := "extended"
			if e.Err != nil {
				kind = "not extended"
			}
			j.note(d, kind, " by %v in %v", e.Timeout, e.Latency)
		},
		Lost: func(d *sqsub.Delivery, cause error) {
			j.note(d, "visibility lost", " %v, limit %v", errors.Is(cause, sqsub.ErrVisibilityLost), errors.Is(cause, sqsub.ErrHoldLimit))
		},
		Polled: func(p sqsub.Poll) {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.polls = append(j.polls, p)
		},
	}
}

// byOrder is a handler that does what the message asks for.
func byOrder(ctx context.Context, d *sqsub.Delivery) error {
	switch d.Body() {
	case "slow":
		time.Sleep(12 * time.Second)
	case "fail":
		return errHandler
	case "later":
		return sqsub.RetryAfter(90*time.Minute, errHandler)
	case "drop":
		return sqsub.Discard(errHandler)
	case "panic":
		panic("no")
	case "exit":
		runtime.Goexit()
	case "lost", "limit":
		<-ctx.Done()
		return context.Cause(ctx)
	case "late":
		<-ctx.Done()
		return nil
	}
	return nil
}

// Each way a delivery can go, as the hooks tell it; and the Stats agree (B182).
func TestHooks(t *testing.T) {
	want := map[string][]string{
		"good":  {"0s received 1", "0s started", "0s deleted after 0s, delay 0s, late false, error <nil>"},
		"slow":  {"0s received 1", "0s started", "5.5s extended by 10s in 500ms", "10.5s extended by 10s in 500ms", "12s deleted after 12s, delay 0s, late false, error <nil>"},
		"fail":  {"0s received 1", "0s started", "500ms retried after 0s, delay 3h0m0s, late false, error the handler's error"},
		"later": {"0s received 1", "0s started", "500ms retried after 0s, delay 1h30m0s, late false, error retry after 1h30m0s: the handler's error"},
		"drop":  {"0s received 1", "0s started", "0s discarded after 0s, delay 0s, late false, error discard: the handler's error"},
		"panic": {"0s received 1", "0s started", "500ms retried after 0s, delay 3h0m0s, late false, error handler panicked: no"},
		"exit":  {"0s received 1", "0s started", "0s unsettled after 0s, delay 0s, late false, error <nil>"},
	}
	for _, body := range slices.Sorted(maps.Keys(want)) {
		t.Run(body, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.send(body)
				f.Inject(always(changeOp, sqstest.Fault{Lag: 500 * time.Millisecond}))
				j := newJournal()
				sub := f.subscribe(byOrder, sqsub.WithHooks(j.hooks()), retriesAfter(3*time.Hour), sqsub.WithVisibility(10*time.Second), sqsub.WithBatchDelay(0))
				f.wait(13 * time.Second)
				got := j.events[body]
				if body == "exit" {
					got = got[:3] // it comes back
				}
				if !slices.Equal(got, want[body]) {
					t.Errorf("got\n\t%s, want\n\t%s", strings.Join(got, "\n\t"), strings.Join(want[body], "\n\t"))
				}
				sub.Close()
				j.agrees(t, sub.Stats())
			})
		})
	}
}

// agrees checks the Stats against the hooks.
func (j *journal) agrees(t *testing.T, st sqsub.Stats) {
	t.Helper()
	got := map[string]uint64{
		"received": st.Received, "deleted": st.Deleted, "discarded": st.Discarded, "retried": st.Retried, "released": st.Released,
		"unsettled": st.Unsettled, "extended": st.Extended, "not extended": st.ExtendFailures, "visibility lost": st.VisibilityLost,
	}
	for kind, n := range got {
		if n != j.counts[kind] {
			t.Errorf("Stats count %d %s, the hooks %d", n, kind, j.counts[kind])
		}
	}
	outcomes := uint64(0)
	for _, kind := range []sqsub.Outcome{sqsub.Deleted, sqsub.Discarded, sqsub.Retried, sqsub.Released, sqsub.Lost, sqsub.Unsettled} {
		outcomes += j.counts[string(kind)]
	}
	if outcomes != st.Received {
		t.Errorf("%d deliveries, %d outcomes", st.Received, outcomes)
	}
}

func TestHooksTellLosses(t *testing.T) {
	for body, want := range map[string]string{
		"lost":  "visibility lost true, limit false",
		"late":  "visibility lost true, limit false",
		"limit": "visibility lost true, limit true",
	} {
		bubble(t, "q", func(f *fixture) {
			f.send(body)
			if body != "limit" {
				f.Inject(always(changeOp, sqstest.Fault{Code: "ReceiptHandleIsInvalid"}))
			}
			j := newJournal()
			sub := f.subscribe(byOrder, sqsub.WithHooks(j.hooks()), sqsub.WithVisibility(10*time.Second), sqsub.WithMaxHold(20*time.Second))
			f.wait(9 * time.Second)
			if body == "limit" {
				f.wait(19*time.Second + 900*time.Millisecond)
				sub.Shutdown(context.Background())
			}
			events := strings.Join(j.events[body], "\n")
			if !strings.Contains(events, want) || strings.Count(events, "visibility lost true") != 1 {
				t.Errorf("%s:\n%s", body, events)
			}
			last := j.events[body][len(j.events[body])-1]
			if late := strings.Contains(last, "late true"); late != (body == "late") {
				t.Errorf("%s: %s", body, last)
			}
			sub.Close()
			j.agrees(t, sub.Stats())
			if st := sub.Stats(); st.DeletedLate != 0 != (body == "late") {
				t.Errorf("%s: %d deleted late", body, st.DeletedLate)
			}
		})
	}
}

func TestHookOfPolls(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send(numbered("m", 13)...)
		f.Inject(on(receiveOp, func(n int) sqstest.Fault {
			if n == 0 {
				return sqstest.Fault{Delay: time.Second, Code: "AccessDenied"}
			}
			return sqstest.Fault{}
		}))
		j := newJournal()
		sub := f.subscribe(works(time.Hour), sqsub.WithHooks(j.hooks()), sqsub.WithConcurrency(30), sqsub.WithVisibility(time.Minute))
		f.wait(22 * time.Second)
		if p := j.polls[0]; p.Asked != 10 || p.Received != 0 || p.Duration != time.Second || p.Err == nil || p.Open != 0 {
			t.Errorf("the first: %+v", p)
		}
		received, empty := 0, 0
		for _, p := range j.polls[1:] {
			received += p.Received
			if p.Received == 0 && p.Err == nil && p.Duration == 20*time.Second {
				empty++
			}
		}
		if received != 13 || empty == 0 {
			t.Errorf("polls: %+v", j.polls)
		}
		if at := sub.Stats().LastReceive; time.Since(at) > 2*time.Second {
			t.Errorf("the last receive was %v ago", time.Since(at))
		}
		if st := sub.Stats(); st.ReceiveFailures != 1 || !st.ReceivesFailSince.IsZero() || st.Receiving != 1 || st.InFlight != 13 || st.Waiting != 0 {
			t.Errorf("%+v", st)
		}
		sub.Close()
	})
}

// A receive that fails after a later one has succeeded is no sign of trouble: nothing
// else may be received for hours.
func TestReceivesFailSince(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.Inject(on(receiveOp, func(n int) sqstest.Fault { return sqstest.Fault{Hang: n == 0} }))
		sub := f.subscribe(works(3 * time.Hour))
		f.sendMany(10)
		f.wait(2 * time.Hour)
		if st := sub.Stats(); st.ReceiveFailures != 1 || st.Received != 10 || !st.ReceivesFailSince.IsZero() {
			t.Errorf("%+v", st)
		}
		sub.Close()
	})
}

// A hook that takes its time holds up its own delivery, and not those that were
// extended by the same request.
func TestSlowHookLosesNothing(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		hooks := f.hooks()
		var mu sync.Mutex
		var lost int
		var latest time.Duration
		hooks.Extended = func(_ *sqsub.Delivery, e sqsub.Extension) {
			mu.Lock()
			latest = max(latest, e.Latency)
			mu.Unlock()
			time.Sleep(500 * time.Millisecond)
		}
		hooks.Lost = func(*sqsub.Delivery, error) {
			mu.Lock()
			defer mu.Unlock()
			lost++
		}
		f.send("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
		sub := f.subscribe(works(6*time.Second), sqsub.WithVisibility(2*time.Second), sqsub.WithHooks(hooks))
		f.wait(8 * time.Second)
		f.stop(sub)
		if lost > 0 || latest > 0 {
			f.Errorf("%d are lost, and an extension took up to %v: all were granted at once", lost, latest)
		}
		if n := len(f.calls(changeOp + "Batch")); n != 6 { // each 0.9 s, all ten together
			f.Errorf("%d requests for 10 messages and 6 s, want 6", n)
		}
	})
}

// A Received hook holds up the loop. One delivery of ten that are extended
// together is gone: the nine others are still held.
func TestBusyLoopLosesNothing(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		hooks := f.hooks()
		inner := hooks.Received
		var mu sync.Mutex
		receipts := map[string]string{}
		var lost []string
		hooks.Received = func(d *sqsub.Delivery) {
			inner(d)
			mu.Lock()
			receipts[d.Body()] = *d.Message.ReceiptHandle
			mu.Unlock()
			if d.Body() == "blocker" {
				time.Sleep(5 * time.Second)
			}
		}
		hooks.Lost = func(d *sqsub.Delivery, err error) {
			mu.Lock()
			defer mu.Unlock()
			lost = append(lost, fmt.Sprint(f.now(), " ", d.Body(), " ", err))
		}
		for i := range 10 {
			f.send(fmt.Sprint("long", i))
		}
		sub := f.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
			if strings.HasPrefix(d.Body(), "long") {
				time.Sleep(20 * time.Second)
			} else {
				time.Sleep(time.Until(f.start.Add(1500 * time.Millisecond)))
			}
			return nil
		}, sqsub.WithVisibility(4*time.Second), sqsub.WithConcurrency(300), sqsub.WithHooks(hooks), sqsub.WithDrainTimeout(0))
		f.wait(500 * time.Millisecond)
		f.sendMany(150)
		f.wait(time.Second)
		mu.Lock()
		gone := receipts["long0"]
		mu.Unlock()
		f.meddle(gone, deleteOp)
		f.wait(1400 * time.Millisecond)
		f.send("blocker")
		f.wait(30 * time.Second)
		f.stop(sub)
		for _, l := range lost {
			if !strings.Contains(l, "long0") {
				f.Error(l)
			}
		}
	})
}

// A hook that takes its time while a response is taken in delays no extension.
func TestSlowReceivedHook(t *testing.T) {
	for _, visibility := range []time.Duration{time.Second, 2 * time.Second, 10 * time.Second} {
		t.Run(visibility.String(), func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.sendMany(10)
				hooks := f.hooks()
				received := hooks.Received
				hooks.Received = func(d *sqsub.Delivery) {
					received(d)
					time.Sleep(visibility / 10)
				}
				sub := f.subscribe(works(30*time.Second), sqsub.WithVisibility(visibility), sqsub.WithHooks(hooks))
				f.wait(40 * time.Second)
				if n := sub.Stats().VisibilityLost; n > 0 {
					f.Errorf("%d of 10 were lost", n)
				}
			})
		})
	}
}

// Received has returned before any other hook is called, however late the answer.
func TestReceivedComesFirst(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.Inject(always(receiveOp, sqstest.Fault{Lag: 5 * time.Second}))
		f.send("m")
		var received sync.Map
		isFirst := func(d *sqsub.Delivery) {
			if _, ok := received.Load(d); !ok {
				f.Error("another hook was called before Received had returned")
			}
		}
		sub := f.subscribe(works(0), sqsub.WithVisibility(time.Second), sqsub.WithWaitTime(time.Second), sqsub.WithHooks(sqsub.Hooks{
			Received: func(d *sqsub.Delivery) {
				time.Sleep(time.Second)
				received.Store(d, true)
			},
			Extended: func(d *sqsub.Delivery, _ sqsub.Extension) { isFirst(d) },
			Lost:     func(d *sqsub.Delivery, _ error) { isFirst(d) },
			Finished: func(d *sqsub.Delivery, _ sqsub.Result) { isFirst(d) },
		}))
		f.wait(time.Minute)
		sub.Close()
		if sub.Stats().VisibilityLost == 0 {
			f.Error("nothing was lost")
		}
	})
}

// So has it if it takes longer than an extension.
func TestExtendedAwaitsReceived(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		var order []string // written by one hook after the other
		f.subscribe(works(8*time.Second), sqsub.WithVisibility(10*time.Second), sqsub.WithHooks(sqsub.Hooks{
			Received: func(*sqsub.Delivery) { time.Sleep(6 * time.Second); order = append(order, "received") },
			Extended: func(*sqsub.Delivery, sqsub.Extension) { order = append(order, "extended") },
		}))
		f.wait(7 * time.Second)
		if !slices.Equal(order, []string{"received", "extended"}) || f.changes()[0].at > 5*time.Second {
			f.Errorf("%q, extended at %v", order, f.changes())
		}
	})
}

// A hook that does not return would keep a stop waiting for ever.
func TestHookExits(t *testing.T) {
	const hook = "SQSUB_TEST_HOOK"
	exit := func() { runtime.Goexit() }
	all := map[string]sqsub.Hooks{
		"panic":    {Polled: func(sqsub.Poll) { panic("the hook's own") }},
		"Received": {Received: func(*sqsub.Delivery) { exit() }},
		"Extended": {Extended: func(*sqsub.Delivery, sqsub.Extension) { exit() }},
		"Lost":     {Lost: func(*sqsub.Delivery, error) { exit() }},
		"Finished": {Finished: func(*sqsub.Delivery, sqsub.Result) { exit() }},
		"Polled":   {Polled: func(sqsub.Poll) { exit() }},
	}
	if hooks, ok := all[os.Getenv(hook)]; ok {
		bubble(t, "q", func(f *fixture) {
			f.send("m", "lost")
			f.Inject(f.lost("lost"))
			f.subscribe(works(time.Minute), sqsub.WithHooks(hooks), sqsub.WithBatchDelay(0))
			f.wait(2 * time.Minute)
		})
		return
	}
	for name := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			again := exec.Command(os.Args[0], "-test.run=^TestHookExits$")
			again.Env = append(os.Environ(), hook+"="+name)
			out, err := again.CombinedOutput()
			want := "panic: sqsub: a hook called runtime.Goexit"
			if name == "panic" {
				want = "panic: the hook's own"
			}
			if err == nil || !strings.Contains(string(out), want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// Any hook alone will do, and none.
func TestEachHookAlone(t *testing.T) {
	all := newJournal().hooks()
	for _, hooks := range []sqsub.Hooks{
		{}, {Received: all.Received}, {Started: all.Started}, {Finished: all.Finished}, {Extended: all.Extended}, {Lost: all.Lost}, {Polled: all.Polled},
	} {
		bubble(t, "q", func(f *fixture) {
			f.send("slow", "fail", "panic", "lost", "drop", "exit")
			f.Inject(f.lost("lost"))
			sub := f.subscribe(byOrder, sqsub.WithHooks(hooks), retriesAfter(time.Hour), sqsub.WithVisibility(10*time.Second))
			f.wait(15 * time.Second)
			sub.Close()
			if st := sub.Stats(); st.Deleted == 0 || st.Retried != 2 {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestInFlight(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.sendTo("a", "a1", "a2")
		f.sendTo("b", "b1")
		f.sendTo("c", "c1")
		f.Inject(always(deleteOp, sqstest.Fault{Lag: time.Hour}))
		handler := func(ctx context.Context, d *sqsub.Delivery) error {
			if d.Body() == "a1" {
				time.Sleep(7 * time.Second)
			} else {
				time.Sleep(time.Hour)
			}
			return nil
		}
		sub := f.subscribe(handler, sqsub.WithConcurrency(2), sqsub.WithPrefetch(2), sqsub.WithVisibility(10*time.Second), sqsub.WithBatchDelay(0))
		f.wait(8 * time.Second)
		got := map[string]sqsub.Held{}
		for _, h := range sub.InFlight() {
			got[f.body(h.ID)] = h
		}
		states := map[string]sqsub.State{"a1": sqsub.Settling, "a2": sqsub.WaitingForPrevious, "b1": sqsub.Running, "c1": sqsub.WaitingForSlot}
		if len(got) != len(states) {
			t.Fatalf("in flight: %+v", got)
		}
		for body, h := range got {
			if h.State != states[body] || h.GroupID != body[:1] || h.ReceiveCount != 1 || h.ReceivedAt.Sub(f.start) != 0 || h.Extensions != 1 || h.HiddenUntil.Sub(f.start) != 15*time.Second {
				t.Errorf("%s: %+v", body, h)
			}
		}
		if st := sub.Stats(); st.InFlight != 4 || st.Waiting != 2 {
			t.Errorf("%d in flight, %d waiting", st.InFlight, st.Waiting)
		}
		sub.Close()
		if n := len(sub.InFlight()); n != 0 {
			t.Errorf("after Close: %d", n)
		}
	})
}

// records is a handler of slog that keeps the attributes of each record.
type records struct {
	mu   *sync.Mutex
	list *[]map[string]string
	with []slog.Attr
}

func (r records) Enabled(context.Context, slog.Level) bool { return true }
func (r records) WithGroup(string) slog.Handler            { return r }

func (r records) WithAttrs(attrs []slog.Attr) slog.Handler {
	r.with = slices.Concat(r.with, attrs)
	return r
}

func (r records) Handle(_ context.Context, record slog.Record) error {
	attrs := map[string]string{"level": record.Level.String(), "msg": record.Message}
	for _, a := range r.with {
		attrs[a.Key] = a.Value.String()
	}
	record.Attrs(func(a slog.Attr) bool {
		attrs[a.Key] = a.Value.String()
		return true
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	*r.list = append(*r.list, attrs)
	return nil
}

// People find out which message of which queue it was, and nothing of its body
// or receipt handle gets into the log.
func TestLogAttributes(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("good", "fail", "panic", "lost", "drop", "exit", "late")
		f.Inject(func(c sqstest.Call) sqstest.Fault {
			return sqstest.Fault{Code: max(f.lost("lost")(c).Code, f.lost("late")(c).Code)}
		})
		var list []map[string]string
		var mu sync.Mutex
		sub := f.subscribe(byOrder, sqsub.WithLogger(slog.New(records{mu: &mu, list: &list})), retriesAfter(time.Hour), sqsub.WithVisibility(10*time.Second), sqsub.WithBatchDelay(0))
		f.wait(9 * time.Second)
		sub.Close()
		seen := map[string]int{}
		for _, r := range list {
			body := f.body(r["message"])
			if r["queue"] != "q" {
				t.Errorf("without the queue: %v", r)
			}
			if r["level"] == "DEBUG" || strings.Contains(r["msg"], "no answer when") {
				continue
			}
			seen[body]++
			if body == "" || r["receive_count"] != "1" {
				t.Errorf("without message and receive count: %v", r)
			}
			if r["error"] == "" && body != "exit" && !strings.Contains(r["msg"], "deleted after") {
				t.Errorf("without an error: %v", r)
			}
			for key, value := range r {
				if key != "queue" && value == body || strings.Contains(value, "AQEB") {
					t.Errorf("%s=%s tells a body or a receipt handle", key, value)
				}
			}
		}
		if seen["good"] != 0 || seen["fail"] != 1 || seen["panic"] != 1 || seen["lost"] != 1 || seen["drop"] != 1 || seen["exit"] != 1 {
			t.Errorf("records above Debug by message: %v", seen)
		}
	})
}

// B042: what was started for a message ends with it, not with the subscription.
func TestNothingIsLeftOfAMessage(t *testing.T) {
	eachWay(t, "q", func(f *fixture) {
		sub := f.subscribe(works(time.Millisecond), sqsub.WithConcurrency(50), sqsub.WithVisibility(10*time.Second))
		f.wait(time.Minute)
		before := runtime.NumGoroutine()
		const n = 1000
		for i := range n {
			f.send(fmt.Sprint(i))
		}
		f.drained(time.Minute)
		f.wait(f.now() + time.Minute)
		if after := runtime.NumGoroutine(); after > before+50 { // senders and pollers stay for the next call
			t.Errorf("%d goroutines after %d messages, %d before", after, n, before)
		}
		if changes := f.changes(); len(changes) != 0 { // B044
			t.Errorf("%d changes", len(changes))
		}
		f.stop(sub)
	})
}

// B042, B044: the timer of a hold of hours ends with its message too. A stop waits for
// what is left, so that it would take those hours.
func TestNoTimerIsLeftOfAMessage(t *testing.T) {
	eachWay(t, "q", func(f *fixture) {
		const n = 100
		f.sendMany(n)
		sub := f.subscribe(works(time.Millisecond), sqsub.WithVisibility(12*time.Hour))
		f.wait(time.Minute)
		f.stop(sub)
		if took := f.now() - time.Minute; took > sqsub.DefaultWaitTime { // the open receive ends by itself
			f.Errorf("the stop took %v", took)
		}
		f.handledOnce(n)
	})
}

// B016, B018: an extension that is overtaken by the delete finds the message
// gone. That is no loss: nothing is logged, counted or told, and in a FIFO queue
// the group goes on.
func TestExtensionOvertakenByTheDelete(t *testing.T) {
	for _, queue := range []string{"q", "q.fifo"} {
		bubble(t, queue, func(f *fixture) {
			f.send("m1", "m2")
			f.Inject(func(c sqstest.Call) sqstest.Fault {
				switch {
				case strings.HasPrefix(c.Op, changeOp):
					return sqstest.Fault{Delay: 2 * time.Second}
				case strings.HasPrefix(c.Op, deleteOp):
					return sqstest.Fault{Lag: 3 * time.Second} // the extension ends before the delete is answered
				}
				return sqstest.Fault{}
			})
			j := newJournal()
			sub := f.subscribe(works(16*time.Second), sqsub.WithHooks(j.hooks()), sqsub.WithVisibility(30*time.Second), sqsub.WithBatchDelay(0))
			f.wait(time.Minute)
			f.wantHeld()
			f.stop(sub)
			if st := sub.Stats(); st.VisibilityLost != 0 || st.Deleted != 2 || st.DeletedLate != 0 || st.Released != 0 || st.ExtendFailures != 0 {
				t.Errorf("%s: %+v", queue, st)
			}
			if loud := f.loud(); len(loud) > 0 {
				t.Errorf("%s: logged %q", queue, loud)
			}
			for _, r := range f.Runs() {
				if r.count != 1 {
					t.Errorf("%s: %s ran at its receive %d", queue, r.body, r.count)
				}
			}
		})
	}
}
