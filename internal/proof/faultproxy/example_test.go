package faultproxy_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/tenure-go/tenure/internal/proof/faultproxy"
)

// The proxy holds a reply until the test releases it. Until then, the client does not know that the
// server has done the work.
func Example() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if line, err := bufio.NewReader(c).ReadString('\n'); err == nil {
			_, _ = fmt.Fprintf(c, "done: %s", line)
		}
	}()

	p, err := faultproxy.New(l.Addr().String(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	if err := p.Set(faultproxy.Faults{Replies: faultproxy.Flow{Hold: true}}); err != nil {
		fmt.Println(err)
		return
	}

	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	_, _ = fmt.Fprintln(c, "commit")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := p.Wait(ctx, func(s faultproxy.Stats) bool { return s.Replies.Held > 0 }); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the server has answered")

	if err := p.Set(faultproxy.Faults{}); err != nil {
		fmt.Println(err)
		return
	}
	reply, err := bufio.NewReader(c).ReadString('\n')
	fmt.Print(reply)
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// the server has answered
	// done: commit
}
