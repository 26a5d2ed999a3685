package queue

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// What is run at once runs side by side, and what comes later takes the goroutines
// that are there, the last to become idle first.
func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pool
		start, ended := time.Now(), make(chan time.Duration, 10)
		work := func() {
			time.Sleep(time.Second)
			ended <- time.Since(start)
		}
		idle := func() []chan func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			return slices.Clone(p.idle)
		}
		for range 3 {
			p.run(work)
		}
		time.Sleep(time.Minute)
		want := idle()
		if len(want) != 3 {
			t.Fatalf("%d goroutines idle, want 3", len(want))
		}
		for range 2 {
			p.run(work)
			synctest.Wait()
			if got := idle(); !slices.Equal(got, want[:2]) {
				t.Errorf("%d goroutines idle, or another one was used", len(got))
			}
			time.Sleep(time.Minute)
		}
		p.close()
		close(ended)
		var at []time.Duration
		for d := range ended {
			at = append(at, d)
		}
		if want := []time.Duration{time.Second, time.Second, time.Second, 61 * time.Second, 121 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("calls ended at %v, want %v", at, want)
		}
	})
}

// The end waits for what still runs, and for what that runs.
func TestPoolEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pool
		start := time.Now()
		var inner time.Duration
		p.run(func() {
			time.Sleep(time.Second)
			p.run(func() {
				time.Sleep(time.Second)
				inner = time.Since(start)
			})
		})
		p.close()
		if took := time.Since(start); took != 2*time.Second || inner != took {
			t.Errorf("closed after %v, the inner call after %v, want 2s", took, inner)
		}
	})
}

// What is kept for later is bounded.
func TestPoolAfterABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pool
		for range 3 {
			ran := make(chan bool, 2*maxIdle)
			for range 2 * maxIdle {
				p.run(func() {
					time.Sleep(time.Second)
					ran <- true
				})
			}
			time.Sleep(time.Minute)
			p.mu.Lock()
			if n := len(ran); n != 2*maxIdle || len(p.idle) != maxIdle {
				t.Errorf("%d of %d calls ran, %d goroutines stay", n, 2*maxIdle, len(p.idle))
			}
			p.mu.Unlock()
		}
		p.close()
	})
}
