package zookeeper

import (
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/kv"
)

// mark is what a node is compared by. A revision is a Mzxid, and no two writes of
// a node have the same, so a revision fixes the data version once and for all; the
// version alone does not fix the revision, because a node that was deleted and made
// again counts from 0. Created, its Czxid, tells such nodes apart.
type mark struct {
	rev     kv.Rev
	created int64
	version int32
}

func markOf(s *zk.Stat) mark { return mark{kv.Rev(s.Mzxid), s.Czxid, s.Version} }

// maxMarks bounds what is remembered. What was forgotten is read again.
const maxMarks = 1 << 18

// marks remembers the versions of records that this process wrote or read. They
// are never wrong, only out of date. Safe for concurrent use.
type marks struct {
	mu sync.Mutex
	m  map[string]mark // by key
}

func (m *marks) get(key string) (mark, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.m[key]
	return v, ok
}

// put remembers a mark, unless a later one is known: replies overtake each other.
func (m *marks) put(key string, v mark) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.m[key]; ok {
		if old.rev < v.rev || old.rev == v.rev && old.version < v.version {
			m.m[key] = v
		}
		return
	}
	if len(m.m) >= maxMarks {
		for some := range m.m {
			delete(m.m, some)
			break
		}
	}
	m.m[key] = v
}

func (m *marks) drop(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.m, key)
}
