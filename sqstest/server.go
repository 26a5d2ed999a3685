package sqstest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	accountID       = "123456789012"
	defaultRegion   = "us-east-1"
	defaultInFlight = 120_000 // R14, R15
)

// A Server is an in-memory SQS. It serves any number of concurrent callers, and starts no goroutine: what is to
// happen at a later time is done by the next call that could see it.
//
// The exported fields are settings. Set them before the first call.
type Server struct {
	// InFlightLimit is how many messages of a queue can be in flight. Beyond it a standard queue answers OverLimit
	// to a short poll; long polls, and all polls of a FIFO queue, find nothing. Defaults to 120,000.
	InFlightLimit int

	// StrandAbandonedPolls makes a long poll outlive its client, as happens with SQS: when the client leaves, the
	// poll stays open for the rest of its wait time. The first messages it finds are received by nobody and stay
	// hidden for their visibility timeout. By default a poll ends with its client.
	StrandAbandonedPolls bool

	// AttributeLag is how long SetQueueAttributes takes to come into force. SQS says up to a minute. Defaults to
	// none.
	AttributeLag time.Duration

	seed uint64 // makes the ids and handles of this server its own

	mu          sync.Mutex // guards what follows and all queues; never held while a call waits
	now         time.Time  // the instant at which everything under the present lock happens
	touched     []*queue   // the queues whose polls may have something to do
	queues      map[string]*queue
	deleted     map[string]time.Time // when a queue of that name was deleted
	queueSerial uint32
	serial      uint64 // of the last message
	order       uint64 // of the last place in a queue
	calls       []*Call
	inject      func(Call) Fault
}

// NewServer returns a server without queues.
func NewServer() *Server {
	return &Server{
		seed:    rand.Uint64(),
		queues:  map[string]*queue{},
		deleted: map[string]time.Time{},
	}
}

func (s *Server) lock() {
	s.mu.Lock()
	s.now = time.Now()
}

// unlock lets the polls of the touched queues have what has become visible.
func (s *Server) unlock() {
	for len(s.touched) > 0 {
		q := s.touched[len(s.touched)-1]
		s.touched = s.touched[:len(s.touched)-1]
		q.serve()
	}
	s.mu.Unlock()
}

func (s *Server) touch(q *queue) {
	if !slices.Contains(s.touched, q) {
		s.touched = append(s.touched, q)
	}
}

func (s *Server) inFlightLimit() int {
	if s.InFlightLimit > 0 {
		return s.InFlightLimit
	}
	return defaultInFlight
}

// exchange is one request with what it needs to be answered.
type exchange struct {
	*Server
	w     http.ResponseWriter
	r     *http.Request
	call  *Call // in the log, so guarded by the server's lock
	fault Fault
}

// input is the decoded body of a request: one type per operation.
type input interface {
	// queueName is the queue the request is about, by URL or name.
	queueName() string
	// describe enters into the log what the request says. It runs under the lock.
	describe(*Server, *Call)
	// run does what the request asks. The result is the answer's document, nil for an empty one. An error that is
	// no *apiError says that the client has left.
	run(*exchange) (any, error)
}

// ServeHTTP answers one request of SQS's JSON protocol. It accepts any path: the operation is in the X-Amz-Target
// header, the queue in the body.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { // any path: W2, W15
	arrived := time.Now()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has left
	}
	x := &exchange{Server: s, w: w, r: r}
	op := strings.TrimPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	in, err := decode(op, body)
	x.begin(op, arrived, in)

	present := x.pause(x.fault.Delay)
	var a answer
	if present {
		a, present = x.answer(in, err)
	}
	if !present || !x.pause(x.fault.Lag) {
		x.end(0, "") // the client has left
		return
	}
	x.send(a)
}

func decode(op string, body []byte) (input, error) {
	newInput, ok := operations[op]
	if !ok {
		return nil, invalidAction.errorf("The action %s is not valid for this endpoint.", op)
	}
	in := newInput()
	if err := json.Unmarshal(body, in); err != nil {
		return nil, serializationException.errorf("%s", err)
	}
	return in, nil
}

// begin enters the call into the log and asks what is to go wrong with it.
func (x *exchange) begin(op string, arrived time.Time, in input) {
	x.call = &Call{Op: op, At: arrived}
	x.lock()
	if in != nil {
		_, x.call.Queue, _ = splitQueue(in.queueName())
		in.describe(x.Server, x.call)
	}
	x.calls = append(x.calls, x.call)
	inject := x.inject
	seen := x.call.clone()
	x.unlock()
	if inject != nil {
		x.fault = inject(seen)
	}
}

// end closes the call's entry in the log.
func (x *exchange) end(status int, code string) {
	x.lock()
	defer x.unlock()
	x.call.Done, x.call.Status, x.call.Code = x.now, status, code
}

// pause waits, and reports whether the client did too.
func (x *exchange) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-x.ctx().Done():
		return false
	}
}

// answer is what comes back, and false if the client has left meanwhile.
func (x *exchange) answer(in input, err error) (answer, bool) {
	var out any
	if err == nil && !x.fault.instead() {
		out, err = in.run(x)
	}
	refused, isAnswer := err.(*apiError)
	switch {
	case err != nil && !isAnswer:
		return answer{}, false
	case x.fault.answers():
		return x.fault.answer(x.queryMode()), true
	case err != nil:
		return errorAnswer(refused, x.queryMode()), true
	}
	return dataAnswer(out), true
}

// send puts the answer on the wire, unless a fault prevents it.
func (x *exchange) send(a answer) {
	switch {
	case x.fault.Refuse:
		x.end(0, "")
		if w, ok := x.w.(*recorder); ok {
			w.refused = true
		}
		panic(http.ErrAbortHandler)
	case x.fault.Hang:
		<-x.ctx().Done()
		x.end(0, "")
		return
	case x.fault.Reset:
		x.end(0, "")
		panic(http.ErrAbortHandler)
	}
	x.end(a.status, a.code)
	if x.fault.Truncate && len(a.body) < 2 {
		a.body = []byte("{}") // so that there is something to cut off
	}
	a.writeHeader(x.w, len(a.body))
	if x.fault.Truncate {
		x.w.Write(a.body[:len(a.body)/2])
		http.NewResponseController(x.w).Flush()
		panic(http.ErrAbortHandler)
	}
	x.w.Write(a.body)
}

func (x *exchange) ctx() context.Context { return x.r.Context() }

// queryMode reports whether the client wants the old error codes too. SDKs do.
func (x *exchange) queryMode() bool { return x.r.Header.Get("X-Amzn-Query-Mode") == "true" }

// region is the one the request was signed for.
func (x *exchange) region() string {
	_, scope, ok := strings.Cut(x.r.Header.Get("Authorization"), "Credential=")
	if parts := strings.Split(scope, "/"); ok && len(parts) >= 3 && parts[2] != "" {
		return parts[2]
	}
	return defaultRegion
}

// queueURL is the queue's URL on the host that the client speaks to.
func (x *exchange) queueURL(name string) string {
	scheme := x.r.URL.Scheme
	switch {
	case scheme != "":
	case x.r.TLS != nil:
		scheme = "https"
	default:
		scheme = "http"
	}
	return fmt.Sprintf("%s://%s/%s/%s", scheme, x.r.Host, accountID, name)
}

// splitQueue reads a queue's URL, or its name alone (W14).
func splitQueue(urlOrName string) (account, name string, ok bool) {
	parts := strings.Split(strings.TrimRight(urlOrName, "/"), "/")
	name = parts[len(parts)-1]
	account = accountID
	if len(parts) > 1 {
		account = parts[len(parts)-2]
	}
	return account, name, name != ""
}

// find returns the queue of a request, brought up to the present.
func (s *Server) find(urlOrName string) (*queue, error) {
	if urlOrName == "" {
		return nil, errMissing("QueueUrl")
	}
	account, name, _ := splitQueue(urlOrName)
	q := s.queues[name]
	if q == nil || account != accountID {
		return nil, queueDoesNotExist.errorf("The specified queue does not exist.") // Q6
	}
	q.advance(s.now)
	return q, nil
}
