package queue

import (
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
	receipt string
	timeout time.Duration
	limit   time.Duration
	leaveBy time.Time
	result  chan result // buffered: a sender never waits for the caller
}

type result struct {
	sent time.Time
	err  error
}

// A batcher gathers entries into batches. A full batch leaves at
// once, any other when its first entry may wait no longer, with all that has
// come by then. The lock is held for list operations only.
type batcher struct {
	size int            // of a full batch
	send func([]*entry) // sends one batch and puts a result into each of its entries

	mu       sync.Mutex
	pending  []*entry    // not a full batch, and none of them due
	timer    *time.Timer // fires when the first of pending is due
	due      [][]*entry  // batches that wait for a sender
	fires    time.Time   // when
	senders  int
	flushing bool

	running sync.WaitGroup // senders and timers
}

// do sends e in company and returns its result.
func (b *batcher) do(e *entry, d Deadline) result {
	e.leaveBy, e.limit = d.LeaveBy, d.Limit
	e.result = make(chan result, 1)
	b.add(e)
	select {
	case r := <-e.result:
		return r
	case <-d.Withdrawn:
		if b.withdraw(e) {
			return result{err: ErrWithdrawn}
		}
		return <-e.result
	}
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

func (b *batcher) withdraw(e *entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, p := range b.pending {
		if p == e {
			b.pending = append(b.pending[:i], b.pending[i+1:]...)
			b.arm()
			return true
		}
	}
	return false
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
		b.mu.Lock()
		if len(b.due) == 0 {
			b.senders--
			b.mu.Unlock()
			return
		}
		batch := b.due[0]
		b.due = b.due[1:]
		b.mu.Unlock()
		b.send(batch)
	}
}
