package sqsub_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	smithyendpoints "github.com/aws/smithy-go/endpoints"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// opens subscribes to a queue, however it is named, and stops at once. It
// returns the operations that Subscribe itself called.
func (f *fixture) opens(queue string, opts ...sqsub.Option) (*sqsub.Subscription, []string, error) {
	before := len(f.Calls())
	sub, err := sqsub.Subscribe(context.Background(), f.client, queue, works(0), f.options(opts)...)
	var ops []string
	for _, c := range f.Calls()[before:] {
		if c.Op != receiveOp {
			ops = append(ops, c.Op)
		}
	}
	if sub != nil {
		sub.Close()
	}
	return sub, ops, err
}

// B152, B155, B157: what each way to name a queue needs, and not more.
func TestWaysToNameAQueue(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		const elsewhere = "https://vpce-0a1b2c.sqs.us-east-1.vpce.amazonaws.com/123456789012/q"
		for _, c := range []struct {
			queue string
			opts  []sqsub.Option
			calls string
			url   string
		}{
			{"q", nil, "GetQueueUrl GetQueueAttributes", f.url},
			{"q", []sqsub.Option{sqsub.WithVisibility(time.Minute)}, "GetQueueUrl", f.url},
			{"arn:aws:sqs:us-east-1:123456789012:q", nil, "GetQueueUrl GetQueueAttributes", f.url},
			{f.url, nil, "GetQueueAttributes", f.url},
			{f.url, []sqsub.Option{sqsub.WithVisibility(time.Minute)}, "", f.url},
			{elsewhere, []sqsub.Option{sqsub.WithVisibility(time.Minute)}, "", elsewhere},
			{"http://localhost:4566/123456789012/q", nil, "GetQueueAttributes", "http://localhost:4566/123456789012/q"},
		} {
			sub, calls, err := f.opens(c.queue, c.opts...)
			if err != nil {
				f.Errorf("%s: %v", c.queue, err)
				continue
			}
			if got := strings.Join(calls, " "); got != c.calls {
				f.Errorf("%s: called %q, want %q", c.queue, got, c.calls)
			}
			if sub.QueueURL() != c.url {
				f.Errorf("%s: URL %s, want %s", c.queue, sub.QueueURL(), c.url)
			}
		}
		if loud := f.logged("level=WARN"); len(loud) != len(f.logged("no answer when")) { // Close aborts the open receive
			f.Errorf("logged %q", loud)
		}
	})
}

// B155: an ARN says whose queue it is.
func TestQueueOfAnotherAccount(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		client := &owner{Client: f.client, url: f.url}
		sub, err := sqsub.Subscribe(context.Background(), client, "arn:aws:sqs:us-east-1:210987654321:q", works(0), f.options(nil)...)
		if err != nil {
			f.Fatal(err)
		}
		sub.Close()
		if client.asked != "210987654321" {
			f.Errorf("asked for the queue of account %q", client.asked)
		}
	})
}

type owner struct {
	*sqs.Client
	url, asked string
}

func (c *owner) GetQueueUrl(_ context.Context, in *sqs.GetQueueUrlInput, _ ...func(*sqs.Options)) (*sqs.GetQueueUrlOutput, error) {
	c.asked = aws.ToString(in.QueueOwnerAWSAccountId)
	return &sqs.GetQueueUrlOutput{QueueUrl: &c.url}, nil
}

// wantRefused checks that Subscribe fails, with a text that tells an operator
// what to do.
func (f *fixture) wantRefused(err error, texts ...string) {
	f.Helper()
	if err == nil {
		f.Fatal("Subscribe succeeded")
	}
	for _, text := range append(texts, "sqsub: ") {
		if !strings.Contains(err.Error(), text) {
			f.Errorf("the error does not say %q: %v", text, err)
		}
	}
	if n := len(f.calls(receiveOp)); n > 0 {
		f.Errorf("%d receives were made", n)
	}
}

func TestARNOfAnotherRegion(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		before := len(f.Calls())
		_, _, err := f.opens("arn:aws:sqs:eu-west-1:123456789012:q")
		f.wantRefused(err, "eu-west-1", "us-east-1", "q")
		if n := len(f.Calls()) - before; n > 0 {
			f.Errorf("%d calls were made", n)
		}
	})
}

// S23: a URL's host is not judged, but a plain mistake is pointed out.
func TestURLOfAnotherRegion(t *testing.T) {
	for url, warned := range map[string]bool{
		"https://sqs.eu-west-1.amazonaws.com/123456789012/q": true,
		"https://sqs.us-east-1.amazonaws.com/123456789012/q": false,
		"https://queue.example.com/123456789012/q":           false,
	} {
		bubble(t, "q", func(f *fixture) {
			if _, _, err := f.opens(url); err != nil {
				f.Error(err)
			}
			if n := len(f.logged("level=WARN", "eu-west-1", "us-east-1")); (n == 1) != warned {
				f.Errorf("%s: %d warnings: %q", url, n, f.loud())
			}
		})
	}
	for name, option := range map[string]func(*sqs.Options){
		"China":      func(o *sqs.Options) { o.Region = "cn-north-1" },
		"GovCloud":   func(o *sqs.Options) { o.Region = "us-gov-west-1" },
		"dual stack": func(o *sqs.Options) { o.EndpointOptions.UseDualStackEndpoint = aws.DualStackEndpointStateEnabled },
		"FIPS":       func(o *sqs.Options) { o.EndpointOptions.UseFIPSEndpoint = aws.FIPSEndpointStateEnabled },
	} {
		bubble(t, "q", func(f *fixture) {
			f.client = f.Client(option)
			if _, _, err := f.opens("https://sqs.eu-west-1.amazonaws.com/123456789012/q", sqsub.WithVisibility(time.Minute)); err != nil {
				f.Error(err)
			}
			if n := len(f.logged("level=WARN", "eu-west-1")); n != 1 {
				f.Errorf("%s: logged %q", name, f.loud())
			}
		})
	}
	for name, elsewhere := range elsewhere { // with an endpoint of its own a client may go anywhere
		bubble(t, "q", func(f *fixture) {
			f.client = f.Client(elsewhere)
			if _, _, err := f.opens("https://sqs.eu-west-1.amazonaws.com/123456789012/q"); err != nil {
				f.Error(err)
			}
			if n := len(f.logged("level=WARN", "eu-west-1")); n > 0 {
				f.Errorf("%s: logged %q", name, f.loud())
			}
		})
	}
}

// B137
func TestMissingQueue(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		for _, queue := range []string{"other", "arn:aws:sqs:us-east-1:123456789012:other", "https://sqs.us-east-1.amazonaws.com/123456789012/other"} {
			_, _, err := f.opens(queue)
			f.wantRefused(err, "GetQueue", "other", "no such queue", "us-east-1")
			var missing *types.QueueDoesNotExist
			if !errors.As(err, &missing) {
				f.Errorf("the error does not wrap SQS's: %v", err) // B160, B199
			}
		}
	})
}

// Each call that is denied is named, with the IAM action that it needs.
func TestMissingPermissionToOpen(t *testing.T) {
	for _, op := range []string{"GetQueueUrl", "GetQueueAttributes"} {
		for _, code := range []string{"AccessDenied", "AccessDeniedException"} {
			bubble(t, "q", func(f *fixture) {
				f.Inject(always(op, sqstest.Fault{Code: code, Status: 403, Message: "User is not authorized"}))
				_, _, err := f.opens("q")
				f.wantRefused(err, op, "sqs:"+op, "q", "User is not authorized")
				if op == "GetQueueAttributes" && !strings.Contains(err.Error(), "WithVisibility") {
					f.Errorf("the error does not say what does without it: %v", err)
				}
			})
		}
	}
	bubble(t, "q", func(f *fixture) { // B152: that permission is needed then, and only then
		f.Inject(always("GetQueueAttributes", sqstest.Fault{Code: "AccessDenied", Status: 403}))
		if _, _, err := f.opens("q", sqsub.WithVisibility(time.Minute)); err != nil {
			f.Error(err)
		}
	})
}

func TestUnreachableEndpoint(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.client = f.Client(func(o *sqs.Options) {
			o.HTTPClient = doer(func(*http.Request) (*http.Response, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
			})
		})
		for _, queue := range []string{"q", f.url} {
			_, _, err := f.opens(queue)
			f.wantRefused(err, "q", "network", "endpoint", "us-east-1")
			if !errors.Is(err, syscall.ECONNREFUSED) {
				f.Errorf("the error does not wrap the reason: %v", err)
			}
		}
	})
}

type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }

// An endpoint that never answers does not hold up Subscribe for ever.
func TestHungEndpoint(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.Inject(func(sqstest.Call) sqstest.Fault { return sqstest.Fault{Hang: true} })
		_, _, err := f.opens("q")
		f.wantRefused(err, "GetQueueUrl", "network")
		if f.now() > time.Minute {
			f.Errorf("it took %v", f.now())
		}
	})
}

func TestSubscribeIsCancelled(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.Inject(func(sqstest.Call) sqstest.Fault { return sqstest.Fault{Hang: true} })
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := sqsub.Subscribe(ctx, f.client, "q", works(0))
		if !errors.Is(err, context.DeadlineExceeded) || f.now() != time.Second {
			f.Errorf("after %v: %v", f.now(), err)
		}
	})
}

// S24: no call could be sent, which is found without one.
func TestMissingRegion(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.client = f.Client(func(o *sqs.Options) { o.Region = "" })
		for _, queue := range []string{"q", f.url} {
			_, _, err := f.opens(queue, sqsub.WithVisibility(time.Minute))
			f.wantRefused(err, "neither a region nor an endpoint")
		}
		for name, elsewhere := range elsewhere {
			f.client = f.Client(func(o *sqs.Options) { o.Region = "" }, elsewhere)
			if _, _, err := f.opens(f.url, sqsub.WithVisibility(time.Minute)); err != nil {
				f.Errorf("%s: %v", name, err)
			}
		}
	})
}

// Nor would network or permission help who has no credentials.
func TestMissingCredentials(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		client := f.client
		f.client = f.Client(func(o *sqs.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, errHandler })
		})
		_, _, err := f.opens("q")
		f.wantRefused(err, "GetQueueUrl", "check the client's credentials", errHandler.Error())
		f.client = f.Client(func(o *sqs.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{}, &smithy.GenericAPIError{Code: "AccessDenied", Message: "Not authorized to perform sts:AssumeRole"}
			})
		})
		_, _, err = f.opens("q")
		f.wantRefused(err, "GetQueueUrl", "check the client's credentials", "sts:AssumeRole")
		f.client = client
		for _, code := range []string{"InvalidClientTokenId", "SignatureDoesNotMatch", "ExpiredToken", "ExpiredTokenException", "OptInRequired"} {
			f.Inject(always("GetQueueAttributes", sqstest.Fault{Code: code, Status: 403}))
			_, _, err := f.opens("q")
			f.wantRefused(err, "GetQueueAttributes", "check the client's credentials", code)
			if strings.Contains(err.Error(), "IAM") || strings.Contains(err.Error(), "WithVisibility") {
				f.Error(err)
			}
		}
	})
}

// elsewhere are the ways to have a client send to another endpoint.
var elsewhere = map[string]func(*sqs.Options){
	"a machine in AWS":   func(o *sqs.Options) { o.BaseEndpoint = aws.String("http://ec2-1-2-3-4.compute-1.amazonaws.com:4566") },
	"BaseEndpoint":       func(o *sqs.Options) { o.BaseEndpoint = aws.String("http://localhost:4566") },
	"EndpointResolverV2": func(o *sqs.Options) { o.EndpointResolverV2 = local{} },
	//lint:ignore SA1019 a client may have it all the same
	"EndpointResolver": func(o *sqs.Options) { o.EndpointResolver = sqs.EndpointResolverFromURL("http://localhost:4566") },
}

type local struct{}

func (local) ResolveEndpoint(context.Context, sqs.EndpointParameters) (endpoint smithyendpoints.Endpoint, err error) {
	endpoint.URI = url.URL{Scheme: "http", Host: "localhost:4566"}
	return endpoint, nil
}

// A stand-in may answer anything.
func TestOddAnswersToOpening(t *testing.T) {
	for name, fault := range map[string]sqstest.Fault{
		"no URL":     {Body: "{}"},
		"not JSON":   {Body: "<html>"},
		"a bare 503": {Status: 503},
		"throttled":  {Code: "RequestThrottled"},
	} {
		bubble(t, "q", func(f *fixture) {
			f.Inject(always("GetQueueUrl", fault))
			sub, _, err := f.opens("q")
			if err == nil || sub != nil || !strings.Contains(err.Error(), "GetQueueUrl for queue q") {
				f.Errorf("%s: %v", name, err)
			}
		})
	}
	for _, body := range []string{
		"{}", `{"Attributes":{}}`, `{"Attributes":{"VisibilityTimeout":""}}`, `{"Attributes":{"VisibilityTimeout":"soon"}}`,
		`{"Attributes":{"VisibilityTimeout":"-1"}}`, `{"Attributes":{"VisibilityTimeout":"43201"}}`,
	} {
		bubble(t, "q", func(f *fixture) {
			f.Inject(always("GetQueueAttributes", sqstest.Fault{Body: body}))
			_, _, err := f.opens("q")
			f.wantRefused(err, "GetQueueAttributes", "VisibilityTimeout", "q")
		})
	}
}

// The queue's own timeout is read once, and every receive asks for it (B048);
// another one is used on a queue that exists just as well (B049).
func TestQueuesOwnTimeout(t *testing.T) {
	for _, c := range []struct {
		opts    []sqsub.Option
		timeout time.Duration
		reads   int
	}{
		{nil, 10 * time.Minute, 1},
		{[]sqsub.Option{sqsub.WithVisibility(5 * time.Minute)}, 5 * time.Minute, 0},
	} {
		bubble(t, "q", func(f *fixture) {
			sub := f.subscribe(works(0), c.opts...)
			f.wait(5 * time.Minute)
			if sub.Visibility() != c.timeout {
				f.Errorf("Visibility() = %v, want %v", sub.Visibility(), c.timeout)
			}
			if n := len(f.calls("GetQueueAttributes")); n != c.reads {
				f.Errorf("it was read %d times, want %d", n, c.reads)
			}
			for _, call := range f.calls(receiveOp) {
				if time.Duration(call.Visibility)*time.Second != c.timeout {
					f.Errorf("a receive asks for %d s, want %v", call.Visibility, c.timeout)
				}
			}
		}, "VisibilityTimeout", "600")
	}
}

func TestMaxHoldBelowTheQueuesTimeout(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		_, _, err := f.opens("q", sqsub.WithMaxHold(time.Minute))
		f.wantRefused(err, "WithMaxHold", "1m0s", "10m0s")
		var fault *sqsub.OptionError
		if !errors.As(err, &fault) || fault.Option != "WithMaxHold" {
			f.Errorf("%v", err)
		}
	}, "VisibilityTimeout", "600")
}

// B004, B210: a queue that hides nothing gets no extension, and one warning; its
// messages are handled and deleted all the same, and what comes again meanwhile
// takes up no more than there is room for.
func TestQueueTimeoutOfZero(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.Inject(always(receiveOp, sqstest.Fault{Lag: 20 * time.Millisecond}))
		f.send("m")
		sub := f.subscribe(works(time.Second))
		most := 0
		for f.now() < 2*time.Second {
			f.wait(f.now() + 50*time.Millisecond)
			most = max(most, sub.Stats().InFlight)
		}
		f.stop(sub)
		if most > 20 {
			f.Errorf("%d deliveries of one message in hand", most)
		}
		f.onlyRun()
		f.wantHeld()
		if sub.Visibility() != 0 || len(f.changes()) > 0 {
			f.Errorf("visibility %v, changes %v", sub.Visibility(), f.changes())
		}
		if n := len(f.logged("level=WARN", "timeout is 0")); n != 1 || len(f.logged("level=WARN")) != 1 {
			f.Errorf("logged %q, want one warning", f.loud())
		}
	}, "VisibilityTimeout", "0")
	bubble(t, "q", func(f *fixture) { // an own timeout makes it a queue like any other
		f.send("m")
		sub := f.subscribe(works(70*time.Second), sqsub.WithVisibility(30*time.Second))
		f.wait(0)
		f.rivals(1)
		f.wait(2 * time.Minute)
		f.stop(sub)
		f.undisturbed()
		if len(f.loud()) > 0 {
			f.Errorf("logged %q", f.loud())
		}
	}, "VisibilityTimeout", "0")
}

// B052, R11: a FIFO queue with timeout 0 refuses every delete.
func TestFIFOQueueTimeoutOfZero(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		_, _, err := f.opens("q.fifo")
		f.wantRefused(err, "q.fifo", "0", "WithVisibility")
	}, "VisibilityTimeout", "0")
	bubble(t, "q.fifo", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(works(0), sqsub.WithVisibility(30*time.Second))
		f.wait(time.Second)
		f.stop(sub)
		f.undisturbed()
	}, "VisibilityTimeout", "0")
}

// B137: two subscriptions, one of whose queues is missing, are independent.
func TestSubscriptionsAreIndependent(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		sub := f.subscribe(works(0))
		if _, err := sqsub.Subscribe(f.Context(), f.client, "other", works(0)); err == nil {
			f.Error("a missing queue was subscribed to")
		}
		f.send("m")
		f.wait(time.Second)
		f.stop(sub)
		f.undisturbed()
	})
}

func TestConnections(t *testing.T) {
	transport := func(o sqs.Options) *http.Transport {
		return o.HTTPClient.(*awshttp.BuildableClient).GetTransport()
	}
	few := sqs.New(sqs.Options{HTTPClient: awshttp.NewBuildableClient()}, sqsub.Connections(64)).Options()
	if got := transport(few); got.MaxIdleConnsPerHost != 64 || got.MaxIdleConns < 64 {
		t.Errorf("idle connections %d of %d, want 64", got.MaxIdleConnsPerHost, got.MaxIdleConns)
	}
	many := sqs.New(sqs.Options{HTTPClient: awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost, t.MaxIdleConns = 200, 0 // 0 = no bound
	})}, sqsub.Connections(64)).Options()
	if got := transport(many); got.MaxIdleConnsPerHost != 200 || got.MaxIdleConns != 0 {
		t.Errorf("idle connections %d of %d, want 200 without a bound", got.MaxIdleConnsPerHost, got.MaxIdleConns)
	}
	own := &http.Client{}
	if o := sqs.New(sqs.Options{HTTPClient: own}, sqsub.Connections(64)).Options(); o.HTTPClient != own {
		t.Errorf("an HTTP client of the user's own was replaced by %T", o.HTTPClient)
	}
	if o := sqs.New(sqs.Options{}, sqsub.Connections(64)).Options(); o.HTTPClient == nil {
		t.Error("there is no HTTP client")
	} else if c, ok := o.HTTPClient.(*awshttp.BuildableClient); ok && c.GetTransport().MaxIdleConnsPerHost != 64 {
		t.Errorf("idle connections %d of the SDK's default client, want 64", c.GetTransport().MaxIdleConnsPerHost)
	}
}
