package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A patch changes a line of Go's own source.
type patch struct{ file, old, new string }

// patches take out of a bubble what makes two runs of it differ. What is drawn
// for a bubble comes from a generator of the bubble, and not from one of the
// thread, which other goroutines and the runtime itself use too.
var patches = []patch{
	{"runtime/synctest.go", "\tnow     int64  // current fake time\n", `	now     int64
	drawn   uint64 // state of the generator
`},
	{"runtime/rand.go", "// rand32 is uint32(rand())", `
// draw is wyrand, as in cheaprand.
//
//go:nosplit
func (bubble *synctestBubble) draw() uint64 {
	bubble.drawn += 0xa0761d6478bd642f
	hi, lo := math.Mul64(bubble.drawn, bubble.drawn^0xe7037ed1a0b428db)
	return hi ^ lo
}

//go:linkname seedBubble
func seedBubble(seed uint64) { getg().bubble.drawn = seed }

// rand32 is uint32(rand())`},

	// The order of maps, math/rand/v2.
	{"runtime/rand.go", "\tmp := getg().m\n\tc := &mp.chacha8\n", `	mp := getg().m
	if gp := mp.curg; gp != nil && gp.bubble != nil {
		return gp.bubble.draw()
	}
	c := &mp.chacha8
`},
	// The hash function of maps, the place of the heap.
	{"runtime/rand.go", "\tglobalRand.state.Init(*seed)\n", `	clear(seed[:])
	globalRand.state.Init(*seed)
`},
	// The order of timers that are due at one instant.
	{"runtime/time.go", "t.rand = cheaprand()", "t.rand = uint32(getg().bubble.draw())"},
	// The choice of select.
	{"runtime/select.go", "\t\tj := cheaprandn(uint32(norder + 1))\n", `		j := cheaprandn(uint32(norder + 1))
		if gp.bubble != nil {
			j = uint32(gp.bubble.draw() % uint64(norder+1))
		}
`},
	// Which goroutine runs next: drawn, as it is with the race detector.
	{"runtime/proc.go", "if randomizeScheduler && next && randn(2) == 0 {", "if next && gp.bubble != nil && gp.bubble.draw()&1 == 0 {"},
	// What depends on how many turns other goroutines have had, or on how long
	// they took.
	{"runtime/proc.go", "if pp.schedtick%61 == 0 && !sched.runq.empty() {", "if false {"},
	{"runtime/proc.go", "const forcePreemptNS = 10 * 1000 * 1000", "const forcePreemptNS = 1 << 60"},
	{"internal/sync/mutex.go", "starvationThresholdNs = 1e6", "starvationThresholdNs = 1 << 62"},
}

// An otherGo is an error that says that the patches do not fit this Go.
type otherGo string

func (e otherGo) Error() string { return string(e) }

// build builds the tests of the simulation with the patches.
func build(dir, program string) error {
	overlay, err := writeOverlay(dir)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "test", "-c", "-tags=replay", "-overlay="+overlay, "-o="+program, "github.com/sqsub/sqsub/internal/sim")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the simulation: %w\n%s", err, out)
	}
	return nil
}

// writeOverlay writes the patched files, and what tells the go command of them.
func writeOverlay(dir string) (string, error) {
	out, err := exec.Command("go", "env", "GOVERSION", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return "", err
	}
	env := strings.Split(strings.TrimSpace(string(out)), "\n")
	version, goroot, cache := env[0], env[1], env[2]
	switch {
	case !strings.HasPrefix(version, "go1.26"):
		return "", otherGo("replay is for Go 1.26, this is " + version)
	case strings.HasPrefix(goroot, cache):
		return "", otherGo("replay cannot patch a Go that the go command has downloaded: install " + version)
	}
	src := filepath.Join(goroot, "src")
	texts := make(map[string]string)
	for _, p := range patches {
		file := filepath.Join(src, p.file)
		if texts[file] == "" {
			text, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			texts[file] = string(text)
		}
		if strings.Count(texts[file], p.old) != 1 {
			return "", otherGo(fmt.Sprintf("replay is for another version of Go: %s has no line %q", file, p.old))
		}
		texts[file] = strings.Replace(texts[file], p.old, p.new, 1)
	}
	replace := make(map[string]string)
	for file, text := range texts {
		replace[file] = filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(file, src), string(filepath.Separator), "_"))
		if err := os.WriteFile(replace[file], []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, overlay, 0o644)
}
