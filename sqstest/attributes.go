package sqstest

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"
)

// settings are the attributes of a queue that can be set (Q1).
type settings struct {
	DelaySeconds                  int
	MaximumMessageSize            int
	MessageRetentionPeriod        int
	ReceiveMessageWaitTimeSeconds int
	VisibilityTimeout             int
	ContentBasedDeduplication     bool
	DeduplicationScope            string
	FifoThroughputLimit           string
	SqsManagedSseEnabled          bool
	redrive                       redrivePolicy
	allow                         redriveAllowPolicy

	kept map[string]string // attributes told as they were given; never modified
}

func defaultSettings() settings {
	return settings{
		MaximumMessageSize:     maxSize,
		MessageRetentionPeriod: 345_600,
		VisibilityTimeout:      30,
		DeduplicationScope:     "queue",
		FifoThroughputLimit:    "perQueue",
		SqsManagedSseEnabled:   true,
	}
}

func (s *settings) retention() time.Duration {
	return time.Duration(s.MessageRetentionPeriod) * time.Second
}

func (s *settings) visibility() time.Duration {
	return time.Duration(s.VisibilityTimeout) * time.Second
}

// pendingSettings come into force later (Q3).
type pendingSettings struct {
	at       time.Time
	settings settings
}

// apply brings settings into force. On a FIFO queue a changed delay holds for the messages that are delayed already
// too (F11). What is visible stays so: nobody says that a longer delay would hide it again.
func (q *queue) apply(changed settings, at time.Time) {
	delay := time.Duration(changed.DelaySeconds) * time.Second
	if q.fifo && changed.DelaySeconds != q.settings.DelaySeconds {
		for _, m := range q.messages {
			if m.state != Delayed {
				continue
			}
			m.visibleAt = m.sentAt.Add(delay)
			if m.visibleAt.Before(at) {
				m.visibleAt = at
			}
			q.hidden.fix(m)
		}
	}
	q.settings = changed
	q.server.touch(q) // for the polls, since what they wait for may come sooner
}

// latest are the settings as last set, in force or not.
func (q *queue) latest() settings {
	if n := len(q.pending); n > 0 {
		return q.pending[n-1].settings
	}
	return q.settings
}

// with returns the settings with the given attributes changed, for a queue of the given ARN and type.
func (s settings) with(server *Server, attributes map[string]string, arn string, fifo bool) (settings, error) {
	s.kept = maps.Clone(s.kept)
	if s.kept == nil {
		s.kept = map[string]string{}
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if err := s.set(server, name, attributes[name], arn, fifo); err != nil {
			return settings{}, err
		}
	}
	key, managed := attributes["KmsMasterKeyId"] != "", attributes["SqsManagedSseEnabled"] == "true"
	switch { // Q10: of the two kinds of encryption the one set last counts
	case key && managed:
		return settings{}, invalidAttributeName.errorf("You can use one type of server-side encryption (SSE) at one time. " +
			"You can either enable KMS SSE or SQS SSE.")
	case key:
		s.SqsManagedSseEnabled = false
	case managed:
		delete(s.kept, "KmsMasterKeyId")
	}
	if s.FifoThroughputLimit == "perMessageGroupId" && s.DeduplicationScope != "messageGroup" { // Q1
		return settings{}, invalidAttributeValue.errorf("Invalid value for the parameter FifoThroughputLimit. " +
			"Reason: To set FifoThroughputLimit to perMessageGroupId, the DeduplicationScope must be messageGroup.")
	}
	return s, nil
}

func (s *settings) set(server *Server, name, value, arn string, fifo bool) error {
	switch name {
	case "DelaySeconds":
		return setNumber(&s.DelaySeconds, name, value, 0, maxDelay)
	case "MaximumMessageSize":
		return setNumber(&s.MaximumMessageSize, name, value, 1024, maxSize)
	case "MessageRetentionPeriod":
		return setNumber(&s.MessageRetentionPeriod, name, value, 60, 1_209_600)
	case "ReceiveMessageWaitTimeSeconds":
		return setNumber(&s.ReceiveMessageWaitTimeSeconds, name, value, 0, maxWait)
	case "VisibilityTimeout":
		return setNumber(&s.VisibilityTimeout, name, value, 0, maxVisibility)
	case "SqsManagedSseEnabled":
		return setBool(&s.SqsManagedSseEnabled, name, value)
	case "RedrivePolicy":
		p, err := server.parseRedrivePolicy(value, arn, fifo)
		s.redrive = p
		return err
	case "RedriveAllowPolicy":
		p, err := parseRedriveAllowPolicy(value)
		s.allow, s.kept[name] = p, value
		return err
	case "Policy":
		var document map[string]json.RawMessage
		if value != "" && (json.Unmarshal([]byte(value), &document) != nil || document == nil) {
			return errAttribute(name)
		}
		s.kept[name] = value
		return nil
	case "KmsMasterKeyId":
		s.kept[name] = value
		return nil
	case "KmsDataKeyReusePeriodSeconds":
		var seconds int
		s.kept[name] = value
		return setNumber(&seconds, name, value, 60, 86_400)
	case "ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit":
		if !fifo { // Q4
			return invalidAttributeName.errorf("You can specify the %s only when FifoQueue is set to true.", name)
		}
	}
	switch name {
	case "ContentBasedDeduplication":
		return setBool(&s.ContentBasedDeduplication, name, value)
	case "DeduplicationScope":
		return setChoice(&s.DeduplicationScope, name, value, "queue", "messageGroup")
	case "FifoThroughputLimit":
		return setChoice(&s.FifoThroughputLimit, name, value, "perQueue", "perMessageGroupId")
	case "FifoQueue":
		if value == strconv.FormatBool(fifo) {
			return nil
		}
		return invalidAttributeValue.errorf("Invalid value for the parameter FifoQueue. " +
			"Reason: Modifying queue type is not supported.")
	}
	return errUnknownAttribute(name)
}

func errUnknownAttribute(name string) error {
	return invalidAttributeName.errorf("Unknown Attribute %s.", name)
}

func errAttribute(name string) error {
	return invalidAttributeValue.errorf("Invalid value for the parameter %s.", name)
}

func setNumber(to *int, name, value string, least, most int) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		return errAttribute(name)
	}
	*to = n
	return nil
}

func setBool(to *bool, name, value string) error {
	if value != "true" && value != "false" {
		return errAttribute(name)
	}
	*to = value == "true"
	return nil
}

func setChoice(to *string, name, value string, choices ...string) error {
	if !slices.Contains(choices, value) {
		return errAttribute(name)
	}
	*to = value
	return nil
}

// attributes are those of the queue as GetQueueAttributes tells them (Q1, Q2).
func (q *queue) attributes() map[string]string {
	s := &q.settings
	all := map[string]string{
		"ApproximateNumberOfMessages":           strconv.Itoa(len(q.messages) - q.inFlight - q.delayed), // F8
		"ApproximateNumberOfMessagesNotVisible": strconv.Itoa(q.inFlight),
		"ApproximateNumberOfMessagesDelayed":    strconv.Itoa(q.delayed),
		"CreatedTimestamp":                      strconv.FormatInt(q.created.Unix(), 10),
		"LastModifiedTimestamp":                 strconv.FormatInt(q.modified.Unix(), 10),
		"QueueArn":                              q.arn,
		"DelaySeconds":                          strconv.Itoa(s.DelaySeconds),
		"MaximumMessageSize":                    strconv.Itoa(s.MaximumMessageSize),
		"MessageRetentionPeriod":                strconv.Itoa(s.MessageRetentionPeriod),
		"ReceiveMessageWaitTimeSeconds":         strconv.Itoa(s.ReceiveMessageWaitTimeSeconds),
		"VisibilityTimeout":                     strconv.Itoa(s.VisibilityTimeout),
		"SqsManagedSseEnabled":                  strconv.FormatBool(s.SqsManagedSseEnabled),
	}
	if q.fifo {
		all["FifoQueue"] = "true"
		all["ContentBasedDeduplication"] = strconv.FormatBool(s.ContentBasedDeduplication)
		all["DeduplicationScope"] = s.DeduplicationScope
		all["FifoThroughputLimit"] = s.FifoThroughputLimit
	}
	if p := s.redrive.String(); p != "" {
		all["RedrivePolicy"] = p
	}
	for name, value := range s.kept {
		if value != "" {
			all[name] = value
		}
	}
	if all["KmsMasterKeyId"] != "" && all["KmsDataKeyReusePeriodSeconds"] == "" {
		all["KmsDataKeyReusePeriodSeconds"] = "300"
	}
	return all
}

// attributeNames are all that can be asked for.
var attributeNames = []string{
	"All", "ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed",
	"CreatedTimestamp", "LastModifiedTimestamp", "QueueArn", "DelaySeconds", "MaximumMessageSize",
	"MessageRetentionPeriod", "ReceiveMessageWaitTimeSeconds", "VisibilityTimeout", "SqsManagedSseEnabled", "FifoQueue",
	"ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit", "Policy", "RedrivePolicy",
	"RedriveAllowPolicy", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds",
}

type getQueueAttributes struct {
	onQueue
	AttributeNames []string
}

type queueAttributes struct {
	Attributes map[string]string `json:",omitempty"`
}

func (in *getQueueAttributes) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	q, err := x.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	for _, name := range in.AttributeNames {
		if !slices.Contains(attributeNames, name) {
			return nil, errUnknownAttribute(name)
		}
	}
	chosen := q.attributes()
	if !slices.Contains(in.AttributeNames, "All") {
		maps.DeleteFunc(chosen, func(name, _ string) bool { return !slices.Contains(in.AttributeNames, name) })
	}
	return queueAttributes{chosen}, nil
}

type setQueueAttributes struct {
	onQueue
	Attributes map[string]string
}

func (in *setQueueAttributes) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	q, err := x.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	changed, err := q.latest().with(x.Server, in.Attributes, q.arn, q.fifo)
	if err != nil {
		return nil, err
	}
	q.modified = x.now
	if x.AttributeLag > 0 {
		q.pending = append(q.pending, pendingSettings{x.now.Add(x.AttributeLag), changed})
		x.touch(q) // a poll has to look again then
	} else {
		q.apply(changed, x.now)
	}
	return nil, nil
}
