package kv

import (
	"errors"
	"strings"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/kvrecord"
	"github.com/tenure-go/tenure/internal/listing"
)

// The mirror remembers up to maxGone departures, and as many lock releases. A reader that is
// further behind gets the full state.
const maxGone = 1024

// mirror is this process's copy of the namespace's roster and shard records. One watch updates the
// mirror, and every full read corrects it. No decision depends on the mirror alone, because every
// write compares records in the store. Memory use grows only with the state. Changes are numbered,
// and cursors contain these numbers, so changes that arrive late are still reported.
type mirror struct {
	keys kvkeys.Keys
	base driver.Token

	mu      sync.Mutex
	rev     Rev   // the mirror includes every change up to here
	seq     int64 // of the latest change; 0 before the first read
	floor   int64 // departures up to here may have been forgotten
	shards  recent[driver.ShardID, shardState]
	members recent[driver.SessionID, member]
	damaged recent[string, *driver.DamagedError] // by key; up to listing.MaxDamaged
	gone    int                                  // members that are kept as departures
	freed   int                                  // locks that are kept as releases: R2
	beats   map[driver.SessionID]Rev             // heartbeats that are watched; 0: no record
	asks    map[*driver.ObserveQuery]struct{}
	changed chan struct{} // closed by the next change; nil if no call waits
	state   *run          // watch of the state
	beating *run          // watch of beats
}

// member is a roster entry, or a record of its session's departure.
type member struct {
	driver.Member
	gone bool
}

// shardState is a shard's record, with the head if a transfer appended one.
type shardState struct {
	owner driver.Owner
	head  *driver.Head // nil without a head
	gone  bool         // a lock's record, which was removed: R2
	past  past
}

func (m *mirror) init(keys kvkeys.Keys, base driver.Token) {
	m.keys, m.base = keys, base
	m.shards.init()
	m.members.init()
	m.damaged.init()
	m.asks = make(map[*driver.ObserveQuery]struct{})
}

// wake causes all waiting calls to read the mirror again.
func (m *mirror) wake() {
	m.mu.Lock()
	m.wakeLocked()
	m.mu.Unlock()
}

func (m *mirror) wakeLocked() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
}

// waiting returns a channel that is closed at the next change.
func (m *mirror) waiting() <-chan struct{} {
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	return m.changed
}

func (m *mirror) shard(s driver.ShardID) (driver.Owner, Rev, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if it, ok := m.shards.get(s); ok && !it.val.gone {
		return it.val.owner, it.rev, true
	}
	return driver.Owner{}, 0, false
}

// load updates the mirror from a full read, unless the mirror is newer.
func (m *mirror) load(page *Page) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if page.Rev < m.rev {
		return
	}
	if m.seq == 0 {
		m.seq = 1
	}
	m.shards.expect(len(page.Pairs))
	m.damaged = recent[string, *driver.DamagedError]{} // each damaged record is found again below
	m.damaged.init()
	seen := make(map[driver.SessionID]struct{})
	locks := make(map[driver.ShardID]struct{})
	for _, p := range page.Pairs {
		if s, ok := strings.CutPrefix(p.Key, m.keys.Members()); ok {
			seen[driver.SessionID(s)] = struct{}{}
		} else if s, ok := m.lock(p.Key); ok {
			locks[s] = struct{}{}
		}
		m.put(p)
	}
	var left []driver.SessionID
	for s, i := range m.members.index {
		it := &m.members.items[i]
		if _, ok := seen[s]; !ok && !it.val.gone && it.rev <= page.Rev {
			left = append(left, s)
		}
	}
	for _, s := range left {
		m.depart(s, page.Rev)
	}
	var free []driver.ShardID
	for s, i := range m.shards.index {
		it := &m.shards.items[i]
		if _, ok := locks[s]; !ok && driver.IsLock(s) && !it.val.gone && it.rev <= page.Rev {
			free = append(free, s)
		}
	}
	for _, s := range free {
		m.free(s, page.Rev)
	}
	m.rev = page.Rev
	m.wakeLocked()
}

// follow applies watched changes up to revision rev.
func (m *mirror) follow(rev Rev, changes []Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.seq
	for _, c := range changes {
		switch {
		case c.Rev <= m.rev:
		case !c.Deleted:
			m.put(Pair{Key: c.Key, Value: c.Value, Rev: c.Rev})
		default:
			m.damage(c.Key, nil)
			if s, ok := strings.CutPrefix(c.Key, m.keys.Members()); ok {
				m.depart(driver.SessionID(s), c.Rev)
			} else if s, ok := m.lock(c.Key); ok {
				m.free(s, c.Rev)
			}
		}
	}
	m.rev = max(m.rev, rev)
	if m.seq != before {
		m.wakeLocked()
	}
}

// A record is stored if it is newer than the mirror's copy. If the record is damaged or its key is
// not valid, the error is stored instead. Only callers that need the record get the error (D1).
func (m *mirror) put(p Pair) {
	if name, ok := strings.CutPrefix(p.Key, m.keys.Shards()); ok {
		it, known := m.shards.get(driver.ShardID(name))
		if known && it.rev >= p.Rev {
			return
		}
		r, err := decodeShard(p, m.base)
		if driver.CheckShard(driver.ShardID(name)) != nil {
			err = corrupt(p.Key, "its name is not valid")
		}
		if m.damage(p.Key, err) {
			return
		}
		owner := driver.Owner{Token: r.Token}
		if r.Session != "" {
			owner = driver.Owner{Session: m.intern(r.Session), Token: m.base + driver.Token(p.Rev)}
		}
		if !known { // cloned, so that the key does not retain a longer string
			name = strings.Clone(name)
		}
		if known && it.val.gone {
			m.freed--
		}
		m.seq++
		m.shards.set(driver.ShardID(name), shardState{owner: owner, head: m.headBehind(p), past: shared(r.Past)}, p.Rev, m.seq)
		return
	}
	name, ok := strings.CutPrefix(p.Key, m.keys.Members())
	if !ok {
		return
	}
	session := driver.SessionID(name)
	if it, known := m.members.get(session); known && it.rev >= p.Rev {
		return
	}
	v, err := decodeMember(p, session)
	if m.damage(p.Key, err) {
		return
	}
	m.revive(session)
	m.seq++
	m.members.set(v.Session, member{Member: v}, p.Rev, m.seq)
}

// damage stores the error of a damaged record, and reports whether the record is damaged. Only
// newly found damage wakes waiting calls.
func (m *mirror) damage(key string, err error) bool {
	var d *driver.DamagedError
	if !errors.As(err, &d) {
		if len(m.damaged.index) > 0 {
			m.damaged.remove(key)
		}
		return false
	}
	if _, known := m.damaged.get(key); !known && len(m.damaged.index) < listing.MaxDamaged {
		m.seq++
		m.damaged.set(strings.Clone(key), d, 0, m.seq)
	}
	return true
}

// depart records that a session's record was removed.
func (m *mirror) depart(s driver.SessionID, rev Rev) {
	it, ok := m.members.get(s)
	if !ok || it.val.gone || it.rev > rev {
		return
	}
	m.seq++
	m.members.set(s, member{Member: driver.Member{Session: s}, gone: true}, rev, m.seq)
	m.gone++
	m.floor = max(m.floor, forget(&m.members, &m.gone, func(v *member) bool { return v.gone }))
}

func (m *mirror) lock(key string) (driver.ShardID, bool) {
	name, ok := strings.CutPrefix(key, m.keys.Shards())
	return driver.ShardID(name), ok && driver.IsLock(driver.ShardID(name))
}

// The removal of a lock's record releases the lock (R2).
func (m *mirror) free(s driver.ShardID, rev Rev) {
	it, ok := m.shards.get(s)
	if !ok || it.val.gone || it.rev > rev {
		return
	}
	m.seq++
	m.shards.set(s, shardState{owner: driver.Owner{Token: it.val.owner.Token}, gone: true}, rev, m.seq)
	m.freed++
	m.floor = max(m.floor, forget(&m.shards, &m.freed, func(v *shardState) bool { return v.gone }))
}

// forget removes the oldest departures or releases until maxGone are left, and returns the number
// of the last change removed.
func forget[K comparable, V any](of *recent[K, V], gone *int, isGone func(*V) bool) (floor int64) {
	for i := of.oldest; *gone > maxGone && i >= 0; {
		it := &of.items[i]
		i = it.next
		if isGone(&it.val) {
			floor = max(floor, it.seq)
			of.remove(it.key)
			*gone--
		}
	}
	return floor
}

// revive undoes a session's departure, which only a broken store makes necessary.
func (m *mirror) revive(s driver.SessionID) {
	if it, ok := m.members.get(s); ok && it.val.gone {
		m.gone--
	}
}

// intern returns one shared string for all records of a session.
func (m *mirror) intern(s driver.SessionID) driver.SessionID {
	if it, ok := m.members.get(s); ok {
		return it.key
	}
	if m.shards.last >= 0 {
		if last := m.shards.items[m.shards.last].val.owner.Session; last == s {
			return last
		}
	}
	return s
}

// view returns all changes numbered above since, or the whole state if full is true.
func (m *mirror) view(since int64, full bool) *driver.View {
	v := &driver.View{Reset: full}
	if full {
		since = -1
		v.Shards = make([]driver.ShardState, 0, len(m.shards.index))
	}
	m.shards.since(since, func(it *recentItem[driver.ShardID, shardState]) {
		if full && it.val.gone {
			return
		}
		s := driver.ShardState{Shard: it.key, Owner: it.val.owner}
		if it.val.head != nil {
			s.Head = new(*it.val.head)
		}
		v.Shards = append(v.Shards, s)
	})
	m.members.since(since, func(it *recentItem[driver.SessionID, member]) {
		switch {
		case !it.val.gone:
			v.Members = append(v.Members, it.val.Member)
		case !full:
			v.Gone = append(v.Gone, it.key)
		}
	})
	m.damaged.since(since, func(it *recentItem[string, *driver.DamagedError]) {
		v.Damaged = append(v.Damaged, it.val)
	})
	return v
}

// newer returns the requested heartbeats whose versions are higher than those known to the caller.
// The caller may already know versions that the watch has not delivered.
func newer(beats map[driver.SessionID]Rev, asked []driver.Beat) []driver.Beat {
	var d []driver.Beat
	for _, a := range asked {
		if rev := beats[a.Session]; driver.Version(rev) > a.Version {
			d = append(d, driver.Beat{Session: a.Session, Version: driver.Version(rev)})
		}
	}
	return d
}

// followBeats applies watched heartbeats, and returns false if another watch has replaced this one.
func (m *mirror) followBeats(r *run, changes []Change) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.beating != r {
		return false
	}
	for _, c := range changes {
		s := driver.SessionID(strings.TrimPrefix(c.Key, m.keys.Beats()))
		rev, ok := m.beats[s]
		if !ok || c.Rev <= rev {
			continue
		}
		if c.Deleted {
			c.Rev = 0
		}
		m.beats[s] = c.Rev
		m.wakeLocked()
	}
	return true
}

// headBehind returns the head appended to a shard's record, or nil if there is no valid one.
func (m *mirror) headBehind(p Pair) *driver.Head {
	_, behind, ok := kvrecord.CutHead(p.Value)
	if !ok || Rev(behind.Rev) >= p.Rev {
		return nil
	}
	head, err := decodeHead(Pair{Key: p.Key, Value: behind.Text, Rev: Rev(behind.Rev)})
	if err != nil {
		return nil
	}
	return &head
}
