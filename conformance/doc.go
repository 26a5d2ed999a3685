// Package conformance has no code, only tests: what the library promises, in real time and over real connections, on
// any server that speaks SQS's protocol. The directory also has the other way round, what the SDK and a consumer
// for JavaScript expect of sqstest.
//
//	go test ./conformance                                                on sqstest
//	SQSUB_TEST_ENDPOINT=http://127.0.0.1:4566 go test ./conformance      on that server
//	SQSUB_TEST_PREFIX=sqsub-test- go test ./conformance                  on AWS
//
// On AWS the region and the credentials come from where the SDK finds them. The tests make queues with names that begin
// with the prefix, and delete them.
//
// With SQSUB_TEST_SERVER=NAME the known deviations of that server are skipped; see dialects in servers_test.go.
package conformance
