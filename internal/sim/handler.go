package sim

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/sqsub/sqsub"
)

// A verdict is how a handler ends.
type verdict string

const (
	succeeds   verdict = "succeeds"
	discards   verdict = "discards"
	fails      verdict = "fails"
	retryAfter verdict = "asks for a retry"
	panics     verdict = "panics"
	exits      verdict = "exits"
	died       verdict = "died with its consumer"
)

func (v verdict) done() bool { return v == succeeds || v == discards }

// A temper is what kind of handlers a run has.
type temper struct {
	failing  float64 // probability of anything but success
	slow     float64 // probability of a long one
	stubborn float64 // probability of not heeding the context
}

func newTemper(d draw) temper {
	return temper{
		failing:  pick(d, 0, 0.1, 0.3, 0.6),
		slow:     pick(d, 0, 0.2, 0.5),
		stubborn: pick(d, 0, 0.2, 1),
	}
}

// A behaviour is what one handling does.
type behaviour struct {
	work     time.Duration
	stubborn bool
	linger   time.Duration // after its context has ended
	verdict  verdict
	delay    time.Duration // of a retry
}

// behave decides the nth handling of a message by one consumer.
func (p *plan) behave(consumer int, number string, n int, visibility time.Duration) behaviour {
	d := p.draw("handle", consumer, number, n)
	b := behaviour{
		work:     d.skewed(2 * time.Second),
		stubborn: d.chance(p.temper.stubborn),
		linger:   d.skewed(3 * time.Second),
		verdict:  succeeds,
	}
	if d.chance(p.temper.slow) {
		b.work = d.skewed(10 * visibility)
		if d.chance(0.1) {
			b.work = min(40*visibility, d.within(p.length))
		}
		if p.length > 12*time.Hour && d.chance(0.3) {
			b.work = 13 * time.Hour
		}
	}
	if d.chance(p.temper.failing) {
		b.verdict = pick(d, fails, fails, fails, retryAfter, discards, panics, exits)
		b.delay = d.skewed(2 * time.Minute)
	}
	return b
}

// handle is the handler of a consumer.
func (c *consumer) handle(ctx context.Context, d *sqsub.Delivery) error {
	h := c.record.begin(c, ctx, d)
	defer func() { c.record.end(h) }()
	c.look(h)
	b := c.behave(c.number, h.number, h.nth, c.sub.Load().Visibility())
	cancelled := ctx.Done()
	if b.stubborn {
		cancelled = nil
	}
	timer := time.NewTimer(b.work)
	defer timer.Stop()
	h.verdict, h.delay = b.verdict, b.delay
	select {
	case <-timer.C:
	case <-c.calm:
		h.verdict = succeeds
	case <-c.line.dead.Done():
	case <-cancelled:
		timer.Reset(b.linger)
		select {
		case <-timer.C:
		case <-c.line.dead.Done():
		}
		if h.verdict == succeeds {
			h.verdict = fails
		}
	}
	c.stand(context.Background())
	if c.line.dead.Err() != nil {
		h.verdict = died
		return errors.New("died")
	}
	return h.carryOut()
}

func (h *handling) carryOut() error {
	failure := errors.New("failed on purpose")
	switch h.verdict {
	case succeeds:
		return nil
	case discards:
		return sqsub.Discard(failure)
	case retryAfter:
		return fmt.Errorf("wrapped: %w", sqsub.RetryAfter(h.delay, failure))
	case panics:
		panic(failure)
	case exits:
		runtime.Goexit()
	}
	return failure
}

// look looks at the queue when a handler begins: whether its message is there,
// and whether an earlier one of its group is that can still be received. One that
// has been received as often as it may be is as good as a dead letter, but stays
// until the next receive moves it (X3).
func (c *consumer) look(h *handling) {
	h.gone = true
	most := int(c.fewest.Load())
	for _, m := range c.server.Messages(c.queue) {
		if m.Body == h.number {
			h.gone = false
		}
		if c.fifo && m.GroupID == h.group && order(m.Body) < order(h.number) && (most == 0 || m.ReceiveCount < most) {
			h.before = m.Body
		}
	}
}
