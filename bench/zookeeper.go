package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

func zookeeperStore() *store {
	return &store{
		name: "zookeeper", title: "ZooKeeper", start: served(servers.ZooKeeper, func(r *running) {
			r.version = func(ctx context.Context) (string, error) {
				text, err := fourLetters(ctx, r.dsn, "srvr")
				v, _, _ := strings.Cut(strings.TrimPrefix(text, "Zookeeper version: "), "-")
				return v, err
			}
			r.calls = func(ctx context.Context) (int64, error) {
				text, err := fourLetters(ctx, r.dsn, "mntr")
				if err != nil {
					return 0, err
				}
				for line := range strings.Lines(text) {
					if n, ok := strings.CutPrefix(line, "zk_packets_received\t"); ok {
						return strconv.ParseInt(strings.TrimSpace(n), 10, 64)
					}
				}
				return 0, fmt.Errorf("mntr has no zk_packets_received: %.200q", text)
			}
		}),
		contenders: []contender{
			tenure(time.Second, func(ctx context.Context, at place) (core.Backend, error) {
				return zookeeper.Open(ctx, []string{at.DSN}, at.Namespace, &zookeeper.Options{Create: true})
			}),
			{name: "zk.Lock", ttl: 4 * time.Second, join: joinZK},
		},
	}
}

// fourLetters sends one of ZooKeeper's four-letter commands and returns the answer.
func fourLetters(ctx context.Context, addr, word string) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func joinZK(_ context.Context, at place) (member, error) {
	conn, _, err := zk.Connect([]string{at.DSN}, at.TTL, zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	l := newLocks(at)
	l.leave = func() error { conn.Close(); return nil }
	l.take = func(_ context.Context, shard string) (write, unlock func(context.Context) error, err error) {
		path := "/" + at.Namespace + "/" + shard
		lock := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
		if err := lock.Lock(); err != nil {
			return nil, nil, err
		}
		write = func(context.Context) error { // it has no fence
			_, err := conn.Set(path, body(), -1)
			return err
		}
		return write, func(context.Context) error { return lock.Unlock() }, nil
	}
	return l, nil
}
