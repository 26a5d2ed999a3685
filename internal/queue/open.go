package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// openLimit is how long each call may take that opens a queue, the SDK's own
// retries included.
const openLimit = 15 * time.Second

// An Identifier names a queue by its URL, or by its name with the region and
// the account of an ARN.
type Identifier struct {
	URL     string
	Name    string
	Region  string // of an ARN
	Account string // of an ARN
}

var validName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// Parse reads a queue URL, a queue name or a queue ARN.
func Parse(queue string) (Identifier, error) {
	switch {
	case queue == "":
		return Identifier{}, errors.New("must be a queue URL, a queue name or an ARN, not empty")
	case strings.HasPrefix(queue, "arn:"):
		return parseARN(queue)
	case strings.Contains(queue, "://"):
		return parseURL(queue)
	case !isName(queue):
		return Identifier{}, errors.New("a queue name has 1 to 80 letters, digits, hyphens and underscores, with .fifo at the end of a FIFO queue's")
	}
	return Identifier{Name: queue}, nil
}

func parseARN(arn string) (Identifier, error) {
	parts := strings.SplitN(arn, ":", 6)
	if len(parts) != 6 || parts[2] != "sqs" || parts[3] == "" || parts[4] == "" || !isName(parts[5]) {
		return Identifier{}, errors.New("a queue ARN reads arn:aws:sqs:REGION:ACCOUNT:NAME")
	}
	return Identifier{Region: parts[3], Account: parts[4], Name: parts[5]}, nil
}

func parseURL(raw string) (Identifier, error) {
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return Identifier{}, errors.New("a queue URL reads https://HOST/ACCOUNT/NAME")
	}
	name := u.Path[strings.LastIndexByte(u.Path, '/')+1:]
	if name == "" || strings.ContainsAny(raw, " ?#") { // what a name consists of is the server's affair
		return Identifier{}, errors.New("a queue URL ends with the queue's name, and has neither blanks nor ? nor #")
	}
	return Identifier{URL: raw, Name: name}, nil
}

func isName(s string) bool {
	// The suffix counts towards the 80 (Q5).
	return len(s) <= 80 && validName.MatchString(strings.TrimSuffix(s, ".fifo"))
}

// FIFO reports whether the queue is a FIFO queue. Nothing but the name tells:
// messages of standard queues have groups too (F14).
func (id Identifier) FIFO() bool { return strings.HasSuffix(id.Name, ".fifo") }

// Resolve returns the queue's URL, asking SQS for it unless the identifier has it.
func (id Identifier) Resolve(ctx context.Context, client Client) (string, error) {
	if region := regionOf(client); id.Region != "" && region != "" && region != id.Region {
		return "", fmt.Errorf("queue %s is in region %s, but the client is for region %s: use a client for %s", id.Name, id.Region, region, id.Region)
	}
	if id.URL != "" {
		if c, ok := client.(configured); ok && c.Options().Region == "" && goesToAWS(c.Options()) {
			return "", fmt.Errorf("queue %s: %s", id.Name, noRegion) // each call would fail (S24)
		}
		return id.URL, nil
	}
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	in := &sqs.GetQueueUrlInput{QueueName: &id.Name}
	if id.Account != "" {
		in.QueueOwnerAWSAccountId = &id.Account
	}
	out, err := client.GetQueueUrl(ctx, in)
	if err != nil {
		return "", id.explain(client, "GetQueueUrl", err)
	}
	if out == nil || aws.ToString(out.QueueUrl) == "" {
		return "", fmt.Errorf("GetQueueUrl for queue %s: the answer has no URL", id.Name)
	}
	return *out.QueueUrl, nil
}

// Attributes are what a consumer wants to know of a queue.
type Attributes struct {
	VisibilityTimeout time.Duration
	MaxReceiveCount   int           // of the redrive policy; 0 = there is none
	Retention         time.Duration // how long a message is kept; 0 = not told
}

// Attributes reads the queue's attributes.
func (id Identifier) Attributes(ctx context.Context, client Client, url string) (Attributes, error) {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	const timeout, redrive, retention = types.QueueAttributeNameVisibilityTimeout, types.QueueAttributeNameRedrivePolicy, types.QueueAttributeNameMessageRetentionPeriod
	out, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{timeout, redrive, retention},
	})
	if err != nil {
		return Attributes{}, id.explain(client, "GetQueueAttributes", err)
	}
	if out == nil {
		return Attributes{}, errNoAnswer
	}
	n, err := strconv.Atoi(out.Attributes[string(timeout)])
	if err != nil || n < 0 || n > 43200 {
		return Attributes{}, fmt.Errorf("GetQueueAttributes for queue %s: VisibilityTimeout is %q, not a number of seconds from 0 to 43200", id.Name, out.Attributes[string(timeout)])
	}
	return Attributes{
		VisibilityTimeout: time.Duration(n) * time.Second,
		MaxReceiveCount:   maxReceiveCount(out.Attributes[string(redrive)]),
		Retention:         retentionPeriod(out.Attributes[string(retention)]),
	}, nil
}

// retentionPeriod reads a retention, of a minute to 14 days. Nothing depends on it but a
// warning, so that one that is odd, or that a stand-in does not know, counts as not told.
func retentionPeriod(seconds string) time.Duration {
	n, err := strconv.Atoi(seconds)
	if err != nil || n < 60 || n > 1_209_600 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// maxReceiveCount reads a redrive policy, in which the count may be a number or
// a string (X1).
func maxReceiveCount(policy string) int {
	var p struct {
		MaxReceiveCount any `json:"maxReceiveCount"`
	}
	if json.Unmarshal([]byte(policy), &p) != nil {
		return 0
	}
	n, err := strconv.Atoi(fmt.Sprint(p.MaxReceiveCount))
	if err != nil {
		return 0
	}
	return max(0, n)
}

// ForeignRegion is the AWS region that the identifier's URL plainly names, if
// it is another than the one the client sends to. The SDK ignores the host of
// a queue URL (S23).
func (id Identifier) ForeignRegion(client Client) (theirs, ours string) {
	c, ok := client.(configured)
	if !ok || id.URL == "" {
		return "", ""
	}
	o := c.Options()
	u, err := url.Parse(id.URL)
	if err != nil || !goesToAWS(o) {
		return "", ""
	}
	host, ok := strings.CutPrefix(u.Hostname(), "sqs.")
	if !ok {
		return "", ""
	}
	region, ok := strings.CutSuffix(host, ".amazonaws.com")
	if !ok || region == o.Region {
		return "", ""
	}
	return region, o.Region
}

// goesToAWS reports whether a client sends where the SDK has it send by default.
func goesToAWS(o sqs.Options) bool {
	byDefault := reflect.TypeOf(o.EndpointResolverV2) == reflect.TypeOf(sqs.NewDefaultEndpointResolverV2())
	//lint:ignore SA1019 a client may have it all the same, and then it counts
	return o.BaseEndpoint == nil && o.EndpointResolver == nil && byDefault
}

// configured is a client of the SDK.
type configured interface{ Options() sqs.Options }

func regionOf(client Client) string {
	if c, ok := client.(configured); ok {
		return c.Options().Region
	}
	return ""
}

const (
	badCredentials = "check the client's credentials, and that its account has enabled the region"
	noRegion       = "the client has neither a region nor an endpoint: set AWS_REGION or the Region of its config"
)

// explain says what an operator can do about an error of opening.
func (id Identifier) explain(client Client, op string, err error) error {
	region := ""
	if r := regionOf(client); r != "" {
		region = " in region " + r
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s for queue %s: the context ended before the answer: %w", op, id.Name, err)
	}
	var advice string
	switch Classify(err) {
	case NoQueue:
		advice = fmt.Sprintf("there is no such queue%s, or this account may not see it: check name, account and the client's region", region)
	case Denied:
		advice = DeniedAdvice(op, err)
		if op == "GetQueueAttributes" && advice != badCredentials {
			advice += ", or give the visibility timeout with WithVisibility"
		}
	case Transient:
		var api interface{ ErrorCode() string }
		switch {
		case hasNoCredentials(err), errors.As(err, &api) && strings.HasPrefix(api.ErrorCode(), "ExpiredToken"):
			advice = badCredentials
		case errors.As(err, &api):
			advice = "SQS answers with an error that may pass: try again"
		case strings.Contains(err.Error(), "Missing Region"):
			advice = noRegion
		default:
			advice = fmt.Sprintf("no answer from the SQS endpoint%s: check network, endpoint and region", region)
		}
	default:
		advice = "SQS refuses the request"
	}
	return fmt.Errorf("%s for queue %s: %s: %w", op, id.Name, advice, err)
}

// hasNoCredentials reports whether a call failed before it was sent, for want of
// credentials: whoever should give them may have said AccessDenied.
func hasNoCredentials(err error) bool {
	return strings.Contains(err.Error(), "get credentials: ") // the SDK has no type for it
}

// DeniedAdvice says what a call needs that was denied: credentials that SQS takes, or
// an IAM action. Batch calls have no action of their own (Q12).
func DeniedAdvice(op string, err error) string {
	var api interface{ ErrorCode() string }
	if hasNoCredentials(err) || errors.As(err, &api) && unauthenticated[api.ErrorCode()] {
		return badCredentials
	}
	action := "allow the IAM action sqs:" + strings.TrimSuffix(op, "Batch")
	if op == "ReceiveMessage" {
		action += " (for an encrypted queue also kms:Decrypt)"
	}
	return action
}
