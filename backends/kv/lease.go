package kv

import (
	"context"
	"strings"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvrecord"
)

// lease is this process's copy of a shard's current grant. The record's revision determines the
// session and token, and the head's number determines the head. A lease can therefore be outdated,
// which the store's comparisons detect, but never wrong.
type lease struct {
	owner     driver.Owner
	rev       Rev // of the shard's record
	head      driver.Head
	headRev   Rev // of the head's record; 0 without a record
	headKnown bool
	past      past
}

// leases contains the grants that this process uses, so that a commit need not read first. There is
// at most one grant per shard, so there are never more grants than shards in the mirror.
type leases struct {
	mu sync.Mutex
	m  map[driver.ShardID]lease
	// The watch delivered these grants, to any session, with their heads.
	watched map[driver.ShardID]lease // at most maxWatchedLeases
	bad     map[driver.ShardID]bool  // shards whose head was damaged at a grant: at most maxWatchedLeases
}

const maxWatchedLeases = 1024

func (l *leases) init() {
	l.m = make(map[driver.ShardID]lease)
	l.watched = make(map[driver.ShardID]lease)
	l.bad = make(map[driver.ShardID]bool)
}

// spoil records whether a shard's head is damaged. If damaged is nil, the head is intact.
func (l *leases) spoil(s driver.ShardID, damaged error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case damaged == nil:
		delete(l.bad, s)
	case len(l.bad) < maxWatchedLeases:
		l.bad[s] = true
	}
}

// spoilt reports whether a shard's head was damaged at the last read.
func (l *leases) spoilt(s driver.ShardID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bad[s]
}

func (l *leases) get(s driver.ShardID) (lease, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v, ok := l.m[s]
	if t, also := l.watched[s]; also && (!ok || t.rev > v.rev || t.rev == v.rev && !v.headKnown) {
		return t, true
	}
	return v, ok
}

func (l *leases) putWatched(s driver.ShardID, v lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.watched) >= maxWatchedLeases {
		clear(l.watched) // forgotten grants are read again
	}
	l.watched[s] = v
}

// A lease is kept unless a newer one is known.
func (l *leases) put(s driver.ShardID, v lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, ok := l.m[s]
	if ok && (old.rev > v.rev || old.rev == v.rev && old.headKnown && (!v.headKnown || old.head.Number > v.head.Number)) {
		return
	}
	l.m[s] = v
	if l.watched[s].rev <= v.rev {
		delete(l.watched, s)
	}
}

func (l *leases) drop(s driver.ShardID, upTo Rev) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m[s].rev <= upTo {
		delete(l.m, s)
	}
	if l.watched[s].rev <= upTo {
		delete(l.watched, s)
	}
}

// learn keeps the head appended to a watched shard record.
func (b *Backend) learn(c Change) {
	shard, ok := strings.CutPrefix(c.Key, b.keys.Shards())
	if !ok {
		return
	}
	if c.Deleted && driver.IsLock(driver.ShardID(shard)) {
		b.leases.drop(driver.ShardID(shard), c.Rev)
		return
	}
	_, h, ok := kvrecord.CutHead(c.Value)
	if !ok || Rev(h.Rev) >= c.Rev {
		return
	}
	known := Pair{Key: b.keys.Head(driver.ShardID(shard)), Value: h.Text, Rev: Rev(h.Rev)}
	owner, _, err := b.owner(Pair{Key: c.Key, Value: c.Value, Rev: c.Rev})
	if err != nil || owner.Session == "" {
		return
	}
	head, err := decodeHead(known)
	if err != nil {
		return
	}
	b.leases.putWatched(driver.ShardID(shard), lease{owner: owner, rev: c.Rev, head: head, headRev: known.Rev, headKnown: true,
		past: pastOf(Pair{Value: c.Value})})
}

// current returns the revision of f's record if this process knows f to be current.
func (b *Backend) current(f driver.Fence) (Rev, bool) {
	want := driver.Owner{Session: f.Session, Token: f.Token}
	if l, ok := b.leases.get(f.Shard); ok && l.owner == want {
		return l.rev, true
	}
	if owner, rev, ok := b.mirror.shard(f.Shard); ok && owner == want {
		return rev, true
	}
	return 0, false
}

// Guard returns conditions for the caller's own transaction on the same store. The conditions hold
// only while the fence is current (rule F1). They cover the shard's record and the namespace's
// identity, which determines the meaning of a token. Guard reads the store only if this process
// does not know the lease. If the fence is not current, Guard returns *driver.FencedError.
func Guard(ctx context.Context, b *Backend, f driver.Fence) ([]Compare, error) {
	if err := driver.CheckFence(f); err != nil {
		return nil, err
	}
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	key := b.keys.Shard(f.Shard)
	rev, ok := b.current(f)
	if !ok {
		pairs, err := b.inspect(ctx, nil, []string{key})
		if err != nil {
			return nil, err
		}
		owner, _, err := b.owner(pairs[0])
		if err != nil {
			return nil, notApplied(err)
		}
		if owner.Session != f.Session || owner.Token != f.Token {
			return nil, &driver.FencedError{Fence: f, Current: owner}
		}
		rev = pairs[0].Rev
	}
	return []Compare{{Key: b.keys.Identity(), Rev: b.idRev}, {Key: key, Rev: rev}}, nil
}

// Granted returns Guard's conditions, and the bytes with which the shard's record begins while f is
// current. A store can check both in one transaction without reading first. The result acked is the
// highest store revision known to this process (I1). The last result is false if no grant can have
// the token, or if the Backend has found that the store was replaced.
func Granted(b *Backend, f driver.Fence) (conditions []Compare, held []byte, acked Rev, ok bool) {
	rev := b.revision(f.Token)
	if driver.CheckFence(f) != nil || rev == 0 || b.changed.Load() != nil {
		return nil, nil, 0, false
	}
	return []Compare{{Key: b.keys.Identity(), Rev: b.idRev}, {Key: b.keys.Shard(f.Shard), Rev: rev}},
		[]byte(kvrecord.Format + " held " + string(f.Session) + " "), Rev(b.acked.Load()), true
}
