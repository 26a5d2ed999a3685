package sqsub

import (
	"errors"
	"testing"
	"time"
)

// Whatever is asked for, either each fault names its option, or what is left is
// within the rules.
func FuzzOptions(f *testing.F) {
	f.Add(int64(time.Minute), int64(time.Hour), 10, 0, int64(20*time.Second), int64(0), int64(0))
	f.Add(int64(1), int64(-1), 0, -1, int64(21*time.Second), int64(-1), int64(-1))
	f.Add(int64(12*time.Hour), int64(12*time.Hour), int(^uint(0)>>1), int(^uint(0)>>1), int64(time.Second), int64(1), int64(1))
	f.Add(int64(12*time.Hour-1), int64(11*time.Hour), 1, 1, int64(1500*time.Millisecond), int64(time.Hour), int64(time.Hour))
	f.Fuzz(func(t *testing.T, visibility, longest int64, concurrency, prefetch int, wait, batch, drain int64) {
		c, err := newConfig([]Option{
			WithVisibility(time.Duration(visibility)), WithMaxHold(time.Duration(longest)), WithConcurrency(concurrency), WithPrefetch(prefetch),
			WithWaitTime(time.Duration(wait)), WithBatchDelay(time.Duration(batch)), WithDrainTimeout(time.Duration(drain)),
		})
		if err != nil {
			var fault *OptionError
			if !errors.As(err, &fault) || fault.Option == "" || fault.Reason == "" {
				t.Fatalf("%v", err)
			}
			return
		}
		for name, d := range map[string]time.Duration{"visibility": c.visibility, "wait time": c.waitTime} {
			if d%time.Second != 0 || d < time.Second {
				t.Errorf("%s %v", name, d)
			}
		}
		if c.visibility > sqsMaxHold || c.maxHold < c.visibility || c.waitTime > maxWaitTime || c.concurrency < 1 || c.prefetch < 0 || c.batchDelay < 0 || c.drainTimeout < 0 {
			t.Errorf("accepted: %+v", c)
		}
	})
}

// However long a delivery is held: no extension ends beyond the limit, each
// lengthens the hold, and no delay is one that SQS refuses.
func FuzzHold(f *testing.F) {
	f.Add(uint32(30), uint32(43200), uint32(0), uint32(15000), int64(time.Second))
	f.Add(uint32(1), uint32(1), uint32(20000), uint32(1), int64(-1))
	f.Add(uint32(43200), uint32(43200), uint32(1), uint32(21600000), int64(1<<62))
	f.Fuzz(func(t *testing.T, timeoutSeconds, longestSeconds, waitedMillis, stepMillis uint32, delay int64) {
		timeout := time.Duration(timeoutSeconds%43200+1) * time.Second
		longest := max(timeout, time.Duration(longestSeconds%43200+1)*time.Second)
		sent := time.Now()
		answered := sent.Add(time.Duration(waitedMillis%20_000) * time.Millisecond)
		h := newHold(sent, answered, timeout, longest)
		step := time.Duration(stepMillis%uint32(timeout/time.Millisecond)) * time.Millisecond
		for range 50 {
			at := h.due().Add(step / 2)
			if d := h.clip(at, time.Duration(delay)); d%time.Second != 0 || d < 0 || d > 0 && at.Add(d).After(sent.Add(sqsMaxHold)) {
				t.Fatalf("a delay of %v at %v", d, at.Sub(sent))
			}
			ask := h.ask(at)
			if ask == 0 {
				break
			}
			if ask%time.Second != 0 || ask > timeout || at.Add(ask).After(h.limit) {
				t.Fatalf("asked for %v at %v of a limit at %v", ask, at.Sub(sent), h.limit.Sub(sent))
			}
			next := h.extended(at, ask)
			if next.end().Before(h.end()) && h.end().Before(h.limit) {
				t.Fatalf("an extension at %v shortens the hold", at.Sub(sent))
			}
			h = next
		}
		if h.end().After(sent.Add(sqsMaxHold)) {
			t.Fatalf("held until %v", h.end().Sub(sent))
		}
	})
}

// Retry delays are within their bounds whatever the receive count.
func FuzzBackoff(f *testing.F) {
	f.Add(int64(time.Second), int64(5*time.Minute), 3)
	f.Add(int64(-1), int64(1), 1<<30)
	f.Add(int64(1<<62), int64(1<<62+1), 64)
	f.Fuzz(func(t *testing.T, base, limit int64, n int) {
		d := backoff(time.Duration(base), time.Duration(limit), n)
		switch {
		case base <= 0 || limit <= 0:
			if d != 0 {
				t.Errorf("%v of base %d, limit %d", d, base, limit)
			}
		case d <= 0 || d > time.Duration(limit):
			t.Errorf("%v beyond %v", d, time.Duration(limit))
		}
	})
}
