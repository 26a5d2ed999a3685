package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// The server runs in a process of its own, this test binary started again, so
// that the CPU and the memory of this process are those of the consumer alone.
const (
	latencyVariable = "BENCH_SERVER_LATENCY"
	queueName       = "bench"
)

func TestMain(m *testing.M) {
	if latency, ok := os.LookupEnv(latencyVariable); ok {
		serve(latency)
		return
	}
	os.Exit(m.Run())
}

// serve is the server's process. It ends with its standard input.
func serve(latency string) {
	delay, err := time.ParseDuration(latency)
	if err != nil {
		panic(err)
	}
	s := &service{Server: sqstest.NewServer(), delay: delay, requests: map[string]int{}, changed: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	go http.Serve(l, s)
	io.Copy(io.Discard, os.Stdin)
}

// A service counts what is asked of a sqstest.Server. Paths under /control/ are
// for the benchmark.
type service struct {
	*sqstest.Server
	delay time.Duration // of every answer, once the queue is filled

	mu       sync.Mutex
	requests map[string]int // by operation
	deleted  int            // messages
	changed  chan struct{}  // closed and replaced when deleted has grown
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if command, ok := strings.CutPrefix(r.URL.Path, "/control/"); ok {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		s.control(w, command, n)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	op := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	s.Server.ServeHTTP(w, r)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[op]++
	if strings.HasPrefix(op, "DeleteMessage") {
		s.deleted += bytes.Count(body, []byte(`"ReceiptHandle"`))
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

func (s *service) control(w http.ResponseWriter, command string, n int) {
	switch command {
	case "fill":
		if err := fill(s.Client(), n); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
		s.Inject(func(sqstest.Call) sqstest.Fault { return sqstest.Fault{Delay: s.delay} })
	case "await": // until n messages have been deleted
		for {
			s.mu.Lock()
			deleted, changed := s.deleted, s.changed
			s.mu.Unlock()
			if deleted >= n {
				return
			}
			<-changed
		}
	case "usage":
		s.mu.Lock()
		defer s.mu.Unlock()
		json.NewEncoder(w).Encode(usage{Requests: s.requests, CPU: processCPU()})
	}
}

// fill makes the queue, if there is none, and sends it n messages.
func fill(client *sqs.Client, n int) error {
	ctx := context.Background()
	out, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(queueName)})
	if err != nil {
		return err
	}
	body := aws.String(strings.Repeat("x", bodySize))
	for n > 0 {
		entries := make([]types.SendMessageBatchRequestEntry, min(n, 10))
		for i := range entries {
			entries[i] = types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: body}
		}
		if _, err := client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: out.QueueUrl, Entries: entries}); err != nil {
			return err
		}
		n -= len(entries)
	}
	return nil
}

const bodySize = 256

// usage is what a server has been asked, and its own CPU time.
type usage struct {
	Requests map[string]int
	CPU      time.Duration
}

func (u usage) total() (n int) {
	for _, k := range u.Requests {
		n += k
	}
	return n
}

// A server is the other process, as this one sees it.
type server struct {
	tb  testing.TB
	url string
}

// startServer starts a server whose every answer takes latency, with a queue of
// n messages.
func startServer(tb testing.TB, latency time.Duration, n int) *server {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), latencyVariable+"="+latency.String())
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	s := &server{tb, "http://" + strings.TrimSpace(addr)}
	s.control("fill", n)
	return s
}

func (s *server) queueURL() string { return s.url + "/123456789012/" + queueName }

// client is the SDK's own, with as many connections as anybody here needs.
func (s *server) client() *sqs.Client {
	return sqs.New(sqs.Options{
		Region:       "us-east-1",
		BaseEndpoint: &s.url,
		Credentials:  aws.NewCredentialsCache(credentials.NewStaticCredentialsProvider("id", "secret", "")),
		HTTPClient:   awshttp.NewBuildableClient(),
	}, sqsub.Connections(1000))
}

func (s *server) control(command string, n int) []byte {
	s.tb.Helper()
	r, err := http.Get(fmt.Sprintf("%s/control/%s?n=%d", s.url, command, n))
	if err != nil {
		s.tb.Fatal(err)
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		s.tb.Fatalf("%s: %v %s", command, err, answer)
	}
	return answer
}

// awaitDeleted returns when n messages have been deleted.
func (s *server) awaitDeleted(n int) { s.control("await", n) }

func (s *server) usage() (u usage) {
	if err := json.Unmarshal(s.control("usage", 0), &u); err != nil {
		s.tb.Fatal(err)
	}
	return u
}

// processCPU is the CPU time of this process so far.
func processCPU() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		panic(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}
