package sqstest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// redrivePolicy is the attribute RedrivePolicy (X1).
type redrivePolicy struct {
	target string // ARN of the dead-letter queue
	most   int    // receives before a message goes there
}

// parseRedrivePolicy checks a policy for a queue. The empty string is no policy (X2).
func (s *Server) parseRedrivePolicy(text, source string, fifo bool) (redrivePolicy, error) {
	if text == "" {
		return redrivePolicy{}, nil
	}
	invalid := func(reason string) (redrivePolicy, error) {
		return redrivePolicy{}, errInvalid(text, "RedrivePolicy", reason)
	}
	var fields struct {
		DeadLetterTargetArn *string          `json:"deadLetterTargetArn"`
		MaxReceiveCount     *json.RawMessage `json:"maxReceiveCount"`
	}
	if json.Unmarshal([]byte(text), &fields) != nil {
		return invalid("Redrive policy is not a valid JSON map.")
	}
	if fields.DeadLetterTargetArn == nil {
		return invalid("Redrive policy does not contain mandatory attribute: deadLetterTargetArn.")
	}
	if fields.MaxReceiveCount == nil {
		return invalid("Redrive policy does not contain mandatory attribute: maxReceiveCount.")
	}
	count := strings.Trim(string(*fields.MaxReceiveCount), `"`) // X1: a number or a string
	most, err := strconv.Atoi(count)
	if err != nil || most < 1 || most > 1000 {
		return invalid(fmt.Sprintf("Invalid value for maxReceiveCount: %s, valid values are from 1 to 1000 both inclusive.", count))
	}
	target := s.byARN(*fields.DeadLetterTargetArn)
	if target == nil {
		return invalid("Dead letter target does not exist.")
	}
	if target.fifo != fifo { // X5
		return invalid("Dead-letter queue must be same type of queue as the source.")
	}
	target.advance(s.now) // settings may be due
	if !target.settings.allow.allows(source) {
		return invalid("Dead letter target does not allow this source queue.") // X8; the text is a guess
	}
	return redrivePolicy{target.arn, most}, nil
}

func (p redrivePolicy) String() string {
	if p.target == "" {
		return ""
	}
	return fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`, p.target, p.most)
}

// redriveAllowPolicy is the attribute RedriveAllowPolicy of a dead-letter queue (X8). It is asked when a queue is given
// a redrive policy, and no more when a message moves.
type redriveAllowPolicy struct {
	RedrivePermission string
	SourceQueueARNs   []string `json:"sourceQueueArns"`
}

func parseRedriveAllowPolicy(text string) (redriveAllowPolicy, error) {
	var p redriveAllowPolicy
	if text == "" {
		return p, nil
	}
	ok := json.Unmarshal([]byte(text), &p) == nil
	switch n := len(p.SourceQueueARNs); p.RedrivePermission {
	case "allowAll", "denyAll":
		ok = ok && n == 0
	case "byQueue":
		ok = ok && n >= 1 && n <= 10
	default:
		ok = false
	}
	for _, arn := range p.SourceQueueARNs {
		ok = ok && strings.HasPrefix(arn, "arn:")
	}
	if !ok {
		return redriveAllowPolicy{}, errAttribute("RedriveAllowPolicy")
	}
	return p, nil
}

func (p redriveAllowPolicy) allows(source string) bool {
	switch p.RedrivePermission {
	case "denyAll":
		return false
	case "byQueue":
		return slices.Contains(p.SourceQueueARNs, source)
	}
	return true
}

func (s *Server) byARN(arn string) *queue {
	q := s.queues[arn[strings.LastIndexByte(arn, ':')+1:]]
	if q == nil || q.arn != arn {
		return nil
	}
	return q
}

// deadLetterQueue is where a message goes instead of being received once more, and nil if it is received (X3).
func (q *queue) deadLetterQueue(m *message) *queue {
	p := q.settings.redrive
	if p.target == "" || m.count < p.most {
		return nil
	}
	if p.target == m.source {
		return nil // it came from there: two queues that are each other's would pass it on forever
	}
	return q.server.byARN(p.target)
}

// bury moves a message to a dead-letter queue. It stays the same message, and the receive that moves it does not
// count (X4).
func (q *queue) bury(m *message, dead *queue, at time.Time) {
	q.remove(m)
	m.source = q.arn
	if dead.fifo { // X5
		m.sentAt = at
		m.dedupID = m.id
	}
	dead.place(m)
	dead.insert(m, time.Time{})
}
