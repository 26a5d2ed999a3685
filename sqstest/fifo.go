package sqstest

import "time"

// groups is the shelf of a FIFO queue: the messages of each group in their order, and the groups that can be
// delivered from.
//
// An invisible message blocks the later ones of its group and no earlier one (F2). So a group is open if and only if
// its first message is visible, and what can be delivered of it is what comes before its first invisible message.
type groups struct {
	lanes map[string]*lane
	open  heap[*lane] // by the order of their first messages
}

// lane is one message group.
type lane struct {
	group       string
	first, last *message
	place       int    // among the open
	key         uint64 // the order of the first message when it was placed
}

func newGroups() *groups {
	return &groups{
		lanes: map[string]*lane{},
		open: heap[*lane]{
			place: func(l *lane) *int { return &l.place },
			less:  func(a, b *lane) bool { return a.key < b.key },
		},
	}
}

func (g *groups) insert(m *message) {
	l := g.lanes[m.group]
	if l == nil {
		l = &lane{group: m.group, place: -1}
		g.lanes[m.group] = l
	}
	m.lane, m.prev, m.next = l, l.last, nil
	if l.last == nil {
		l.first = m
	} else {
		l.last.next = m
	}
	l.last = m
	g.update(l)
}

func (g *groups) show(m *message) { g.update(m.lane) }
func (g *groups) hide(m *message) { g.update(m.lane) }

func (g *groups) remove(m *message) {
	l := m.lane
	if m.prev == nil {
		l.first = m.next
	} else {
		m.prev.next = m.next
	}
	if m.next == nil {
		l.last = m.prev
	} else {
		m.next.prev = m.prev
	}
	m.lane, m.prev, m.next = nil, nil, nil
	g.update(l)
	if l.first == nil {
		delete(g.lanes, l.group)
	}
}

// update opens or closes a group after a change.
func (g *groups) update(l *lane) {
	open := l.first != nil && l.first.state == Visible
	if open {
		l.key = l.first.order
	}
	switch {
	case open && l.place < 0:
		g.open.push(l)
	case open:
		g.open.fix(l)
	case l.place >= 0:
		g.open.remove(l)
	}
}

func (g *groups) any() bool { return g.open.len() > 0 }

// pick takes as many messages of one group as it can, then goes on to the next group (F1).
func (g *groups) pick(n int) []*message {
	picked := make([]*message, 0, n)
	for len(picked) < n && g.open.len() > 0 {
		l := g.open.top()
		g.open.remove(l) // it comes back, if it may, when the caller has hidden or removed what was picked
		for m := l.first; m != nil && m.state == Visible && len(picked) < n; m = m.next {
			picked = append(picked, m)
		}
	}
	return picked
}

// fiveMinutes is how long SQS remembers deduplication ids (F9) and receive attempts (R12).
const fiveMinutes = 5 * time.Minute

// sending is what a deduplication id was used for.
type sending struct {
	id       string
	sequence string
}

// attempt is what a receive with a ReceiveRequestAttemptId handed out.
type attempt []delivery

// recent remembers values for a while. It takes constant time, since all live equally long.
type recent[V any] struct {
	life   time.Duration
	values map[string]V
	queue  []remembered // in the order of time
}

type remembered struct {
	key string
	at  time.Time
}

func (r *recent[V]) get(key string, now time.Time) (V, bool) {
	for len(r.queue) > 0 && now.Sub(r.queue[0].at) >= r.life {
		delete(r.values, r.queue[0].key)
		r.queue = r.queue[1:]
	}
	v, ok := r.values[key]
	return v, ok
}

// put remembers a value whose key get has not found.
func (r *recent[V]) put(key string, v V, now time.Time) {
	if r.values == nil {
		r.values = map[string]V{}
	}
	r.values[key] = v
	r.queue = append(r.queue, remembered{key, now})
}
