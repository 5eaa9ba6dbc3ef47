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

// backendName is the backend's name in Info and of its Opener.
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

// Open opens the namespace on the ensemble of servers, each host:port. The context limits the
// opening only. o may be nil. An error says in one line what to change.
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

// pipeline is the number of batches of one call in flight. Each has a change log.
const pipeline = 4

// limits returns the limits of namespaces below a root.
func limits(root string) kv.Options {
	return kv.Options{
		// A node that is created again has the previous node's versions, so a previous holder's
		// write could pass.
		Limits: driver.Limits{BatchItems: 512, WriteOps: 256, WriteBytes: 512 << 10, MinTTL: 500 * time.Millisecond,
			RecordsStay: true},
		Pipeline: pipeline,
		Fit:      func(txns []kv.Txn) int { return fit(txns, len(root)) },
	}
}

// fit returns how many transactions fit in one packet, for names that root makes longer than their
// keys. A server that gets a larger packet ends the connection.
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

// connect makes a store on which kv can open the namespace.
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

// prepare makes the directories of a namespace. Unless makeNew is set, the namespace must
// exist. Otherwise, the store may be the wrong one, and prepare writes nothing into it.
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

// makeFixed makes a directory unless it exists. It reads first, because reading needs no rights on
// the parent.
func makeFixed(c *zk.Conn, node string, acl []zk.ACL) error {
	if exists, _, err := c.Exists(node); err != nil || exists {
		return err
	}
	return create(c, node, acl)
}

// RaiseFloor makes every token that a namespace grants from now on greater than above. An
// operator calls it after restoring the ensemble from a backup. See kv.RaiseFloor. It needs no
// Create. If Options.Admins names administrators, only they may write the identity, and
// Options.User must be one of them.
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

// GuardOps returns operations to put at the front of a caller's Multi on the same ensemble.
// With them, the Multi takes effect if and only if the fence is the shard's current grant at
// that point of the store's order (rule F1). Otherwise, it is refused with zk.ErrBadVersion or
// zk.ErrNoNode at one of them. The caller's connection needs the right to read the namespace.
// If the fence is not current, GuardOps returns *driver.FencedError. The operations stay valid
// as long as this lease and this Backend, and may be kept that long.
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
