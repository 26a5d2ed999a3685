package sqstest

import (
	"slices"
	"time"
)

// A Call is one request as the server saw it.
type Call struct {
	Op          string    // the operation: "ReceiveMessage"
	Queue       string    // the queue's name; empty where the call names none
	At          time.Time // arrival
	Done        time.Time // answer, or the moment the server gave up on it; zero while the call runs
	MaxMessages int       // of a receive; 0 = not in the request
	WaitSeconds int       // of a receive; 0 = not in the request
	Visibility  int       // of a receive: the timeout asked for in seconds; -1 = not in the request
	AttemptID   string    // of a receive: its ReceiveRequestAttemptId
	Entries     []Entry   // of a receive: what it handed out; of a batch: its entries; of a single call: one
	Status      int       // HTTP status of the answer; 0 = the connection was broken or the client left
	Code        string    // the error's query code; empty = success
}

// An Entry is one message of a [Call].
type Entry struct {
	MessageID     string // of a delete or change: the message the handle was issued for; empty if never issued
	ReceiptHandle string
	GroupID       string // empty for none, and where the message is gone
	ReceiveCount  int    // of a receive
	Visibility    int    // seconds: asked for by a change, granted by a receive
	Code          string // of a batch call: the error of this entry alone
}

// Calls returns the calls so far in the order of their arrival, those that still run included.
//
// A receive whose client has left can still take messages, if StrandAbandonedPolls says so; they are among the
// entries of its call.
func (s *Server) Calls() []Call {
	s.lock()
	defer s.unlock()
	for _, q := range s.queues {
		q.advance(s.now) // for what abandoned polls have taken
	}
	calls := make([]Call, len(s.calls))
	for i, c := range s.calls {
		calls[i] = c.clone()
	}
	return calls
}

func (c *Call) clone() Call {
	copied := *c
	copied.Entries = slices.Clone(c.Entries)
	return copied
}
