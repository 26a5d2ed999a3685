package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// A wire is the client of these tests: it notes the requests of a batcher and
// answers each entry as told.
type wire struct {
	Client
	latency time.Duration
	refuse  error                      // of every batch request
	hang    func(receipt string) bool  // a request with it gets no answer
	answer  func(receipt string) error // of one entry
	mangle  func(*sqs.DeleteMessageBatchOutput)

	mu       sync.Mutex
	requests []request
	open     int
	mostOpen int
}

type request struct {
	at       time.Time
	receipts []string
	batch    bool
}

func (w *wire) begin(ctx context.Context, batch bool, receipts ...string) error {
	w.mu.Lock()
	w.requests = append(w.requests, request{time.Now(), receipts, batch})
	w.open++
	w.mostOpen = max(w.mostOpen, w.open)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.open--
		w.mu.Unlock()
	}()
	refused := batch && w.refuse != nil
	if w.hang != nil && !refused && slices.ContainsFunc(receipts, w.hang) {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(w.latency)
	return nil
}

func (w *wire) entry(receipt string) error {
	if w.answer == nil {
		return nil
	}
	return w.answer(receipt)
}

func (w *wire) DeleteMessage(ctx context.Context, in *sqs.DeleteMessageInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	if err := w.begin(ctx, false, *in.ReceiptHandle); err != nil {
		return nil, err
	}
	return &sqs.DeleteMessageOutput{}, w.entry(*in.ReceiptHandle)
}

func (w *wire) DeleteMessageBatch(ctx context.Context, in *sqs.DeleteMessageBatchInput, _ ...func(*sqs.Options)) (*sqs.DeleteMessageBatchOutput, error) {
	receipts := make([]string, len(in.Entries))
	for i, e := range in.Entries {
		receipts[i] = *e.ReceiptHandle
	}
	if err := w.begin(ctx, true, receipts...); err != nil {
		return nil, err
	}
	if w.refuse != nil {
		return nil, w.refuse
	}
	out := &sqs.DeleteMessageBatchOutput{}
	for _, e := range in.Entries {
		var entryErr *EntryError
		if errors.As(w.entry(*e.ReceiptHandle), &entryErr) {
			out.Failed = append(out.Failed, types.BatchResultErrorEntry{Id: e.Id, Code: &entryErr.Code, SenderFault: entryErr.SenderFault})
			continue
		}
		out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: e.Id})
	}
	slices.Reverse(out.Successful) // the order is not promised (B1)
	if w.mangle != nil {
		w.mangle(out)
	}
	return out, nil
}

// sizes are how many entries each request carried, in the order of sending.
func (w *wire) sizes() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	var sizes []int
	for _, r := range w.requests {
		sizes = append(sizes, len(r.receipts))
	}
	return sizes
}

func (w *wire) wantSizes(t *testing.T, want ...int) {
	t.Helper()
	got := w.sizes()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("requests carried %v entries, want %v", got, want)
	}
}

// batching runs a test in a bubble with a queue that batches, and closes the
// queue: whatever the test left running fails it.
func batching(t *testing.T, w *wire, test func(*testing.T, *Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := New(t.Context(), w, "https://sqs.us-east-1.amazonaws.com/123456789012/q", true, func(string, error) {})
		test(t, q)
		q.Close()
		if w.open != 0 {
			t.Errorf("%d requests are open after Close", w.open)
		}
	})
}

// deletion is how one delete ended.
type deletion struct {
	err  error
	took time.Duration
}

// deleteAll deletes n messages, named by number, that all may wait for wait and
// arrive at the same time.
func deleteAll(q *Queue, n int, wait time.Duration) []deletion {
	start := time.Now()
	ends := make([]deletion, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			err := q.Delete(strconv.Itoa(i), Deadline{LeaveBy: start.Add(wait), Limit: 10 * time.Second})
			ends[i] = deletion{err, time.Since(start)}
		})
	}
	all.Wait()
	return ends
}

func TestFullBatchLeavesAtOnce(t *testing.T) {
	w := &wire{}
	batching(t, w, func(t *testing.T, q *Queue) {
		for i, e := range deleteAll(q, 20, time.Minute) {
			if e.err != nil || e.took != 0 {
				t.Errorf("delete %d: %v after %v, want none after 0s", i, e.err, e.took)
			}
		}
	})
	w.wantSizes(t, 10, 10)
}

func TestBatchLeavesWhenItsFirstIsDue(t *testing.T) {
	w := &wire{}
	batching(t, w, func(t *testing.T, q *Queue) {
		start := time.Now()
		var all sync.WaitGroup
		for i, wait := range []time.Duration{300, 100, 200} { // milliseconds: the second sets the time
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				if err := q.Delete(strconv.Itoa(i), Deadline{LeaveBy: start.Add(wait * time.Millisecond), Limit: time.Second}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(start); took != 100*time.Millisecond {
			t.Errorf("the batch left after %v, want 100ms", took)
		}
	})
	w.wantSizes(t, 3)
}

func TestUrgentEntryTakesTheWaitingAlong(t *testing.T) {
	w := &wire{}
	batching(t, w, func(t *testing.T, q *Queue) {
		var all sync.WaitGroup
		all.Go(func() { deleteAll(q, 3, time.Hour) })
		time.Sleep(time.Millisecond)
		start := time.Now()
		if err := q.Delete("urgent", Deadline{LeaveBy: start, Limit: time.Second}); err != nil {
			t.Error(err)
		}
		all.Wait()
		if took := time.Since(start); took != 0 {
			t.Errorf("left after %v, want at once", took)
		}
	})
	w.wantSizes(t, 4)
}

// B088
func TestOneHundredAndNineDeletes(t *testing.T) {
	w := &wire{}
	batching(t, w, func(t *testing.T, q *Queue) {
		for i, e := range deleteAll(q, 109, 100*time.Millisecond) {
			if e.err != nil || e.took > 100*time.Millisecond {
				t.Errorf("delete %d: %v after %v", i, e.err, e.took)
			}
		}
	})
	w.wantSizes(t, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 9)
}

// B123
func TestFlushSendsAtOnceAndFromThenOn(t *testing.T) {
	w := &wire{}
	batching(t, w, func(t *testing.T, q *Queue) {
		start := time.Now()
		var all sync.WaitGroup
		all.Go(func() { deleteAll(q, 7, time.Hour) })
		synctest.Wait()
		q.Flush()
		all.Wait()
		deleteAll(q, 1, time.Hour)
		if took := time.Since(start); took != 0 {
			t.Errorf("the entries left after %v, want at once", took)
		}
	})
	w.wantSizes(t, 7, 1)
}

// B089
func TestNoEmptyRequest(t *testing.T) {
	w := &wire{}
	batching(t, w, func(t *testing.T, q *Queue) {
		for i := range 3 {
			c := newWaiting(strconv.Itoa(i), time.Minute)
			q.BeginChange(&c.Call, Deadline{LeaveBy: time.Now().Add(time.Second), Limit: time.Second})
			if !c.Withdraw() {
				t.Errorf("change %d cannot be withdrawn", i)
			}
		}
		time.Sleep(2 * time.Second) // past the time at which they were due
		q.Flush()
		if errs := q.ChangeAll(nil, time.Second, true); len(errs) != 0 {
			t.Errorf("no changes have %d errors", len(errs))
		}
	})
	w.wantSizes(t)
}

func TestWithdrawnEntryLeavesTheOthersTheirTime(t *testing.T) {
	w := &wire{}
	batching(t, w, func(t *testing.T, q *Queue) {
		start := time.Now()
		withdrawn := newWaiting("withdrawn", 0)
		q.BeginDelete(&withdrawn.Call, Deadline{LeaveBy: start.Add(time.Second), Limit: time.Second})
		time.AfterFunc(500*time.Millisecond, func() {
			if !withdrawn.Withdraw() {
				t.Error("cannot be withdrawn after half of its time")
			}
		})
		if err := q.Delete("kept", Deadline{LeaveBy: start.Add(2 * time.Second), Limit: time.Second}); err != nil || time.Since(start) != 2*time.Second {
			t.Errorf("kept: %v after %v, want none after 2s", err, time.Since(start))
		}
	})
	w.wantSizes(t, 1)
	if r := w.requests[0]; r.batch || r.receipts[0] != "kept" {
		t.Errorf("sent %v", r)
	}
}

// A call that has left cannot be withdrawn: its result says what became of it.
func TestWithdrawTooLate(t *testing.T) {
	w := &wire{latency: time.Second}
	batching(t, w, func(t *testing.T, q *Queue) {
		start := time.Now()
		c := newWaiting("r", 0)
		q.BeginDelete(&c.Call, Deadline{LeaveBy: start, Limit: 10 * time.Second})
		time.Sleep(500 * time.Millisecond)
		if c.Withdraw() {
			t.Error("withdrawn after it had left")
		}
		err := <-c.result
		if err != nil || time.Since(start) != time.Second {
			t.Errorf("%v after %v, want the answer after 1s", err, time.Since(start))
		}
	})
}

func TestNoBatching(t *testing.T) {
	w := &wire{}
	synctest.Test(t, func(t *testing.T) {
		q := New(t.Context(), w, "q", false, func(string, error) {})
		deleteAll(q, 12, time.Hour)
		q.Close()
	})
	w.wantSizes(t, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	if slices.ContainsFunc(w.requests, func(r request) bool { return r.batch }) {
		t.Error("a batch request was sent")
	}
}

// B080, B083, B098: each entry has its own outcome, whatever becomes of the others.
func TestEachEntryHasItsOwnOutcome(t *testing.T) {
	w := &wire{
		answer: func(receipt string) error {
			switch receipt {
			case "3":
				return &EntryError{Code: "InternalError"}
			case "4", "5":
				return &EntryError{Code: "ReceiptHandleIsInvalid", SenderFault: true}
			}
			return nil
		},
		mangle: func(out *sqs.DeleteMessageBatchOutput) {
			nobody, empty := "17", ""
			out.Successful = slices.DeleteFunc(out.Successful, func(e types.DeleteMessageBatchResultEntry) bool { return *e.Id == "6" })
			out.Successful = append(out.Successful, types.DeleteMessageBatchResultEntry{Id: &nobody}, types.DeleteMessageBatchResultEntry{})
			out.Failed = append(out.Failed, types.BatchResultErrorEntry{Id: &empty}, types.BatchResultErrorEntry{})
		},
	}
	// Receipts get their ids by position, so they have to be sent in order.
	batching(t, w, func(t *testing.T, q *Queue) {
		batch := make([]*Call, BatchSize)
		for i := range batch {
			w := newWaiting(strconv.Itoa(i), 0)
			w.deadline = time.Now().Add(time.Second)
			batch[i] = &w.Call
		}
		q.deletes.leave(batch)
		for i, c := range batch {
			err := <-c.Caller.(*waiting).result
			kind := Classify(err)
			switch {
			case i == 3 && err != nil && kind == Transient:
			case (i == 4 || i == 5) && kind == Gone:
			case i == 6 && errors.Is(err, errNoResult) && kind == Transient:
			case i < 3 || i > 6:
				if err != nil {
					t.Errorf("entry %d: %v", i, err)
				}
			default:
				t.Errorf("entry %d: %v of kind %d", i, err, kind)
			}
		}
	})
	w.wantSizes(t, 10)
}

// B206
func TestRefusedBatchGoesOneByOne(t *testing.T) {
	for _, code := range []string{"ReceiptHandleIsInvalid", "InvalidAction", "AWS.SimpleQueueService.BatchRequestTooLong"} {
		w := &wire{
			refuse: &smithy.GenericAPIError{Code: code, Message: "no", Fault: smithy.FaultClient},
			answer: func(receipt string) error {
				if receipt == "2" {
					return &types.ReceiptHandleIsInvalid{}
				}
				return nil
			},
		}
		batching(t, w, func(t *testing.T, q *Queue) {
			for i, e := range deleteAll(q, 10, time.Minute) {
				if bad := i == 2; bad != (Classify(e.err) == Gone && e.err != nil) {
					t.Errorf("%s: delete %d: %v", code, i, e.err)
				}
			}
		})
		w.wantSizes(t, 10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	}
}

// Each of them has the deadline it came with: one that hangs takes no time from
// the others, nor they from it.
func TestOneByOneEachHasItsOwnDeadline(t *testing.T) {
	w := &wire{
		refuse: &smithy.GenericAPIError{Code: "UnsupportedOperation"},
		hang:   func(receipt string) bool { return receipt != "works" },
	}
	batching(t, w, func(t *testing.T, q *Queue) {
		start := time.Now()
		leaveBy := start.Add(100 * time.Millisecond)
		var all sync.WaitGroup
		for _, c := range []struct {
			receipt string
			limit   time.Duration
			want    time.Duration
		}{
			{"hangs", 10 * time.Second, 10100 * time.Millisecond},
			{"hangs, too", time.Second, 1100 * time.Millisecond},
			{"works", 2 * time.Second, 100 * time.Millisecond},
		} {
			all.Go(func() {
				err := q.Delete(c.receipt, Deadline{LeaveBy: leaveBy, Limit: c.limit})
				if took := time.Since(start); took != c.want || (err == nil) != (c.receipt == "works") {
					t.Errorf("%s: %v after %v, want an answer after %v", c.receipt, err, took, c.want)
				}
			})
			synctest.Wait() // they join the batch in this order
		}
		all.Wait()
	})
	w.wantSizes(t, 3, 1, 1, 1)
}

// A batch that may work the next time is left to its callers to retry.
func TestFailedBatchIsNotSentAgain(t *testing.T) {
	w := &wire{refuse: &smithy.GenericAPIError{Code: "ServiceUnavailable", Fault: smithy.FaultServer}}
	batching(t, w, func(t *testing.T, q *Queue) {
		for i, e := range deleteAll(q, 10, time.Minute) {
			if !errors.Is(e.err, w.refuse) {
				t.Errorf("delete %d: %v", i, e.err)
			}
		}
	})
	w.wantSizes(t, 10)
}

func TestHungRequestDelaysOnlyItsOwn(t *testing.T) {
	w := &wire{hang: func(receipt string) bool { return receipt == "hung" }}
	batching(t, w, func(t *testing.T, q *Queue) {
		var all sync.WaitGroup
		all.Go(func() {
			start := time.Now()
			err := q.Delete("hung", Deadline{LeaveBy: start, Limit: 10 * time.Second})
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 10*time.Second {
				t.Errorf("hung: %v after %v, want its limit after 10s", err, time.Since(start))
			}
		})
		synctest.Wait()
		for i, e := range deleteAll(q, 25, 50*time.Millisecond) {
			if e.err != nil || e.took > 50*time.Millisecond {
				t.Errorf("delete %d: %v after %v", i, e.err, e.took)
			}
		}
		all.Wait()
	})
}

// B111: many requests are under way side by side when each takes its time, but not any
// number.
func TestSendersAreBounded(t *testing.T) {
	w := &wire{latency: time.Second}
	const rounds, senders = 3, 256 // not maxSenders, which has to be that many
	batching(t, w, func(t *testing.T, q *Queue) {
		start := time.Now()
		for i, e := range deleteAll(q, rounds*senders*BatchSize, time.Minute) {
			if e.err != nil {
				t.Errorf("delete %d: %v", i, e.err)
			}
		}
		if took := time.Since(start); took != rounds*time.Second {
			t.Errorf("took %v, want %d rounds of 1s", took, rounds)
		}
	})
	if w.mostOpen != senders {
		t.Errorf("up to %d requests were open, want %d", w.mostOpen, senders)
	}
}

// A caller with a limit gets an answer in time also if all senders hang: what
// is not sent by then must not be sent any more (V9).
func TestLimitHoldsWhenAllSendersHang(t *testing.T) {
	w := &wire{hang: func(string) bool { return true }}
	synctest.Test(t, func(t *testing.T) {
		q := New(t.Context(), w, "q", false, func(string, error) {})
		var latest time.Duration
		for i, e := range deleteAll(q, 5*maxSenders, 0) {
			if e.err == nil {
				t.Errorf("delete %d succeeded", i)
			}
			latest = max(latest, e.took)
		}
		if latest > 10*time.Second {
			t.Errorf("the last result came after %v, want all within their limit of 10s", latest)
		}
		q.Close()
	})
}

// B090: nothing is lost or sent twice, however entries, timers, withdrawals and
// flushes meet.
func TestNoEntryIsLostOrSentTwice(t *testing.T) {
	w := &wire{latency: 3 * time.Millisecond}
	const n = 2000
	withdrawn := make([]bool, n)
	batching(t, w, func(t *testing.T, q *Queue) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				time.Sleep(time.Duration(i%97) * time.Millisecond)
				c := newWaiting(strconv.Itoa(i), 0)
				q.BeginDelete(&c.Call, Deadline{LeaveBy: time.Now().Add(time.Duration(i%5) * time.Millisecond), Limit: time.Minute})
				if i%3 == 0 {
					time.Sleep(time.Duration(i%7) * time.Millisecond)
					if withdrawn[i] = c.Withdraw(); withdrawn[i] {
						return
					}
				}
				if err := <-c.result; err != nil {
					t.Errorf("call %d: %v", i, err)
				}
			})
		}
		time.Sleep(90 * time.Millisecond)
		q.Flush()
		all.Wait()
	})
	times := map[string]int{}
	for _, r := range w.requests {
		if len(r.receipts) == 0 || len(r.receipts) > BatchSize {
			t.Errorf("a request of %d entries", len(r.receipts))
		}
		for _, receipt := range r.receipts {
			times[receipt]++
		}
	}
	for i := range n {
		want := 1
		if withdrawn[i] {
			want = 0
		}
		if got := times[strconv.Itoa(i)]; got != want {
			t.Errorf("entry %d was sent %d times, want %d", i, got, want)
		}
	}
}

// ChangeAll makes the changes of a FIFO group one request after the other, so
// that they take effect in the order given (F3).
func TestChangeAllInOrder(t *testing.T) {
	for _, inOrder := range []bool{true, false} {
		t.Run(fmt.Sprintf("inOrder=%v", inOrder), func(t *testing.T) {
			c := &changes{}
			synctest.Test(t, func(t *testing.T) {
				q := New(t.Context(), c, "q", true, func(string, error) {})
				start := time.Now()
				list := make([]Change, 25)
				for i := range list {
					list[i] = Change{Receipt: strconv.Itoa(i), By: time.Now().Add(time.Hour)}
				}
				errs := q.ChangeAll(list, time.Minute, inOrder)
				if len(errs) != len(list) || errs[24] != nil {
					t.Errorf("errors: %v", errs)
				}
				want := time.Second
				if inOrder {
					want = 3 * time.Second
				}
				if took := time.Since(start); took != want {
					t.Errorf("took %v, want %v", took, want)
				}
				q.Close()
			})
			if inOrder && !slices.IsSortedFunc(c.receipts, func(a, b string) int { return number(a) - number(b) }) {
				t.Errorf("sent in the order %v", c.receipts)
			}
		})
	}
}

func number(s string) int { n, _ := strconv.Atoi(s); return n }

// changes is a client whose visibility changes take a second each.
type changes struct {
	Client
	mu       sync.Mutex
	receipts []string
}

func (c *changes) ChangeMessageVisibilityBatch(_ context.Context, in *sqs.ChangeMessageVisibilityBatchInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityBatchOutput, error) {
	c.mu.Lock()
	out := &sqs.ChangeMessageVisibilityBatchOutput{}
	for _, e := range in.Entries {
		c.receipts = append(c.receipts, *e.ReceiptHandle)
		out.Successful = append(out.Successful, types.ChangeMessageVisibilityBatchResultEntry{Id: e.Id})
	}
	c.mu.Unlock()
	time.Sleep(time.Second)
	return out, nil
}
