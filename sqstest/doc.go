// Package sqstest is an in-memory Amazon SQS for tests.
//
// A [Server] keeps queues, messages, visibility timeouts and receipt handles as SQS does, and speaks its JSON
// protocol. There are two ways to reach it:
//
//   - [Server.Client] is an *sqs.Client without a socket, made for testing/synctest: inside a bubble the twelve
//     hours a message may be held pass in milliseconds.
//   - The Server is an http.Handler. Behind net/http/httptest any SDK can use it, in any language.
//
// Standard and FIFO queues are there, dead-letter queues, long polls, batch calls, deduplication and retries of a
// receive. Beyond what the SDK shows, [Server.Messages] tells what a queue holds and until when it is hidden,
// [Server.Calls] what was asked of the server, and [Server.Inject] makes calls fail the ways SQS and networks do.
//
// # Twelve hours in milliseconds
//
// In a bubble time passes when all goroutines wait, so that a test can hold a message to the end of what SQS allows:
//
//	func TestExtendUntilRefused(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			server := sqstest.NewServer()
//			client := server.Client()
//			// create a queue, send a message, receive it, and then
//			start := time.Now()
//			for {
//				time.Sleep(time.Minute)
//				if _, err := client.ChangeMessageVisibility(t.Context(), twoMinutesMore); err != nil {
//					break
//				}
//			}
//			if held := time.Since(start); held != 11*time.Hour+59*time.Minute {
//				t.Errorf("held for %v", held)
//			}
//		})
//	}
//
// Connections do not work in bubbles, which is why the client has none.
//
// # What it is faithful to
//
// Where SQS is known to differ from its documentation, the server does as SQS does. A receipt handle of a standard
// queue acts on the message whoever holds it now; one of a FIFO queue is worth nothing once its timeout has lapsed.
// An extension beyond twelve hours is refused, not clipped. A message moves to its dead-letter queue at the receive
// that would exceed the count, not before. A long poll answers with the first message and does not wait for more.
//
// SQS is a distributed system and the server is not: it delivers in the order of sending, finds every message, and
// new settings are in force at once. Short polls that miss messages, duplicate deliveries and slow settings exist as a
// [Fault] or a setting of the Server, so that a test has them when it wants them. A new delay is for new messages, but
// on a FIFO queue also for those that still wait for the end of the old one.
//
// Its queues are in the account 123456789012, whatever region a client has. Requests are not authenticated, and the
// attribute Policy is not enforced: it has to be a JSON object, and forbids nobody anything. A RedriveAllowPolicy does
// say which queues can have the queue as their dead-letter queue. Message move tasks and AddPermission answer with
// UnsupportedOperation.
package sqstest
