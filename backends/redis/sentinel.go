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
	// sentinelPatience is how long a Sentinel may take to answer before the others are asked
	// without it. The client waits for all that it asks, at least with its first connection, and
	// keeps one that was silent until the call ended.
	sentinelPatience = 250 * time.Millisecond
	// slowPatience is how long it may take at most, where none answers sooner.
	slowPatience = 8 * sentinelPatience
)

// sentinels are those that name the server. Safe for concurrent use.
type sentinels struct {
	patience atomic.Int64 // in nanoseconds, from sentinelPatience to slowPatience
}

// ask connects to the server that Sentinels name. While none answers in time it gives them twice
// as long, and keeps to that until a connection is quick again.
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

// impatiently is how connections are dialed where Sentinels name the server: to a Sentinel
// and to the server alike, which the client does not distinguish here.
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

// hurried is a connection to a Sentinel, or to a server until DialHook has it. A wait for
// messages has no deadline, and stays without.
type hurried struct {
	net.Conn
	s *sentinels
}

func (c *hurried) SetDeadline(t time.Time) error     { return c.Conn.SetDeadline(c.soon(t)) }
func (c *hurried) SetReadDeadline(t time.Time) error { return c.Conn.SetReadDeadline(c.soon(t)) }

// soon is a deadline, or an earlier one.
func (c *hurried) soon(t time.Time) time.Time {
	if bound := time.Now().Add(time.Duration(c.s.patience.Load())); t.After(bound) {
		return bound
	}
	return t
}

// patient is a connection as it was dialed.
func patient(conn net.Conn) net.Conn {
	if c, ok := conn.(*hurried); ok {
		return c.Conn
	}
	return conn
}
