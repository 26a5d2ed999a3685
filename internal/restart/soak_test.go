package restart

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

var soak = flag.Duration("soak", 0, "how long TestSoak takes; 30m is a good while, and needs a -timeout beyond it")

// The environment of the consumer process of TestSoak: the URLs of its two
// queues.
const soakEnv = "SQSUB_SOAK_QUEUES"

const (
	soakSamples     = 180 // of which each sixth has 30
	soakConcurrency = 20
	soakGroups      = 100
)

// A soaking is one of the queues of TestSoak. Its handlers take from 0 to 3
// timeouts, and most of them little, so that half of the slots are busy.
type soaking struct {
	name       string
	visibility time.Duration
	rate       int // messages per second
}

var soakings = []soaking{
	{"q", 2 * time.Second, 20},
	{"q.fifo", 4 * time.Second, 10},
}

func (s soaking) takes() time.Duration {
	u := math.Pow(rand.Float64(), 12)
	return time.Duration(u * float64(3*s.visibility)).Truncate(time.Millisecond)
}

// A sample is what a consumer process has in use.
type sample struct {
	Elapsed    time.Duration
	Heap       uint64
	Goroutines int
	CPU        time.Duration
	Stats      []sqsub.Stats // of each queue
}

// TestSoak lets one process consume two queues for a long time, through weather
// that is always bad: its memory and its goroutines stay what they are, and no
// message is lost, or handled by two at a time.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("takes as long as -soak says")
	}
	server := sqstest.NewServer()
	server.StrandAbandonedPolls = true
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	client := server.Client()
	var urls []string
	for _, q := range soakings {
		attributes := map[string]string{}
		if strings.HasSuffix(q.name, ".fifo") {
			attributes["FifoQueue"] = "true"
		}
		out, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &q.name, Attributes: attributes})
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, *out.QueueUrl)
	}
	server.Inject(soakFault)

	c := startSoaking(t, web.URL, urls)
	sending, cancel := context.WithCancel(t.Context())
	var producers sync.WaitGroup
	stop := func() {
		cancel()
		producers.Wait()
	}
	defer stop()
	sent := make([][]string, len(soakings))
	for i, q := range soakings {
		producers.Go(func() { sent[i] = q.produce(sending, t, client, urls[i]) })
	}
	select {
	case <-time.After(*soak):
	case err := <-c.end:
		t.Fatalf("the consumer ended too early: %v", err)
	}
	// It stops under load: what it has not handled is there for the next.
	stopped := time.Now()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	select {
	case err := <-c.end:
		if err != nil {
			t.Errorf("the consumer ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the consumer still runs a minute after SIGTERM")
	}
	t.Logf("the stop took %v", time.Since(stopped))
	stop()

	for i, q := range soakings {
		left, oldest := map[string]bool{}, time.Duration(0)
		for _, m := range server.Messages(q.name) {
			left[m.ID] = true
			oldest = max(oldest, stopped.Sub(m.SentAt))
		}
		handled, lost, again := 0, 0, 0
		for _, id := range sent[i] {
			switch n := c.done[id]; {
			case n == 0 && !left[id]:
				lost++
				logCalls(t, "lost", server, id)
			case n > 1:
				again++
				logCalls(t, "handled again", server, id)
			}
			handled += min(1, c.done[id])
		}
		if handled < len(sent[i])/4 {
			t.Errorf("%s: no more than %d of %d messages were handled", q.name, handled, len(sent[i]))
		}
		if lost > 0 {
			t.Errorf("%s: %d messages are lost", q.name, lost)
		}
		// At least once is what SQS and the consumer promise. Once is what the
		// consumer does, unless a hold lapses that it cannot keep.
		if again > len(sent[i])/1000 {
			t.Errorf("%s: %d of %d messages were handled to the end more than once", q.name, again, len(sent[i]))
		}
		t.Logf("%s: %d sent, %d handled, %d left for up to %v, %d handled to the end more than once", q.name, len(sent[i]), handled, len(left), oldest, again)
	}
	if c.overlaps > 0 {
		t.Errorf("%d times a message was handled while its handler still ran", c.overlaps)
	}
	t.Logf("runs: %v, calls: %d", c.told, len(server.Calls()))
	c.judgeSamples()
}

// logCalls logs what was asked of the server about a message.
func logCalls(t *testing.T, what string, server *sqstest.Server, id string) {
	for _, c := range server.Calls() {
		for _, e := range c.Entries {
			if e.MessageID == id {
				t.Logf("%s: %s at %v, done after %v with %d %s: %+v", what, c.Op, c.At, c.Done.Sub(c.At), c.Status, c.Code, e)
			}
		}
	}
}

// soakFault makes 5 % of the consumer's calls go wrong.
func soakFault(c sqstest.Call) sqstest.Fault {
	if strings.HasPrefix(c.Op, "Send") || rand.IntN(20) > 0 {
		return sqstest.Fault{}
	}
	after := rand.IntN(2) == 0
	switch rand.IntN(8) {
	case 0:
		return sqstest.Fault{Reset: true, After: after}
	case 1:
		return sqstest.Fault{Status: 500, Code: "InternalError", After: after}
	case 2:
		return sqstest.Fault{Code: "RequestThrottled"}
	case 3:
		if rand.IntN(4) == 0 { // rarer: a receive that hangs costs ten seconds
			return sqstest.Fault{Hang: true, After: after}
		}
		return sqstest.Fault{Status: 503}
	case 4:
		return sqstest.Fault{Delay: rand.N(2 * time.Second)}
	case 5:
		return sqstest.Fault{Lag: rand.N(2 * time.Second)}
	case 6:
		return sqstest.Fault{Truncate: true, After: true}
	}
	if strings.HasPrefix(c.Op, "Receive") {
		return sqstest.Fault{Duplicate: true}
	}
	return sqstest.Fault{FailEntries: []int{rand.IntN(max(1, len(c.Entries)))}}
}

// produce sends until ctx ends and returns the ids of what it sent.
func (q soaking) produce(ctx context.Context, t *testing.T, client *sqs.Client, url string) []string {
	var ids []string
	const perBatch = 5
	tick := time.NewTicker(perBatch * time.Second / time.Duration(q.rate))
	defer tick.Stop()
	for {
		in := &sqs.SendMessageBatchInput{QueueUrl: &url}
		for i := range perBatch {
			e := types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: aws.String(q.takes().String())}
			if strings.HasSuffix(q.name, ".fifo") {
				e.MessageGroupId = aws.String(fmt.Sprint(rand.IntN(soakGroups)))
				e.MessageDeduplicationId = aws.String(fmt.Sprint(len(ids) + i))
			}
			in.Entries = append(in.Entries, e)
		}
		out, err := client.SendMessageBatch(context.WithoutCancel(ctx), in)
		if err != nil || len(out.Failed) > 0 {
			t.Errorf("sending: %v, %v", err, out)
			return ids
		}
		for _, sent := range out.Successful {
			ids = append(ids, *sent.MessageId)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ids
		}
	}
}

// soaked is the consumer process of TestSoak and what it told. The fields are
// good to read when end has been received from.
type soaked struct {
	*testing.T
	cmd *exec.Cmd
	end chan error

	running  map[string]bool // by message id
	done     map[string]int
	told     map[string]int
	overlaps int
	samples  []sample
}

func startSoaking(t *testing.T, endpoint string, urls []string) *soaked {
	cmd := exec.Command(os.Args[0], "-test.run=^TestSoakConsumer$", "-soak="+soak.String())
	cmd.Env = append(os.Environ(), soakEnv+"="+endpoint+" "+strings.Join(urls, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &soaked{T: t, cmd: cmd, end: make(chan error, 1), running: map[string]bool{}, done: map[string]int{}, told: map[string]int{}}
	var listening sync.WaitGroup
	listening.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.hear(lines.Text())
		}
		c.end <- cmd.Wait()
	})
	t.Cleanup(func() {
		cmd.Process.Kill()
		listening.Wait()
	})
	return c
}

func (c *soaked) hear(line string) {
	what, rest, _ := strings.Cut(line, " ")
	switch what {
	case "sample":
		var s sample
		if err := json.Unmarshal([]byte(rest), &s); err != nil {
			c.Error(err)
		}
		c.samples = append(c.samples, s)
		c.Log(line)
		return
	case "started":
		if c.running[rest] {
			c.overlaps++
			c.Logf("%s is handled while its handler still runs", rest)
		}
		c.running[rest] = true
	case "done", "failed", "panicked", "cancelled":
		delete(c.running, rest)
		if what == "done" {
			c.done[rest]++
		}
	default:
		c.Log(line)
		return
	}
	c.told[what]++
}

// judgeSamples compares the second sixth of the run, when all is warm, with the
// last.
func (c *soaked) judgeSamples() {
	sixth := len(c.samples) / 6
	if sixth == 0 {
		c.Fatalf("%d samples", len(c.samples))
	}
	median := func(part []sample, of func(sample) float64) float64 {
		var values []float64
		for _, s := range part {
			values = append(values, of(s))
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	early, late := c.samples[sixth:2*sixth], c.samples[len(c.samples)-sixth:]
	for _, m := range []struct {
		name  string
		of    func(sample) float64
		slack float64
	}{
		{"bytes of heap", func(s sample) float64 { return float64(s.Heap) }, 1 << 20},
		{"goroutines", func(s sample) float64 { return float64(s.Goroutines) }, float64(len(soakings) * soakConcurrency)}, // idle slots have none
	} {
		was, is := median(early, m.of), median(late, m.of)
		c.Logf("%s: %.0f in the second sixth of the run, %.0f in the last", m.name, was, is)
		if is > was*1.2+m.slack {
			c.Errorf("%s grow from %.0f to %.0f", m.name, was, is)
		}
	}
}

// TestSoakConsumer is the consumer process of TestSoak. It remembers nothing of
// the messages, so that its memory is the consumer's.
func TestSoakConsumer(t *testing.T) {
	fields := strings.Fields(os.Getenv(soakEnv))
	if len(fields) == 0 {
		t.Skip("is started by TestSoak")
	}
	endpoint, urls := fields[0], fields[1:]
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	client := sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: &endpoint,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		}),
	}, sqsub.Connections(len(urls)*soakConcurrency))
	var subs []*sqsub.Subscription
	for i, url := range urls {
		sub, err := sqsub.Subscribe(context.Background(), client, url, soakHandler,
			sqsub.WithVisibility(soakings[i].visibility), sqsub.WithConcurrency(soakConcurrency), sqsub.WithWaitTime(2*time.Second),
			sqsub.WithLogger(slog.New(slog.NewTextHandler(io.Discard, nil)))) // formatted, and thrown away
		if err != nil {
			t.Fatal(err)
		}
		subs = append(subs, sub)
	}

	began := time.Now()
	for tick := time.NewTicker(*soak / soakSamples); terminate != nil; {
		select {
		case <-tick.C:
			tell(takeSample(began, subs))
		case <-terminate:
			tick.Stop()
			terminate = nil
		}
	}

	var stops sync.WaitGroup
	for _, sub := range subs {
		stops.Go(func() {
			if err := sub.Shutdown(context.Background()); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			if err := sub.Wait(); err != nil {
				t.Errorf("Wait: %v", err)
			}
		})
	}
	stops.Wait()
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	if strings.Contains(string(stacks), "github.com/sqsub/sqsub.") {
		t.Errorf("after Wait something still runs:\n%s", stacks)
	}
	end := takeSample(began, subs)
	for _, st := range end.Stats {
		if st.InFlight+st.Waiting+st.Receiving > 0 {
			t.Errorf("after Wait: %+v", st)
		}
	}
	fmt.Printf("at the end: %d bytes of heap, %d goroutines, %v of CPU in %v\n", end.Heap, end.Goroutines, end.CPU, end.Elapsed)
}

// soakHandler takes as long as the message says. Some of its runs fail, and some
// panic.
func soakHandler(ctx context.Context, d *sqsub.Delivery) error {
	takes, err := time.ParseDuration(d.Body())
	if err != nil {
		return sqsub.Discard(err)
	}
	fmt.Println("started", d.ID())
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		fmt.Println("cancelled", d.ID())
		return context.Cause(ctx)
	}
	switch n := rand.IntN(100); {
	case n < 5:
		fmt.Println("failed", d.ID())
		return errors.New("one of twenty fails")
	case n < 7:
		fmt.Println("panicked", d.ID())
		panic("one of fifty panics")
	}
	fmt.Println("done", d.ID())
	return nil
}

func takeSample(began time.Time, subs []*sqsub.Subscription) sample {
	runtime.GC()
	runtime.GC() // for what the first has taken out of pools
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	s := sample{
		Elapsed: time.Since(began), Heap: mem.HeapAlloc, Goroutines: runtime.NumGoroutine(),
		CPU: time.Duration(usage.Utime.Nano() + usage.Stime.Nano()),
	}
	for _, sub := range subs {
		s.Stats = append(s.Stats, sub.Stats())
	}
	return s
}

func tell(s sample) {
	text, _ := json.Marshal(s) // of numbers alone
	fmt.Printf("sample %s\n", text)
}
