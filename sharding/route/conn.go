package route

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptrace"
	"sync/atomic"
)

// conn counts the bytes written to a connection to an owner.
type conn struct {
	net.Conn
	written atomic.Int64
}

func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.written.Add(int64(n))
	return n, err
}

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

type delivery struct {
	conn   *conn // nil if the connection is new or unknown
	before int64 // number of bytes written before the request
}

// On a busy machine, net/http may notice too late that the owner has closed an idle connection. If
// a request gets such a connection, deliver closes the connection before anything is written.
func deliver(ctx context.Context) (context.Context, *delivery) {
	d := &delivery{}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		d.conn = nil
		if !i.Reused {
			return // the owner has just accepted the connection
		}
		if d.conn = under(i.Conn); d.conn != nil {
			d.before = d.conn.written.Load()
			if ended(d.conn.Conn) {
				_ = d.conn.Close()
			}
		}
	}}), d
}

// For HTTP/2, under returns nil, because several requests share a connection.
func under(c net.Conn) *conn {
	if t, ok := c.(*tls.Conn); ok && t.ConnectionState().NegotiatedProtocol != "h2" {
		c = t.NetConn()
	}
	own, _ := c.(*conn)
	return own
}

// unsent reports whether a failed request got an idle connection, to which none of its bytes were
// written.
func (d *delivery) unsent() bool { return d.conn != nil && d.conn.written.Load() == d.before }
