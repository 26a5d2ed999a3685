package sim

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// note adds a line to the story of the run.
func (r *record) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line(format, args...)
}

// line is note with r.mu held.
func (r *record) line(format string, args ...any) {
	r.lines = append(r.lines, stamp(r.now(), r.began)+fmt.Sprintf(format, args...))
}

func stamp(m moment, began time.Time) string {
	return fmt.Sprintf("%6d %14v  ", m.n, m.at.Sub(began))
}

// history is the story of the messages given, and of what concerns all.
func (r *record) history(numbers ...string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	type event struct {
		m    moment
		text string
	}
	var events []event
	add := func(m moment, format string, args ...any) {
		if m.is() {
			events = append(events, event{m, fmt.Sprintf(format, args...)})
		}
	}
	of := func(number string) bool { return slices.Contains(numbers, number) }
	short := func(handle string) string { return handle[max(0, len(handle)-24):] }
	for _, d := range r.deliveries {
		if of(d.number) {
			add(d.received, "consumer %d receives message %s as %s", d.consumer.number, d.number, short(d.handle))
			add(d.finished, "consumer %d finishes message %s: %s %v", d.consumer.number, d.number, d.outcome.Outcome, d.outcome.Err)
		}
	}
	for _, q := range r.requests {
		if d := r.deliveries[q.handle]; d != nil && of(d.number) {
			add(q.sent, "consumer %d asks to %s message %s (%v) %s", q.consumer, q.op, d.number, q.visibility, short(q.handle))
			add(q.answer, "consumer %d is answered: %s message %s: %v", q.consumer, q.op, d.number, q.err)
		}
	}
	for _, h := range r.handlings {
		if of(h.number) {
			add(h.begun, "consumer %d begins message %s", h.consumer.number, h.number)
			add(h.cancelled, "consumer %d: context of message %s ends: %v", h.consumer.number, h.number, h.cause)
			add(h.ended, "consumer %d ends message %s: %s %v", h.consumer.number, h.number, h.verdict, h.delay)
		}
	}
	slices.SortFunc(events, func(a, b event) int { return a.m.n - b.m.n })
	lines := slices.Clone(r.lines)
	for _, e := range events {
		lines = append(lines, stamp(e.m, r.began)+e.text)
	}
	slices.SortFunc(lines, strings.Compare) // the stamp begins with the place in the order
	return strings.Join(lines, "\n")
}

// logOf returns where a consumer logs to.
func (r *record) logOf(consumer int) slog.Handler { return logged{r, consumer} }

// logged puts the warnings of a consumer into the story.
type logged struct {
	r        *record
	consumer int
}

func (l logged) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (l logged) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l logged) WithGroup(string) slog.Handler                    { return l }

func (l logged) Handle(_ context.Context, rec slog.Record) error {
	var attrs []string
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key != "stack" {
			attrs = append(attrs, a.String())
		}
		return true
	})
	l.r.note("consumer %d logs %s: %s %v", l.consumer, rec.Level, rec.Message, attrs)
	return nil
}
