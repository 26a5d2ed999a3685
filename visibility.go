package sqsub

import (
	"math"
	"time"
)

const (
	// sqsMaxHold is how long SQS hides one delivery at most, counted from the
	// arrival of its ReceiveMessage request (V5, R18).
	sqsMaxHold = 12 * time.Hour

	// holdMargin is what is left of it for clocks and networks: an extension
	// to the very end of the 12 hours may arrive late and be refused, and would
	// then leave the message unheld for up to half a timeout. By SQS's own
	// documentation 43200 will likely fail and 43195 will work (V5).
	holdMargin = 5 * time.Second
)

const (
	// maxInFlight is how many messages SQS has in flight at most (R14, R15).
	maxInFlight = 120_000

	// leadPerDelivery is how much earlier an extension may leave for each delivery
	// in hand.
	leadPerDelivery = 10 * time.Microsecond
)

// ceilSeconds rounds d up to whole seconds, as SQS counts (V1): a fraction lost
// to rounding down would let a message go too early, and turn 500 ms into "the
// queue's default".
func ceilSeconds(d time.Duration) time.Duration {
	const almost = time.Second - 1
	return floorSeconds(min(d, math.MaxInt64-almost) + almost)
}

// floorSeconds rounds d down to whole seconds, and to zero what is negative.
func floorSeconds(d time.Duration) time.Duration {
	return max(0, d).Truncate(time.Second)
}

// A hold is what a consumer knows of how long SQS hides one delivery from
// everybody else. It is arithmetic only: no clock, no I/O.
type hold struct {
	timeout time.Duration // what the receive and every extension ask for; 0 = SQS hides nothing
	limit   time.Time     // no extension may end later
	refused time.Time     // SQS refuses a timeout that ends later
	since   time.Time     // when the timeout that runs now began
	granted time.Duration // how long it runs from there

	extensions int // granted
}

// newHold is the hold of a message whose receive was sent and answered at the
// given times. SQS counts its limit from the request and the timeout from the
// answer (R18), so each takes the instant that is safe.
func newHold(sent, answered time.Time, timeout, longest time.Duration) hold {
	refused := sent.Add(sqsMaxHold - holdMargin)
	return hold{
		timeout: timeout,
		limit:   earlier(answered.Add(longest), refused),
		refused: refused,
		since:   answered,
		granted: timeout,
	}
}

// extended is the hold after SQS granted an extension that was sent at the
// given time. SQS counts it from a moment not before that (V3).
func (h hold) extended(sent time.Time, granted time.Duration) hold {
	h.since, h.granted = sent, granted
	h.extensions++
	return h
}

// due is when the next extension has to leave: at half of the timeout, so that
// the other half is left for retries.
func (h hold) due() time.Time {
	return h.since.Add(h.timeout / 2)
}

// end is when the delivery can no longer be called ours. It comes a little
// before SQS may hand the message on: the answer to a receive was under way
// for a while before it was timed here, and a handler needs a moment to notice.
func (h hold) end() time.Time {
	guard := min(h.timeout/20, 250*time.Millisecond)
	end := h.since.Add(h.granted - guard)
	if end.After(h.limit) {
		return h.limit
	}
	return end
}

// ask is the timeout that an extension sent at t has to ask for: the plain
// timeout, or what is left of the limit in whole seconds, since SQS refuses and
// does not clip (V5). It is zero when that would not lengthen the hold.
func (h hold) ask(t time.Time) time.Duration {
	d := min(h.timeout, floorSeconds(h.limit.Sub(t)))
	if !t.Add(d).After(h.since.Add(h.granted)) {
		return 0
	}
	return d
}

// extendable reports whether an extension at t is worth a call: for the plain timeout,
// or for another second at least.
func (h hold) extendable(t time.Time) bool {
	gain := t.Add(h.ask(t)).Sub(h.since.Add(h.granted))
	return h.limit.Sub(t) >= h.timeout || h.ask(t) > 0 && gain >= time.Second
}

// clip is the delay that can be set at t: d in whole seconds, as far as SQS
// allows.
func (h hold) clip(t time.Time, d time.Duration) time.Duration {
	most := floorSeconds(h.refused.Sub(t))
	return min(ceilSeconds(min(d, most)), most)
}

// lead is how long before its half an extension may leave, to find company; and if
// much is in hand, to be sent in time when all of that is due at once, as it was
// received at once. It is never more than a tenth of the timeout.
func lead(timeout, batchDelay time.Duration, inHand int) time.Duration {
	if batchDelay == 0 {
		return 0
	}
	return min(max(batchDelay, time.Duration(min(inHand, maxInFlight))*leadPerDelivery), timeout/10)
}

// passed reports whether t has come. It asks the monotonic and the wall
// clock: the first stands still while the machine is suspended, and SQS does
// not wait for it (B161).
func passed(now, t time.Time) bool {
	return !now.Before(t) || !now.Round(0).Before(t.Round(0))
}

// arrived is when an answer that was read at t came at the latest: not after due.
// It asks both clocks, as passed does, and timers can go by the result.
func arrived(t, due time.Time) time.Time {
	return t.Add(-max(0, t.Sub(due), t.Round(0).Sub(due.Round(0))))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
