package sqsub

import "time"

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
	visible time.Time     // since when it can come
	over    chan struct{} // closed when it is over
}

// patience is how long after a message is visible again its group waits for it
// here. If it does not come by then, though receives were made, another consumer has
// it, or it has moved to the dead-letter queue. Where none can be made, since all slots
// are busy or SQS is out of reach, it waits until longPatience is over: another consumer
// may have it then as well, and is to get the group, too.
const (
	patience     = 2 * time.Second
	longPatience = 5 * time.Minute
)

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

// watch reports when the message of a parking is overdue, which is visible from the
// given time on.
func (l *dispatcher) watch(p *parking, visible time.Time) {
	p.visible = visible
	wait := max(0, time.Until(visible)) + patience
	l.goroutines.Go(func() {
		timer := time.NewTimer(wait)
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
		l.watch(p, time.Now())
	case !l.receiver.couldBring(p.visible) && time.Since(p.visible) < longPatience:
		l.watch(p, p.visible)
	case p.probe, len(ln.waiting) <= 1:
		l.unpark(ln)
		l.release(ln.take(0, len(ln.waiting)))
		l.advance(ln)
	default:
		l.unpark(ln)
		next := ln.take(0, 1)
		probe := l.park(ln, next[0])
		probe.probe = true
		l.watch(probe, time.Now())
		l.release(next)
	}
}
