package sqsub

import (
	"context"
	"fmt"
	"io"
	"math"
	"testing"
	"time"
	"unsafe"
)

func TestWholeSeconds(t *testing.T) {
	const longest = math.MaxInt64 / time.Second * time.Second
	for _, c := range []struct{ in, ceil, floor time.Duration }{
		{0, 0, 0},
		{-1, 0, 0},
		{math.MinInt64, 0, 0},
		{1, time.Second, 0},
		{500 * time.Millisecond, time.Second, 0},
		{time.Second - 1, time.Second, 0},
		{time.Second, time.Second, time.Second},
		{time.Second + 1, 2 * time.Second, time.Second},
		{1200 * time.Millisecond, 2 * time.Second, time.Second},
		{1500 * time.Millisecond, 2 * time.Second, time.Second},
		{29999 * time.Millisecond, 30 * time.Second, 29 * time.Second}, // B053
		{12*time.Hour - 1, 12 * time.Hour, 12*time.Hour - time.Second},
		{12 * time.Hour, 12 * time.Hour, 12 * time.Hour},
		{math.MaxInt64 - time.Second, longest, longest - time.Second},
		{longest, longest, longest},
		{math.MaxInt64, longest, longest},
	} {
		if got := ceilSeconds(c.in); got != c.ceil {
			t.Errorf("ceilSeconds(%v) = %v, want %v", c.in, got, c.ceil)
		}
		if got := floorSeconds(c.in); got != c.floor {
			t.Errorf("floorSeconds(%v) = %v, want %v", c.in, got, c.floor)
		}
	}
}

// The receive of these tables was sent at zero, or as long before as said.
var zero = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return zero.Add(d) }

const (
	s = time.Second
	h = time.Hour
)

func TestHoldTimes(t *testing.T) {
	for _, c := range []struct {
		name             string
		polled           time.Duration // from the sending of the receive to its answer
		timeout, longest time.Duration
		due, end, limit  time.Duration // from the answer
	}{
		{"the least timeout", 0, 1 * s, 12 * h, s / 2, 950 * time.Millisecond, 12*h - 5*s},
		{"an odd one", 0, 3 * s, 12 * h, 3 * s / 2, 2850 * time.Millisecond, 12*h - 5*s},
		{"the default", 0, 30 * s, 12 * h, 15 * s, 29750 * time.Millisecond, 12*h - 5*s},
		{"after a long poll", 20 * s, 30 * s, 12 * h, 15 * s, 29750 * time.Millisecond, 12*h - 25*s}, // R18
		{"the most", 0, 12 * h, 12 * h, 6 * h, 12*h - 5*s, 12*h - 5*s},
		{"the most, after a long poll", 20 * s, 12 * h, 12 * h, 6 * h, 12*h - 25*s, 12*h - 25*s},
		{"almost the most", 0, 12*h - s, 12 * h, 6*h - s/2, 12*h - 5*s, 12*h - 5*s},
		{"a short limit", 0, 30 * s, 60 * s, 15 * s, 29750 * time.Millisecond, 60 * s},
		{"a limit at the timeout", 0, 30 * s, 30 * s, 15 * s, 29750 * time.Millisecond, 30 * s},
		{"a limit near SQS's own", 0, 30 * s, 12*h - s, 15 * s, 29750 * time.Millisecond, 12*h - 5*s},
	} {
		hold := newHold(at(-c.polled), at(0), c.timeout, c.longest)
		if due := hold.due().Sub(zero); due != c.due {
			t.Errorf("%s: due after %v, want %v", c.name, due, c.due)
		}
		if end := hold.end().Sub(zero); end != c.end {
			t.Errorf("%s: ends after %v, want %v", c.name, end, c.end)
		}
		if limit := hold.limit.Sub(zero); limit != c.limit {
			t.Errorf("%s: limit after %v, want %v", c.name, limit, c.limit)
		}
	}
}

// A receive waits up to 20 s for its message, and the limit must not have
// passed when it comes.
func TestShortLimitOutlastsTheLongPoll(t *testing.T) {
	hold := newHold(at(-20*s), at(0), 10*s, 10*s)
	if end := hold.end().Sub(zero); end < 9*s {
		t.Errorf("a hold of 10s ends %v after the answer", end)
	}
}

func TestAsk(t *testing.T) {
	for _, c := range []struct {
		name             string
		timeout, longest time.Duration
		sent, granted    time.Duration // the extension before; zero = none, the receive's own timeout runs
		now              time.Duration
		want             time.Duration
		vain             bool // it is not worth a call
	}{
		{name: "plain", timeout: 30 * s, longest: 12 * h, now: 15 * s, want: 30 * s},
		{name: "one second", timeout: 1 * s, longest: 12 * h, now: s / 2, want: 1 * s},
		{name: "two seconds, for 1.5 asked", timeout: ceilSeconds(3 * s / 2), longest: 12 * h, now: 1 * s, want: 2 * s},
		{name: "the most: no call gains", timeout: 12 * h, longest: 12 * h, now: 6 * h, want: 0},
		{name: "a second less than the most", timeout: 12*h - s, longest: 12 * h, now: 6*h - s/2, want: 0},
		{name: "the margin less than the most", timeout: 12*h - 5*s, longest: 12 * h, now: 6*h - 5*s/2, want: 0},
		{name: "a gain of less than a second", timeout: 12*h - 5500*time.Millisecond, longest: 12 * h, now: 6*h - 5*s - s/4, want: 6 * h, vain: true},
		{name: "a gain of a second", timeout: 12*h - 6*s, longest: 12 * h, now: 6*h - 3*s, want: 6*h - 2*s},
		{name: "the limit inside a half", timeout: 60 * s, longest: 70 * s, now: 30 * s, want: 40 * s},
		{name: "the limit at the end of the next", timeout: 60 * s, longest: 90 * s, now: 30 * s, want: 60 * s},
		{name: "less than a second beyond it", timeout: 60 * s, longest: 90*s + s/2, now: 30 * s, want: 60 * s},
		{name: "a second beyond it", timeout: 60 * s, longest: 91 * s, now: 30 * s, want: 60 * s},
		{name: "a fraction is clipped", timeout: 30 * s, longest: 40 * s, now: 15*s + 300*time.Millisecond, want: 24 * s},
		{name: "a retry that gains little", timeout: 30 * s, longest: 31*s - 1, now: 15*s + s/2, want: 15 * s, vain: true},
		{name: "a retry just before the end", timeout: 30 * s, longest: 31 * s, now: 30*s - 1, want: 1 * s, vain: true},
		{name: "a retry that gains nothing", timeout: 30 * s, longest: 30*s + s/2, now: 16 * s, want: 0},
		{name: "after the last", timeout: 30 * s, longest: 45 * s, sent: 15 * s, granted: 30 * s, now: 30 * s, want: 0},
		{name: "after a clipped one", timeout: 30 * s, longest: 40 * s, sent: 15 * s, granted: 25 * s, now: 30 * s, want: 0},
		{name: "beyond the limit", timeout: 30 * s, longest: 40 * s, now: 41 * s, want: 0},
	} {
		hold := newHold(at(0), at(0), c.timeout, c.longest)
		if c.granted > 0 {
			hold = hold.extended(at(c.sent), c.granted)
		}
		if got := hold.ask(at(c.now)); got != c.want {
			t.Errorf("%s: asks for %v, want %v", c.name, got, c.want)
		}
		if got := hold.extendable(at(c.now)); got != (c.want > 0 && !c.vain) {
			t.Errorf("%s: extendable: %v", c.name, got)
		}
	}
}

// Whatever the timeout, the limit and the moment: no extension ends beyond the
// limit, each is of whole seconds, and none is made that gains less than one.
func TestAskKeepsItsPromises(t *testing.T) {
	for _, timeout := range []time.Duration{1 * s, 2 * s, 7 * s, 30 * s, 11 * h, 12 * h} {
		for _, longest := range []time.Duration{timeout, timeout + 1, timeout + s, timeout * 3 / 2, 2 * timeout, 12 * h} {
			for _, late := range []time.Duration{0, 1, 100 * time.Millisecond, 3 * timeout / 8} {
				hold := newHold(at(0), at(0), timeout, min(longest, 12*h))
				for step := 0; ; step++ {
					if step > 100 {
						break // far from the limit
					}
					now := hold.due().Add(late)
					if !hold.extendable(now) {
						break
					}
					ask := hold.ask(now)
					end := now.Add(ask)
					if end.After(hold.limit) || ask%s != 0 || ask > timeout || end.Sub(hold.since.Add(hold.granted)) < s && timeout-late > 2*s {
						t.Fatalf("timeout %v, limit %v: asked at %v for %v", timeout, longest, now.Sub(zero), ask)
					}
					if end := hold.end(); !end.Before(hold.since.Add(hold.granted)) {
						t.Fatalf("timeout %v: no guard before the end", timeout)
					}
					hold = hold.extended(now, ask)
				}
			}
		}
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct{ longest, now, delay, want time.Duration }{
		{12 * h, 0, 0, 0},
		{12 * h, 0, -1 * s, 0},
		{12 * h, 0, 1, 1 * s},
		{12 * h, 0, 1200 * time.Millisecond, 2 * s},
		{12 * h, 0, 12 * h, 12*h - 5*s},
		{12 * h, 10 * s, 12 * h, 12*h - 15*s}, // B027
		{12 * h, 10*s + 1, 12 * h, 12*h - 16*s},
		{12 * h, 12*h - 6*s, 5 * time.Minute, 1 * s},
		{12 * h, 12*h - 5*s, 5 * time.Minute, 0},
		{12 * h, 13 * h, 5 * time.Minute, 0},
		{12 * h, 0, math.MaxInt64, 12*h - 5*s},
	} {
		if got := newHold(at(0), at(0), 30*s, c.longest).clip(at(c.now), c.delay); got != c.want {
			t.Errorf("%v after %v is clipped to %v, want %v", c.delay, c.now, got, c.want)
		}
	}
}

// asleep is t on a machine whose monotonic clock stood still for d.
func asleep(t time.Time, d time.Duration) time.Time {
	(*struct {
		wall uint64
		ext  int64 // nanoseconds of the monotonic clock
	})(unsafe.Pointer(&t)).ext -= int64(d)
	return t
}

func TestPassed(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name string
		now  time.Time
		want bool
	}{
		{"before", now.Add(-1), false},
		{"at it", now, true},
		{"after", now.Add(1), true},
		{"before, by the wall clock alone", now.Add(-1).Round(0), false},
		{"suspended meanwhile", asleep(now.Add(time.Minute), 2*time.Minute), true}, // B161
		{"the wall clock was set back", asleep(now.Add(-time.Minute), -2*time.Minute), true},
	} {
		if got := passed(c.now, now); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// B161, R18: the answer to a long poll was due some time before it is read.
func TestArrived(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name string
		due  time.Time
		ago  time.Duration
	}{
		{"in time", now.Add(time.Second), 0},
		{"at the last moment", now, 0},
		{"read late", now.Add(-10 * time.Second), 10 * time.Second},
		{"read after a suspend", asleep(now.Add(-5*time.Minute), -5*time.Minute-20*time.Second), 5 * time.Minute},
	} {
		got := arrived(now, c.due)
		if got.Sub(now) != -c.ago || got.Round(0).Sub(now.Round(0)) != -c.ago {
			t.Errorf("%s: %v before it was read, %v by the wall clock; want %v", c.name, -got.Sub(now), -got.Round(0).Sub(now.Round(0)), c.ago)
		}
	}
}

func TestLead(t *testing.T) {
	for _, c := range []struct {
		timeout, batchDelay time.Duration
		inHand              int
		want                time.Duration
	}{
		{30 * s, 100 * time.Millisecond, 10, 100 * time.Millisecond},
		{1 * s, 100 * time.Millisecond, 10, 100 * time.Millisecond},
		{1 * s, 101 * time.Millisecond, 10, 100 * time.Millisecond},
		{30 * s, 5 * s, 10, 3 * s},
		{30 * s, 100 * time.Millisecond, 10_000, 100 * time.Millisecond},
		{30 * s, 100 * time.Millisecond, 10_001, 100_010 * time.Microsecond},
		{30 * s, 100 * time.Millisecond, 120_000, 1200 * time.Millisecond},
		{30 * s, 100 * time.Millisecond, 120_001, 1200 * time.Millisecond},
		{30 * s, 100 * time.Millisecond, math.MaxInt, 1200 * time.Millisecond},
		{30 * s, 2 * s, 120_000, 2 * s},
		{5 * s, 100 * time.Millisecond, 120_000, 500 * time.Millisecond},
		{30 * s, 0, 120_000, 0},
		{0, 100 * time.Millisecond, 10, 0},
	} {
		if got := lead(c.timeout, c.batchDelay, c.inHand); got != c.want {
			t.Errorf("with a timeout of %v, a batch delay of %v and %d in hand an extension may leave %v early, want %v",
				c.timeout, c.batchDelay, c.inHand, got, c.want)
		}
	}
}

func TestCallLimit(t *testing.T) {
	slow := fmt.Errorf("wrapped: %w", context.DeadlineExceeded)
	for _, c := range []struct {
		left    time.Duration
		failure error
		want    time.Duration
	}{
		{6 * h, nil, 10 * s},
		{15 * s, nil, 3750 * time.Millisecond},
		{15 * s, io.ErrUnexpectedEOF, 3750 * time.Millisecond},
		{12 * s, slow, 6 * s}, // B002
		{475 * time.Millisecond, nil, 250 * time.Millisecond},
		{100 * time.Millisecond, nil, 100 * time.Millisecond},
		{100 * time.Millisecond, slow, 100 * time.Millisecond},
	} {
		if got := callLimit(c.left, c.failure); got != c.want {
			t.Errorf("with %v left after %v a call may take %v, want %v", c.left, c.failure, got, c.want)
		}
	}
}
