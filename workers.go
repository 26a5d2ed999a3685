package sqsub

import (
	"sync"

	"github.com/sqsub/sqsub/internal/queue"
)

// workers run the handlers of what the loop has started, each at once: whenever a
// delivery waits for its turn, a worker that is about to look for it is runnable. A
// worker calls the next one before it runs a handler, and goes on with what still
// waits when that has returned. So a handler that takes its time delays nobody, and
// handlers that return at once need one or two goroutines for all that a receive
// has brought, and tell the loop of it together.
type workers struct {
	mu      sync.Mutex
	waiting []*delivery
	called  bool        // a worker is about to look
	back    []*delivery // their handlers have returned, and the loop is not told yet
}

// add gives the workers a delivery. It reports whether a worker has to be called.
func (w *workers) add(d *delivery) (call bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, d)
	return w.call()
}

func (w *workers) call() bool {
	call := !w.called
	w.called = true
	return call
}

func (w *workers) addReturned(d *delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.back = listed(w.back, d)
}

// listed appends d to a list that as a rule grows to what a request brings.
func listed(ds []*delivery, d *delivery) []*delivery {
	if ds == nil {
		ds = make([]*delivery, 0, queue.BatchSize)
	}
	return append(ds, d)
}

// next is what a worker does next: run the handler of d, if there is one; but
// before that call another worker, if call says so, and tell the loop who is back,
// which is left to that worker if one is called. first says that this one has just
// been called.
func (w *workers) next(first bool) (d *delivery, call bool, back []*delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if first {
		w.called = false
	}
	if len(w.waiting) > 0 {
		d = w.waiting[0]
		w.waiting[0] = nil
		w.waiting = w.waiting[1:]
	}
	if len(w.waiting) == 0 || first {
		back, w.back = w.back, nil
	}
	return d, len(w.waiting) > 0 && w.call(), back
}

// work runs handlers until none waits. What is on its stack is there for each
// handler that runs.
func (s *Subscription) work() {
	defer s.goroutines.Done()
	for first := true; ; first = false {
		d := s.nextToRun(first)
		if d == nil {
			return
		}
		s.handle(d)
	}
}

func (s *Subscription) nextToRun(first bool) *delivery {
	d, call, back := s.workers.next(first)
	if call {
		s.callWorker()
	}
	if len(back) > 0 {
		s.events <- returned{back}
	}
	return d
}

// callWorker needs little stack, since it is on that of a worker that calls
// another.
func (s *Subscription) callWorker() {
	s.goroutines.Add(1)
	go s.worker()
}
