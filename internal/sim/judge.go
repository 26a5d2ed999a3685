package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// judge checks the invariants of a run that is over.
func (f *fleet) judge() []string {
	j := &judge{fleet: f, record: f.record, calls: f.server.Calls(), byHandle: make(map[string]*life)}
	for handle, d := range f.record.deliveries {
		j.byHandle[handle] = &life{delivery: d}
	}
	for _, q := range f.record.requests {
		if l := j.byHandle[q.handle]; l != nil {
			l.requests = append(l.requests, q)
		} else {
			j.broken("", "(e) consumer %d asks to %s with a receipt handle it never received", q.consumer, q.op)
		}
	}
	for _, h := range f.record.handlings {
		j.byHandle[h.handle].handling = h
	}
	for _, c := range j.calls {
		for _, e := range c.Entries {
			if l := j.byHandle[e.ReceiptHandle]; l != nil && c.Op == "ReceiveMessage" {
				l.lag = max(l.lag, f.faults.lagOf(c.At))
			}
		}
	}
	j.noneLost()
	j.noOverlap()
	j.inOrder()
	j.formsAreRight()
	j.callsAreFew()
	j.stopsEnd()
	j.handedBackLastToFirst()
	for _, handle := range sortedKeys(j.byHandle) {
		l := j.byHandle[handle]
		j.deletedAfterSuccess(l)
		j.silentAfterOutcome(l)
		j.hiddenAsLongAsOwned(l)
		j.neverNeglected(l)
		j.oneChangeAtATime(l)
		j.verdictHeeded(l)
		j.settled(l)
	}
	if f.fair() {
		j.fairIsSmooth()
	}
	return j.verdict()
}

type judge struct {
	*fleet
	*record
	calls    []sqstest.Call
	byHandle map[string]*life
}

// A life is all that is known of one delivery.
type life struct {
	*delivery
	requests []*request
	handling *handling     // nil = its handler was not called
	lag      time.Duration // how long the answer that brought it was under way at most
}

func (l *life) timeout() time.Duration { return l.consumer.sub.Load().Visibility() }

func (l *life) dead() bool { return l.consumer.line.dead.Err() != nil }

// extends reports whether a request is an extension, and not to hand the message
// back, which only the failure of a handler can ask for while one is called.
func (l *life) extends(q *request) bool {
	return q.op == change && l.handling != nil && l.handling.begun.before(q.sent) && (l.handling.verdict.done() || !l.handling.ended.before(q.sent))
}

func (j *judge) broken(number, format string, args ...any) { j.problem(number, format, args...) }

// verdict renders the problems, each message's history once.
func (j *judge) verdict() []string {
	var texts []string
	told := make(map[string]bool)
	for _, p := range j.problems {
		text := p.text
		if p.number != "" {
			text = "message " + p.number + ": " + text
		}
		if !told[p.number] && len(told) < 2 {
			text += "\n" + j.history(j.related(p.number)...)
		}
		told[p.number] = true
		texts = append(texts, text)
	}
	return texts
}

// related are a message and, in a FIFO queue, its group.
func (j *judge) related(number string) []string {
	numbers := []string{number}
	if m, ok := j.sent[number]; ok && j.fifo {
		for other, o := range j.sent {
			if o.group == m.group {
				numbers = append(numbers, other)
			}
		}
	}
	return numbers
}

// noneLost is (a), at the end of a time without faults: every message has been
// handled successfully and is deleted, or is a dead letter; none is stuck.
func (j *judge) noneLost() {
	there := make(map[string]bool)
	for _, m := range j.server.Messages(j.queue) {
		there[m.Body] = true
		j.broken(m.Body, "(a, h) it is still in the queue, %s until %v, received %d times", m.State, m.VisibleAt.Sub(j.began), m.ReceiveCount)
	}
	for _, m := range j.server.Messages(j.deadQueue()) {
		there[m.Body] = true
	}
	for _, number := range sortedKeys(j.sent) {
		if there[number] || j.purged[number] {
			continue
		}
		if !slices.ContainsFunc(j.handlings, func(h *handling) bool { return h.number == number && h.verdict.done() }) {
			j.broken(number, "(a) it is gone and was never handled successfully")
		}
	}
}

// deletedAfterSuccess is the other half of (a): a message is deleted only by
// who has handled it.
func (j *judge) deletedAfterSuccess(l *life) {
	for _, q := range l.requests {
		if q.op != remove {
			continue
		}
		done := func(h *handling) bool {
			return h.consumer == l.consumer && h.number == l.number && h.verdict.done() && h.ended.before(q.sent)
		}
		if !slices.ContainsFunc(j.handlings, done) {
			j.broken(l.number, "(a) consumer %d deletes it without having handled it", q.consumer)
		}
	}
}

// noOverlap is (b). What the handlers of a dead consumer do does not count.
func (j *judge) noOverlap() {
	for _, pair := range j.overlaps() {
		older, younger := pair[0], pair[1]
		if older.verdict == died || younger.verdict == died || older.cancelled.is() && !older.cancelled.at.After(younger.begun.at) {
			continue
		}
		if j.stale(older, younger.begun.at) || j.stale(younger, younger.begun.at) {
			continue
		}
		j.broken(younger.number, "(b) consumer %d begins it while the handler of consumer %d runs and was not cancelled", younger.consumer.number, older.consumer.number)
	}
}

// inOrder is (c): when a handler begins, no earlier message of its group is in
// the queue, whether it was deleted or is a dead letter (X6). Nor does a consumer
// handle what it has deleted while it held it; that another one has, it cannot
// know.
func (j *judge) inOrder() {
	for _, h := range j.handlings {
		if h.verdict == died || j.stale(h, h.begun.at) {
			continue
		}
		if h.before != "" {
			j.broken(h.number, "(c) consumer %d handles it although message %s of its group is still in the queue", h.consumer.number, h.before)
		}
		deleted := func(q *request) bool {
			l := j.byHandle[q.handle]
			return l.number == h.number && l.consumer == h.consumer && q.op == remove && q.granted() && q.answer.before(h.begun) && q.sent.at.Before(l.held())
		}
		if h.gone && slices.ContainsFunc(j.requests, deleted) {
			j.broken(h.number, "(b) consumer %d handles it although it has deleted it", h.consumer.number)
		}
	}
}

// stale reports whether a handling had lost its message by t without any means
// to know. The answer to a long poll does not tell when in the poll SQS took the
// message (R18): if the answer was under way for long, the hold ends so much
// earlier than its consumer believes. Once it has, SQS accepts a change on a
// standard queue all the same, and lets it act on the next owner's delivery (V8),
// who has no means to know either.
func (j *judge) stale(h *handling, t time.Time) bool {
	own := j.byHandle[h.handle]
	if own.lag > 0 && !t.Before(own.held()) {
		return true
	}
	for _, l := range j.byHandle {
		if l.number != h.number || l == own || l.lag == 0 || j.fifo {
			continue
		}
		held := l.held()
		if slices.ContainsFunc(l.requests, func(q *request) bool {
			return q.op == change && !q.sent.at.Before(held) && !q.sent.at.After(t)
		}) {
			return true
		}
	}
	return false
}

// held is until when SQS hid the message for this delivery at least.
func (l *life) held() time.Time {
	held := l.received.at.Add(l.timeout() - l.lag)
	for _, q := range l.requests {
		if q.op == change && q.granted() && !q.sent.at.After(held) {
			held = q.sent.at.Add(q.visibility)
		}
	}
	return held
}

// silentAfterOutcome is (d): once a message is deleted or visible again, or its
// delivery has its outcome, there is no other request with its receipt handle.
// An extension may have left at the instant of the answer.
func (j *judge) silentAfterOutcome(l *life) {
	var answered time.Time
	for _, q := range l.requests {
		if l.finished.before(q.sent) {
			j.broken(l.number, "(d) consumer %d asks to %s it although it had its outcome", q.consumer, q.op)
			return
		}
		if !answered.IsZero() && q.sent.at.After(answered) {
			j.broken(l.number, "(d) consumer %d asks to %s it although it was told that it is deleted or visible", q.consumer, q.op)
			return
		}
		if q.granted() && (q.op == remove || q.visibility == 0) {
			answered = q.answer.at
		}
	}
}

// hiddenAsLongAsOwned is (h), and the other half of (d): no request hides a
// message for longer than one timeout, but one that sets a delay; none is sent
// when the hold is over, since it would act on the next owner's (V8, V9); none
// makes a message visible that is being handled.
func (j *judge) hiddenAsLongAsOwned(l *life) {
	timeout := l.timeout()
	held := l.received.at.Add(timeout)
	h := l.handling
	var shown time.Time // when it may be visible after a try whose answer was lost
	for _, q := range l.requests {
		if q.op != change {
			continue
		}
		failed := h != nil && !h.verdict.done() && h.ended.before(q.sent)
		if !shown.IsZero() && q.sent.at.After(shown) && !j.fifo {
			j.broken(l.number, "(d) consumer %d changes its visibility although a call before may have made it visible for others", q.consumer)
		}
		if q.unsure() && (failed || q.visibility == 0) {
			shown = q.sent.at.Add(q.visibility)
		}
		if q.sent.at.After(held) {
			j.broken(l.number, "(d) consumer %d changes its visibility %v after its hold was over", q.consumer, q.sent.at.Sub(held))
		}
		if q.granted() {
			held = q.sent.at.Add(q.visibility)
		}
		running := h != nil && h.begun.before(q.sent) && !h.ended.before(q.sent)
		switch longest := j.longestDelay(l); {
		case failed || h == nil || !h.begun.before(q.sent):
			if q.visibility > max(timeout, longest) {
				j.broken(l.number, "(h) consumer %d hides it for %v, longer than its timeout or any delay", q.consumer, q.visibility)
			}
		case q.visibility == 0 && running:
			j.broken(l.number, "(b) consumer %d makes it visible while its handler runs", q.consumer)
		case q.visibility == 0:
			j.broken(l.number, "(a) consumer %d hands it back although it was handled successfully", q.consumer)
		case q.visibility > timeout:
			j.broken(l.number, "(h) consumer %d extends it by %v, its timeout is %v", q.consumer, q.visibility, timeout)
		}
	}
}

// neverNeglected is the other side of (h): as long as a handler runs uncancelled,
// and until the delete after it is granted, the hold is kept, or someone tries to
// keep it, at least once in a timeout.
func (j *judge) neverNeglected(l *life) {
	if l.handling == nil || l.dead() || l.ranOut() {
		return
	}
	tried := l.received.at
	check := func(t time.Time, what string) {
		if l.lost.is() && !t.Before(l.lost.at) || l.refused(t) {
			return
		}
		if gap := t.Sub(tried); gap > l.timeout() {
			j.broken(l.number, "(h) consumer %d neglects it for %v before %s, its timeout is %v", l.consumer.number, gap, what, l.timeout())
		}
	}
	for _, q := range l.requests {
		if q.op == remove {
			check(q.sent.at, "a delete")
			continue
		}
		tried = q.sent.at
	}
	if c := l.handling; !c.cancelled.is() && !slices.ContainsFunc(l.requests, func(q *request) bool { return c.ended.before(q.sent) && q.op == change }) {
		check(c.ended.at, "the end of its handler")
	}
}

// refused reports whether SQS had refused a change by t, as for a message gone.
func (l *life) refused(t time.Time) bool {
	return slices.ContainsFunc(l.requests, func(q *request) bool {
		return q.op == change && q.answer.is() && !q.answer.at.After(t) && q.refused()
	})
}

// oneChangeAtATime: an extension that is overtaken by a delay would undo it
// (V13), so that each change waits for the answer to the one before.
func (j *judge) oneChangeAtATime(l *life) {
	var before *request
	for _, q := range l.requests {
		if q.op != change {
			continue
		}
		if before != nil && !before.answer.before(q.sent) {
			j.broken(l.number, "(d) consumer %d changes its visibility while another change is under way", q.consumer)
		}
		before = q
	}
}

// verdictHeeded: a message that a handler wants back after a delay does not come
// sooner, and a handler is told that its message is lost only if it is.
func (j *judge) verdictHeeded(l *life) {
	h := l.handling
	if h == nil || l.dead() {
		return
	}
	if errors.Is(h.cause, sqsub.ErrVisibilityLost) && !j.lostForAReason(l, h.cancelled) {
		j.broken(l.number, "(b) consumer %d cancels its handler and has no reason to: %v", l.consumer.number, h.cause)
	}
	if h.verdict != retryAfter {
		return
	}
	var last *request
	for _, q := range l.requests {
		if q.op == change && h.ended.before(q.sent) { // one may be an extension that left at the same instant
			last = q
		}
	}
	if last == nil || last.visibility >= h.delay {
		return
	}
	if last.sent.at.Add(h.delay).Sub(l.received.at) < 11*time.Hour { // else it is clipped (V5)
		j.broken(l.number, "(h) consumer %d hands it back for %v, its handler asked for %v", last.consumer, last.visibility, h.delay)
	}
}

// handedBackLastToFirst: where one request makes several messages of a FIFO group
// visible, the last comes first, so that no receive between two of them finds a
// part of the group that another is missing from (F3).
func (j *judge) handedBackLastToFirst() {
	for _, c := range j.calls {
		if !j.fifo || c.Op != "ChangeMessageVisibilityBatch" {
			continue
		}
		last := make(map[string]string) // the number of the last message, by group
		for _, e := range c.Entries {
			l := j.byHandle[e.ReceiptHandle]
			if l == nil || e.Visibility > 0 || l.handling != nil {
				continue
			}
			group := j.groupOf(l.number)
			if before, ok := last[group]; ok && order(before) < order(l.number) {
				j.broken(l.number, "(c) consumer %d releases it after message %s of its group", l.consumer.number, before)
			}
			last[group] = l.number
		}
	}
}

func (j *judge) groupOf(number string) string { return j.sent[number].group }

// longestDelay is the longest that a delivery, or a later one of the group of
// one that failed, may be handed back for: the delay asked for in whole seconds,
// and the two seconds that followers stay behind.
func (j *judge) longestDelay(l *life) time.Duration {
	longest := l.consumer.retryDelay
	for _, h := range j.handlings {
		if h.consumer == l.consumer && (h == l.handling || j.fifo && h.group == j.groupOf(l.number)) {
			longest = max(longest, h.delay)
		}
	}
	return longest + 3*time.Second
}

// settled: each delivery of a consumer that did not die has an outcome, and
// unless its visibility was lost someone asked SQS for it.
func (j *judge) settled(l *life) {
	if l.dead() {
		return
	}
	if !l.finished.is() {
		j.broken(l.number, "(g) consumer %d ended without an outcome for it", l.consumer.number)
		return
	}
	asked := func(op operation) bool {
		return slices.ContainsFunc(l.requests, func(q *request) bool {
			return q.op == op && (l.handling == nil || l.handling.ended.before(q.sent))
		})
	}
	h := l.handling
	switch {
	case h != nil && h.verdict.done():
		if !asked(remove) {
			j.broken(l.number, "(a) consumer %d has handled it and does not delete it", l.consumer.number)
		}
		if l.outcome.Outcome == sqsub.Unsettled && !l.lost.is() && !l.refused(l.finished.at) && !j.hurried(l) {
			j.broken(l.number, "(a) consumer %d gives up deleting it although it holds it: %v", l.consumer.number, l.outcome.Err)
		}
	case h != nil && h.verdict == exits:
	case l.outcome.Outcome == sqsub.Lost:
		if !j.lostForAReason(l, l.finished) {
			j.broken(l.number, "(h) consumer %d calls it lost, and has no reason to", l.consumer.number)
		}
	case h == nil && asked(remove): // handled before
	case !asked(change):
		j.broken(l.number, "(h) consumer %d does not hand it back", l.consumer.number)
	}
}

// lostForAReason: by m SQS had said so, or the hold had run out as far as its
// consumer could know, or it had received the message again.
func (j *judge) lostForAReason(l *life, m moment) bool {
	if l.refused(m.at) {
		return true
	}
	held := l.received.at.Add(l.timeout())
	for _, q := range l.requests {
		if q.op == change && q.granted() && q.sent.before(m) && q.answer.at.Before(held.Add(-guard)) { // a later answer proves nothing (V8)
			held = q.sent.at.Add(q.visibility)
		}
	}
	if !m.at.Before(held.Add(-guard)) || l.consumer.maxHold > 0 && !m.at.Before(l.received.at.Add(l.consumer.maxHold)) {
		return true
	}
	for _, other := range j.byHandle {
		if other != l && other.number == l.number && other.consumer == l.consumer && other.received.before(m) {
			return true
		}
	}
	return false
}

// guard is how much before the end of a hold a consumer may give it up at most.
const guard = 250 * time.Millisecond

// hurried reports whether a stop had run out of time when a delivery was given up.
func (j *judge) hurried(l *life) bool {
	return slices.ContainsFunc(j.stops, func(s *stop) bool {
		return s.consumer == l.consumer.number && !s.aborted.IsZero() && !l.finished.at.Before(s.aborted)
	})
}

// formsAreRight is (e): SQS refuses nothing for its form.
func (j *judge) formsAreRight() {
	for _, c := range j.calls {
		if !j.faults.ofConsumer(c) {
			continue
		}
		what := fmt.Sprintf("%s at %v", c.Op, c.At.Sub(j.began))
		switch code := strings.TrimPrefix(c.Code, "AWS.SimpleQueueService."); code {
		case "ReceiptHandleIsInvalid", "MissingParameter", "SerializationException", "InvalidAction", "UnsupportedOperation",
			"BatchEntryIdsNotDistinct", "BatchRequestTooLong", "EmptyBatchRequest", "InvalidBatchEntryId", "TooManyEntriesInBatchRequest":
			j.broken("", "(e) %s is refused: %s", what, code)
		}
		switch c.Op {
		case "ReceiveMessage":
			if c.MaxMessages < 1 || c.MaxMessages > 10 || c.WaitSeconds > 20 || c.Visibility < 1 || c.Visibility > 43200 || (c.AttemptID != "") != j.fifo || len(c.AttemptID) > 128 {
				j.broken("", "(e) %s has parameters out of range: %+v", what, c)
			}
			continue
		case "GetQueueUrl", "GetQueueAttributes":
			continue
		}
		seen := make(map[string]bool)
		for _, e := range c.Entries {
			if e.MessageID == "" || e.Visibility < 0 || e.Visibility > 43200 || seen[e.ReceiptHandle] {
				j.broken(j.numberOfHandle(e.ReceiptHandle), "(e) %s has an entry that is wrong or there twice: %+v", what, e)
			}
			seen[e.ReceiptHandle] = true
		}
		if n := len(c.Entries); n < 1 || n > 10 || n == 1 && strings.HasSuffix(c.Op, "Batch") {
			j.broken("", "(e) %s has %d entries", what, n)
		}
	}
}

const (
	// Retries are at least 50 ms apart, or a twentieth of what is left of the hold.
	// In a long outage an extension and a delete are tried four times a minute each.
	mostPerSecond = 25
	mostPerHold   = 120
	onePer        = 5 * time.Second
)

// callsAreFew is (f). Extensions that are granted are half a timeout apart, but
// for the company they may have left early for; failures are retried, but not
// in a storm.
func (j *judge) callsAreFew() {
	for _, handle := range sortedKeys(j.byHandle) {
		l := j.byHandle[handle]
		timeout := l.timeout()
		apart := timeout/2 - min(l.consumer.batchDelay, timeout/10)
		last := l.received.at
		for _, q := range l.requests {
			if !l.extends(q) || !q.granted() {
				continue
			}
			if gap := q.sent.at.Sub(last); gap < apart {
				j.broken(l.number, "(f) consumer %d extends it %v after the last time, the timeout is %v", q.consumer, gap, timeout)
			}
			last = q.sent.at
		}
		if n := l.most(time.Second); n > mostPerSecond {
			j.broken(l.number, "(f) %d requests within a second", n)
		}
		if n := l.most(timeout); n > mostPerHold+int(timeout/onePer) {
			j.broken(l.number, "(f) %d requests within %v", n, timeout)
		}
	}
}

// most is the largest number of requests within d.
func (l *life) most(d time.Duration) int {
	n, first := 0, 0
	for i, q := range l.requests {
		for q.sent.at.Sub(l.requests[first].sent.at) >= d {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}

// settling is how long a stop may take after its patience has ended and the last
// handler has returned: two tries of 10 s for a delete or a delay, after the end
// of an extension of 10 s.
const settling = 45 * time.Second

// stopsEnd is (g).
func (j *judge) stopsEnd() {
	for _, s := range j.stops {
		c := j.consumers[s.consumer]
		for _, at := range j.aborts[s.consumer] {
			if s.aborted.IsZero() || at.Before(s.aborted) {
				j.broken("", "(g) consumer %d aborts a receive although its stop has time: messages may be stranded (R13)", s.consumer)
			}
		}
		if s.err != nil {
			j.broken("", "(g) consumer %d ended with %v", s.consumer, s.err)
		}
		from := s.aborted
		if from.IsZero() {
			continue // no limit was set; that it ended was seen
		}
		for _, h := range j.handlings {
			if h.consumer == c && h.ended.at.After(from) {
				from = h.ended.at
			}
		}
		if took := s.done.Sub(from); took > settling {
			j.broken("", "(g) consumer %d took %v to end by %s after the last handler and the end of patience", s.consumer, took, s.how)
		}
	}
}

// fairIsSmooth: with no faults nothing is lost, nothing is done twice, and no
// extension leaves later than half a timeout after the last.
func (j *judge) fairIsSmooth() {
	for _, l := range j.byHandle {
		last := l.received.at
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
		if errors.Is(h.cause, sqsub.ErrVisibilityLost) && !errors.Is(h.cause, sqsub.ErrHoldLimit) && !j.purged[h.number] {
			j.broken(h.number, "(b) its visibility was lost in fair weather: %v", h.cause)
		}
	}
	for _, l := range j.byHandle {
		if l.lost.is() && !j.purged[l.number] && l.consumer.maxHold == 0 && l.handling == nil {
			j.broken(l.number, "(b) it was lost in fair weather before its handler began: %v", l.outcome.Err)
		}
	}
	for _, number := range sortedKeys(successes) {
		if successes[number] > 1 && !j.limited() {
			j.broken(number, "(b) it was handled successfully %d times in fair weather", successes[number])
		}
	}
	for _, q := range j.requests {
		l := j.byHandle[q.handle]
		if q.err != nil && !j.purged[l.number] && !l.deletedBy(q.answer) && !l.ranOut() {
			j.broken(j.numberOfHandle(q.handle), "(e) consumer %d is refused a %s in fair weather: %v", q.consumer, q.op, q.err)
		}
	}
}

// ranOut reports whether a delivery was held for as long as it might be. A FIFO
// queue refuses its delete then (D4).
func (l *life) ranOut() bool {
	return l.handling != nil && errors.Is(l.handling.cause, sqsub.ErrHoldLimit)
}

// deletedBy reports whether a delete was under way or granted at m: an extension on its
// way meanwhile is refused.
func (l *life) deletedBy(m moment) bool {
	return slices.ContainsFunc(l.requests, func(q *request) bool { return q.op == remove && q.granted() && q.sent.before(m) })
}

// limited reports whether a hold can have run out by its limit. The cause of a
// handler's context does not tell if a stop had cancelled it before.
func (j *judge) limited() bool {
	for _, l := range j.byHandle {
		if l.ranOut() || l.lost.is() && l.consumer.maxHold > 0 {
			return true
		}
	}
	return false
}
