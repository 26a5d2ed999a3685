package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sqsub/sqsub"
)

// A plan is what a seed decides before the run begins.
type plan struct {
	Seed
	fifo   bool
	queue  string
	byURL  bool
	length time.Duration // of the eventful part

	visibility    time.Duration // the queue's own
	maxReceive    int           // of the redrive policy; 0 = none
	strand        bool
	attributeLag  time.Duration
	inFlightLimit int

	temper   temper
	fault    float64       // probability that a call goes wrong in fair weather
	latency  time.Duration // each way, at most
	spells   []spell
	messages []message
	slots    []slot
	acts     []act
}

type message struct {
	number int
	group  string
	at     time.Duration
	delay  int32
}

// A slot is a place in the fleet that consumers occupy one after another.
type slot struct {
	options
	name   int
	ends   []ending
	cuts   []span // when its consumer is cut off from SQS
	pauses []span // when its process stands still
	begin  time.Duration
}

type ending struct {
	at  time.Duration
	how how
	gap time.Duration // until the next consumer takes the place
}

type span struct{ from, to time.Duration }

func (s span) has(t time.Duration) bool { return s.from <= t && t < s.to }

type how string

const (
	shutdown  how = "shutdown"
	ctxEnds   how = "end of its context"
	closed    how = "close"
	dies      how = "death"
	impatient how = "shutdown that runs out of time"
	byItself  how = "itself"
)

// options are those of one consumer.
type options struct {
	visibility   time.Duration // 0 = the queue's own
	maxHold      time.Duration // 0 = 12 h
	concurrency  int
	prefetch     int
	waitTime     time.Duration
	batchDelay   time.Duration
	drainTimeout time.Duration
	retryDelay   time.Duration
}

func plainOptions() options {
	return options{
		concurrency: sqsub.DefaultConcurrency, waitTime: 20 * time.Second,
		batchDelay: sqsub.DefaultBatchDelay, drainTimeout: sqsub.DefaultDrainTimeout, retryDelay: time.Second,
	}
}

// An act is something an operator does to the queue.
type act struct {
	at    time.Duration
	kind  actKind
	value int
}

type actKind string

const (
	setVisibility actKind = "sets the visibility timeout to"
	setWait       actKind = "sets the wait time to"
	setRedrive    actKind = "sets the maximum of receives to"
	look          actKind = "looks at messages for seconds:"
	purge         actKind = "purges the queue"
	replace       actKind = "deletes the queue, and creates it after seconds:"
)

// A spell is a time of bad weather.
type spell struct {
	span
	op   string // prefix of the operations that suffer; "" = all
	kind string // of what happens to them, see weather
	p    float64
}

func newPlan(seed Seed) plan {
	d := seed.draw("plan")
	p := plan{
		Seed:       seed,
		fifo:       d.chance(0.45),
		queue:      "orders",
		byURL:      d.chance(0.5),
		length:     pick[time.Duration](d, 1, 2, 2, 3, 3, 5, 10) * time.Minute,
		visibility: pick[time.Duration](d, 1, 2, 3, 5, 10, 30, 30, 60, 120) * time.Second,
		strand:     d.chance(0.5),
		temper:     newTemper(d),
	}
	if d.chance(0.02) { // long handlings; short timeouts would make many calls of them
		p.length = pick[time.Duration](d, 2, 6, 13) * time.Hour
		p.visibility = pick[time.Duration](d, 2, 10, 60) * time.Minute
	}
	if p.fifo {
		p.queue += ".fifo"
	}
	if d.chance(0.6) {
		p.maxReceive = 1 + d.IntN(6)
	}
	if d.chance(0.1) {
		p.inFlightLimit = 3 + d.IntN(20)
	}
	if d.chance(0.2) {
		p.attributeLag = d.within(time.Minute)
	}
	if d.chance(0.6) {
		p.latency = d.within(20 * time.Millisecond)
	}
	p.planWeather(d)
	p.planMessages(d)
	p.planFleet(d)
	p.planActs(d)
	p.planPauses()
	p.planReplacement()
	return p
}

// fair reports whether nothing goes wrong in this run, except with handlers.
func (p *plan) fair() bool { return p.fault == 0 }

func (p *plan) planWeather(d draw) {
	switch {
	case d.chance(0.15):
		return // fair
	case d.chance(0.5):
		p.fault = 0.001 + 0.05*d.Float64()
	default:
		p.fault = 0.05 + 0.3*d.Float64()
	}
	for range d.IntN(5) {
		s := spell{
			op:   pick(d, "", "", "Receive", "Change", "Delete"),
			kind: pick(d, "", hang, reset, refused, serverError, throttle, expired, denied, late, after),
			p:    pick(d, 1, 1, 0.9, 0.5),
		}
		s.from = d.within(p.length)
		s.to = s.from + d.skewed(5*time.Minute)
		p.spells = append(p.spells, s)
	}
}

func (p *plan) planMessages(d draw) {
	n := 1 + d.IntN(30)
	if p.length > time.Hour {
		n = 1 + d.IntN(5)
	}
	groups := 1 + d.IntN(5)
	burst := d.chance(0.4)
	for range n {
		m := message{group: fmt.Sprintf("g%d", d.IntN(groups)), at: d.within(p.length * 2 / 3)}
		if burst {
			m.at = d.skewed(2 * time.Second)
		}
		if d.chance(0.1) {
			m.delay = int32(d.IntN(20))
		}
		p.messages = append(p.messages, m)
	}
	slices.SortStableFunc(p.messages, func(a, b message) int { return cmp.Compare(a.at, b.at) })
	for i := range p.messages {
		p.messages[i].number = i + 1
	}
}

func (p *plan) planFleet(d draw) {
	for i := range 1 + d.IntN(5) {
		if p.length > time.Hour && i > 1 {
			break
		}
		s := slot{options: p.planOptions(d), name: i, begin: d.skewed(p.length / 4)}
		for at := s.begin; d.chance(0.4); {
			at += d.within(p.length)
			e := ending{at: at, how: pick(d, shutdown, ctxEnds, closed, impatient), gap: d.skewed(time.Minute)}
			if !p.fair() && d.chance(0.4) {
				e.how = dies
			}
			if at < p.length {
				s.ends = append(s.ends, e)
			}
		}
		if !p.fair() && d.chance(0.3) {
			from := d.within(p.length)
			s.cuts = append(s.cuts, span{from, from + d.skewed(3*time.Minute)})
		}
		p.slots = append(p.slots, s)
	}
}

func (p *plan) planOptions(d draw) options {
	o := options{
		concurrency:  pick(d, 1, 1, 2, 3, 5, 10),
		prefetch:     pick(d, 0, 0, 0, 1, 5, 20),
		waitTime:     pick[time.Duration](d, 1, 2, 5, 20, 20, 20) * time.Second,
		batchDelay:   pick[time.Duration](d, 0, 10, 100, 100, 1000) * time.Millisecond,
		drainTimeout: pick[time.Duration](d, 0, 1, 10, 25, 25) * time.Second,
		retryDelay:   pick[time.Duration](d, 0, 1, 1, 5, 30) * time.Second,
	}
	if d.chance(0.6) && p.length < time.Hour {
		o.visibility = pick[time.Duration](d, 1, 2, 3, 5, 10, 30, 60, 120) * time.Second
	}
	if o.visibility > 0 && d.chance(0.15) {
		o.maxHold = o.visibility + d.within(3*time.Minute)
	}
	return o
}

func (p *plan) planActs(d draw) {
	for range d.IntN(4) {
		a := act{at: d.within(p.length), kind: pick(d, setVisibility, setWait, setRedrive, look)}
		switch a.kind {
		case setVisibility:
			a.value = 1 + d.IntN(60)
		case setWait:
			a.value = d.IntN(21)
		case setRedrive:
			a.value = d.IntN(6)
		case look:
			a.value = 1 + d.IntN(20)
		}
		p.addAct(a)
	}
	if d.chance(0.05) {
		p.addAct(act{at: d.within(p.length), kind: purge})
	}
}

func (p *plan) addAct(a act) {
	p.acts = append(p.acts, a)
	slices.SortStableFunc(p.acts, func(a, b act) int { return cmp.Compare(a.at, b.at) })
}

func (p *plan) queueAttributes() map[string]string {
	return map[string]string{"VisibilityTimeout": fmt.Sprint(int(p.visibility / time.Second))}
}

func (p *plan) deadQueue() string {
	if p.fifo {
		return "dead.fifo"
	}
	return "dead"
}

func (p *plan) redrivePolicy(most int) string {
	if most == 0 {
		return ""
	}
	return fmt.Sprintf(`{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:123456789012:%s","maxReceiveCount":%d}`, p.deadQueue(), most)
}
