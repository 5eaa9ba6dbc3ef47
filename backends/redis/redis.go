package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

const backendName = "redis"

// pipeline is the maximum number of batches that one call has in flight.
const pipeline = 4

// Backend is a namespace in Redis. It implements driver.Backend and is safe for concurrent use.
type Backend struct {
	*kv.Backend
	store    *store
	rollback string // for Info
}

var _ driver.Backend = (*Backend)(nil)

// Open opens a namespace with new connections, which Close closes. If MasterName is set, the
// addresses are those of Sentinels, which report the server's address. Otherwise, several addresses
// or IsClusterMode select a cluster, and a single address selects one server. Open ignores the pool
// sizes, timeouts and retries in c. Each call is limited by its context and sent once.
//
// The context limits only Open itself, and o may be nil. An error explains in one line what to
// change.
func Open(ctx context.Context, c *goredis.UniversalOptions, namespace string, o *Options) (*Backend, error) {
	return open(ctx, c, namespace, o, nil)
}

// open lets tests insert a layer between the store and package kv.
func open(
	ctx context.Context, c *goredis.UniversalOptions, namespace string, o *Options, wrap func(kv.Store) kv.Store,
) (_ *Backend, err error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	s, err := newStore(c, namespace, opts)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.attach(ctx); err != nil {
		return nil, opening(namespace, err)
	}
	rollback := s.rollback
	var over kv.Store = s
	if wrap != nil {
		over = wrap(s)
	}
	b, err := kv.Open(ctx, over, kv.Options{
		Backend: backendName, Namespace: namespace, Create: opts.Create, Pipeline: pipeline,
		Incarnation: s.history.Load().lineage, Now: s.history.Load().attached,
		Limits: driver.Limits{
			BatchItems: 256, CommitCalls: pipeline, WriteOps: 256, WriteBytes: maxBytes / 2, MinTTL: 500 * time.Millisecond,
		},
	})
	if err != nil {
		return nil, opening(namespace, err)
	}
	return &Backend{Backend: b, store: s, rollback: rollback}, nil
}

// Info implements driver.Backend.
func (b *Backend) Info() driver.Info {
	i := b.Backend.Info()
	i.Rollback = b.rollback
	return i
}

// Join implements driver.Backend. If Options.Replicas is set, Join refuses a TTL that is not longer
// than min-replicas-max-lag. With such a TTL, a cut-off master would accept an application's own
// writes after the application's leases are no longer trusted.
func (b *Backend) Join(ctx context.Context, m driver.Member) (driver.Session, error) {
	if lag := time.Duration(b.store.lag.Load()); b.store.opts.Replicas > 0 && !b.store.opts.AllowLoss && lag > 0 && lag >= m.TTL {
		return nil, fmt.Errorf("tenure: %w: min-replicas-max-lag is %v, and the TTL %v: a master that is cut off takes writes "+
			"for longer than its leases are trusted: set it below the TTL, or raise the TTL", driver.ErrUnsupported, lag, m.TTL)
	}
	session, err := b.Backend.Join(ctx, m)
	if err == nil {
		b.store.joined(m.TTL)
	}
	return session, err
}

// RaiseFloor ensures that all future tokens of a namespace exceed the given token. After a restore
// from a backup, call RaiseFloor before you start any process. Pass the highest token known from
// logs, marks or metrics.
func RaiseFloor(
	ctx context.Context, c *goredis.UniversalOptions, namespace string, above driver.Token, o *Options,
) error {
	opts, err := o.withDefaults()
	if err != nil {
		return err
	}
	s, err := newStore(c, namespace, opts)
	if err != nil {
		return err
	}
	if err = s.attach(ctx); err != nil {
		err = opening(namespace, err)
	} else {
		err = kv.RaiseFloor(ctx, s, namespace, above)
	}
	return errors.Join(err, s.Close())
}

func opening(namespace string, err error) error {
	if denied(err) {
		return fmt.Errorf("tenure: Redis refuses this user namespace %q: grant it the rights of docs/backends/redis.md: %w",
			namespace, err)
	}
	if unknownCommand(err) && !strings.Contains(err.Error(), "rename-command") {
		err = classified(err)
	}
	return fmt.Errorf("tenure: cannot open namespace %q in Redis: %w", namespace, err)
}
