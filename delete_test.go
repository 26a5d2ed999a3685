package sqsub_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// While a delete is tried again, the message stays hidden, so that nobody runs
// what is done already.
func TestDeleteIsRetriedWhileExtending(t *testing.T) {
	for name, fault := range passing {
		t.Run(name, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.send("m")
				f.Inject(f.during(deleteOp, 0, 70*time.Second, fault))
				sub := f.subscribe(works(time.Second), sqsub.WithVisibility(10*time.Second))
				f.wait(0)
				f.rivals(2)
				f.wait(2 * time.Minute)
				f.stop(sub)
				f.undisturbed()
				deletes := f.deletes()
				if tries := len(deletes); tries > 60 || tries < 4 && !fault.After {
					f.Errorf("%d deletes in a minute", tries)
				}
				if n := len(f.logged("level=WARN")); n > 1 {
					f.Errorf("%d warnings: %q", n, f.loud())
				}
				if n := len(f.logged("level=ERROR")); n > 0 {
					f.Errorf("errors: %q", f.loud())
				}
				// The extensions go on in the rhythm, and end with the delete.
				done := deletes[len(deletes)-1].done
				if !fault.After && len(f.extended()) < 10 {
					f.Errorf("extended at %v only", f.extended())
				}
				for _, e := range f.changes() {
					if e.at > done {
						f.Errorf("%v after the delete at %v", e, done)
					}
				}
			})
		})
	}
}

// B080, B083, B098: each entry of a batch has an outcome of its own.
func TestDeleteEntriesFailOneByOne(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		bodies := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
		f.send(bodies...)
		f.Inject(on(deleteOp, func(n int) sqstest.Fault {
			if n == 0 {
				return sqstest.Fault{FailEntries: []int{2, 5}}
			}
			return sqstest.Fault{}
		}))
		sub := f.subscribe(works(time.Second))
		f.wait(10 * time.Second)
		f.stop(sub)
		if n := len(f.deletes()); n != 12 {
			f.Errorf("%d entries, want ten and two more: %v", n, f.deletes())
		}
		if st := sub.Stats(); st.Deleted != 10 || st.Unsettled != 0 || len(f.Results()) != 10 {
			f.Errorf("stats %+v", st)
		}
		if loud := f.loud(); len(loud) > 0 {
			f.Errorf("logged %q", loud)
		}
		f.wantHeld()
	})
}

// B098, B077: what can never succeed is reported once and not tried for ever.
func TestDeleteThatCanNeverSucceed(t *testing.T) {
	for _, answer := range append(slices.Clone(goneAnswers), sqstest.Fault{Code: "InvalidParameterValue", Message: "whatever"}) {
		t.Run(answer.Code+answer.Message, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.send("m")
				f.Inject(always(deleteOp, answer))
				sub := f.subscribe(works(time.Second), sqsub.WithConcurrency(1))
				f.wait(10 * time.Second)
				if n := len(f.deletes()); n > 2 {
					f.Errorf("%d deletes", n)
				}
				if n := len(f.logged("level=ERROR", "not deleted", answer.Code)); n != 1 {
					f.Errorf("logged %q, want one error", f.loud())
				}
				if r := f.onlyResult(); r.Outcome == sqsub.Deleted || r.Err == nil {
					f.Errorf("result %+v", r)
				}
				f.Inject(nil)
				f.wait(time.Minute)
				f.stop(sub)
				// It comes back, and is deleted instead of run again.
				f.onlyRun()
				f.wantHeld()
			})
		})
	}
}

// Q12: a role may allow to receive and not to delete. One warning names the
// action; the handlers that wait are not many.
func TestDeleteIsDenied(t *testing.T) {
	eachWay(t, "q", func(f *fixture) {
		for range 15 {
			f.send("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
		}
		denied := sqstest.Fault{Code: "AccessDenied", Status: 403, Message: "not authorized to perform: sqs:deletemessage"}
		f.Inject(f.during(deleteOp, 0, time.Minute, denied))
		const concurrency = 5
		sub := f.subscribe(works(time.Millisecond), sqsub.WithConcurrency(concurrency))
		for range 11 {
			f.wait(f.now() + 5*time.Second)
			if n := sub.Stats().InFlight; n > 2*concurrency+100 {
				f.Errorf("%d in flight", n) // B193
			}
		}
		if n := len(f.logged("level=WARN", "sqs:DeleteMessage")); n != 1 {
			f.Errorf("%d warnings name the action: %q", n, f.loud())
		}
		if st := sub.Stats(); st.VisibilityLost > 0 {
			f.Errorf("stats %+v", st)
		}
		if n := len(f.logged("level=ERROR", "receiving pauses")); n != 1 {
			f.Errorf("%d errors say that receiving pauses: %q", n, f.loud())
		}
		if st := sub.Stats(); st.Settling != st.InFlight || st.Settling < 100 || st.SettleFailures == 0 {
			f.Errorf("%+v do not tell that deletes fail", st)
		}
		f.wait(3 * time.Minute)
		f.stop(sub)
		f.handledOnce(150)
		if st := sub.Stats(); st.Settling != 0 || len(f.logged("level=INFO", "receiving goes on")) != 1 {
			f.Errorf("%+v, logged %q", st, f.logged("level=INFO"))
		}
	})
}

// handledOnce checks that all of n messages were handled, none twice.
func (f *fixture) handledOnce(n int) {
	f.Helper()
	if runs := len(f.Runs()); runs != n {
		f.Errorf("%d runs of %d messages", runs, n)
	}
	f.wantHeld()
}

// B193: deletes that never answer stop the receiving, not the process.
func TestHungDeletesAreBounded(t *testing.T) {
	eachWay(t, "q", func(f *fixture) {
		for range 25 {
			f.send("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
		}
		f.Inject(f.during(deleteOp, 0, time.Minute, sqstest.Fault{Hang: true}))
		sub := f.subscribe(works(time.Millisecond), sqsub.WithConcurrency(20))
		most := 0
		for f.now() < time.Minute {
			f.wait(f.now() + 100*time.Millisecond)
			most = max(most, sub.Stats().InFlight)
		}
		if most > 20+20+100 || most < 100 {
			f.Errorf("up to %d in flight", most)
		}
		f.wait(5 * time.Minute)
		f.stop(sub)
		f.handledOnce(250)
	})
}

// B090, B037: every success is deleted, and soon, whatever travels with it; a
// slow handler beside them is extended in time.
func TestDeletesTravelTogether(t *testing.T) {
	eachWay(t, "q", func(f *fixture) {
		const n, slots = 999, 100
		f.send("slow")
		f.sendMany(n)
		f.Inject(func(sqstest.Call) sqstest.Fault {
			return sqstest.Fault{Delay: 5 * time.Millisecond, Lag: 5 * time.Millisecond}
		})
		sub := f.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
			if d.Body() == "slow" {
				time.Sleep(7 * time.Second)
			}
			time.Sleep(30 * time.Millisecond)
			return nil
		}, sqsub.WithConcurrency(slots), sqsub.WithVisibility(4*time.Second))
		for sub.Stats().Deleted < n {
			f.wait(f.now() + 10*time.Millisecond)
			if held := sub.Stats().InFlight; held > 2*slots+100 {
				f.Errorf("%d in flight", held)
			}
		}
		f.wait(time.Minute)
		f.stop(sub)
		handled := map[string]time.Duration{}
		for _, r := range f.Runs() {
			handled[r.body] = r.to
		}
		deletes := f.deletes()
		if len(deletes) != n+1 {
			f.Errorf("%d deletes of %d messages", len(deletes), n+1)
		}
		for _, e := range deletes {
			if waited := e.at - handled[e.body]; waited > sqsub.DefaultBatchDelay {
				f.Errorf("the delete of %s left %v after its handler", e.body, waited)
			}
		}
		extended := f.extended()
		for i, at := range extended {
			if want := time.Duration(i+1) * 2 * time.Second; !near(at, want, 100*time.Millisecond) {
				f.Errorf("the slow one was extended at %v, want every 2s", extended)
			}
		}
		if len(extended) != 3 {
			f.Errorf("the slow one was extended at %v, want three times", extended)
		}
		if batches, alone := len(f.calls(deleteOp+"Batch")), len(f.calls(deleteOp)); batches+alone > 150 {
			f.Errorf("%d batches and %d single deletes", batches, alone)
		}
		f.wantHeld()
	})
}

func TestDeletesWaitForCompanyWithinABound(t *testing.T) {
	for _, delay := range []time.Duration{0, 100 * time.Millisecond, time.Second} {
		bubble(t, "q", func(f *fixture) {
			f.send("m")
			f.subscribe(works(time.Second), sqsub.WithBatchDelay(delay))
			f.wait(10 * time.Second)
			if d := f.deletes(); len(d) != 1 || d[0].at != time.Second+delay {
				f.Errorf("batch delay %v: deletes %v", delay, d)
			}
		})
	}
}

// A batch delay longer than the timeout must not cost the hold.
func TestBatchDelayIsShorterThanTheHold(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.subscribe(works(900*time.Millisecond), sqsub.WithVisibility(time.Second), sqsub.WithBatchDelay(time.Minute))
		f.wait(0)
		f.rivals(1)
		f.wait(10 * time.Second)
		f.undisturbed()
		if d := f.deletes(); len(d) != 1 || d[0].at > 2*time.Second {
			f.Errorf("deletes %v", d)
		}
	})
}

// A receive may have taken a message that was lost just before it is deleted,
// and bring it just after: it is done all the same.
func TestDeletedWhileItWasReceived(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		f.Inject(func(c sqstest.Call) sqstest.Fault {
			if c.Op == receiveOp && c.At.After(f.start) {
				return sqstest.Fault{Lag: time.Second}
			}
			return sqstest.Fault{Reset: c.Op == changeOp, Delay: 10 * time.Millisecond}
		})
		sub := f.subscribe(works(40*time.Second), sqsub.WithConcurrency(1))
		f.wait(3 * time.Minute)
		f.stop(sub)
		f.handledOnce(1)
	})
}

// A network that is gone for a while costs the hold, and finished work is deleted
// all the same: what is missed by an instant would be done twice.
func TestLateDeleteOutlastsAnOutage(t *testing.T) {
	for _, outage := range []time.Duration{time.Second, 15 * time.Second, 29 * time.Second} {
		for _, verdict := range []error{nil, sqsub.Discard(errHandler)} {
			bubble(t, "q", func(f *fixture) {
				f.send("m")
				f.Inject(func(c sqstest.Call) sqstest.Fault {
					return sqstest.Fault{Reset: f.now() > time.Second && f.now() < 40*time.Second+outage}
				})
				sub := f.subscribe(once(fails(verdict), 40*time.Second), sqsub.WithConcurrency(1))
				f.wait(time.Minute + outage)
				f.stop(sub)
				f.handledOnce(1)
				// A receive may have taken it before: that one is deleted, too.
				if r := f.Results()[0]; !r.Late || !near(r.at, 40*time.Second+outage, 10*time.Second) {
					f.Errorf("%v of outage: %+v, want it deleted late", outage, r)
				}
				if st := sub.Stats(); st.Deleted+st.Discarded != st.Received || st.DeletedLate != 1 {
					f.Errorf("stats %+v", st)
				}
			})
		}
	}
}

// The delete of a message whose visibility was lost is tried for half a minute
// and then given up: nothing is left to keep.
func TestLateDeleteIsGivenUp(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(works(40*time.Second), sqsub.WithConcurrency(1))
		f.Inject(func(c sqstest.Call) sqstest.Fault { return sqstest.Fault{Reset: c.Op != receiveOp} })
		f.wait(31 * time.Second)
		f.rivals(1)
		f.wait(2 * time.Minute)
		f.stop(sub)
		deletes := f.deletes()
		if n := len(deletes); n < 2 || n > 20 {
			f.Errorf("%d late deletes", n)
		}
		if last := deletes[len(deletes)-1]; !near(last.at, 75*time.Second, 5*time.Second) {
			f.Errorf("the last one is tried at %v", last.at)
		}
		if n := len(f.logged("level=ERROR", "not deleted")); n != 1 {
			f.Errorf("logged %q", f.loud())
		}
	})
}
