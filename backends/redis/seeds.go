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
	// seedPatience is the time after which the dialer also queries a cluster's next address.
	seedPatience = 250 * time.Millisecond
	// If there is another address to try, connectPatience limits the time to connect, including the
	// TLS handshake. The same limit applies separately to the wait for the first ping's answer.
	connectPatience = 2 * time.Second
	// searchTime limits the search for a server through Sentinels or a cluster's addresses. After
	// that time, the next connection begins a new search.
	searchTime = 15 * time.Second
)

type dialFunc func(ctx context.Context, addr string) (net.Conn, error)

// hasty returns a dial function for several addresses. Unlike the client's own TLS dialer, the
// function observes contexts.
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

// reach connects to the known node or, without one, to the first address in seeds that answers. A
// known node, which answered last or was reported by another node, need not answer again, because
// it may be slow and no other node has the namespace. Only one connection at a time queries the
// addresses, and the others wait for the result.
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

// asked is the result of querying an address.
type asked struct {
	conn net.Conn
	addr string
	err  error
}

// The addresses are queried one after another, each as soon as the previous one has failed or been
// silent for seedPatience. The result is the first address that answers, even if it is slow,
// because all addresses may be slow.
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

// ask connects to an address and waits for an answer. If ctx ends first, ask closes the connection.
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

// ping sends a PING before any password, and waits for the answer. An error also counts as an
// answer, unless the node refuses the connection or has not loaded its data yet.
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

// begin starts a goroutine for which clients.close waits, unless hangUp was called.
func (d *dialer) begin(run func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.running.Go(run)
	}
	return !d.closed
}

// New connections go to an address that answered, unless a node is already known.
func (d *dialer) found(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known {
		d.node, d.known = addr, true
	}
}
