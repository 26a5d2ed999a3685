package sqsub

import (
	"log/slog"
	"sync"
	"time"

	"github.com/sqsub/sqsub/internal/queue"
)

// trouble is whether one kind of call works. It logs a state once, not each
// failure, and nothing above Debug for a single failure that the next try makes
// good (B147, B149).
type trouble struct {
	op string

	mu       sync.Mutex
	failures int       // in a row
	since    time.Time // of the first of them
	warned   bool
	at       map[queue.Kind]time.Time
}

// troublePause is how long calls that fail and work in turn, or fail in turn for
// one reason and another, are not warned of again.
const troublePause = time.Minute

func (t *trouble) failed(log *slog.Logger, err error) {
	kind := queue.Classify(err)
	if !t.worthWarning(kind, time.Now()) {
		log.Debug(t.op+" failed", "error", err)
		return
	}
	message := t.op + " fails"
	switch kind {
	case queue.Invalid:
		message += ": SQS refuses the request"
	case queue.Denied:
		message += " and is retried: " + queue.IAMAdvice(t.op)
	case queue.NoQueue:
		message += " and is retried: the subscription ends when the queue has not existed for two minutes"
	default:
		message += " and is retried"
	}
	log.Warn(message, "error", err)
}

func (t *trouble) worthWarning(kind queue.Kind, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failures++; t.failures == 1 {
		t.since = now
	}
	if kind == queue.Transient && t.failures == 1 {
		return false
	}
	last, before := t.at[kind]
	if before && (!last.Before(t.since) || now.Sub(last) < troublePause) {
		return false
	}
	if t.at == nil {
		t.at = make(map[queue.Kind]time.Time)
	}
	t.warned, t.at[kind] = true, now
	return true
}

func (t *trouble) ok(log *slog.Logger) {
	t.mu.Lock()
	recovered := t.warned
	t.failures, t.warned = 0, false
	t.mu.Unlock()
	if recovered {
		log.Info(t.op + " works again")
	}
}
