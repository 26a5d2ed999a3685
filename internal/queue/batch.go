package queue

import (
	"slices"
	"sync"
	"time"
)

// maxSenders bounds the goroutines that are inside the SDK at once, for each
// of deletes and changes: a call needs some 30 KiB of stack, a caller that
// waits for its result 2 KiB. It is enough for 12,000 changes a second at
// 50 ms a request, and for many hung requests beside those that work.
const maxSenders = 64

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
// when its first entry may wait no longer, with all that has come by then. The
// lock is held for list operations only.
type batcher struct {
	size int            // of a full batch
	send func([]*entry) // sends one batch and puts a result into each of its entries

	mu       sync.Mutex
	pending  []*entry    // not a full batch, and none of them due
	timer    *time.Timer // fires when the first of pending is due
	fires    time.Time   // when that is
	due      [][]*entry  // batches that wait for a sender
	senders  int
	flushing bool

	running sync.WaitGroup // senders and timers
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
	b.dispatch(batch)
}

func (b *batcher) add(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = append(b.pending, e)
	if len(b.pending) == b.size || b.flushing || !e.leaveBy.After(time.Now()) {
		b.dispatchPending()
		return
	}
	if b.timer == nil || e.leaveBy.Before(b.fires) {
		b.arm()
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
		b.arm()
	}
	return true
}

func (b *batcher) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flushing = true
	b.dispatchPending()
}

// wait returns when no sender runs and no timer is left. Nothing may be added
// meanwhile.
func (b *batcher) wait() { b.running.Wait() }

// arm sets the timer to the first time at which one of pending is due.
func (b *batcher) arm() {
	b.disarm()
	if len(b.pending) == 0 {
		return
	}
	first := b.pending[0].leaveBy
	for _, e := range b.pending[1:] {
		if e.leaveBy.Before(first) {
			first = e.leaveBy
		}
	}
	b.running.Add(1)
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(first), func() {
		defer b.running.Done()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.timer == timer { // else it fired while it was being replaced
			b.timer = nil
			b.dispatchPending()
		}
	})
	b.timer, b.fires = timer, first
}

func (b *batcher) disarm() {
	if b.timer != nil && b.timer.Stop() {
		b.running.Done()
	}
	b.timer = nil
}

func (b *batcher) dispatchPending() {
	b.disarm()
	if len(b.pending) > 0 {
		batch := b.pending
		b.pending = nil
		b.dispatch(batch)
	}
}

// dispatch hands a batch to a sender. Senders end when nothing is due.
func (b *batcher) dispatch(batch []*entry) {
	b.due = append(b.due, batch)
	if b.senders < maxSenders {
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

// next takes the batch that has waited longest, less the entries that were given
// up meanwhile.
func (b *batcher) next() (batch []*entry, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.due) == 0 {
		b.senders--
		return nil, false
	}
	batch = slices.DeleteFunc(b.due[0], func(e *entry) bool { return e.dead })
	b.due[0] = nil
	b.due = b.due[1:]
	for _, e := range batch {
		e.taken = true
	}
	return batch, true
}
