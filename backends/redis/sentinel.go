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
	// sentinelPatience is how long a Sentinel may take to answer before the client continues
	// without it. At least for its first connection, the client waits for all Sentinels that it
	// asks. It keeps a silent one until the call ends.
	sentinelPatience = 250 * time.Millisecond
	// slowPatience is the longest patience, used if none answers sooner.
	slowPatience = 8 * sentinelPatience
)

// sentinels name the server. They are safe for concurrent use.
type sentinels struct {
	patience atomic.Int64 // in nanoseconds, from sentinelPatience to slowPatience
}

// ask connects to the server that Sentinels name. Each time none answers in time, it doubles
// the patience. It keeps that patience until a connection is quick again.
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

// impatiently returns the dial function if Sentinels name the server. It dials Sentinels and
// the server in the same way, because the client does not distinguish them here.
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
// messages has no deadline, and is not given one.
type hurried struct {
	net.Conn
	s *sentinels
}

func (c *hurried) SetDeadline(t time.Time) error     { return c.Conn.SetDeadline(c.soon(t)) }
func (c *hurried) SetReadDeadline(t time.Time) error { return c.Conn.SetReadDeadline(c.soon(t)) }

// soon returns t, or an earlier deadline.
func (c *hurried) soon(t time.Time) time.Time {
	if bound := time.Now().Add(time.Duration(c.s.patience.Load())); t.After(bound) {
		return bound
	}
	return t
}

// patient returns a connection as it was dialed.
func patient(conn net.Conn) net.Conn {
	if c, ok := conn.(*hurried); ok {
		return c.Conn
	}
	return conn
}
