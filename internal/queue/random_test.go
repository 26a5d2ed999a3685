package queue

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A tracked call is one of TestRandomCalls and what has become of it.
type tracked struct {
	call      Call
	begun     time.Time
	sent      []time.Time
	answers   int
	withdrawn bool
}

// Calls that begin, are withdrawn and flushed at random: each leaves in time and
// once, and has one answer, unless it was withdrawn; no batch leaves before it is full
// or due; and nothing is left at the end.
func TestRandomCalls(t *testing.T) {
	for seed := range uint64(500) {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			r := rand.New(rand.NewPCG(seed, 0))
			var (
				mu     sync.Mutex
				calls  = map[*Call]*tracked{}
				forced bool // by now a batch may leave that is neither full nor due
				began  []*tracked
				p      pool
			)
			force := func() {
				mu.Lock()
				defer mu.Unlock()
				forced = true
			}
			withdrawing := r.IntN(2) == 0
			size := []int{1, 4, 10}[r.IntN(3)]
			latency := time.Duration(r.IntN(3)) * 10 * time.Millisecond
			b := newBatcher(size, func(batch []*Call) {
				mu.Lock()
				due := forced || len(batch) == size
				for _, c := range batch {
					calls[c].sent = append(calls[c].sent, time.Now())
					due = due || !c.leaveBy.After(time.Now())
				}
				mu.Unlock()
				if !due {
					t.Errorf("%d calls left early", len(batch))
				}
				time.Sleep(latency)
				for _, c := range batch {
					c.Caller.Done(time.Now(), time.Now(), nil)
				}
			}, &p)
			for range 20 + r.IntN(60) {
				switch n := r.IntN(20); {
				case n < 12:
					o := &tracked{begun: time.Now()}
					o.call.Caller = callerFunc(func() {
						mu.Lock()
						defer mu.Unlock()
						o.answers++
					})
					began = append(began, o)
					mu.Lock()
					calls[&o.call] = o
					mu.Unlock()
					b.begin(&o.call, Deadline{LeaveBy: time.Now().Add(time.Duration(r.IntN(8)) * 25 * time.Millisecond), Limit: time.Hour})
				case n < 16 && len(began) > 0 && withdrawing:
					if o := began[r.IntN(len(began))]; !o.withdrawn {
						force() // its batch may have been about to leave
						o.withdrawn = o.call.Withdraw()
					}
				case n == 16 && r.IntN(10) == 0:
					force()
					b.flush()
				default:
					time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond)
				}
				if r.IntN(2) == 0 {
					synctest.Wait()
				}
			}
			force()
			b.close()
			p.close()
			for i, o := range began {
				switch {
				case o.withdrawn && len(o.sent)+o.answers > 0, !o.withdrawn && (len(o.sent) != 1 || o.answers != 1):
					t.Errorf("call %d, withdrawn %v, was sent %d times and answered %d times", i, o.withdrawn, len(o.sent), o.answers)
				case !o.withdrawn && o.sent[0].After(o.call.leaveBy) && o.sent[0].After(o.begun):
					t.Errorf("call %d left %v late", i, o.sent[0].Sub(o.call.leaveBy))
				}
			}
			if b.senders != 0 || len(b.pending) != 0 || b.owed != 0 || b.timer != nil {
				t.Errorf("left: %d senders, %d calls, %d batches owed, timer %v", b.senders, len(b.pending), b.owed, b.timer)
			}
		})
	}
}

type callerFunc func()

func (f callerFunc) Done(time.Time, time.Time, error) { f() }
