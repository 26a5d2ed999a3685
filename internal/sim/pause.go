package sim

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// In a pause the process of a consumer stands still: a SIGSTOP, a machine that
// is suspended, a long collection of garbage. SQS, its clock and the other
// consumers go on.
//
// A bubble cannot stop some of its goroutines. What stands still is all that the
// library has to do with the world: none of its calls leaves or is answered,
// whatever has become of their contexts; no handler goes on; what is reported to
// its loop waits in a hook; nobody stops it. What deviates from a process that
// stands still:
//
//   - The library's timers fire in the pause, not all at its end. An extension or
//     a retry that is due then gets as far as its call, and with it the extender as
//     far as it would have come at the end of the pause: the call leaves then, unless
//     its time is over. But what it asked the clock for before the call, it asked
//     in the pause. Handlers are cancelled in the pause where no call is needed for it:
//     at the limit of a hold and at the end of a drain.
//   - SQS sees the end of a call's time limit in the pause, as if the connection
//     of a process that does not move were cut by something in between. An answer
//     that was there before it waits for the process.
//   - The monotonic clock goes on, as in a SIGSTOP. That it stands still while a
//     machine is suspended cannot be shown in a bubble.

// planPauses has the process of some places stand still, mostly not long after a
// message was sent, for a part of the visibility timeout or for several. It has a
// draw of its own: what else a seed decides does not depend on it.
func (p *plan) planPauses() {
	d := p.draw("pauses")
	if p.fair() || !d.chance(0.5) {
		return
	}
	for i := range p.slots {
		s := &p.slots[i]
		timeout := cmp.Or(s.visibility, p.visibility)
		for range d.IntN(4) {
			from := d.within(p.length)
			if d.chance(0.7) {
				from = p.messages[d.IntN(len(p.messages))].at + d.skewed(2*timeout)
			}
			x := d.Float64()
			to := min(from+time.Duration((0.1+4*x*x)*float64(timeout)), p.length)
			apart := func(other span) bool { return to < other.from || other.to < from }
			if from < to && !slices.ContainsFunc(s.pauses, func(other span) bool { return !apart(other) }) {
				s.pauses = append(s.pauses, span{from, to})
			}
		}
		slices.SortFunc(s.pauses, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	}
}

// pauseAt is the pause of which t is a part.
func (c *consumer) pauseAt(t time.Time) (pause span, ok bool) {
	at := t.Sub(c.record.began)
	for _, pause := range c.pauses {
		if pause.has(at) {
			return pause, true
		}
	}
	return span{}, false
}

// stand stands still for as long as the process of the consumer does. It returns
// the error of ctx, if that has ended meanwhile.
func (c *consumer) stand(ctx context.Context) error {
	pause, ok := c.pauseAt(time.Now())
	if !ok {
		return nil
	}
	timer := time.NewTimer(time.Until(c.record.began.Add(pause.to)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.line.dead.Done():
	}
	return ctx.Err()
}

// outrun reports whether a call whose answer came, and whose time limit ended,
// in a pause finds the limit first. It is the same for all of one kind.
func (c *consumer) outrun(call string) bool {
	return c.draw("outrun", c.number, call, time.Since(c.record.began)).chance(0.5)
}

// awake is t, or the end of the pause that t is in: when the consumer can act.
func (c *consumer) awake(t time.Time) time.Time {
	if pause, ok := c.pauseAt(t); ok {
		return c.record.began.Add(pause.to)
	}
	return t
}

// resumed reports whether a pause ends at t.
func (c *consumer) resumed(t time.Time) bool { return c.decided(t).Before(t) }

// decided is when the library may have decided on what left at t: in the pause that
// ends then, if there is one.
func (c *consumer) decided(t time.Time) time.Time {
	at := t.Sub(c.record.began)
	for _, pause := range c.pauses {
		if pause.to == at {
			return c.record.began.Add(pause.from)
		}
	}
	return t
}

// active is how long the consumer did not stand still between two times.
func (c *consumer) active(from, to time.Time) time.Duration {
	active := to.Sub(from)
	for _, pause := range c.pauses {
		begin, end := c.record.began.Add(pause.from), c.record.began.Add(pause.to)
		if begin.Before(from) {
			begin = from
		}
		if end.After(to) {
			end = to
		}
		active -= max(0, end.Sub(begin))
	}
	return active
}

// tellPauses tells of the pauses of a place in the story of the run.
func (f *fleet) tellPauses(s slot) {
	for _, pause := range s.pauses {
		f.sleepUntil(f.record.began.Add(pause.from))
		f.record.note("the process of place %d stands still until %v", s.name, pause.to)
	}
}
