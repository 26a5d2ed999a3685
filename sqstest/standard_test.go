package sqstest_test

import (
	"fmt"
	"testing"
	"time"
)

func TestReceivedMessageIsHiddenUntilItsTimeoutLapses(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.standard("VisibilityTimeout", "40")
		f.send("a")
		f.receiveOne()
		f.wantStates("a in flight 40s")
		time.Sleep(40*time.Second - time.Nanosecond)
		f.wantReceive()
		time.Sleep(time.Nanosecond)
		if m := f.receiveOne(); count(m) != 2 {
			t.Errorf("receive count %d, want 2", count(m))
		}
	})
}

// V5, V6, R18.
func TestExtensionBeyondTwelveHoursIsRefused(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.standard()
		f.send("a")
		m := f.receiveOne()
		time.Sleep(10 * time.Second)
		f.wantError(f.change(m, 43191), "InvalidParameterValue", "Value 43191 for parameter VisibilityTimeout is invalid. "+
			"Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds]")
		f.wantStates("a in flight 20s")
		f.must(f.change(m, 43190))
		f.wantStates(fmt.Sprintf("a in flight %v", 43190*time.Second))
	})
}

// V8, first rows: on a standard queue any handle of the message acts on it.
func TestOldHandleOfStandardQueueActsOnTheNewDelivery(t *testing.T) {
	bubble(t, func(f *fixture) {
		f.standard()
		f.send("a")
		old := f.receiveOne(visibility(1))
		time.Sleep(time.Second)
		f.receiveOne()
		f.must(f.change(old, 0))
		f.wantStates("a visible")
		f.receiveOne()
		f.must(f.delete(old))
		f.wantStates()
	})
}
