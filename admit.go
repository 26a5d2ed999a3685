package sqsub

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// hold takes a message in hand: from now on it is extended. A repeated receive
// may bring what the first try took (R12). An answer that is overdue was under
// way, or waited here while the process stood still: SQS hid the message at the
// end of the wait time, not when the answer was read (R18).
func (l *dispatcher) hold(m types.Message, r pollResult, announced <-chan struct{}) *delivery {
	d := &delivery{Delivery: Delivery{Message: m, QueueURL: l.QueueURL(), ReceivedAt: r.Answered}, receipt: aws.ToString(m.ReceiptHandle)}
	h := newHold(r.first, arrived(r.Answered, r.Sent.Add(r.wait+answerTime)), l.visibility, l.maxHold)
	d.ctx, d.cancel = context.WithCancelCause(l.base)
	if h.timeout > 0 {
		d.ctx = holdContext{d.ctx, h.limit}
	}
	d.announced = announced
	l.keep(d)
	d.ext.start(l.Subscription, d, h)
	return d
}

// admit puts received messages in hand, and in the order of their lanes.
func (l *dispatcher) admit(r pollResult) {
	l.responses++
	var late []*delivery
	var announced chan struct{}
	if l.hooks.Received != nil {
		announced = make(chan struct{})
		defer close(announced)
	}
	for _, m := range r.Messages {
		if aws.ToString(m.ReceiptHandle) == "" {
			l.log.Error("a message without a receipt handle was received: it can neither be extended nor deleted", "message", aws.ToString(m.MessageId))
			continue
		}
		d := l.hold(m, r, announced)
		d.response = l.responses
		l.stats.received.Add(1)
		if f := l.hooks.Received; f != nil {
			hook(func() { f(&d.Delivery) })
		}
		if l.stopping && !l.concerns(d) {
			late = append(late, d)
			continue
		}
		l.enter(d)
	}
	l.release(late)
}

// concerns reports whether a stop keeps a delivery that it would release: its
// message was handled here, or its handler runs.
func (l *dispatcher) concerns(d *delivery) bool {
	if l.memory.has(d.ID(), d.ReceivedAt) {
		return true
	}
	ln := l.lanes[l.key(d)]
	return ln != nil && ln.current != nil && ln.current.sameMessage(d)
}

// enter puts a delivery into its lane.
func (l *dispatcher) enter(d *delivery) {
	d.deleteOnly = l.memory.has(d.ID(), d.ReceivedAt)
	key := l.key(d)
	ln := l.lanes[key]
	if ln == nil {
		ln = l.newLane(key, d)
		l.lanes[key] = ln
	}
	if older := ln.insert(d, l.fifo); older != nil {
		l.drop(older)
		if older == d {
			return
		}
	}
	if ln.parked != nil && ln.parked.awaited.sameMessage(d) {
		l.unpark(ln)
	}
	if d.deleteOnly {
		l.log.Info("a message came again whose delete was not confirmed: it is deleted, not handled again", d.attrs()...)
	}
	if c := ln.current; c != nil && c.state == Running && c.sameMessage(d) && c.ext.err() != nil && !c.again {
		c.again = true
		l.log.Warn("a message was delivered again whose handler goes on after it has lost it: it waits here until that has returned", d.attrs()...)
	}
	switch {
	case ln.queued:
		ln.waiting[0].state = WaitingForSlot
		for _, w := range ln.waiting[1:] {
			w.state = WaitingForPrevious
		}
	case ln.current == nil && l.stopping:
		l.advance(ln)
	case ln.current == nil && !ln.blocked():
		l.queueUp(ln)
	case ln.current != nil && ln.current.state == Settling && !ln.slot && !ln.blocked():
		l.setBehind(ln, true)
	}
}

// newLane makes the lane of a delivery that has none to join. In a standard queue
// it is a part of the delivery, as hardly another ever joins; but that of a FIFO
// group may be there for days, and the first message of it should not.
func (l *dispatcher) newLane(key string, d *delivery) *lane {
	ln := &d.own
	if l.fifo {
		ln = new(lane)
	}
	ln.key, ln.waiting = key, ln.first[:0]
	return ln
}

func (l *dispatcher) key(d *delivery) string {
	if l.fifo {
		return d.GroupID()
	}
	if id := d.ID(); id != "" {
		return id
	}
	return d.receipt
}
