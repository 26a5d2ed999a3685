package conformance

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// A dialect is what one server needs and what it does that SQS does not.
type dialect struct {
	timeout    time.Duration     // what is long enough for its speed; 0 = the usual
	parallel   int               // how many tests it can bear at once; 0 = all
	shortPolls bool              // it gets short polls, one at a time
	deviations map[string]string // the tests that it cannot pass, and why
}

// dialects are of the servers that others wrote and that can be tested on. Not among them is local-aws-sqs (2.0.2): now
// and then it hands a message out again that was received for two seconds, after one.
var dialects = map[string]dialect{
	"": {},
	"fauxqs": { // 2.4.1
		deviations: map[string]string{
			"TestVisibilityLost/fifo": "a FIFO queue takes a delete after the timeout has lapsed",
			"TestBeyondTheLimit":      "there is no limit of 12 hours",
		},
	},
	"moto": { // 5.2.1
		// A long poll on a FIFO group that is held is a busy loop, for which others wait for seconds, and two polls at
		// once may get the same message.
		timeout: 4 * time.Second, parallel: 8, shortPolls: true,
		deviations: map[string]string{
			"TestVisibilityLost/fifo": "a FIFO queue takes a delete after the timeout has lapsed",
		},
	},
	"goaws": { // 0.5.4
		deviations: map[string]string{
			"TestReceiveCount":            "a release does not count",
			"TestMissingQueue":            "the error has no type",
			"TestVisibilityLost/standard": "a receipt handle is forgotten when the timeout lapses",
			"TestVisibilityLost/fifo":     "a receipt handle is forgotten when the timeout lapses",
			"TestDuplicateDelivery":       "a receipt handle is forgotten when the message is received again",
			"TestBeyondTheLimit":          "there is no limit of 12 hours",
			"TestMessage/fifo":            "messages do not tell their group",
			"TestGroupsInOrder":           "messages do not tell their group",
			"TestGroupsInParallel":        "messages do not tell their group",
			"TestDeadLetterQueue/fifo":    "messages do not tell their group",
			"TestRelease/fifo":            "a group stays locked after a release",
			"TestStopOutOfTime/fifo":      "a group stays locked after a release",
		},
	},
}

var (
	server = os.Getenv("SQSUB_TEST_SERVER")
	prefix = cmp.Or(os.Getenv("SQSUB_TEST_PREFIX"), "sqsub-")
	client *sqs.Client

	consuming sqsub.Client // what messages are received by: client, or what the server needs instead
)

// connections are enough for all tests at once.
const connections = 100

func TestMain(m *testing.M) {
	flag.Parse()
	parallel := true
	flag.Visit(func(f *flag.Flag) { parallel = parallel && f.Name != "test.parallel" })
	if parallel { // the tests wait most of the time
		_ = flag.Set("test.parallel", fmt.Sprint(cmp.Or(dialects[server].parallel, 50)))
	}
	os.Exit(runAll(m))
}

func runAll(m *testing.M) int {
	stop, err := connect()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	code := m.Run()
	known := dialects[server].deviations
	for _, test := range slices.Sorted(maps.Keys(known)) {
		if _, ok := skipped.Load(test); ok {
			fmt.Printf("known deviation of %s: %s skipped: %s\n", server, test, known[test])
		} else if flag.Lookup("test.run").Value.String() == "" {
			fmt.Printf("%s is a known deviation of %s, but there is no such test\n", test, server)
			code = 1
		}
	}
	return code
}

// connect makes the client.
func connect() (stop func(), err error) {
	if _, ok := dialects[server]; !ok {
		return nil, fmt.Errorf("SQSUB_TEST_SERVER=%s: not in the table of dialects", server)
	}
	endpoint := os.Getenv("SQSUB_TEST_ENDPOINT")
	if endpoint == "" && os.Getenv("SQSUB_TEST_PREFIX") != "" {
		cfg, err := config.LoadDefaultConfig(context.Background())
		if err != nil {
			return nil, err
		}
		client = sqs.NewFromConfig(cfg, sqsub.Connections(connections))
		consuming = client
		return func() {}, nil
	}
	stop = func() {}
	if endpoint == "" {
		server := sqstest.NewServer()
		server.StrandAbandonedPolls = true // as SQS does
		web := httptest.NewServer(server)
		endpoint, stop = web.URL, web.Close
	}
	client = sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: &endpoint,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "key", SecretAccessKey: "secret"}, nil
		}),
	}, sqsub.Connections(connections))
	consuming = client
	if dialects[server].shortPolls {
		consuming = &shortPoller{Client: client, polling: make(chan struct{}, 1)}
	}
	return stop, nil
}

// A shortPoller makes long polls of short ones, one at a time.
type shortPoller struct {
	*sqs.Client
	polling chan struct{} // full during a short poll
}

func (c *shortPoller) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, opts ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	short := *in
	short.WaitTimeSeconds = 0
	for end := time.Now().Add(time.Duration(in.WaitTimeSeconds) * time.Second); ; {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case c.polling <- struct{}{}:
		}
		out, err := c.Client.ReceiveMessage(ctx, &short, opts...)
		<-c.polling
		if err != nil || len(out.Messages) > 0 || time.Now().After(end) {
			return out, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

var skipped sync.Map // known deviations met, by test

// skipDeviation skips a test that the server is known not to pass.
func skipDeviation(t *testing.T) {
	t.Helper()
	if reason, ok := dialects[server].deviations[t.Name()]; ok {
		skipped.Store(t.Name(), true)
		t.Skipf("%s: %s", server, reason)
	}
}
