package main

import (
	"bufio"
	"bytes"
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/sqsub/sqsub/sqstest"
)

// binary is the program, built once for all tests.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "quickstart")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "quickstart.exe") // Windows asks for the suffix, others do not mind it
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		panic(string(out))
	}
	return m.Run()
}

func TestDemoEndsByItself(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.wantSuccess()
	for _, report := range []string{"daily", "weekly", "annual"} {
		p.wantInOrder(report+" ", "received, receive count 1", "rendered", "deleted")
	}
	p.wantInOrder("annual ", "received", "extended", "extended", "extended", "extended", "rendered", "deleted")
	if strings.Contains(strings.Join(p.lines("daily "), "\n"), "extended") {
		t.Error("daily was extended, although it takes less than half of the visibility timeout")
	}
	p.wantInOrder("", "stopping", "3 received", "3 deleted", "0 lost")
}

func TestSIGTERMLetsTheHandlerFinish(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.terminateAt("annual ", "extended")
	p.wantSuccess()
	p.wantInOrder("", "stopping", "annual", "extended", "annual", "rendered", "annual", "deleted", "0 lost")
	p.wantInOrder("annual ", "received, receive count 1", "extended", "rendered", "deleted")
}

// With -queue the program finds its settings as on AWS. The environment gives
// it another endpoint.
func TestQueueFlag(t *testing.T) {
	t.Parallel()
	server := sqstest.NewServer()
	if _, err := server.Client().CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("mine")}); err != nil {
		t.Fatal(err)
	}
	p := startOn(t, server, "-queue", "mine")
	p.terminateAt("annual ", "extended")
	p.wantSuccess()
	p.wantInOrder("annual ", "received, receive count 1", "extended", "rendered", "deleted")
	if left := server.Messages("mine"); len(left) != 0 {
		t.Errorf("the queue still holds %+v", left)
	}
}

func TestMissingQueue(t *testing.T) {
	t.Parallel()
	p := startOn(t, sqstest.NewServer(), "-queue", "nowhere")
	if err := p.wait(); err == nil {
		t.Error("exit status 0 for a queue that does not exist")
	}
	if want := "there is no such queue in region eu-west-1"; !strings.Contains(p.stderr.String(), want) {
		t.Errorf("no %q in %q", want, &p.stderr)
	}
}

// A process is the program running as a child.
type process struct {
	*testing.T
	cmd    *exec.Cmd
	stdout *bufio.Scanner
	stderr bytes.Buffer
	output []string // lines of stdout so far
}

func start(t *testing.T, args ...string) *process {
	return startIn(t, os.Environ(), args...)
}

// startOn starts the program on a server behind a socket.
func startOn(t *testing.T, server *sqstest.Server, args ...string) *process {
	ts := httptest.NewServer(server)
	t.Cleanup(ts.Close)
	return startIn(t, append(os.Environ(), "AWS_ENDPOINT_URL_SQS="+ts.URL, "AWS_REGION=eu-west-1",
		"AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY=secret",
		"AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull), args...)
}

func startIn(t *testing.T, env []string, args ...string) *process {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // then it is killed
	t.Cleanup(cancel)
	p := &process{T: t, cmd: exec.CommandContext(ctx, binary, args...)}
	p.cmd.Env = env
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = bufio.NewScanner(stdout)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// scan reads the next line of the output.
func (p *process) scan() (line string, ok bool) {
	if !p.stdout.Scan() {
		return "", false
	}
	p.output = append(p.output, p.stdout.Text())
	return p.stdout.Text(), true
}

func (p *process) wait() error {
	for ok := true; ok; {
		_, ok = p.scan()
	}
	return p.cmd.Wait()
}

func (p *process) wantSuccess() {
	p.Helper()
	err := p.wait()
	if err != nil {
		p.Errorf("the program ended with %v", err)
	}
	if p.stderr.Len() > 0 {
		p.Errorf("the program complained: %s", &p.stderr)
	}
	p.Logf("output:\n%s", strings.Join(p.output, "\n"))
}

// terminateAt sends SIGTERM as soon as a line has both texts.
func (p *process) terminateAt(text, more string) {
	p.Helper()
	if runtime.GOOS == "windows" {
		p.cmd.Process.Kill()
		p.wait()
		p.Skip("Windows has no SIGTERM")
	}
	for {
		line, ok := p.scan()
		if !ok {
			p.Fatalf("no line with %q and %q in\n%s%s", text, more, strings.Join(p.output, "\n"), &p.stderr)
		}
		if strings.Contains(line, text) && strings.Contains(line, more) {
			break
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
}

// lines returns the lines of the output that contain a text.
func (p *process) lines(text string) []string {
	var found []string
	for _, line := range p.output {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// wantInOrder checks that the lines with a text contain the others one after
// another.
func (p *process) wantInOrder(text string, others ...string) {
	p.Helper()
	rest := strings.Join(p.lines(text), "\n")
	for _, want := range others {
		_, after, found := strings.Cut(rest, want)
		if !found {
			p.Errorf("no %q where expected in the lines with %q:\n%s", want, text, strings.Join(p.output, "\n"))
			return
		}
		rest = after
	}
}
