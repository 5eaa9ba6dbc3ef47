package conformance_test

import (
	"bufio"
	"context"
	"net"
	"testing"
	"time"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/suite"
)

// TestProxy: on a server that echoes lines, each fault of a Proxy has the effect that Wire
// documents.
func TestProxy(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	arrived := make(chan string, 10)
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					arrived <- lines.Text()
					if _, err := conn.Write(append(lines.Bytes(), '\n')); err != nil {
						return
					}
				}
			}()
		}
	}()
	proxy, wire := conformance.NewProxy(suite.Wrap(t), server.Addr().String())
	for _, c := range []struct {
		name                       string
		fault                      func() func()
		arrives, answered, refused bool
		delivered                  bool                           // when the fault ends
		struck                     func(s faultproxy.Stats) int64 // bytes that the fault holds or loses
	}{
		{name: "none", fault: func() func() { return func() {} }, arrives: true, answered: true},
		{name: "request lost", fault: wire.DropRequests,
			struck: func(s faultproxy.Stats) int64 { return s.Requests.Swallowed }},
		{name: "reply lost", fault: wire.DropReplies, arrives: true,
			struck: func(s faultproxy.Stats) int64 { return s.Replies.Swallowed }},
		{name: "request held", fault: wire.Hold, delivered: true,
			struck: func(s faultproxy.Stats) int64 { return s.Requests.Held }},
		{name: "cut", fault: wire.Cut, refused: true},
	} {
		end := c.fault()
		conn, err := net.Dial("tcp", proxy.Addr())
		if (err != nil) != c.refused {
			t.Fatalf("%s: connecting: %v", c.name, err)
		}
		if err == nil {
			exchange(t, c.name, conn, arrived, c.arrives, c.answered)
		}
		if c.struck != nil { // the fault must take effect before it ends
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := proxy.Wait(ctx, func(s faultproxy.Stats) bool { return c.struck(s) == int64(len(c.name)+1) })
			cancel()
			if err != nil {
				t.Fatalf("%s: %v in %+v", c.name, err, proxy.Stats())
			}
		}
		end()
		if c.delivered {
			if got := <-arrived; got != c.name {
				t.Errorf("%s: %q is delivered", c.name, got)
			}
		}
	}
	if wire.Duplicate != nil {
		t.Error("requests are said to be duplicated, by bytes that nobody parses")
	}
}

// exchange sends a line, and checks whether it arrives and is answered.
func exchange(t *testing.T, line string, conn net.Conn, arrived <-chan string, arrives, answered bool) {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte(line + "\n")); err != nil {
		t.Fatal(err)
	}
	if arrives {
		if got := <-arrived; got != line {
			t.Errorf("%s: %q arrives", line, got)
		}
	}
	patience := 100 * time.Millisecond // for a line without an answer
	if answered {
		patience = time.Minute
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(conn).ReadString('\n'); (err == nil) != answered {
		t.Errorf("%s: reading the answer: %v", line, err)
	}
}
