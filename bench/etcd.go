package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

func etcdStore() *store {
	return &store{
		name: "etcd", title: "etcd", start: served(servers.Etcd, func(r *running) {
			r.version = func(ctx context.Context) (string, error) {
				c, err := etcdClient(r.dsn)
				if err != nil {
					return "", err
				}
				s, err := c.Status(ctx, r.dsn)
				if err = errors.Join(err, c.Close()); err != nil {
					return "", err
				}
				return s.Version, nil
			}
			r.calls = func(ctx context.Context) (int64, error) { return etcdCalls(ctx, r.dsn) }
		}),
		contenders: []contender{
			tenure(time.Second, func(ctx context.Context, at place) (core.Backend, error) {
				return etcd.Open(ctx, etcdConfig(at.DSN), at.Namespace, &etcd.Options{Create: true})
			}),
			{name: "concurrency.Election", ttl: 2 * time.Second, join: joinElection, onlyShards: true},
			{name: "concurrency.Mutex", join: joinMutex, onlyLocks: true},
			{name: "client-go leaderelection", ttl: clientGoLease, join: joinClientGo, onlyShards: true},
		},
	}
}

func etcdConfig(addr string) clientv3.Config {
	return clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop(), DialTimeout: 10 * time.Second}
}

func etcdClient(addr string) (*clientv3.Client, error) { return clientv3.New(etcdConfig(addr)) }

// etcdCalls returns the number of messages that the server's methods have received, including
// messages on streams.
func etcdCalls(ctx context.Context, addr string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	var calls float64
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "grpc_server_msg_received_total{") {
			n, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
			if err != nil {
				return 0, err
			}
			calls += n
		}
	}
	return int64(calls), nil
}

// One session holds all of a member's locks, as etcd's documentation advises.
func etcdSession(at place) (*locks, *clientv3.Client, *concurrency.Session, error) {
	client, err := etcdClient(at.DSN)
	if err != nil {
		return nil, nil, nil, err
	}
	session, err := concurrency.NewSession(client, concurrency.WithTTL(int(at.TTL/time.Second)))
	if err != nil {
		return nil, nil, nil, errors.Join(err, client.Close())
	}
	l := newLocks(at)
	l.leave = func() error { return errors.Join(session.Close(), client.Close()) }
	return l, client, session, nil
}

func joinMutex(_ context.Context, at place) (member, error) {
	l, _, session, err := etcdSession(at)
	if err != nil {
		return nil, err
	}
	l.take = func(ctx context.Context, name string) (write, unlock func(context.Context) error, err error) {
		m := concurrency.NewMutex(session, at.Namespace+"/"+name)
		if err := m.Lock(ctx); err != nil {
			return nil, nil, err
		}
		return nil, m.Unlock, nil // only rows of locks use it, and these rows write nothing
	}
	return l, nil
}

func joinElection(_ context.Context, at place) (member, error) {
	l, client, session, err := etcdSession(at)
	if err != nil {
		return nil, err
	}
	l.take = func(ctx context.Context, shard string) (write, unlock func(context.Context) error, err error) {
		e := concurrency.NewElection(session, at.Namespace+"/"+shard)
		if err := e.Campaign(ctx, at.Node); err != nil {
			return nil, nil, err
		}
		write = func(ctx context.Context) error {
			r, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(e.Key()), "=", e.Rev())).
				Then(clientv3.OpPut(at.Namespace+"-written/"+shard, string(body()))).Commit()
			if err == nil && !r.Succeeded {
				err = fmt.Errorf("%s is lost", shard)
			}
			return err
		}
		return write, e.Resign, nil
	}
	return l, nil
}
