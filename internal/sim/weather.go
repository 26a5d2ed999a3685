package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sqsub/sqsub/sqstest"
)

// What can happen to a call. The kinds are names, so that a spell of bad
// weather can be of one kind.
const (
	hang        = "hang"
	reset       = "reset"
	refused     = "refused" // no connection
	truncated   = "truncated"
	serverError = "server error"
	throttle    = "throttle"
	expired     = "expired credentials"
	denied      = "denied"
	late        = "late"  // the call, its answer, or both
	after       = "after" // the call takes effect and nobody learns it
	partly      = "partly"
	missed      = "missed" // a receive finds nothing
	twice       = "twice"  // a receive brings each message twice
	garbled     = "garbled"
	mistaken    = "mistaken" // SQS says that the message is gone
)

// weather decides what goes wrong with each call.
type weather struct {
	*fleet
	began time.Time

	mu     sync.Mutex
	turns  map[string]int // how often a decision of one kind was taken
	lags   map[time.Time]time.Duration
	struck int
}

func newWeather(f *fleet) *weather {
	return &weather{fleet: f, began: time.Now(), turns: make(map[string]int), lags: make(map[time.Time]time.Duration)}
}

func (w *weather) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.struck
}

// strike is the fault of a call. Those of producers and operators have none.
func (w *weather) strike(c sqstest.Call) sqstest.Fault {
	if !w.ofConsumer(c) {
		return sqstest.Fault{}
	}
	d := w.draw("weather", c.Op, w.turn(w.about(c)))
	f := sqstest.Fault{Delay: d.within(w.latency), Lag: d.within(w.latency)}
	if kind := w.kind(d, c); kind != "" {
		w.bring(d, kind, c, &f)
		w.mu.Lock()
		w.struck++
		w.mu.Unlock()
	}
	if c.Op == "ReceiveMessage" {
		w.mu.Lock()
		w.lags[c.At] = max(w.lags[c.At], f.Lag)
		w.mu.Unlock()
	}
	return f
}

// ofConsumer tells the consumers' calls by what only they do: an operator's
// receive has no wait time.
func (w *weather) ofConsumer(c sqstest.Call) bool {
	switch c.Op {
	case "ReceiveMessage":
		return c.WaitSeconds > 0
	case "DeleteMessage", "DeleteMessageBatch", "ChangeMessageVisibility", "ChangeMessageVisibilityBatch", "GetQueueUrl":
		return true
	case "GetQueueAttributes":
		return true
	}
	return false
}

// about is what the weather of a call is drawn for: the first message of it.
func (w *weather) about(c sqstest.Call) string {
	if len(c.Entries) == 0 {
		return c.Op
	}
	return c.Op + w.record.numberOfHandle(c.Entries[0].ReceiptHandle)
}

func (w *weather) turn(about string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turns[about]++
	return fmt.Sprint(about, w.turns[about])
}

// kind is what goes wrong; "" = nothing.
func (w *weather) kind(d draw, c sqstest.Call) string {
	now := time.Since(w.began)
	for _, s := range w.spells {
		if s.has(now) && strings.HasPrefix(c.Op, s.op) && d.chance(s.p) {
			if s.kind != "" {
				return s.kind
			}
			return w.any(d, c)
		}
	}
	if d.chance(w.fault) {
		return w.any(d, c)
	}
	return ""
}

func (w *weather) any(d draw, c sqstest.Call) string {
	kinds := []string{hang, reset, reset, refused, refused, truncated, serverError, serverError, throttle, expired, late, late, late, after, after}
	switch {
	case c.Op == "ReceiveMessage":
		kinds = append(kinds, missed, garbled)
		if !w.fifo { // FIFO queues deliver nothing twice
			kinds = append(kinds, twice)
		}
	case strings.HasSuffix(c.Op, "Batch"):
		kinds = append(kinds, partly, partly, partly, partly)
	case strings.HasPrefix(c.Op, "Change"):
		kinds = append(kinds, after, after)
		if d.chance(0.2) {
			kinds = append(kinds, mistaken)
		}
	}
	return pick(d, kinds...)
}

func (w *weather) bring(d draw, kind string, c sqstest.Call, f *sqstest.Fault) {
	switch kind {
	case hang:
		f.Hang = true
	case reset:
		f.Reset = true
	case refused:
		f.Refuse = true
	case truncated: // an answer that begins with 200 comes from a call that took effect
		f.Truncate, f.After = true, true
	case serverError:
		switch d.IntN(4) {
		case 0:
			f.Code = "InternalFailure"
		case 1:
			f.Code = "ServiceUnavailable"
		case 2:
			f.Status, f.Body = 502, "<html><body>Bad Gateway</body></html>"
		case 3:
			f.Status = 503
		}
	case throttle:
		f.Code = pick(d, "RequestThrottled", "ThrottlingException", "KmsThrottled")
	case expired:
		f.Code, f.Message = "ExpiredTokenException", "The security token included in the request is expired"
	case denied:
		f.Code, f.Message = "AccessDeniedException", "User is not authorized to perform this action"
	case late:
		if d.chance(0.6) {
			f.Delay = d.skewed(20 * time.Second)
		}
		if d.chance(0.6) {
			f.Lag = d.skewed(20 * time.Second)
		}
	case after:
		f.After = true
		switch d.IntN(3) {
		case 0:
			f.Hang = true
		case 1:
			f.Reset = true
		case 2:
			f.Code = "InternalFailure"
		}
	case partly:
		for i := range c.Entries {
			if d.chance(0.5) {
				f.FailEntries = append(f.FailEntries, i)
			}
		}
	case missed:
		f.Empty = true
	case twice:
		f.Duplicate = true
	case garbled:
		f.BadMD5 = true
	case mistaken:
		f.Code = "MessageNotInflight" // V10
	}
}

// lagOf is how long the answer to a receive that arrived at a time was under
// way at most.
func (w *weather) lagOf(arrived time.Time) time.Duration { return w.lags[arrived] }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
