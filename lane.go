package sqsub

import (
	"cmp"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// A lane is a sequence of deliveries that run one after another: those of one
// group in a FIFO queue; those of one message, which SQS may deliver again while
// an earlier delivery of it is here, in a standard queue. A lane is in the map
// of lanes for as long as it has a delivery. It belongs to the loop.
type lane struct {
	key     string
	current *delivery   // running, or being settled
	waiting []*delivery // in the order to run
	slot    bool        // it occupies a slot
	queued  bool        // it waits for one
	parked  *parking    // nil = it does not wait for a message to come back
}

// insert puts a delivery in its place. In a standard queue, where a lane is one
// message, that is the end. In a FIFO queue it is where an earlier delivery of the
// same message waits, or else by the order in which the messages were sent. Of two
// waiting deliveries of one message the older is then returned, and no longer in
// the lane: its receipt handle has expired (D4).
func (ln *lane) insert(d *delivery, fifo bool) (older *delivery) {
	d.lane, d.state = ln, WaitingForBefore
	if !fifo {
		ln.waiting = append(ln.waiting, d)
		return nil
	}
	if i := slices.IndexFunc(ln.waiting, d.sameMessage); i >= 0 {
		return ln.replace(i, d)
	}
	i := slices.IndexFunc(ln.waiting, func(w *delivery) bool { return ln.precedes(d, w) })
	if i < 0 {
		i = len(ln.waiting)
	}
	if i == 0 || ln.waiting[i-1].early == ln.parked {
		d.early = ln.parked
	}
	ln.waiting = slices.Insert(ln.waiting, i, d)
	return nil
}

// replace puts d in the place of an earlier delivery of the same message and
// returns that; or d, if it is the earlier one and its answer came late.
func (ln *lane) replace(i int, d *delivery) (older *delivery) {
	older = ln.waiting[i]
	if older.ReceiveCount() > d.ReceiveCount() {
		older = d
	} else {
		ln.waiting[i] = d
		d.handled = d.handled || older.handled
		d.state, d.early = older.state, older.early
	}
	older.lane = nil
	return older
}

// precedes reports whether d is to run before w, which waits. The messages of one
// response are in order (F1); between responses sequence numbers tell (M1), and
// where a server gives none, the message that runs or failed is first.
func (ln *lane) precedes(d, w *delivery) bool {
	if d.response == w.response {
		return false
	}
	if a, b := d.sequence(), w.sequence(); a != "" && b != "" {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) < 0
	}
	return ln.current != nil && ln.current.sameMessage(d) || ln.parked != nil && ln.parked.awaited.sameMessage(d)
}

func (d *delivery) sequence() string {
	return d.system(types.MessageSystemAttributeNameSequenceNumber)
}

// blocked reports whether nothing that waits may run: a message has to come back
// first, or nothing waits.
func (ln *lane) blocked() bool {
	return len(ln.waiting) == 0 || ln.waiting[0].early != ln.parked && ln.parked != nil
}

// supersedes reports whether a newer delivery of d's message runs next.
func (ln *lane) supersedes(d *delivery) bool { return ln.copies(d) > 0 }

// copies counts the deliveries of d's message that run next.
func (ln *lane) copies(d *delivery) int {
	n := 0
	for n < len(ln.waiting) && ln.waiting[n].sameMessage(d) {
		n++
	}
	return n
}

// takeWaiting takes the waiting deliveries from position i on out of the lane.
func (ln *lane) takeWaiting(i int) []*delivery {
	taken := slices.Clone(ln.waiting[i:])
	clear(ln.waiting[i:])
	ln.waiting = ln.waiting[:i]
	for _, d := range taken {
		d.lane = nil
	}
	return taken
}

func (d *delivery) sameMessage(other *delivery) bool {
	return d.ID() != "" && d.ID() == other.ID()
}

// A parking is a FIFO group that waits, held and without a slot, for a message
// of it to come back that has failed.
//
// Handing the followers back would be simpler. But each receive counts towards
// the redrive limit (X7), SQS delivers a group's messages together (F1), and so
// a message that keeps failing would carry its followers into the dead-letter
// queue, some of them never tried (B070). While they are held SQS can deliver
// nothing of the group but the message that failed (F2), and it comes alone.
type parking struct {
	ln      *lane
	awaited *delivery     // an earlier delivery of the message that has to come first
	probe   bool          // it has not failed, but was released to see whether it comes back
	over    chan struct{} // closed when it is over
}

// patience is how long after a message is visible again its group waits for it
// here. If it does not come, another consumer has it, or it has moved to the
// dead-letter queue.
const patience = 2 * time.Second

func (l *dispatcher) park(ln *lane, awaited *delivery) *parking {
	ln.parked = &parking{ln: ln, awaited: awaited, over: make(chan struct{})}
	l.parked++
	return ln.parked
}

func (l *dispatcher) unpark(ln *lane) {
	if ln.parked != nil {
		close(ln.parked.over)
		ln.parked = nil
		l.parked--
	}
}

// watch reports when the message of a parking is overdue, which is visible again
// after delay.
func (l *dispatcher) watch(p *parking, delay time.Duration) {
	l.goroutines.Go(func() {
		timer := time.NewTimer(delay + patience)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.over:
			return
		}
		select {
		case l.events <- noShow{p}:
		case <-p.over:
		}
	})
}

// takeNoShow gives up waiting for a message, unless it could not come, since an
// earlier one is in hand (F2). Which of the two has happened to it shows by
// releasing the next of its group alone: if that comes back, it is the turn of the
// rest; if it does not, the rest is released too, last to first.
func (l *dispatcher) takeNoShow(p *parking) {
	ln := p.ln
	switch {
	case ln.parked != p:
	case ln.current != nil, !ln.blocked():
		l.watch(p, 0)
	case p.probe, len(ln.waiting) <= 1:
		l.unpark(ln)
		l.release(ln.takeWaiting(0))
		l.advance(ln)
	default:
		l.unpark(ln)
		next := ln.waiting[0]
		ln.waiting = slices.Delete(ln.waiting, 0, 1)
		next.lane = nil
		probe := l.park(ln, next)
		probe.probe = true
		l.watch(probe, 0)
		l.release([]*delivery{next})
	}
}
