package route

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/problem"
	"github.com/tenure-go/tenure/sharding"
)

const (
	maxLearnt  = 10_000           // owners that answers named and the map lacks
	learntLife = 10 * time.Second // after it the map decides again
	maxOwners  = keyspace.MaxShards
)

// table is the map of owners that a Client keeps. It is safe for concurrent use.
type table struct {
	key string // of the addresses that are used

	mu       sync.RWMutex
	version  string // the known version; empty: request the whole map
	keyspace sharding.Keyspace
	from     []uint64 // ascending, the first is 0
	names    []string // of the shards that serve from there to the next
	shards   map[string]ownedJSON
	members  map[string]peer
	learnt   map[string]learnt
	changed  chan struct{} // closed when a field above changes
	at       time.Time     // of the news of the member that last confirmed it
}

type peer struct {
	addresses map[string]string
	url       *url.URL // nil: it publishes none, or an invalid one
}

// learnt is an owner that an answer named.
type learnt struct {
	owner sharding.Route
	url   *url.URL
	at    time.Time
}

// find returns the owner of a key, its address, or nil if it publishes none, and a channel that is
// closed when the map changes. The error matches sharding.ErrNoOwner.
func (t *table) find(key string) (owner sharding.Route, to *url.URL, changed <-chan struct{}, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if len(t.from) == 0 {
		return owner, nil, t.changed, fmt.Errorf("tenure: the map of owners is not known: %w", sharding.ErrNoOwner)
	}
	i, found := slices.BinarySearch(t.from, t.keyspace.Of(key))
	if !found {
		i--
	}
	owner.Shard = t.names[i]
	x := t.shards[owner.Shard]
	if l, ok := t.learnt[owner.Shard]; ok && l.owner.Token > x.Token && time.Since(l.at) < learntLife {
		return l.owner, l.url, t.changed, nil
	}
	m, ok := t.members[x.Node]
	if !ok {
		return owner, nil, t.changed, fmt.Errorf("tenure: shard %q: %w", owner.Shard, sharding.ErrNoOwner)
	}
	owner.Node, owner.Token, owner.Meta = x.Node, x.Token, m.addresses
	return owner, m.url, t.changed, nil
}

// age returns the age of the news of the member that last confirmed the map, and whether one did.
func (t *table) age() (time.Duration, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return time.Since(t.at), !t.at.IsZero()
}

// confirm records that a member has the same map, according to news from that time.
func (t *table) confirm(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at = at
}

// learn records an owner that a member named, after the member at from refused.
func (t *table) learn(p *problem.Document, to, from *url.URL) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.learnt[p.Shard]; ok && *l.url == *from {
		delete(t.learnt, p.Shard) // it was not the owner
	}
	x, ok := t.shards[p.Shard]
	if !ok || p.Token <= x.Token || p.Token <= t.learnt[p.Shard].owner.Token {
		return
	}
	if len(t.learnt) >= maxLearnt {
		clear(t.learnt)
	}
	owner := sharding.Route{Shard: p.Shard, Node: p.Node, Token: p.Token, Meta: map[string]string{t.key: p.Address}}
	t.learnt[p.Shard] = learnt{owner, to, time.Now()}
}

// apply applies an answer to a request for the changes after the known version. If it fails, the
// map does not change.
func (t *table) apply(a *ownersJSON, at time.Time) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("tenure: %w: the map of owners %s", core.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if !validVersion(a.Version) {
		return bad("has no valid version")
	}
	if a.Keyspace == nil {
		return bad("has no keyspace: give its member's Router a Manager with one")
	}
	keyspace := sharding.Keyspace{Name: a.Keyspace.Name, Shards: 1, Hash: a.Keyspace.Hash, Digits: a.Keyspace.Digits}
	if err := keyspace.Validate(); err != nil {
		return err
	}
	for _, x := range a.Shards {
		if core.CheckShard(x.Shard) != nil || x.Node != "" && driver.CheckNode(x.Node) != nil || x.Token < 0 {
			return bad("has a shard %.60q of node %.60q with token %d", x.Shard, x.Node, x.Token)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.version == "" && !a.Full {
		return bad("has changes only")
	}
	shards, replaced := t.shards, a.Full
	if a.Full {
		shards = make(map[string]ownedJSON, len(a.Shards))
	}
	for _, x := range a.Shards {
		if was := shards[x.Shard].Range; !replaced && ((was == nil) != (x.Range == nil) || was != nil && *was != *x.Range) {
			replaced, shards = true, maps.Clone(shards)
		}
	}
	if !replaced && len(shards)+len(a.Shards) > 2*maxOwners {
		return bad("has more than %d shards", maxOwners)
	}
	put(shards, a.Shards)
	if replaced {
		from, names, err := divided(shards)
		if err != nil {
			return bad("%s", err)
		}
		t.keyspace, t.shards, t.from, t.names = keyspace, shards, from, names
	}
	if a.Full || a.Members != nil {
		t.members = make(map[string]peer, len(a.Members))
		for node, addresses := range a.Members {
			m := peer{addresses: addresses}
			if u, err := CheckAddress(addresses[t.key]); err == nil {
				m.url = u
			}
			t.members[node] = m
		}
	}
	t.version, t.at = a.Version, at
	close(t.changed)
	t.changed = make(chan struct{})
	return nil
}

// put stores the shards of an answer.
func put(shards map[string]ownedJSON, news []ownedJSON) {
	for _, x := range news {
		if x.Range == nil && x.Node == "" {
			delete(shards, x.Shard)
		} else {
			shards[x.Shard] = x
		}
	}
}

// divided returns the division of the hashes among shards, each hash in one shard.
func divided(shards map[string]ownedJSON) (from []uint64, names []string, err error) {
	if len(shards) > maxOwners {
		return nil, nil, fmt.Errorf("has %d shards, at most %d", len(shards), maxOwners)
	}
	var ranged []ownedJSON
	for _, x := range shards {
		if x.Range != nil {
			ranged = append(ranged, x)
		}
	}
	slices.SortFunc(ranged, func(a, b ownedJSON) int { return cmp.Compare(a.Range.From, b.Range.From) })
	var next uint64
	for i, x := range ranged {
		if x.Range.From != next || x.Range.Empty() || (x.Range.To == 0) != (i == len(ranged)-1) {
			return nil, nil, fmt.Errorf("has a gap, or two shards, before %s at %s", x.Shard, x.Range)
		}
		next = x.Range.To
		from, names = append(from, x.Range.From), append(names, x.Shard)
	}
	if len(ranged) == 0 {
		return nil, nil, fmt.Errorf("has no ranges")
	}
	return from, names, nil
}

// asked returns the version after which changes are requested.
func (t *table) asked() string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.version
}

// forget makes the next request one for the whole map.
func (t *table) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.version = ""
}
