package sqsub_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// subscribeFault is the error of a Subscribe that is refused before any call.
func subscribeFault(t *testing.T, queue string, handler sqsub.Handler, opts ...sqsub.Option) error {
	t.Helper()
	server := sqstest.NewServer()
	sub, err := sqsub.Subscribe(t.Context(), server.Client(), queue, handler, opts...)
	if err == nil || sub != nil {
		t.Fatalf("Subscribe returned %v, %v", sub, err)
	}
	if n := len(server.Calls()); n > 0 {
		t.Errorf("%d calls were made", n)
	}
	return err
}

func TestOptionRules(t *testing.T) {
	const h = time.Hour
	for _, c := range []struct {
		option string
		value  string
		rule   string
		opts   []sqsub.Option
	}{
		{"WithVisibility", "500ms", "1s to 12h", []sqsub.Option{sqsub.WithVisibility(500 * time.Millisecond)}},
		{"WithVisibility", "0s", "1s to 12h", []sqsub.Option{sqsub.WithVisibility(0)}},
		{"WithVisibility", "-1s", "1s to 12h", []sqsub.Option{sqsub.WithVisibility(-time.Second)}},
		{"WithVisibility", "12h0m1s", "1s to 12h", []sqsub.Option{sqsub.WithVisibility(12*h + time.Second)}},
		{"WithVisibility", "12h0m0.000000001s", "1s to 12h", []sqsub.Option{sqsub.WithVisibility(12*h + 1)}},
		{"WithMaxHold", "59s", "1m0s", []sqsub.Option{sqsub.WithVisibility(time.Minute), sqsub.WithMaxHold(59 * time.Second)}},
		{"WithMaxHold", "1.5s", "2s", []sqsub.Option{sqsub.WithVisibility(1500 * time.Millisecond), sqsub.WithMaxHold(1500 * time.Millisecond)}},
		{"WithMaxHold", "0s", "at least", []sqsub.Option{sqsub.WithMaxHold(0)}},
		{"WithMaxHold", "13h0m0s", "12h", []sqsub.Option{sqsub.WithMaxHold(13 * h)}},
		{"WithConcurrency", "0", "at least 1", []sqsub.Option{sqsub.WithConcurrency(0)}},
		{"WithConcurrency", "-3", "at least 1", []sqsub.Option{sqsub.WithConcurrency(-3)}},
		{"WithPrefetch", "-1", "not be negative", []sqsub.Option{sqsub.WithPrefetch(-1)}},
		{"WithWaitTime", "0s", "1s to 20s", []sqsub.Option{sqsub.WithWaitTime(0)}},
		{"WithWaitTime", "999ms", "1s to 20s", []sqsub.Option{sqsub.WithWaitTime(999 * time.Millisecond)}},
		{"WithWaitTime", "21s", "1s to 20s", []sqsub.Option{sqsub.WithWaitTime(21 * time.Second)}},
		{"WithRetryDelay", "<nil>", "function", []sqsub.Option{sqsub.WithRetryDelay(nil)}},
		{"WithBatchDelay", "-1ns", "not be negative", []sqsub.Option{sqsub.WithBatchDelay(-1)}},
		{"WithDrainTimeout", "-1s", "not be negative", []sqsub.Option{sqsub.WithDrainTimeout(-time.Second)}},
	} {
		err := subscribeFault(t, "q", works(0), c.opts...)
		var fault *sqsub.OptionError
		if !errors.As(err, &fault) || fault.Option != c.option {
			t.Errorf("%s(%s): %v", c.option, c.value, err)
			continue
		}
		for _, want := range []string{c.option, c.value, c.rule} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s(%s): the error does not say %q: %v", c.option, c.value, want, err)
			}
		}
	}
}

func TestOptionFaultsComeTogether(t *testing.T) {
	err := subscribeFault(t, "no/name", nil,
		sqsub.WithVisibility(0), sqsub.WithMaxHold(0), sqsub.WithConcurrency(0), sqsub.WithPrefetch(-1), sqsub.WithWaitTime(0),
		sqsub.WithRetryDelay(nil), sqsub.WithBatchDelay(-1), sqsub.WithDrainTimeout(-1))
	for _, name := range []string{
		"queue", "handler", "WithVisibility", "WithMaxHold", "WithConcurrency", "WithPrefetch", "WithWaitTime",
		"WithRetryDelay", "WithBatchDelay", "WithDrainTimeout",
	} {
		if n := strings.Count(err.Error(), "sqsub: "+name+"("); n != 1 {
			t.Errorf("%s is named %d times in\n%v", name, n, err)
		}
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%T is no join of errors", err)
	}
	for _, e := range joined.Unwrap() {
		if fault := (*sqsub.OptionError)(nil); !errors.As(e, &fault) {
			t.Errorf("%T is no OptionError", e)
		}
	}
}

func TestNoClient(t *testing.T) {
	sub, err := sqsub.Subscribe(t.Context(), nil, "q", works(0))
	var fault *sqsub.OptionError
	if sub != nil || !errors.As(err, &fault) || fault.Option != "client" {
		t.Errorf("%v, %v", sub, err)
	}
}

func TestQueueNamesThatCannotBe(t *testing.T) {
	for _, queue := range []string{
		"", "a b", "q.fifo.fifo", "q.other", ".fifo", "ü", strings.Repeat("q", 81), strings.Repeat("q", 76) + ".fifo",
		"arn:aws:sqs:us-east-1:123456789012", "arn:aws:sns:us-east-1:123456789012:q", "arn:aws:sqs::123456789012:q", "arn:aws:sqs:us-east-1::q",
		"arn:aws:sqs:us-east-1:123456789012:q:more", "https://", "https://sqs.us-east-1.amazonaws.com", "https://sqs.us-east-1.amazonaws.com/1/",
		"ftp://host/1/q", "://q", "https://host/1/q ", "https://host/1/q.fifo ", "https://host/1/q?", "https://host/1/q#x",
	} {
		err := subscribeFault(t, queue, works(0))
		var fault *sqsub.OptionError
		if !errors.As(err, &fault) || fault.Option != "queue" || fault.Value != queue {
			t.Errorf("%q: %v", queue, err)
		}
	}
}

// B053: what is asked for is never less than what was set, and 500 ms never
// becomes "the queue's default".
func TestFractionsRoundUp(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(works(5*time.Second), sqsub.WithVisibility(1200*time.Millisecond), sqsub.WithWaitTime(2500*time.Millisecond))
		if got := sub.Visibility(); got != 2*time.Second {
			f.Errorf("Visibility() = %v, want 2s", got)
		}
		f.wait(10 * time.Second)
		f.stop(sub)
		for _, c := range f.calls(receiveOp) {
			if c.Visibility != 2 || c.WaitSeconds != 3 {
				f.Errorf("a receive asks for %d s and waits for %d s, want 2 and 3", c.Visibility, c.WaitSeconds)
			}
		}
		for _, e := range f.changes() {
			if e.visibility != 2*time.Second {
				f.Errorf("%v, want 2s", e)
			}
		}
	})
}

func TestLastOptionCounts(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		sub := f.subscribe(works(0), sqsub.WithVisibility(-1), nil, sqsub.WithVisibility(40*time.Second))
		if got := sub.Visibility(); got != 40*time.Second {
			f.Errorf("Visibility() = %v, want 40s", got)
		}
	})
}

// B132: without options the first retry comes after up to a second.
func TestDefaults(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		before := slog.Default()
		slog.SetDefault(f.logger())
		defer slog.SetDefault(before)
		for range 25 {
			f.send("m")
		}
		sub, err := sqsub.Subscribe(context.Background(), f.client, f.queue, f.recorded(fails(errHandler)), sqsub.WithLogger(nil))
		if err != nil {
			f.Fatal(err)
		}
		f.watch(sub)
		f.wait(0)
		if n := sub.Stats().Received; n < 10 {
			f.Errorf("%d messages received, want as many as the default concurrency", n)
		}
		c := f.calls(receiveOp)[0]
		if c.Visibility != 30 || c.WaitSeconds != 20 || c.MaxMessages != 10 {
			f.Errorf("the first receive asks for %d messages, %d s hidden, and waits for %d s; want 10, 30, 20", c.MaxMessages, c.Visibility, c.WaitSeconds)
		}
		f.wait(900 * time.Millisecond) // before any of them comes back
		for _, e := range f.changes() {
			if e.visibility != time.Second {
				f.Errorf("%v, want a first retry delay of at most a second", e)
			}
		}
		if len(f.logged("level=WARN", "handler failed")) == 0 {
			f.Error("the default logger was not used")
		}
	})
}

func TestConcurrencyWithoutBound(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		for range 30 {
			f.send("m")
		}
		f.subscribe(works(time.Second), sqsub.WithConcurrency(math.MaxInt), sqsub.WithPrefetch(math.MaxInt))
		f.wait(500 * time.Millisecond)
		if n := len(f.Runs()); n != 30 {
			f.Errorf("%d handlers run, want 30", n)
		}
	})
}

// B132: each failure is retried later than the one before, as a rule, up to the limit.
func TestExponentialBackoff(t *testing.T) {
	receivedFor := func(count string) *sqsub.Delivery {
		return &sqsub.Delivery{Message: types.Message{Attributes: map[string]string{"ApproximateReceiveCount": count}}}
	}
	const base, limit = time.Second, 5 * time.Minute
	for _, c := range []struct {
		count   string
		ceiling time.Duration
	}{
		{"", base}, // not told
		{"1", base},
		{"2", 2 * time.Second},
		{"3", 4 * time.Second},
		{"9", 256 * time.Second},
		{"10", limit},
		{"64", limit},
		{"65", limit},
		{"1000000", limit},
		{"-4", base},
		{"many", base},
	} {
		delay := sqsub.ExponentialBackoff(base, limit)
		var least, most time.Duration = math.MaxInt64, 0
		for range 1000 {
			d := delay(receivedFor(c.count), errHandler)
			least, most = min(least, d), max(most, d)
		}
		// Full jitter: all of the range is used, and nothing beyond it.
		if least <= 0 || least > c.ceiling/10 || most > c.ceiling || most < c.ceiling*9/10 {
			t.Errorf("receive %s: %v to %v, want up to %v", c.count, least, most, c.ceiling)
		}
	}
	for _, c := range []struct{ base, limit, want time.Duration }{
		{0, time.Minute, 0},
		{-time.Second, time.Minute, 0},
		{time.Second, 0, 0},
		{time.Second, -1, 0},
		{time.Hour, time.Nanosecond, time.Nanosecond},
	} {
		if got := sqsub.ExponentialBackoff(c.base, c.limit)(receivedFor("70"), nil); got != c.want {
			t.Errorf("ExponentialBackoff(%v, %v) gives %v, want %v", c.base, c.limit, got, c.want)
		}
	}
	if got := sqsub.ExponentialBackoff(math.MaxInt64, math.MaxInt64)(receivedFor("70"), nil); got <= 0 {
		t.Errorf("the longest of all gives %v", got)
	}
}
