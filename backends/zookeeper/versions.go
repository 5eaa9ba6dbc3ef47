package zookeeper

import (
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/kv"
)

// stat identifies a version of a node in comparisons. A revision is a Mzxid. No two writes of a
// node have the same Mzxid, so a revision determines the data version. A version alone does not
// determine the revision, because a recreated node's version starts again at 0. The field created,
// the node's Czxid, distinguishes a node from its predecessors.
type stat struct {
	rev     kv.Rev
	created int64
	version int32
}

func statOf(s *zk.Stat) stat { return stat{kv.Rev(s.Mzxid), s.Czxid, s.Version} }

// maxStats limits the remembered stats. A forgotten stat is read again.
const maxStats = 1 << 18

// stats contains the versions of records that this process wrote or read. These versions can be
// outdated but not wrong. A stats is safe for concurrent use.
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

// A stat is kept unless a later one is known, because replies can overtake each other.
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
