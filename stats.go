package sqsub

import (
	"sync/atomic"
	"time"
)

// Stats are the numbers of a [Subscription] at one moment. The counts are since
// [Subscribe]; what they count is explained at [Outcome].
type Stats struct {
	Receiving int // receives open now
	InFlight  int // deliveries in hand: waiting, running, or being settled
	Waiting   int // of them, those whose handler has not been started, or will not be
	Settling  int // of them, those whose handler has returned; the rest is running

	Received          uint64 // messages
	Deleted           uint64 // after success, late ones included
	DeletedLate       uint64 // of them and of the discarded, those whose visibility had been lost
	Discarded         uint64
	Retried           uint64
	Released          uint64
	Unsettled         uint64
	Lost              uint64    // with that outcome: neither deleted nor handed back
	VisibilityLost    uint64    // deliveries whose visibility was lost
	Extended          uint64    // extensions granted
	ExtendFailures    uint64    // tries to extend that failed, but for those that a delete had overtaken
	SettleFailures    uint64    // tries to delete or to hand back that failed
	ReceiveFailures   uint64    // receives that failed
	ReceivesAbandoned uint64    // receives that timed out or that a stop aborted, and may have stranded messages until their timeout lapses
	LastReceive       time.Time // when the last receive succeeded, with messages or without; zero before the first

	// ReceivesFailSince is since when receives have failed without a success in
	// between, for health checks; zero while they succeed, and before the first failure.
	ReceivesFailSince time.Time
}

// counters are the Stats while they are counted.
type counters struct {
	receiving, inFlight, waiting, settling                       atomic.Int64
	received, deleted, deletedLate, discarded, retried, released atomic.Uint64
	unsettled, lost, visibilityLost, extended, extendFailures    atomic.Uint64
	settleFailures, receiveFailures, receivesAbandoned           atomic.Uint64
	lastReceive, receivesFailSince                               atomic.Pointer[time.Time]
}

func (c *counters) snapshot() Stats {
	st := Stats{
		Receiving:         int(c.receiving.Load()),
		InFlight:          int(c.inFlight.Load()),
		Waiting:           int(c.waiting.Load()),
		Settling:          int(c.settling.Load()),
		Received:          c.received.Load(),
		Deleted:           c.deleted.Load(),
		DeletedLate:       c.deletedLate.Load(),
		Discarded:         c.discarded.Load(),
		Retried:           c.retried.Load(),
		Released:          c.released.Load(),
		Unsettled:         c.unsettled.Load(),
		Lost:              c.lost.Load(),
		VisibilityLost:    c.visibilityLost.Load(),
		Extended:          c.extended.Load(),
		ExtendFailures:    c.extendFailures.Load(),
		SettleFailures:    c.settleFailures.Load(),
		ReceiveFailures:   c.receiveFailures.Load(),
		ReceivesAbandoned: c.receivesAbandoned.Load(),
	}
	st.LastReceive = c.lastReceived()
	if t := c.receivesFailSince.Load(); t != nil {
		st.ReceivesFailSince = *t
	}
	return st
}

func (c *counters) lastReceived() time.Time {
	if t := c.lastReceive.Load(); t != nil {
		return *t
	}
	return time.Time{}
}
