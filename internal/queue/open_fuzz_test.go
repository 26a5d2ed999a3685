package queue

import (
	"strings"
	"testing"
)

// What is accepted names a queue; what is not has a reason.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "reports", "reports.fifo", ".fifo", strings.Repeat("q", 81), "a b", "https://sqs.eu-west-1.amazonaws.com/123456789012/reports",
		"http://localhost:4566/000000000000/q.fifo", "https://host", "ftp://host/q", "arn:aws:sqs:eu-west-1:123456789012:reports", "arn:aws:sns:eu-west-1:1:t",
		"arn:aws:sqs:::", "https://%zz/q", "://", "q\x00",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := Parse(s)
		if err != nil {
			if err.Error() == "" || id != (Identifier{}) {
				t.Errorf("%q: %v, %+v", s, err, id)
			}
			return
		}
		if id.Name == "" || strings.Contains(id.Name, "/") || id.FIFO() != strings.HasSuffix(id.Name, ".fifo") {
			t.Errorf("%q is %+v", s, id)
		}
		if id.URL == "" && !isName(id.Name) || id.URL != "" && id.URL != s {
			t.Errorf("%q is %+v", s, id)
		}
		if (id.Region == "") != (id.Account == "") {
			t.Errorf("%q is %+v", s, id)
		}
	})
}
