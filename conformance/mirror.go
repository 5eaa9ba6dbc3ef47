package conformance

import (
	"context"
	"maps"

	"github.com/tenure-go/tenure/core/driver"
)

// mirror keeps a namespace's state as Observe reports it, and checks that the state never becomes
// older. A mirror is not safe for concurrent use.
type mirror struct {
	f       *fixture
	b       driver.Backend
	cursor  driver.Cursor
	members map[driver.SessionID]driver.Member
	shards  map[driver.ShardID]driver.Owner
	newest  map[driver.ShardID]driver.Token
	gone    map[driver.SessionID]bool
	beats   map[driver.SessionID]driver.Version // versions of the requested heartbeats
	pages   int
	resets  int
}

// watch returns a mirror with the full state.
func (f *fixture) watch(b driver.Backend) *mirror {
	f.t.Helper()
	m := &mirror{
		f: f, b: b,
		members: map[driver.SessionID]driver.Member{},
		shards:  map[driver.ShardID]driver.Owner{},
		newest:  map[driver.ShardID]driver.Token{},
		gone:    map[driver.SessionID]bool{},
		beats:   map[driver.SessionID]driver.Version{},
	}
	v, err := m.next(f.ctx)
	f.setup("observe", err)
	f.must(ruleO1, v.Reset, "a page from the empty cursor is no reset")
	return m
}

// next reads one page, and applies it to the mirror.
func (m *mirror) next(ctx context.Context) (*driver.View, error) {
	q := driver.ObserveQuery{Since: m.cursor}
	for id, version := range m.beats {
		q.Beats = append(q.Beats, driver.Beat{Session: id, Version: version})
	}
	v, err := m.b.Observe(ctx, q)
	if err != nil {
		return nil, err
	}
	m.apply(v)
	return v, nil
}

func (m *mirror) apply(v *driver.View) {
	m.pages++
	if v.Cursor == "" {
		m.f.broken(ruleO1, "a page has an empty cursor")
	}
	m.cursor = v.Cursor
	members, shards := map[driver.SessionID]driver.Member{}, map[driver.ShardID]driver.Owner{}
	if v.Reset {
		m.resets++
	} else {
		members, shards = maps.Clone(m.members), maps.Clone(m.shards)
	}
	for _, member := range v.Members {
		if m.gone[member.Session] {
			m.f.broken(ruleO1, "session %s is back in the view after it had gone", member.Session)
		}
		members[member.Session] = member
	}
	for _, id := range v.Gone {
		delete(members, id)
	}
	for id := range m.members {
		if _, there := members[id]; !there {
			m.gone[id] = true
		}
	}
	for _, s := range v.Shards {
		if s.Owner.Token < m.newest[s.Shard] {
			m.f.broken(ruleO1, "shard %q went back in the view from token %d to token %d", s.Shard, m.newest[s.Shard],
				s.Owner.Token)
		}
		if s.Owner.Token == m.newest[s.Shard] && m.shards[s.Shard].Session == "" && s.Owner.Session != "" &&
			m.shards[s.Shard].Token != 0 {
			m.f.broken(ruleO1, "shard %q went back in the view from released to held with token %d", s.Shard, s.Owner.Token)
		}
		m.newest[s.Shard] = s.Owner.Token
		shards[s.Shard] = s.Owner
	}
	for shard := range m.shards {
		if _, there := shards[shard]; !there && !driver.IsLock(shard) {
			m.f.broken(ruleO1, "the record of shard %q, which is permanent, left the view", shard)
		}
	}
	for _, beat := range v.Beats {
		before, asked := m.beats[beat.Session]
		if !asked || beat.Version == before {
			m.f.broken(ruleO1, "the page has version %d of session %s; asked for: %v, known: %d", beat.Version,
				beat.Session, asked, before)
		}
		if asked {
			m.beats[beat.Session] = beat.Version
		}
	}
	m.members, m.shards = members, shards
}

// The result is true if the mirror matches a full view.
func (m *mirror) same(full *driver.View) bool {
	if len(full.Members) != len(m.members) || len(full.Shards) != len(m.shards) {
		return false
	}
	for _, member := range full.Members {
		if _, there := m.members[member.Session]; !there {
			return false
		}
	}
	for _, s := range full.Shards {
		if m.shards[s.Shard] != s.Owner {
			return false
		}
	}
	return true
}

// The method reads pages until ok returns true or the time limit for news ends.
func (m *mirror) until(ok func() bool) bool {
	ctx, cancel := context.WithTimeout(m.f.ctx, m.f.prompt(m.b))
	defer cancel()
	for !ok() {
		if _, err := m.next(ctx); err != nil {
			return ok()
		}
	}
	return true
}
