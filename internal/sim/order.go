package sim

import "slices"

// inOrder is (c): when a handler begins, no earlier message of its group is in
// the queue, whether it was deleted or is a dead letter (X6). Nor does a consumer
// handle what it has deleted while it held it; that another one has, it cannot
// know.
func (j *judge) inOrder() {
	for _, h := range j.handlings {
		if h.verdict == died || j.stale(h, h.begun.at) {
			continue
		}
		if h.before != "" {
			j.broken(h.number, "(c) consumer %d handles it although message %s of its group is still in the queue", h.consumer.number, h.before)
		}
		deleted := func(q *request) bool {
			l := j.byHandle[q.handle]
			return l.number == h.number && l.consumer == h.consumer && q.op == remove && q.granted() && q.answer.before(h.begun) &&
				(q.answer.at.Before(l.held()) || l.lost.before(q.answer))
		}
		if h.gone && slices.ContainsFunc(j.requests, deleted) {
			j.broken(h.number, "(b) consumer %d handles it although it has deleted it", h.consumer.number)
		}
	}
}

// handedBackLastToFirst: where one request makes several messages of a FIFO group
// visible, the last comes first, so that no receive between two of them finds a
// part of the group that another is missing from (F3).
func (j *judge) handedBackLastToFirst() {
	for _, c := range j.calls {
		if !j.fifo || c.Op != "ChangeMessageVisibilityBatch" {
			continue
		}
		last := make(map[string]string) // the number of the last message, by group
		for _, e := range c.Entries {
			l := j.byHandle[e.ReceiptHandle]
			if l == nil || e.Visibility > 0 || l.handling != nil {
				continue
			}
			group := j.groupOf(l.number)
			if before, ok := last[group]; ok && order(before) < order(l.number) {
				j.broken(l.number, "(c) consumer %d releases it after message %s of its group", l.consumer.number, before)
			}
			last[group] = l.number
		}
	}
}

func (j *judge) groupOf(number string) string { return j.sent[number].group }
