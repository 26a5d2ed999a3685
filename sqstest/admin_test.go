package sqstest_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func (f *fixture) tryCreate(name string, attributes ...string) error {
	_, err := f.client.CreateQueue(f.Context(), &sqs.CreateQueueInput{QueueName: &name, Attributes: pairs(attributes)})
	return err
}

func (f *fixture) deleteQueue() {
	f.Helper()
	_, err := f.client.DeleteQueue(f.Context(), &sqs.DeleteQueueInput{QueueUrl: &f.url})
	f.must(err)
}

// Q1, Q2.
func TestAttributesOfAFreshQueue(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		standard := map[string]string{
			"ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesNotVisible": "0", "ApproximateNumberOfMessagesDelayed": "0",
			"CreatedTimestamp": "946684800", "LastModifiedTimestamp": "946684800", "DelaySeconds": "0", "MaximumMessageSize": "1048576",
			"MessageRetentionPeriod": "345600", "QueueArn": arn("q"), "ReceiveMessageWaitTimeSeconds": "0", "SqsManagedSseEnabled": "true",
			"VisibilityTimeout": "30",
		}
		fifo := maps.Clone(standard)
		maps.Copy(fifo, map[string]string{
			"QueueArn": arn("q.fifo"), "FifoQueue": "true", "ContentBasedDeduplication": "false", "DeduplicationScope": "queue",
			"FifoThroughputLimit": "perQueue",
		})
		for url, want := range map[string]map[string]string{f.create("q"): standard, f.create("q.fifo", "FifoQueue", "true"): fifo} {
			out, err := f.client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{
				QueueUrl: &url, AttributeNames: []types.QueueAttributeName{"All"},
			})
			f.must(err)
			if !maps.Equal(out.Attributes, want) {
				t.Errorf("attributes %v, want %v", out.Attributes, want)
			}
			out, err = f.client.GetQueueAttributes(t.Context(), &sqs.GetQueueAttributesInput{QueueUrl: &url})
			f.must(err)
			if out.Attributes != nil {
				t.Errorf("no names brought %v", out.Attributes)
			}
		}
	})
}

func TestMessageCounts(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a", "b", "c")
		f.receive(atMost(2))
		f.set("DelaySeconds", "10")
		f.send("d")
		want := map[string]string{"": "1", "NotVisible": "2", "Delayed": "1"}
		for name, n := range want {
			if got := f.attribute("ApproximateNumberOfMessages" + name); got != n {
				t.Errorf("%s messages %s, want %s", got, name, n)
			}
		}
	})
}

// Q4, Q10.
func TestAttributeErrors(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.wantError(f.tryCreate("q", "X", "1"), "InvalidAttributeName", "Unknown Attribute X.")
		f.wantError(f.tryCreate("q", "FifoQueue", "false"), "InvalidAttributeName", "Unknown Attribute FifoQueue.")
		f.wantError(f.tryCreate("q", "DeduplicationScope", "queue"), "InvalidAttributeName", "You can specify the DeduplicationScope only when FifoQueue is set to true.")
		f.wantError(f.tryCreate("q", "KmsMasterKeyId", "k", "SqsManagedSseEnabled", "true"), "InvalidAttributeName",
			"You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE.")
		f.wantError(f.tryCreate("q", "VisibilityTimeout", "43201"), "InvalidAttributeValue", "Invalid value for the parameter VisibilityTimeout.")
		f.fifo()
		_, err := f.client.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{QueueUrl: &f.url, Attributes: pairs([]string{"FifoQueue", "false"})})
		f.wantError(err, "InvalidAttributeValue", "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.")
	})
}

// Q1: it is kept and not enforced.
func TestPolicyHasToBeAJSONObject(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		const policy = `{"Statement":[{"Effect":"Deny","Principal":"*","Action":"sqs:*","Resource":"*"}]}`
		f.standard("Policy", policy)
		for _, bad := range []string{"no JSON", "[]", "null"} {
			f.wantError(f.trySet("Policy", bad), "InvalidAttributeValue", "Invalid value for the parameter Policy.")
		}
		if got := f.attribute("Policy"); got != policy {
			t.Errorf("policy %s", got)
		}
		f.send("a")
		f.set("Policy", "")
	})
}

// Q1, Q10.
func TestOneEncryptionTurnsOffTheOther(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		want := func(key, managed string) {
			t.Helper()
			if k, m := f.attribute("KmsMasterKeyId"), f.attribute("SqsManagedSseEnabled"); k != key || m != managed {
				t.Errorf("KmsMasterKeyId %q, SqsManagedSseEnabled %s; want %q and %s", k, m, key, managed)
			}
		}
		f.standard("KmsMasterKeyId", "alias/a")
		want("alias/a", "false")
		f.set("SqsManagedSseEnabled", "true")
		want("", "true")
		f.set("KmsMasterKeyId", "alias/b")
		want("alias/b", "false")
		f.set("SqsManagedSseEnabled", "false")
		want("alias/b", "false")
	})
}

// Q1.
func TestDataKeyReusePeriod(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard("KmsMasterKeyId", "alias/a")
		for _, seconds := range []string{"60", "86400"} {
			f.set("KmsDataKeyReusePeriodSeconds", seconds)
		}
		for _, seconds := range []string{"59", "86401", "-5", "x"} {
			f.wantError(f.trySet("KmsDataKeyReusePeriodSeconds", seconds), "InvalidAttributeValue",
				"Invalid value for the parameter KmsDataKeyReusePeriodSeconds.")
		}
		if got := f.attribute("KmsDataKeyReusePeriodSeconds"); got != "86400" {
			t.Errorf("KmsDataKeyReusePeriodSeconds %s", got)
		}
	})
}

// Q1.
func TestThroughputPerGroupNeedsDeduplicationPerGroup(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		const refusal = "Invalid value for the parameter FifoThroughputLimit. " +
			"Reason: To set FifoThroughputLimit to perMessageGroupId, the DeduplicationScope must be messageGroup."
		f.wantError(f.tryCreate("q.fifo", "FifoQueue", "true", "FifoThroughputLimit", "perMessageGroupId"), "InvalidAttributeValue", refusal)
		f.fifo()
		f.wantError(f.trySet("FifoThroughputLimit", "perMessageGroupId"), "InvalidAttributeValue", refusal)
		f.set("FifoThroughputLimit", "perMessageGroupId", "DeduplicationScope", "messageGroup")
		f.wantError(f.trySet("DeduplicationScope", "queue"), "InvalidAttributeValue", refusal)
		f.set("DeduplicationScope", "queue", "FifoThroughputLimit", "perQueue")
		f.set("DeduplicationScope", "messageGroup")
		f.set("FifoThroughputLimit", "perMessageGroupId")
	})
}

// Q5.
func TestCreateQueueIsIdempotent(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.must(f.tryCreate("q", "DelaySeconds", "1"))
		f.must(f.tryCreate("q"))
		f.must(f.tryCreate("q", "DelaySeconds", "1"))
		f.wantError(f.tryCreate("q", "DelaySeconds", "2"), "QueueAlreadyExists",
			"A queue already exists with the same name and a different value for attribute DelaySeconds")
	})
}

// Q5.
func TestQueueNames(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		for _, name := range []string{"a b", "q.fifo", "q.x"} {
			if err := f.tryCreate(name); err == nil {
				t.Errorf("%q was accepted", name)
			}
		}
		if err := f.tryCreate("q", "FifoQueue", "true"); err == nil {
			t.Error("a FIFO queue without .fifo was accepted")
		}
	})
}

// Q6.
func TestQueueThatDoesNotExist(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.url = "https://sqs.us-east-1.amazonaws.com/123456789012/none"
		const code, message = "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist."
		_, err := f.tryReceive(t.Context())
		f.wantError(err, code, message)
		var typed *types.QueueDoesNotExist
		if !errors.As(err, &typed) {
			t.Errorf("error %v", err)
		}
		f.standard()
		f.url = "https://sqs.us-east-1.amazonaws.com/999999999999/q"
		_, err = f.tryReceive(t.Context())
		f.wantError(err, code, message)
		_, err = f.client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("none")})
		f.wantError(err, code, message)
	})
}

func TestGetQueueURL(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		out, err := f.client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("q"), QueueOwnerAWSAccountId: aws.String("123456789012")})
		f.must(err)
		if *out.QueueUrl != f.url || f.url != "https://sqs.us-east-1.amazonaws.com/123456789012/q" {
			t.Errorf("URLs %s and %s", *out.QueueUrl, f.url)
		}
		_, err = f.client.GetQueueUrl(t.Context(), &sqs.GetQueueUrlInput{QueueName: aws.String("q"), QueueOwnerAWSAccountId: aws.String("999999999999")})
		f.wantError(err, "AWS.SimpleQueueService.NonExistentQueue", "The specified queue does not exist.")
	})
}

// W14.
func TestQueueByItsNameAlone(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.url = "q"
		f.send("a")
		f.wantReceive("a")
	})
}

// Q7.
func TestDeletedQueueCannotBeCreatedForAMinute(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a")
		f.deleteQueue()
		time.Sleep(time.Minute - time.Nanosecond)
		f.wantError(f.tryCreate("q"), "AWS.SimpleQueueService.QueueDeletedRecently",
			"You must wait 60 seconds after deleting a queue before you can create another with the same name.")
		time.Sleep(time.Nanosecond)
		f.must(f.tryCreate("q"))
		f.wantStates()
	})
}

// Q8.
func TestPurge(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		f.send("a", "b")
		m := f.receiveOne(atMost(1))
		purge := func() error {
			_, err := f.client.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: &f.url})
			return err
		}
		f.must(purge())
		f.wantStates()
		f.must(f.delete(m))
		f.wantError(purge(), "AWS.SimpleQueueService.PurgeQueueInProgress", "Only one PurgeQueue operation on q is allowed every 60 seconds.")
		time.Sleep(time.Minute)
		f.must(purge())
	})
}

// Q9.
func TestListQueues(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		want := []string{f.create("a1"), f.create("a2"), f.create("a3")}
		f.create("b")
		all, err := f.client.ListQueues(t.Context(), &sqs.ListQueuesInput{QueueNamePrefix: aws.String("a")})
		f.must(err)
		if !slices.Equal(all.QueueUrls, want) || all.NextToken != nil {
			t.Errorf("queues %q, want %q", all.QueueUrls, want)
		}
		pages := sqs.NewListQueuesPaginator(f.client, &sqs.ListQueuesInput{QueueNamePrefix: aws.String("a"), MaxResults: aws.Int32(2)})
		var got [][]string
		for pages.HasMorePages() {
			page, err := pages.NextPage(t.Context())
			f.must(err)
			got = append(got, page.QueueUrls)
		}
		if len(got) != 2 || !slices.Equal(slices.Concat(got...), want) {
			t.Errorf("pages %q, want two with %q", got, want)
		}
	})
}

func TestListDeadLetterSourceQueues(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		dead := f.create("dead")
		f.standard("RedrivePolicy", redrive("dead", 1))
		out, err := f.client.ListDeadLetterSourceQueues(t.Context(), &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: &dead})
		f.must(err)
		if !slices.Equal(out.QueueUrls, []string{f.url}) {
			t.Errorf("queues %q", out.QueueUrls)
		}
	})
}

// Q3, Q5.
func TestCreateQueueComparesWithTheSettingsInForce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.AttributeLag = time.Minute
		f.standard()
		f.set("DelaySeconds", "1")
		time.Sleep(time.Minute)
		f.must(f.tryCreate("q", "DelaySeconds", "1"))
	})
}

// Q3.
func TestListDeadLetterSourceQueuesGoesByTheSettingsInForce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.AttributeLag = time.Minute
		dead := f.create("dead")
		f.standard()
		f.set("RedrivePolicy", redrive("dead", 1))
		time.Sleep(time.Minute)
		out, err := f.client.ListDeadLetterSourceQueues(t.Context(), &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: &dead})
		f.must(err)
		if !slices.Equal(out.QueueUrls, []string{f.url}) {
			t.Errorf("queues %q", out.QueueUrls)
		}
	})
}

func TestTags(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		out, err := f.client.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("q"), Tags: pairs([]string{"a", "1", "b", "2"})})
		f.must(err)
		_, err = f.client.TagQueue(t.Context(), &sqs.TagQueueInput{QueueUrl: out.QueueUrl, Tags: pairs([]string{"b", "3", "c", "4"})})
		f.must(err)
		_, err = f.client.UntagQueue(t.Context(), &sqs.UntagQueueInput{QueueUrl: out.QueueUrl, TagKeys: []string{"a"}})
		f.must(err)
		tags, err := f.client.ListQueueTags(t.Context(), &sqs.ListQueueTagsInput{QueueUrl: out.QueueUrl})
		f.must(err)
		if want := pairs([]string{"b", "3", "c", "4"}); !maps.Equal(tags.Tags, want) {
			t.Errorf("tags %v, want %v", tags.Tags, want)
		}
	})
}

func TestUnsupportedOperation(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		_, err := f.client.StartMessageMoveTask(t.Context(), &sqs.StartMessageMoveTaskInput{SourceArn: aws.String(arn("q"))})
		var unsupported *types.UnsupportedOperation
		if !errors.As(err, &unsupported) {
			t.Errorf("error %v", err)
		}
	})
}
