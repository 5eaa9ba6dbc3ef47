package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/lock"
)

// The given function opens the backend.
func tenure(ttl time.Duration, open func(ctx context.Context, at place) (core.Backend, error)) contender {
	return contender{
		name: "Tenure", ours: true, ttl: ttl, waits: 10_000,
		join: func(ctx context.Context, at place) (member, error) {
			b, err := open(ctx, at)
			if err != nil {
				return nil, err
			}
			return newTenure(b, at)
		},
	}
}

type tenureMember struct {
	b     core.Backend
	e     *core.Elector
	locks *lock.Locks
	stop  context.CancelFunc
	done  chan error
}

func newTenure(b core.Backend, at place) (*tenureMember, error) {
	e, err := core.NewElector(b, &core.Options{Node: at.Node, TTL: at.TTL, Logger: slog.New(slog.DiscardHandler), TraceDir: at.traces})
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	m := &tenureMember{b: b, e: e, locks: lock.Open(e), stop: stop, done: make(chan error, 1)}
	go func() { m.done <- e.Run(ctx) }()
	return m, nil
}

func (m *tenureMember) want(shards []string, won func(grant)) error {
	return m.serve(shards, func(lease *core.Lease) {
		won(grant{lease.Shard(), func(ctx context.Context) error {
			_, err := lease.Append(ctx, body())
			return err
		}})
	})
}

func (m *tenureMember) serve(shards []string, won func(*core.Lease)) error {
	return m.e.Contend(func(ctx context.Context, lease *core.Lease) error {
		won(lease)
		<-ctx.Done()
		return nil
	}, shards...)
}

func (m *tenureMember) release(ctx context.Context, shard string) error {
	return m.e.Withdraw(ctx, shard)
}

// No other contender can release a shard to a named successor.
func (m *tenureMember) handOver(ctx context.Context, to *tenureMember, shard string) error {
	session := to.e.View().Session
	if session == "" {
		return fmt.Errorf("the successor of %s has no session yet", shard)
	}
	return m.e.HandOver(ctx, session, shard)
}

func (m *tenureMember) close() error {
	m.stop()
	return errors.Join(<-m.done, m.b.Close())
}
