package sqsub

import (
	"sync"
	"time"

	"github.com/sqsub/sqsub/internal/queue"
)

// workers run the handlers of what the loop has started, each at once: whenever a
// delivery waits for its turn, a worker that is about to look for it is runnable. A
// worker summons the next one before it runs a handler, and goes on with what still
// waits when that has returned. So a handler that takes its time delays nobody, and
// handlers that return at once need one or two goroutines for all that a receive
// has brought.
type workers struct {
	mu       sync.Mutex
	waiting  []*delivery
	summoned bool // a worker is about to look; it is whenever something waits
}

// add gives the workers a delivery. It reports whether one has to be summoned.
func (w *workers) add(d *delivery) (summon bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = append(w.waiting, d)
	summon = !w.summoned
	w.summoned = true
	return summon
}

// next is the delivery whose handler a worker runs next, nil if there is none, and
// whether it is the last that waits. first says that the worker has just been
// summoned: if more wait, it has to summon the next.
func (w *workers) next(first bool) (d *delivery, last, summon bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) > 0 {
		d = w.waiting[0]
		w.waiting[0] = nil
		w.waiting = w.waiting[1:]
	}
	last = len(w.waiting) == 0
	if first {
		w.summoned = !last
	}
	return d, last, first && !last
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
	d, last, summon := s.workers.next(first)
	if summon {
		s.summonWorker()
	}
	if last { // else a worker that is runnable comes to this
		s.tellReturned()
	}
	return d
}

// summonWorker needs little stack, since it is on that of a worker that summons
// another.
func (s *Subscription) summonWorker() {
	s.goroutines.Add(1)
	go s.worker()
}

// atOnce is what a handler takes that returns at once. The loop is told of ten such
// together: a slot is free half a millisecond later, or when the next worker runs.
const atOnce = 50 * time.Microsecond

// handlerReturned frees the slot of a handler.
func (s *Subscription) handlerReturned(d *delivery, took time.Duration) {
	if n := s.returned.add(d); took >= atOnce || n >= queue.BatchSize {
		s.tellReturned()
	}
}

func (s *Subscription) tellReturned() {
	if ds := s.returned.take(); len(ds) > 0 {
		s.tell(returned{ds})
	}
}

// A report collects deliveries to which the same has happened, so that one event
// tells the loop of several.
type report struct {
	mu sync.Mutex
	ds []*delivery
}

// add returns how many there are.
func (r *report) add(d *delivery) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ds == nil {
		r.ds = make([]*delivery, 0, queue.BatchSize)
	}
	r.ds = append(r.ds, d)
	return len(r.ds)
}

func (r *report) take() (ds []*delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ds, r.ds = r.ds, nil
	return ds
}
