package sqstest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/sqsub/sqsub/sqstest"
)

// polling is a long poll in another goroutine.
type polling struct {
	messages []types.Message
	err      error
	took     time.Duration
	done     chan struct{}
}

// poll starts a long poll and returns when it waits.
func (f *fixture) poll(ctx context.Context, options ...receiveOption) *polling {
	p := &polling{done: make(chan struct{})}
	start := time.Now()
	go func() {
		defer close(p.done)
		p.messages, p.err = f.tryReceive(ctx, append([]receiveOption{wait(20)}, options...)...)
		p.took = time.Since(start)
	}()
	synctest.Wait()
	return p
}

func (p *polling) want(f *fixture, took time.Duration, want ...string) {
	f.Helper()
	<-p.done
	if p.err != nil || fmt.Sprint(bodies(p.messages)) != fmt.Sprint(want) || p.took != took {
		f.Fatalf("poll received %q after %v, error %v; want %q after %v", bodies(p.messages), p.took, p.err, want, took)
	}
}

// R6, R8.
func TestLongPollOfAnEmptyQueueWaits(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		p := f.poll(t.Context())
		p.want(f, 20*time.Second)
		if p.messages != nil {
			t.Errorf("Messages is %v, want nil", p.messages)
		}
	})
}

// R9.
func TestQueueAttributeMakesLongPolls(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard("ReceiveMessageWaitTimeSeconds", "7")
		start := time.Now()
		f.receive()
		f.wantElapsed(start, 7*time.Second)
	})
}

// R8: it does not wait for more than the first.
func TestLongPollReturnsAtTheFirstMessage(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		p := f.poll(t.Context())
		time.Sleep(3 * time.Second)
		f.send("a")
		p.want(f, 3*time.Second, "a")
	})
}

// R9.
func TestLongPollIsWokenByALapse(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		f.receiveOne(visibility(4))
		f.poll(t.Context()).want(f, 4*time.Second, "a")
	})
}

// R9.
func TestLongPollIsWokenByTheEndOfADelay(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard("DelaySeconds", "6")
		p := f.poll(t.Context())
		f.send("a")
		p.want(f, 6*time.Second, "a")
	})
}

// R9.
func TestLongPollIsWokenByARelease(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		m := f.receiveOne()
		p := f.poll(t.Context())
		time.Sleep(2 * time.Second)
		f.must(f.change(m, 0))
		p.want(f, 2*time.Second, "a")
	})
}

func TestLongPollIsWokenByAShortenedTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		m := f.receiveOne()
		p := f.poll(t.Context())
		time.Sleep(2 * time.Second)
		f.must(f.change(m, 3))
		p.want(f, 5*time.Second, "a")
	})
}

// R9, F4.
func TestLongPollIsWokenByAGroupThatUnlocks(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		f.sendTo("g", "a", "b")
		m := f.receiveOne(atMost(1))
		p := f.poll(t.Context())
		time.Sleep(2 * time.Second)
		f.must(f.delete(m))
		p.want(f, 2*time.Second, "b")
	})
}

func TestLongPollIsWokenWhenTheInFlightLimitAllows(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.InFlightLimit = 1
		f.standard()
		f.send("a", "b")
		m := f.receiveOne()
		p := f.poll(t.Context())
		time.Sleep(2 * time.Second)
		f.must(f.delete(m))
		p.want(f, 2*time.Second, "b")
	})
}

func TestLongPollIsWokenByADeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		dead := f.create("dead")
		f.standard("RedrivePolicy", redrive("dead", 1))
		source := f.url
		f.send("a")
		f.receiveOne(visibility(5))
		onSource := f.poll(t.Context())
		f.url = dead
		onDead := f.poll(t.Context())
		onDead.want(f, 5*time.Second, "a")
		onSource.want(f, 20*time.Second)
		f.url = source
		f.wantStates()
	})
}

// F11, Q3: at once, and when the settings come into force later.
func TestLongPollIsWokenByAShortenedDelay(t *testing.T) {
	for lag, want := range map[time.Duration]time.Duration{0: 5 * time.Second, 6 * time.Second: 7 * time.Second} {
		bubble(t, func(t *testing.T, f *fixture) {
			f.AttributeLag = lag
			f.fifo("DelaySeconds", "60")
			f.sendTo("g", "a")
			p := f.poll(t.Context())
			time.Sleep(time.Second)
			f.set("DelaySeconds", "5")
			p.want(f, want, "a")
		})
	}
}

// M10: a message that vanishes unlocks its group.
func TestLongPollIsWokenByTheEndOfARetention(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo("MessageRetentionPeriod", "60")
		f.sendTo("g", "a")
		time.Sleep(50 * time.Second)
		f.sendTo("g", "b")
		f.receiveOne(atMost(1), visibility(1000))
		f.poll(t.Context()).want(f, 10*time.Second, "b")
	})
}

// M10: and it no longer counts against the limit.
func TestLongPollIsWokenWhenARetentionMakesRoomUnderTheInFlightLimit(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.InFlightLimit = 1
		f.standard("MessageRetentionPeriod", "60")
		f.send("a")
		f.receiveOne(visibility(1000))
		time.Sleep(50 * time.Second)
		f.send("b")
		f.poll(t.Context()).want(f, 10*time.Second, "b")
	})
}

// M10.
func TestLongPollIsWokenByAShortenedRetention(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.fifo()
		f.sendTo("g", "a")
		time.Sleep(50 * time.Second)
		f.sendTo("g", "b")
		f.receiveOne(atMost(1), visibility(1000))
		p := f.poll(t.Context())
		f.set("MessageRetentionPeriod", "60")
		p.want(f, 10*time.Second, "b")
	})
}

// A message goes to one poll only, the longest waiting first; the others go on.
func TestOpenPollsTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		var polls []*polling
		for range 3 {
			polls = append(polls, f.poll(t.Context()))
			time.Sleep(time.Second)
		}
		f.send("a")
		synctest.Wait()
		time.Sleep(time.Second)
		f.send("b")
		polls[0].want(f, 3*time.Second, "a")
		polls[1].want(f, 3*time.Second, "b")
		polls[2].want(f, 20*time.Second)
	})
}

// The poll that waits for the next lapse hands that duty on when it leaves.
func TestSecondPollIsWokenByALapseAfterTheFirstLeft(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		f.receiveOne(visibility(15))
		first := f.poll(t.Context(), wait(5))
		second := f.poll(t.Context())
		first.want(f, 5*time.Second)
		second.want(f, 15*time.Second, "a")
	})
}

func TestOneLapseOfManyMessagesServesSeveralPolls(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a", "b", "c")
		f.receive(visibility(5))
		first, second := f.poll(t.Context(), atMost(2)), f.poll(t.Context())
		first.want(f, 5*time.Second, "a", "b")
		second.want(f, 5*time.Second, "c")
	})
}

func TestCancelledPollReturnsAtOnceAndTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		ctx, cancel := context.WithCancel(t.Context())
		p := f.poll(ctx)
		time.Sleep(7 * time.Second)
		cancel()
		<-p.done
		if !errors.Is(p.err, context.Canceled) || p.took != 7*time.Second {
			t.Fatalf("poll ended with %v after %v", p.err, p.took)
		}
		f.send("a")
		f.wantStates("a visible")
		call := f.Calls()[1]
		if call.Status != 0 || call.Done.Sub(call.At) != 7*time.Second {
			t.Errorf("call %+v", call)
		}
	})
}

// A cancelled poll must not keep the wake-up that was meant for it.
func TestWakeUpOfACancelledPollIsPassedOn(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			first := f.poll(ctx)
			second := f.poll(t.Context())
			cancel()
			f.send("a")
			<-first.done
			if len(first.messages) == 0 {
				second.want(f, 0, "a")
				f.must(f.delete(second.messages[0]))
			} else {
				f.must(f.delete(first.messages[0]))
				<-second.done
			}
		}
	})
}

// R13.
func TestAbandonedPollTakesMessages(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.StrandAbandonedPolls = true
		f.standard()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		<-f.poll(ctx).done
		time.Sleep(10 * time.Second)
		f.send("a")
		f.wantStates("a in flight 30s")
		f.send("b")
		b := f.wantReceive("b") // an abandoned poll is over with its first response, as any poll
		f.must(f.delete(b[0]))
		time.Sleep(30 * time.Second)
		if m := f.receiveOne(); *m.Body != "a" || count(m) != 2 {
			t.Errorf("received %s for the %d. time", *m.Body, count(m))
		}
		if e := f.Calls()[1].Entries; len(e) != 1 || e[0].ReceiveCount != 1 {
			t.Errorf("the abandoned poll took %v", e)
		}
	})
}

func TestAbandonedPollEndsWithItsWaitTime(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.StrandAbandonedPolls = true
		f.standard()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		<-f.poll(ctx).done
		time.Sleep(15 * time.Second)
		f.send("a")
		f.wantReceive("a")
	})
}

// What an abandoned poll did is worked out later, as of the time it happened.
func TestAbandonedPollTakesWhatBecameVisibleMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.StrandAbandonedPolls = true
		f.standard()
		f.send("a", "b")
		f.receiveOne(atMost(1), visibility(10)) // a, until 10 s
		f.receiveOne(visibility(18))            // b, until 18 s
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		<-f.poll(ctx, visibility(100)).done // takes a at 10 s, until 110 s
		time.Sleep(59 * time.Second)        // now it is 60 s
		calls := f.Calls()                  // which has to know without being told by another call
		if e := calls[len(calls)-1].Entries; len(e) != 1 || e[0].Visibility != 100 {
			t.Errorf("the abandoned poll took %v", e)
		}
		f.wantStates("a in flight 50s", "b visible")
	})
}

func TestLivePollThatWaitsLongerIsServedBeforeAnAbandonedOne(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.StrandAbandonedPolls = true
		f.standard()
		live := f.poll(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		<-f.poll(ctx).done
		f.send("a")
		live.want(f, time.Second, "a")
		f.send("b")
		f.wantStates("a in flight 30s", "b in flight 30s")
	})
}

// R13: the lock of the group is as lost as the message.
func TestAbandonedPollLocksAGroup(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.StrandAbandonedPolls = true
		f.fifo()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		<-f.poll(ctx).done
		f.sendTo("g", "a", "b")
		f.wantReceive()
		f.poll(t.Context(), wait(20)).want(f, 20*time.Second)
		f.poll(t.Context(), wait(20)).want(f, 10*time.Second, "a", "b")
	})
}

// R12, R13: the retry of a poll that goes on without its client gets what that one takes.
func TestRetryOfAnAbandonedPollIsAnsweredWithIt(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.StrandAbandonedPolls = true
		f.fifo()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		<-f.poll(ctx, attempt("1")).done
		retry := f.poll(t.Context(), attempt("1"))
		time.Sleep(time.Second)
		f.sendTo("g", "a")
		retry.want(f, time.Second, "a")
		if n := count(retry.messages[0]); n != 1 {
			t.Errorf("receive count %d, want 1", n)
		}
		f.must(f.delete(retry.messages[0]))
	})
}

// Q7.
func TestDeletingTheQueueEndsItsPolls(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		p, other := f.poll(t.Context()), f.poll(t.Context())
		_, err := f.client.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &f.url})
		f.must(err)
		for _, p := range []*polling{p, other} {
			<-p.done
			f.wantError(p.err, "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.")
			if p.took != 0 {
				t.Errorf("poll ended after %v, want at once", p.took)
			}
		}
	})
}

// A bubble's channels are of no use outside of it: what the first one leaves behind must not be woken from the next.
func TestAbandonedPollOfAnEarlierBubbleIsLeftAlone(t *testing.T) {
	var server *sqstest.Server
	bubble(t, func(t *testing.T, f *fixture) {
		server = f.Server
		f.StrandAbandonedPolls = true
		f.standard()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		<-f.poll(ctx).done
	})
	bubble(t, func(t *testing.T, f *fixture) {
		f.Server, f.client, f.url = server, server.Client(), "q"
		f.deleteQueue()
	})
}

func TestTwelveHoursOfPolling(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		start := time.Now()
		for range 2160 {
			f.receive(wait(20))
		}
		f.wantElapsed(start, 12*time.Hour)
		if got := len(f.Calls()); got != 2161 {
			t.Errorf("%d calls, want 2161", got)
		}
	})
}
