package sqsub

import (
	"context"
	"time"
)

// A Held is one delivery in hand: see [Subscription.InFlight].
type Held struct {
	ID           string
	GroupID      string
	ReceiveCount int
	ReceivedAt   time.Time
	HiddenUntil  time.Time // as far as is known now; extensions move it
	Extensions   int
	State        State
}

// A State says what a delivery in hand is doing.
type State string

// Each delivery in hand is in one of these states.
const (
	Running            State = "running"
	WaitingForSlot     State = "waiting for a handler"        // all are busy
	WaitingForPrevious State = "waiting for the previous one" // in its group, or an earlier delivery of the same message
	Settling           State = "settling"                     // its handler has returned; the delete or the delay is not confirmed yet
	Releasing          State = "releasing"                    // its handler will not be started: it is handed back, or was lost
)

// InFlight returns what is in hand now, in no particular order: nothing once
// the subscription has ended.
func (s *Subscription) InFlight() []Held {
	held, _ := s.inFlight(context.Background())
	return held
}

func (s *Subscription) inFlight(ctx context.Context) ([]Held, error) {
	reply := make(inspection, 1)
	select {
	case s.events <- reply:
	case <-s.looped:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case held := <-reply:
		return held, nil
	case <-s.looped:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *dispatcher) inventory() []Held {
	held := make([]Held, 0, len(l.held))
	for _, d := range l.held {
		held = append(held, d.describe())
	}
	return held
}

func (d *delivery) describe() Held {
	h, state := d.ext.current(), d.state
	if d.lane == nil {
		state = Releasing
	}
	return Held{
		ID: d.ID(), GroupID: d.GroupID(), ReceiveCount: d.ReceiveCount(), ReceivedAt: d.ReceivedAt,
		HiddenUntil: h.since.Add(h.granted), Extensions: h.extensions, State: state,
	}
}
