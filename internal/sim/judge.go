package sim

import (
	"time"

	"github.com/sqsub/sqsub/sqstest"
)

// judge checks the invariants of a run that is over.
func (f *fleet) judge() []string {
	j := &judge{fleet: f, record: f.record, calls: f.server.Calls(), byHandle: make(map[string]*life)}
	for handle, d := range f.record.deliveries {
		j.byHandle[handle] = &life{delivery: d, generation: f.generation(f.record.began.Add(f.record.sent[d.number].at))}
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
	j.findLags()
	j.noneLost()
	j.noOverlap()
	j.inOrder()
	j.formsAreRight()
	j.callsAreFew()
	j.endsWithoutQueue()
	j.stopsEnd()
	j.handedBackLastToFirst()
	for _, handle := range sortedKeys(j.byHandle) {
		l := j.byHandle[handle]
		j.deletedAfterSuccess(l)
		j.silentAfterOutcome(l)
		j.oldHandlesAreDead(l)
		j.hiddenAsLongAsOwned(l)
		j.toldInTime(l)
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

// findLags finds for how long the answers of receives were under way. An answer
// has arrived when its consumer can read it, which may be later than when it was
// sent: at the end of a pause.
func (j *judge) findLags() {
	waited := make(map[*life]time.Duration)
	for _, c := range j.calls {
		if c.Op != "ReceiveMessage" {
			continue
		}
		for _, e := range c.Entries {
			l := j.byHandle[e.ReceiptHandle]
			if l == nil {
				continue
			}
			l.lag = max(l.lag, j.faults.lagOf(c.At))
			if !c.Done.IsZero() && !c.Done.After(l.received.at) { // else it was repeated (R12)
				waited[l] = l.received.at.Sub(c.Done)
			}
		}
	}
	for l, d := range waited {
		l.lag += d
	}
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
	requests   []*request
	handling   *handling     // nil = its handler was not called
	lag        time.Duration // how long the answer that brought it was under way at most
	generation int           // of the queue: how many of its name were before
}

func (l *life) timeout() time.Duration { return l.consumer.sub.Load().Visibility() }

func (l *life) dead() bool { return l.consumer.line.dead.Err() != nil }

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
