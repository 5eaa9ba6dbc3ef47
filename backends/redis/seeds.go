package redis

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// seedPatience is how long an address of a cluster may take to answer before the next one is
	// asked too.
	seedPatience = 250 * time.Millisecond
	// connectPatience is how long a connection may take, including the TLS handshake, if there is
	// another address to try. The answer to the first ping on it may take as long again.
	connectPatience = 2 * time.Second
	// searchTime limits the search for a server at Sentinels or the addresses of a cluster.
	// Once it has passed, the next connection begins a new search.
	searchTime = 15 * time.Second
)

// dialFunc connects to an address.
type dialFunc func(ctx context.Context, addr string) (net.Conn, error)

// hasty returns the dial function for several addresses. The client's own TLS dialer ignores
// contexts.
func hasty(c *goredis.UniversalOptions) func(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := c.Dialer
	switch {
	case dial != nil:
	case c.TLSConfig != nil:
		dial = (&tls.Dialer{Config: c.TLSConfig}).DialContext
	default:
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectPatience)
		defer cancel()
		return dial(ctx, network, addr)
	}
}

// reach connects to the node that answered last or that another node named. Without such a
// node, it connects to the first given address that answers. A known node need not answer,
// because it may be slow, and no other node has the namespace. One connection at a time asks
// the addresses, and others wait for its result.
func (d *dialer) reach(ctx context.Context, dial dialFunc) (net.Conn, string, error) {
	for asks := false; ; asks = true {
		d.mu.Lock()
		addr, known := d.node, d.known
		d.mu.Unlock()
		if known {
			conn, err := dial(ctx, addr)
			if err != nil {
				d.lost(addr)
			}
			return conn, addr, err
		}
		if asks {
			return d.first(ctx, dial)
		}
		select {
		case d.asking <- struct{}{}:
			defer func() { <-d.asking }()
		case <-ctx.Done():
			return nil, "", context.Cause(ctx)
		}
	}
}

// asked is the result of asking an address.
type asked struct {
	conn net.Conn
	addr string
	err  error
}

// first asks the addresses in turn and returns the first that answers. It asks the next as soon
// as one has failed or was silent for seedPatience. A slow address may still be the first,
// because all may be slow.
func (d *dialer) first(ctx context.Context, dial dialFunc) (net.Conn, string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.mu.Lock()
	turn := d.turn
	d.mu.Unlock()
	answers := make(chan asked)
	var failed []error
	for n := 0; len(failed) < len(d.seeds); {
		var late <-chan time.Time
		if n < len(d.seeds) {
			addr := d.seeds[(turn+n)%len(d.seeds)]
			if !d.begin(func() { ask(ctx, dial, addr, answers) }) {
				return nil, "", errClosed()
			}
			if n++; n < len(d.seeds) {
				late = time.After(seedPatience)
			}
		}
		select {
		case a := <-answers:
			if a.err == nil {
				d.found(a.addr)
				return a.conn, a.addr, nil
			}
			failed = append(failed, a.err)
		case <-late:
		case <-ctx.Done():
			return nil, "", errors.Join(append(failed, context.Cause(ctx))...)
		}
	}
	return nil, "", errors.Join(failed...)
}

// ask connects to an address and waits for an answer. After the end of ctx, it closes a late
// connection.
func ask(ctx context.Context, dial dialFunc, addr string, answers chan<- asked) {
	conn, err := dial(ctx, addr)
	if err == nil {
		if err = ping(ctx, conn); err != nil {
			err = fmt.Errorf("%s: %w", addr, errors.Join(err, conn.Close()))
		}
	}
	select {
	case answers <- asked{conn, addr, err}:
	case <-ctx.Done():
		if err == nil {
			_ = conn.Close() // only the ping was sent on it
		}
	}
}

// ping waits for the answer to a PING, which is sent before any password. An error is an answer
// too, unless the node refuses the connection or has not read its data yet.
func ping(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := io.WriteString(conn, "*1\r\n$4\r\nPING\r\n"); err != nil {
		return err
	}
	const most = 1 << 10
	in := bufio.NewReaderSize(io.LimitReader(conn, most), most)
	answer, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	for _, refusal := range []string{"-ERR max number of clients", "-DENIED", "-LOADING"} {
		if strings.HasPrefix(answer, refusal) {
			return fmt.Errorf("it refuses connections: %.120q", strings.TrimSpace(answer))
		}
	}
	if in.Buffered() > 0 || answer[0] != '+' && answer[0] != '-' {
		return fmt.Errorf("this is no Redis: it answers %.80q to PING", answer)
	}
	if !stop() { // the deadline is already set
		return context.Cause(ctx)
	}
	return nil
}

// begin starts a goroutine, unless hangUp was called. clients.close waits for it.
func (d *dialer) begin(run func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.running.Go(run)
	}
	return !d.closed
}

// found directs new connections to an address that answered, unless another node has named the node
// of the namespace.
func (d *dialer) found(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known {
		d.node, d.known = addr, true
	}
}
