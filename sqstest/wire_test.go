package sqstest_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub/sqstest"
)

// post sends a request by hand.
func post(s *sqstest.Server, op, body string, header ...string) *http.Response {
	r := httptest.NewRequest("POST", "http://localhost:9324/some/path", strings.NewReader(body))
	r.Header.Set("X-Amz-Target", "AmazonSQS."+op)
	for name, value := range pairs(header) {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

func read(r *http.Response) string {
	b, _ := io.ReadAll(r.Body)
	return string(b)
}

// W3, K9: in a bubble the date is the bubble's.
func TestHeadersOfAnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		r := post(f.Server, "ReceiveMessage", `{"QueueUrl":"q"}`)
		if r.StatusCode != 200 || read(r) != "{}" { // R6
			t.Errorf("status %d", r.StatusCode)
		}
		if r.Header.Get("Content-Type") != "application/x-amz-json-1.0" || r.Header.Get("Date") != "Sat, 01 Jan 2000 00:00:00 GMT" ||
			!regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(r.Header.Get("x-amzn-RequestId")) {
			t.Errorf("header %v", r.Header)
		}
		if r := post(f.Server, "PurgeQueue", `{"QueueUrl":"q"}`); read(r) != "" {
			t.Error("an operation without a result has a document")
		}
	})
}

// W4, W5.
func TestErrorDocument(t *testing.T) {
	s := sqstest.NewServer()
	r := post(s, "ReceiveMessage", `{"QueueUrl":"none"}`, "X-Amzn-Query-Mode", "true")
	if got, want := read(r), `{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"The specified queue does not exist."}`; got != want {
		t.Errorf("document %s, want %s", got, want)
	}
	if got := r.Header.Get("x-amzn-query-error"); r.StatusCode != 400 || got != "AWS.SimpleQueueService.NonExistentQueue;Sender" {
		t.Errorf("status %d, header %q", r.StatusCode, got)
	}
}

// W5: a client that does not ask for the old codes gets neither them nor their statuses.
func TestErrorWithoutQueryMode(t *testing.T) {
	s := sqstest.NewServer()
	post(s, "CreateQueue", `{"QueueName":"q"}`)
	const request = `{"QueueUrl":"q","ReceiptHandle":"garbage"}`
	with, without := post(s, "DeleteMessage", request, "X-Amzn-Query-Mode", "true"), post(s, "DeleteMessage", request)
	if with.StatusCode != 404 || with.Header.Get("x-amzn-query-error") != "ReceiptHandleIsInvalid;Sender" {
		t.Errorf("with: status %d, header %v", with.StatusCode, with.Header)
	}
	if without.StatusCode != 400 || without.Header.Get("x-amzn-query-error") != "" {
		t.Errorf("without: status %d, header %v", without.StatusCode, without.Header)
	}
}

// Values the SDK cannot send (R3): an explicit 0 is not the queue's default.
func TestExplicitZeros(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard("ReceiveMessageWaitTimeSeconds", "20")
		start := time.Now()
		post(f.Server, "ReceiveMessage", `{"QueueUrl":"q","WaitTimeSeconds":0}`)
		f.wantElapsed(start, 0)
		f.send("a")
		post(f.Server, "ReceiveMessage", `{"QueueUrl":"q","VisibilityTimeout":0}`)
		f.wantStates("a visible")
		if r := post(f.Server, "ReceiveMessage", `{"QueueUrl":"q","MaxNumberOfMessages":0}`); r.StatusCode != 400 {
			t.Errorf("status %d for no messages", r.StatusCode)
		}
	})
}

func TestMissingParameters(t *testing.T) {
	s := sqstest.NewServer()
	post(s, "CreateQueue", `{"QueueName":"q"}`)
	for _, c := range [][3]string{
		{"ReceiveMessage", `{}`, "QueueUrl"},
		{"CreateQueue", `{}`, "QueueName"},
		{"GetQueueUrl", `{}`, "QueueName"},
		{"DeleteMessage", `{"QueueUrl":"q"}`, "ReceiptHandle"},
		{"ChangeMessageVisibility", `{"QueueUrl":"q","ReceiptHandle":"x"}`, "VisibilityTimeout"},
		{"SendMessage", `{"QueueUrl":"q"}`, "MessageBody"},
	} {
		var e struct {
			Type    string `json:"__type"`
			Message string `json:"message"`
		}
		json.Unmarshal([]byte(read(post(s, c[0], c[1]))), &e)
		if want := "The request must contain the parameter " + c[2] + "."; e.Message != want || e.Type != "com.amazonaws.sqs#MissingRequiredParameterException" {
			t.Errorf("%s %s: %s %s", c[0], c[1], e.Type, e.Message)
		}
	}
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	s := sqstest.NewServer()
	if r := post(s, "MakeCoffee", "{}"); r.StatusCode != 400 {
		t.Errorf("unknown operation: status %d", r.StatusCode)
	}
	if r := post(s, "ListQueues", "no JSON"); r.StatusCode != 400 {
		t.Errorf("no JSON: status %d", r.StatusCode)
	}
}

// The region is the one that the request is signed for.
func TestARNHasTheRegionOfTheClient(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.client = f.Client(func(o *sqs.Options) { o.Region = "eu-central-1" })
		f.standard()
		if got, want := f.attribute("QueueArn"), "arn:aws:sqs:eu-central-1:123456789012:q"; got != want {
			t.Errorf("ARN %s, want %s", got, want)
		}
	})
}

// listen serves over real connections, and returns a client for them.
func listen(t *testing.T) (*sqstest.Server, *httptest.Server, *sqs.Client) {
	s := sqstest.NewServer()
	ts := httptest.NewServer(s)
	t.Cleanup(ts.Close)
	client := s.Client(func(o *sqs.Options) {
		o.BaseEndpoint = &ts.URL
		o.HTTPClient = ts.Client()
		o.Retryer = aws.NopRetryer{}
	})
	return s, ts, client
}

func TestOverHTTP(t *testing.T) {
	_, ts, client := listen(t)
	ctx := t.Context()
	queue, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String("q")})
	if err != nil {
		t.Fatal(err)
	}
	if want := ts.URL + "/123456789012/q"; *queue.QueueUrl != want {
		t.Errorf("URL %s, want %s", *queue.QueueUrl, want)
	}
	received := make(chan types.Message, 1)
	go func() {
		out, err := client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: queue.QueueUrl, WaitTimeSeconds: 20})
		if err != nil {
			t.Error(err)
		} else {
			received <- out.Messages[0]
		}
		close(received)
	}()
	if _, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: queue.QueueUrl, MessageBody: aws.String("a")}); err != nil {
		t.Fatal(err)
	}
	m := <-received
	if _, err := client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: queue.QueueUrl, ReceiptHandle: m.ReceiptHandle}); err != nil {
		t.Error(err)
	}
}

// A client that disconnects ends its poll.
func TestDisconnectOverHTTP(t *testing.T) {
	s, _, client := listen(t)
	_, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("q")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s.Inject(func(sqstest.Call) sqstest.Fault { cancel(); return sqstest.Fault{} })
	_, err = client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: aws.String("q"), WaitTimeSeconds: 20})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	for start := time.Now(); s.Calls()[1].Done.IsZero(); time.Sleep(time.Millisecond) {
		if time.Since(start) > 10*time.Second {
			t.Fatal("the poll did not end with its client")
		}
	}
}

func TestBrokenConnectionsOverHTTP(t *testing.T) {
	s, _, client := listen(t)
	_, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("q")})
	if err != nil {
		t.Fatal(err)
	}
	in := &sqs.ReceiveMessageInput{QueueUrl: aws.String("q")}
	s.Inject(func(sqstest.Call) sqstest.Fault { return sqstest.Fault{Truncate: true} })
	if _, err := client.ReceiveMessage(t.Context(), in); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut off: error %v", err)
	}
	s.Inject(func(sqstest.Call) sqstest.Fault { return sqstest.Fault{Reset: true} })
	if _, err := client.ReceiveMessage(t.Context(), in); !errors.Is(err, io.EOF) || retry.IsErrorRetryables(retry.DefaultRetryables).IsErrorRetryable(err) != aws.TrueTernary {
		t.Errorf("broken: error %v", err)
	}
	s.Inject(func(sqstest.Call) sqstest.Fault { return sqstest.Fault{Refuse: true} })
	if _, err := client.ReceiveMessage(t.Context(), in); !errors.Is(err, io.EOF) {
		t.Errorf("refused: error %v", err)
	}
}
