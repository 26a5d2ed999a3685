package sqsub

import (
	"log/slog"
	"sync"
	"time"

	"github.com/sqsub/sqsub/internal/queue"
)

// trouble is whether one kind of call works. It logs a state once, not each
// failure, and nothing above Debug for failures that the next try makes good: one, or
// some at the same time (B147, B149).
type trouble struct {
	op     string
	moment time.Duration // how long failures may be those of calls made side by side

	mu       sync.Mutex
	failures int                      // in a row
	since    time.Time                // when the first of them was
	last     time.Time                // when the last failure was that the next try did not make good
	warned   bool                     // of failures, and not said since that calls work again
	warnedOf map[queue.Kind]time.Time // when, the last time
}

const (
	// troubleMoment is how long deletes, or changes, that left at the same time may fail
	// one after another, and the next try of each make it good.
	troubleMoment = time.Second

	// troublePause is how long calls that fail and work in turn, or fail in turn for
	// one reason and another, are not warned of again.
	troublePause = time.Minute

	// troubleOver is how long after the last failure a call says that they work again.
	troubleOver = 5 * time.Second
)

func (t *trouble) failed(log *slog.Logger, err error) {
	kind := queue.Classify(err)
	if !t.worthWarning(kind) {
		log.Debug(t.op+" failed", "error", err)
		return
	}
	message := t.op + " fails"
	switch kind {
	case queue.Invalid:
		message += ": SQS refuses the request"
	case queue.Denied:
		message += " and is retried: " + queue.DeniedAdvice(t.op, err)
	case queue.NoQueue:
		message += " and is retried: the subscription ends when the queue has not existed for two minutes"
	default:
		message += " and is retried"
	}
	log.Warn(message, "error", err)
}

func (t *trouble) worthWarning(kind queue.Kind) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.failures++; t.failures == 1 {
		t.since = now
	}
	if kind == queue.Transient && (t.failures == 1 || now.Sub(t.since) < t.moment) {
		return false
	}
	t.last = now
	told, before := t.warnedOf[kind]
	if before && (!told.Before(t.since) || now.Sub(told) < troublePause) {
		return false
	}
	if t.warnedOf == nil {
		t.warnedOf = make(map[queue.Kind]time.Time)
	}
	t.warned, t.warnedOf[kind] = true, now
	return true
}

func (t *trouble) ok(log *slog.Logger) {
	t.mu.Lock()
	recovered := t.warned && time.Since(t.last) >= troubleOver
	t.failures, t.warned = 0, t.warned && !recovered
	t.mu.Unlock()
	if recovered {
		log.Info(t.op + " works again")
	}
}
