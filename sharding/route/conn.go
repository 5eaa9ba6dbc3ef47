package route

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// conn is a connection to an owner that counts the bytes written.
type conn struct {
	net.Conn
	written atomic.Int64
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

// counted returns a dial function whose connections are conns.
func counted(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: c}, nil
	}
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// delivery is one request on its connection.
type delivery struct {
	conn   *conn // nil: a new connection, or unknown
	before int64 // bytes written before the request
}

// deliver returns a context for one request, and its delivery. If the owner has closed the idle
// connection that the request gets, deliver also closes it, so that nothing is written to it. On a
// busy machine, net/http notices the end of a connection late.
func deliver(ctx context.Context) (context.Context, *delivery) {
	d := &delivery{}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		d.conn = nil
		if !i.Reused {
			return // its owner has just accepted it
		}
		if d.conn = under(i.Conn); d.conn != nil {
			d.before = d.conn.written.Load()
			if ended(d.conn.Conn) {
				_ = d.conn.Close()
			}
		}
	}}), d
}

// under returns the conn below a connection of HTTP/1. Requests of HTTP/2 share a connection.
func under(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok && t.ConnectionState().NegotiatedProtocol != "h2" {
		c = t.NetConn()
	}
	own, _ := c.(*conn)
	return own
}

// unsent reports whether no byte of a request that failed was written to a connection that was idle.
func (d *delivery) unsent() bool { return d.conn != nil && d.conn.written.Load() == d.before }
