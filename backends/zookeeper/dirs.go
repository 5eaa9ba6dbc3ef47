package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/core/driver"
)

// layout lists a namespace's fixed directories, and whether their nodes are permanent. Tokens,
// fences and log numbers depend on permanent nodes, which only an administrator may delete.
var layout = []struct {
	name      string
	permanent bool
}{
	{"!state", true}, {"!state/member", false}, {"!state/shard", true}, {"!node", false}, {"!head", true},
	{"!log", true}, {"!item", true}, {"!beat", false}, {"!feed", false}, {"!probe", false},
}

// maxDirs is the maximum number of existing directories that the store remembers.
const maxDirs = 1 << 16

// After the server has reported a missing directory, missingDirs returns the shards' directories
// that must be created. A log directory is created with the shard's record, and an item directory
// with the first write of an item. A deletion counts as a write, because it asserts that the item
// is absent. All other directories are created with the namespace.
func (a *application) missingDirs() []string {
	if !a.dirs {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var dirs []string
	seen := make(map[string]bool)
	for _, ops := range a.ops() {
		for _, op := range ops {
			_, part := partOf(op.key)
			if part != "!item" && part != "!log" || seen[op.dir] {
				continue
			}
			seen[op.dir] = true
			if _, ok := a.store.dirs[op.dir]; !ok {
				dirs = append(dirs, op.dir)
			}
		}
	}
	return dirs
}

// forgetDir forgets that a node's directory exists, after the node could not be created.
func (s *store) forgetDir(node string) {
	dir, _ := split(node)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.dirs, dir)
}

func (s *store) makeDirs(ctx context.Context, lk *link, dirs []string) error {
	if len(dirs) == 0 {
		return nil
	}
	acl := s.rights.directory(false)
	_, err := call(ctx, lk, func(c *zk.Conn) (struct{}, error) {
		var all sync.WaitGroup
		slots := make(chan struct{}, readers)
		errs := make([]error, len(dirs))
		for i, dir := range dirs {
			slots <- struct{}{}
			all.Go(func() {
				errs[i] = create(c, dir, acl)
				<-slots
			})
		}
		all.Wait()
		return struct{}{}, joined(errs...)
	})
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("tenure: zookeeper: %w: a directory of the namespace is gone: %w", driver.ErrStoreChanged,
			err)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.dirs) > maxDirs {
		clear(s.dirs)
	}
	for _, dir := range dirs {
		s.dirs[dir] = struct{}{}
	}
	return nil
}

func create(c *zk.Conn, node string, acl []zk.ACL) error {
	switch _, err := c.Create(node, nil, 0, acl); {
	case err == nil || errors.Is(err, zk.ErrNodeExists):
		return nil
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("making %s: %w: the node above it is another user's; let Options.User create nodes there, "+
			"or use another Options.Root", node, err)
	default:
		return fmt.Errorf("making %s: %w", node, err)
	}
}
