// Serve is sqstest as a process, for clients in other languages. It prints its endpoint, on the loopback interface, and
// ends with its input, or after ten minutes.
package main

import (
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"time"

	"github.com/sqsub/sqsub/sqstest"
)

func main() {
	time.AfterFunc(10*time.Minute, func() { os.Exit(1) })
	server := sqstest.NewServer()
	server.StrandAbandonedPolls = true // as SQS does
	web := httptest.NewServer(server)
	fmt.Println(web.URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
}
