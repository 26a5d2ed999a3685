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
	failures int // in a row
	warned   bool
	kind     queue.Kind // warned of
	at       time.Time  // warned
}

// troublePause is how long calls that fail and work in turn are not warned of
// again.
const troublePause = time.Minute

func (t *trouble) failed(log *slog.Logger, err error) {
	kind := queue.Classify(err)
	if !t.worthWarning(kind, time.Now()) {
		log.Debug(t.op+" failed", "error", err)
		return
	}
	message := t.op + " fails and is retried"
	if kind == queue.Denied {
		message += ": " + queue.Allow(t.op)
	}
	log.Warn(message, "error", err)
}

func (t *trouble) worthWarning(kind queue.Kind, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures++
	if kind == queue.Transient && t.failures == 1 {
		return false
	}
	if t.kind == kind && (t.warned || now.Sub(t.at) < troublePause) {
		return false
	}
	t.warned, t.kind, t.at = true, kind, now
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
