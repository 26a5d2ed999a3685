package main

import (
	"errors"
	"path/filepath"
	"testing"

	_ "github.com/sqsub/sqsub/internal/sim" // what is run here: a change of it has the test run again
)

// TestReplay runs some seeds several times, and expects that each goes the same
// way every time, and another way in another schedule.
func TestReplay(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the standard library")
	}
	dir := t.TempDir()
	s := simulation{program: filepath.Join(dir, "sim.test")}
	err := build(dir, s.program)
	if other := otherGo(""); errors.As(err, &other) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	var all []run
	for seed := range uint64(10) {
		all = append(all, run{seed + 1, 0}, run{seed + 1, 1})
	}
	if err := s.each(all, 3); err != nil {
		t.Error(err)
	}
	one, _ := s.once(run{1, 0})
	two, _ := s.once(run{1, 1})
	if one == two {
		t.Errorf("two schedules go the same way:\n%s", one)
	}
}
