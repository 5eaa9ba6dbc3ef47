package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/kv"
)

// rederive is the interval at which Follow reads all records again, even without a watch event
// (rule S13).
const rederive = time.Minute

// watches collects the nodes whose watches fired. For every event, in order, the client library
// calls the method fire before it delivers any later reply.
type watches struct {
	mu    sync.Mutex
	fired map[string]struct{} // by node
	wake  chan struct{}       // has a token if fired may contain nodes
}

func newWatches() *watches {
	return &watches{fired: make(map[string]struct{}), wake: make(chan struct{}, 1)}
}

func (w *watches) fire(node string) {
	w.mu.Lock()
	w.fired[node] = struct{}{}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watches) take() map[string]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	fired := w.fired
	w.fired = make(map[string]struct{})
	return fired
}

// Follow keeps watches on the followed nodes. See changelog.Store.
//
// A watch fires once. The next read of the node sets the watch again, so no change is missed in
// between. All watches end with the connection. On the next connection, once the server has caught
// up, Follow reads and watches all nodes again.
func (s *store) Follow(ctx context.Context, prefixes []string, fn func(*kv.Page) error) error {
	f := &follower{store: s, fn: fn, records: make(map[string]followed)}
	for _, p := range prefixes {
		if last := p[len(p)-1]; last != '/' && last != '-' {
			_, node, err := s.paths.node(p)
			if err != nil {
				return err
			}
			f.alone = append(f.alone, watched{p, node})
			continue
		}
		sc, err := s.paths.scope(p)
		if err == nil && sc.nested {
			err = badKey(p)
		}
		if err != nil {
			return err
		}
		f.scopes = append(f.scopes, sc)
	}
	for {
		lk, err := s.reads.link(ctx)
		if err == nil {
			err = f.on(ctx, lk)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case s.life.Err() != nil:
			return errShut
		case !errors.Is(err, errEnded):
			return err
		}
	}
}

// follower is the state of one call of Follow.
type follower struct {
	*store
	fn      func(*kv.Page) error
	scopes  []scope
	alone   []watched
	records map[string]followed // by node
}

type watched struct{ key, node string }

type followed struct {
	found
	key   string
	alone bool
	armed bool // it has a watch, or its watch fired and take has not returned the node
}

// The nodes are followed on one link until an error occurs, which is errEnded if the link ended.
func (f *follower) on(ctx context.Context, lk *link) error {
	w := newWatches()
	defer lk.watch(w)()
	at, err := lk.catchUp(ctx, f.paths.root)
	if err != nil {
		return f.ended(lk, err)
	}
	if err := f.all(ctx, lk, true); err != nil {
		return f.ended(lk, err)
	}
	if err := f.deliver(at); err != nil {
		return err
	}
	again := time.NewTicker(rederive)
	defer again.Stop()
	for {
		select {
		case <-w.wake:
			// The reads may lack changes whose watches fire later, so the revision excludes such
			// changes.
			at = kv.Rev(lk.wire.zxid.Load())
			// A list that lacks a node is later than the transaction that deleted the node, so the
			// other writes of that transaction are read before the list is delivered.
			ours := false
			for listed := true; listed && err == nil; {
				fired := w.take()
				listed = slices.ContainsFunc(f.scopes, func(sc scope) bool { _, ok := fired[sc.dir]; return ok })
				var read bool
				read, err = f.some(ctx, lk, fired)
				ours = ours || read
			}
			if err == nil && !ours {
				continue // a node of another follower on the same link
			}
		case <-again.C:
			at = kv.Rev(lk.wire.zxid.Load())
			err = f.all(ctx, lk, false)
		case <-lk.down:
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		}
		if err != nil {
			return f.ended(lk, err)
		}
		if err := f.deliver(at); err != nil {
			return err
		}
	}
}

// If the link has ended, errEnded replaces the error of a call.
func (f *follower) ended(lk *link, err error) error {
	if !lk.alive() {
		return errEnded
	}
	return readError(err)
}

func (f *follower) deliver(at kv.Rev) error {
	page := &kv.Page{Rev: at, Pairs: make([]kv.Pair, 0, len(f.records))}
	for _, r := range f.records {
		if r.exists {
			page.Pairs = append(page.Pairs, r.pair(r.key))
		}
	}
	slices.SortFunc(page.Pairs, func(a, b kv.Pair) int { return strings.Compare(a.Key, b.Key) })
	return f.fn(page)
}

// All directories are read, and then all records. If arm is true, all watches are set, and
// otherwise only the missing ones.
func (f *follower) all(ctx context.Context, lk *link, arm bool) error {
	var nodes []watched
	for _, sc := range f.scopes {
		listed, err := f.list(ctx, lk, sc, arm, true)
		if err != nil {
			return err
		}
		nodes = append(nodes, listed...)
	}
	if err := f.load(ctx, lk, nodes, arm); err != nil {
		return err
	}
	return f.load(ctx, lk, f.alone, arm)
}

// The nodes whose watches fired are read, and their watches are set again. The result shows whether
// there were any such nodes.
func (f *follower) some(ctx context.Context, lk *link, fired map[string]struct{}) (read bool, err error) {
	var nodes []watched
	for _, sc := range f.scopes {
		if _, ok := fired[sc.dir]; ok {
			read = true
			fresh, err := f.list(ctx, lk, sc, true, false)
			if err != nil {
				return true, err
			}
			nodes = append(nodes, fresh...)
		}
	}
	for node := range fired {
		// A node without a watch was removed. If such a node exists again, it is in the list.
		if r, ok := f.records[node]; ok && r.armed {
			read = true
			nodes = append(nodes, watched{r.key, node})
		}
	}
	return read, f.load(ctx, lk, nodes, true)
}

// list reads the names in a directory, and returns all records or, unless the argument all is true,
// only those without a watch.
func (f *follower) list(ctx context.Context, lk *link, sc scope, arm, all bool) ([]watched, error) {
	names, err := call(ctx, lk, func(c *zk.Conn) ([]string, error) {
		var (
			names []string
			err   error
		)
		if arm {
			names, _, _, err = c.ChildrenW(sc.dir)
		} else {
			names, _, err = c.Children(sc.dir)
		}
		return names, err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sc.dir, err)
	}
	var nodes []watched
	present := make(map[string]bool)
	for _, key := range sc.keys(names) {
		_, node, err := f.paths.node(key)
		if err != nil {
			continue // a node of another program
		}
		present[node] = true
		if all || !f.records[node].armed {
			nodes = append(nodes, watched{key, node})
		}
	}
	maps.DeleteFunc(f.records, func(node string, r followed) bool {
		dir, _ := split(node)
		return dir == sc.dir && !r.alone && !present[node]
	})
	return nodes, nil
}

// load reads records, and sets all their watches or, unless arm is true, only the missing ones. If
// a node is missing, its record stays unchanged until the directory's watch fires and causes a
// list. By then, the other writes of the removal are certain to be read.
func (f *follower) load(ctx context.Context, lk *link, nodes []watched, arm bool) error {
	if len(nodes) == 0 {
		return nil
	}
	alone := make(map[string]bool)
	for _, w := range f.alone {
		alone[w.node] = true
	}
	armed := make([]bool, len(nodes))
	for i, n := range nodes {
		armed[i] = arm || !f.records[n.node].armed
	}
	all, err := call(ctx, lk, func(c *zk.Conn) ([]found, error) {
		all := make([]found, len(nodes))
		errs := make([]error, len(nodes))
		if len(nodes) == 1 { // the usual case, in which a call waits for the record
			all[0], errs[0] = getWatched(c, nodes[0].node, armed[0], alone[nodes[0].node])
			return all, errs[0]
		}
		var done sync.WaitGroup
		slots := make(chan struct{}, readers)
		for i, n := range nodes {
			slots <- struct{}{}
			done.Go(func() {
				all[i], errs[i] = getWatched(c, n.node, armed[i], alone[n.node])
				<-slots
			})
		}
		done.Wait()
		return all, joined(errs...)
	})
	if err != nil {
		return err
	}
	for i, n := range nodes {
		if old, ok := f.records[n.node]; ok && all[i].exists && all[i].stat.rev < old.stat.rev {
			return fmt.Errorf("%s has revision %d after %d was read: the store went back", n.node, all[i].stat.rev,
				old.stat.rev)
		}
		f.remember(n.key, all[i])
		if all[i].exists || alone[n.node] {
			f.records[n.node] = followed{all[i], n.key, alone[n.node], true}
		} else if old, ok := f.records[n.node]; ok {
			old.armed = false
			f.records[n.node] = old
		}
	}
	return nil
}

// getWatched reads a node and sets its watch. If a node is followed individually, its creation is
// also watched.
func getWatched(c *zk.Conn, node string, arm, alone bool) (found, error) {
	for arm {
		value, stat, _, err := c.GetW(node)
		switch {
		case err == nil:
			f := found{value: value, stat: statOf(stat), exists: true}
			f.split(node)
			return f, nil
		case !errors.Is(err, zk.ErrNoNode):
			return found{}, fmt.Errorf("%s: %w", node, err)
		case !alone:
			return found{}, nil
		}
		if exists, _, _, err := c.ExistsW(node); err != nil || !exists {
			return found{}, err
		}
	}
	return get(c, node, &kv.Range{})
}
