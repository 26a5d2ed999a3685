// Command replay runs seeds of the simulation so that each goes the same way
// every time.
//
//	go run ./internal/sim/replay -seed 7                 one seed
//	go run ./internal/sim/replay -seed 7 -schedules 100  in 100 schedules
//	go run ./internal/sim/replay -seeds 1000 -from 1     many seeds
//	go run ./internal/sim/replay -seed 7 -schedule 42 -times 10 -history
//
// It stops at the first run that fails, and says how to have that one again. A
// schedule is one of the ways in which the goroutines of a seed can take turns:
// what failed in a plain run of the seed may need some tries to be found here,
// but comes back every time then. The digest that a run ends with is of all that
// happened in it, in order.
//
// It builds the tests of the simulation with a patched copy of Go's runtime, see
// patches, and runs each in a process of its own, on one processor and without
// garbage collection: a seed that simulates half a day takes 2 GB of memory.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
)

var (
	seed      = flag.Uint64("seed", 0, "the one seed to run")
	seeds     = flag.Uint64("seeds", 1, "how many seeds to run")
	from      = flag.Uint64("from", 1, "the first of them")
	schedule  = flag.Uint64("schedule", 0, "the one schedule to run, or the first")
	schedules = flag.Uint64("schedules", 1, "how many schedules to run of each seed")
	times     = flag.Int("times", 1, "how often to run each, to see that nothing differs")
	history   = flag.Bool("history", false, "print everything that happens")
)

func main() {
	flag.Parse()
	if err := replay(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func replay() error {
	dir, err := os.MkdirTemp("", "replay")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := simulation{program: filepath.Join(dir, "sim.test"), history: *history}
	if err := build(dir, s.program); err != nil {
		return err
	}
	if *seed != 0 {
		*seeds, *from = 1, *seed
	}
	all := make([]run, 0, *seeds**schedules)
	for n := range *seeds {
		for k := range *schedules {
			all = append(all, run{*from + n, *schedule + k})
		}
	}
	if err := s.each(all, *times); err != nil {
		return err
	}
	if len(all) > 1 {
		fmt.Printf("%d runs, none fails\n", len(all))
	}
	return nil
}

// A run is a seed in a schedule.
type run struct{ seed, schedule uint64 }

// A simulation is a program that makes runs.
type simulation struct {
	program string
	history bool
}

// each makes all runs until one fails, or does not go the same way each time.
func (s simulation) each(all []run, times int) error {
	todo := make(chan run)
	failed := make(chan error, len(all))
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for r := range todo {
				out, err := s.repeat(r, times)
				if err != nil {
					failed <- err
				} else if len(all) == 1 {
					fmt.Print(out)
				}
			}
		})
	}
	for _, r := range all {
		if len(failed) > 0 {
			break
		}
		todo <- r
	}
	close(todo)
	workers.Wait()
	close(failed)
	return <-failed
}

// repeat makes a run several times.
func (s simulation) repeat(r run, times int) (first string, err error) {
	for n := range times {
		out, runErr := s.once(r)
		if n > 0 && essence(out) != essence(first) {
			return "", fmt.Errorf("%s\n%s\nseed %d, schedule %d: run %d differs from the first", first, out, r.seed, r.schedule, n+1)
		}
		first, err = cmp.Or(first, out), runErr
	}
	if err != nil {
		err = fmt.Errorf("%s\nseed %d fails (%w); replay with: go run ./internal/sim/replay -seed %d -schedule %d", first, r.seed, err, r.seed, r.schedule)
	}
	return first, err
}

// once makes a run, and returns what it prints.
func (s simulation) once(r run) (string, error) {
	cmd := exec.Command(s.program, "-test.run=^TestExact$", "-test.timeout=5m",
		fmt.Sprint("-sim.seed=", r.seed), fmt.Sprint("-sim.schedule=", r.schedule), fmt.Sprint("-sim.history=", s.history))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=off", "GODEBUG=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// incidental is what differs in the output of equal runs: how long they took,
// and the stacks after a panic.
var incidental = regexp.MustCompile(`\(\d+\.\d\ds\)|(?s:\n(\[signal|goroutine ).*)`)

func essence(out string) string { return incidental.ReplaceAllString(out, "") }
