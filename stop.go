package sqsub

import (
	"slices"
	"strings"
	"time"

	"github.com/sqsub/sqsub/internal/queue"
)

// heedStops does what the stops ask for that have come.
func (l *dispatcher) heedStops() {
	if heeds(&l.ended) {
		l.drain()
	}
	if heeds(&l.drained) {
		l.stop()
	}
	if heeds(&l.aborted) {
		l.cancelAll()
	}
}

// heeds reports whether the channel is closed, the first time that it is.
func heeds(stop *<-chan struct{}) bool {
	if !closed(*stop) {
		return false
	}
	*stop = nil
	return true
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// stop begins the end: nothing is received or started any more.
func (l *dispatcher) stop() {
	l.stopping = true
	l.queue.Flush()
	var unstarted []*delivery
	for _, ln := range l.lanes {
		l.unpark(ln)
		l.unqueue(ln)
		// What was handled is only deleted, and copies of a message whose handler
		// runs wait for what comes of it.
		unstarted = append(unstarted, ln.takeOut(func(w *delivery) bool {
			return !w.deleteOnly && !(ln.current != nil && ln.current.sameMessage(w))
		})...)
		switch {
		case ln.current == nil:
			l.advance(ln)
		case ln.current.state == Settling && ln.blocked():
			l.freeSlot(ln)
		}
	}
	l.log.Debug("stopping", "handlers", l.running, "unstarted", len(unstarted), "receives", len(l.receiver.open))
	l.release(unstarted)
	if l.drainTimeout > 0 {
		l.drainTimer.Reset(l.drainTimeout)
	}
	l.boundSettling()
}

// boundSettling bounds what is left of a stop when no handler runs any more:
// WithDrainTimeout(0) is for handlers.
func (l *dispatcher) boundSettling() {
	if l.stopping && l.drainTimeout == 0 && l.running == 0 {
		l.drainTimer.Reset(settlingTimeout)
	}
}

// settlingTimeout is how long the rest of a stop may take when no handler runs any
// more: longer than a delete is tried that comes late (lateLimit).
const settlingTimeout = 40 * time.Second

// cancelAll ends a stop's patience.
func (l *dispatcher) cancelAll() {
	l.cancelPolling()
	var unfinished []string
	for _, d := range l.held {
		if d.state == Running {
			unfinished = append(unfinished, d.ID())
			d.cancel(ErrShutdown)
		}
	}
	if n := len(unfinished); n > 0 {
		l.log.Warn("the stop waits no longer: handlers are cancelled", "handlers", n, "messages", some(unfinished))
	}
}

// release hands deliveries back that were not started, the last of them first:
// in that order a FIFO group comes back whole (F3). Groups go side by side, as many
// in one request as fit; but one whose hold is near its end goes alone, since a
// request may take no longer than the shortest hold in it.
func (l *dispatcher) release(ds []*delivery) {
	if l.fifo {
		slices.SortStableFunc(ds, func(a, b *delivery) int { return strings.Compare(a.GroupID(), b.GroupID()) })
	}
	var request []outgoing
	send := func() {
		if back := request; len(back) > 0 {
			l.goroutines.Go(func() { l.handBack(back) })
		}
		request = nil
	}
	for len(ds) > 0 {
		n := 1
		for l.fifo && n < len(ds) && ds[n].GroupID() == ds[0].GroupID() {
			n++
		}
		group := make([]outgoing, 0, n)
		for _, d := range slices.Backward(ds[:n]) {
			group = append(group, outgoing{d: d, r: Result{Outcome: Released}})
		}
		ds = ds[n:]
		if timeLeft(group) < min(settleLimit, l.visibility/4) {
			l.goroutines.Go(func() { l.handBack(group) })
			continue
		}
		if len(request)+n > queue.BatchSize {
			send()
		}
		request = append(request, group...)
	}
	send()
}
