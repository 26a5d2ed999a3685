package sqsub

import (
	"testing"
	"testing/synctest"
)

// The loop is told at once of a handler that took its time, and of ten together that
// returned at once.
func TestHandlerReturned(t *testing.T) {
	s := &Subscription{events: make(chan event, eventBurst)}
	told := func() (n []int) {
		for len(s.events) > 0 {
			n = append(n, len((<-s.events).(returned).ds))
		}
		return n
	}
	s.handlerReturned(new(delivery), atOnce)
	if got := told(); len(got) != 1 || got[0] != 1 {
		t.Errorf("told of %v, want one", got)
	}
	for range 15 {
		s.handlerReturned(new(delivery), atOnce-1)
	}
	if got := told(); len(got) != 1 || got[0] != 10 {
		t.Errorf("told of %v, want ten", got)
	}
	s.handlerReturned(new(delivery), atOnce)
	if got := told(); len(got) != 1 || got[0] != 6 {
		t.Errorf("told of %v, want the other six", got)
	}
}

// Whoever tells a loop that a hook holds up, or that has ended, goes on.
func TestTellDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Subscription{events: make(chan event, 1), looped: make(chan struct{})}
		for range 3 {
			s.tell(returned{})
		}
		synctest.Wait()
		<-s.events
		synctest.Wait()
		if len(s.events) != 1 {
			t.Error("what did not fit was not told later")
		}
		close(s.looped)
		s.goroutines.Wait()
	})
}
