package queue

import (
	"slices"
	"sync"
	"time"
)

// maxSenders bounds the goroutines that are inside the SDK at once, for each of
// deletes and changes: a call needs some 20 KiB of stack. It is enough for 50,000
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

// A Caller is told how a call went: once, unless the call was withdrawn, and when
// the request was sent and answered. Done must not block: the other callers of a
// batch wait for it.
type Caller interface {
	Done(sent, answered time.Time, err error)
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
	pool *pool

	mu       sync.Mutex
	pending  []*Call     // in the order they came
	owed     int         // batches of them that are full or due
	ready    [][]*Call   // batches that are to leave as they are
	timer    *time.Timer // fires when the first of pending is due that is not owed, or earlier
	fires    time.Time   // when that is
	senders  int         // that are at work
	flushing bool

	timers sync.WaitGroup // timers that have not been stopped, until they have done their work
}

func newBatcher(size int, send func([]*Call), p *pool) *batcher {
	return &batcher{size: size, send: send, pool: p}
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
		b.owed = min(b.owed, (len(b.pending)+b.size-1)/b.size)
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

// close flushes and waits until no timer is left. Nothing may be added any more.
// The senders end with the pool.
func (b *batcher) close() {
	b.flush()
	b.timers.Wait()
}

// oweAll makes all that is pending leave.
func (b *batcher) oweAll() {
	b.disarm()
	for b.owed*b.size < len(b.pending) {
		b.owed++
		b.employ()
	}
}

// employ sees to it that one more batch is sent.
func (b *batcher) employ() {
	if b.senders < maxSenders {
		b.senders++
		b.pool.run(b.sender)
	}
}

func (b *batcher) sender() {
	for {
		batch, late, ok := b.next()
		if !ok {
			return
		}
		for _, c := range late {
			now := time.Now()
			c.Caller.Done(now, now, errTooLate)
		}
		if len(batch) > 0 {
			b.send(batch)
		}
	}
}

// next takes the next batch to send, less what was withdrawn meanwhile, and apart
// from that what waited beyond its deadline. It is false if there is none, and the
// sender is done.
func (b *batcher) next() (batch, late []*Call, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.ready) == 0 && b.owed == 0 {
		b.senders--
		return nil, nil, false
	}
	if len(b.ready) > 0 {
		batch, late = leaving(b.ready[0])
		b.ready = rest(b.ready, 1)
		return batch, late, true
	}
	n := min(b.size, len(b.pending))
	batch, late = leaving(b.pending[:n])
	b.pending = rest(b.pending, n)
	b.owed--
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

// rest is the list without its first n elements.
func rest[T any](list []T, n int) []T {
	clear(list[:n])
	return list[n:]
}

// fired makes what is pending leave if any of it is due. The timer is not set anew
// with each batch that is full before it fires.
func (b *batcher) fired() {
	waiting := b.pending[min(len(b.pending), b.owed*b.size):]
	if len(waiting) == 0 {
		return
	}
	first := waiting[0].leaveBy
	for _, c := range waiting[1:] {
		first = earlier(first, c.leaveBy)
	}
	if first.After(time.Now()) {
		b.arm(first)
	} else {
		b.oweAll()
	}
}

func (b *batcher) arm(at time.Time) {
	b.disarm()
	b.timers.Add(1)
	var timer *time.Timer
	timer = time.AfterFunc(time.Until(at), func() {
		defer b.timers.Done()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.timer == timer { // else it fired while it was being replaced
			b.timer = nil
			b.fired()
		}
	})
	b.timer, b.fires = timer, at
}

func (b *batcher) disarm() {
	if b.timer != nil && b.timer.Stop() {
		b.timers.Done()
	}
	b.timer = nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
