package sqsub_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// twice makes the first receive bring each message twice, with two handles (R10).
func twice() func(sqstest.Call) sqstest.Fault {
	return on(receiveOp, func(n int) sqstest.Fault { return sqstest.Fault{Duplicate: n == 0} })
}

// lapse makes every extension fail until then, counted from the start.
func (f *fixture) lapse(until time.Duration) func(sqstest.Call) sqstest.Fault {
	return func(c sqstest.Call) sqstest.Fault {
		if strings.HasPrefix(c.Op, changeOp) && f.now() < until {
			return sqstest.Fault{Code: "InternalError"}
		}
		return sqstest.Fault{}
	}
}

// B046, B045: of two copies in one response the second waits, held, and is
// deleted with its own receipt once the first has succeeded.
func TestCopiesInOneResponse(t *testing.T) {
	eachWay(t, "q", func(f *fixture) {
		f.send("m")
		f.Inject(twice())
		sub := f.subscribe(works(time.Minute), sqsub.WithVisibility(10*time.Second))
		f.wait(30 * time.Second)
		states := []sqsub.State{}
		for _, h := range sub.InFlight() {
			states = append(states, h.State)
			if left := time.Until(h.HiddenUntil); left < 5*time.Second-250*time.Millisecond {
				t.Errorf("the delivery that is %s is hidden for %v more only", h.State, left)
			}
		}
		slices.Sort(states)
		if want := []sqsub.State{sqsub.Running, sqsub.WaitingForPrevious}; !slices.Equal(states, want) {
			t.Errorf("in flight: %v, want %v", states, want)
		}
		f.wait(61 * time.Second)
		f.onlyRun()
		f.wantHeld()
		receipts := map[string]bool{}
		for _, e := range f.deletes() {
			receipts[e.receipt] = true
		}
		if len(receipts) != 2 {
			t.Errorf("%d receipts were deleted with, want both", len(receipts))
		}
		f.stop(sub)
		if st := sub.Stats(); st.Deleted != 2 || st.Received != 2 {
			t.Errorf("%d received, %d deleted", st.Received, st.Deleted)
		}
	})
}

// B025: what was held for a copy ends with the copy, and does not run into the
// 12 hours on its own.
func TestCopiesLeaveNothingBehind(t *testing.T) {
	eachWay(t, "q", func(f *fixture) {
		f.send("m")
		f.Inject(twice())
		sub := f.subscribe(works(10*time.Minute), sqsub.WithVisibility(time.Minute))
		f.wait(11 * time.Minute)
		f.handledOnce(1)
		before := len(f.entries())
		f.wait(13 * time.Hour)
		if late := f.entries()[before:]; len(late) > 0 {
			t.Errorf("after the end: %v", late)
		}
		f.stop(sub)
		if loud := f.loud(); len(loud) > 0 {
			t.Errorf("logged %q", loud)
		}
	})
}

// B025: nor is anything left of a copy that is dropped, since a newer one waits in its
// group: once it has its outcome it is neither extended nor lost.
func TestDroppedCopiesLeaveNothingBehind(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.send("m1", "m2", "m3")
		f.Inject(twice())
		finished := map[string]time.Duration{} // by receipt handle
		hooks := f.hooks()
		note := hooks.Finished
		hooks.Finished = func(d *sqsub.Delivery, r sqsub.Result) {
			note(d, r)
			f.mu.Lock()
			defer f.mu.Unlock()
			finished[*d.Message.ReceiptHandle] = f.now()
		}
		hooks.Lost = func(d *sqsub.Delivery, cause error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if at, ok := finished[*d.Message.ReceiptHandle]; ok {
				t.Errorf("%s was lost at %v, after its outcome at %v: %v", d.Body(), f.now(), at, cause)
			}
		}
		sub := f.subscribe(works(20*time.Second), sqsub.WithHooks(hooks))
		f.wait(2 * time.Minute)
		f.stop(sub)
		dropped := 0
		for _, r := range f.Results() {
			if r.Outcome == sqsub.Lost {
				dropped++
			}
		}
		if dropped == 0 {
			t.Error("no copy was dropped")
		}
		for _, e := range f.changes() {
			if at, ok := finished[e.receipt]; ok && e.at > at {
				t.Errorf("%v follows its outcome at %v", e, at)
			}
		}
	})
}

// B087: if the first fails, the second runs, and no delay is set through the
// first's receipt, which would act on the message all the same (V8).
func TestCopyRunsAfterAFailure(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.Inject(twice())
		sub := f.subscribe(failing(takes(time.Second), map[string]int{"m": 1}), retriesAfter(time.Minute), sqsub.WithVisibility(20*time.Second))
		f.wait(3 * time.Second)
		runs := f.Runs()
		if len(runs) != 2 || runs[1].from != time.Second {
			t.Errorf("runs: %+v, want the second at 1s", runs)
		}
		if changes := f.changes(); len(changes) != 0 {
			t.Errorf("changes: %v, want none", changes)
		}
		f.wantHeld()
		f.stop(sub)
	})
}

// A message that comes back while its earlier delivery still runs here does not
// run beside itself.
func TestRedeliveryWaitsForTheLostOne(t *testing.T) {
	for _, succeeds := range []bool{true, false} {
		bubble(t, "q", func(f *fixture) {
			f.send("m")
			f.Inject(f.lapse(10 * time.Second))
			handler := failing(takes(32*time.Second), map[string]int{})
			if !succeeds {
				handler = failing(takes(32*time.Second), map[string]int{"m": 1})
			}
			sub := f.subscribe(handler, retriesAfter(time.Hour), sqsub.WithVisibility(10*time.Second))
			f.wait(29 * time.Second)
			if n := len(sub.InFlight()); n != 2 {
				t.Errorf("%d in flight, want the lost one and its successor", n)
			}
			f.wait(2 * time.Minute)
			f.wantHeld()
			runs := f.Runs()
			if succeeds && len(runs) != 1 {
				t.Errorf("a message handled successfully ran %d times", len(runs))
			}
			if !succeeds && (len(runs) != 2 || runs[1].from != 32*time.Second) {
				t.Errorf("runs: %+v, want the second when the first has failed", runs)
			}
			newest := f.Calls()
			newest = slices.DeleteFunc(newest, func(c sqstest.Call) bool { return c.Op != receiveOp || len(c.Entries) == 0 })
			last := f.deletes()[len(f.deletes())-1]
			if want := newest[len(newest)-1].Entries[0].ReceiptHandle; last.receipt != want {
				t.Error("the last delete is not with the newest receipt")
			}
			for _, e := range f.changes() {
				if e.visibility != 10*time.Second {
					t.Errorf("%v: the lost one must set no delay", e)
				}
			}
			f.stop(sub)
		})
	}
}

// A delete that left in time and was confirmed when the hold had ended may have
// come after the next delivery: that is here on its way, and only deleted.
func TestDeleteConfirmedAfterTheEndOfTheHold(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		var receives atomic.Int32 // they may arrive together
		f.Inject(func(c sqstest.Call) sqstest.Fault {
			switch strings.TrimSuffix(c.Op, "Batch") {
			case changeOp:
				return sqstest.Fault{Status: 500}
			case deleteOp:
				return sqstest.Fault{Delay: 3 * time.Second}
			case receiveOp:
				if receives.Add(1) == 2 {
					return sqstest.Fault{Lag: 4 * time.Second}
				}
			}
			return sqstest.Fault{}
		})
		sub := f.subscribe(works(9*time.Second), sqsub.WithVisibility(10*time.Second), sqsub.WithConcurrency(2))
		f.wait(time.Minute)
		f.stop(sub)
		if calls := f.calls(receiveOp); len(calls[1].Entries) != 1 {
			f.Fatalf("the second receive does not bring the message: %+v", calls[1])
		}
		if runs := f.Runs(); len(runs) != 1 {
			f.Errorf("a message handled successfully ran %d times", len(runs))
		}
	})
}

// A successor that waits can be lost, too: then it is dropped, and the next one
// takes its place.
func TestSuccessorIsLostWhileItWaits(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.Inject(f.lapse(45 * time.Second))
		sub := f.subscribe(failing(takes(time.Minute), map[string]int{"m": 1}), sqsub.WithVisibility(10*time.Second))
		f.wait(59 * time.Second)
		if n := len(sub.InFlight()); n != 2 {
			t.Errorf("%d in flight, want the lost one and its last successor", n)
		}
		f.wait(3 * time.Minute)
		f.stop(sub)
		f.wantHeld()
		if runs := f.Runs(); len(runs) != 2 || runs[1].from != time.Minute {
			t.Errorf("runs: %+v, want the second when the first has failed", runs)
		}
	})
}

// B045: a message that is handed back and received again before the loop has
// noted the first delivery's end is handled, each time.
func TestHandedBackAndReceivedAtOnce(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.Inject(always(changeOp, sqstest.Fault{Lag: 50 * time.Millisecond})) // it is visible before the answer is there
		const times = 200
		sub := f.subscribe(failing(takes(0), map[string]int{"m": times}), retriesAfter(0), sqsub.WithVisibility(30*time.Second))
		f.wait(time.Minute)
		f.wantHeld()
		if n := len(f.Runs()); n != times+1 {
			t.Errorf("%d runs, want %d", n, times+1)
		}
		if st := sub.Stats(); st.Extended != 0 {
			t.Errorf("%d extensions", st.Extended)
		}
		f.stop(sub)
	})
}

// A delete that failed to the end is remembered: the redelivery is deleted, not
// run again.
func TestDeleteThatFailedIsRemembered(t *testing.T) {
	for _, queue := range []string{"q", "q.fifo"} {
		bubble(t, queue, func(f *fixture) {
			f.send("m")
			f.Inject(always(deleteOp, sqstest.Fault{Code: "InternalError"}))
			sub := f.subscribe(works(time.Second), sqsub.WithVisibility(10*time.Second), sqsub.WithMaxHold(30*time.Second))
			f.wait(5 * time.Minute) // several deliveries that cannot be deleted either
			f.onlyRun()
			f.wantHeld("m")
			f.Inject(nil)
			f.wait(6 * time.Minute)
			f.wantHeld()
			f.onlyRun()
			f.stop(sub)
			st := sub.Stats()
			if st.Unsettled == 0 || st.Deleted == 0 {
				t.Errorf("%d unsettled, %d deleted", st.Unsettled, st.Deleted)
			}
			if n := len(f.logged("level=INFO", "deleted, not handled again")); n == 0 || n >= int(st.Received) {
				t.Errorf("%d lines say so of %d deliveries", n, st.Received)
			}
		})
	}
}

// A discarded message counts as handled as well.
func TestDiscardThatFailedIsRemembered(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.Inject(always(deleteOp, sqstest.Fault{Code: "InternalError"}))
		sub := f.subscribe(fails(sqsub.Discard(errHandler)), sqsub.WithVisibility(10*time.Second), sqsub.WithMaxHold(20*time.Second))
		f.wait(time.Minute)
		f.Inject(nil)
		f.wait(2 * time.Minute)
		f.onlyRun()
		f.wantHeld()
		f.stop(sub)
	})
}

// The memory ends after an hour: by then a redelivery may be an operator's
// redrive, say.
func TestMemoryEnds(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.Inject(always(deleteOp, sqstest.Fault{Code: "InvalidAddress"})) // which is final
		sub := f.subscribe(works(time.Second), sqsub.WithVisibility(2*time.Hour))
		f.wait(time.Hour)
		f.Inject(nil)
		f.wait(3 * time.Hour)
		f.wantHeld()
		if n := len(f.Runs()); n != 2 {
			t.Errorf("%d runs, want a second one, two hours after the first", n)
		}
		f.stop(sub)
	})
}

// A message that the handler failed is not remembered.
func TestFailureIsNotRemembered(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(failing(takes(0), map[string]int{"m": 3}), retriesAfter(time.Second), sqsub.WithVisibility(10*time.Second))
		f.wait(10 * time.Second)
		if n := len(f.Runs()); n != 4 {
			t.Errorf("%d runs, want 4", n)
		}
		f.stop(sub)
	})
}

// B176, B183: each failure is a receive more, and after the last one the message
// is in the dead-letter queue, whatever its copies.
func TestPoisonReachesTheDeadLetterQueue(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.create("dead")
		f.set("RedrivePolicy", redrive("dead", 3))
		f.send("poison", "good")
		handler := failing(takes(40*time.Second), map[string]int{"poison": -1})
		sub := f.subscribe(handler, sqsub.WithVisibility(30*time.Second))
		f.drained(time.Hour)
		f.stop(sub)
		var counts []int
		for _, r := range f.Runs() {
			if r.body == "poison" {
				counts = append(counts, r.count)
			}
		}
		if want := []int{1, 2, 3}; !slices.Equal(counts, want) {
			t.Errorf("poison ran with receive counts %v, want %v", counts, want)
		}
		if dead := f.Messages("dead"); len(dead) != 1 || dead[0].Body != "poison" {
			t.Errorf("dead letters: %v", dead)
		}
		if deletes := f.deletes(); len(deletes) != 1 || deletes[0].body != "good" {
			t.Errorf("deletes: %v, want that of the good one", deletes)
		}
	})
}

// Handlers that go on after their messages were lost take up their own slots, not
// those that are free for others, when the messages come again.
func TestUnheededLossLeavesSlotsToOthers(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("hung 1", "hung 2", "hung 3")
		f.Inject(always(changeOp, sqstest.Fault{Code: "AccessDenied", Status: 403}))
		sub := f.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
			if strings.HasPrefix(d.Body(), "hung") {
				time.Sleep(10 * time.Minute)
			}
			return nil
		}, sqsub.WithConcurrency(6), sqsub.WithVisibility(10*time.Second))
		f.wait(36 * time.Second) // the copies are lost too, twice
		f.Inject(nil)
		f.sendMany(30)
		f.wait(41 * time.Second)
		if st := sub.Stats(); st.Deleted != 30 || st.InFlight != 6 {
			t.Errorf("%+v", st)
		}
		if n := len(f.logged("level=WARN", "delivered again")); n != 3 {
			t.Errorf("logged %q", f.loud())
		}
		f.wait(11 * time.Minute)
		f.stop(sub)
		f.wantHeld()
	})
}

func settlingDenied(c sqstest.Call) sqstest.Fault {
	if strings.HasPrefix(c.Op, deleteOp) || strings.HasPrefix(c.Op, changeOp) {
		return sqstest.Fault{Code: "AccessDenied", Status: 403}
	}
	return sqstest.Fault{}
}

// Copies that wait for a delete to be confirmed are going to need a slot each: beyond
// as many as there are, they take the place of other messages.
func TestCopiesBehindUnconfirmedDeletesAreBounded(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.sendMany(2000)
		f.Inject(settlingDenied)
		const slots = 10
		sub := f.subscribe(works(100*time.Millisecond), sqsub.WithConcurrency(slots), sqsub.WithVisibility(5*time.Second))
		for i := range 600 {
			f.wait(time.Duration(i) * 200 * time.Millisecond)
			if st := sub.Stats(); st.Waiting > 2*slots || st.InFlight > 3*slots+100 {
				t.Fatalf("%+v", st)
			}
		}
		sub.Close()
	})
}

// When deletes are confirmed again, so are the slots of the copies that waited for that.
func TestReceivingGoesOnAfterUnconfirmedDeletes(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.sendMany(200)
		f.Inject(settlingDenied)
		sub := f.subscribe(works(100*time.Millisecond), sqsub.WithConcurrency(10), sqsub.WithVisibility(2*time.Second))
		f.wait(2 * time.Minute)
		f.Inject(nil)
		f.wait(12 * time.Minute)
		f.wantHeld()
		f.stop(sub)
	})
}

// A message that can neither be deleted nor extended comes again and again. It takes
// no slot from others.
func TestOneBadMessageStopsNoOther(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("bad")
		f.Inject(func(c sqstest.Call) (fault sqstest.Fault) {
			if strings.HasPrefix(c.Op, deleteOp) || strings.HasPrefix(c.Op, changeOp) {
				for i, e := range c.Entries {
					if f.body(e.MessageID) == "bad" {
						fault.FailEntries = append(fault.FailEntries, i)
					}
				}
				if len(fault.FailEntries) == len(c.Entries) {
					fault.Code = "InternalFailure"
				}
			}
			return fault
		})
		sub := f.subscribe(works(100*time.Millisecond), sqsub.WithConcurrency(1), sqsub.WithVisibility(5*time.Second))
		f.wait(7 * time.Second)
		f.sendMany(500)
		f.wait(107 * time.Second)
		if n := sub.Stats().Deleted; n < 450 {
			t.Errorf("%d of 500 are handled after 100 s", n)
		}
		f.Inject(nil)
		sub.Close()
	})
}

// B093, B177, B178, B095: what a handler returns is what goes over the wire.
func TestVerdictOnTheWire(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"error", errHandler, "36s ChangeMessageVisibility(m, 7s)"},
		{"retry", sqsub.RetryAfter(5*time.Second, errHandler), "36s ChangeMessageVisibility(m, 5s)"},
		{"retry without an error", sqsub.RetryAfter(time.Minute, nil), "36s ChangeMessageVisibility(m, 1m0s)"},
		{"retry at once", sqsub.RetryAfter(0, errHandler), "36s ChangeMessageVisibility(m, 0s)"},
		{"discard", sqsub.Discard(errHandler), "36s DeleteMessage(m)"},
		{"success", nil, "36s DeleteMessage(m)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.send("m")
				sub := f.subscribe(func(context.Context, *sqsub.Delivery) error {
					time.Sleep(36 * time.Second)
					return c.err
				}, retriesAfter(6500*time.Millisecond), sqsub.WithVisibility(30*time.Second), sqsub.WithBatchDelay(0))
				f.wait(36*time.Second + 500*time.Millisecond)
				entries := f.entries()
				if got := entries[len(entries)-1].String(); got != c.want {
					t.Errorf("last call %q, want %q", got, c.want)
				}
				sub.Close()
			})
		})
	}
}
