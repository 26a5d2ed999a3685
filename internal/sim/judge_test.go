package sim

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqsub/sqsub"
)

// TestJudge changes the record of a run in which all went well, and expects the
// invariant to be broken that each change breaks.
func TestJudge(t *testing.T) {
	later := func(m moment, d time.Duration) moment { return moment{m.n, m.at.Add(d)} }
	for _, tt := range []struct {
		name, want string
		change     func(*record, *handling, *delivery)
	}{
		{"nothing", "", func(*record, *handling, *delivery) {}},
		{"deleted without success", "(a)", func(_ *record, h *handling, _ *delivery) { h.verdict = fails }},
		{"two handlers at once", "(b)", func(r *record, h *handling, _ *delivery) {
			twin := *h
			r.handlings = append(r.handlings, &twin)
		}},
		{"handled after its deletion", "(b)", func(_ *record, h *handling, _ *delivery) {
			h.gone, h.begun.n = true, 1<<30
		}},
		{"out of order", "(c)", func(_ *record, h *handling, _ *delivery) { h.before = "1" }},
		{"a request after the outcome", "(d)", func(r *record, _ *handling, d *delivery) {
			r.request(d.consumer.number, remove, d.handle, 0)
		}},
		{"a change after the end of the hold", "(d)", func(r *record, h *handling, d *delivery) {
			r.request(d.consumer.number, change, d.handle, 1).sent = later(h.begun, time.Hour)
		}},
		{"a handle nobody received", "(e)", func(r *record, _ *handling, d *delivery) {
			r.request(d.consumer.number, remove, "elsewhere", 0)
		}},
		{"a storm", "(f)", func(r *record, _ *handling, d *delivery) {
			for range mostPerHold + 30 {
				r.request(d.consumer.number, remove, d.handle, 0)
			}
		}},
		{"a slow stop", "(g)", func(r *record, _ *handling, _ *delivery) {
			r.stops[0].aborted = r.stops[0].done.Add(-time.Hour)
			for _, h := range r.handlings {
				h.ended.at = h.begun.at
			}
		}},
		{"no outcome", "(g)", func(_ *record, _ *handling, d *delivery) { d.finished = moment{} }},
		{"neglected", "(h)", func(_ *record, h *handling, d *delivery) {
			d.received.at = h.ended.at.Add(-time.Hour)
		}},
		{"two changes at once", "(d)", func(r *record, _ *handling, d *delivery) {
			r.request(d.consumer.number, change, d.handle, 1)
			r.request(d.consumer.number, change, d.handle, 1)
		}},
		{"a delay not heeded", "(h)", func(r *record, h *handling, d *delivery) {
			r.request(d.consumer.number, change, d.handle, 1)
			h.verdict, h.delay = retryAfter, time.Minute
		}},
		{"told of a loss that is none", "(b)", func(_ *record, h *handling, _ *delivery) {
			h.cause, h.cancelled = sqsub.ErrVisibilityLost, h.begun
		}},
		{"retried although it may be visible", "(d)", func(r *record, h *handling, d *delivery) {
			h.verdict = fails
			for range 2 {
				r.answered(r.request(d.consumer.number, change, d.handle, 0), errCut)
			}
			r.requests[len(r.requests)-1].sent.at = h.ended.at.Add(time.Second)
		}},
		{"hidden for long", "(h)", func(r *record, h *handling, d *delivery) {
			q := r.request(d.consumer.number, change, d.handle, 43200)
			q.sent = moment{h.ended.n, h.begun.at}
		}},
		{"not told that its hold is over", "does not cancel its handler", func(_ *record, h *handling, _ *delivery) {
			h.ended.at = h.begun.at.Add(time.Hour)
		}},
		{"begun when its hold is over", "after its hold was over", func(_ *record, h *handling, _ *delivery) {
			h.begun.at = h.begun.at.Add(time.Hour)
		}},
		{"an end without a reason", "(g)", func(r *record, _ *handling, _ *delivery) { r.stops[0].err = errCut }},
		{"no end without a queue", "(g)", func(r *record, _ *handling, _ *delivery) {
			s := r.stops[0]
			r.polls[s.consumer] = []poll{{s.at, s.at.Add(-2 * missingLimit), true}, {s.at.Add(-missingLimit), s.at.Add(-missingLimit), true}}
		}},
		{"an effect on the queue that took the place of its own", "(d)", func(r *record, h *handling, d *delivery) {
			h.consumer.gaps = []span{{0, d.received.at.Sub(r.began) + 1}}
			q := r.request(d.consumer.number, remove, d.handle, 0)
			r.answered(q, nil)
		}},
		{"not deleted", "(a)", func(r *record, _ *handling, d *delivery) {
			for _, q := range r.requests {
				if q.handle == d.handle {
					q.op = change
				}
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(fairSeed(t))
				f.live()
				for _, h := range f.record.handlings {
					if h.verdict == succeeds {
						tt.change(f.record, h, f.record.deliveries[h.handle])
						break
					}
				}
				problems := strings.Join(f.judge(), "\n")
				if !strings.Contains(problems, tt.want) || tt.want == "" && problems != "" {
					t.Errorf("want a problem of %q, got:\n%s", tt.want, problems)
				}
			})
		})
	}
}

// fairSeed is the first seed of a run in which nothing goes wrong.
func fairSeed(t *testing.T) Seed {
	for seed := range Seed(1000) {
		if p := newPlan(seed); p.fair() && p.temper.failing == 0 && p.length < time.Hour && len(p.messages) > 3 && len(p.acts) == 0 {
			return seed
		}
	}
	t.Fatal("no seed is fair")
	return 0
}
