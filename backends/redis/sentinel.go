package redis

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"
)

const (
	// sentinelPatience is the time after which the client continues without a Sentinel's answer. At
	// least for its first connection, the client waits for all Sentinels that it queries. The
	// connection to a silent Sentinel is kept until the call ends.
	sentinelPatience = 250 * time.Millisecond
	// slowPatience is the maximum time to wait for a Sentinel if no Sentinel answers sooner.
	slowPatience = 8 * sentinelPatience
)

// sentinels finds the server through Sentinels. It is safe for concurrent use.
type sentinels struct {
	patience atomic.Int64 // in nanoseconds, from sentinelPatience to slowPatience
}

// ask connects to the server that the Sentinels report. Whenever no Sentinel answers within the
// patience, the patience is doubled. A quick connection resets it.
func (s *sentinels) ask(ctx context.Context, connect func() (net.Conn, error)) (net.Conn, error) {
	for {
		patience, began := s.patience.Load(), time.Now()
		conn, err := connect()
		switch {
		case err == nil:
			if time.Since(began) < sentinelPatience {
				s.patience.Store(int64(sentinelPatience))
			}
			return conn, nil
		case !errors.Is(err, os.ErrDeadlineExceeded), patience >= int64(slowPatience), ctx.Err() != nil:
			return nil, err
		}
		s.patience.CompareAndSwap(patience, 2*patience)
	}
}

// The returned function dials Sentinels and the server in the same way, because the client does not
// distinguish them here.
func (s *sentinels) impatiently(
	dial func(ctx context.Context, network, addr string) (net.Conn, error),
) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &hurried{conn, s}, nil
	}
}

// hurried is a connection to a Sentinel or, until DialHook receives it, to a server. Waits for
// messages have no deadline, and hurried adds none.
type hurried struct {
	net.Conn
	s *sentinels
}

func (c *hurried) SetDeadline(t time.Time) error     { return c.Conn.SetDeadline(c.soon(t)) }
func (c *hurried) SetReadDeadline(t time.Time) error { return c.Conn.SetReadDeadline(c.soon(t)) }

// soon returns t, or the end of the patience if that is earlier.
func (c *hurried) soon(t time.Time) time.Time {
	if bound := time.Now().Add(time.Duration(c.s.patience.Load())); t.After(bound) {
		return bound
	}
	return t
}

// patient returns a connection without hurried's deadlines.
func patient(conn net.Conn) net.Conn {
	if c, ok := conn.(*hurried); ok {
		return c.Conn
	}
	return conn
}
