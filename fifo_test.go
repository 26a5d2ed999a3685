package sqsub_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// A story is what handlers did with the messages of each group, told by bodies.
type story struct {
	mu        sync.Mutex
	attempts  map[string][]string
	successes map[string][]string
	running   map[string]int
	overlaps  []string
	parallel  int // groups that ran at the same time, at most
}

func newStory() *story {
	return &story{attempts: map[string][]string{}, successes: map[string][]string{}, running: map[string]int{}}
}

// tells returns a handler whose runs become part of the story.
func (s *story) tells(handler sqsub.Handler) sqsub.Handler {
	return func(ctx context.Context, d *sqsub.Delivery) error {
		group := d.GroupID()
		s.mu.Lock()
		s.attempts[group] = append(s.attempts[group], d.Body())
		if s.running[group]++; s.running[group] > 1 {
			s.overlaps = append(s.overlaps, d.Body())
		}
		busy := 0
		for _, n := range s.running {
			busy += min(n, 1)
		}
		s.parallel = max(s.parallel, busy)
		s.mu.Unlock()

		err := handler(ctx, d)

		s.mu.Lock()
		defer s.mu.Unlock()
		s.running[group]--
		if err == nil {
			s.successes[group] = append(s.successes[group], d.Body())
		}
		return err
	}
}

func (s *story) wantSuccesses(t *testing.T, group string, want []string) {
	t.Helper()
	if got := s.successes[group]; !slices.Equal(got, want) {
		t.Errorf("group %s succeeded in the order\n\t%v, want\n\t%v", group, got, want)
	}
}

// numbered are bodies of a group: a1, a2, ...
func numbered(group string, n int) []string {
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = fmt.Sprint(group, i+1)
	}
	return bodies
}

// failing returns a handler that takes a while and fails the given bodies, each
// as often as it says; negative = always.
func failing(takes func() time.Duration, times map[string]int) sqsub.Handler {
	var mu sync.Mutex
	return func(_ context.Context, d *sqsub.Delivery) error {
		time.Sleep(takes())
		mu.Lock()
		defer mu.Unlock()
		if times[d.Body()] != 0 {
			times[d.Body()]--
			return errHandler
		}
		return nil
	}
}

func upTo(most time.Duration) func() time.Duration {
	return func() time.Duration { return rand.N(most) }
}

func takes(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

func retriesAfter(d time.Duration) sqsub.Option {
	return sqsub.WithRetryDelay(func(*sqsub.Delivery, error) time.Duration { return d })
}

// drained waits until the queue holds nothing, for no longer than limit.
func (f *fixture) drained(limit time.Duration) {
	f.Helper()
	for end := time.Now().Add(limit); len(f.Messages(f.queue)) > 0; time.Sleep(time.Second) {
		if time.Now().After(end) {
			f.Errorf("after %v the queue still holds %v", limit, f.Messages(f.queue))
			return
		}
	}
}

// weather makes one call in ten go wrong, in each of the ways that leave a
// consumer a chance to hold what it holds.
func weather(seed uint64) func(sqstest.Call) sqstest.Fault {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, seed))
	return func(c sqstest.Call) sqstest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasPrefix(c.Op, "Get") || strings.HasPrefix(c.Op, "Send") {
			return sqstest.Fault{}
		}
		fault := sqstest.Fault{Delay: time.Duration(random.IntN(20)) * time.Millisecond, Lag: time.Duration(random.IntN(20)) * time.Millisecond}
		switch random.IntN(60) {
		case 0:
			fault.Code = "InternalError"
		case 1:
			fault.Code = "RequestThrottled"
		case 2:
			fault.Reset = true
		case 3:
			fault.Reset, fault.After = true, true
		case 4:
			fault.Truncate, fault.After = true, true
		case 5:
			fault.FailEntries = []int{0, 1}
		}
		return fault
	}
}

// B066, B068: each group in order, nothing handled twice, whatever the number of
// consumers and slots, while one message fails and calls do.
func TestGroupsKeepTheirOrder(t *testing.T) {
	for _, slots := range []int{1, 4, 32} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("slots=%d/seed=%d", slots, seed), func(t *testing.T) {
				bubble(t, "q.fifo", func(f *fixture) {
					groups := []string{"a", "b", "c"}
					for i := range 10 { // interleaved, as they are sent in life
						for _, g := range groups {
							f.sendTo(g, numbered(g, 10)[i])
						}
					}
					f.Inject(weather(seed))
					s := newStory()
					handler := s.tells(failing(upTo(20*time.Second), map[string]int{"b4": 2}))
					var subs []*sqsub.Subscription
					for range 3 {
						subs = append(subs, f.subscribe(handler, sqsub.WithConcurrency(slots), sqsub.WithVisibility(10*time.Second), sqsub.WithDrainTimeout(0)))
					}
					f.drained(time.Hour)
					for _, sub := range subs {
						f.stop(sub)
					}
					for _, g := range groups {
						s.wantSuccesses(t, g, numbered(g, 10))
					}
					if len(s.overlaps) > 0 {
						t.Errorf("ran beside another of their group: %v", s.overlaps)
					}
					want := slices.Insert(numbered("b", 10), 4, "b4", "b4")
					if got := s.attempts["b"]; !slices.Equal(got, want) {
						t.Errorf("tried %v, want %v", got, want)
					}
				})
			})
		}
	}
}

// B066: the next of a group starts when the delete of the one before is
// confirmed, and the delete does not wait for company.
func TestNextStartsAfterTheDelete(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.sendTo("a", numbered("a", 5)...)
		f.sendTo("b", numbered("b", 5)...)
		f.Inject(always(deleteOp, sqstest.Fault{Lag: 3 * time.Second}))
		s := newStory()
		sub := f.subscribe(s.tells(works(2*time.Second)), sqsub.WithVisibility(time.Minute))
		f.drained(time.Minute)
		f.stop(sub)

		if s.parallel != 2 {
			t.Errorf("%d groups ran at the same time, want 2", s.parallel)
		}
		for _, r := range f.Runs() {
			n := time.Duration(r.body[1] - '1')
			if want := n * 5 * time.Second; r.from != want { // 2 s of work and 3 s of delete
				t.Errorf("%s started at %v, want %v", r.body, r.from, want)
			}
		}
	})
}

// B061, B064: a group takes one slot, so that a long one does not keep the
// others out, although all its messages are held.
func TestGroupTakesOneSlot(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.sendTo("a", numbered("a", 10)...)
		for i := range 3 {
			f.sendTo(fmt.Sprint("g", i), fmt.Sprint("g", i))
		}
		sub := f.subscribe(works(time.Minute), sqsub.WithVisibility(10*time.Second))
		f.wait(50 * time.Second)
		states := map[sqsub.State]int{}
		for _, h := range sub.InFlight() {
			states[h.State]++
		}
		if states[sqsub.Running] != 4 || states[sqsub.WaitingForPrevious] != 9 || len(states) != 2 {
			t.Errorf("in flight: %v, want 4 running and 9 waiting", states)
		}
		if st := sub.Stats(); st.VisibilityLost != 0 || st.Extended < 13*8 {
			t.Errorf("%d extensions, %d lost; all 13 are to be extended every 5s", st.Extended, st.VisibilityLost)
		}
		f.stop(sub)
	})
}

// B034, V14: each message of a group is extended until it is deleted, and not
// beyond; nobody minds that the group gets smaller.
func TestGroupIsExtendedUntilEachIsDeleted(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.send(numbered("m", 10)...)
		sub := f.subscribe(works(8*time.Second), sqsub.WithVisibility(21*time.Second)) // extensions and deletes never coincide
		f.drained(2 * time.Minute)
		f.wait(f.now() + time.Minute)
		f.stop(sub)
		deleted := map[string]time.Duration{}
		for _, e := range f.deletes() {
			deleted[e.body] = e.at
		}
		for _, e := range f.changes() {
			if e.code != "" || e.at > deleted[e.body] {
				t.Errorf("%v, deleted at %v", e, deleted[e.body])
			}
		}
		for i, r := range f.Runs() {
			if want := time.Duration(i) * 8 * time.Second; r.count != 1 || r.cause != nil || r.from != want {
				t.Errorf("run %+v, want it at %v", r, want)
			}
		}
		if st := sub.Stats(); st.Deleted != 10 || st.ExtendFailures != 0 || st.VisibilityLost != 0 {
			t.Errorf("stats %+v", st)
		}
		if loud := f.loud(); len(loud) > 0 {
			t.Errorf("logged %q", loud)
		}
	})
}

// B070: nor do they where all slots are busy with other groups when the message that
// failed is visible again.
func TestFollowersOfAFailureOnABusyConsumer(t *testing.T) {
	for _, slots := range []int{1, 2, 10} {
		for _, prefetch := range []int{0, 5} {
			for _, takes := range []time.Duration{4 * time.Second, time.Minute} {
				t.Run(fmt.Sprint(slots, prefetch, takes), func(t *testing.T) {
					bubble(t, "q.fifo", func(f *fixture) {
						f.create("dead.fifo")
						f.set("RedrivePolicy", redrive("dead.fifo", 5))
						f.send(numbered("m", 4)...)
						for _, other := range numbered("o", 50) {
							f.sendTo(other, other)
						}
						s := newStory()
						sub := f.subscribe(s.tells(func(_ context.Context, d *sqsub.Delivery) error {
							if d.Body() == "m1" {
								return errHandler
							}
							if d.GroupID() != "g" {
								time.Sleep(takes)
							}
							return nil
						}), retriesAfter(time.Second), sqsub.WithVisibility(30*time.Second), sqsub.WithConcurrency(slots), sqsub.WithPrefetch(prefetch))
						f.drained(2 * time.Hour)
						f.stop(sub)
						s.wantSuccesses(t, "g", []string{"m2", "m3", "m4"})
					})
				})
			}
		}
	}
}

// B070: nor where nothing can be received for a while.
func TestFollowersOfAFailureWhileReceivesFail(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Second, 10 * time.Second} { // of an answer
		bubble(t, "q.fifo", func(f *fixture) {
			f.send(numbered("m", 4)...)
			f.Inject(on(receiveOp, func(n int) sqstest.Fault {
				fault := sqstest.Fault{Code: "InternalError", Status: 500}
				switch {
				case n == 0, f.now() > 40*time.Second:
					return sqstest.Fault{}
				case n > 1: // the second fails at once: it is not known yet that they do
					fault.Delay = delay
				}
				return fault
			}))
			s := newStory()
			sub := f.subscribe(s.tells(func(_ context.Context, d *sqsub.Delivery) error {
				if d.Body() == "m1" && d.ReceiveCount() == 1 {
					return errHandler
				}
				return nil
			}), retriesAfter(time.Second))
			f.wait(2 * time.Minute)
			f.stop(sub)
			s.wantSuccesses(t, "g", numbered("m", 4))
			if n := sub.Stats().Received; n != 5 {
				t.Errorf("%v: %d messages were received, want those of the group and m1 again", delay, n)
			}
		})
	}
}

// A group whose failed message another consumer has is that one's in the end, however
// busy this one is.
func TestFollowersOfAFailureGoWhereItWent(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.send(numbered("m", 4)...)
		busy := f.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
			if d.Body() == "m1" {
				return errHandler
			}
			time.Sleep(3 * time.Hour)
			return nil
		}, retriesAfter(5*time.Second), sqsub.WithConcurrency(4))
		f.wait(time.Second)
		for _, other := range numbered("o", 4) {
			f.sendTo(other, other)
		}
		f.wait(2 * time.Second)
		s := newStory()
		idle := f.subscribe(s.tells(works(0)))
		f.wait(15 * time.Minute)
		s.wantSuccesses(t, "g", numbered("m", 4))
		f.stop(idle)
		busy.Close()
	})
}

// B068: what follows a failure is not run before it, and waits for it in hand:
// handed back, it would use up a receive with each try of the one before (B070).
func TestFollowersWaitForAFailure(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.send(numbered("m", 4)...)
		s := newStory()
		sub := f.subscribe(s.tells(failing(takes(time.Second), map[string]int{"m2": 3})), retriesAfter(time.Minute), sqsub.WithVisibility(20*time.Second))
		f.wait(30 * time.Second)

		if held := sub.InFlight(); len(held) != 2 || held[0].State != sqsub.WaitingForPrevious || held[1].State != sqsub.WaitingForPrevious {
			t.Errorf("in hand: %+v, want m3 and m4", held)
		}
		f.sendTo("other", "o1")
		f.wait(32 * time.Second)
		s.wantSuccesses(t, "other", []string{"o1"}) // no slot is taken
		f.drained(time.Hour)
		f.stop(sub)
		if want := []string{"m1", "m2", "m2", "m2", "m2", "m3", "m4"}; !slices.Equal(s.attempts["g"], want) {
			t.Errorf("tried %v, want %v", s.attempts["g"], want)
		}
		for _, r := range f.Runs() {
			if r.body != "m2" && r.count != 1 {
				t.Errorf("%s ran at its receive %d", r.body, r.count)
			}
		}
		if st := sub.Stats(); st.Retried != 3 || st.Released != 0 || st.Deleted != 5 {
			t.Errorf("%d retried, %d released, %d deleted; want 3, 0, 5", st.Retried, st.Released, st.Deleted)
		}
	})
}

// Followers do not wait for ever: if the one that failed does not come back here,
// they go back too, so that whoever has it can go on with them.
func TestFollowersOfAMessageThatAnotherHas(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.send(numbered("m", 4)...)
		f.Inject(on(receiveOp, func(n int) sqstest.Fault { return sqstest.Fault{Empty: n > 0} })) // until another was faster
		s := newStory()
		sub := f.subscribe(s.tells(failing(takes(time.Second), map[string]int{"m1": 1})), retriesAfter(10*time.Second), sqsub.WithVisibility(20*time.Second))
		f.wait(11500 * time.Millisecond)
		f.Inject(nil)
		for _, m := range f.receive(0) {
			if *m.Body != "m1" {
				t.Errorf("another consumer got %s", *m.Body)
			}
		}
		f.wait(17 * time.Second)
		if n := len(sub.InFlight()); n != 0 {
			t.Errorf("%d are still in hand", n)
		}
		for _, body := range numbered("m", 4)[1:] {
			if m := f.held()[body]; m.State != sqstest.Visible || m.ReceiveCount != 1 {
				t.Errorf("%s: %+v, want released", body, m)
			}
		}
		f.stop(sub)
		if want := []string{"m1"}; !slices.Equal(s.attempts["g"], want) {
			t.Errorf("tried %v, want %v", s.attempts["g"], want)
		}
	})
}

// All slots are busy when the message that failed is visible again, so that it
// comes late, when its followers are on their way back: still it comes first.
func TestOrderWhenTheFailureComesBackLate(t *testing.T) {
	for late := range 10 {
		bubble(t, "q.fifo", func(f *fixture) {
			f.sendTo("a", numbered("a", 3)...)
			f.sendTo("b", "b1")
			f.sendTo("c", "c1")
			f.sendTo("d", "d1")
			busy := time.Duration(late)*time.Second + 700*time.Millisecond
			fail := failing(takes(time.Second), map[string]int{"a1": 1})
			s := newStory()
			sub := f.subscribe(s.tells(func(ctx context.Context, d *sqsub.Delivery) error {
				if d.GroupID() != "a" {
					time.Sleep(busy)
					return nil
				}
				return fail(ctx, d)
			}), retriesAfter(time.Second), sqsub.WithConcurrency(3), sqsub.WithVisibility(time.Minute))
			f.drained(10 * time.Minute)
			f.stop(sub)
			s.wantSuccesses(t, "a", numbered("a", 3))
			for _, r := range f.Runs() {
				if r.body == "a1" && r.count > 2 {
					t.Errorf("busy for %v: a1 came back and was not run, but handed back", busy)
				}
			}
		})
	}
}

// The message that failed was with another consumer, which hands it back too,
// just when its followers are on their way back: it comes together with the next
// one, and first. That holds also if it fails again: only the first time was the
// next one awaited.
func TestOrderWhenTheFailureComesBackInCompany(t *testing.T) {
	for failures := 1; failures <= 3; failures++ {
		bubble(t, "q.fifo", func(f *fixture) {
			f.send(numbered("m", 4)...)
			var receives atomic.Int64
			f.Inject(func(c sqstest.Call) sqstest.Fault {
				ours := c.Op == receiveOp && c.Visibility != rivalHold
				return sqstest.Fault{Empty: ours && receives.Add(1) > 1 && f.now() < 4500*time.Millisecond}
			})
			s := newStory()
			handler := failing(takes(time.Second), map[string]int{"m1": failures})
			sub := f.subscribe(s.tells(handler), retriesAfter(time.Second), sqsub.WithVisibility(time.Minute), sqsub.WithBatchDelay(0))
			f.wait(2100 * time.Millisecond)
			theirs := f.receive(0)
			f.wait(4600 * time.Millisecond)
			_, err := f.client.ChangeMessageVisibility(f.Context(), &sqs.ChangeMessageVisibilityInput{QueueUrl: &f.url, ReceiptHandle: theirs[0].ReceiptHandle})
			if err != nil {
				t.Fatal(err)
			}
			f.drained(10 * time.Minute)
			f.stop(sub)
			s.wantSuccesses(t, "g", numbered("m", 4))
		})
	}
}

// A message of a group that waits for another one runs first, being earlier, and
// is lost: nothing of the group is left to wait then.
func TestLossInAGroupThatWaits(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.sendTo("a", numbered("a", 3)...)
		f.sendTo("b", "b1")
		f.sendTo("c", "c1")
		f.sendTo("d", "d1")
		lost := f.lost("a1")
		f.Inject(func(c sqstest.Call) sqstest.Fault {
			if f.now() < 5*time.Second || f.now() > 6*time.Second {
				return sqstest.Fault{}
			}
			return lost(c)
		})
		s := newStory()
		sub := f.subscribe(s.tells(func(ctx context.Context, d *sqsub.Delivery) error {
			switch {
			case d.GroupID() != "a":
				time.Sleep(4700 * time.Millisecond)
			case d.Body() == "a1" && d.ReceiveCount() == 1:
				time.Sleep(time.Second)
				return errHandler
			case d.Body() == "a1":
				return obeys(3*time.Second)(ctx, d)
			}
			return nil
		}), retriesAfter(time.Second), sqsub.WithConcurrency(3), sqsub.WithVisibility(2*time.Second), sqsub.WithBatchDelay(0))
		f.drained(10 * time.Minute)
		f.stop(sub)
		s.wantSuccesses(t, "a", numbered("a", 3))
		if st := sub.Stats(); st.VisibilityLost == 0 {
			t.Error("nothing was lost")
		}
	})
}

// The dead-letter queue is known to be next, where the redrive policy was read:
// its group does not wait for a message that will not come back (X3, X6).
func TestLastAllowedReceiveHoldsUpNobody(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.create("dead.fifo")
		f.set("RedrivePolicy", redrive("dead.fifo", 1))
		f.send(numbered("m", 3)...)
		s := newStory()
		sub := f.subscribe(s.tells(failing(takes(time.Second), map[string]int{"m1": -1})), retriesAfter(time.Minute)) // with the queue's own timeout
		f.wait(4 * time.Second)
		s.wantSuccesses(t, "g", []string{"m2", "m3"})
		f.drained(5 * time.Minute)
		f.stop(sub)
		if dead := f.Messages("dead.fifo"); len(dead) != 1 || dead[0].Body != "m1" || dead[0].ReceiveCount != 1 {
			t.Errorf("dead letters: %+v", dead)
		}
	})
}

// An operator raises the limit while a subscription runs: a message that seemed to
// have failed at its last receive comes back, and none of its group overtakes it
// (Q3).
func TestRaisedReceiveLimit(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.create("dead.fifo")
		f.set("RedrivePolicy", redrive("dead.fifo", 2))
		s := newStory()
		sub := f.subscribe(s.tells(failing(takes(time.Second), map[string]int{"m2": 3})), retriesAfter(time.Second)) // with the queue's own timeout
		f.wait(time.Second)
		f.set("RedrivePolicy", redrive("dead.fifo", 10))
		f.wait(10 * time.Minute)
		f.send(numbered("m", 4)...)
		f.drained(20 * time.Minute)
		f.stop(sub)
		s.wantSuccesses(t, "g", numbered("m", 4))
	})
}

// As many groups wait for a failure as there are slots; what follows a failure in
// others is handed back behind it, last to first (F3).
func TestGroupsThatWaitAreBounded(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		groups := []string{"a", "b", "c", "d"}
		fails := map[string]int{}
		for _, g := range groups {
			f.sendTo(g, numbered(g, 3)...)
			fails[g+"1"] = 1
		}
		s := newStory()
		sub := f.subscribe(s.tells(failing(takes(time.Second), fails)), retriesAfter(time.Minute), sqsub.WithConcurrency(2), sqsub.WithVisibility(20*time.Second))
		f.wait(30 * time.Second)
		if st := sub.Stats(); st.InFlight > 4 || st.Retried != 4 {
			t.Errorf("%d in hand after %d failures; want two groups' followers", st.InFlight, st.Retried)
		}
		f.drained(10 * time.Minute)
		f.stop(sub)
		for _, g := range groups {
			s.wantSuccesses(t, g, numbered(g, 3))
		}
	})
}

// The longest delay there is does not become none for what comes back behind it.
func TestFollowersOfTheLongestDelay(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.sendTo("a", numbered("a", 2)...)
		f.sendTo("b", numbered("b", 2)...)
		sub := f.subscribe(fails(sqsub.RetryAfter(math.MaxInt64, errHandler)), sqsub.WithConcurrency(1), sqsub.WithPrefetch(9))
		f.wait(5 * time.Second) // a2 waits here for a1, and no other group may wait
		for _, e := range f.changes() {
			if e.visibility < 11*time.Hour {
				t.Errorf("%v, want the longest delay that SQS allows", e)
			}
		}
		if n := len(f.changes()); n != 3 {
			t.Errorf("%d were handed back, want a1, b1 and b2", n)
		}
		sub.Close()
	})
}

// A stop does not wait for a failure to come back: its followers are released.
func TestStopReleasesWhatWaitsForAFailure(t *testing.T) {
	stopped(t, "q.fifo", slices.Concat(graceful, []stopping{closing}), func(f *fixture, s stopCase) {
		f.send(numbered("m", 4)...)
		_, wantEnd := s.at(30*time.Second, failing(takes(time.Second), map[string]int{"m1": 1}), retriesAfter(time.Hour), sqsub.WithVisibility(20*time.Second))
		if s.way.name == "Close" {
			wantEnd(30 * time.Second)
		} else {
			wantEnd(40 * time.Second) // with the open poll
		}
		for _, body := range numbered("m", 4)[1:] {
			if m := f.held()[body]; m.State != sqstest.Visible || m.ReceiveCount != 1 {
				t.Errorf("%s: %+v, want released", body, m)
			}
		}
	})
}

// B070: a message that fails to the end must not carry the rest of its group
// into the dead-letter queue.
func TestFollowersOfAFailureKeepTheirReceives(t *testing.T) {
	for _, c := range []struct {
		receives int // maxReceiveCount
		bad      []string
	}{
		{2, []string{"m1"}},
		{3, []string{"m1"}},
		{5, []string{"m1"}},
		{3, []string{"m1", "m2"}},
		{5, []string{"m1", "m2"}},
		{5, []string{"m1", "m2", "m3"}},
		{5, []string{"m1", "m3", "m5"}},
	} {
		t.Run(fmt.Sprintf("%d/%s", c.receives, strings.Join(c.bad, ",")), func(t *testing.T) {
			bubble(t, "q.fifo", func(f *fixture) {
				f.create("dead.fifo")
				f.set("RedrivePolicy", redrive("dead.fifo", c.receives))
				f.send(numbered("m", 6)...)
				always := map[string]int{}
				for _, body := range c.bad {
					always[body] = -1
				}
				s := newStory()
				sub := f.subscribe(s.tells(failing(takes(time.Second), always)), sqsub.WithVisibility(30*time.Second))
				f.drained(12 * time.Hour)
				f.stop(sub)

				var dead, good []string
				for _, m := range f.Messages("dead.fifo") {
					dead = append(dead, m.Body)
				}
				for _, body := range numbered("m", 6) {
					if !slices.Contains(c.bad, body) {
						good = append(good, body)
					}
				}
				if !slices.Equal(dead, c.bad) {
					t.Errorf("dead letters: %v, want %v", dead, c.bad)
				}
				s.wantSuccesses(t, "g", good)
				tries := map[string]int{}
				for _, body := range s.attempts["g"] {
					tries[body]++
				}
				t.Logf("tries: %v, after %v", tries, f.now())
				if tries["m1"] != c.receives {
					t.Errorf("m1 was tried %d times, want %d", tries["m1"], c.receives)
				}
			})
		})
	}
}

func redrive(queue string, receives int) string {
	return fmt.Sprintf(`{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:123456789012:%s","maxReceiveCount":%d}`, queue, receives)
}

// lost makes the changes of one message fail as if it was gone.
func (f *fixture) lost(body string) func(sqstest.Call) sqstest.Fault {
	return func(c sqstest.Call) sqstest.Fault {
		var fault sqstest.Fault
		if strings.HasPrefix(c.Op, changeOp) && len(c.Entries) == 1 && f.body(c.Entries[0].MessageID) == body && c.Entries[0].Visibility > 0 {
			fault.Code = "ReceiptHandleIsInvalid"
		}
		return fault
	}
}

// B073: the rest of a group must not overtake a message that was lost. B074: what
// is released comes back by the rule of SQS, message by message.
func TestLossReleasesWhatFollows(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.send(numbered("m", 3)...)
		f.Inject(f.lost("m1"))
		s := newStory()
		sub := f.subscribe(s.tells(obeys(time.Minute)), sqsub.WithVisibility(20*time.Second), sqsub.WithBatchDelay(0))
		f.wait(10 * time.Second)
		if r := f.onlyRun(); r.body != "m1" || !errors.Is(r.cause, sqsub.ErrVisibilityLost) || r.to != 10*time.Second {
			t.Errorf("run %+v, want m1 cancelled by the loss at 10s", r)
		}
		var order []string
		for _, e := range f.changes() {
			if e.visibility == 0 {
				order = append(order, e.body)
			}
		}
		if want := []string{"m3", "m2"}; !slices.Equal(order, want) {
			t.Errorf("released %v, want %v", order, want)
		}
		f.Inject(nil)
		f.drained(10 * time.Minute)
		f.stop(sub)
		s.wantSuccesses(t, "g", numbered("m", 3))
	})
}

// A follower whose hold was lost while it waited is not started, nor is what
// follows it; the one before it goes on.
func TestLossWhileWaiting(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.send(numbered("m", 3)...)
		f.Inject(f.lost("m2"))
		s := newStory()
		sub := f.subscribe(s.tells(obeys(15*time.Second)), sqsub.WithVisibility(20*time.Second), sqsub.WithBatchDelay(0))
		f.wait(14 * time.Second)
		if n := len(sub.InFlight()); n != 1 {
			t.Errorf("%d deliveries in hand, want m1 alone", n)
		}
		if held := f.held(); held["m3"].State != sqstest.Visible {
			t.Errorf("m3 is %s, want released", held["m3"].State)
		}
		f.Inject(nil)
		f.drained(10 * time.Minute)
		f.stop(sub)
		s.wantSuccesses(t, "g", numbered("m", 3))
		if len(s.overlaps) > 0 || len(s.attempts["g"]) != 3 {
			t.Errorf("tried %v, side by side: %v", s.attempts["g"], s.overlaps)
		}
	})
}

// B077, B075: SQS says at the delete that the handle has expired. The message
// will come back, so nothing may overtake it; when it comes back here, it is
// deleted, since it was handled.
func TestRefusedDeleteStopsTheGroup(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.send(numbered("m", 3)...)
		f.Inject(on(deleteOp, func(n int) sqstest.Fault {
			if n == 0 {
				return sqstest.Fault{Code: "InvalidParameterValue", Message: "Value AQEB for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."}
			}
			return sqstest.Fault{}
		}))
		s := newStory()
		sub := f.subscribe(s.tells(works(time.Second)), sqsub.WithVisibility(10*time.Second))
		f.wait(2 * time.Second)
		if len(s.attempts["g"]) != 1 {
			t.Errorf("tried %v although m1 is going to come back", s.attempts["g"])
		}
		f.drained(5 * time.Minute)
		f.stop(sub)
		s.wantSuccesses(t, "g", numbered("m", 3))
		if n := len(f.logged("level=ERROR")); n != 1 {
			t.Errorf("%d errors logged, want one: %q", n, f.logged("level=ERROR"))
		}
	})
}

// B077: ten deletes that leave together are refused, since another consumer has
// the messages. Each is reported once, none is tried again, and life goes on.
func TestTenRefusedDeletes(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		const n = 10
		for i := range n {
			f.sendTo(fmt.Sprint(i), fmt.Sprint(i))
		}
		sub := f.subscribe(works(10*time.Second), sqsub.WithConcurrency(n))
		f.wait(time.Second)
		f.takeAway(false)
		f.sendTo("other", "other")
		f.wait(time.Minute)
		f.stop(sub)
		if got := len(f.deletes()); got != n+1 {
			t.Errorf("%d deletes of %d messages", got, n+1)
		}
		if got := len(f.logged("level=ERROR", "not deleted", "expired")); got != n {
			t.Errorf("%d refused deletes are logged: %q", got, f.loud())
		}
		if st := sub.Stats(); st.VisibilityLost != n || st.Deleted != 1 || st.Received != n+1 {
			t.Errorf("stats %+v", st)
		}
	})
}

// The same, when the delete fails for as long as the message may be held.
func TestFailedDeleteStopsTheGroup(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.send(numbered("m", 3)...)
		f.Inject(always(deleteOp, sqstest.Fault{Code: "InternalError"}))
		s := newStory()
		sub := f.subscribe(s.tells(works(time.Second)), sqsub.WithVisibility(10*time.Second), sqsub.WithMaxHold(20*time.Second))
		f.wait(18 * time.Second)
		if len(s.attempts["g"]) != 1 {
			t.Errorf("tried %v although m1 is not deleted", s.attempts["g"])
		}
		f.wait(40 * time.Second)
		f.Inject(nil)
		f.drained(5 * time.Minute)
		f.stop(sub)
		s.wantSuccesses(t, "g", numbered("m", 3))
	})
}

// A message was lost, received anew, and then handled successfully: when its delete
// is given up, the newer delivery is deleted with the receipt that still counts (D4).
// Releasing it would have the message handled again elsewhere.
func TestUnsettledSuccessDeletesTheNewerDelivery(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.send("m1", "m2")
		lapse := f.lapse(15 * time.Second)
		f.Inject(func(c sqstest.Call) sqstest.Fault {
			if c.Op == deleteOp && c.Entries[0].ReceiptHandle == f.calls(receiveOp)[0].Entries[0].ReceiptHandle {
				return sqstest.Fault{Code: "InternalError"}
			}
			return lapse(c)
		})
		s := newStory()
		sub := f.subscribe(s.tells(works(20*time.Second)), sqsub.WithVisibility(10*time.Second), sqsub.WithConcurrency(2))
		f.wait(20 * time.Second)
		f.rivals(1) // which gets m2 when m1 is done
		f.wait(2 * time.Minute)
		f.stop(sub)
		s.wantSuccesses(t, "g", []string{"m1"})
		f.wantHeld("m2")
		var outcomes []sqsub.Outcome
		for _, r := range f.Results() {
			if r.body == "m1" {
				outcomes = append(outcomes, r.Outcome)
			}
		}
		if want := []sqsub.Outcome{sqsub.Unsettled, sqsub.Deleted}; !slices.Equal(outcomes, want) {
			t.Errorf("m1 was %v, want %v", outcomes, want)
		}
	})
}

// B096: a lost hold concerns its group alone, and receiving goes on.
func TestLossInOneGroupLeavesTheOthersAlone(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.sendTo("a", numbered("a", 2)...)
		f.sendTo("b", numbered("b", 10)...)
		f.Inject(f.lost("a1"))
		s := newStory()
		sub := f.subscribe(s.tells(obeys(7300*time.Millisecond)), sqsub.WithVisibility(10*time.Second), sqsub.WithBatchDelay(0))
		f.wait(6 * time.Second)
		f.Inject(nil)
		f.drained(10 * time.Minute)
		f.stop(sub)
		s.wantSuccesses(t, "a", numbered("a", 2))
		s.wantSuccesses(t, "b", numbered("b", 10))
		if st := sub.Stats(); st.VisibilityLost != 1 {
			t.Errorf("%d lost, want one", st.VisibilityLost)
		}
	})
}

// Order holds also when a receive brings messages twice: a copy stands at its
// place in the group.
func TestCopiesInOneResponseKeepTheOrder(t *testing.T) {
	for _, fails := range []map[string]int{{}, {"m1": 1}, {"m2": 1}, {"m1": 2, "m3": 1}} {
		bubble(t, "q.fifo", func(f *fixture) {
			f.send(numbered("m", 4)...)
			f.Inject(twice())
			s := newStory()
			sub := f.subscribe(s.tells(failing(takes(time.Second), fails)), sqsub.WithVisibility(20*time.Second))
			f.drained(10 * time.Minute)
			f.stop(sub)
			s.wantSuccesses(t, "g", numbered("m", 4))
		})
	}
}

// The same, when the copies come behind the rest of the group.
func TestLateCopiesKeepTheOrder(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		c := &scripted{Client: f.client}
		message := func(body, receipt string) types.Message {
			return types.Message{MessageId: &body, Body: &body, ReceiptHandle: &receipt, Attributes: map[string]string{"MessageGroupId": "g"}}
		}
		c.receives = [][]types.Message{
			{message("a", "a-1"), message("b", "b-1"), message("a", "a-2"), message("b", "b-2")},
			{message("a", "a-3"), message("b", "b-3")},
		}
		s := newStory()
		sub, err := sqsub.Subscribe(context.Background(), c, f.url, s.tells(failing(takes(time.Second), map[string]int{"a": 1})),
			f.options([]sqsub.Option{sqsub.WithVisibility(20 * time.Second)})...)
		if err != nil {
			t.Fatal(err)
		}
		f.watch(sub)
		f.wait(time.Minute)
		f.stop(sub)
		if got := s.successes["g"]; len(got) < 2 || got[0] != "a" {
			t.Errorf("succeeded: %v, want a before b", got)
		}
	})
}

// B079, R12: the attempt id is the same over the tries of one receive, and no
// other receive has it. Its rejection costs nothing.
func TestAttemptID(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.send(numbered("m", 2)...)
		f.Inject(on(receiveOp, func(n int) sqstest.Fault {
			switch {
			case n < 5: // more than the SDK tries at once
				return sqstest.Fault{Reset: true, After: true}
			case n == 6:
				return sqstest.Fault{Code: "InvalidParameterValue", Message: "Value X for parameter ReceiveRequestAttemptId is invalid. Reason: The receiveRequestAttemptId is not valid anymore since the receive call is not retryable."}
			}
			return sqstest.Fault{}
		}))
		sub := f.subscribe(works(0), sqsub.WithVisibility(time.Hour))
		f.wait(time.Minute)
		f.wantHeld()
		calls := f.calls(receiveOp)
		if len(calls) < 8 {
			t.Fatalf("%d receives", len(calls))
		}
		ids := map[string][]int{}
		for i, c := range calls {
			if c.AttemptID == "" {
				t.Errorf("receive %d has no attempt id", i)
			}
			ids[c.AttemptID] = append(ids[c.AttemptID], i)
		}
		if first := ids[calls[0].AttemptID]; !slices.Equal(first, []int{0, 1, 2, 3, 4, 5}) {
			t.Errorf("the id of the first receive is that of %v, want 0 to 5", first)
		}
		if len(ids) != len(calls)-5 {
			t.Errorf("%d ids for %d receives", len(ids), len(calls))
		}
		if pause := calls[7].At.Sub(calls[6].Done); pause != 0 {
			t.Errorf("the receive after the rejection left %v later, want at once", pause)
		}
		if n := len(f.logged("level=WARN", "attempt")) + len(f.logged("level=WARN", "Attempt")); n != 0 {
			t.Errorf("the rejection was logged %d times", n)
		}
		f.stop(sub)
	})
}

// F14: a message group id on a standard queue orders nothing.
func TestGroupsOfAStandardQueueRunInParallel(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.sendTo("g", numbered("m", 5)...)
		s := newStory()
		sub := f.subscribe(s.tells(failing(takes(time.Second), map[string]int{"m1": 1})), retriesAfter(time.Minute), sqsub.WithVisibility(10*time.Second))
		f.wait(2 * time.Second)
		f.wantHeld("m1")
		if len(s.overlaps) != 4 {
			t.Errorf("%d ran beside another of the group, want 4", len(s.overlaps))
		}
		for _, c := range f.calls(receiveOp) {
			if c.AttemptID != "" {
				t.Error("a receive of a standard queue has an attempt id")
			}
		}
		f.stop(sub)
	})
}

// A stop comes between two messages of a group: the second is not started, even
// if the delete of the first is confirmed at the very moment of the stop.
func TestNothingOfAGroupStartsAfterAStop(t *testing.T) {
	for range 30 {
		bubble(t, "q.fifo", func(f *fixture) {
			f.send(numbered("m", 2)...)
			f.Inject(always(deleteOp, sqstest.Fault{Lag: time.Second}))
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			time.AfterFunc(2*time.Second, cancel)
			sub, err := sqsub.Subscribe(ctx, f.client, f.queue, f.recorded(works(time.Second)), f.options([]sqsub.Option{sqsub.WithVisibility(time.Minute)})...)
			if err != nil {
				t.Fatal(err)
			}
			f.watch(sub)
			f.wait(1500 * time.Millisecond)
			f.wait(2 * time.Second)
			synctest.Wait()
			for _, r := range f.Runs() {
				if r.from >= 2*time.Second && f.now() > 2*time.Second {
					t.Errorf("%s was started at %v, after the stop", r.body, r.from)
				}
			}
			sub.Wait()
		})
	}
}
