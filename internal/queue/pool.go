package queue

import (
	"runtime"
	"sync"
)

// A pool is the goroutines that are inside the SDK. A call needs some 20 KiB of
// stack, and growing it costs a new goroutine more than all else that the library
// does for a message. So they stay for other calls, of whatever kind, and the last to
// become idle is the first to be used.
type pool struct {
	mu     sync.Mutex
	idle   []chan func()
	closed bool

	running sync.WaitGroup
}

// maxIdle bounds the memory that is kept for calls to come: 32 KiB each.
const maxIdle = 100

// run runs f on a goroutine of the pool.
func (p *pool) run(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		p.running.Go(func() { p.work(f) })
		return
	}
	p.idle[last] <- f
	p.idle = p.idle[:last]
}

func (p *pool) work(f func()) {
	next := make(chan func(), 1) // so that run never waits
	for ; f != nil; f = await(next) {
		f()
		if !p.stays(next) {
			return
		}
	}
}

// stays makes a goroutine idle, unless there are enough, or at the end.
func (p *pool) stays(next chan func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) == maxIdle {
		return false
	}
	p.idle = append(p.idle, next)
	return true
}

// await waits for what an idle goroutine is to run next. Meanwhile more than a
// quarter of 32 KiB is in use: of a stack that is emptier the collector takes half
// away. If it were inlined that would be in use during the call too.
//
//go:noinline
func await(next chan func()) func() {
	var used [9 << 10]byte
	f := <-next
	runtime.KeepAlive(&used)
	return f
}

// close returns when no goroutine is left. What runs is waited for, and may run
// more until it has returned.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	for _, next := range p.idle {
		next <- nil
	}
	p.idle = nil
	p.mu.Unlock()
	p.running.Wait()
}
