package sim

import (
	"errors"
	"slices"

	"github.com/sqsub/sqsub"
)

// fairIsSmooth: with no faults nothing is lost, nothing is done twice, and no
// extension leaves later than half a timeout after the last.
func (j *judge) fairIsSmooth() {
	for _, l := range j.byHandle {
		last := l.since
		for _, q := range l.requests {
			if q.op != change {
				continue
			}
			if gap := q.sent.at.Sub(last); l.extends(q) && !l.handling.ended.before(q.sent) && gap > l.timeout()/2 {
				j.broken(l.number, "(f) consumer %d extends it only %v after the last time, the timeout is %v", q.consumer, gap, l.timeout())
			}
			last = q.sent.at
		}
	}
	successes := make(map[string]int)
	for _, h := range j.handlings {
		if h.verdict.done() {
			successes[h.number]++
		}
		if errors.Is(h.cause, sqsub.ErrVisibilityLost) && !errors.Is(h.cause, sqsub.ErrHoldLimit) && !j.purged[h.number] && !j.outlived(h.number) {
			j.broken(h.number, "(b) its visibility was lost in fair weather: %v", h.cause)
		}
	}
	for _, l := range j.byHandle {
		if l.lost.is() && !j.purged[l.number] && !j.outlived(l.number) && l.handling == nil {
			j.broken(l.number, "(b) it was lost in fair weather before its handler began: %v", l.outcome.Err)
		}
	}
	for _, number := range sortedKeys(successes) {
		if successes[number] > 1 && !j.outlived(number) {
			j.broken(number, "(b) it was handled successfully %d times in fair weather", successes[number])
		}
	}
	for _, q := range j.requests {
		l := j.byHandle[q.handle]
		if q.err != nil && !j.purged[l.number] && !l.deletedBy(q.answer) && !j.outlived(l.number) {
			j.broken(j.numberOfHandle(q.handle), "(e) consumer %d is refused a %s in fair weather: %v", q.consumer, q.op, q.err)
		}
	}
}

// ranOut reports whether a delivery was held for as long as it might be. A FIFO
// queue refuses its delete then (D4).
func (l *life) ranOut() bool { return errors.Is(l.lostBy, sqsub.ErrHoldLimit) }

// outlived reports whether a delivery of a message ran out. Its handler may end,
// and delete the message, while another consumer has it.
func (j *judge) outlived(number string) bool {
	for _, l := range j.byHandle {
		if l.number == number && l.ranOut() {
			return true
		}
	}
	return false
}

// deletedBy reports whether a delete was under way or granted at m: an extension on its
// way meanwhile is refused.
func (l *life) deletedBy(m moment) bool {
	return slices.ContainsFunc(l.requests, func(q *request) bool { return q.op == remove && q.granted() && q.sent.before(m) })
}
