package sqstest

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// recently is how long a deleted queue's name is taken (Q7), and how far apart purges must be (Q8).
const recently = 60 * time.Second

type named struct{ QueueName string }

func (in *named) queueName() string       { return in.QueueName }
func (in *named) describe(*Server, *Call) {}

type queueURLResult struct {
	QueueURL string `json:"QueueUrl"`
}

type createQueue struct {
	named
	Attributes map[string]string
	Tags       map[string]string `json:"tags"` // W7: lower case
}

func (in *createQueue) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	if in.QueueName == "" {
		return nil, errMissing("QueueName")
	}
	fifo := in.Attributes["FifoQueue"] == "true"
	if err := in.checkName(fifo); err != nil {
		return nil, err
	}
	if value, ok := in.Attributes["FifoQueue"]; ok && value != "true" {
		return nil, errUnknownAttribute("FifoQueue") // Q4: as odd as that
	}
	arn := fmt.Sprintf("arn:aws:sqs:%s:%s:%s", x.region(), accountID, in.QueueName)
	wanted, err := defaultSettings().with(x.Server, in.Attributes, arn, fifo)
	if err != nil {
		return nil, err
	}
	if q := x.queues[in.QueueName]; q != nil {
		q.advance(x.now) // settings may be due
		if name := q.differs(wanted, in.Attributes); name != "" {
			return nil, queueNameExists.errorf("A queue already exists with the same name "+
				"and a different value for attribute %s", name) // Q5
		}
		return queueURLResult{x.queueURL(q.name)}, nil
	}
	if at, ok := x.deleted[in.QueueName]; ok && x.now.Sub(at) < recently {
		return nil, queueDeletedRecently.errorf("You must wait 60 seconds after deleting a queue " +
			"before you can create another with the same name.")
	}
	q := newQueue(x.Server, in.QueueName, arn, fifo)
	q.settings = wanted
	maps.Copy(q.tags, in.Tags)
	x.queues[q.name] = q
	return queueURLResult{x.queueURL(q.name)}, nil
}

func (in *createQueue) checkName(fifo bool) error {
	name, suffix := strings.CutSuffix(in.QueueName, ".fifo")
	ok := validEntryID(name) && len(in.QueueName) <= 80
	if fifo && !(ok && suffix) {
		return invalidParameterValue.errorf("The name of a FIFO queue can only include alphanumeric characters, " +
			"hyphens, or underscores, must end with .fifo suffix and be 1 to 80 in length.")
	}
	if !fifo && (!ok || suffix) {
		return invalidParameterValue.errorf("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
	}
	return nil
}

// differs names an attribute asked for whose value the queue does not have, if there is one.
func (q *queue) differs(wanted settings, asked map[string]string) string {
	other := &queue{settings: wanted, fifo: q.fifo}
	have, want := q.attributes(), other.attributes()
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if have[name] != want[name] {
			return name
		}
	}
	return ""
}

type deleteQueue struct{ onQueue }

func (in *deleteQueue) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	q, err := x.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	q.gone = true
	delete(x.queues, q.name)
	x.deleted[q.name] = x.now
	x.touch(q)
	return nil, nil
}

type purgeQueue struct{ onQueue }

func (in *purgeQueue) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	q, err := x.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	if !q.purged.IsZero() && x.now.Sub(q.purged) < recently {
		return nil, purgeQueueInProgress.errorf("Only one PurgeQueue operation on %s is allowed every 60 seconds.", q.name)
	}
	q.purged = x.now
	q.clear()
	return nil, nil
}

type getQueueURL struct {
	named
	QueueOwnerAWSAccountID string `json:"QueueOwnerAWSAccountId"`
}

func (in *getQueueURL) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	if in.QueueName == "" {
		return nil, errMissing("QueueName")
	}
	owner := in.QueueOwnerAWSAccountID
	if x.queues[in.QueueName] == nil || owner != "" && owner != accountID {
		return nil, queueDoesNotExist.errorf("The specified queue does not exist.")
	}
	return queueURLResult{x.queueURL(in.QueueName)}, nil
}

// paged is the part of a request that lists queues page by page.
type paged struct {
	NextToken  string
	MaxResults *int
}

const maxResults = 1000

// page selects from all names, which are sorted. The token is the last name of the page before, and comes only if a
// size was asked for (Q9).
func (p *paged) page(names []string) (page []string, next string, err error) {
	size := maxResults
	if p.MaxResults != nil {
		size = *p.MaxResults
		if size < 1 || size > maxResults {
			return nil, "", errInvalid(size, "MaxResults", "Must be an integer value between 1 and 1000.")
		}
	}
	if p.NextToken != "" {
		last, err := base64.StdEncoding.DecodeString(p.NextToken)
		if err != nil {
			return nil, "", invalidParameterValue.errorf("Invalid or expired nextToken")
		}
		i, found := slices.BinarySearch(names, string(last))
		if found {
			i++
		}
		names = names[i:]
	}
	if len(names) > size {
		names = names[:size]
		if p.MaxResults != nil {
			next = base64.StdEncoding.EncodeToString([]byte(names[size-1]))
		}
	}
	return names, next, nil
}

func (x *exchange) queueURLs(names []string) []string {
	urls := make([]string, len(names))
	for i, name := range names {
		urls[i] = x.queueURL(name)
	}
	return urls
}

type listQueues struct {
	paged
	QueueNamePrefix string
}

func (in *listQueues) queueName() string       { return "" }
func (in *listQueues) describe(*Server, *Call) {}

func (in *listQueues) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	names := slices.Sorted(maps.Keys(x.queues))
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, in.QueueNamePrefix) })
	names, next, err := in.page(names)
	if err != nil {
		return nil, err
	}
	return struct {
		QueueURLs []string `json:"QueueUrls,omitempty"`
		NextToken string   `json:",omitempty"`
	}{x.queueURLs(names), next}, nil
}

type listDeadLetterSourceQueues struct {
	onQueue
	paged
}

func (in *listDeadLetterSourceQueues) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	dead, err := x.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	var names []string
	for name, q := range x.queues {
		q.advance(x.now) // settings may be due
		if q.settings.redrive.target == dead.arn {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names, next, err := in.page(names)
	if err != nil {
		return nil, err
	}
	return struct {
		QueueURLs []string `json:"queueUrls"` // W7: lower case
		NextToken string   `json:",omitempty"`
	}{x.queueURLs(names), next}, nil
}

type tagQueue struct {
	onQueue
	Tags map[string]string
}

func (in *tagQueue) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	q, err := x.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	maps.Copy(q.tags, in.Tags)
	return nil, nil
}

type untagQueue struct {
	onQueue
	TagKeys []string
}

func (in *untagQueue) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	q, err := x.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	for _, key := range in.TagKeys {
		delete(q.tags, key)
	}
	return nil, nil
}

type listQueueTags struct{ onQueue }

func (in *listQueueTags) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	q, err := x.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	return struct {
		Tags map[string]string `json:",omitempty"`
	}{maps.Clone(q.tags)}, nil
}

// unsupported is any operation that this server does not have.
type unsupported struct{ onQueue }

func (in *unsupported) run(*exchange) (any, error) {
	return nil, unsupportedOperation.errorf("sqstest does not support this operation.")
}
