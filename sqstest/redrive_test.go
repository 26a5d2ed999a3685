package sqstest_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// X3: at the receive that would be one too many, and not when the last timeout lapses.
func TestMessageMovesAtTheNextReceive(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		dead := f.create("dead")
		f.standard("VisibilityTimeout", "1", "RedrivePolicy", redrive("dead", 2))
		f.send("a")
		for range 2 {
			f.wantReceive("a")
			time.Sleep(time.Minute)
		}
		f.wantStates("a visible")
		f.send("b")
		f.wantReceive("b")
		f.wantStates("b in flight 1s")
		f.url = dead
		f.wantStates("a visible")
	})
}

// X4: the move does not count; everything else stays.
func TestDeadLetterKeepsItsIdentity(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		dead := f.create("dead")
		f.standard("VisibilityTimeout", "1", "RedrivePolicy", redrive("dead", 1))
		f.send("a")
		first := f.receiveOne()
		time.Sleep(time.Second)
		f.wantReceive()
		f.must(f.delete(first)) // gone from here: accepted, and without effect
		f.url = dead
		m := f.receiveOne()
		if *m.MessageId != *first.MessageId || count(m) != 2 ||
			m.Attributes["SentTimestamp"] != first.Attributes["SentTimestamp"] ||
			m.Attributes["DeadLetterQueueSourceArn"] != arn("q") || first.Attributes["DeadLetterQueueSourceArn"] != "" {
			t.Errorf("first %v, then %v", first.Attributes, m.Attributes)
		}
	})
}

// X5: a standard message grows no younger.
func TestRetentionOfADeadLetterCountsFromTheSending(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		dead := f.create("dead", "MessageRetentionPeriod", "60")
		f.standard("VisibilityTimeout", "0", "RedrivePolicy", redrive("dead", 1))
		f.send("a")
		f.receiveOne()
		time.Sleep(50 * time.Second)
		f.receive()
		f.url = dead
		f.wantStates("a visible")
		time.Sleep(10 * time.Second)
		f.wantStates()
	})
}

// X5, X6.
func TestGroupGoesOnAfterAMove(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		dead := f.create("dead.fifo", "FifoQueue", "true")
		f.fifo("VisibilityTimeout", "1", "RedrivePolicy", redrive("dead.fifo", 1))
		f.sendTo("g", "a", "b")
		first := f.receiveOne(atMost(1))
		time.Sleep(time.Second)
		f.wantReceive("b")
		f.url = dead
		m := f.receiveOne()
		if m.Attributes["MessageDeduplicationId"] != *m.MessageId || *m.MessageId != *first.MessageId ||
			m.Attributes["SentTimestamp"] == first.Attributes["SentTimestamp"] {
			t.Errorf("first %v, then %v", first.Attributes, m.Attributes)
		}
	})
}

func TestMutualDeadLetterQueuesDoNotPassAMessageOnForever(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		dead := f.create("dead")
		f.standard("VisibilityTimeout", "1", "RedrivePolicy", redrive("dead", 1))
		source := f.url
		f.url = dead
		f.set("RedrivePolicy", redrive("q", 1))
		onDead := f.poll(t.Context())
		f.url = source
		f.send("a")
		f.receiveOne()
		f.poll(t.Context()).want(f, 20*time.Second)
		onDead.want(f, time.Second, "a")
	})
}

// X1, X2.
func TestRedrivePolicyErrors(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.create("dead.fifo", "FifoQueue", "true")
		f.create("dead")
		f.standard()
		for policy, reason := range map[string]string{
			`{"deadLetterTargetArn":"` + arn("dead") + `"}`: "Redrive policy does not contain mandatory attribute: maxReceiveCount.",
			`{"maxReceiveCount":1}`:                         "Redrive policy does not contain mandatory attribute: deadLetterTargetArn.",
			redrive("nowhere", 1):                           "Dead letter target does not exist.",
			redrive("dead.fifo", 1):                         "Dead-letter queue must be same type of queue as the source.",
			redrive("dead", 1001):                           "Invalid value for maxReceiveCount: 1001, valid values are from 1 to 1000 both inclusive.",
			"no JSON":                                       "Redrive policy is not a valid JSON map.",
		} {
			_, err := f.client.SetQueueAttributes(t.Context(), &sqs.SetQueueAttributesInput{
				QueueUrl: &f.url, Attributes: map[string]string{"RedrivePolicy": policy},
			})
			f.wantError(err, "InvalidParameterValue", "Value "+policy+" for parameter RedrivePolicy is invalid. Reason: "+reason)
		}
	})
}

// X8.
func TestRedriveAllowPolicy(t *testing.T) {
	for policy, allowed := range map[string]bool{
		``:                                  true,
		`{"redrivePermission":"allowAll"}`:  true,
		`{"redrivePermission":"denyAll"}`:   false,
		byQueue(arn("other"), arn("q")):     true,
		byQueue(arn("other"), arn("other")): false,
	} {
		bubble(t, func(t *testing.T, f *fixture) {
			f.create("dead", "RedriveAllowPolicy", policy)
			want := func(err error) {
				t.Helper()
				if allowed {
					f.must(err)
				} else {
					f.wantError(err, "InvalidParameterValue", "Value "+redrive("dead", 1)+" for parameter RedrivePolicy is invalid. "+
						"Reason: Dead letter target does not allow this source queue.")
				}
			}
			want(f.tryCreate("q", "RedrivePolicy", redrive("dead", 1)))
			f.standard()
			want(f.trySet("RedrivePolicy", redrive("dead", 1)))
		})
	}
}

// X8, Q3.
func TestRedriveAllowPolicyCountsOnceItIsInForce(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.AttributeLag = time.Minute
		f.url = f.create("dead")
		f.set("RedriveAllowPolicy", `{"redrivePermission":"denyAll"}`)
		f.must(f.tryCreate("early", "RedrivePolicy", redrive("dead", 1)))
		time.Sleep(time.Minute)
		if f.tryCreate("late", "RedrivePolicy", redrive("dead", 1)) == nil {
			t.Error("the policy in force was ignored")
		}
	})
}

func byQueue(arns ...string) string {
	return `{"redrivePermission":"byQueue","sourceQueueArns":["` + strings.Join(arns, `","`) + `"]}`
}

// X8.
func TestRedriveAllowPolicyErrors(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		for _, policy := range []string{
			"no JSON", "null", "[]", `{}`, `{"redrivePermission":"some"}`, `{"redrivePermission":"byQueue"}`,
			`{"redrivePermission":"denyAll","sourceQueueArns":["` + arn("q") + `"]}`,
			byQueue("q"), byQueue(slices.Repeat([]string{arn("q")}, 11)...),
		} {
			f.wantError(f.trySet("RedriveAllowPolicy", policy), "InvalidAttributeValue", "Invalid value for the parameter RedriveAllowPolicy.")
		}
		f.must(f.trySet("RedriveAllowPolicy", byQueue(slices.Repeat([]string{arn("q")}, 10)...)))
		f.must(f.trySet("RedriveAllowPolicy", ""))
		if got := f.attribute("RedriveAllowPolicy"); got != "" {
			t.Errorf("policy %s, want none", got)
		}
	})
}

// X1, X2: the count may be given as a string, and the empty string ends the policy.
func TestRedrivePolicyIsNormalizedAndRemoved(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.create("dead")
		f.standard("RedrivePolicy", `{"maxReceiveCount":"3", "deadLetterTargetArn":"`+arn("dead")+`"}`)
		if got, want := f.attribute("RedrivePolicy"), redrive("dead", 3); got != want {
			t.Errorf("policy %s, want %s", got, want)
		}
		f.set("RedrivePolicy", "")
		if got := f.attribute("RedrivePolicy"); got != "" {
			t.Errorf("policy %s, want none", got)
		}
	})
}
