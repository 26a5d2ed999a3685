package queue

import (
	"slices"
	"sync"
	"time"
)

// maxSenders bounds the goroutines that are inside the SDK at once, for each of
// deletes and changes: a call needs some 30 KiB of stack, a caller that waits for
// its result 2 KiB. It is enough for 50,000 changes a second at 50 ms a request,
// and for many hung requests beside those that work.
const maxSenders = 256

// An entry is one delete or change on its way.
type entry struct {
	receipt  string
	timeout  time.Duration
	leaveBy  time.Time   // how long it may wait for company
	deadline time.Time   // when its result has to be there
	result   chan result // buffered: a sender never waits for the caller

	// Guarded by the batcher's lock.
	taken bool // by a sender: there will be a result
	dead  bool // nobody waits for it any more
}

type result struct {
	sent time.Time
	err  error
}

// A batcher gathers entries into batches. A full batch leaves at once, any other
// when its first entry may wait no longer, with all that has come by the time that
// a sender takes it. The lock is held for list operations only.
type batcher struct {
	size int            // of a full batch
	send func([]*entry) // sends one batch and puts a result into each of its entries

	mu       sync.Mutex
	wake     *sync.Cond  // senders wait for work, or the end
	pending  []*entry    // in the order they came
	owed     int         // batches of them that are full or due
	ready    [][]*entry  // batches that are to leave as they are
	timer    *time.Timer // fires when the first of pending is due that is not owed
	fires    time.Time   // when that is
	senders  int
	idle     int // of them, those that wait
	flushing bool
	closed   bool

	running sync.WaitGroup // senders and timers
}

func newBatcher(size int, send func([]*entry)) *batcher {
	b := &batcher{size: size, send: send}
	b.wake = sync.NewCond(&b.mu)
	return b
}

// do sends e in company and returns its result, at its deadline at the latest.
func (b *batcher) do(e *entry, d Deadline) result {
	now := time.Now()
	e.leaveBy = d.LeaveBy
	e.deadline = now.Add(max(0, d.LeaveBy.Sub(now)) + d.Limit)
	e.result = make(chan result, 1)
	b.add(e)
	return b.await(e, d.Withdrawn)
}

// await returns the result of e. It gives up an entry that has not left when it
// is withdrawn or its deadline comes; one that has left has its result by then.
func (b *batcher) await(e *entry, withdrawn <-chan struct{}) result {
	select {
	case r := <-e.result:
		return r
	default:
	}
	timer := time.NewTimer(time.Until(e.deadline))
	defer timer.Stop()
	var err error
	select {
	case r := <-e.result:
		return r
	case <-withdrawn:
		err = ErrWithdrawn
	case <-timer.C:
		err = errNoSender
	}
	if b.giveUp(e) {
		return result{time.Now(), err}
	}
	return <-e.result
}

// now sends a batch as it is.
func (b *batcher) now(batch []*entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = append(b.ready, batch)
	b.employ()
}

func (b *batcher) add(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = append(b.pending, e)
	switch {
	case b.flushing || !e.leaveBy.After(time.Now()):
		b.oweAll()
	case len(b.pending) >= (b.owed+1)*b.size:
		b.owed++
		b.employ()
		b.rearm()
	case b.timer == nil || e.leaveBy.Before(b.fires):
		b.arm(e.leaveBy)
	}
}

// giveUp takes e back. It is false if a sender has it.
func (b *batcher) giveUp(e *entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.taken {
		return false
	}
	e.dead = true
	if i := slices.Index(b.pending, e); i >= 0 {
		b.pending = slices.Delete(b.pending, i, i+1)
		b.rearm()
	}
	return true
}

// flush sends all that waits, and lets nothing wait from now on.
func (b *batcher) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flushing = true
	b.oweAll()
}

// close flushes and waits until no sender runs and no timer is left. Nothing may
// be added any more.
func (b *batcher) close() {
	b.flush()
	b.mu.Lock()
	b.closed = true
	b.wake.Broadcast()
	b.mu.Unlock()
	b.running.Wait()
}

// oweAll makes all that is pending leave.
func (b *batcher) oweAll() {
	b.disarm()
	for b.owed*b.size < len(b.pending) {
		b.owed++
		b.employ()
	}
}

// employ finds a sender for one more batch. Senders stay for the next one, since
// a new goroutine would have to grow its stack anew.
func (b *batcher) employ() {
	switch {
	case b.idle > 0:
		b.idle--
		b.wake.Signal()
	case b.senders < maxSenders:
		b.senders++
		b.running.Go(b.sender)
	}
}

func (b *batcher) sender() {
	for {
		batch, ok := b.next()
		if !ok {
			return
		}
		if len(batch) > 0 {
			b.send(batch)
		}
	}
}

// next waits for a batch to send and takes it, less the entries that were given
// up meanwhile. It is false at the end.
func (b *batcher) next() (batch []*entry, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.ready) == 0 && b.owed == 0 {
		if b.closed {
			return nil, false
		}
		b.idle++
		b.wake.Wait()
	}
	if len(b.ready) > 0 {
		batch = slices.DeleteFunc(b.ready[0], func(e *entry) bool { return e.dead })
		b.ready = slices.Delete(b.ready, 0, 1)
	} else {
		n := min(b.size, len(b.pending))
		batch = slices.Clone(b.pending[:n])
		b.pending = slices.Delete(b.pending, 0, n)
		b.owed--
		b.rearm()
	}
	for _, e := range batch {
		e.taken = true
	}
	return batch, true
}

// rearm sets the timer to the first time at which one of pending is due that is
// not owed.
func (b *batcher) rearm() {
	b.owed = min(b.owed, (len(b.pending)+b.size-1)/b.size)
	rest := b.pending[min(len(b.pending), b.owed*b.size):]
	if len(rest) == 0 {
		b.disarm()
		return
	}
	first := rest[0].leaveBy
	for _, e := range rest[1:] {
		first = earlier(first, e.leaveBy)
	}
	if b.timer == nil || !first.Equal(b.fires) {
		b.arm(first)
	}
}

func (b *batcher) arm(at time.Time) {
	b.disarm()
	b.running.Add(1)
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(at), func() {
		defer b.running.Done()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.timer == timer { // else it fired while it was being replaced
			b.timer = nil
			b.oweAll()
		}
	})
	b.timer, b.fires = timer, at
}

func (b *batcher) disarm() {
	if b.timer != nil && b.timer.Stop() {
		b.running.Done()
	}
	b.timer = nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
