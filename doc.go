// Package sqsub consumes Amazon SQS queues. It keeps a message hidden from
// other consumers for exactly as long as its handler works on it.
//
// [Subscribe] receives the messages of a queue and hands each to a [Handler].
// What the handler returns decides what becomes of the message: nil deletes it,
// an error makes it visible again after a delay.
//
//	client := sqs.NewFromConfig(cfg, sqsub.Connections(32))
//	sub, err := sqsub.Subscribe(ctx, client, "reports", render, sqsub.WithConcurrency(32))
//	if err != nil {
//		log.Fatal(err)
//	}
//	err = sub.Wait() // until ctx ends and all that was received is settled
//
// # Visibility
//
// A receive hides a message for its visibility timeout. While a handler needs
// longer, the subscription extends the timeout, each time half of it has
// passed, so that a timeout of a minute does for a handler of an hour. The
// timeout is then only what a crash costs: how long a message stays hidden
// whose consumer is gone. A handler that returns within the first half, less the
// time of [WithBatchDelay], costs no extra request.
//
// SQS hides a message for 12 hours after a receive at most. Then, or when no
// extension succeeds in time, another consumer may get the message, and the
// context of the handler is cancelled before that with [ErrVisibilityLost] as
// its cause.
//
// # Duplicates
//
// SQS delivers at least once, and so does this package: a consumer can crash
// between the work and the delete, and a standard queue may deliver twice for
// reasons of its own. Within one subscription two deliveries of the same
// message never run at the same time, and one whose delete was not confirmed is
// deleted rather than handled when it comes back within the hour. Across
// processes a handler has to be idempotent.
//
// # FIFO queues
//
// In a queue whose name ends in .fifo the messages of a group run one after
// another, in the order sent, and groups run in parallel. When a message fails,
// those of its group that are in hand wait, hidden, until it comes back, or until
// it must be with another consumer or in the dead-letter queue.
//
// # Stopping
//
// When Subscribe's context ends, or [Subscription.Shutdown] is called, nothing
// more is received or started; handlers finish, within the time of
// [WithDrainTimeout]. [Subscription.Close] cancels them at once. After
// [Subscription.Wait] nothing of the subscription runs any more.
//
// # Observing
//
// [Hooks] are for metrics and traces, [Subscription.Stats] for health checks,
// [Subscription.InFlight] for a look at what is held, and the log for people.
// Tracing is a middleware: a func(Handler) Handler.
//
// Package [github.com/sqsub/sqsub/sqstest] is an SQS in memory for tests.
package sqsub
