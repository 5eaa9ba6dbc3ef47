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
	maxLearnt  = 10_000           // maximum number of named owners that are kept because the map lacks them
	learntLife = 10 * time.Second // how long a named owner takes precedence over the map
	maxOwners  = keyspace.MaxShards
)

// A Client keeps the map of owners in a table, which is safe for concurrent use.
type table struct {
	key string // the metadata key of the addresses that the Client uses

	mu       sync.RWMutex
	version  string // the known version; if empty, the Client requests the whole map
	keyspace sharding.Keyspace
	from     []uint64 // first hash of each range; ascending, from[0] is 0
	names    []string // names of the shards, in the order of their ranges
	shards   map[string]ownedJSON
	members  map[string]peer
	learnt   map[string]learnt
	changed  chan struct{} // closed when a field above changes
	at       time.Time     // when the member that last confirmed the map heard from the store
}

type peer struct {
	addresses map[string]string
	url       *url.URL // nil if the owner publishes no valid address
}

type learnt struct {
	owner sharding.Route
	url   *url.URL
	at    time.Time
}

// find also returns a channel that is closed when the map changes. The address is nil if the owner
// publishes no address. The error matches sharding.ErrNoOwner.
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

// The age counts from the time when the member that last confirmed the map heard from the store. If
// no member has confirmed the map, the result is false.
func (t *table) age() (time.Duration, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return time.Since(t.at), !t.at.IsZero()
}

func (t *table) confirm(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at = at
}

// The member at from refused a request, and named the owner at to.
func (t *table) learn(p *problem.Document, to, from *url.URL) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, ok := t.learnt[p.Shard]; ok && *l.url == *from {
		delete(t.learnt, p.Shard) // the named member was not the owner
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

// If apply fails, the map does not change.
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
			if u, err := checkAddress(addresses[t.key]); err == nil {
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

func put(shards map[string]ownedJSON, news []ownedJSON) {
	for _, x := range news {
		if x.Range == nil && x.Node == "" {
			delete(shards, x.Shard)
		} else {
			shards[x.Shard] = x
		}
	}
}

// divided returns the shards' ranges in the order of hashes, and an error unless each hash belongs
// to exactly one shard.
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

func (t *table) asked() string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.version
}

// After forget, the next request is for the whole map.
func (t *table) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.version = ""
}
