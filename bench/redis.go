package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	tenureredis "github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

func redisStore() *store {
	return &store{
		name: "redis", title: "Redis", start: startRedis,
		contenders: []contender{
			tenure(time.Second, func(ctx context.Context, at place) (core.Backend, error) {
				return tenureredis.Open(ctx, &redis.UniversalOptions{Addrs: []string{at.DSN}}, at.Namespace,
					&tenureredis.Options{Create: true})
			}),
			{name: "redsync", ttl: time.Second, join: joinRedsync},
		},
	}
}

// Like the other stores, the server flushes each change to disk.
func startRedis(ctx context.Context) (r *running, err error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("redis: %w: no redis-server in the PATH", servers.ErrUnavailable)
	}
	dir, err := os.MkdirTemp("", "tenure-bench-")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "s")
	cmd := exec.CommandContext(context.WithoutCancel(ctx), path, "--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "yes",
		"--appendfsync", "always", "--loglevel", "warning")
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	r = &running{dsn: socket, closers: []func() error{func() error {
		err := errors.Join(client.Close(), cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		return errors.Join(err, os.RemoveAll(dir))
	}}}
	info := func(ctx context.Context, name string) (string, error) {
		text, err := client.Info(ctx).Result()
		_, text, _ = strings.Cut(text, "\n"+name+":")
		text, _, _ = strings.Cut(text, "\r")
		return text, err
	}
	r.version = func(ctx context.Context) (string, error) { return info(ctx, "redis_version") }
	m := &monitor{client: client, socket: socket}
	r.calls = m.calls
	r.closers = append(r.closers, m.close)
	for client.Ping(ctx).Err() != nil {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), r.close())
		}
	}
	return r, nil
}

// A monitor counts the commands that a server receives. Unlike the server's counters, it omits
// commands run by scripts.
type monitor struct {
	client *redis.Client
	socket string
	conn   net.Conn // nil until the first call
	lines  *bufio.Reader
	marks  int
	n      int64
}

// The method sends a command and counts the commands up to this one. The server keeps commands that
// the monitor has not read yet.
func (m *monitor) calls(ctx context.Context) (int64, error) {
	if m.conn == nil {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", m.socket)
		if err != nil {
			return 0, err
		}
		m.conn, m.lines = conn, bufio.NewReader(conn)
		if _, err := io.WriteString(conn, "MONITOR\r\n"); err != nil {
			return 0, err
		}
		if ok, err := m.lines.ReadString('\n'); err != nil || ok != "+OK\r\n" {
			return 0, fmt.Errorf("MONITOR answered %q: %w", ok, err)
		}
	}
	m.marks++
	mark := fmt.Sprintf("tenure-bench-mark-%d", m.marks)
	if err := m.client.Echo(ctx, mark).Err(); err != nil {
		return 0, err
	}
	for {
		line, err := m.lines.ReadString('\n')
		if err != nil {
			return 0, err
		}
		// +1795692180.068846 [0 lua] "hmget" "..."
		if _, from, _ := strings.Cut(line, " ["); strings.HasPrefix(from, "0 lua] ") {
			continue
		}
		m.n++
		if strings.Contains(line, mark) {
			return m.n, nil
		}
	}
}

func (m *monitor) close() error {
	if m.conn == nil {
		return nil
	}
	return m.conn.Close()
}

// Each shard has a mutex, which is extended three times within the TTL. The delay between retries
// is the default.
func joinRedsync(_ context.Context, at place) (member, error) {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: at.DSN, PoolSize: atOnce})
	rs := redsync.New(goredis.NewPool(client))
	l := newLocks(at)
	l.leave = func() error { l.calls.Wait(); return client.Close() }
	l.take = func(ctx context.Context, shard string) (write, unlock func(context.Context) error, err error) {
		key := at.Namespace + "/" + shard
		mutex := rs.NewMutex(key, redsync.WithExpiry(at.TTL), redsync.WithTries(1<<30))
		if err := mutex.LockContext(ctx); err != nil {
			return nil, nil, err
		}
		released := make(chan struct{})
		l.calls.Go(func() {
			t := time.NewTicker(at.TTL / 3)
			defer t.Stop()
			for {
				select {
				case <-t.C:
					_, err := mutex.ExtendContext(ctx)
					select {
					case <-released:
					default:
						if err != nil && ctx.Err() == nil {
							at.fail(fmt.Errorf("extend %s: %w", shard, err))
						}
					}
				case <-released:
					return
				case <-ctx.Done():
					return
				}
			}
		})
		write = func(ctx context.Context) error { // it has no fence
			return client.Set(ctx, key+"-written", body(), 0).Err()
		}
		unlock = func(ctx context.Context) error {
			close(released)
			_, err := mutex.UnlockContext(ctx)
			return err
		}
		return write, unlock, nil
	}
	return l, nil
}
