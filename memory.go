package sqsub

import "time"

const (
	memorySize = 10_000
	memoryTime = time.Hour
)

// memory is of messages that were handled successfully but whose delete was not
// confirmed: when they are delivered again, they are to be deleted, not run
// again. It is bounded in number and time.
type memory struct {
	until map[string]time.Time
	order []string // as they were added
}

func (m *memory) add(id string, now time.Time) {
	if id == "" {
		return
	}
	if m.until == nil {
		m.until = make(map[string]time.Time)
	}
	if _, ok := m.until[id]; !ok {
		m.order = append(m.order, id)
	}
	m.until[id] = now.Add(memoryTime)
	for len(m.order) > memorySize {
		delete(m.until, m.order[0])
		m.order = m.order[1:]
	}
}

func (m *memory) has(id string, now time.Time) bool {
	until, ok := m.until[id]
	return ok && now.Before(until)
}
