package sqstest_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// modelled is a message of a queue so simple that it must be right: a list, searched from its beginning.
type modelled struct {
	body, group string
	visibleAt   time.Time
	received    bool
	handle      types.Message
}

func (m *modelled) visible() bool { return !m.visibleAt.After(time.Now()) }

// deliverable are the bodies a receive brings, by F1 and F2 on a FIFO queue.
func deliverable(list []*modelled, fifo bool) []string {
	blocked := map[string]bool{}
	var ok []*modelled
	for _, m := range list {
		if !m.visible() {
			blocked[m.group] = fifo
		} else if !blocked[m.group] {
			ok = append(ok, m)
		}
	}
	if fifo {
		var groups []string
		for _, m := range ok {
			if !slices.Contains(groups, m.group) {
				groups = append(groups, m.group)
			}
		}
		slices.SortStableFunc(ok, func(a, b *modelled) int {
			return slices.Index(groups, a.group) - slices.Index(groups, b.group)
		})
	}
	var bodies []string
	for _, m := range ok[:min(len(ok), 10)] {
		bodies = append(bodies, m.body)
	}
	return bodies
}

// Random operations do to the server what they do to the model.
func TestServerDoesAsTheModelDoes(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprintf("fifo=%v/seed=%d", fifo, seed), func(t *testing.T) {
				bubble(t, func(t *testing.T, f *fixture) { runModel(f, fifo, rand.New(rand.NewPCG(seed, 0))) })
			})
		}
	}
}

func runModel(f *fixture, fifo bool, random *rand.Rand) {
	if fifo {
		f.fifo()
	} else {
		f.standard()
	}
	var list []*modelled
	inFlight := func() *modelled {
		var all []*modelled
		for _, m := range list {
			if m.received && !m.visible() {
				all = append(all, m)
			}
		}
		if len(all) == 0 {
			return nil
		}
		return all[random.IntN(len(all))]
	}
	for step := range 300 {
		switch m := inFlight(); random.IntN(6) {
		case 0, 1:
			sent := &modelled{body: fmt.Sprint(step), group: fmt.Sprint(random.IntN(5))}
			f.sendTo(sent.group, sent.body)
			list = append(list, sent)
		case 2:
			want := deliverable(list, fifo)
			seconds := 1 + random.Int32N(20)
			got := f.receive(visibility(seconds))
			if !slices.Equal(bodies(got), want) {
				f.Fatalf("step %d: received %q, want %q", step, bodies(got), want)
			}
			for _, r := range got {
				i := slices.IndexFunc(list, func(m *modelled) bool { return m.body == *r.Body })
				list[i].received, list[i].handle = true, r
				list[i].visibleAt = time.Now().Add(time.Duration(seconds) * time.Second)
			}
		case 3:
			if m != nil {
				seconds := random.Int32N(20)
				f.must(f.change(m.handle, seconds))
				m.visibleAt = time.Now().Add(time.Duration(seconds) * time.Second)
			}
		case 4:
			if m != nil {
				f.must(f.delete(m.handle))
				list = slices.DeleteFunc(list, func(x *modelled) bool { return x == m })
			}
		case 5:
			time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
		}
		var want []string
		for _, m := range list {
			want = append(want, fmt.Sprint(m.body, m.visible()))
		}
		var got []string
		for _, m := range f.Messages("q" + map[bool]string{true: ".fifo"}[fifo]) {
			got = append(got, fmt.Sprint(m.Body, m.State == "visible"))
		}
		if !slices.Equal(got, want) {
			f.Fatalf("step %d: queue holds %q, want %q", step, got, want)
		}
	}
}

// Many clients at once: each message is deleted once, those of a FIFO group in order, and nobody waits in vain.
func TestConcurrentConsumers(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		bubble(t, func(t *testing.T, f *fixture) {
			f.standard()
			if fifo {
				f.fifo()
			}
			const groups, each = 10, 20
			var mu sync.Mutex
			done := map[string][]string{}
			left := groups * each
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for start := time.Now(); time.Since(start) < time.Minute; {
						messages, err := f.tryReceive(t.Context(), wait(20), atMost(3))
						if err != nil {
							t.Error(err)
							return
						}
						for _, m := range messages {
							mu.Lock()
							g := m.Attributes["MessageGroupId"]
							done[g] = append(done[g], *m.Body)
							left--
							mu.Unlock()
							if err := f.delete(m); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
			for g := range groups {
				wg.Go(func() {
					for i := range each {
						_, err := f.client.SendMessage(t.Context(), &sqs.SendMessageInput{
							QueueUrl: &f.url, MessageGroupId: aws.String(fmt.Sprint(g)), MessageBody: aws.String(fmt.Sprintf("%d-%03d", g, i)),
						})
						if err != nil {
							t.Error(err)
						}
						time.Sleep(time.Second)
					}
				})
			}
			wg.Wait()
			if left != 0 {
				t.Errorf("%d messages left", left)
			}
			for g, list := range done {
				if fifo && !slices.IsSorted(list) {
					t.Errorf("group %s out of order: %q", g, list)
				}
			}
			f.wantStates()
		})
	}
}
