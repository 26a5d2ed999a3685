package sqsub

import (
	"cmp"
	"slices"
)

// A lane is a sequence of deliveries that run one after another: those of one
// group in a FIFO queue; those of one message, which SQS may deliver again while
// an earlier delivery of it is here, in a standard queue. A lane is in the map
// of lanes for as long as it has a delivery. It belongs to the loop.
type lane struct {
	key     string
	current *delivery    // running, or being settled
	waiting []*delivery  // in the order to run
	first   [1]*delivery // where waiting begins
	slot    bool         // it occupies a slot
	behind  bool         // a delivery waits in it for one that is settling, and it has no slot
	queued  bool         // it waits for one
	parked  *parking     // nil = it does not wait for a message to come back
}

// insert puts a delivery in its place. In a standard queue, where a lane is one
// message, that is the end. In a FIFO queue it is where an earlier delivery of the
// same message waits, or else by the order in which the messages were sent. Of two
// waiting deliveries of one message the older is then returned, and no longer in
// the lane: its receipt handle has expired (D4).
func (ln *lane) insert(d *delivery, fifo bool) (older *delivery) {
	d.lane, d.state = ln, WaitingForPrevious
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
		d.deleteOnly = d.deleteOnly || older.deleteOnly
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

// blocked reports whether nothing may start: nothing waits, or the lane is parked
// and the next was not sent before the message that it waits for.
func (ln *lane) blocked() bool {
	if len(ln.waiting) == 0 {
		return true
	}
	return ln.parked != nil && ln.waiting[0].early != ln.parked
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

// take takes the waiting deliveries from i up to j out of the lane.
func (ln *lane) take(i, j int) []*delivery {
	taken := slices.Clone(ln.waiting[i:j])
	ln.waiting = slices.Delete(ln.waiting, i, j)
	for _, d := range taken {
		d.lane = nil
	}
	return taken
}

// takeOut takes the waiting deliveries out of the lane that which picks.
func (ln *lane) takeOut(which func(*delivery) bool) (taken []*delivery) {
	ln.waiting = slices.DeleteFunc(ln.waiting, func(w *delivery) bool {
		if !which(w) {
			return false
		}
		w.lane = nil
		taken = append(taken, w)
		return true
	})
	return taken
}
