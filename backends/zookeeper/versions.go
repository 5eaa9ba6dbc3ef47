package zookeeper

import (
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/kv"
)

// stat identifies a version of a node in compares. A revision is a Mzxid. No two writes of a
// node have the same Mzxid, so a revision fixes the data version. A version alone does not fix
// the revision, because a node that was deleted and created again counts from 0. Created, its
// Czxid, distinguishes such nodes.
type stat struct {
	rev     kv.Rev
	created int64
	version int32
}

func statOf(s *zk.Stat) stat { return stat{kv.Rev(s.Mzxid), s.Czxid, s.Version} }

// maxStats limits the remembered stats. Forgotten ones are read again.
const maxStats = 1 << 18

// stats holds the versions of records that this process wrote or read. They can be out of date
// but not wrong. It is safe for concurrent use.
type stats struct {
	mu sync.Mutex
	m  map[string]stat // by key
}

func (m *stats) get(key string) (stat, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.m[key]
	return v, ok
}

// put keeps a stat, unless a later one is known, because replies overtake each other.
func (m *stats) put(key string, v stat) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old, ok := m.m[key]; ok {
		if old.rev < v.rev || old.rev == v.rev && old.version < v.version {
			m.m[key] = v
		}
		return
	}
	if len(m.m) >= maxStats {
		for some := range m.m {
			delete(m.m, some)
			break
		}
	}
	m.m[key] = v
}

func (m *stats) drop(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.m, key)
}
