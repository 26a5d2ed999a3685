package sqstest

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// State tells whether a message can be received.
type State string

const (
	// Visible messages can be received. On a FIFO queue they may have to wait for an earlier one of their group.
	Visible State = "visible"
	// InFlight messages have been received, and their visibility timeout runs.
	InFlight State = "in flight"
	// Delayed messages were sent with a delay that has not passed yet.
	Delayed State = "delayed"
)

// A Message is one message that a queue holds.
type Message struct {
	ID           string
	Body         string
	GroupID      string
	State        State
	ReceiveCount int
	SentAt       time.Time
	VisibleAt    time.Time // when it becomes visible; zero if it is
}

// Messages returns what a queue holds, in the order of sending. The queue is named by its name or URL; one that does
// not exist holds nothing.
func (s *Server) Messages(queue string) []Message {
	s.lock()
	defer s.unlock()
	q, err := s.find(queue)
	if err != nil {
		return nil
	}
	held := slices.SortedFunc(maps.Values(q.messages), func(a, b *message) int { return cmp.Compare(a.order, b.order) })
	messages := make([]Message, len(held))
	for i, m := range held {
		messages[i] = Message{
			ID:           m.id,
			Body:         m.body,
			GroupID:      m.group,
			State:        m.state,
			ReceiveCount: m.count,
			SentAt:       m.sentAt,
			VisibleAt:    m.visibleAt,
		}
	}
	return messages
}
