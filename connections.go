package sqsub

import (
	"net/http"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// Connections returns an option for [sqs.NewFromConfig] and [sqs.New] that lets
// the client keep n idle connections to SQS:
//
//	client := sqs.NewFromConfig(cfg, sqsub.Connections(32))
//
// By default the SDK keeps 10, and of more calls at once each opens a connection
// of its own and closes it. A subscription has one call open for every receive,
// and one for every ten deletes and every ten extensions that are due at a time:
// as many connections as [WithConcurrency] are enough. In a FIFO queue, whose
// deletes do not wait for company, or without batching, twice as many are. A client
// with an HTTP client other than the SDK's own is left as it is, and so is one that
// keeps more already.
func Connections(n int) func(*sqs.Options) {
	return func(o *sqs.Options) {
		client, ok := o.HTTPClient.(*awshttp.BuildableClient)
		if !ok {
			return
		}
		o.HTTPClient = client.WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConnsPerHost = max(n, t.MaxIdleConnsPerHost)
			if t.MaxIdleConns > 0 { // 0 is no limit
				t.MaxIdleConns = max(n, t.MaxIdleConns)
			}
		})
	}
}
