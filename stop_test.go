package sqsub_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// A stopping is one way to begin a stop. end waits for its end and returns what
// it was told.
type stopping struct {
	name  string
	start func(sub *sqsub.Subscription, cancel context.CancelFunc) (end func() error)
}

// inBackground runs f, and waits for its result when asked.
func inBackground(f func() error) func() error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return func() error { return <-result }
}

// graceful are the ways to stop that let handlers finish.
var graceful = []stopping{
	{"ctx", func(sub *sqsub.Subscription, cancel context.CancelFunc) func() error {
		cancel()
		return sub.Wait
	}},
	{"Shutdown", func(sub *sqsub.Subscription, _ context.CancelFunc) func() error {
		return inBackground(func() error { return sub.Shutdown(context.Background()) })
	}},
}

var closing = stopping{"Close", func(sub *sqsub.Subscription, _ context.CancelFunc) func() error {
	return inBackground(sub.Close)
}}

// stopped runs a test for each of the given ways to stop.
func stopped(t *testing.T, queue string, ways []stopping, test func(f *fixture, way stopCase)) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			bubble(t, queue, func(f *fixture) { test(f, stopCase{f, way}) })
		})
	}
}

// A stopCase is one way to stop, in one test.
type stopCase struct {
	f   *fixture
	way stopping
}

// at subscribes, begins the stop at the given time, and returns a function that
// waits for its end and checks that it came when it should.
func (s stopCase) at(at time.Duration, handler sqsub.Handler, opts ...sqsub.Option) (sub *sqsub.Subscription, wantEnd func(time.Duration)) {
	s.f.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s.f.Cleanup(cancel)
	sub, err := sqsub.Subscribe(ctx, s.f.client, s.f.queue, s.f.recorded(handler), s.f.options(opts)...)
	if err != nil {
		s.f.Fatal(err)
	}
	s.f.watch(sub)
	s.f.wait(at)
	end := s.way.start(sub, cancel)
	return sub, func(want time.Duration) {
		s.f.Helper()
		if err := end(); err != nil {
			s.f.Errorf("the stop returned %v", err)
		}
		if got := s.f.now(); !near(got, want, 150*time.Millisecond) {
			s.f.Errorf("the stop ended at %v, want %v", got, want)
		}
		if err := sub.Wait(); err != nil {
			s.f.Errorf("Wait returned %v", err)
		}
		for _, c := range s.f.calls(receiveOp) {
			if c.At.Sub(s.f.start) > at {
				s.f.Errorf("a receive was sent at %v, after the stop", c.At.Sub(s.f.start))
			}
		}
		for _, r := range s.f.Runs() {
			if r.from > at {
				s.f.Errorf("a handler was started at %v, after the stop", r.from)
			}
		}
	}
}

// wantVisible checks that the queue holds just these messages, that they can be
// received by anyone, and how often they have been.
func (f *fixture) wantVisible(receives int, bodies ...string) {
	f.Helper()
	f.wantHeld(bodies...)
	for body, m := range f.held() {
		if m.State != sqstest.Visible || m.ReceiveCount != receives {
			f.Errorf("%s is %s until %v, received %d times; want visible, %d times", body, m.State, m.VisibleAt.Sub(f.start), m.ReceiveCount, receives)
		}
	}
}

// B101, B103: the open poll is not aborted, since SQS would hand messages to it
// all the same (R13); it ends within its wait time.
func TestStopWhileIdle(t *testing.T) {
	stopped(t, "q", graceful, func(f *fixture, s stopCase) {
		_, wantEnd := s.at(25*time.Second, works(0), sqsub.WithVisibility(time.Minute), sqsub.WithDrainTimeout(0))
		wantEnd(40 * time.Second)
		if loud := f.loud(); len(loud) > 0 { // B120
			f.Errorf("logged %q", loud)
		}
	})
}

// B100, B105: what the last poll brings is released, in one batch.
func TestStopReleasesWhatTheLastPollBrings(t *testing.T) {
	for _, queue := range []string{"q", "q.fifo"} {
		stopped(t, queue, graceful, func(f *fixture, s stopCase) {
			f.StrandAbandonedPolls = true
			_, wantEnd := s.at(5*time.Second, works(0), sqsub.WithVisibility(time.Minute))
			f.wait(10 * time.Second)
			f.send("m")
			wantEnd(10 * time.Second)
			f.wantVisible(1, "m")
			if len(f.Runs()) != 0 {
				t.Error("it was run")
			}
		})
	}
}

func TestStopReleasesAFullLastPoll(t *testing.T) {
	stopped(t, "q", graceful, func(f *fixture, s stopCase) {
		f.send(numbered("m", 10)...)
		f.Inject(always(receiveOp, sqstest.Fault{Lag: 2 * time.Second})) // the stop comes before the answer
		sub, wantEnd := s.at(time.Second, works(0), sqsub.WithVisibility(time.Minute))
		wantEnd(2 * time.Second)
		f.wantVisible(1, numbered("m", 10)...)
		if n := len(f.calls(changeOp + "Batch")); n != 1 {
			t.Errorf("%d batches, want one", n)
		}
		if st := sub.Stats(); st.Released != 10 || st.Unsettled != 0 {
			t.Errorf("%d released", st.Released)
		}
	})
}

// B106, B113: received, but not started: released at once, while the handlers
// run on.
func TestStopReleasesWhatIsNotStarted(t *testing.T) {
	stopped(t, "q", graceful, func(f *fixture, s stopCase) {
		f.send(numbered("m", 50)...)
		_, wantEnd := s.at(5*time.Second, works(20*time.Second), sqsub.WithConcurrency(10), sqsub.WithPrefetch(30), sqsub.WithVisibility(10*time.Second))
		f.wait(5*time.Second + 10*time.Millisecond)
		visible := 0
		for _, m := range f.held() {
			if m.State == sqstest.Visible {
				visible++
			}
		}
		if visible != 40 {
			t.Errorf("%d are visible right after the stop, want 40", visible)
		}
		for _, c := range f.calls(changeOp + "Batch") {
			if n := len(c.Entries); c.Entries[0].Visibility == 0 && n != 10 {
				t.Errorf("a release of %d, want batches of ten", n)
			}
		}
		wantEnd(20 * time.Second) // extended up to then
		if n := len(f.deletes()); n != 10 {
			t.Errorf("%d deletes, want 10", n)
		}
	})
}

// F3: a group is released last to first.
func TestStopReleasesAGroupLastToFirst(t *testing.T) {
	stopped(t, "q.fifo", slices.Concat(graceful, []stopping{closing}), func(f *fixture, s stopCase) {
		f.send(numbered("m", 5)...)
		_, wantEnd := s.at(time.Second, works(3*time.Second), sqsub.WithVisibility(time.Minute))
		wantEnd(3 * time.Second)
		var released []string
		for _, e := range f.changes() {
			released = append(released, e.body)
		}
		if want := []string{"m5", "m4", "m3", "m2"}; !slices.Equal(released[:min(4, len(released))], want) {
			t.Errorf("released %v, want %v", released, want)
		}
		// When m1 is deleted the last poll, still open, may bring the rest again.
		receives := 1
		if s.way.name != "Close" {
			receives = 2
		}
		f.wantVisible(receives, "m2", "m3", "m4", "m5")
	})
}

// A second delivery of a message whose handler runs is not released at the stop:
// another consumer would run it beside that. After success it is deleted, with the
// receipt that still counts; after a failure it is released.
func TestStopLeavesTheCopyOfARunningMessage(t *testing.T) {
	const stop, end = 16 * time.Second, 20 * time.Second
	for _, c := range []struct {
		queue string
		lost  bool // the copy came after a loss; otherwise in the same response
	}{
		{"q", false}, {"q", true}, {"q.fifo", true},
	} {
		for _, failures := range []int{0, 1} {
			stopped(t, c.queue, slices.Concat(graceful, []stopping{closing}), func(f *fixture, s stopCase) {
				f.send("m")
				f.Inject(twice())
				if c.lost {
					f.Inject(f.lapse(15 * time.Second))
				}
				handler := failing(takes(end), map[string]int{"m": failures})
				sub, _ := s.at(stop, handler, retriesAfter(time.Hour), sqsub.WithVisibility(10*time.Second), sqsub.WithConcurrency(2))
				if n := len(sub.InFlight()); n != 2 {
					t.Fatalf("%+v: %d in flight, want the message twice", c, n)
				}
				for _, at := range []time.Duration{stop + time.Millisecond, end - time.Millisecond} {
					f.wait(at)
					if n := len(f.receive(0)); n > 0 {
						t.Errorf("%+v: another consumer gets the message while it runs here", c)
					}
				}
				if err := sub.Wait(); err != nil {
					t.Error(err)
				}
				f.onlyRun()
				outcomes := map[sqsub.Outcome]int{}
				for _, r := range f.Results() {
					outcomes[r.Outcome]++
				}
				if failures > 0 {
					if m := f.held()["m"]; m.State != sqstest.Visible || outcomes[sqsub.Released] == 0 || outcomes[sqsub.Lost] != 1 {
						t.Errorf("%+v: after the failure %v, and the message is %s; want it released", c, outcomes, m.State)
					}
					return
				}
				f.wantHeld()
				deletes := f.deletes()
				if len(deletes) != 2 || deletes[0].receipt == deletes[1].receipt || deletes[1].code != "" || outcomes[sqsub.Deleted] == 0 {
					t.Errorf("%+v: after success %v, deletes %v, want them with both receipts", c, outcomes, deletes)
				}
			})
		}
	}
}

// B116, B117, B119: the calls of the end outlive Subscribe's context.
func TestDeletesOutliveTheContext(t *testing.T) {
	stopped(t, "q", graceful, func(f *fixture, s stopCase) {
		f.send(numbered("m", 20)...)
		handler := func(_ context.Context, d *sqsub.Delivery) error {
			time.Sleep(3 * time.Second)
			if len(d.Body())%2 == 0 { // m1 to m9
				return nil
			}
			return sqsub.RetryAfter(0, errHandler)
		}
		sub, wantEnd := s.at(time.Second, handler, sqsub.WithConcurrency(20), sqsub.WithVisibility(30*time.Second))
		wantEnd(3 * time.Second)
		f.wantVisible(1, numbered("m", 20)[9:]...)
		if st := sub.Stats(); st.Deleted != 9 || st.Retried != 11 || st.Unsettled != 0 {
			t.Errorf("%d deleted, %d retried", st.Deleted, st.Retried)
		}
	})
}

// B123: what waits for company when the stop begins does not wait on.
func TestStopFlushesBatches(t *testing.T) {
	stopped(t, "q", slices.Concat(graceful, []stopping{closing}), func(f *fixture, s stopCase) {
		f.send(numbered("m", 7)...)
		_, wantEnd := s.at(2*time.Second, works(time.Second), sqsub.WithConcurrency(7), sqsub.WithBatchDelay(time.Minute), sqsub.WithVisibility(12*time.Hour))
		f.wait(2*time.Second + time.Millisecond)
		f.wantHeld()
		if n := len(f.calls(deleteOp + "Batch")); n != 1 {
			t.Errorf("%d batches, want one of 7", n)
		}
		if s.way.name == "Close" {
			wantEnd(f.now())
		} else {
			wantEnd(21 * time.Second) // with the open poll
		}
	})
}

// The second row: when the time is over the contexts end, and a handler that
// returns because of that has its message released at once (B178).
func TestDrainTimeout(t *testing.T) {
	stopped(t, "q", graceful, func(f *fixture, s stopCase) {
		f.send(numbered("m", 3)...)
		sub, wantEnd := s.at(5*time.Second, obeys(time.Hour), sqsub.WithVisibility(2*time.Minute), sqsub.WithDrainTimeout(10*time.Second))
		wantEnd(15 * time.Second)
		f.wantVisible(1, numbered("m", 3)...)
		for _, r := range f.Runs() {
			if r.to != 15*time.Second || !errors.Is(r.cause, sqsub.ErrShutdown) || errors.Is(r.cause, sqsub.ErrVisibilityLost) {
				t.Errorf("run %+v, want cancelled at 15s with ErrShutdown", r)
			}
		}
		if st := sub.Stats(); st.Released != 3 || st.Retried != 0 || st.ReceivesAbandoned != 1 {
			t.Errorf("%d released, %d retried, %d receives abandoned", st.Released, st.Retried, st.ReceivesAbandoned)
		}
		told := f.logged("level=WARN", "handlers are cancelled", "handlers=3")
		if len(told) != 1 {
			t.Fatalf("logged %q", f.loud())
		}
		for _, m := range f.held() {
			if !strings.Contains(told[0], m.ID) {
				t.Errorf("%s is not named: %s", m.Body, told[0])
			}
		}
	})
}

// What a handler returns when it was cancelled by a stop still counts.
func TestVerdictAfterTheDrainTimeout(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "15s DeleteMessage(m)"},
		{sqsub.Discard(errHandler), "15s DeleteMessage(m)"},
		{errHandler, "15s ChangeMessageVisibility(m, 0s)"},
		{sqsub.RetryAfter(3*time.Second, errHandler), "15s ChangeMessageVisibility(m, 3s)"},
	} {
		stopped(t, "q", graceful[:1], func(f *fixture, s stopCase) {
			f.send("m")
			handler := func(ctx context.Context, _ *sqsub.Delivery) error {
				<-ctx.Done()
				return c.err
			}
			_, wantEnd := s.at(5*time.Second, handler, sqsub.WithVisibility(2*time.Minute), sqsub.WithDrainTimeout(10*time.Second))
			wantEnd(15 * time.Second)
			entries := f.entries()
			if got := entries[len(entries)-1].String(); got != c.want {
				t.Errorf("%v: %s, want %s", c.err, got, c.want)
			}
		})
	}
}

// A failure of its own during the drain is retried as at any other time.
func TestFailureDuringTheDrain(t *testing.T) {
	stopped(t, "q", graceful, func(f *fixture, s stopCase) {
		f.send("m")
		_, wantEnd := s.at(5*time.Second, failing(takes(21*time.Second), map[string]int{"m": 1}), retriesAfter(40*time.Second), sqsub.WithVisibility(10*time.Second))
		wantEnd(21 * time.Second)
		if m := f.held()["m"]; !near(m.VisibleAt.Sub(f.start), 61*time.Second, 0) {
			t.Errorf("visible at %v, want 40s after the failure", m.VisibleAt.Sub(f.start))
		}
	})
}

// B110: a handler that does not end holds up neither the others' deletes nor
// Shutdown, which names it; Wait waits, and the message is held all the time.
func TestHandlerThatDoesNotEnd(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send(numbered("m", 10)...)
		release := make(chan struct{})
		var stuck string
		sub := f.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
			if d.Body() == "m3" {
				stuck = d.ID()
				<-release
				return nil
			}
			n := 0
			fmt.Sscanf(d.Body(), "m%d", &n)
			time.Sleep(time.Duration(n+5) * time.Second)
			return nil
		}, sqsub.WithVisibility(30*time.Second), sqsub.WithDrainTimeout(0))
		f.wait(5 * time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		err := sub.Shutdown(ctx)
		if f.now() != 25*time.Second || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), stuck) || strings.Contains(err.Error(), "deliveries") && !strings.Contains(err.Error(), "1 deliver") {
			t.Errorf("Shutdown returned %v at %v, want the one named at 25s", err, f.now())
		}
		for _, e := range f.deletes() {
			var n int
			fmt.Sscanf(e.body, "m%d", &n)
			if want := time.Duration(n+5) * time.Second; !near(e.at, want, 110*time.Millisecond) {
				t.Errorf("%v, want it as its handler ends, at %v", e, want)
			}
		}
		f.wait(10 * time.Minute)
		select {
		case <-sub.Done():
			t.Error("Wait would return although a handler runs")
		default:
		}
		if m := f.held()["m3"]; m.State != sqstest.InFlight || m.ReceiveCount != 1 {
			t.Errorf("m3: %+v, want held", m)
		}
		if err := sub.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) || f.now() != 10*time.Minute {
			t.Errorf("a second Shutdown: %v at %v", err, f.now())
		}
		close(release)
		if err := sub.Wait(); err != nil {
			t.Error(err)
		}
		f.wantHeld()
	})
}

// The third row.
func TestClose(t *testing.T) {
	stopped(t, "q", []stopping{closing}, func(f *fixture, s stopCase) {
		f.send(numbered("m", 20)...)
		sub, wantEnd := s.at(5*time.Second, obeys(time.Hour), sqsub.WithConcurrency(12), sqsub.WithPrefetch(12), sqsub.WithVisibility(time.Minute))
		wantEnd(5 * time.Second)
		f.wantVisible(1, numbered("m", 20)...)
		if len(f.Runs()) != 12 {
			t.Errorf("%d runs", len(f.Runs()))
		}
		for _, r := range f.Runs() {
			if !errors.Is(r.cause, sqsub.ErrShutdown) {
				t.Errorf("%s ended with %v", r.body, r.cause)
			}
		}
		if st := sub.Stats(); st.Released != 20 {
			t.Errorf("%d released", st.Released)
		}
	})
}

// B101: an abort may strand messages; it is counted and told.
func TestCloseTellsOfTheAbortedPoll(t *testing.T) {
	stopped(t, "q", []stopping{closing}, func(f *fixture, s stopCase) {
		f.StrandAbandonedPolls = true
		sub, wantEnd := s.at(5*time.Second, works(0), sqsub.WithVisibility(time.Minute))
		wantEnd(5 * time.Second)
		if len(f.logged("level=DEBUG", "stopping", "handlers=0", "unstarted=0", "receives=1")) != 1 {
			t.Errorf("logged %q", f.logged("stopping"))
		}
		if st := sub.Stats(); st.ReceivesAbandoned != 1 || st.ReceiveFailures != 0 { // B198
			t.Errorf("%d abandoned, %d failures", st.ReceivesAbandoned, st.ReceiveFailures)
		}
		if len(f.logged("level=WARN", "a receive had no answer", "timeout=1m0s")) != 1 {
			t.Errorf("logged %q", f.loud())
		}
	})
}

// B149: a state is told once, not each receive.
func TestCloseTellsOnceOfManyAbortedPolls(t *testing.T) {
	stopped(t, "q", []stopping{closing}, func(f *fixture, s stopCase) {
		for i := range 100 {
			f.send(fmt.Sprint(i))
		}
		f.Inject(on(receiveOp, func(int) sqstest.Fault { return sqstest.Fault{Delay: 2 * time.Second} }))
		sub, wantEnd := s.at(5*time.Second, works(0), sqsub.WithConcurrency(100))
		wantEnd(5 * time.Second)
		if n := sub.Stats().ReceivesAbandoned; n < 3 {
			t.Errorf("%d abandoned", n)
		}
		if lines := f.logged("level=WARN"); len(lines) != 1 {
			t.Errorf("logged %q", lines)
		}
	})
}

// A message that fails during a stop is not waited for, even if one of its group is
// in hand that a stop keeps, since it was handled before and is only to be deleted.
func TestStopDoesNotWaitForAFailure(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.create("dead.fifo")
		f.set("RedrivePolicy", redrive("dead.fifo", 1), "VisibilityTimeout", "2")
		f.send("fails", "handled")
		f.Inject(func(c sqstest.Call) sqstest.Fault {
			return sqstest.Fault{Reset: c.Op == deleteOp || c.Op == changeOp && f.now() > 0}
		})
		sub := f.subscribe(func(ctx context.Context, d *sqsub.Delivery) error {
			switch {
			case d.Body() == "handled":
				return nil
			case d.ReceiveCount() == 1: // its last receive, so that its group goes on
				return sqsub.RetryAfter(time.Minute, errHandler)
			}
			time.Sleep(8 * time.Second)
			return sqsub.RetryAfter(time.Hour, errHandler)
		}, sqsub.WithWaitTime(time.Second))
		f.wait(55 * time.Second)
		f.Inject(nil)
		f.set("RedrivePolicy", redrive("dead.fifo", 10))
		f.wait(62 * time.Second)
		if held := sub.InFlight(); len(held) != 2 {
			t.Fatalf("in hand: %+v, want both", held)
		}
		before := f.now()
		f.stop(sub)
		if took := f.now() - before; took > 10*time.Second {
			t.Errorf("the stop took %v", took)
		}
		f.wantHeld("fails")
	})
}

// What a receive brings during a stop is on its way back.
func TestStateOfWhatAStopHandsBack(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.Inject(always(changeOp, sqstest.Fault{Lag: 3 * time.Second}))
		sub := f.subscribe(works(0))
		f.wait(time.Second)
		end := inBackground(func() error { return sub.Shutdown(context.Background()) })
		f.wait(2 * time.Second)
		f.send("m")
		f.wait(3 * time.Second)
		if held := sub.InFlight(); len(held) != 1 || held[0].State != sqsub.Releasing {
			t.Errorf("in hand: %+v", held)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// While no connection can be made no call takes effect, so that it is tried again: a
// message that failed, and what a stop hands back, do not stay hidden.
func TestHandBackWhileSQSIsOutOfReach(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.Inject(func(c sqstest.Call) sqstest.Fault {
			at := c.At.Sub(f.start)
			return sqstest.Fault{Refuse: at >= 5*time.Second && at < 8*time.Second}
		})
		f.sendMany(20)
		sub := f.subscribe(func(context.Context, *sqsub.Delivery) error {
			time.Sleep(5 * time.Second)
			return sqsub.RetryAfter(0, errHandler)
		}, sqsub.WithConcurrency(5), sqsub.WithPrefetch(15))
		f.wait(5 * time.Second)
		f.stop(sub)
		if st := sub.Stats(); st.Retried < 5 || st.Retried+st.Released != 20 || f.now() > 30*time.Second {
			t.Errorf("after %v: %+v", f.now(), st)
		}
		for body, m := range f.held() {
			if m.State != sqstest.Visible || m.VisibleAt.Sub(f.start) > 15*time.Second {
				t.Errorf("%s: %+v", body, m)
			}
		}
	})
}

// With the defaults a stop fits the 30 s that container platforms leave, also if SQS
// answers nothing any more.
func TestStopEndsInTimeWithoutAnAnswer(t *testing.T) {
	delays := []time.Duration{sqsub.DefaultBatchDelay, 0, 10 * time.Second}
	for _, queue := range []string{"q", "q.fifo"} {
		for _, visibility := range []time.Duration{2 * time.Second, 30 * time.Second, 2 * time.Minute, 5 * time.Minute} {
			for phase := range 8 { // of the stop, so that it runs out of time around the first extension
				at := max(0, visibility/2-30*time.Second) + time.Duration(phase)*1700*time.Millisecond
				for name, handler := range map[string]sqsub.Handler{
					"obeys": obeys(time.Hour),
					"works": works(at + 24900*time.Millisecond), // until just before that
					"fails": once(fails(sqsub.RetryAfter(time.Minute, errHandler)), at+24900*time.Millisecond),
				} {
					bubble(t, queue, func(f *fixture) {
						f.send(numbered("m", 12)...)
						sub := f.subscribe(handler, sqsub.WithVisibility(visibility), sqsub.WithPrefetch(5), sqsub.WithBatchDelay(delays[phase%len(delays)]))
						f.wait(at)
						f.Inject(func(sqstest.Call) sqstest.Fault { return sqstest.Fault{Hang: true} })
						f.stop(sub)
						if took := f.now() - at; took > 29500*time.Millisecond {
							t.Errorf("%s, %s, visibility %v, begun after %v: the stop took %v", queue, name, visibility, at, took)
						}
					})
				}
			}
		}
	}
}

// A call that fails when a stop has run out of time is tried again.
func TestOneFailureAfterAStopRanOutOfTime(t *testing.T) {
	for _, verdict := range []error{nil, errHandler} {
		stopped(t, "q", slices.Concat(graceful, []stopping{closing}), func(f *fixture, s stopCase) {
			f.send("m")
			sub, wantEnd := s.at(5*time.Second, func(ctx context.Context, d *sqsub.Delivery) error {
				<-ctx.Done()
				f.Inject(func(c sqstest.Call) sqstest.Fault {
					if len(f.entries()) == 1 { // this one
						return sqstest.Fault{Code: "ThrottlingException"}
					}
					return sqstest.Fault{}
				})
				return verdict
			}, sqsub.WithVisibility(5*time.Minute))
			if s.way.name == "Close" {
				wantEnd(5 * time.Second)
			} else {
				wantEnd(30 * time.Second)
			}
			if st := sub.Stats(); st.Deleted+st.Released != 1 || st.SettleFailures != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// The same for a handler that returns long after that.
func TestOneFailureLongAfterAStopRanOutOfTime(t *testing.T) {
	for _, verdict := range []error{nil, errHandler} {
		bubble(t, "q", func(f *fixture) {
			f.send("m")
			sub := f.subscribe(func(context.Context, *sqsub.Delivery) error {
				time.Sleep(40 * time.Second)
				f.Inject(func(c sqstest.Call) sqstest.Fault {
					if len(f.entries()) == 1 {
						return sqstest.Fault{Code: "ThrottlingException"}
					}
					return sqstest.Fault{}
				})
				return verdict
			}, sqsub.WithVisibility(5*time.Minute))
			f.wait(time.Second)
			f.stop(sub)
			if st := sub.Stats(); st.Deleted+st.Released != 1 || st.SettleFailures != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// And for a message that is handed back when a slow extension has been answered.
func TestOneFailureBehindAnExtension(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.Inject(on(changeOp, func(n int) sqstest.Fault {
			return []sqstest.Fault{{Lag: 1500 * time.Millisecond}, {Code: "ThrottlingException"}, {}}[min(n, 2)]
		}))
		sub := f.subscribe(obeys(time.Hour), sqsub.WithVisibility(time.Minute), sqsub.WithBatchDelay(0))
		f.wait(5500 * time.Millisecond) // so that the time is over at 30.5 s, half a second after the extension began
		f.stop(sub)
		if st := sub.Stats(); st.Released != 1 || st.Extended != 1 || st.SettleFailures != 1 {
			t.Errorf("%+v", st)
		}
	})
}

// A handler that goes on after it was cancelled keeps its hold, also if SQS is slow.
func TestSlowExtensionsAfterAStop(t *testing.T) {
	stopped(t, "q", slices.Concat(graceful, []stopping{closing}), func(f *fixture, s stopCase) {
		f.send("m")
		f.Inject(always(changeOp, sqstest.Fault{Lag: 2500 * time.Millisecond}))
		sub, wantEnd := s.at(time.Second, works(3*time.Minute), sqsub.WithVisibility(time.Minute))
		wantEnd(3*time.Minute + 1900*time.Millisecond) // with the last extension
		if st := sub.Stats(); st.Deleted != 1 || st.DeletedLate != 0 || st.Extended < 5 || st.ExtendFailures != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// Close cuts a graceful stop short, and so does the end of a Shutdown's ctx.
func TestCloseDuringShutdown(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(obeys(time.Hour), sqsub.WithVisibility(time.Minute), sqsub.WithDrainTimeout(0))
		f.wait(time.Second)
		end := inBackground(func() error { return sub.Shutdown(context.Background()) })
		f.wait(2 * time.Second)
		if err := sub.Close(); err != nil || f.now() != 2*time.Second {
			t.Errorf("Close returned %v at %v", err, f.now())
		}
		if err := end(); err != nil {
			t.Errorf("Shutdown returned %v", err)
		}
		f.wantVisible(1, "m")
	})
}

// Any number of callers, in any order, while handlers end, and again after the
// end (B192).
func TestStopsByManyCallers(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send(numbered("m", 5)...)
		ctx, cancel := context.WithCancel(context.Background())
		sub, err := sqsub.Subscribe(ctx, f.client, f.queue, f.recorded(works(3*time.Second)), f.options([]sqsub.Option{sqsub.WithVisibility(time.Minute)})...)
		if err != nil {
			t.Fatal(err)
		}
		f.watch(sub)
		f.wait(time.Second)
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() {
				time.Sleep(time.Duration(rand.N(5000)) * time.Millisecond)
				var err error
				switch i % 5 {
				case 0:
					err = sub.Shutdown(context.Background())
				case 1:
					err = sub.Close()
				case 2:
					err = sub.Wait()
				case 3:
					cancel()
					<-sub.Done()
				case 4:
					timed, cancel := context.WithTimeout(context.Background(), time.Millisecond)
					defer cancel()
					if err = sub.Shutdown(timed); errors.Is(err, context.DeadlineExceeded) {
						err = nil
					}
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		cancel()
		expired, cancel := context.WithCancel(context.Background())
		cancel()
		if err := errors.Join(sub.Shutdown(expired), sub.Close(), sub.Wait()); err != nil {
			t.Errorf("after the end: %v", err)
		}
		if n := len(sub.InFlight()); n != 0 {
			t.Errorf("after the end %d are in flight", n)
		}
		f.wantHeld()
	})
}

// B192: nor does it matter that they come at one instant.
func TestStopsAtOneInstant(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		for range 200 {
			sub := f.subscribe(works(0))
			var all sync.WaitGroup
			var ready atomic.Int32
			const callers = 30
			for range callers {
				all.Go(func() {
					for ready.Add(1); ready.Load() < callers; { // those that run let go at once, not one after the other
						runtime.Gosched()
					}
					if err := sub.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}
	})
}

// A hook has to return at once. One that does not holds up the receiving, and
// Wait, but not a Shutdown whose time is over.
func TestShutdownReturnsThoughAHookBlocks(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		release := make(chan struct{})
		sub := f.subscribe(works(0), sqsub.WithHooks(sqsub.Hooks{Received: func(*sqsub.Delivery) { <-release }}))
		f.wait(time.Second)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := sub.Shutdown(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !near(f.now(), 2*time.Second, 100*time.Millisecond) {
			t.Errorf("Shutdown returned %v at %v", err, f.now())
		}
		close(release)
		if err := sub.Wait(); err != nil {
			t.Error(err)
		}
		f.wantVisible(1, "m")
	})
}

// A handler that stops its own subscription waits for itself, until the ctx it
// gave ends; its message is held meanwhile, and settled by what it returns.
func TestShutdownFromInsideAHandler(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		ready := make(chan struct{})
		var sub *sqsub.Subscription
		sub = f.subscribe(func(context.Context, *sqsub.Delivery) error {
			<-ready
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if err := sub.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Shutdown returned %v", err)
			}
			return nil
		}, sqsub.WithVisibility(time.Minute))
		close(ready)
		if err := sub.Wait(); err != nil || f.now() != 5*time.Second {
			t.Errorf("Wait returned %v at %v", err, f.now())
		}
		f.wantHeld()
	})
}

// A handler that lets go of its subscription as it returns is the last one that
// runs: a stop comes before everything that is ready at the same moment (B106).
func TestNothingStartsAfterAStop(t *testing.T) {
	for range 20 {
		bubble(t, "q", func(f *fixture) {
			f.send(numbered("m", 10)...)
			ctx, cancel := context.WithCancel(context.Background())
			receives := 0
			sub, err := sqsub.Subscribe(ctx, f.client, f.queue, f.recorded(func(context.Context, *sqsub.Delivery) error {
				time.Sleep(time.Second)
				receives = len(f.calls(receiveOp))
				cancel()
				return nil
			}), f.options([]sqsub.Option{sqsub.WithConcurrency(1), sqsub.WithPrefetch(5), sqsub.WithVisibility(time.Minute)})...)
			if err != nil {
				t.Fatal(err)
			}
			f.watch(sub)
			if err := sub.Wait(); err != nil {
				t.Error(err)
			}
			f.onlyRun()
			if n := len(f.calls(receiveOp)); n != receives {
				t.Errorf("%d receives were sent after the stop", n-receives)
			}
		})
	}
}

// A stop ends the pause after a failed receive at once, and nobody tries again.
func TestStopDuringBackoff(t *testing.T) {
	stopped(t, "q", slices.Concat(graceful, []stopping{closing}), func(f *fixture, s stopCase) {
		f.Inject(always(receiveOp, sqstest.Fault{Code: "AccessDenied"})) // which the SDK does not retry
		_, wantEnd := s.at(5*time.Minute, works(0), sqsub.WithVisibility(time.Minute))
		wantEnd(5 * time.Minute)
	})
}

// B103, B111: the network is gone, in the middle of everything. What is left
// undone is told, and nothing takes longer than it may.
func TestStopWithoutANetwork(t *testing.T) {
	for _, hang := range []bool{true, false} {
		t.Run(fmt.Sprintf("hang=%v", hang), func(t *testing.T) {
			stopped(t, "q", slices.Concat(graceful, []stopping{closing}), func(f *fixture, s stopCase) {
				f.send(numbered("m", 25)...)
				time.AfterFunc(4*time.Second, func() {
					f.Inject(func(sqstest.Call) sqstest.Fault { return sqstest.Fault{Hang: hang, Reset: !hang} })
				})
				drain := 10 * time.Second
				sub, wantEnd := s.at(5*time.Second, obeys(8*time.Second), sqsub.WithConcurrency(10), sqsub.WithPrefetch(10), sqsub.WithVisibility(time.Minute), sqsub.WithDrainTimeout(drain))
				if s.way.name == "Close" {
					drain = 0
				}
				if err := sub.Wait(); err != nil {
					t.Error(err)
				}
				if limit := 5*time.Second + drain + 11*time.Second; f.now() > limit {
					t.Errorf("ended at %v, want %v at the latest", f.now(), limit)
				}
				wantEnd(f.now())
				if st := sub.Stats(); st.Unsettled != 20 {
					t.Errorf("%d unsettled, want all 20", st.Unsettled)
				}
				if n := len(f.logged("level=ERROR")); n != 20 {
					t.Errorf("%d errors logged, want one for each message", n)
				}
			})
		})
	}
}

// The same on a FIFO queue with its groups full: each group is released in order,
// but no group waits for another, so that their number does not count.
func TestFIFOStopWithoutANetwork(t *testing.T) {
	for _, groups := range []int{2, 30} {
		bubble(t, "q.fifo", func(f *fixture) {
			for g := range groups {
				f.sendTo(fmt.Sprint(g), numbered(fmt.Sprint("g", g, "-"), 5)...)
			}
			sub := f.subscribe(obeys(time.Hour), sqsub.WithConcurrency(groups), sqsub.WithVisibility(10*time.Minute))
			f.wait(5 * time.Second)
			held := uint64(sub.Stats().InFlight)
			f.Inject(func(sqstest.Call) sqstest.Fault { return sqstest.Fault{Hang: true} })
			sub.Close()
			if took := f.now() - 5*time.Second; took > 11*time.Second {
				t.Errorf("%d groups: Close took %v", groups, took)
			}
			if st := sub.Stats(); st.Unsettled != held || held <= uint64(groups) {
				t.Errorf("%d groups: %d of %d are unsettled", groups, st.Unsettled, held)
			}
			for _, r := range f.Results() {
				if r.Outcome == sqsub.Unsettled && !errors.Is(r.Err, context.DeadlineExceeded) {
					t.Errorf("%d groups: %s is unsettled for %v, which does not tell the reason", groups, r.body, r.Err)
				}
			}
		})
	}
}

// WithDrainTimeout(0) gives handlers all the time they want, but not the deletes
// that cannot succeed: those end a while after the last handler, also the ones of
// earlier handlers.
func TestStopWithoutADrainTimeoutAndADeniedDelete(t *testing.T) {
	for handlers, last := range map[string]time.Duration{"1s": 5 * time.Second, "10s": 10 * time.Second, "10s 5m": 5 * time.Minute} {
		stopped(t, "q", graceful, func(f *fixture, s stopCase) {
			f.send(strings.Fields(handlers)...)
			f.Inject(always(deleteOp, sqstest.Fault{Code: "AccessDenied"}))
			sub, wantEnd := s.at(5*time.Second, func(ctx context.Context, d *sqsub.Delivery) error {
				working, err := time.ParseDuration(d.Body())
				time.Sleep(working)
				return errors.Join(err, ctx.Err())
			}, sqsub.WithVisibility(time.Minute), sqsub.WithDrainTimeout(0))
			wantEnd(last + 41*time.Second)
			if st := sub.Stats(); st.Unsettled != st.Received {
				t.Errorf("%s: stats %+v, want all unsettled", handlers, st)
			}
			if n := len(f.logged("level=ERROR", "not deleted", "AccessDenied")); n != len(strings.Fields(handlers)) {
				t.Errorf("%s: logged %q, want one error for each message", handlers, f.loud())
			}
		})
	}
}

// A hung delete delays the end by the time of a call, not for ever.
func TestStopWithAHungDelete(t *testing.T) {
	stopped(t, "q", slices.Concat(graceful, []stopping{closing}), func(f *fixture, s stopCase) {
		f.send("m")
		f.Inject(always(deleteOp, sqstest.Fault{Hang: true}))
		sub, wantEnd := s.at(5*time.Second, works(time.Second), sqsub.WithVisibility(30*time.Second), sqsub.WithDrainTimeout(20*time.Second))
		if err := sub.Wait(); err != nil {
			t.Error(err)
		}
		limit := 36 * time.Second
		if s.way.name == "Close" {
			limit = 16 * time.Second
		}
		if f.now() > limit {
			t.Errorf("ended at %v, want %v at the latest", f.now(), limit)
		}
		wantEnd(f.now())
		if r := f.onlyResult(); r.Outcome != sqsub.Unsettled || r.Err == nil {
			t.Errorf("result %+v", r)
		}
		if len(f.logged("level=ERROR")) != 1 {
			t.Errorf("logged %q", f.loud())
		}
		if m := f.held()["m"]; m.VisibleAt.Sub(f.start) > f.now()+30*time.Second {
			t.Errorf("m stays hidden until %v, longer than its timeout after the end", m.VisibleAt.Sub(f.start))
		}
	})
}

// A delete that fails at first is retried within the stop.
func TestStopRetriesSettling(t *testing.T) {
	stopped(t, "q", graceful, func(f *fixture, s stopCase) {
		f.send(numbered("m", 4)...)
		var mu sync.Mutex
		seen := map[string]int{}
		f.Inject(func(c sqstest.Call) sqstest.Fault {
			mu.Lock()
			defer mu.Unlock()
			op := strings.TrimSuffix(c.Op, "Batch")
			if seen[op]++; (op == deleteOp || op == changeOp) && seen[op] <= 3 {
				return sqstest.Fault{Code: "RequestThrottled"}
			}
			return sqstest.Fault{}
		})
		sub, wantEnd := s.at(time.Second, works(5*time.Second), sqsub.WithConcurrency(2), sqsub.WithPrefetch(2), sqsub.WithVisibility(time.Minute))
		if err := sub.Wait(); err != nil {
			t.Error(err)
		}
		if f.now() > 8*time.Second {
			t.Errorf("ended at %v", f.now())
		}
		wantEnd(f.now())
		if st := sub.Stats(); st.Deleted != 2 || st.Released != 2 {
			t.Errorf("%d deleted, %d released", st.Deleted, st.Released)
		}
	})
}

// A dead connection of the last poll ends the stop by the limit of the call, or
// of the drain, whichever is first (B103).
func TestStopWithADeadPoll(t *testing.T) {
	for drain, want := range map[time.Duration]time.Duration{0: 30 * time.Second, 10 * time.Second: 15 * time.Second} {
		stopped(t, "q", graceful, func(f *fixture, s stopCase) {
			f.Inject(always(receiveOp, sqstest.Fault{Hang: true}))
			sub, wantEnd := s.at(5*time.Second, works(0), sqsub.WithVisibility(time.Minute), sqsub.WithDrainTimeout(drain))
			wantEnd(want)
			if st := sub.Stats(); st.ReceivesAbandoned != 1 {
				t.Errorf("%d receives abandoned", st.ReceivesAbandoned)
			}
			if n := len(f.logged("level=WARN", "receive")); n != 1 {
				t.Errorf("drain %v: logged %q, want one warning that messages may be hidden", drain, f.loud())
			}
		})
	}
}

// The last poll fails after the stop: it is the last one, also for the SDK.
func TestStopLetsNobodyRetryTheLastPoll(t *testing.T) {
	stopped(t, "q", graceful, func(f *fixture, s stopCase) {
		f.Inject(always(receiveOp, sqstest.Fault{Lag: 10 * time.Second, Code: "InternalError"}))
		_, wantEnd := s.at(5*time.Second, works(0), sqsub.WithVisibility(time.Minute))
		wantEnd(10 * time.Second)
	})
}

// B120, B198: a normal stop is quiet, and counts no failure.
func TestNormalStopsAreQuiet(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		for i := range 20 {
			f.send(numbered(fmt.Sprint("m", i, "-"), 3)...)
			sub := f.subscribe(works(time.Second), sqsub.WithVisibility(30*time.Second))
			time.Sleep(time.Duration(rand.N(3000)) * time.Millisecond)
			f.stop(sub)
			if st := sub.Stats(); st.ReceiveFailures+st.ExtendFailures+st.VisibilityLost+st.Unsettled+st.ReceivesAbandoned != 0 {
				t.Errorf("%+v", st)
			}
		}
		if loud := f.loud(); len(loud) > 0 {
			t.Errorf("logged %q", loud)
		}
	})
}

// B107, B112, B115: consumers come and go at random; what was received is
// handled or released, and nothing is hidden when the last has gone.
func TestManyRestarts(t *testing.T) {
	for _, queue := range []string{"q", "q.fifo"} {
		bubble(t, queue, func(f *fixture) {
			const groups, each = 10, 20
			sent := map[string]bool{}
			for g := range groups {
				for _, body := range numbered(fmt.Sprint("g", g, "-"), each) {
					f.sendTo(fmt.Sprint(g), body)
					sent[body] = true
				}
			}
			s := newStory()
			var wg sync.WaitGroup
			for range 25 {
				wg.Go(func() {
					time.Sleep(rand.N(75 * time.Second))
					sub := f.subscribe(s.tells(func(context.Context, *sqsub.Delivery) error {
						time.Sleep(rand.N(6 * time.Second))
						return nil
					}), sqsub.WithConcurrency(5), sqsub.WithPrefetch(5), sqsub.WithVisibility(4*time.Second), sqsub.WithWaitTime(2*time.Second))
					time.Sleep(rand.N(20 * time.Second))
					f.stop(sub)
				})
			}
			wg.Wait()
			for _, m := range f.Messages(f.queue) {
				if m.State != sqstest.Visible {
					t.Errorf("%s is %s after the last stop", m.Body, m.State)
				}
				delete(sent, m.Body)
			}
			handled := 0
			for g, bodies := range s.successes {
				if f.queue == "q.fifo" && !slices.Equal(bodies, numbered(fmt.Sprint("g", g, "-"), each)[:len(bodies)]) {
					t.Errorf("group %s: %v", g, bodies)
				}
				for _, body := range bodies {
					if !sent[body] {
						t.Errorf("%s was handled twice, or is still there", body)
					}
					delete(sent, body)
					handled++
				}
			}
			if len(sent) > 0 || handled == 0 {
				t.Errorf("lost: %v", sent)
			}
		})
	}
}

// Each message received has one outcome in the Stats when all is over, whatever
// happened: every verdict, losses, copies, calls that fail, and a stop in the
// middle that runs out of time.
func TestStatsBalance(t *testing.T) {
	for _, queue := range []string{"q", "q.fifo"} {
		bubble(t, queue, func(f *fixture) {
			bodies := []string{"good", "slow", "fail", "later", "drop", "panic", "exit", "lost", "late"} // see byOrder
			for i := range 90 {
				f.sendTo(fmt.Sprint(i%20), bodies[i%len(bodies)])
			}
			bad := weather(1)
			f.Inject(func(c sqstest.Call) sqstest.Fault {
				for _, body := range []string{"lost", "late"} {
					if gone := f.lost(body)(c); gone.Code != "" {
						return gone
					}
				}
				fault := bad(c)
				fault.Duplicate = c.Op == receiveOp && f.now() < 30*time.Second
				return fault
			})
			sub := f.subscribe(byOrder, sqsub.WithVisibility(10*time.Second), sqsub.WithConcurrency(10), sqsub.WithPrefetch(10), sqsub.WithBatchDelay(0))
			f.wait(41 * time.Second)
			for _, group := range numbered("last", 30) { // more than can be started before the stop
				f.sendTo(group, "slow")
			}
			f.wait(42 * time.Second)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			sub.Shutdown(ctx)
			sub.Wait()
			outcomes, late := map[sqsub.Outcome]uint64{}, uint64(0)
			for _, r := range f.Results() {
				outcomes[r.Outcome]++
				if r.Late {
					late++
				}
			}
			st := sub.Stats() // that their sum is right is checked after every test
			if st.DeletedLate != late || late == 0 {
				t.Errorf("%d were deleted late by the Stats, %d by the hooks; want the same, and some", st.DeletedLate, late)
			}
			for outcome, n := range map[sqsub.Outcome]uint64{
				sqsub.Deleted: st.Deleted, sqsub.Discarded: st.Discarded, sqsub.Retried: st.Retried,
				sqsub.Released: st.Released, sqsub.Unsettled: st.Unsettled, sqsub.Lost: st.Lost,
			} {
				if n != outcomes[outcome] || n == 0 {
					t.Errorf("%d are %s by the Stats, %d by the hooks; want the same, and some", n, outcome, outcomes[outcome])
				}
			}
		})
	}
}

// B113, B186: after Wait no handler runs, whichever stop it was.
func TestNothingRunsAfterTheStop(t *testing.T) {
	for _, way := range slices.Concat(graceful, []stopping{closing}) {
		bubble(t, "q", func(f *fixture) {
			f.send(numbered("m", 30)...)
			var mu sync.Mutex
			running := 0
			count := func(n int) int {
				mu.Lock()
				defer mu.Unlock()
				running += n
				return running
			}
			sub, wantEnd := stopCase{f, way}.at(1500*time.Millisecond, func(context.Context, *sqsub.Delivery) error {
				count(1)
				defer count(-1)
				time.Sleep(time.Second)
				return nil
			}, sqsub.WithVisibility(30*time.Second), sqsub.WithPrefetch(10))
			sub.Wait()
			if n := count(0); n != 0 {
				t.Errorf("%d handlers run after Wait", n)
			}
			calls := len(f.Calls())
			wantEnd(2 * time.Second)
			f.wait(time.Hour)
			if n := len(f.Calls()) - calls; n != 0 {
				t.Errorf("%d calls after Wait", n)
			}
		})
	}
}

// A message that was handled, and whose delete was refused then, comes back by the
// last receive of a stop, or waits for a slot when the stop comes: it is deleted,
// not made visible for another consumer to handle it again.
func TestStopDeletesWhatWasHandled(t *testing.T) {
	for name, busy := range map[string]bool{"by the last receive": false, "waiting for a slot": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.send("m")
				f.Inject(always(deleteOp, sqstest.Fault{Code: "ValidationException", Status: 400}))
				sub := f.subscribe(func(ctx context.Context, d *sqsub.Delivery) error {
					if d.Body() == "slow" {
						return works(30*time.Second)(ctx, d)
					}
					return works(time.Second)(ctx, d)
				}, sqsub.WithVisibility(10*time.Second), sqsub.WithConcurrency(1), sqsub.WithPrefetch(5))
				f.wait(5 * time.Second)
				f.Inject(nil)
				if busy {
					f.send("slow")
					f.wait(15 * time.Second)
				}
				f.stop(sub)
				f.wantHeld()
				if n := sub.Stats().Released; n != 0 {
					t.Errorf("%d released", n)
				}
			})
		})
	}
}

// A copy of a message whose handler runs, which the last receive of a stop brings,
// waits for what comes of it as one does that came before the stop.
func TestStopKeepsALateCopyOfARunningMessage(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.Inject(f.lapse(10 * time.Second))
		sub := f.subscribe(works(20*time.Second), sqsub.WithVisibility(10*time.Second))
		f.wait(5 * time.Second)
		ended := make(chan error, 1)
		go func() { ended <- sub.Shutdown(f.Context()) }()
		f.wait(12 * time.Second)
		if n := len(f.receive(0)); n > 0 {
			t.Errorf("a rival receives the message that runs here")
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		f.wantHeld()
	})
}

// A request takes no longer than the shortest hold in it: a delivery near the end
// of its hold must not make the release of others fail.
func TestStopReleasesApartWhatIsNearItsEnd(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("s1")
		sub := f.subscribe(func(ctx context.Context, d *sqsub.Delivery) error {
			if d.Body() == "s1" {
				return works(29*time.Second)(ctx, d)
			}
			return works(time.Minute)(ctx, d)
		}, sqsub.WithVisibility(30*time.Second), sqsub.WithMaxHold(30*time.Second), sqsub.WithConcurrency(1), sqsub.WithPrefetch(9))
		f.wait(time.Second)
		f.send("s2")
		f.wait(2 * time.Second)
		f.send("near its end")
		f.wait(30 * time.Second)
		f.Inject(always(changeOp, sqstest.Fault{Delay: 50 * time.Millisecond}))
		f.send("B", "C", "D", "E")
		f.wait(31720 * time.Millisecond)
		f.stop(sub)
		if n := sub.Stats().Released; n < 4 {
			t.Errorf("%d released, want four at least: %v", n, f.Results())
		}
	})
}
