//go:build replay && go1.26

package sim

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	_ "unsafe" // for go:linkname
)

var (
	schedule = flag.Uint64("sim.schedule", 0, "which of its interleavings the seed is run in")
	whole    = flag.Bool("sim.history", false, "print everything that happened")
)

// seedBubble seeds what the runtime draws for the bubble of its caller. The
// runtime has it from package replay.
//
//go:linkname seedBubble runtime.seedBubble
func seedBubble(uint64)

// TestExact runs one seed in one schedule. Package replay runs it, each time in a
// process of its own.
func TestExact(t *testing.T) {
	cryptotest.SetGlobalRandom(t, *only)
	var res Result
	var story string
	synctest.Test(t, func(*testing.T) {
		seedBubble(*schedule<<32 ^ *only)
		f := newFleet(Seed(*only))
		f.live()
		res = f.result()
		story = f.story(res)
	})
	if *whole {
		fmt.Println(story)
	}
	if len(res.Problems) > 0 {
		fmt.Println(strings.Join(res.Problems, "\n"))
		t.Fail()
	}
	fmt.Printf("digest %x\n", sha256.Sum256([]byte(story)))
}

// story is everything that happened: the history of all messages, the calls as
// the server saw them, and what was wrong with it.
func (f *fleet) story(res Result) string {
	lines := []string{f.record.history(sortedKeys(f.record.sent)...)}
	for _, c := range f.server.Calls() {
		c.At, c.Done = c.At.Round(0), c.Done.Round(0) // the monotonic clock began with the process
		lines = append(lines, fmt.Sprintf("%+v", c))
	}
	return strings.Join(append(lines, res.Problems...), "\n")
}
