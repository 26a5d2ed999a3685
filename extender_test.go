package sqsub_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sqsub/sqsub"
)

func TestSlowHandlerIsNotRaced(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(works(5*time.Second), sqsub.WithVisibility(2*time.Second), sqsub.WithBatchDelay(0))
		f.wait(0)
		f.rivals(2)
		f.wait(20 * time.Second)
		f.stop(sub)

		if r := f.onlyRun(); r.count != 1 || r.cause != nil {
			f.Errorf("run %+v, want an undisturbed one of the first receive", r)
		}
		if got := f.Foreign(); len(got) > 0 {
			f.Errorf("rivals received %d messages", len(got))
		}
		var at []time.Duration
		for _, e := range f.changes() {
			at = append(at, e.at)
			if e.visibility != 2*time.Second || e.code != "" {
				f.Errorf("extension %v, want 2s", e)
			}
		}
		if want := []time.Duration{1e9, 2e9, 3e9, 4e9}; !slices.Equal(at, want) {
			f.Errorf("extensions at %v, want %v", at, want)
		}
		f.wantHeld()
	})
}
