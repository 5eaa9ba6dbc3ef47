package zookeeper

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

const backendName = "zookeeper"

// Backend is a namespace on a ZooKeeper ensemble. It implements driver.Backend and is safe for
// concurrent use.
type Backend struct {
	*kv.Backend
	store    *store
	identity string    // key of the identity record
	opened   *identity // when the namespace was opened
}

var _ driver.Backend = (*Backend)(nil)

// Open opens a namespace on an ensemble. Each server has the form host:port. The context limits
// only Open itself, and o may be nil. An error explains in one line what to change.
func Open(ctx context.Context, servers []string, namespace string, o *Options) (*Backend, error) {
	return open(ctx, servers, namespace, o, func(s changelog.Store) changelog.Store { return s },
		func(s kv.Store) kv.Store { return s })
}

// open lets tests wrap the stores.
func open(ctx context.Context, servers []string, namespace string, o *Options,
	below func(changelog.Store) changelog.Store, whole func(kv.Store) kv.Store) (*Backend, error) {
	s, opts, err := connect(ctx, servers, namespace, o)
	if err != nil {
		return nil, err
	}
	keys, err := kvkeys.New(namespace)
	if err != nil {
		return nil, joined(err, s.Close())
	}
	over := whole(changelog.New(below(s), namespace, changelog.Options{Parallel: pipeline, ReadKeys: 512}))
	ko := limits(opts.Root)
	ko.Backend, ko.Namespace, ko.Create = backendName, namespace, opts.Create
	b, err := kv.Open(ctx, over, ko)
	if err != nil {
		return nil, joined(err, over.Close())
	}
	if _, err := s.Get(ctx, keys.Identity()); err != nil {
		return nil, joined(err, b.Close())
	}
	return &Backend{Backend: b, store: s, identity: keys.Identity(), opened: s.identity.Load()}, nil
}

// pipeline is the maximum number of batches that one call has in flight. Each has a change log.
const pipeline = 4

func limits(root string) kv.Options {
	return kv.Options{
		// A recreated node repeats the versions of the deleted node, so a previous holder's write
		// could succeed.
		Limits: driver.Limits{BatchItems: 512, WriteOps: 256, WriteBytes: 512 << 10, MinTTL: 500 * time.Millisecond,
			RecordsStay: true},
		Pipeline: pipeline,
		Fit:      func(txns []kv.Txn) int { return fit(txns, len(root)) },
	}
}

// fit returns the number of transactions that fit in one packet. Because of the root, names are
// longer than their keys. If a packet is too large, the server ends the connection.
func fit(txns []kv.Txn, root int) int {
	const reserve = changelog.MaxPiggybackBytes + 16<<10 // the guard, the piggybacked transaction and their names
	size := 0
	for i := range txns {
		for _, c := range txns[i].If {
			size += 2*(opBytes+root+len(c.Key)) + aclBytes
		}
		for _, op := range txns[i].Ops {
			size += 2*(opBytes+root+len(op.Key)) + 2*aclBytes + len(op.Value)
		}
		if size > maxPacket-reserve {
			return max(1, i)
		}
	}
	return len(txns)
}

// connect creates a store on which kv can open the namespace.
func connect(ctx context.Context, servers []string, namespace string, o *Options) (*store, *Options, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, nil, err
	}
	if err := driver.CheckNamespace(namespace); err != nil {
		return nil, nil, err
	}
	addrs, err := opts.checkServers(servers)
	if err != nil {
		return nil, nil, err
	}
	r, err := opts.rights()
	if err != nil {
		return nil, nil, err
	}
	s := newStore(paths{opts.Root}, r, addrs, opts.link())
	if err := s.prepare(ctx, namespace, opts.Create); err != nil {
		return nil, nil, joined(err, s.Close())
	}
	return s, opts, nil
}

// prepare creates a namespace's directories. Unless makeNew is set, prepare writes nothing if the
// namespace does not exist, because the store may be the wrong one.
func (s *store) prepare(ctx context.Context, namespace string, makeNew bool) error {
	lk, err := s.writes.link(ctx)
	if err != nil {
		return fmt.Errorf("tenure: opening namespace %q: %w", namespace, err)
	}
	own := s.paths.root + "/" + namespace
	_, err = call(ctx, lk, func(c *zk.Conn) (struct{}, error) {
		if there, _, err := c.Exists(s.paths.root); err != nil || there {
			if _, err := c.Sync(s.paths.root); err != nil {
				return struct{}{}, err
			}
		}
		exists, _, err := c.Exists(own + "/!id")
		if err != nil {
			return struct{}{}, err
		}
		if !exists && !makeNew {
			return struct{}{}, &driver.MissingError{
				What: "there is no identity record below " + own,
				Make: "open it once with Create; if it was in use before", Err: driver.ErrStoreChanged,
			}
		}
		for at := 1; at <= len(own); at++ {
			if at < len(own) && own[at] != '/' {
				continue
			}
			if err := makeFixed(c, own[:at], s.rights.directory(true)); err != nil {
				return struct{}{}, err
			}
		}
		for _, d := range layout {
			if err := makeFixed(c, own+"/"+d.name, s.rights.directory(d.permanent)); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, nil
	})
	if err != nil {
		return fmt.Errorf("tenure: opening namespace %q: %w", namespace, err)
	}
	return nil
}

// makeFixed creates a directory unless it exists. A read comes first, because it needs no
// permission on the parent.
func makeFixed(c *zk.Conn, node string, acl []zk.ACL) error {
	if exists, _, err := c.Exists(node); err != nil || exists {
		return err
	}
	return create(c, node, acl)
}

// RaiseFloor ensures that all future tokens of a namespace exceed the given token. Call RaiseFloor
// after restoring the ensemble from a backup. See kv.RaiseFloor. RaiseFloor ignores Options.Create.
// If Options.Admins is set, only administrators may write the identity, and Options.User must be
// one of them.
func RaiseFloor(ctx context.Context, servers []string, namespace string, above driver.Token, o *Options) error {
	if o != nil {
		c := *o
		c.Create = false
		o = &c
	}
	s, _, err := connect(ctx, servers, namespace, o)
	if err != nil {
		return err
	}
	over := changelog.New(s, namespace, changelog.Options{})
	return joined(kv.RaiseFloor(ctx, over, namespace, above), over.Close())
}

// GuardOps returns operations to put at the front of the caller's Multi on the same ensemble. With
// these operations, the Multi takes effect only if the fence is current at that time (rule F1).
// Otherwise, the Multi is refused with zk.ErrBadVersion or zk.ErrNoNode at one of these operations.
// The caller's connection needs permission to read the namespace. If the fence is not current,
// GuardOps returns *driver.FencedError. The caller can reuse the operations as long as the lease is
// valid and the Backend is open.
func (b *Backend) GuardOps(ctx context.Context, fence driver.Fence) ([]any, error) {
	conditions, err := kv.Guard(ctx, b.Backend, fence)
	if err != nil {
		return nil, err
	}
	cond := conditions[len(conditions)-1] // the identity's condition is from the opening
	_, node, err := b.store.paths.node(cond.Key)
	if err != nil {
		return nil, err
	}
	m, ok := b.store.stats.get(cond.Key)
	if !ok || m.rev != cond.Rev {
		page, err := b.store.Get(ctx, cond.Key)
		if err != nil {
			return nil, err
		}
		if m, ok = b.store.stats.get(cond.Key); !ok || m.rev != cond.Rev || page.Pairs[0].Rev != cond.Rev {
			return nil, fmt.Errorf("tenure: zookeeper: %w: the shard's record moved meanwhile", driver.ErrRetry)
		}
	}
	_, id, err := b.store.paths.node(b.identity)
	if err != nil {
		return nil, err
	}
	dir, _ := split(id)
	return []any{
		&zk.CheckVersionRequest{Path: dir + "/" + b.opened.marker, Version: anyVersion},
		&zk.CheckVersionRequest{Path: id, Version: b.opened.stat.version},
		&zk.CheckVersionRequest{Path: node, Version: m.version},
	}, nil
}
