package sim

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sqsub/sqsub"
)

// A consumer is one subscription of the fleet, from its start to its end.
type consumer struct {
	*fleet
	options
	number int
	slot   int
	pauses []span
	line   *line
	cancel context.CancelFunc // ends Subscribe's context
	sub    atomic.Pointer[sqsub.Subscription]
	ready  chan struct{} // closed when sub is set
	over   chan struct{} // closed when it has ended

	state atomic.Int32
}

const (
	living int32 = iota
	stopping
	dead
	ended
)

func (c *consumer) alive() bool { return c.state.Load() == living }

// occupy has one consumer after another take a place of the fleet.
func (f *fleet) occupy(s slot) {
	began := time.Now()
	f.sleepUntil(began.Add(s.begin))
	for _, e := range s.ends {
		f.serve(s, began.Add(e.at)).end(e.how)
		f.sleepUntil(time.Now().Add(e.gap))
	}
	if f.eventful() {
		f.serve(s, began.Add(f.length))
	}
}

// serve has a consumer in a place until t, or until it is calm. One that ends by
// itself is followed by another, as a supervisor would see to.
func (f *fleet) serve(s slot, t time.Time) *consumer {
	for {
		c := f.start(s, s.name)
		timer := time.NewTimer(time.Until(t))
		select {
		case <-timer.C:
		case <-f.calm:
		case <-c.over:
		}
		if timer.Stop() && f.eventful() {
			f.sleepUntil(time.Now().Add(2 * time.Second))
			continue
		}
		return c
	}
}

// sleepUntil waits until t, or until it is calm.
func (f *fleet) sleepUntil(t time.Time) {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-f.calm:
	}
}

func (f *fleet) eventful() bool {
	select {
	case <-f.calm:
		return false
	default:
		return true
	}
}

// start subscribes a new consumer. What its opening calls meet may make it take
// several tries.
func (f *fleet) start(s slot, place int) *consumer {
	f.mu.Lock()
	c := &consumer{fleet: f, options: s.options, pauses: s.pauses, slot: place, number: len(f.consumers), ready: make(chan struct{}), over: make(chan struct{})}
	c.line = newLine(c, s.cuts)
	f.consumers = append(f.consumers, c)
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	for try := 0; ; try++ {
		id := f.queue
		if f.byURL {
			id = f.url
		}
		sub, err := sqsub.Subscribe(ctx, c.line, id, c.handleWhenReady, c.subscribeOptions()...)
		if err == nil {
			c.sub.Store(sub)
			close(c.ready)
			f.watches.Go(c.watch)
			f.record.note("consumer %d starts in place %d: visibility %v, %+v", c.number, place, sub.Visibility(), c.options)
			return c
		}
		f.record.note("consumer %d does not start: %v", c.number, err)
		time.Sleep(2 * time.Second)
	}
}

// watch takes note of the end of a subscription that ends by itself.
func (c *consumer) watch() {
	sub := c.sub.Load()
	<-sub.Done()
	if c.state.CompareAndSwap(living, ended) {
		now := time.Now()
		c.cancel()
		c.record.stopped(&stop{consumer: c.number, how: byItself, at: now, done: now, err: sub.Wait()}, sub)
	}
	close(c.over)
}

// handleWhenReady lets the handler know its subscription: the first message may
// be faster than the return from Subscribe.
func (c *consumer) handleWhenReady(ctx context.Context, d *sqsub.Delivery) error {
	<-c.ready
	return c.handle(ctx, d)
}

func (c *consumer) subscribeOptions() []sqsub.Option {
	opts := []sqsub.Option{
		sqsub.WithConcurrency(c.concurrency),
		sqsub.WithPrefetch(c.prefetch),
		sqsub.WithWaitTime(c.waitTime),
		sqsub.WithBatchDelay(c.batchDelay),
		sqsub.WithDrainTimeout(c.drainTimeout),
		sqsub.WithRetryDelay(func(*sqsub.Delivery, error) time.Duration { return c.retryDelay }),
		sqsub.WithLogger(slog.New(c.record.logOf(c.number))),
		sqsub.WithHooks(sqsub.Hooks{
			Finished: func(d *sqsub.Delivery, r sqsub.Result) {
				c.stand(context.Background())
				c.record.finished(c.number, d, r)
			},
			Lost: func(d *sqsub.Delivery, cause error) {
				c.stand(context.Background())
				c.record.lost(c.number, d, cause)
			},
		}),
	}
	if c.visibility > 0 {
		opts = append(opts, sqsub.WithVisibility(c.visibility))
	}
	if c.maxHold > 0 {
		opts = append(opts, sqsub.WithMaxHold(c.maxHold))
	}
	return opts
}

// end stops the consumer, or lets it die, unless it has ended by itself.
func (c *consumer) end(by how) {
	if by != dies {
		c.stand(context.Background())
	}
	if !c.state.CompareAndSwap(living, stopping) {
		return
	}
	sub := c.sub.Load()
	s := &stop{consumer: c.number, how: by, at: time.Now()}
	defer time.AfterFunc(c.length+never, c.giveUp).Stop()
	c.record.note("consumer %d ends by %s", c.number, by)
	switch by {
	case dies:
		c.state.Store(dead)
		c.line.die()
		return
	case closed:
		s.aborted = time.Now()
		sub.Close()
	case ctxEnds:
		c.cancel()
	case shutdown:
		sub.Shutdown(context.Background())
	case impatient:
		patience := c.draw("patience", c.number).skewed(10 * time.Second)
		s.aborted = s.at.Add(patience)
		ctx, cancel := context.WithDeadline(context.Background(), s.aborted)
		sub.Shutdown(ctx)
		cancel()
		if time.Now().After(s.aborted) {
			c.record.problem("", "(g) consumer %d: Shutdown returned %v after its context had ended", c.number, time.Since(s.aborted))
		}
	}
	if c.drainTimeout > 0 {
		if end := s.at.Add(c.drainTimeout); s.aborted.IsZero() || end.Before(s.aborted) {
			s.aborted = end
		}
	}
	s.err = sub.Wait()
	s.done = time.Now()
	c.cancel()
	c.state.Store(ended)
	c.record.stopped(s, sub)
}

// bury ends what is left of a dead consumer, whose calls all hang.
func (c *consumer) bury() {
	if c.state.Load() != dead {
		return
	}
	s := &stop{consumer: c.number, how: dies, at: time.Now(), aborted: time.Now()}
	defer time.AfterFunc(c.length+never, c.giveUp).Stop()
	sub := c.sub.Load()
	sub.Close()
	s.done = time.Now()
	c.cancel()
	c.record.stopped(s, sub)
}

// never is how long after the eventful part a stop has to have ended.
const never = time.Hour

// giveUp ends the run, and the process with it: what hangs cannot be cleared
// away.
func (c *consumer) giveUp() {
	held := c.sub.Load().InFlight()
	numbers := []string{}
	for _, h := range held {
		for _, d := range c.record.deliveries {
			if d.messageID == h.ID {
				numbers = append(numbers, d.number)
			}
		}
	}
	panic(fmt.Sprintf("seed %d: (g) consumer %d does not end; it holds %+v\n%s", c.Seed, c.number, held, c.record.history(numbers...)))
}
