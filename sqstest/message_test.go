package sqstest_test

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

func text(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &value}
}

func attributesOf(list ...string) map[string]types.MessageAttributeValue {
	m := map[string]types.MessageAttributeValue{}
	for name, value := range pairs(list) {
		m[name] = text(value)
	}
	return m
}

func (f *fixture) sendWith(attributes map[string]types.MessageAttributeValue) (*sqs.SendMessageOutput, error) {
	return f.client.SendMessage(f.Context(), &sqs.SendMessageInput{
		QueueUrl: &f.url, MessageBody: aws.String("x"), MessageAttributes: attributes,
	})
}

// M7: the digests recorded from AWS.
func TestDigestsOfMessageAttributes(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		for want, list := range map[string][]string{
			"adb59cd4678ea5a855436b949cd07ab6": {"MyAttribute", "foobar"},
			"ae7155c6026991b6d54b11589678bf9c": {"Foo", "Bar"},
			"a311262e065454b75da111d535b8dacd": {"Hello", "There"},
			"fca026605781cb4126a1e9044df24232": {"General", "Kenobi", "Hello", "There"},
			"4c360f3fdafd970e05fae2f149d997f5": {"General", "Kenobi", "Hello", "There", "Help.Me", "Me"},
		} {
			sent, err := f.sendWith(attributesOf(list...))
			f.must(err)
			if got := aws.ToString(sent.MD5OfMessageAttributes); got != want {
				t.Errorf("%q: sent %s, want %s", list, got, want)
			}
			if got := aws.ToString(f.receiveOne().MD5OfMessageAttributes); got != want {
				t.Errorf("%q: received %s, want %s", list, got, want)
			}
		}
	})
}

// M7, M1.
func TestTraceHeader(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		const header = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
		sent, err := f.client.SendMessage(t.Context(), &sqs.SendMessageInput{
			QueueUrl: &f.url, MessageBody: aws.String("x"),
			MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{
				"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String(header)},
			},
		})
		f.must(err)
		if got := aws.ToString(sent.MD5OfMessageSystemAttributes); got != "5ae4d5d7636402d80f4eb6d213245a88" {
			t.Errorf("digest %s", got)
		}
		if got := f.receiveOne().Attributes["AWSTraceHeader"]; got != header {
			t.Errorf("trace header %q", got)
		}
	})
}

// M6, M8: what does not apply is not there.
func TestPlainMessageHasNoOptionalMembers(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		sent, err := f.sendWith(nil)
		f.must(err)
		if *sent.MD5OfMessageBody != "9dd4e461268c8034f5c8564e155c67a6" || sent.MD5OfMessageAttributes != nil || sent.SequenceNumber != nil {
			t.Errorf("sent %+v", sent)
		}
		out, err := f.client.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &f.url})
		f.must(err)
		m := out.Messages[0]
		if *m.MD5OfBody != *sent.MD5OfMessageBody || *m.MessageId != *sent.MessageId || m.Attributes != nil ||
			m.MessageAttributes != nil || m.MD5OfMessageAttributes != nil {
			t.Errorf("received %+v", m)
		}
	})
}

// R5: names, prefixes and All; the digest is of what is returned.
func TestSelectionOfMessageAttributes(t *testing.T) {
	for _, c := range []struct {
		ask, want []string
	}{
		{nil, nil},
		{[]string{"Hello"}, []string{"Hello"}},
		{[]string{"All"}, []string{"General", "Hello", "Help.Me"}},
		{[]string{".*"}, []string{"General", "Hello", "Help.Me"}},
		{[]string{"Hel.*"}, []string{"Hello", "Help.Me"}},
		{[]string{"General", "Help.*"}, []string{"General", "Help.Me"}},
		{[]string{"unknown", "AWS.x", "..foo"}, nil},
	} {
		bubble(t, func(t *testing.T, f *fixture) {
			f.standard()
			_, err := f.sendWith(attributesOf("General", "Kenobi", "Hello", "There", "Help.Me", "Me"))
			f.must(err)
			m := f.receiveOne(func(in *sqs.ReceiveMessageInput) { in.MessageAttributeNames = c.ask })
			if got := slices.Sorted(maps.Keys(m.MessageAttributes)); !slices.Equal(got, c.want) {
				t.Errorf("%q brought %q, want %q", c.ask, got, c.want)
			}
			if digest := aws.ToString(m.MD5OfMessageAttributes); len(c.want) == 1 && digest != "a311262e065454b75da111d535b8dacd" ||
				(len(c.want) == 0) != (digest == "") {
				t.Errorf("%q brought digest %q", c.ask, digest)
			}
		})
	}
}

func TestBinaryAndCustomAttributes(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		_, err := f.sendWith(map[string]types.MessageAttributeValue{
			"b": {DataType: aws.String("Binary.png"), BinaryValue: []byte{0, 255}},
			"n": {DataType: aws.String("Number.int"), StringValue: aws.String("17")},
		})
		f.must(err)
		a := f.receiveOne().MessageAttributes
		if *a["b"].DataType != "Binary.png" || string(a["b"].BinaryValue) != "\x00\xff" || *a["n"].StringValue != "17" {
			t.Errorf("received %+v", a)
		}
	})
}

// M1, R4.
func TestSystemAttributes(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		sent := time.Now()
		f.send("a")
		time.Sleep(1500 * time.Millisecond)
		received := time.Now()
		f.receiveOne(visibility(1))
		time.Sleep(time.Second)
		a := f.receiveOne().Attributes
		want := map[string]string{
			"SenderId":                         a["SenderId"],
			"SentTimestamp":                    strconv.FormatInt(sent.UnixMilli(), 10),
			"ApproximateReceiveCount":          "2",
			"ApproximateFirstReceiveTimestamp": strconv.FormatInt(received.UnixMilli(), 10),
		}
		if !maps.Equal(a, want) || a["SenderId"] == "" {
			t.Errorf("attributes %v, want %v", a, want)
		}
		time.Sleep(time.Minute)
		a = f.receiveOne(func(in *sqs.ReceiveMessageInput) {
			//lint:ignore SA1019 consumers still use it
			in.AttributeNames = []types.QueueAttributeName{"SentTimestamp"}
			in.MessageSystemAttributeNames = []types.MessageSystemAttributeName{"ApproximateReceiveCount"}
		}).Attributes
		if got := slices.Sorted(maps.Keys(a)); !equal(got, []string{"ApproximateReceiveCount", "SentTimestamp"}) {
			t.Errorf("two lists of names brought %q", got)
		}
	})
}

// M4, M5, M9.
func TestSendErrors(t *testing.T) {
	many := map[string]types.MessageAttributeValue{}
	for i := range 11 {
		many[strconv.Itoa(i)] = text("x")
	}
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		for _, c := range []struct {
			body          string
			attributes    map[string]types.MessageAttributeValue
			code, message string
		}{
			{"", nil, "MissingParameter", "The request must contain the parameter MessageBody."},
			{"x", many, "InvalidParameterValue", "Number of message attributes [11] exceeds the allowed maximum [10]."},
			{"x", attributesOf("ErrorDetails", ""), "InvalidParameterValue", "Message (user) attribute 'ErrorDetails' must contain a non-empty value of type 'String'."},
			{strings.Repeat("x", 1<<20+1), nil, "InvalidParameterValue", "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes."},
			{strings.Repeat("x", 1<<20-7), attributesOf("a", "b"), "InvalidParameterValue", "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes."},
		} {
			_, err := f.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: &c.body, MessageAttributes: c.attributes})
			f.wantError(err, c.code, c.message)
		}
		for _, name := range []string{"AWS.x", "amazon.x", ".x", "a..b", "a b", ""} {
			if _, err := f.sendWith(attributesOf(name, "x")); err == nil {
				t.Errorf("attribute %q was accepted", name)
			}
		}
		f.wantStates()
	})
}

func typed(dataType, value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: &dataType, StringValue: &value}
}

// M5: also what follows the dot has the characters of a body, and the whole up to 256.
func TestTypesOfMessageAttributes(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		for dataType, fine := range map[string]bool{
			"String": true, "Number.int": true, "String.a b.é": true, "String." + strings.Repeat("é", 249): true,
			"String." + strings.Repeat("é", 250): false, "String.": false, "String.\x01": false, "Text": false, "": false,
		} {
			if _, err := f.sendWith(map[string]types.MessageAttributeValue{"a": typed(dataType, "1")}); (err == nil) != fine {
				t.Errorf("type %q: error %v", dataType, err)
			}
		}
	})
}

// M5.
func TestNumbersAreDecimal(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		for value, fine := range map[string]bool{
			"17": true, "-0.5": true, "+1.5e-3": true, "1E100": true,
			"NaN": false, "Inf": false, "-infinity": false, "0x10p1": false, "1_000": false, "1 ": false, "one": false, "-": false,
		} {
			_, err := f.sendWith(map[string]types.MessageAttributeValue{"a": typed("Number", value)})
			if fine {
				f.must(err)
			} else {
				f.wantError(err, "InvalidParameterValue", "Can't cast the value of message (user) attribute 'a' to a number.")
			}
		}
	})
}

// M1.
func TestSystemAttributesThatCannotBeSent(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		for _, c := range []struct {
			name, dataType, value string
			code, message         string
		}{
			{"SenderId", "String", "x", "InvalidParameterValue", "Message system attribute name 'SenderId' is invalid."},
			{"AWSTraceHeader", "Number", "1", "InvalidParameterValue", "The type of message (system) attribute 'AWSTraceHeader' is invalid. It must be String."},
			{"AWSTraceHeader", "String", "", "InvalidParameterValue", "Message (system) attribute 'AWSTraceHeader' must contain a non-empty value of type 'String'."},
			{"AWSTraceHeader", "String", "\x01", "InvalidMessageContents", invalidCharacters},
		} {
			attributes := map[string]types.MessageSystemAttributeValue{c.name: {DataType: &c.dataType, StringValue: &c.value}}
			_, err := f.client.SendMessage(t.Context(), &sqs.SendMessageInput{
				QueueUrl: &f.url, MessageBody: aws.String("x"), MessageSystemAttributes: attributes,
			})
			f.wantError(err, c.code, c.message)
			out, err := f.client.SendMessageBatch(t.Context(), &sqs.SendMessageBatchInput{
				QueueUrl: &f.url,
				Entries:  []types.SendMessageBatchRequestEntry{{Id: aws.String("0"), MessageBody: aws.String("x"), MessageSystemAttributes: attributes}},
			})
			f.must(err)
			if len(out.Failed) != 1 || *out.Failed[0].Code != c.code || *out.Failed[0].Message != c.message {
				t.Errorf("batch: %+v, want %s: %s", out.Failed, c.code, c.message)
			}
		}
		f.wantStates()
	})
}

const invalidCharacters = "Invalid characters found. Valid unicode characters are " +
	"#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF."

// M4, M5.
func TestForbiddenCharacters(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.standard()
		_, err := f.client.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &f.url, MessageBody: aws.String("\x01")})
		var invalid *types.InvalidMessageContents
		if !errors.As(err, &invalid) {
			t.Errorf("error %v", err)
		}
		_, err = f.sendWith(attributesOf("a", "\x00"))
		f.wantError(err, "InvalidMessageContents", invalidCharacters)
		const fine = "\t\r\n <&>\"\\ \u2028 ä 世 😀"
		f.send(fine)
		f.wantReceive(fine)
		_, err = f.sendWith(attributesOf("a", fine))
		f.must(err)
	})
}
