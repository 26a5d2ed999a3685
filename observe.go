package sqsub

import (
	"context"
	"errors"
	"log/slog"

	"github.com/sqsub/sqsub/internal/queue"
)

// called takes note of how a settling request went, after its callers have been
// told, and tells the loop what it has deleted. That a message is gone is told where
// it matters, and says that the call works.
func (s *Subscription) called(op string, err error) {
	s.tellRemoved()
	calls := &s.changes
	if op == s.deletes.op {
		calls = &s.deletes
	}
	if kind := queue.Classify(err); err != nil && kind != queue.Gone && kind != queue.Limit {
		calls.failed(s.log, err)
	} else {
		calls.ok(s.log)
	}
}

// hook calls a hook. One that ends its goroutine would leave its delivery, or all
// receiving, where it is, and a stop would wait for that for ever.
func hook(call func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			panic(v)
		}
		panic("sqsub: a hook called runtime.Goexit, as FailNow of a test does, and did not return")
	}()
	call()
	returned = true
}

// awaitReceived waits until the Received hook has returned, which comes first.
func (d *delivery) awaitReceived() {
	if d.announced != nil {
		<-d.announced
	}
}

// extensionTried tells of one try to extend a delivery.
func (s *Subscription) extensionTried(d *delivery, e Extension) {
	if f := s.hooks.Extended; f != nil {
		d.awaitReceived()
		hook(func() { f(&d.Delivery, e) })
	}
}

// lastExtension warns of a hold that cannot be lengthened any more.
func (s *Subscription) lastExtension(d *delivery) {
	h := d.ext.current()
	s.log.Warn("a message was extended for the last time: it has been held for almost as long as it may be", d.attrs("held_until", h.end())...)
}

// visibilityLost takes note that a delivery is not ours any more, whoever finds
// out first, and tells its handler, and then the loop.
func (s *Subscription) visibilityLost(d *delivery, cause error) {
	d.lossOnce.Do(func() { s.reportLoss(d, cause) })
}

func (s *Subscription) reportLoss(d *delivery, cause error) {
	d.cancel(cause)
	s.stats.visibilityLost.Add(1)
	level := slog.LevelWarn
	if errors.Is(cause, ErrHoldLimit) && d.ext.hasWarned() {
		level = slog.LevelDebug
	}
	consequence := "another consumer may get the message"
	if queue.IsDeleted(cause) {
		consequence = "the message has been deleted"
	}
	s.log.Log(context.Background(), level, "visibility lost: "+consequence, d.attrs("error", cause)...)
	if f := s.hooks.Lost; f != nil {
		d.awaitReceived()
		hook(func() { f(&d.Delivery, cause) })
	}
	select {
	case s.events <- loss{d}:
	case <-s.looped:
	}
}

// listened reports whether anybody is told of an outcome that is as it should be.
func (s *Subscription) listened() bool {
	return s.hooks.Finished != nil || s.log.Enabled(context.Background(), slog.LevelDebug)
}

// finish is the end of a delivery: it has its outcome. The loop is told.
func (s *Subscription) finish(d *delivery, r Result) {
	s.tally(d, &r)
	s.events <- settled{[]*delivery{d}}
}

// tally takes note of the outcome of a delivery, and tells who listens.
func (s *Subscription) tally(d *delivery, r *Result) {
	d.cancel(nil)
	switch r.Outcome {
	case Deleted:
		s.stats.deleted.Add(1)
	case Discarded:
		s.stats.discarded.Add(1)
	case Retried:
		s.stats.retried.Add(1)
	case Released:
		s.stats.released.Add(1)
	case Unsettled:
		s.stats.unsettled.Add(1)
	case Lost:
		s.stats.lost.Add(1)
	}
	if r.Late {
		s.stats.deletedLate.Add(1)
		s.log.Warn("a message was deleted after its visibility was lost: another consumer may handle it too", d.attrs()...)
	}
	if s.log.Enabled(context.Background(), slog.LevelDebug) {
		s.log.Debug("message "+string(r.Outcome), d.attrs("duration", r.Duration, "delay", r.Delay)...)
	}
	if f := s.hooks.Finished; f != nil {
		hook(func() { f(&d.Delivery, *r) })
	}
	d.result = r
}
