package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

func consulStore() *store {
	return &store{
		name: "consul", title: "Consul", start: served(servers.Consul, func(r *running) {
			r.version = func(context.Context) (string, error) {
				client, err := consulClient(r.dsn)
				if err != nil {
					return "", err
				}
				self, err := client.Agent().Self()
				if err != nil {
					return "", err
				}
				return fmt.Sprint(self["Config"]["Version"]), nil
			}
			// The server does not count its requests, so a proxy counts them.
			var calls atomic.Int64
			proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: r.dsn})
			proxy.ErrorLog = log.New(io.Discard, "", 0) // canceled calls of members
			counting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				calls.Add(1)
				proxy.ServeHTTP(w, req)
			}))
			r.counted = counting.Listener.Addr().String()
			r.calls = func(context.Context) (int64, error) { return calls.Load(), nil }
			r.closers = append(r.closers, func() error { counting.CloseClientConnections(); counting.Close(); return nil })
		}),
		contenders: []contender{
			tenure(time.Second, func(ctx context.Context, at place) (core.Backend, error) {
				return consul.Open(ctx, consul.Config{Address: at.DSN}, at.Namespace, &consul.Options{Create: true})
			}),
			{name: "api.Lock", ttl: 10 * time.Second, join: joinConsulLock, waits: 300, most: 400,
				why: "one connection for each lock"},
		},
	}
}

func consulClient(addr string) (*api.Client, error) {
	c := api.DefaultConfig()
	c.Address = addr
	c.Transport.MaxIdleConnsPerHost = atOnce
	return api.NewClient(c)
}

// One session holds all of a member's locks, with the default lock delay of 15 s.
func joinConsulLock(_ context.Context, at place) (member, error) {
	client, err := consulClient(at.DSN)
	if err != nil {
		return nil, err
	}
	id, _, err := client.Session().CreateNoChecks(&api.SessionEntry{TTL: at.TTL.String()}, nil)
	if err != nil {
		return nil, err
	}
	l := newLocks(at)
	renewed := make(chan error, 1)
	go func() { renewed <- client.Session().RenewPeriodic(at.TTL.String(), id, nil, l.ctx.Done()) }()
	l.leave = func() error { return <-renewed } // the end of renewal destroys the session
	l.take = func(ctx context.Context, shard string) (write, unlock func(context.Context) error, err error) {
		key := at.Namespace + "/" + shard
		lock, err := client.LockOpts(&api.LockOptions{Key: key, Session: id})
		if err != nil {
			return nil, nil, err
		}
		if lost, err := lock.Lock(ctx.Done()); err != nil || lost == nil {
			return nil, nil, errors.Join(err, context.Cause(ctx))
		}
		write = func(ctx context.Context) error {
			ok, r, _, err := client.Txn().Txn(api.TxnOps{
				{KV: &api.KVTxnOp{Verb: api.KVCheckSession, Key: key, Session: id}},
				{KV: &api.KVTxnOp{Verb: api.KVSet, Key: at.Namespace + "-written/" + shard, Value: body()}},
			}, new(api.QueryOptions).WithContext(ctx))
			if err == nil && !ok {
				err = fmt.Errorf("%s is lost: %v", shard, r.Errors)
			}
			return err
		}
		return write, func(context.Context) error { return lock.Unlock() }, nil
	}
	return l, nil
}
