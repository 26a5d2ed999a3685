package sqstest

import (
	"net/http"
	"slices"
	"time"
)

// A Fault is what goes wrong with a call. The zero Fault is none. Several can be combined, such as a Delay and an
// error.
//
// Hang, Reset, Truncate and an error happen instead of the call, which then has no effect. With After they happen
// to its answer: a message is received and nobody knows, a delete is done and reported as failed.
type Fault struct {
	Delay time.Duration // before the call takes effect
	Lag   time.Duration // after its effect and before its answer

	Refuse   bool // no connection comes about, and the call never has an effect; over HTTP it breaks, as with Reset
	Hang     bool // no answer until the client gives up
	Reset    bool // the connection breaks instead of an answer
	Truncate bool // the answer is cut off in the middle
	After    bool // Hang, Reset, Truncate and the error come after the effect of the call, not instead of it

	// The answer is an error. Code is a query code ("RequestThrottled"); the name of the type and the HTTP status
	// follow from it unless Status is set. A Status without a Code is an answer with an empty body. Body takes the
	// place of the JSON document: an XML or HTML page, say.
	Status  int
	Code    string
	Message string
	Body    string

	FailEntries []int // positions in a batch that fail with InternalError and have no effect

	BadMD5    bool // a receive tells a wrong MD5OfBody: SDKs then refuse the whole response
	Duplicate bool // a receive hands each of its messages out twice, with two handles; needs room for two messages
	Empty     bool // a receive finds nothing, at once, whatever the queue holds
}

// Inject has f decide what goes wrong. The server calls f on the arrival of each call, before it takes effect and
// without holding a lock, so f may use the server; calls arriving together call f concurrently. A nil f ends all
// faults; calls already underway keep theirs.
//
// Retries of the SDK are calls of their own. To fail just the first, let f count.
func (s *Server) Inject(f func(Call) Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inject = f
}

// answers reports whether the fault brings an answer of its own.
func (f *Fault) answers() bool { return f.Code != "" || f.Status != 0 || f.Body != "" }

// instead reports whether the call has no effect.
func (f *Fault) instead() bool {
	return f.Refuse || !f.After && (f.Hang || f.Reset || f.Truncate || f.answers())
}

func (f *Fault) fails(entry int) bool { return slices.Contains(f.FailEntries, entry) }

func (f *Fault) answer(queryMode bool) answer {
	if f.Code == "" {
		status := f.Status
		if status == 0 {
			status = http.StatusOK
		}
		return answer{status: status, body: []byte(f.Body), raw: true}
	}
	a := errorAnswer(&apiError{errorKind: kindOf(f.Code), message: f.Message}, queryMode)
	if f.Status != 0 {
		a.status = f.Status
		a.setFault(queryMode)
	}
	if f.Body != "" {
		a.body, a.raw = []byte(f.Body), true
	}
	return a
}
