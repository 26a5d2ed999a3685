package restart

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
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

// The environment of a consumer process.
const (
	endpointEnv = "SQSUB_RESTART_ENDPOINT" // makes the test binary a consumer
	settingsEnv = "SQSUB_RESTART_SETTINGS"
)

func TestMain(m *testing.M) {
	if endpoint := os.Getenv(endpointEnv); endpoint != "" {
		if err := consume(endpoint); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// settings are those of a consumer process.
type settings struct {
	queue                 string
	visibility            time.Duration
	concurrency, prefetch int
}

func (s settings) String() string {
	return fmt.Sprintf("%s %d %d %d", s.queue, s.visibility, s.concurrency, s.prefetch)
}

func (s *settings) parse(text string) error {
	_, err := fmt.Sscan(text, &s.queue, &s.visibility, &s.concurrency, &s.prefetch)
	return err
}

// consume is the whole of a consumer process: the program of the README, with a
// handler that takes as long as the message says. It tells its parent what
// becomes of each message.
func consume(endpoint string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var s settings
	if err := s.parse(os.Getenv(settingsEnv)); err != nil {
		return err
	}
	client := sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: &endpoint,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		}),
	}, sqsub.Connections(s.concurrency))
	tell := func(what string, d *sqsub.Delivery) { fmt.Println(what, d.ID(), d.ReceiveCount()) }
	sub, err := sqsub.Subscribe(ctx, client, s.queue, func(ctx context.Context, d *sqsub.Delivery) error {
		takes, err := time.ParseDuration(d.Body())
		if err != nil {
			return sqsub.Discard(err)
		}
		tell("started", d)
		select {
		case <-time.After(takes):
			tell("done", d)
			return nil
		case <-ctx.Done():
			tell("cancelled", d)
			return context.Cause(ctx)
		}
	}, sqsub.WithVisibility(s.visibility), sqsub.WithWaitTime(2*time.Second), sqsub.WithConcurrency(s.concurrency), sqsub.WithPrefetch(s.prefetch), sqsub.WithHooks(sqsub.Hooks{
		Finished: func(d *sqsub.Delivery, r sqsub.Result) { tell(string(r.Outcome), d) },
	}))
	if err != nil {
		return err
	}
	return sub.Wait()
}

// A fleet is a server in this process, and consumers in processes of their own.
type fleet struct {
	*testing.T
	server   *sqstest.Server
	client   *sqs.Client
	endpoint string
	settings settings
	url      string

	mu       sync.Mutex
	told     map[string]map[string][]int // by what and message id: receive counts
	running  sync.WaitGroup
	lastStop time.Time
}

func newFleet(t *testing.T, s settings) *fleet {
	if testing.Short() {
		t.Skip("takes real time")
	}
	f := &fleet{T: t, server: sqstest.NewServer(), settings: s, told: map[string]map[string][]int{}}
	web := httptest.NewServer(f.server)
	t.Cleanup(web.Close)
	f.client, f.endpoint = f.server.Client(), web.URL
	attributes := map[string]string{}
	if strings.HasSuffix(s.queue, ".fifo") {
		attributes = map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"}
	}
	out, err := f.client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &s.queue, Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	f.url = *out.QueueUrl
	return f
}

// send sends n messages and returns their ids.
func (f *fleet) send(n int, takes func() time.Duration) []string {
	f.Helper()
	ids := make([]string, 0, n)
	for len(ids) < n {
		in := &sqs.SendMessageBatchInput{QueueUrl: &f.url}
		for i := range min(10, n-len(ids)) {
			e := types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(i)), MessageBody: aws.String(takes().String())}
			if strings.HasSuffix(f.url, ".fifo") {
				e.MessageGroupId = aws.String("g")
				e.MessageDeduplicationId = aws.String(fmt.Sprint(len(ids) + i))
			}
			in.Entries = append(in.Entries, e)
		}
		out, err := f.client.SendMessageBatch(f.Context(), in)
		if err != nil || len(out.Failed) > 0 {
			f.Fatal(err, out)
		}
		for _, sent := range out.Successful {
			ids = append(ids, *sent.MessageId)
		}
	}
	return ids
}

// A consumer is a process.
type consumer struct {
	f   *fleet
	cmd *exec.Cmd
	end chan error
}

// start starts a consumer process, and listens to it.
func (f *fleet) start() *consumer {
	f.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), endpointEnv+"="+f.endpoint, settingsEnv+"="+f.settings.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		f.Fatal(err)
	}
	c := &consumer{f: f, cmd: cmd, end: make(chan error, 1)}
	f.running.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			f.hear(lines.Text())
		}
		c.end <- cmd.Wait()
	})
	f.Cleanup(func() {
		cmd.Process.Kill()
		f.running.Wait()
	})
	return c
}

func (f *fleet) hear(line string) {
	var what, id string
	var count int
	if _, err := fmt.Sscan(line, &what, &id, &count); err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told[what] == nil {
		f.told[what] = map[string][]int{}
	}
	f.told[what][id] = append(f.told[what][id], count)
}

func (c *consumer) signal(s os.Signal) {
	if err := c.cmd.Process.Signal(s); err != nil {
		c.f.Error(err)
	}
}

// stop is what a deployment does: SIGTERM, and SIGKILL 30 s later.
func (c *consumer) stop() {
	c.signal(syscall.SIGTERM)
	began := time.Now()
	select {
	case err := <-c.end:
		if err != nil {
			c.f.Errorf("a consumer ended with %v", err)
		}
		c.f.mu.Lock()
		c.f.lastStop = time.Now()
		c.f.mu.Unlock()
	case <-time.After(30 * time.Second):
		c.f.Errorf("a consumer still runs %v after SIGTERM", time.Since(began))
		c.cmd.Process.Kill()
	}
}

// count is how many messages were told of so far.
func (f *fleet) count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.told[what])
}

func (f *fleet) waitFor(what string, n int, limit time.Duration) {
	f.Helper()
	for end := time.Now().Add(limit); f.count(what) < n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			f.Fatalf("%d %s after %v, want %d", f.count(what), what, limit, n)
		}
	}
}

// B094, B106, B107, B113, B115, B119: five consumers are replaced one by one, at
// full load. No message is lost or handled twice, and none is received again but
// for those that were handed back.
func TestRollingRestart(t *testing.T) {
	const consumers, messages = 5, 20_000
	const visibility = 4 * time.Second
	f := newFleet(t, settings{"q", visibility, 200, 20})
	began := time.Now()
	// From 0 to 3 timeouts, and most of them short.
	takes := func() time.Duration {
		u := rand.Float64()
		return time.Duration(u * u * u * u * float64(3*visibility)).Truncate(time.Millisecond)
	}
	ids := f.send(messages, takes)
	var fleet []*consumer
	for range consumers {
		fleet = append(fleet, f.start())
	}
	f.waitFor("done", messages/20, time.Minute)
	var stops sync.WaitGroup
	for i := range consumers {
		fleet = append(fleet, f.start())
		time.Sleep(5 * time.Second) // between one and the next, as deployments do
		stops.Go(fleet[i].stop)
	}
	stops.Wait()
	fleet = fleet[consumers:]
	t.Logf("all are replaced after %v, %d messages are done", time.Since(began), f.count("done"))
	f.waitFor("done", messages, 2*time.Minute)
	t.Logf("done after %v, released: %d", time.Since(began), f.count("released"))

	// The end of it all, with a backlog: what is not handled by then is there
	// for whoever comes next.
	ids = append(ids, f.send(2000, takes)...)
	f.waitFor("done", messages+100, time.Minute)
	for _, c := range fleet {
		stops.Go(c.stop)
	}
	stops.Wait()
	time.Sleep(time.Until(f.lastStop.Add(time.Second)))

	left := map[string]sqstest.Message{}
	hidden := 0
	for _, m := range f.server.Messages("q") {
		left[m.ID] = m
		if m.State != sqstest.Visible {
			hidden++
		}
	}
	lost, twice, again := 0, 0, 0
	for _, id := range ids {
		done, handed := f.told["done"][id], len(f.told["released"][id])
		m, isLeft := left[id]
		switch {
		case len(done) > 1:
			twice++
		case len(done) == 0 && !isLeft:
			lost++
		case len(done) == 1 && done[0] != 1+handed, isLeft && m.ReceiveCount != handed:
			again++
		}
	}
	if hidden+lost+twice+again > 0 {
		t.Errorf("%d hidden a second after the last stop, %d lost, %d handled twice, %d received more often than handed back", hidden, lost, twice, again)
	}
	for what := range f.told {
		t.Logf("%s: %d", what, f.count(what))
	}
	t.Logf("%d left, after %v", len(left), time.Since(began))
}

// B094: nothing is deleted on receipt. What a killed consumer had in hand comes
// back when its visibility timeout lapses.
func TestKilledConsumer(t *testing.T) {
	f := newFleet(t, settings{"q", 2 * time.Second, 10, 5})
	f.send(15, func() time.Duration { return 5 * time.Second })
	c := f.start()
	f.waitFor("started", 10, 20*time.Second)
	c.signal(syscall.SIGKILL)
	<-c.end
	held := f.server.Messages("q")
	killed := time.Now() // not before a last call has arrived
	for _, m := range held {
		if left := m.VisibleAt.Sub(killed); m.State == sqstest.InFlight && left > 2*time.Second {
			t.Errorf("a message stays hidden for %v after the kill", left)
		}
	}
	next := f.start()
	f.waitFor("done", 15, 30*time.Second)
	next.stop()
	if n := len(f.server.Messages("q")); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// B076: a consumer that was frozen for longer than its timeout notices, cancels
// its handler, and leaves the message to whoever has it now.
func TestFrozenConsumer(t *testing.T) {
	f := newFleet(t, settings{"q.fifo", 2 * time.Second, 10, 0})
	id := f.send(1, func() time.Duration { return 6 * time.Second })[0]
	c := f.start()
	f.waitFor("started", 1, 20*time.Second)
	c.signal(syscall.SIGSTOP)
	out, err := f.client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &f.url, VisibilityTimeout: 60, WaitTimeSeconds: 10})
	if err != nil || len(out.Messages) != 1 {
		t.Fatalf("another consumer got %d messages, %v", len(out.Messages), err)
	}
	c.signal(syscall.SIGCONT)
	f.waitFor("cancelled", 1, time.Second)
	c.stop()
	if f.count("done") != 0 || f.count("lost") != 1 {
		t.Errorf("told: %v", f.told)
	}
	for _, call := range f.server.Calls() {
		if strings.HasPrefix(call.Op, "Delete") {
			t.Errorf("%s was sent", call.Op)
		}
	}
	_, err = f.client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &f.url, ReceiptHandle: out.Messages[0].ReceiptHandle})
	if err := cmp.Or(err, f.gone(id)); err != nil {
		t.Errorf("the other consumer's hold was disturbed: %v", err)
	}
}

// gone reports a message that is still there.
func (f *fleet) gone(id string) error {
	for _, m := range f.server.Messages(f.url) {
		if m.ID == id {
			return errors.New("the message is still there")
		}
	}
	return nil
}
