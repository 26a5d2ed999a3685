package sqstest

// entryID identifies an entry of a batch call.
type entryID struct {
	ID string `json:"Id"`
}

type failedEntry struct {
	ID          string `json:"Id"`
	SenderFault bool
	Code        string
	Message     string `json:",omitempty"`
}

// batchResult is what a batch call answers: 200, whatever became of the entries (B1).
type batchResult[T any] struct {
	Successful []T           `json:",omitempty"`
	Failed     []failedEntry `json:",omitempty"`
}

// checkBatch finds what makes the call fail as a whole, before it has any effect (B2).
func checkBatch(entryType string, n int, id func(int) string) error {
	if n == 0 {
		return emptyBatchRequest.errorf("There should be at least one %s in the request.", entryType)
	}
	if n > maxBatch {
		return tooManyEntriesInBatchRequest.errorf("Maximum number of entries per request are %d. You have sent %d.", maxBatch, n)
	}
	seen := map[string]bool{}
	for i := range n {
		if !validEntryID(id(i)) {
			return invalidBatchEntryID.errorf("A batch entry id can only contain alphanumeric characters, " +
				"hyphens and underscores. It can be at most 80 letters long.")
		}
	}
	for i := range n {
		if seen[id(i)] {
			return batchEntryIdsNotDistinct.errorf("Id %s repeated.", id(i))
		}
		seen[id(i)] = true
	}
	return nil
}

// validEntryID is also the rule for the names of queues.
func validEntryID(id string) bool {
	for _, c := range id {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return len(id) >= 1 && len(id) <= 80
}

// runBatch carries the entries out one by one.
func runBatch[T any](x *exchange, n int, id func(int) string, one func(int) (T, error)) batchResult[T] {
	var result batchResult[T]
	for i := range n {
		if x.fault.fails(i) { // B4: code and fault as seen, no text
			x.call.Entries[i].Code = internalError.code
			result.Failed = append(result.Failed, failedEntry{ID: id(i), Code: internalError.code})
			continue
		}
		done, err := one(i)
		if err == nil {
			result.Successful = append(result.Successful, done)
			continue
		}
		e := err.(*apiError)
		if e.inBatch != nil {
			e = e.inBatch
		}
		x.call.Entries[i].Code = e.code
		result.Failed = append(result.Failed, failedEntry{id(i), e.status < 500, e.code, e.message})
	}
	return result
}

type sendEntry struct {
	entryID
	outgoing
}

type sendMessageBatch struct {
	onQueue
	Entries []sendEntry
}

func (in *sendMessageBatch) id(i int) string { return in.Entries[i].ID }

func (in *sendMessageBatch) describe(_ *Server, c *Call) {
	for i := range in.Entries {
		c.Entries = append(c.Entries, in.Entries[i].entry())
	}
}

func (in *sendMessageBatch) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	q, err := x.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	if err := checkBatch("SendMessageBatchRequestEntry", len(in.Entries), in.id); err != nil {
		return nil, err
	}
	if err := in.check(q); err != nil {
		return nil, err
	}
	return runBatch(x, len(in.Entries), in.id, func(i int) (sentMessage, error) {
		e := &in.Entries[i]
		if e.size() > q.settings.MaximumMessageSize {
			return sentMessage{}, invalidParameterValue.errorf("One or more parameters cannot be validated. "+
				"Reason: Message must be shorter than %d bytes.", q.settings.MaximumMessageSize) // B4
		}
		sent, err := q.send(&e.outgoing, x.trace())
		sent.ID = e.ID
		x.call.Entries[i].MessageID = sent.MessageID
		return sent, err
	}), nil
}

func (in *sendMessageBatch) check(q *queue) error {
	total := 0
	for i := range in.Entries {
		total += in.Entries[i].size()
	}
	if total > maxSize {
		return batchRequestTooLong.errorf("Batch requests cannot be longer than %d bytes. You have sent %d bytes.", maxSize, total)
	}
	if !q.fifo {
		return nil
	}
	for i := range in.Entries {
		e := &in.Entries[i]
		if e.MessageGroupID == nil { // F10: another code than for a single message
			return invalidParameterValue.errorf("The request must contain the parameter MessageGroupId.")
		}
		if err := e.checkDeduplication(q); err != nil {
			return err
		}
	}
	return nil
}

type deleteMessage struct {
	onQueue
	ReceiptHandle string
}

func (in *deleteMessage) describe(s *Server, c *Call) {
	c.Entries = []Entry{s.describeHandle(in.ReceiptHandle)}
}

func (in *deleteMessage) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	q, err := x.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	return nil, q.delete(in.ReceiptHandle)
}

type deleteMessageBatch struct {
	onQueue
	Entries []struct {
		entryID
		ReceiptHandle string
	}
}

func (in *deleteMessageBatch) id(i int) string { return in.Entries[i].ID }

func (in *deleteMessageBatch) describe(s *Server, c *Call) {
	for _, e := range in.Entries {
		c.Entries = append(c.Entries, s.describeHandle(e.ReceiptHandle))
	}
}

func (in *deleteMessageBatch) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	q, err := x.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	if err := checkBatch("DeleteMessageBatchRequestEntry", len(in.Entries), in.id); err != nil {
		return nil, err
	}
	return runBatch(x, len(in.Entries), in.id, func(i int) (entryID, error) {
		e := in.Entries[i]
		return e.entryID, q.delete(e.ReceiptHandle)
	}), nil
}

type changeMessageVisibility struct {
	onQueue
	ReceiptHandle     string
	VisibilityTimeout *int
}

func (in *changeMessageVisibility) describe(s *Server, c *Call) {
	e := s.describeHandle(in.ReceiptHandle)
	if in.VisibilityTimeout != nil {
		e.Visibility = *in.VisibilityTimeout
	}
	c.Entries = []Entry{e}
}

func (in *changeMessageVisibility) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	q, err := x.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	if in.VisibilityTimeout == nil {
		return nil, errMissing("VisibilityTimeout")
	}
	return nil, q.changeVisibility(in.ReceiptHandle, *in.VisibilityTimeout)
}

type changeMessageVisibilityBatch struct {
	onQueue
	Entries []struct {
		entryID
		ReceiptHandle     string
		VisibilityTimeout int
	}
}

func (in *changeMessageVisibilityBatch) id(i int) string { return in.Entries[i].ID }

func (in *changeMessageVisibilityBatch) describe(s *Server, c *Call) {
	for _, entry := range in.Entries {
		e := s.describeHandle(entry.ReceiptHandle)
		e.Visibility = entry.VisibilityTimeout
		c.Entries = append(c.Entries, e)
	}
}

func (in *changeMessageVisibilityBatch) run(x *exchange) (any, error) {
	x.lock()
	defer x.unlock()
	q, err := x.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	if err := checkBatch("ChangeMessageVisibilityBatchRequestEntry", len(in.Entries), in.id); err != nil {
		return nil, err
	}
	return runBatch(x, len(in.Entries), in.id, func(i int) (entryID, error) {
		e := in.Entries[i]
		return e.entryID, q.changeVisibility(e.ReceiptHandle, e.VisibilityTimeout)
	}), nil
}
