package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/kv"
)

const (
	// readers is the maximum number of reads that one call has in flight.
	readers = 32
	// If kv.Range.Largest is set, a call first has at most cautious reads in flight. Each value that is
	// not too long adds a read, up to readers. After a value that is too long, cautious reads remain.
	cautious = 4
	// A call that reads at least listFirst records of one directory lists the directory first, so
	// that missing records cost nothing.
	listFirst = 64
)

// found is the result of reading a node. If the node does not exist, found has no stat.
type found struct {
	value  []byte
	stat   stat
	exists bool
	sent   []byte // stats from a change log
	long   int    // length of a value that was not read
}

func (f found) pair(key string) kv.Pair {
	if !f.exists {
		return kv.Pair{Key: key}
	}
	return kv.Pair{Key: key, Value: f.value, Rev: f.stat.rev, Long: f.long}
}

// Get reads records. See kv.Store. The page's revision may be old.
func (s *store) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	lk, err := s.reads.link(ctx)
	if err != nil {
		return nil, err
	}
	if err := lk.caughtUp(ctx, s.paths.root); err != nil {
		return nil, readError(err)
	}
	at := kv.Rev(lk.wire.zxid.Load())
	all, err := s.read(ctx, lk, keys, &kv.Range{})
	if err != nil {
		return nil, readError(err)
	}
	page := &kv.Page{Rev: at, Pairs: make([]kv.Pair, len(keys))}
	for i, key := range keys {
		page.Pairs[i] = all[i].pair(key)
	}
	return page, nil
}

// Range reads records by prefix. See kv.Store. Range lists the names before it reads the records. A
// record that is deleted in between is missing from the result.
func (s *store) Range(ctx context.Context, q kv.Range) (*kv.Page, error) {
	sc, err := s.paths.scope(q.Prefix)
	if err != nil {
		return nil, err
	}
	lk, err := s.reads.link(ctx)
	if err != nil {
		return nil, err
	}
	at, err := lk.catchUp(ctx, s.paths.root)
	if err != nil {
		return nil, readError(err)
	}
	keys, err := s.list(ctx, lk, sc)
	if err != nil {
		return nil, readError(err)
	}
	slices.Sort(keys)
	from, _ := slices.BinarySearch(keys, q.From)
	keys = keys[from:]
	page := &kv.Page{Rev: at}
	for len(keys) > 0 && (q.Limit == 0 || len(page.Pairs) < q.Limit) {
		part := keys
		if q.Limit > 0 {
			part = keys[:min(len(keys), q.Limit-len(page.Pairs))]
		}
		keys = keys[len(part):]
		all, err := s.read(ctx, lk, part, &q)
		if err != nil {
			return nil, readError(err)
		}
		for i, key := range part {
			if all[i].exists {
				page.Pairs = append(page.Pairs, all[i].pair(key))
			}
		}
	}
	return page, nil
}

// list returns a scope's keys, in no particular order. Nodes with other names belong to other
// programs.
func (s *store) list(ctx context.Context, lk *link, sc scope) ([]string, error) {
	keys, err := s.leaves(ctx, lk, sc)
	return slices.DeleteFunc(keys, func(key string) bool {
		_, _, err := s.paths.node(key)
		return err != nil
	}), err
}

func (s *store) leaves(ctx context.Context, lk *link, sc scope) ([]string, error) {
	names, err := s.children(ctx, lk, sc.dir)
	if err != nil || !sc.nested {
		return sc.keys(names), err
	}
	var keys []string
	for _, name := range names {
		below := sc.below(name)
		leaves, err := s.children(ctx, lk, below.dir)
		if err != nil {
			return nil, err
		}
		keys = append(keys, below.keys(leaves)...)
	}
	return keys, nil
}

// children returns the names in a directory, or none if the directory does not exist.
func (s *store) children(ctx context.Context, lk *link, dir string) ([]string, error) {
	return call(ctx, lk, func(c *zk.Conn) ([]string, error) {
		names, _, err := c.Children(dir)
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		}
		return names, err
	})
}

// Given the number of records to be read from each directory, listed returns the names in
// directories with many of them.
func (s *store) listed(ctx context.Context, lk *link, dirs map[string]int) (map[string]map[string]bool, error) {
	there := make(map[string]map[string]bool)
	for dir, n := range dirs {
		if n < listFirst {
			continue
		}
		names, err := s.children(ctx, lk, dir)
		if err != nil {
			return nil, err
		}
		there[dir] = make(map[string]bool, len(names))
		for _, name := range names {
			there[dir][name] = true
		}
	}
	return there, nil
}

// Many records are read in parallel, and returned in order.
func (s *store) read(ctx context.Context, lk *link, keys []string, q *kv.Range) ([]found, error) {
	nodes := make([]string, len(keys))
	dirs := make(map[string]int)
	for i, key := range keys {
		dir, node, err := s.paths.node(key)
		if err != nil {
			return nil, err
		}
		nodes[i] = node
		dirs[dir]++
	}
	ask := make([]int, 0, len(keys))
	there, err := s.listed(ctx, lk, dirs)
	if err != nil {
		return nil, err
	}
	for i, node := range nodes {
		dir, name := split(node)
		if set, listed := there[dir]; !listed || set[name] {
			ask = append(ask, i)
		}
	}
	all, err := call(ctx, lk, func(c *zk.Conn) ([]found, error) { return getAll(c, nodes, ask, q) })
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		s.remember(key, all[i])
	}
	return all, nil
}

// getAll reads the nodes with the given indexes. The other results are empty.
func getAll(c *zk.Conn, nodes []string, ask []int, q *kv.Range) ([]found, error) {
	all := make([]found, len(nodes))
	if len(ask) == 1 {
		f, err := get(c, nodes[ask[0]], q)
		all[ask[0]] = f
		return all, err
	}
	var next, started atomic.Int64
	var long atomic.Bool
	var failed atomic.Pointer[error]
	var done sync.WaitGroup
	most := int64(min(readers, len(ask)))
	var work func()
	work = func() {
		id := started.Add(1)
		for id <= most && failed.Load() == nil && (id <= cautious || !long.Load()) {
			n := next.Add(1) - 1
			if n >= int64(len(ask)) {
				return
			}
			f, err := get(c, nodes[ask[n]], q)
			if err != nil {
				failed.Store(&err)
				return
			}
			all[ask[n]] = f
			switch {
			case f.long > 0:
				long.Store(true)
			case started.Load() < most:
				done.Go(work)
			}
		}
	}
	first := most
	if q.Largest > 0 {
		first = min(first, cautious)
	}
	for range first {
		done.Go(work)
	}
	done.Wait()
	if err := failed.Load(); err != nil {
		return nil, *err
	}
	return all, nil
}

func get(c *zk.Conn, node string, q *kv.Range) (found, error) {
	var (
		f    found
		stat *zk.Stat
		err  error
	)
	if q.KeysOnly {
		f.exists, stat, err = c.Exists(node)
	} else {
		f.value, stat, err = c.Get(node)
		f.exists = err == nil
	}
	if errors.Is(err, zk.ErrNoNode) {
		return found{}, nil
	}
	if err != nil {
		return found{}, fmt.Errorf("%s: %w", node, err)
	}
	if !f.exists {
		return found{}, nil
	}
	f.stat = statOf(stat)
	f.split(node)
	if n := len(f.value); q.Largest > 0 && n > q.Largest {
		f.value, f.long = nil, n // the value is not kept until the others are read
	}
	return f, nil
}

// remember keeps the stat of a record that was read, for later comparisons.
func (s *store) remember(key string, f found) {
	_, part := partOf(key)
	switch part {
	case "!log", "!probe": // never compared again
		return
	case "!id":
		if f.exists && f.value != nil {
			s.identity.Store(&identity{stat: f.stat, marker: marker(f.value)})
		}
	}
	if f.exists {
		s.stats.put(key, f.stat)
		s.learnSent(key, f)
	} else {
		s.stats.drop(key)
	}
}

func readError(err error) error {
	return fmt.Errorf("tenure: zookeeper: reading: %w", denied(err))
}
