package queue

import (
	"slices"
	"sync"
	"time"
)

// maxSenders bounds the goroutines that are inside the SDK at once, for each of
// deletes and changes: a call needs some 30 KiB of stack. It is enough for 50,000
// changes a second at 50 ms a request, and for many hung requests beside those
// that work.
const maxSenders = 256

// A Call is one delete or one change. It is made once.
type Call struct {
	Receipt string        // the handle
	Timeout time.Duration // of a change, in whole seconds: when the message is visible again
	Caller  Caller

	batcher  *batcher
	leaveBy  time.Time // how long it may wait for company
	deadline time.Time // when its result has to be there

	// Guarded by the batcher's lock.
	taken     bool // by a sender: there will be a result
	withdrawn bool
}

// A Caller is told how a call went: once, unless the call was withdrawn. sent is
// when the request was. Done must not block: the other callers of a batch wait for
// it.
type Caller interface {
	Done(sent time.Time, err error)
}

// A Deadline bounds one call.
type Deadline struct {
	LeaveBy time.Time     // how long it may wait for company; a time past = leave now
	Limit   time.Duration // how long it may take from then on
}

// Withdraw takes a call back, so that there will be no result. It is false if it
// is too late for that.
func (c *Call) Withdraw() bool { return c.batcher.withdraw(c) }

// A batcher gathers calls into batches. A full batch leaves at once, any other
// when its first call may wait no longer, with all that has come by the time that
// a sender takes it. The lock is held for list operations only.
type batcher struct {
	size int           // of a full batch
	send func([]*Call) // sends one batch and tells each of its callers

	mu       sync.Mutex
	pending  []*Call     // in the order they came
	owed     int         // batches of them that are full or due
	ready    [][]*Call   // batches that are to leave as they are
	timer    *time.Timer // fires when the first of pending is due that is not owed
	fires    time.Time   // when that is
	senders  int
	idle     []chan struct{} // of them, those that wait for work, or the end; the last to wait is the first to be woken
	flushing bool
	closed   bool

	running sync.WaitGroup // senders and timers
}

func newBatcher(size int, send func([]*Call)) *batcher {
	return &batcher{size: size, send: send}
}

// begin sends c in company.
func (b *batcher) begin(c *Call, d Deadline) {
	now := time.Now()
	c.batcher = b
	c.leaveBy = d.LeaveBy
	c.deadline = now.Add(max(0, d.LeaveBy.Sub(now)) + d.Limit)
	b.add(c, now)
}

// leave sends a batch as it is.
func (b *batcher) leave(batch []*Call) {
	for _, c := range batch {
		c.batcher = b
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready = append(b.ready, batch)
	b.employ()
}

func (b *batcher) add(c *Call, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = append(b.pending, c)
	switch {
	case b.flushing || !c.leaveBy.After(now):
		b.oweAll()
	case len(b.pending) >= (b.owed+1)*b.size:
		b.owed++
		b.employ()
		b.rearm()
	case b.timer == nil || c.leaveBy.Before(b.fires):
		b.arm(c.leaveBy)
	}
}

func (b *batcher) withdraw(c *Call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.taken {
		return false
	}
	c.withdrawn = true
	if i := slices.Index(b.pending, c); i >= 0 {
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
	for _, wake := range b.idle {
		wake <- struct{}{}
	}
	b.idle = nil
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
	case len(b.idle) > 0:
		last := len(b.idle) - 1
		b.idle[last] <- struct{}{}
		b.idle = b.idle[:last]
	case b.senders < maxSenders:
		b.senders++
		b.running.Go(b.sender)
	}
}

func (b *batcher) sender() {
	wake := make(chan struct{}, 1)
	for {
		batch, late, ok := b.next(wake)
		if !ok {
			return
		}
		for _, c := range late {
			c.Caller.Done(time.Now(), errTooLate)
		}
		if len(batch) > 0 {
			b.send(batch)
		}
	}
}

// next waits for a batch to send and takes it, less what was withdrawn meanwhile,
// and apart from that what waited beyond its deadline. It is false at the end.
func (b *batcher) next(wake chan struct{}) (batch, late []*Call, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.ready) == 0 && b.owed == 0 {
		if b.closed {
			return nil, nil, false
		}
		b.idle = append(b.idle, wake)
		b.mu.Unlock()
		<-wake
		b.mu.Lock()
	}
	if len(b.ready) > 0 {
		batch, late = leaving(b.ready[0])
		b.ready = slices.Delete(b.ready, 0, 1)
		return batch, late, true
	}
	n := min(b.size, len(b.pending))
	batch, late = leaving(b.pending[:n])
	b.pending = slices.Delete(b.pending, 0, n)
	b.owed--
	b.rearm()
	return batch, late, true
}

// leaving marks calls as taken, and parts those that are in time from those that
// are late.
func leaving(calls []*Call) (batch, late []*Call) {
	now := time.Now()
	batch = make([]*Call, 0, len(calls))
	for _, c := range calls {
		switch {
		case c.withdrawn:
			continue
		case now.Before(c.deadline):
			batch = append(batch, c)
		default:
			late = append(late, c)
		}
		c.taken = true
	}
	return batch, late
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
