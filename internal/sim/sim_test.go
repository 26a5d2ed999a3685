package sim

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	seeds = flag.Int("sim.seeds", 150, "how many seeds to run")
	from  = flag.Uint64("sim.from", 1, "the first seed")
	only  = flag.Uint64("sim.seed", 0, "the one seed to run")
)

// TestFleets runs one fleet after another. The package comment says how to
// replay a seed that fails.
func TestFleets(t *testing.T) {
	first, last := *from, *from+uint64(*seeds)-1
	if *only != 0 {
		first, last = *only, *only
	}
	var mu sync.Mutex
	var sum Result
	t.Cleanup(func() {
		t.Logf("%d seeds, %.1f simulated hours: %d messages, %d handlings (%d lost, %d overlaps), %d calls, %d faults",
			last-first+1, sum.Simulated.Hours(), sum.Messages, sum.Handlings, sum.Lost, sum.Overlaps, sum.Calls, sum.Faults)
	})
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			res := run(t, Seed(seed))
			mu.Lock()
			defer mu.Unlock()
			sum.add(res)
		})
	}
}

// run makes the run of a seed in a bubble of its own, and sees to it that the
// seed is named whatever happens.
func run(t *testing.T, seed Seed) (res Result) {
	replay := fmt.Sprintf("replay with: go run ./internal/sim/replay -seed %d -schedules 100", seed)
	watchdog := time.AfterFunc(2*time.Minute, func() { fmt.Fprintf(os.Stderr, "seed %d hangs; %s\n", seed, replay) })
	defer watchdog.Stop()
	defer func() {
		if v := recover(); v != nil {
			panic(fmt.Sprintf("seed %d: %v; %s", seed, v, replay))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		res = Run(seed)
	})
	if len(res.Problems) > 0 {
		t.Errorf("seed %d:\n%s\n%s", seed, strings.Join(res.Problems, "\n"), replay)
	}
	return res
}

func (r *Result) add(other Result) {
	r.Simulated += other.Simulated
	r.Messages += other.Messages
	r.Handlings += other.Handlings
	r.Calls += other.Calls
	r.Faults += other.Faults
	r.Lost += other.Lost
	r.Overlaps += other.Overlaps
}
