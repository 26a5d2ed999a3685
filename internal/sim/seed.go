package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// A Seed decides everything about a run.
type Seed uint64

// draw returns the random numbers for one decision, a function of the seed and
// of what the decision is about.
func (s Seed) draw(about ...any) draw {
	h := fnv.New64a()
	fmt.Fprint(h, about...)
	return draw{rand.New(rand.NewPCG(uint64(s), h.Sum64()))}
}

type draw struct{ *rand.Rand }

// chance is true with probability p.
func (d draw) chance(p float64) bool { return d.Float64() < p }

// within is a duration from 0 to limit.
func (d draw) within(limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	return time.Duration(d.Int64N(int64(limit) + 1))
}

// skewed is a duration from 0 to limit, mostly short.
func (d draw) skewed(limit time.Duration) time.Duration {
	x := d.Float64()
	return time.Duration(x * x * x * float64(limit))
}

func pick[T any](d draw, choices ...T) T { return choices[d.IntN(len(choices))] }
