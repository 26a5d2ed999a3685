package sim

import (
	"fmt"
	"strings"
	"time"
)

// formsAreRight is (e): SQS refuses nothing for its form, but a receipt handle of a
// queue that was deleted: who got it cannot know that there is another queue now.
func (j *judge) formsAreRight() {
	for _, c := range j.calls {
		if !j.faults.ofConsumer(c) {
			continue
		}
		what := fmt.Sprintf("%s at %v", c.Op, c.At.Sub(j.began))
		switch code := strings.TrimPrefix(c.Code, "AWS.SimpleQueueService."); code {
		case "ReceiptHandleIsInvalid", "MissingParameter", "SerializationException", "InvalidAction", "UnsupportedOperation",
			"BatchEntryIdsNotDistinct", "BatchRequestTooLong", "EmptyBatchRequest", "InvalidBatchEntryId", "TooManyEntriesInBatchRequest":
			if code != "ReceiptHandleIsInvalid" || !j.allOld(c) {
				j.broken("", "(e) %s is refused: %s", what, code)
			}
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
// in a storm. What left at the end of a pause was asked for in it (see pause.go), and
// the next time counts from there.
func (j *judge) callsAreFew() {
	for _, handle := range sortedKeys(j.byHandle) {
		l := j.byHandle[handle]
		timeout := l.timeout()
		apart := timeout/2 - min(l.consumer.batchDelay, timeout/10)
		last := l.since
		for _, q := range l.requests {
			if !l.extends(q) || !q.granted() {
				continue
			}
			if gap := q.sent.at.Sub(last); gap < apart && !l.consumer.resumed(last) {
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

// extends reports whether a request is an extension, and not to hand the message
// back, which only the failure of a handler can ask for while one is called.
func (l *life) extends(q *request) bool {
	return q.op == change && l.handling != nil && l.handling.begun.before(q.sent) && (l.handling.verdict.done() || !l.handling.ended.before(q.sent))
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
