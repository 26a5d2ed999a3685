package queue

import "sync"

// A pool is the goroutines that are inside the SDK. A call needs some 20 KiB of
// stack, which a new goroutine would have to grow first and which the collector
// takes from one that idles. So they stay for other calls, of whatever kind, and
// the last to become idle is the first to be used.
type pool struct {
	mu     sync.Mutex
	idle   []chan func()
	closed bool

	running sync.WaitGroup
}

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
	for ; f != nil; f = <-next {
		f()
		if !p.rest(next) {
			return
		}
	}
}

// rest makes a goroutine idle. It is false at the end.
func (p *pool) rest(next chan func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.idle = append(p.idle, next)
	}
	return !p.closed
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
