package sqstest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// Client returns an SQS client that calls the server directly, without a connection or a goroutine in between. It
// has a region and credentials; optFns can change these and everything else, such as the retries.
//
// A call runs in the goroutine that makes it, so that the client can be used inside a bubble of testing/synctest,
// whether it was made inside or not.
func (s *Server) Client(optFns ...func(*sqs.Options)) *sqs.Client {
	return sqs.New(sqs.Options{
		Region: defaultRegion,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: "sqstest", Source: "sqstest"}, nil
		}),
		HTTPClient: direct{s},
	}, optFns...)
}

// direct is an HTTP client whose only server is in the same process (S27).
type direct struct{ server *Server }

func (d direct) Do(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r := req.WithContext(ctx) // a copy to change
	if r.Body == nil {
		r.Body = http.NoBody
	}
	defer r.Body.Close()
	if r.Host == "" {
		r.Host = r.URL.Host
	}
	w := &recorder{header: http.Header{}}
	broken := w.serve(d.server, r)
	if w.refused {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if w.status == 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
	}
	var body io.Reader = bytes.NewReader(w.body)
	length := int64(len(w.body))
	if broken {
		body = io.MultiReader(body, brokenReader{})
		length = -1
	}
	return &http.Response{
		Status:        strconv.Itoa(w.status) + " " + http.StatusText(w.status),
		StatusCode:    w.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        w.header,
		Body:          io.NopCloser(body),
		ContentLength: length,
		Request:       req,
	}, nil
}

// recorder keeps the server's answer. The status stays 0 if there is none.
type recorder struct {
	header  http.Header
	status  int
	body    []byte
	refused bool
}

func (w *recorder) Header() http.Header { return w.header }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *recorder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body = append(w.body, p...)
	return len(p), nil
}

// serve reports whether the server broke the connection, which it does as http.Handlers do: by a panic.
func (w *recorder) serve(h http.Handler, r *http.Request) (broken bool) {
	defer func() {
		if v := recover(); v != nil {
			if err, ok := v.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
			broken = true
		}
	}()
	h.ServeHTTP(w, r)
	return false
}

// brokenReader is what a reader of an answer finds where it was cut off.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
