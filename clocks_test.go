package sqsub

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/sqsub/sqsub/internal/queue"
)

// heldSince is an extender whose hold of 30 s began at the given time, with an
// extension under way.
func heldSince(since time.Time) *extender {
	e := &extender{
		s: new(Subscription), d: new(delivery), hold: newHold(since, since, 30*time.Second, 12*time.Hour),
		timer: time.AfterFunc(time.Hour, func() {}), calling: true, call: &queue.Call{Timeout: 30 * time.Second},
	}
	e.s.goroutines.Add(1) // of the timer
	return e
}

// B204, V8: a success that is read after the end of the hold proves nothing. The timer
// that should have told the loss may be late on a busy machine (B033), and after a
// suspend the monotonic clock knows of no end (B161).
func TestAnswerAfterTheEndOfTheHold(t *testing.T) {
	start := time.Now()
	for _, c := range []struct {
		name string
		now  time.Time
		lost bool
	}{
		{"in time", start.Add(29 * s), false},
		{"late", start.Add(30 * s), true},
		{"after a suspend", asleep(start.Add(30*s), 20*s), true},
	} {
		e := heldSince(start)
		_, lost := e.answered(start.Add(15*s), c.now, nil)
		if errors.Is(lost, ErrVisibilityLost) != c.lost {
			t.Errorf("%s: lost: %v, want %v", c.name, lost, c.lost)
		}
		if extended := e.hold.extensions > 0; extended == c.lost {
			t.Errorf("%s: counts as an extension: %v", c.name, extended)
		}
		if e.halt(); e.timer.Stop() {
			t.Errorf("%s: the timer still runs", c.name)
		}
	}
}

// B161: a hold that ended while the machine slept is lost, whoever asks first.
func TestHoldEndsDuringASuspend(t *testing.T) {
	e := heldSince(asleep(time.Now().Add(-31*s), -31*s)) // now, by the monotonic clock
	if err := e.err(); !errors.Is(err, ErrVisibilityLost) {
		t.Errorf("whoever asks is told %v", err)
	}
	e.calling = false
	if lost := e.proceed(); !errors.Is(lost, ErrVisibilityLost) {
		t.Errorf("the timer finds %v", lost)
	}
	e.halt()
}

// B161, V9: nor is a message handed back again that may have become visible while the
// machine slept.
func TestMessageIsVisibleAfterASuspend(t *testing.T) {
	for _, c := range []struct {
		visibleAt time.Time
		outcome   Outcome // "" = it is tried again
	}{
		{time.Now().Add(time.Minute), ""},
		{time.Now().Add(-1), Unsettled},
		{asleep(time.Now().Add(-1), -time.Minute), Unsettled}, // a minute to come by the monotonic clock
	} {
		sub := &Subscription{events: make(chan event, 1), log: slog.New(slog.DiscardHandler)}
		sub.visibility = 30 * s
		d := &delivery{cancel: func(error) {}}
		over := sub.givenUp(outgoing{d: d, r: Result{Outcome: Retried}, visibleAt: c.visibleAt, why: errors.New("no answer")})
		var outcome Outcome
		if d.result != nil {
			outcome = d.result.Outcome
		}
		if over != (c.outcome != "") || outcome != c.outcome {
			t.Errorf("visible at %v: over: %v, %q, want %q", c.visibleAt, over, outcome, c.outcome)
		}
	}
}
