package sim

import "time"

// settling is how long a stop may take after its patience has ended and the last
// handler has returned: two tries of 10 s for a delete or a delay, after the end
// of an extension of 10 s.
const settling = 45 * time.Second

// stopsEnd is (g). The time in which the process stands still does not count.
func (j *judge) stopsEnd() {
	for _, s := range j.stops {
		c := j.consumers[s.consumer]
		for _, at := range j.aborts[s.consumer] {
			if s.aborted.IsZero() || at.Before(s.aborted) {
				j.broken("", "(g) consumer %d aborts a receive although its stop has time: messages may be stranded (R13)", s.consumer)
			}
		}
		from := s.aborted
		if from.IsZero() {
			continue // no limit was set; that it ended was seen
		}
		for _, h := range j.handlings {
			if h.consumer == c && h.ended.at.After(from) {
				from = h.ended.at
			}
		}
		if took := c.active(from, s.done); took > settling {
			j.broken("", "(g) consumer %d took %v to end by %s after the last handler and the end of patience", s.consumer, took, s.how)
		}
	}
}
