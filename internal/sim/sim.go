// Package sim runs whole fleets of subscriptions against an in-memory SQS in
// which things go wrong, and checks afterwards what no fault may break.
//
// A run is drawn from one seed: the queue, the consumers with their options and
// handlers, what producers send and when, which calls fail and how, who is
// stopped, dies or stands still for a while, and what operators do to the
// queue. It lives in one bubble of testing/synctest, so that hours pass in
// milliseconds. Its invariants are judged by the server's log, by what passed
// over the consumers' connections and by the handlers' own record, not by what
// the library says of itself.
//
// # Replay
//
// A seed always gives the same plan. Every decision in a run is drawn for what
// it is about (the second delete of message 7, the third handling of message
// 4), not from one sequence, so that a decision does not depend on what
// happened elsewhere. What the plan does not decide is which of the goroutines
// that can run at one instant runs first, which of several ready cases a select
// takes, and what the library itself draws, the jitter of its retries above all.
// A plain run leaves that to chance, since chance finds more:
//
//	go test ./internal/sim -run TestFleets -sim.seed 7 -count 100
//
// Package replay draws it too, from the number of a schedule, and so has a seed
// and a schedule go the same way in every process, down to the order of what
// happens at one instant:
//
//	go run ./internal/sim/replay -seed 7 -schedules 100
//
// tries a hundred schedules of a seed that has failed, and names the first that
// fails. A failure that needs two goroutines to run at the same time, or one to
// be interrupted in the midst of its work, has no schedule: for its sake every
// failure prints the whole history of the message it is about, and of its group,
// and does not rely on being repeated.
package sim

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/sqsub/sqsub/sqstest"
)

// A Result is what came of a run.
type Result struct {
	Problems  []string // invariants that were broken
	Simulated time.Duration
	Messages  int
	Handlings int
	Calls     int
	Faults    int
	Lost      int // handlings whose visibility was lost
	Overlaps  int // handlings that began while an older one, cancelled or dead, had not returned
}

// A fleet is a run: a server, the consumers of one of its queues, and whatever
// else acts on that queue.
type fleet struct {
	plan
	server *sqstest.Server
	admin  *sqs.Client // of producers and operators: nothing goes wrong with its calls
	url    string
	record *record
	faults *weather
	calm   chan struct{} // closed when the eventful part is over
	fewest atomic.Int32  // the smallest maximum of receives so far; 0 = none
	gaps   []span        // in which the queue did not exist

	mu        sync.Mutex
	consumers []*consumer

	sending sync.Mutex // held while something is sent, or the queue is deleted
	work    sync.WaitGroup
	watches sync.WaitGroup
}

const (
	// calmLimit is how long after the last fault, and after the last message
	// has become visible, the queue may take to be empty.
	calmLimit = 10 * time.Minute

	calmStep = 5 * time.Second
)

// Run makes the run of a seed and checks it. It has to be called in a bubble.
func Run(seed Seed) Result {
	f := newFleet(seed)
	f.live()
	return f.result()
}

func newFleet(seed Seed) *fleet {
	f := &fleet{plan: newPlan(seed), server: sqstest.NewServer(), calm: make(chan struct{}), record: newRecord()}
	f.server.StrandAbandonedPolls = f.strand
	f.server.AttributeLag = f.attributeLag
	f.server.InFlightLimit = f.inFlightLimit
	f.admin = f.server.Client()
	f.faults = newWeather(f)
	f.createQueues()
	f.server.Inject(f.faults.strike)
	return f
}

// live is the life of the fleet: the eventful part, the calm after it, the end.
func (f *fleet) live() {
	f.work.Go(f.produce)
	f.work.Go(f.operate)
	for _, slot := range f.slots {
		f.work.Go(func() { f.occupy(slot) })
		f.work.Go(func() { f.tellPauses(slot) })
	}
	time.Sleep(f.length)
	close(f.calm)
	f.server.Inject(nil)
	f.work.Wait()
	f.settleDown()
	f.stopAll()
}

func (f *fleet) result() Result {
	return Result{
		Problems:  f.judge(),
		Simulated: time.Since(f.record.began),
		Messages:  len(f.record.sent),
		Handlings: len(f.record.handlings),
		Calls:     len(f.server.Calls()),
		Faults:    f.faults.count(),
		Lost:      f.record.losses(),
		Overlaps:  len(f.record.overlaps()),
	}
}

func (f *fleet) createQueues() {
	f.url = f.create(f.queue, f.queueAttributes())
	f.create(f.deadQueue(), nil)
	f.setRedrive(f.maxReceive)
}

// setRedrive sets the redrive policy. A consumer may go by the one it found when
// it started, and a change takes a while to come into force (Q3): so the
// strictest of all so far says which messages may count as dead.
func (f *fleet) setRedrive(most int) {
	if fewest := f.fewest.Load(); most > 0 && (fewest == 0 || most < int(fewest)) {
		f.fewest.Store(int32(most))
	}
	f.setAttribute("RedrivePolicy", f.redrivePolicy(most))
}

func (f *fleet) create(name string, attributes map[string]string) string {
	if attributes == nil {
		attributes = map[string]string{}
	}
	if f.fifo {
		attributes["FifoQueue"] = "true"
	}
	out, err := f.admin.CreateQueue(context.Background(), &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	must(err)
	return *out.QueueUrl
}

func (f *fleet) setAttribute(name, value string) {
	_, err := f.admin.SetQueueAttributes(context.Background(), &sqs.SetQueueAttributesInput{
		QueueUrl: &f.url, Attributes: map[string]string{name: value},
	})
	must(err)
}

// produce sends the messages of the plan, each at its time. The body of a
// message is its number, its place in the order of sending.
func (f *fleet) produce() {
	began := time.Now()
	for _, m := range f.messages {
		time.Sleep(time.Until(began.Add(m.at)))
		in := &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String(fmt.Sprint(m.number)), DelaySeconds: m.delay}
		if f.fifo {
			in.DelaySeconds = 0
			in.MessageDeduplicationId = in.MessageBody
			in.MessageGroupId = aws.String(m.group)
		}
		for !f.send(m, in) {
			time.Sleep(time.Second)
		}
	}
}

// send is false if there is no queue.
func (f *fleet) send(m message, in *sqs.SendMessageInput) bool {
	f.sending.Lock()
	defer f.sending.Unlock()
	_, err := f.admin.SendMessage(context.Background(), in)
	if isMissing(err) {
		return false
	}
	must(err)
	m.at = time.Since(f.record.began)
	f.record.addSent(m)
	return true
}

// operate does to the queue what the plan's operators do.
func (f *fleet) operate() {
	began := time.Now()
	for _, a := range f.acts {
		time.Sleep(time.Until(began.Add(a.at)))
		f.record.note("operator: %s %d", a.kind, a.value)
		switch a.kind {
		case setVisibility:
			f.setAttribute("VisibilityTimeout", fmt.Sprint(a.value))
		case setWait:
			f.setAttribute("ReceiveMessageWaitTimeSeconds", fmt.Sprint(a.value))
		case setRedrive:
			f.setRedrive(a.value)
		case look: // in the console
			_, err := f.admin.ReceiveMessage(context.Background(), &sqs.ReceiveMessageInput{
				QueueUrl: &f.url, MaxNumberOfMessages: 10, VisibilityTimeout: int32(a.value),
			})
			if err != nil {
				f.record.note("operator: %v", err) // over the limit in flight
			}
		case purge:
			f.giveUpMessages()
			_, err := f.admin.PurgeQueue(context.Background(), &sqs.PurgeQueueInput{QueueUrl: &f.url})
			must(err)
		case replace:
			f.replace(time.Duration(a.value) * time.Second)
		}
	}
}

// giveUpMessages notes that the operator, not a consumer, loses what is there.
func (f *fleet) giveUpMessages() {
	for _, m := range f.server.Messages(f.queue) {
		f.record.purge(m.Body)
	}
}

// settleDown waits until the queue is empty: without faults, with handlers that
// succeed at once, nothing can be in the way of a message any more.
func (f *fleet) settleDown() {
	if f.alive() == 0 || !f.enduring() { // those that live may be about to end
		f.start(slot{options: plainOptions()}, len(f.slots))
	}
	last := time.Now()
	for _, m := range f.server.Messages(f.queue) {
		if m.VisibleAt.After(last) {
			last = m.VisibleAt
		}
	}
	for deadline := last.Add(calmLimit); time.Now().Before(deadline); time.Sleep(calmStep) {
		if len(f.server.Messages(f.queue)) == 0 {
			return
		}
	}
}

func (f *fleet) alive() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.consumers {
		if c.alive() {
			n++
		}
	}
	return n
}

// stopAll ends what is left of the fleet: the living by a graceful stop, the
// dead so that nothing of them stays.
func (f *fleet) stopAll() {
	f.mu.Lock()
	left := f.consumers
	f.mu.Unlock()
	var stopping sync.WaitGroup
	for _, c := range left {
		stopping.Go(func() {
			if c.alive() {
				c.end(shutdown)
			} else {
				c.bury()
			}
		})
	}
	stopping.Wait()
	f.watches.Wait()
}

// A client for the consumers, with the SDK's own retries.
func (f *fleet) client() *sqs.Client { return f.server.Client() }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// order is a message's place in the order of sending.
func order(number string) int {
	n, err := strconv.Atoi(number)
	must(err)
	return n
}
