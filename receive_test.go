package sqsub_test

import (
	"context"
	"crypto/fips140"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub"
	"github.com/sqsub/sqsub/sqstest"
)

// openReceives is how many receives were open at a moment.
func (f *fixture) openReceives(at time.Duration) int {
	return openAt(f.calls(receiveOp), f.start.Add(at))
}

func openAt(calls []sqstest.Call, at time.Time) int {
	open := 0
	for _, c := range calls {
		if !c.At.After(at) && (c.Done.IsZero() || c.Done.After(at)) {
			open++
		}
	}
	return open
}

func (f *fixture) sendMany(n int) {
	f.Helper()
	for i := range n {
		f.send(fmt.Sprint(i))
	}
}

// B059, B060, B061: a receive asks for as many messages as can start, and with
// all slots busy there is none, so that a backlog takes up no memory.
func TestSlotsBeforePolls(t *testing.T) {
	for _, c := range []struct{ concurrency, prefetch, first int }{
		{1, 0, 1}, {3, 0, 3}, {10, 0, 10}, {25, 0, 10}, {1, 2, 3}, {1, 9, 10}, {1, 30, 10},
	} {
		bubble(t, "q", func(f *fixture) {
			f.sendMany(100)
			most := 0
			sub := f.subscribe(works(10*time.Second), sqsub.WithConcurrency(c.concurrency), sqsub.WithPrefetch(c.prefetch))
			for f.now() < 35*time.Second {
				f.wait(f.now() + 500*time.Millisecond)
				states := map[sqsub.State]int{}
				for _, h := range sub.InFlight() {
					states[h.State]++
				}
				taken := sub.Stats().InFlight - states[sqsub.Settling]
				most = max(most, taken)
				if states[sqsub.Running] > c.concurrency {
					f.Errorf("%+v: %d handlers run", c, states[sqsub.Running])
				}
				if open := f.openReceives(f.now()); open > 0 && taken >= c.concurrency+c.prefetch {
					f.Errorf("%+v: a receive is open without a free slot, at %v", c, f.now())
				}
			}
			if got := f.calls(receiveOp)[0].MaxMessages; got != c.first {
				f.Errorf("%+v: the first receive asks for %d", c, got)
			}
			if limit := c.concurrency + c.prefetch; most > limit || most < limit-1 {
				f.Errorf("%+v: up to %d in hand", c, most)
			}
		})
	}
}

func TestOnePollIsOpenWhenIdle(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.subscribe(works(0), sqsub.WithConcurrency(1000), sqsub.WithPrefetch(1000))
		f.wait(time.Hour)
		calls := f.calls(receiveOp)
		for at := range 3600 {
			if n := openAt(calls, f.start.Add(time.Duration(at)*time.Second+time.Millisecond)); n != 1 {
				f.Fatalf("%d receives are open after %d s", n, at)
			}
		}
		if n := len(calls); n != 181 { // an empty answer is no reason to wait, nor to ask more often
			f.Errorf("%d receives in an hour", n)
		}
		if loud := f.loud(); len(loud) > 0 {
			f.Errorf("logged %q", loud)
		}
	})
}

// B129: polls multiply with the backlog, and fold back when it is gone.
func TestPollsMultiplyAndFold(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.sendMany(2000)
		f.Inject(always(receiveOp, sqstest.Fault{Lag: 50 * time.Millisecond}))
		f.subscribe(works(100*time.Millisecond), sqsub.WithConcurrency(200))
		f.wait(10 * time.Second)
		calls, most := f.calls(receiveOp), 0
		for _, c := range calls {
			most = max(most, openAt(calls, c.At))
		}
		if most < 4 || most > 20 {
			f.Errorf("up to %d receives were open", most)
		}
		if n := len(f.Runs()); n != 2000 {
			f.Errorf("%d runs in 10s", n)
		}
		f.wait(60 * time.Second)
		if n := f.openReceives(f.now() - time.Second); n != 1 {
			f.Errorf("%d receives are open after the last message", n)
		}
		if n := len(f.calls(receiveOp)); n > 300 {
			f.Errorf("%d receives for 2000 messages", n)
		}
	})
}

// With a backlog a receive waits a little for more slots than one, so that ten
// messages cost one request and not ten.
func TestSlotsAreGathered(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.sendMany(1500)
		f.Inject(always(receiveOp, sqstest.Fault{Lag: 10 * time.Millisecond}))
		var n atomic.Int64
		sub := f.subscribe(func(context.Context, *sqsub.Delivery) error {
			time.Sleep(time.Second + time.Duration(n.Add(1)%97)*10*time.Millisecond)
			return nil
		}, sqsub.WithConcurrency(100))
		f.wait(10 * time.Second)
		receives, runs := len(f.calls(receiveOp)), len(f.Runs())
		if per := float64(runs) / float64(receives); per < 5 {
			f.Errorf("%d receives for %d messages", receives, runs)
		}
		if runs < 10*100/2*9/10 {
			f.Errorf("%d runs in 10s: slots stay empty", runs)
		}
		sub.Close()
	})
}

// A free slot does not wait long for company.
func TestGatheringIsBounded(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.sendMany(200)
		f.subscribe(func(ctx context.Context, d *sqsub.Delivery) error {
			if d.Body() == "0" {
				time.Sleep(10 * time.Second)
				return nil
			}
			<-ctx.Done()
			return nil
		}, sqsub.WithConcurrency(100))
		f.wait(12 * time.Second)
		if n := len(f.Runs()); n != 101 {
			f.Errorf("%d runs, want the free slot filled", n)
		}
	})
}

// B064
func TestSlowHandlerDelaysNoOther(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.sendMany(30)
		f.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
			if d.Body() == "0" {
				time.Sleep(time.Minute)
			}
			time.Sleep(100 * time.Millisecond)
			return nil
		})
		f.wait(5 * time.Second)
		if n := len(f.held()); n != 1 {
			f.Errorf("the queue holds %d messages, want the slow one", n)
		}
	})
}

// B065: subscriptions of one client do not wait for each other's polls.
func TestIdleSubscriptionsDelayNoOther(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		for _, queue := range []string{"idle1", "idle2"} {
			f.create(queue)
			sub, err := sqsub.Subscribe(context.Background(), f.client, queue, works(0), f.options(nil)...)
			if err != nil {
				f.Fatal(err)
			}
			defer sub.Close()
		}
		defer f.subscribe(works(time.Millisecond)).Close()
		for i := range 100 {
			f.wait(time.Duration(i) * 700 * time.Millisecond)
			f.send(fmt.Sprint(i))
			f.wait(f.now() + 2*time.Millisecond)
			if n := len(f.Runs()); n != i+1 {
				f.Fatalf("%d runs of %d messages", n, i+1)
			}
		}
	})
}

// B133: what a network can do to a receive, below the answers of SQS.
func TestNetworkErrorsPass(t *testing.T) {
	for name, broken := range map[string]error{
		"DNS":            &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "sqs", IsNotFound: true}},
		"refused":        &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"TLS":            &tls.CertificateVerificationError{Err: errors.New("unknown authority")},
		"unexpected EOF": io.ErrUnexpectedEOF,
		"pool exhausted": errors.New("too many connections"), // B146
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.client = f.Client(func(o *sqs.Options) {
					inner := o.HTTPClient
					o.HTTPClient = doer(func(r *http.Request) (*http.Response, error) {
						if at := f.now(); at > 0 && at < time.Minute && strings.HasSuffix(r.Header.Get("X-Amz-Target"), receiveOp) {
							return nil, broken
						}
						return inner.Do(r)
					})
				})
				var polls []error
				sub := f.subscribe(works(0), sqsub.WithHooks(sqsub.Hooks{Polled: func(p sqsub.Poll) { polls = append(polls, p.Err) }}))
				f.wait(30 * time.Second)
				f.send("m")
				f.wait(100 * time.Second)
				f.stop(sub)
				f.handledOnce(1)
				told := slices.ContainsFunc(polls, func(err error) bool { return errors.Is(err, broken) })
				if n := len(f.logged("level=WARN", broken.Error())); n != 1 || !told { // B199
					f.Errorf("the reason is told to the hook: %v; logged %q", told, f.loud())
				}
			})
		})
	}
}

// B133, B146: no error ends the loop, or makes it spin; each is said once.
func TestReceivesFailForAWhile(t *testing.T) {
	faults := map[string]sqstest.Fault{
		"not JSON":     {Body: "<html>busy</html>"},
		"404":          {Status: 404},
		"unknown code": {Code: "NeverHeardOf", Status: 400},
		"invalid":      {Code: "InvalidParameterValue", Message: "whatever"},
		"attempt":      {Code: "InvalidParameterValue", Message: "Value x for parameter ReceiveRequestAttemptId is invalid."},
		"over limit":   {Code: "OverLimit", Status: 403}, // B140
		"KMS denied":   {Code: "KMS.AccessDeniedException", Message: "the ciphertext refers to a key"},
	}
	for name, fault := range passing {
		faults[name] = fault
	}
	for name, fault := range faults {
		for _, queue := range []string{"q", "q.fifo"} {
			t.Run(name+", "+queue, func(t *testing.T) {
				bubble(t, queue, func(f *fixture) {
					f.sendTo("slow", "slow")
					f.Inject(f.during(receiveOp, time.Second, 10*time.Minute, fault))
					sub := f.subscribe(works(5*time.Minute-time.Second), sqsub.WithConcurrency(2))
					f.wait(2 * time.Second)
					f.sendTo("n", "n")
					f.wait(10 * time.Minute)
					if n := len(f.calls(receiveOp)); n > 120 || n < 10 {
						f.Errorf("%d receives in ten minutes", n)
					}
					if n := len(f.logged("level=WARN", "ReceiveMessage")); n != 1 {
						f.Errorf("%d warnings: %q", n, f.loud())
					}
					if n := len(f.logged("level=WARN", fault.Message, fault.Code)); n == 0 { // B153
						f.Errorf("the warning does not tell what SQS said: %q", f.loud())
					}
					if st := sub.Stats(); st.ReceiveFailures < 9 || st.VisibilityLost != 0 || st.ExtendFailures != 0 {
						f.Errorf("stats %+v", st)
					}
					if runs := f.Runs(); runs[0].cause != nil || runs[0].to == 0 {
						f.Errorf("the handler was disturbed: %+v", runs[0])
					}
					f.wait(16 * time.Minute)
					f.wantHeld()
					if n := len(f.logged("level=INFO", "ReceiveMessage works again")); n != 1 {
						f.Errorf("logged %q", f.loud())
					}
					f.stop(sub)
				})
			})
		}
	}
}

// B167: where MD5 is not to be had, the SDK's check would fail after SQS has
// handed the messages out; it is turned off.
func TestChecksumsInFIPSMode(t *testing.T) {
	if !fips140.Enabled() {
		again := exec.Command(os.Args[0], "-test.run=^TestChecksumsInFIPSMode$")
		again.Env = append(os.Environ(), "GODEBUG=fips140=on")
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("in FIPS mode: %v\n%s", err, out)
		}
		return
	}
	// In real time: the entropy of that mode comes from the clock.
	server := sqstest.NewServer()
	client := server.Client()
	q, err := client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("q")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: q.QueueUrl, MessageBody: aws.String("m")}); err != nil {
		t.Fatal(err)
	}
	server.Inject(always(receiveOp, sqstest.Fault{BadMD5: true}))
	polls := make(chan sqsub.Poll, 1)
	sub, err := sqsub.Subscribe(t.Context(), client, "q", works(0), sqsub.WithHooks(sqsub.Hooks{Polled: func(p sqsub.Poll) {
		select {
		case polls <- p:
		default:
		}
	}}))
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	if p := <-polls; p.Err != nil || p.Received != 1 {
		t.Errorf("the first receive: %+v", p)
	}
}

// S13: the SDK refuses an answer with a wrong checksum; its messages come back
// when their timeout lapses.
func TestWrongChecksum(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("a", "b")
		f.Inject(on(receiveOp, func(n int) sqstest.Fault { return sqstest.Fault{BadMD5: n == 0} }))
		sub := f.subscribe(works(0))
		f.wait(time.Minute)
		f.stop(sub)
		f.wantHeld()
		if st := sub.Stats(); st.ReceiveFailures != 1 || st.Received != 2 {
			f.Errorf("stats %+v", st)
		}
	})
}

// Pauses grow, with jitter, to 30 s and not beyond.
func TestReceiveBackoff(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		sub := f.subscribe(works(0), sqsub.WithWaitTime(time.Second))
		f.Inject(always(receiveOp, sqstest.Fault{Status: 500}))
		f.wait(2 * time.Hour)
		f.stop(sub)
		var gaps []time.Duration
		calls := f.calls(receiveOp)
		for i, c := range calls[1:] {
			gaps = append(gaps, c.At.Sub(calls[i].Done))
		}
		if longest := slices.Max(gaps); longest > 30*time.Second || longest < 25*time.Second {
			f.Errorf("the longest pause is %v", longest)
		}
		var sum time.Duration
		for _, gap := range gaps[20:] {
			sum += gap
		}
		if mean := sum / time.Duration(len(gaps)-20); mean < 10*time.Second {
			f.Errorf("pauses of %v on average", mean)
		}
	})
}

// B194: a stop ends a pause at once.
func TestStopEndsTheBackoff(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		sub := f.subscribe(works(0), sqsub.WithWaitTime(time.Second))
		f.Inject(always(receiveOp, sqstest.Fault{Status: 500}))
		f.wait(time.Hour + time.Millisecond)
		for f.openReceives(f.now()) > 0 {
			f.wait(f.now() + time.Millisecond)
		}
		before := f.now()
		f.stop(sub)
		if took := f.now() - before; took != 0 {
			f.Errorf("the stop took %v", took)
		}
	})
}

// An already ended context starts no receive.
func TestSubscribeWithAnEndedContext(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		sub, err := sqsub.Subscribe(ctx, f.client, f.url, works(0), f.options([]sqsub.Option{sqsub.WithVisibility(time.Minute)})...)
		if err != nil {
			return // an error is fine too
		}
		f.watch(sub)
		if err := sub.Wait(); err != nil {
			f.Error(err)
		}
		if n := len(f.calls(receiveOp)); n > 0 {
			f.Errorf("%d receives", n)
		}
	})
}

// A server that answers at once, with nothing, although the receive asks it to
// wait, must not be asked as fast as it can answer: each receive has its price.
func TestEmptyAnswersWithoutAWait(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.Inject(always(receiveOp, sqstest.Fault{Empty: true, Lag: 20 * time.Millisecond}))
		f.subscribe(works(0))
		f.wait(time.Minute)
		if n := len(f.calls(receiveOp)); n > 600 {
			f.Errorf("%d receives in a minute", n)
		}
	})
}

// R8: an early answer that is not full is no error: the next receive leaves at once.
func TestFewMessagesAreReceivedAtOnce(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.subscribe(works(0))
		for i := range 20 {
			f.send(fmt.Sprint(i))
			f.wait(f.now() + 10*time.Millisecond)
			if n := len(f.Runs()); n != i+1 {
				f.Fatalf("%d runs of %d messages", n, i+1)
			}
		}
	})
}

// B140: too many messages in flight pause the receiving, and nothing else.
func TestOverLimit(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.InFlightLimit = 5
		f.sendMany(12)
		sub := f.subscribe(works(time.Minute), sqsub.WithConcurrency(20))
		f.Inject(f.during(receiveOp, time.Millisecond, time.Minute, sqstest.Fault{Code: "OverLimit", Status: 403}))
		f.wait(59 * time.Second)
		if st := sub.Stats(); st.InFlight != 5 || st.Extended != 15 || st.ExtendFailures != 0 {
			f.Errorf("stats %+v, want five held and extended", st)
		}
		f.wait(5 * time.Minute)
		f.stop(sub)
		f.wantHeld()
	})
}

// B138, Q7: a queue that is gone for good ends the subscription, with its
// handlers run to their end.
func TestQueueIsGone(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(works(2*time.Minute+20*time.Second), sqsub.WithConcurrency(2))
		f.wait(10 * time.Second)
		f.deleteQueue()
		err := sub.Wait()
		var missing *types.QueueDoesNotExist
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), f.url) {
			f.Errorf("Wait returned %v", err)
		}
		if at := f.now(); at < 2*time.Minute+10*time.Second || at > 3*time.Minute {
			f.Errorf("it ended after %v", at)
		}
		if n := len(f.calls(receiveOp)); n > 60 {
			f.Errorf("%d receives", n)
		}
		if told := f.logged("level=ERROR", "ends by itself", "has not existed"); len(told) != 1 {
			f.Errorf("logged %q", f.loud())
		}
		if len(f.logged("level=WARN", "ReceiveMessage fails", "has not existed for two minutes")) != 1 {
			f.Errorf("logged %q", f.loud())
		}
		if since := sub.Stats().ReceivesFailSince.Sub(f.start); since < 10*time.Second || since > 31*time.Second {
			f.Errorf("receives fail since %v", since)
		}
		if n := len(f.logged("level=WARN", "ReceiveMessage")); n != 1 {
			f.Errorf("%d warnings: %q", n, f.loud())
		}
		if r := f.onlyRun(); r.to != 2*time.Minute+20*time.Second {
			f.Errorf("run %+v, want it to its end", r)
		}
		if err := sub.Shutdown(context.Background()); err != nil {
			f.Errorf("Shutdown of what has ended: %v", err)
		}
		if again := sub.Wait(); again != err {
			f.Errorf("the second Wait returned %v", again)
		}
	})
}

// That is told when it happens, whatever its handlers do.
func TestEndIsToldAtOnce(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.send("m")
		sub := f.subscribe(works(10*time.Minute), sqsub.WithConcurrency(20))
		f.Inject(f.during(receiveOp, time.Second, time.Hour, sqstest.Fault{Code: "AWS.SimpleQueueService.NonExistentQueue"}))
		f.wait(3 * time.Minute)
		if told := f.logged("level=ERROR", "ends by itself"); len(told) != 1 {
			f.Errorf("logged %q", f.loud())
		}
		sub.Close()
	})
}

// What an operator has to do something about is told at once.
func TestRefusalsAreToldAtOnce(t *testing.T) {
	for _, op := range []string{receiveOp, changeOp} {
		for _, code := range []string{"AccessDenied", "AWS.SimpleQueueService.NonExistentQueue"} {
			bubble(t, "q", func(f *fixture) {
				f.Inject(always(op, sqstest.Fault{Code: code, Status: 400}))
				f.send("m")
				f.subscribe(once(fails(sqsub.RetryAfter(0, nil)), 0), sqsub.WithBatchDelay(0))
				f.wait(50 * time.Millisecond)
				if len(f.logged("level=WARN", op)) != 1 {
					f.Errorf("%s %s: logged %q", op, code, f.loud())
				}
			})
		}
	}
}

// Receives that fail twice in a row, again and again, are told of, however soon the
// third one works.
func TestReceivesThatKeepFailingAreTold(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.Inject(on(receiveOp, func(n int) sqstest.Fault {
			if n%3 != 0 {
				return sqstest.Fault{Code: "InternalError", Status: 500}
			}
			return sqstest.Fault{}
		}))
		sub := f.subscribe(works(0), sqsub.WithWaitTime(time.Second))
		f.wait(time.Minute)
		sub.Close()
		if len(f.logged("level=WARN", "ReceiveMessage fails")) == 0 {
			f.Errorf("%d failures, and not a word", sub.Stats().ReceiveFailures)
		}
	})
}

// Whoever SQS does not know is not told to allow an action.
func TestBadCredentialsAreToldAsSuch(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.Inject(always(receiveOp, sqstest.Fault{Code: "InvalidClientTokenId", Status: 403}))
		f.subscribe(works(0))
		f.wait(time.Minute)
		if told := f.logged("level=WARN", "ReceiveMessage fails"); len(told) != 1 || strings.Contains(told[0], "IAM") || !strings.Contains(told[0], "credentials") {
			f.Errorf("logged %q", f.loud())
		}
	})
}

func (f *fixture) deleteQueue() {
	f.Helper()
	if _, err := f.client.DeleteQueue(f.Context(), &sqs.DeleteQueueInput{QueueUrl: &f.url}); err != nil {
		f.Fatal(err)
	}
}

// B138, B208: one that is made again is received from again, by itself.
func TestQueueIsMadeAgain(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		sub := f.subscribe(works(time.Second))
		f.wait(10 * time.Second)
		f.deleteQueue()
		f.wait(75 * time.Second)
		f.create("q")
		f.send("m")
		f.wait(100 * time.Second)
		f.undisturbed()
		f.stop(sub)
		if n := len(f.logged("level=WARN")); n != 1 {
			f.Errorf("logged %q", f.loud())
		}
	})
}

// A pausedClient reads answers long after they came, as after a pause of the
// process.
type pausedClient struct {
	*sqs.Client
	pause func(err error) time.Duration // before an answer is read
}

func (c *pausedClient) ReceiveMessage(ctx context.Context, in *sqs.ReceiveMessageInput, opts ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	out, err := c.Client.ReceiveMessage(ctx, in, opts...)
	time.Sleep(c.pause(err))
	return out, err
}

// A long poll whose answer waited while the process stood still: SQS hid the
// message before the end of the wait time (R18).
func TestAnswerReadAfterAPause(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		client := &pausedClient{Client: f.client, pause: func(error) time.Duration { return 40 * time.Second }}
		sub := f.through(client, works(time.Second), sqsub.WithVisibility(10*time.Second))
		f.send("m")
		f.wait(20 * time.Second)
		if len(f.receive(0)) != 1 { // it has been visible again since 10 s
			f.Fatal("no rival has the message")
		}
		f.wait(2 * time.Minute)
		f.stop(sub)
		if runs := f.Runs(); len(runs) > 0 {
			f.Errorf("it is handled, while another consumer has it: %+v", runs)
		}
	})
}

// A queue that is missing now and then is not gone: the two minutes are without
// a pause.
func TestQueueIsMissingNowAndThen(t *testing.T) {
	missing := sqstest.Fault{Code: "AWS.SimpleQueueService.NonExistentQueue"}
	for name, between := range map[string]sqstest.Fault{"success": {}, "other failures": {Status: 500}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				f.Inject(func(c sqstest.Call) sqstest.Fault {
					switch {
					case c.Op != receiveOp:
						return sqstest.Fault{}
					case c.At.Sub(f.start)%(3*time.Minute) > 90*time.Second:
						return missing
					}
					return between
				})
				sub := f.subscribe(works(0), sqsub.WithWaitTime(time.Second))
				f.wait(20 * time.Minute)
				select {
				case <-sub.Done():
					f.Errorf("it ended: %v", sub.Wait())
				default:
				}
			})
		})
	}
}

// timeoutClient is an HTTP client that gives up after a while, as one with
// http.Client.Timeout does.
func timeoutClient(o *sqs.Options, d time.Duration) {
	inner := o.HTTPClient
	o.HTTPClient = doer(func(r *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithTimeout(r.Context(), d)
		defer cancel()
		return inner.Do(r.WithContext(ctx))
	})
}

// B142: an HTTP client that gives up before SQS answers is recognized.
func TestHTTPTimeoutBelowTheWaitTime(t *testing.T) {
	for _, timeout := range []time.Duration{2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 19 * time.Second, 20 * time.Second, 20020 * time.Millisecond} {
		bubble(t, "q", func(f *fixture) {
			f.StrandAbandonedPolls = true                                          // R13
			f.Inject(always(receiveOp, sqstest.Fault{Lag: 50 * time.Millisecond})) // so that 20 s are just not enough
			f.client = f.Client(func(o *sqs.Options) { timeoutClient(o, timeout) })
			sub := f.subscribe(works(time.Second))
			f.wait(2 * time.Minute)
			failures := sub.Stats().ReceiveFailures
			f.wait(10 * time.Minute)
			if st := sub.Stats(); st.ReceiveFailures != failures || failures > 5 {
				f.Errorf("timeout %v: %d receives fail, and %d later", timeout, failures, st.ReceiveFailures-failures)
			}
			if n := len(f.logged("level=WARN", "WithWaitTime")); n == 0 {
				f.Errorf("timeout %v: logged %q", timeout, f.loud())
			}
			f.send("m")
			f.wait(f.now() + 5*time.Second)
			f.undisturbed()
			f.stop(sub)
		})
	}
}

// But the wait time goes by two timeouts of the HTTP client in a row, after the
// same time. A single one tells of a connection that broke, and one of before the
// request was sent of nothing that a shorter wait would mend: it would only
// multiply the receives, for ever.
func TestOneTimeoutLeavesTheWaitTimeAlone(t *testing.T) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	const s = time.Second
	for _, c := range []struct {
		name   string
		err    error
		after  []time.Duration // of one request after another
		strand uint64          // receives that may have stranded messages
		wait   int             // from then on
	}{
		{"one dial", dial, []time.Duration{3100 * time.Millisecond}, 0, 20},
		{"dials", dial, []time.Duration{10 * s, 10 * s, 10 * s}, 0, 20},
		{"one handshake", handshakeTimeout{}, []time.Duration{10 * s}, 0, 20},
		{"handshakes", handshakeTimeout{}, []time.Duration{10 * s, 10 * s, 10 * s}, 0, 20},
		{"one", os.ErrDeadlineExceeded, []time.Duration{10 * s}, 1, 20},
		{"two, not the same", os.ErrDeadlineExceeded, []time.Duration{5 * s, 10 * s}, 2, 20},
		{"two", os.ErrDeadlineExceeded, []time.Duration{10 * s, 10 * s}, 2, 9},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, "q", func(f *fixture) {
				left := c.after
				f.client = f.Client(func(o *sqs.Options) {
					inner := o.HTTPClient
					o.HTTPClient = doer(func(r *http.Request) (*http.Response, error) {
						if len(left) == 0 || f.now() < time.Minute || !strings.HasSuffix(r.Header.Get("X-Amz-Target"), receiveOp) {
							return inner.Do(r)
						}
						after := left[0]
						left = left[1:]
						time.Sleep(after)
						return nil, c.err
					})
				})
				sub := f.subscribe(works(0))
				f.wait(10 * time.Minute)
				f.stop(sub)
				calls := f.calls(receiveOp)
				if last := calls[len(calls)-1]; last.WaitSeconds != c.wait {
					f.Errorf("the last receive waits for %d s, want %d", last.WaitSeconds, c.wait)
				}
				if n := len(f.logged("level=WARN", "WithWaitTime")); (n == 1) != (c.wait < 20) {
					f.Errorf("logged %q", f.loud())
				}
				if st := sub.Stats(); st.ReceiveFailures != uint64(len(c.after)) || st.ReceivesAbandoned != c.strand {
					f.Errorf("%d failures, %d receives abandoned", st.ReceiveFailures, st.ReceivesAbandoned)
				}
			})
		})
	}
}

// A handshakeTimeout is as net/http's own.
type handshakeTimeout struct{}

func (handshakeTimeout) Error() string { return "net/http: TLS handshake timeout" }
func (handshakeTimeout) Timeout() bool { return true }

// B143: an answer some seconds late is waited for.
func TestLateAnswers(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.Inject(always(receiveOp, sqstest.Fault{Lag: 8 * time.Second}))
		sub := f.subscribe(works(0))
		f.wait(19 * time.Second)
		f.send("m")
		f.wait(time.Minute)
		f.undisturbed()
		if st := sub.Stats(); st.ReceiveFailures > 0 {
			f.Errorf("stats %+v", st)
		}
	})
}

// A receive that never answers is given up, and counted: it may have taken
// messages.
func TestHungReceives(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.Inject(f.during(receiveOp, 0, time.Minute, sqstest.Fault{Hang: true, After: true}))
		f.send("m")
		sub := f.subscribe(works(0), sqsub.WithWaitTime(5*time.Second))
		f.wait(time.Minute)
		if c := f.calls(receiveOp)[0]; c.Done.Sub(f.start) != 15*time.Second {
			f.Errorf("given up after %v", c.Done.Sub(f.start))
		}
		f.wait(3 * time.Minute)
		f.stop(sub)
		if st := sub.Stats(); st.ReceivesAbandoned < 2 || st.ReceivesAbandoned != st.ReceiveFailures {
			f.Errorf("stats %+v", st)
		}
		f.wantHeld()
	})
}

// A connection that died must not keep a queue waiting for as long as its receive
// may take, which is 12 s here.
func TestHungReceiveDelaysLittle(t *testing.T) {
	for _, backlog := range []int{0, 100} {
		bubble(t, "q", func(f *fixture) {
			f.sendMany(backlog)
			f.Inject(on(receiveOp, func(n int) sqstest.Fault { return sqstest.Fault{Hang: n == 1} }))
			sub := f.subscribe(works(0), sqsub.WithWaitTime(2*time.Second), sqsub.WithConcurrency(1))
			f.wait(2500 * time.Millisecond)
			f.send("last")
			f.wait(time.Minute)
			calls := f.calls(receiveOp)
			hung, next := calls[1], calls[2]
			if waited := next.At.Sub(hung.At); waited != 3*time.Second || len(next.Entries) == 0 {
				f.Errorf("backlog %d: the next receive comes after %v and brings %d messages, want one after 3s", backlog, waited, len(next.Entries))
			}
			if st := sub.Stats(); st.Deleted != uint64(backlog+1) {
				f.Errorf("backlog %d: stats %+v", backlog, st)
			}
			f.stop(sub)
		})
	}
}

// One slot takes one message, also when the queue was full and is not any more: a
// long poll is not overdue before its wait time is over.
func TestIdleAfterFullTakesNoMoreThanItsSlots(t *testing.T) {
	for queue, groups := range map[string][]string{"q": {"", "", ""}, "q.fifo": {"a", "b", "c"}} {
		bubble(t, queue, func(f *fixture) {
			sub := f.subscribe(func(_ context.Context, d *sqsub.Delivery) error {
				if d.Body() != "first" {
					time.Sleep(time.Hour)
				}
				return nil
			}, sqsub.WithConcurrency(1))
			f.sendTo(groups[0], "first")
			f.wait(15 * time.Second)
			if n := sub.Stats().Receiving; n != 1 {
				f.Errorf("%s: %d receives are open on an idle queue, want one", queue, n)
			}
			f.sendTo(groups[1], "long")
			f.sendTo(groups[2], "other")
			f.wait(16 * time.Second)
			if st := sub.Stats(); st.InFlight != 1 || st.Waiting != 0 {
				f.Errorf("%s: one slot, no prefetch: %d in flight, %d of them waiting", queue, st.InFlight, st.Waiting)
			}
		})
	}
}

// Receives that all come back full at the same instant are all made again.
func TestFullReceivesKeepTheirNumber(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.sendMany(3000)
		f.Inject(always(receiveOp, sqstest.Fault{Lag: 100 * time.Millisecond}))
		f.subscribe(works(0), sqsub.WithConcurrency(100))
		f.wait(4 * time.Second)
		if n := len(f.Runs()); n != 3000 {
			f.Errorf("%d runs in 4s, want all: a hundred at a time take 100ms", n)
		}
	})
}

// B148: the provider is asked for credentials with each try, so that fresh ones
// end the trouble.
func TestExpiredCredentials(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		asked := func() string { // it has nothing but expired ones for a while
			if f.now() < 625*time.Second {
				return "OLD"
			}
			return "NEW"
		}
		var refused atomic.Bool
		f.client = f.Client(func(o *sqs.Options) {
			o.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: asked(), SecretAccessKey: "secret"}, nil
			})
			inner := o.HTTPClient
			o.HTTPClient = doer(func(r *http.Request) (*http.Response, error) {
				refused.Store(f.now() > 600*time.Second && strings.Contains(r.Header.Get("Authorization"), "Credential=OLD/"))
				return inner.Do(r)
			})
		})
		f.Inject(func(sqstest.Call) sqstest.Fault {
			if refused.Load() {
				return sqstest.Fault{Code: "ExpiredToken", Status: 403, Message: "The security token included in the request is expired"}
			}
			return sqstest.Fault{}
		})
		f.send("long")
		sub := f.subscribe(works(20*time.Minute), sqsub.WithConcurrency(2))
		f.wait(630 * time.Second)
		f.send("m")
		f.wait(655 * time.Second)
		if n := len(f.Runs()); n != 2 {
			f.Errorf("%d runs, want receiving to have recovered", n)
		}
		if n := len(f.logged("level=WARN", "ExpiredToken")); n == 0 {
			f.Error("the trouble is not told")
		}
		f.wait(time.Hour)
		f.stop(sub)
		for _, r := range f.Runs() {
			if r.cause != nil {
				f.Errorf("run %+v", r)
			}
		}
	})
}

// B147, B149: what fails once in a while and works at the next try is no news.
func TestRareFailuresAreQuiet(t *testing.T) {
	for _, fault := range []sqstest.Fault{{Reset: true}, {Code: "ExpiredToken", Status: 403}, {Code: "RequestThrottled"}, {Status: 503}} {
		bubble(t, "q", func(f *fixture) {
			var mu sync.Mutex
			last := map[string]time.Duration{}
			f.Inject(func(c sqstest.Call) sqstest.Fault {
				mu.Lock()
				defer mu.Unlock()
				if at := c.At.Sub(f.start); at > 0 && at >= last[c.Op]+10*time.Minute {
					last[c.Op] = at
					return fault
				}
				return sqstest.Fault{}
			})
			f.send("long")
			sub := f.subscribe(works(time.Hour), sqsub.WithConcurrency(2))
			f.wait(90 * time.Minute)
			f.stop(sub)
			f.undisturbed()
			if loud := f.loud(); len(loud) > 0 {
				f.Errorf("logged %q", loud)
			}
			if sub.Stats().ExtendFailures == 0 || sub.Stats().ReceiveFailures == 0 {
				f.Errorf("the failures are not counted: %+v", sub.Stats())
			}
		})
	}
}

// A call that fails once is no news either if it was about ten messages.
func TestOneFailedBatchIsQuiet(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.sendMany(20)
		once := func(n int) sqstest.Fault { return sqstest.Fault{Reset: n == 0} }
		deletes, changes := on(deleteOp, once), on(changeOp, once)
		sub := f.subscribe(works(20*time.Second), sqsub.WithConcurrency(20))
		f.Inject(func(c sqstest.Call) sqstest.Fault {
			if fault := deletes(c); fault.Reset {
				return fault
			}
			return changes(c)
		})
		f.wait(time.Minute)
		f.stop(sub)
		f.wantHeld()
		if loud := f.loud(); len(loud) > 0 {
			f.Errorf("logged %q", loud)
		}
	})
}

// B147, B149: nor is one failure each of calls made side by side.
func TestFailuresSideBySideAreQuiet(t *testing.T) {
	expired := sqstest.Fault{Code: "ExpiredToken", Status: 403}
	bubble(t, "q.fifo", func(f *fixture) {
		for _, group := range numbered("g", 5) {
			f.sendTo(group, group)
		}
		f.Inject(f.during(deleteOp, 0, 1010*time.Millisecond, expired))
		sub := f.subscribe(works(time.Second))
		f.wait(10 * time.Second)
		f.stop(sub)
		if st := sub.Stats(); st.Deleted != 5 || st.SettleFailures < 5 || len(f.loud()) > 0 {
			t.Errorf("%+v, logged %q", st, f.loud())
		}
	})
	bubble(t, "q", func(f *fixture) {
		f.sendMany(30)
		f.Inject(f.during(changeOp, 0, 15*time.Second, expired))
		sub := f.subscribe(works(20*time.Second), sqsub.WithConcurrency(30))
		f.wait(time.Minute)
		f.stop(sub)
		if st := sub.Stats(); st.Deleted != 30 || st.ExtendFailures < 30 || len(f.loud()) > 0 {
			t.Errorf("%+v, logged %q", st, f.loud())
		}
	})
}

// Q12: a permission that is withdrawn from one call is surfaced once, with the
// action that is missing; the other calls go on.
func TestWithdrawnPermission(t *testing.T) {
	for _, op := range []string{receiveOp, changeOp, deleteOp} {
		bubble(t, "q", func(f *fixture) {
			f.sendMany(5)
			sub := f.subscribe(works(50*time.Second), sqsub.WithConcurrency(6))
			f.wait(time.Second)
			f.Inject(always(op, sqstest.Fault{Code: "AccessDenied", Status: 403, Message: "no policy allows it"}))
			f.wait(20 * time.Minute)
			if n := len(f.logged("level=WARN", "sqs:"+op, "no policy allows it")); n != 1 {
				f.Errorf("%s: %d warnings name the action: %q", op, n, f.loud())
			}
			f.Inject(nil)
			f.wait(40 * time.Minute)
			f.send("m")
			f.wait(45 * time.Minute)
			f.stop(sub)
			f.wantHeld()
			if n := len(f.logged("level=INFO", "works again")); n != 1 {
				f.Errorf("%s: %d lines say that it works again: %q", op, n, f.loud())
			}
		})
	}
}

// Calls that fail now for one reason and now for another are in one state of
// trouble, with each reason told once.
func TestReasonsInTurnAreToldOnceEach(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		codes := []string{"AccessDenied", "InternalError", "InvalidAddress"}
		f.Inject(on(receiveOp, func(n int) sqstest.Fault { return sqstest.Fault{Code: codes[n%len(codes)]} }))
		f.subscribe(works(0))
		f.wait(20 * time.Minute)
		f.Inject(nil)
		f.wait(25 * time.Minute)
		for _, code := range codes {
			if n := len(f.logged("level=WARN", code)); n != 1 {
				f.Errorf("%s: %d warnings", code, n)
			}
		}
		if n := len(f.logged("level=INFO", "works again")); n != 1 || len(f.loud()) != len(codes)+1 {
			f.Errorf("logged %q", f.loud())
		}
	})
}

// A reason that was told of when calls last failed is told of again when they fail
// for it the next time, whatever else they failed for first.
func TestReasonIsToldOfEachTime(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		denied := always(receiveOp, sqstest.Fault{Code: "AccessDenied", Status: 403})
		f.Inject(denied)
		f.subscribe(works(0))
		f.wait(10 * time.Second)
		f.Inject(nil)
		f.wait(10 * time.Minute)
		f.Inject(always(receiveOp, sqstest.Fault{Reset: true}))
		f.wait(11 * time.Minute)
		f.Inject(denied)
		f.wait(time.Hour)
		if n := len(f.logged("level=WARN", "sqs:ReceiveMessage")); n != 2 {
			f.Errorf("%d warnings name the action: %q", n, f.loud())
		}
	})
}

// Receives that fail every other time do not work again, until they have for a while.
func TestFlappingDoesNotWorkAgain(t *testing.T) {
	bubble(t, "q", func(f *fixture) {
		f.Inject(on(receiveOp, func(n int) sqstest.Fault { return sqstest.Fault{Delay: time.Second, Reset: n%3 > 0, Empty: true} }))
		f.subscribe(works(0))
		f.wait(10 * time.Minute)
		if n := len(f.logged("level=INFO")); n != 0 {
			f.Errorf("logged %q", f.loud())
		}
		if n := len(f.logged("level=WARN")); n < 5 || n > 10 { // once a minute
			f.Errorf("%d warnings: %q", n, f.loud())
		}
		f.Inject(nil)
		f.wait(11 * time.Minute)
		if n := len(f.logged("level=INFO", "works again")); n != 1 {
			f.Errorf("%d lines say that it works again", n)
		}
	})
}

// B120, B198: normal work, and its end, are not worth a line above Debug.
func TestNormalWorkIsQuiet(t *testing.T) {
	eachWay(t, "q", func(f *fixture) {
		for i := range 30 {
			f.send("a", "b", "c")
			sub := f.subscribe(works(20 * time.Second))
			f.wait(f.now() + time.Duration(i)*1700*time.Millisecond)
			f.stop(sub)
			if st := sub.Stats(); st.ReceiveFailures != 0 || st.ReceivesAbandoned != 0 || st.ExtendFailures != 0 {
				f.Errorf("stats %+v", st)
			}
		}
		if loud := f.loud(); len(loud) > 0 {
			f.Errorf("logged %q", loud)
		}
	})
}

// B079: an id that SQS takes no more is dropped, and the next receive follows
// at once.
func TestRefusedAttemptID(t *testing.T) {
	bubble(t, "q.fifo", func(f *fixture) {
		f.send("m")
		f.Inject(on(receiveOp, func(n int) sqstest.Fault {
			switch n {
			case 0:
				return sqstest.Fault{Reset: true}
			case 1:
				return sqstest.Fault{Code: "InvalidParameterValue", Message: "Value x for parameter ReceiveRequestAttemptId is invalid. Reason: The receiveRequestAttemptId is not valid anymore since the receive call is not retryable."}
			}
			return sqstest.Fault{}
		}))
		f.subscribe(works(time.Second))
		f.wait(5 * time.Second)
		f.undisturbed()
		c := f.calls(receiveOp)
		if c[0].AttemptID != c[1].AttemptID || c[2].AttemptID == c[1].AttemptID || c[2].At != c[1].Done {
			f.Errorf("receives %+v", c[:3])
		}
		if loud := f.loud(); len(loud) > 0 {
			f.Errorf("logged %q", loud)
		}
	})
}
