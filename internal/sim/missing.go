package sim

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub/sqstest"
)

// missingLimit is how long a queue has to be missing before a subscription ends.
const missingLimit = 2 * time.Minute

// planReplacement has an operator delete the queue and create it anew: soon after
// its name is free again, so that no consumer may notice more than a gap, or late
// enough that those end that can tell. A deletion may take SQS a minute (Q7); here
// it takes effect at once, at a time that is drawn anyway. It has a draw of its own,
// as pauses have.
func (p *plan) planReplacement() {
	d := p.draw("replacement")
	chance := 0.15
	if p.visibility >= time.Minute { // so that some still hold what they have when the next queue is there
		chance = 0.5
	}
	if p.fair() || !d.chance(chance) {
		return
	}
	for range 1 + d.IntN(2) {
		a := act{at: d.within(p.length), kind: replace, value: 60 + d.IntN(50)}
		if d.chance(0.4) {
			a.value = 150 + d.IntN(400)
		}
		p.addAct(a)
	}
}

// replace deletes the queue, and creates one of its name when the time is over.
// What was in it is lost, as in a purge.
func (f *fleet) replace(after time.Duration) {
	f.sending.Lock()
	f.giveUpMessages()
	_, err := f.admin.DeleteQueue(context.Background(), &sqs.DeleteQueueInput{QueueUrl: &f.url})
	f.sending.Unlock()
	must(err)
	gap := span{from: time.Since(f.record.began)}
	time.Sleep(after)
	f.create(f.queue, f.queueAttributes())
	f.setRedrive(f.maxReceive)
	gap.to = time.Since(f.record.began)
	f.gaps = append(f.gaps, gap)
	f.record.note("operator: the queue is there again")
}

// enduring reports whether all consumers have to outlive what happened to the
// queue. If it was there for a moment between two gaps they may have missed that.
func (f *fleet) enduring() bool {
	return len(f.gaps) == 0 || len(f.gaps) == 1 && f.gaps[0].to-f.gaps[0].from < missingLimit
}

// generation counts the queues before the one that was there at t. A message is of
// the one that it was sent to.
func (f *fleet) generation(t time.Time) int {
	n := 0
	for _, gap := range f.gaps {
		if gap.to <= t.Sub(f.record.began) {
			n++
		}
	}
	return n
}

func isMissing(err error) bool {
	var missing *types.QueueDoesNotExist
	return errors.As(err, &missing)
}

// A poll is how a receive ended, as its consumer was told.
type poll struct {
	sent    time.Time
	at      time.Time // of the answer
	missing bool      // the queue
}

// sawNoQueue is when a consumer had been told for as long as the limit, by every
// answer, that the queue does not exist; zero = it was not.
func (j *judge) sawNoQueue(consumer int) time.Time {
	var since time.Time
	for _, p := range j.polls[consumer] {
		switch {
		case !p.missing:
			since = time.Time{}
		case since.IsZero():
			since = p.at
		case p.sent.Sub(since) >= missingLimit: // an answer proves nothing about later
			return p.at
		}
	}
	return time.Time{}
}

// endsWithoutQueue is (g): a subscription ends by itself when its queue has been
// missing for two minutes, with SQS's error, and never else. Its stop begins then.
func (j *judge) endsWithoutQueue() {
	for _, s := range j.stops {
		saw := j.sawNoQueue(s.consumer)
		switch {
		case s.how == dies:
		case s.err == nil && !saw.IsZero() && saw.Before(s.at):
			j.broken("", "(g) consumer %d does not end although its queue is missing since two minutes before %v", s.consumer, saw.Sub(j.began))
		case s.err == nil:
		case !isMissing(s.err) || saw.IsZero() || j.enduring():
			j.broken("", "(g) consumer %d ended with %v", s.consumer, s.err)
		case saw.Before(s.at) || s.how == byItself:
			s.at = saw
			if limit := j.consumers[s.consumer].drainTimeout; limit > 0 && (s.aborted.IsZero() || saw.Add(limit).Before(s.aborted)) {
				s.aborted = saw.Add(limit)
			}
		}
	}
}

// oldHandlesAreDead is (d) for a queue that took the place of another one: what
// the handles of the old one ask for has no effect on it, and is not asked for
// again once SQS has said that they are none of this queue's (V8, B4).
func (j *judge) oldHandlesAreDead(l *life) {
	told := make(map[operation]bool)
	for _, q := range l.requests {
		if j.generation(q.sent.at) == l.generation {
			continue
		}
		switch {
		case q.granted():
			j.broken(l.number, "(d) consumer %d is granted a %s with a receipt handle of the queue before", q.consumer, q.op)
		case q.op == change && told[change], q.op == remove && told[remove]:
			j.broken(l.number, "(d) consumer %d asks to %s it again with a receipt handle of the queue before", q.consumer, q.op)
		}
		told[q.op] = told[q.op] || q.refused()
	}
}

// allOld reports whether a call is about receipt handles of former queues alone:
// of queues that were former ones when it was answered.
func (j *judge) allOld(c sqstest.Call) bool {
	return !slices.ContainsFunc(c.Entries, func(e sqstest.Entry) bool {
		l := j.byHandle[e.ReceiptHandle]
		return l == nil || l.generation == j.generation(c.Done)
	})
}
