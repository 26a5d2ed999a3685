package sqstest

import (
	"container/list"
	"time"
)

// message is one message of one queue.
type message struct {
	serial     uint64 // its identity, also when it moves to another queue
	order      uint64 // its place in the queue
	id         string
	body       string
	bodyMD5    string
	group      string
	dedupID    string
	sequence   string
	attributes map[string]attributeValue
	trace      string // AWSTraceHeader
	source     string // the ARN of the queue it became a dead letter in
	sentAt     time.Time

	state         State
	visibleAt     time.Time // unless visible
	count         int       // receives
	firstReceived time.Time

	// of the last delivery
	generation uint32
	receivedAt time.Time // arrival of the request: the 12 hours count from it (V5, R18)
	changed    bool      // its visibility was changed

	// places in the queue's structures
	agePlace   int
	place      int // among the hidden, or among the visible of a standard queue
	lane       *lane
	prev, next *message
}

// queue is one queue. It is guarded by the server's lock.
//
// Nothing happens in a queue at the time it is due: advance does it later, in the order of time, when a call comes
// that could tell the difference.
type queue struct {
	server   *Server
	serial   uint32
	name     string
	arn      string
	fifo     bool
	settings settings
	pending  []pendingSettings // in the order of time
	created  time.Time
	modified time.Time
	purged   time.Time
	tags     map[string]string
	gone     bool // deleted

	messages map[uint64]*message // by serial number
	byAge    heap[*message]      // all of them, the oldest first
	hidden   heap[*message]      // delayed and in flight, the first to become visible first
	visible  shelf
	inFlight int
	delayed  int

	polls    list.List // of *poll: the open long polls, the longest waiting first
	sent     recent[sending]
	attempts recent[attempt]
}

// shelf holds the visible messages of a queue in the order they are to be delivered in.
type shelf interface {
	insert(*message) // a new message, hidden or not
	show(*message)   // it has become visible
	hide(*message)   // it is not any more
	remove(*message) // it is gone
	any() bool       // whether some message can be delivered
	// pick chooses up to n messages to deliver together. The caller then hides or removes each of them.
	pick(n int) []*message
}

func newQueue(s *Server, name, arn string, fifo bool) *queue {
	s.queueSerial++
	q := &queue{
		server: s, serial: s.queueSerial, name: name, arn: arn, fifo: fifo,
		created: s.now, modified: s.now, tags: map[string]string{},
	}
	q.clear()
	return q
}

// clear drops all messages, and what is remembered of former ones (F9).
func (q *queue) clear() {
	q.messages = map[uint64]*message{}
	q.byAge = heap[*message]{
		place: func(m *message) *int { return &m.agePlace },
		less: func(a, b *message) bool {
			if !a.sentAt.Equal(b.sentAt) {
				return a.sentAt.Before(b.sentAt)
			}
			return a.order < b.order
		},
	}
	q.hidden = heap[*message]{
		place: func(m *message) *int { return &m.place },
		less: func(a, b *message) bool {
			if !a.visibleAt.Equal(b.visibleAt) {
				return a.visibleAt.Before(b.visibleAt)
			}
			return a.order < b.order
		},
	}
	if q.fifo {
		q.visible = newGroups()
	} else {
		q.visible = newPile()
	}
	q.inFlight, q.delayed = 0, 0
	q.sent, q.attempts = recent[sending]{life: fiveMinutes}, recent[attempt]{life: fiveMinutes}
}

// insert adds a message that becomes visible at the given time.
func (q *queue) insert(m *message, visibleAt time.Time) {
	q.messages[m.serial] = m
	q.byAge.push(m)
	m.place = -1
	m.state = Visible
	if visibleAt.After(q.server.now) {
		m.state, m.visibleAt = Delayed, visibleAt
		q.hidden.push(m)
		q.delayed++
	}
	q.visible.insert(m)
	q.server.touch(q)
}

// hide puts a message in flight, or changes until when it is.
func (q *queue) hide(m *message, until time.Time) {
	was := m.state
	q.uncount(m)
	m.state, m.visibleAt = InFlight, until
	if was == Visible {
		q.visible.hide(m)
		q.hidden.push(m)
	} else {
		q.hidden.fix(m)
	}
	q.inFlight++
	q.server.touch(q)
}

func (q *queue) show(m *message) {
	q.uncount(m)
	q.hidden.remove(m)
	m.state, m.visibleAt = Visible, time.Time{}
	q.visible.show(m)
	q.server.touch(q)
}

func (q *queue) remove(m *message) {
	q.uncount(m)
	delete(q.messages, m.serial)
	q.byAge.remove(m)
	if m.state != Visible {
		q.hidden.remove(m)
	}
	q.visible.remove(m)
	q.server.touch(q)
}

func (q *queue) uncount(m *message) {
	switch m.state {
	case InFlight:
		q.inFlight--
	case Delayed:
		q.delayed--
	}
}

// advance lets everything happen that was due until now, each thing at its own time.
func (q *queue) advance(now time.Time) {
	for {
		at, happen := q.nextEvent()
		if happen == nil || at.After(now) {
			return
		}
		happen()
		q.serveAbandoned(at)
	}
}

func (q *queue) nextEvent() (at time.Time, happen func()) {
	if q.hidden.len() > 0 {
		at = q.hidden.top().visibleAt
		happen = q.showFirst
	}
	if q.byAge.len() > 0 {
		// M10: counted from the sending, whether received meanwhile or not.
		if end := q.byAge.top().sentAt.Add(q.settings.retention()); happen == nil || end.Before(at) {
			at, happen = end, func() { q.remove(q.byAge.top()) }
		}
	}
	if len(q.pending) > 0 {
		if change := q.pending[0]; happen == nil || change.at.Before(at) {
			at, happen = change.at, func() {
				q.pending = q.pending[1:]
				q.apply(change.settings, change.at)
			}
		}
	}
	return at, happen
}

// changesBefore tells when the next thing happens that a poll may find something after, if that is before a given
// time: a message that expires can unlock its group, or make room under the limit of those in flight.
func (q *queue) changesBefore(t time.Time) (time.Time, bool) {
	at, happen := q.nextEvent()
	return at, happen != nil && at.Before(t)
}

// showFirst makes visible what becomes so at the next instant: messages that are due together can be received
// together.
func (q *queue) showFirst() {
	at := q.hidden.top().visibleAt
	for q.hidden.len() > 0 && q.hidden.top().visibleAt.Equal(at) {
		q.show(q.hidden.top())
	}
}

// pile is the shelf of a standard queue: the messages in the order of sending. SQS promises no order at all (R10).
type pile struct{ heap[*message] }

func newPile() *pile {
	return &pile{heap[*message]{
		place: func(m *message) *int { return &m.place },
		less:  func(a, b *message) bool { return a.order < b.order },
	}}
}

func (p *pile) insert(m *message) {
	if m.state == Visible {
		p.push(m)
	}
}

func (p *pile) show(m *message) { p.push(m) }

func (p *pile) hide(m *message) {
	if m.place >= 0 { // else it was picked
		p.heap.remove(m)
	}
}

func (p *pile) remove(m *message) {
	if m.state == Visible {
		p.hide(m)
	}
}

func (p *pile) any() bool { return p.len() > 0 }

func (p *pile) pick(n int) []*message {
	picked := make([]*message, 0, n)
	for len(picked) < n && p.len() > 0 {
		m := p.top()
		p.heap.remove(m)
		picked = append(picked, m)
	}
	return picked
}
