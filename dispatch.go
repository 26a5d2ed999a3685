package sqsub

import (
	"cmp"
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"time"
)

// A dispatcher is the state of a subscription. It belongs to the goroutine that
// runs loop; nothing else reads or writes it.
type dispatcher struct {
	*Subscription
	held     []*delivery // in no particular order
	lanes    map[string]*lane
	ready    []*lane // lanes that wait for a slot, the longest waiting first
	busy     int     // slots occupied
	running  int     // handlers
	parked   int     // lanes
	behind   int     // lanes
	settling int     // deliveries whose handler has returned and that are not settled
	receiver receiver
	memory   memory

	unconfirmed unconfirmed

	responses uint64 // received

	stopping   bool
	drainTimer *time.Timer // runs while stopping

	// The three ways to stop; each nil once it has been heeded.
	ended, drained, aborted <-chan struct{}
}

// eventBurst is how many events the loop takes before it looks for what to start:
// with quick handlers many come together, and looking once for all is cheaper.
const eventBurst = 64

// loop runs the subscription until it is stopped and nothing is in hand.
func (s *Subscription) loop(ctx context.Context) error {
	l := &dispatcher{
		Subscription: s,
		lanes:        make(map[string]*lane),
		receiver:     newReceiver(s),
		drainTimer:   time.NewTimer(0),
		ended:        ctx.Done(),
		drained:      s.draining,
		aborted:      s.aborting,
	}
	l.drainTimer.Stop()
	defer l.drainTimer.Stop()
	nextReceive := time.NewTimer(0)
	defer nextReceive.Stop()
	defer l.publish()

	// Stops are heeded before anything is started, and before it is asked whether
	// all is done: select picks any of the cases that are ready.
	for l.heedStops(); !l.stopping || len(l.receiver.open) > 0 || len(l.held) > 0; l.heedStops() {
		l.startReady()
		if at := l.receive(); at.IsZero() {
			nextReceive.Stop()
		} else {
			nextReceive.Reset(time.Until(at))
		}
		l.publish()
		runtime.Gosched() // handlers that return at once do so first, and the loop wakes once for several

		select {
		case <-l.ended:
		case <-l.drained:
		case <-l.aborted:
		case <-l.drainTimer.C:
			l.abort()
		case <-nextReceive.C:
		case e := <-l.events:
			l.take(e)
			for range min(len(l.events), eventBurst) {
				l.take(<-l.events)
			}
		}
	}
	return l.receiver.fatal
}

// publish sets the gauges of Stats.
func (l *dispatcher) publish() {
	l.stats.receiving.Store(int64(len(l.receiver.open)))
	l.stats.inFlight.Store(int64(len(l.held)))
	l.stats.waiting.Store(int64(len(l.held) - l.running - l.settling))
	l.stats.settling.Store(int64(l.settling))
}

func (l *dispatcher) queueUp(ln *lane) {
	ln.queued = true
	ln.waiting[0].state = WaitingForSlot
	l.ready = append(l.ready, ln)
}

func (l *dispatcher) unqueue(ln *lane) {
	if ln.queued {
		ln.queued = false
		l.ready = slices.DeleteFunc(l.ready, func(r *lane) bool { return r == ln })
	}
}

// startReady starts handlers while slots are free.
func (l *dispatcher) startReady() {
	for !l.stopping && l.busy < l.concurrency && len(l.ready) > 0 {
		ln := l.ready[0]
		l.ready[0] = nil
		l.ready = l.ready[1:]
		ln.queued, ln.slot = false, true
		l.busy++
		l.start(ln)
	}
}

// start starts the next delivery of a lane that has a slot.
func (l *dispatcher) start(ln *lane) {
	d := ln.waiting[0]
	ln.waiting[0] = nil
	ln.waiting = ln.waiting[1:]
	ln.current = d
	d.state = Running
	l.running++
	if l.workers.add(d) {
		l.summonWorker()
	}
}

// takeReturn frees the slot of a handler that has returned, unless that has been
// done. A lane with more to run keeps its slot until the next can start.
func (l *dispatcher) takeReturn(d *delivery) {
	if d.state != Running {
		return
	}
	ln := d.lane
	d.state = Settling
	l.running--
	l.settling++
	if ln.blocked() {
		l.freeSlot(ln)
	}
	l.boundSettling()
}

// fail decides what becomes of the lane of a delivery that failed.
func (l *dispatcher) fail(d *delivery, last bool) aftermath {
	ln := d.lane
	switch {
	case ln.supersedes(d), !l.fifo && len(ln.waiting) > 0:
		// The newer delivery runs next. A delay set through the old receipt
		// handle would act on it (V8).
		return aftermath{superseded: true}
	case len(ln.waiting) == 0, l.stopping: // a stop leaves only what is to be deleted
		return aftermath{}
	case last: // its group goes on without it (X6)
		return aftermath{}
	case ln.parked == nil && l.parked < l.concurrency && !ln.precedes(ln.waiting[0], d):
		l.park(ln, d)
		return aftermath{}
	}
	l.unpark(ln)
	return aftermath{followers: ln.take(0, len(ln.waiting))}
}

// setBehind notes whether something waits in a lane for a delivery that is settling,
// and has given up its slot: it is going to need one.
func (l *dispatcher) setBehind(ln *lane, behind bool) {
	switch {
	case behind && !ln.behind:
		l.behind++
	case !behind && ln.behind:
		l.behind--
	}
	ln.behind = behind
}

func (l *dispatcher) freeSlot(ln *lane) {
	if ln.slot {
		ln.slot = false
		l.busy--
	}
}

// takeSettlement forgets a delivery that has its outcome, and lets the next of
// its lane go on.
func (l *dispatcher) takeSettlement(d *delivery) {
	l.forget(d)
	if d.handled {
		l.noteHandled(d)
	}
	ln := d.lane
	if ln == nil || ln.current != d { // released, or dropped
		return
	}
	l.takeReturn(d)
	ln.current = nil
	l.settling--
	if ln.parked != nil && ln.parked.awaited == d {
		l.watch(ln.parked, time.Now().Add(d.result.Delay))
	}
	if l.fifo && d.result.Outcome == Unsettled {
		// The message is going to come back: none of its group may overtake it.
		l.release(ln.take(ln.copies(d), len(ln.waiting)))
	}
	l.advance(ln)
}

func (l *dispatcher) keep(d *delivery) {
	d.place = len(l.held)
	l.held = append(l.held, d)
}

// forget takes a delivery out of held. It must be called once for each.
func (l *dispatcher) forget(d *delivery) {
	end := len(l.held) - 1
	last := l.held[end]
	l.held[d.place], last.place = last, d.place
	l.held[end] = nil
	l.held = l.held[:end]
}

// noteHandled sees to it that a message handled successfully is not run again:
// other deliveries of it that are here are only deleted, each with its own
// receipt handle, and so are later ones, if the delete was not confirmed while the
// message was held.
func (l *dispatcher) noteHandled(d *delivery) {
	confirmed := d.result.Outcome == Deleted || d.result.Outcome == Discarded
	if !confirmed || d.ext.errAt(d.removal.ended) != nil {
		l.memory.add(d.ID(), time.Now())
	}
	if d.lane == nil {
		return
	}
	for _, w := range d.lane.waiting {
		w.deleteOnly = w.deleteOnly || w.sameMessage(d)
	}
}

// advance lets a lane without a current delivery go on: it starts the next if
// it has kept its slot, lines up for one, or is gone.
func (l *dispatcher) advance(ln *lane) {
	l.setBehind(ln, false)
	switch {
	case len(ln.waiting) == 0:
		l.unpark(ln)
		l.freeSlot(ln)
		delete(l.lanes, ln.key)
	case ln.blocked():
		l.freeSlot(ln)
	case l.stopping && !ln.waiting[0].deleteOnly:
		l.release(ln.take(0, len(ln.waiting)))
		l.advance(ln)
	case l.stopping: // copies of a message that was handled: they are only deleted
		l.start(ln)
	case ln.slot:
		l.start(ln)
	default:
		l.queueUp(ln)
	}
}

// takeLoss deals with a delivery whose visibility was lost. If it was waiting
// it is not started. In a FIFO queue what waits behind it must not overtake it.
func (l *dispatcher) takeLoss(d *delivery) {
	ln := d.lane
	if ln == nil {
		return // released or dropped
	}
	i := slices.Index(ln.waiting, d) // -1: it is the current one
	if l.fifo && !(i < 0 && ln.supersedes(d)) {
		l.release(ln.take(i+1, len(ln.waiting)))
	}
	if i >= 0 {
		ln.take(i, i+1)
		l.drop(d)
	}
	switch {
	case len(ln.waiting) > 0:
		if ln.queued {
			ln.waiting[0].state = WaitingForSlot
		}
	case ln.current == nil:
		l.unqueue(ln)
		l.advance(ln)
	case ln.current.state == Settling:
		l.freeSlot(ln)
		l.setBehind(ln, false)
	}
}

// drop ends a delivery without a call: it was lost before it was started, or a
// newer delivery of its message is here.
func (l *dispatcher) drop(d *delivery) {
	l.goroutines.Go(func() {
		d.ext.stop()
		l.finish(d, Result{Outcome: Lost, Err: cmp.Or(d.ext.err(), errSuperseded)})
	})
}

var errSuperseded = errors.New("sqsub: a newer delivery of the message is here")

// receive opens the receives that are wanted now. It returns when to ask again,
// unless something happens before; zero is never.
func (l *dispatcher) receive() time.Time {
	switch {
	case l.stopping:
		return time.Time{}
	case l.settling-maxUnconfirmed > l.concurrency:
		return l.unconfirmed.pause(l)
	}
	l.unconfirmed.resume(l)
	return l.receiver.fill(l.room(), l.busy)
}

// room is how many messages can be taken in hand: one for each slot that is free
// and for each place to wait. A lane takes up one, with all that waits in it, be it
// a FIFO group or a message delivered again whose handler does not heed its loss. As
// many lanes as there are slots may wait besides for deletes to be confirmed: a few
// that never are must not keep the slots idle. A queue that hides nothing may deliver
// a message again and again.
func (l *dispatcher) room() int {
	taken := l.busy + len(l.ready) + max(0, l.behind-l.concurrency)
	if l.visibility == 0 {
		taken = len(l.held) - l.settling
	}
	room := l.concurrency - taken
	if sum := room + l.prefetch; sum >= room { // either may be as large as an int can be
		return sum
	}
	return math.MaxInt
}

// takePoll takes in what a receive brought.
func (l *dispatcher) takePoll(r pollResult) {
	l.receiver.takeAnswer(r)
	if l.receiver.fatal != nil {
		l.drain()
	}
	l.admit(r)
}
