package sqstest

import (
	"container/list"
	"time"
)

// poll is a receive that looks for messages, once or for as long as its wait time.
type poll struct {
	call       *Call
	arrived    time.Time
	max        int
	visibility int // seconds; -1 = the queue's
	attemptID  string
	fault      *Fault

	deadline  time.Time     // of a long poll
	wake      chan struct{} // holds one token
	armed     time.Time     // when it looks again by itself
	abandoned bool          // its client has left; the poll goes on (R13)
}

// delivery is a message handed out.
type delivery struct {
	m          *message
	generation uint32
	handle     string
	count      int
}

// wait keeps the poll open until it has received something, its time is over, or its client leaves.
func (x *exchange) wait(q *queue, p *poll) ([]delivery, error) {
	p.wake = make(chan struct{}, 1)
	e := q.polls.PushBack(p)
	defer func() {
		if !p.abandoned {
			q.polls.Remove(e)
		}
		q.server.touch(q) // what woke this poll may now be for the next
	}()
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		p.armed = p.deadline
		if at, ok := q.changesBefore(p.armed); ok && q.firstWaiting() == p {
			p.armed = at
		}
		t.Reset(p.armed.Sub(x.now))
		x.unlock()
		select {
		case <-p.wake:
		case <-t.C:
		case <-x.ctx().Done():
		}
		x.lock()
		if err := x.ctx().Err(); err != nil {
			p.abandoned = x.StrandAbandonedPolls
			return nil, err
		}
		if q.gone {
			return nil, queueDoesNotExist.errorf("The specified queue does not exist.")
		}
		q.advance(x.now)
		found, err := q.take(p, x.now)
		if len(found) > 0 || err != nil || !x.now.Before(p.deadline) {
			return found, err
		}
	}
}

// take receives for a poll what is there at time at. A message received with a timeout of 0 is in flight too, until the
// queue is advanced next: so one response has it once (R11).
func (q *queue) take(p *poll, at time.Time) ([]delivery, error) {
	visibility := time.Duration(p.visibility) * time.Second
	if p.visibility < 0 {
		visibility = q.settings.visibility()
	}
	if p.attemptID != "" {
		if earlier, ok := q.attempts.get(p.attemptID, at); ok {
			return q.repeat(p, earlier, at, visibility)
		}
	}
	room := min(p.max, q.server.inFlightLimit()-q.inFlight)
	copies := 1
	if p.fault.Duplicate && p.max > 1 {
		copies, room = 2, max(room/2, min(room, 1))
	}
	var found []delivery
	for taken := 0; taken < room; {
		picked := q.visible.pick(room - taken)
		if len(picked) == 0 {
			break
		}
		for _, m := range picked {
			if dead := q.deadLetterQueue(m); dead != nil {
				q.bury(m, dead, at)
				continue
			}
			for range copies {
				found = append(found, q.deliver(m, p, at, visibility))
			}
			taken++
		}
	}
	if p.attemptID != "" && len(found) > 0 {
		q.attempts.put(p.attemptID, found, at)
		q.wakeRetries(p)
	}
	p.log(found, visibility)
	return found, nil
}

func (q *queue) deliver(m *message, p *poll, at time.Time, visibility time.Duration) delivery {
	m.count++
	m.generation++
	m.receivedAt = p.arrived
	m.changed = false
	if m.firstReceived.IsZero() {
		m.firstReceived = at
	}
	q.hold(m, at, visibility)
	handle := q.server.handle(receipt{q.serial, m.serial, m.generation, m.receivedAt})
	return delivery{m, m.generation, handle, m.count}
}

// hold puts a delivery in flight for as long as its receive asked for, but not beyond the 12 hours. They count from the
// arrival of the first receive (V5, R18), also when a poll has waited and when an answer is repeated.
func (q *queue) hold(m *message, at time.Time, visibility time.Duration) {
	until := at.Add(visibility)
	if end := m.receivedAt.Add(handleLife); until.After(end) {
		until = end
	}
	q.hide(m, until)
}

// repeat answers a receive that was answered before (R12): with the same messages and handles, hidden anew.
func (q *queue) repeat(p *poll, earlier attempt, at time.Time, visibility time.Duration) ([]delivery, error) {
	for _, d := range earlier {
		if q.messages[d.m.serial] != d.m || d.m.state != InFlight || d.m.generation != d.generation || d.m.changed {
			return nil, errInvalid(p.attemptID, "ReceiveRequestAttemptId",
				"The receiveRequestAttemptId is not valid anymore since the receive call is not retryable.")
		}
	}
	for _, d := range earlier {
		q.hold(d.m, at, visibility)
	}
	p.log(earlier, visibility)
	return earlier, nil
}

func (p *poll) log(found []delivery, visibility time.Duration) {
	for _, d := range found {
		p.call.Entries = append(p.call.Entries, Entry{
			MessageID:     d.m.id,
			ReceiptHandle: d.handle,
			GroupID:       d.m.group,
			ReceiveCount:  d.count,
			Visibility:    int(visibility / time.Second),
		})
	}
}

// receivable reports whether a poll would find something.
func (q *queue) receivable() bool {
	return q.visible.any() && q.inFlight < q.server.inFlightLimit()
}

func (q *queue) firstWaiting() *poll {
	for e := q.polls.Front(); e != nil; e = e.Next() {
		if p := e.Value.(*poll); !p.abandoned {
			return p
		}
	}
	return nil
}

// serve gives the open polls what has become visible, the longest waiting first (R9). Only one is woken: it passes
// the turn on when it leaves. It is woken too when it has to look earlier than it planned.
func (q *queue) serve() {
	if q.gone {
		for e := q.polls.Front(); e != nil; e = e.Next() {
			if p := e.Value.(*poll); !p.abandoned { // nobody waits there, and its channel may be of a bubble now over
				p.signal()
			}
		}
		return
	}
	if q.polls.Len() == 0 {
		return
	}
	q.advance(q.server.now)
	q.serveAbandoned(q.server.now)
	q.advance(q.server.now)
	p := q.firstWaiting()
	if p == nil {
		return
	}
	if _, earlier := q.changesBefore(p.armed); earlier || q.receivable() {
		p.signal()
	}
}

// wakeRetries lets the other open polls of an attempt have what it received just now (R12).
func (q *queue) wakeRetries(p *poll) {
	for e := q.polls.Front(); e != nil; e = e.Next() {
		if retry := e.Value.(*poll); retry != p && !retry.abandoned && retry.attemptID == p.attemptID {
			retry.signal()
		}
	}
}

func (p *poll) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// serveAbandoned lets polls without a client have what is there at a time now past, unless one with a client has
// waited longer.
func (q *queue) serveAbandoned(at time.Time) {
	var next *list.Element
	for e := q.polls.Front(); e != nil; e = next {
		next = e.Next()
		p := e.Value.(*poll)
		if !p.abandoned {
			return
		}
		if !at.Before(p.deadline) {
			q.polls.Remove(e)
			continue
		}
		if !q.receivable() {
			return
		}
		if found, err := q.take(p, at); len(found) > 0 || err != nil {
			q.polls.Remove(e)
		}
	}
}
