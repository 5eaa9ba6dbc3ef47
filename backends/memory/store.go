package memory

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// These constants limit the history from which watches can resume. Older changes are compacted.
const (
	maxHistory      = 1 << 16
	maxHistoryBytes = 64 << 20
)

// Store is a coordination store in this process's memory. One mutex makes a Store linearizable. Its
// data is lost when the process ends. Any number of backends may be opened on one Store, to
// represent different processes. A Store is safe for concurrent use.
//
// Methods such as Wipe and Tamper let tests simulate operators and accidents.
type Store struct {
	mu        sync.Mutex
	rev       kv.Rev
	records   map[string]kv.Pair
	order     order
	history   []kv.Change // in order of revisions; one revision may have several
	bytes     int         // of the history
	compacted kv.Rev      // changes up to this revision are gone
	watchers  map[*watcher]struct{}
	lying     bool
	counts    Counts
}

// Counts contains the number of calls of each kind that a Store has served since New.
type Counts struct {
	Heartbeats int // batches of heartbeats
	Writes     int // all other batches
	Reads      int // of keys and ranges
	Watches    int // watches begun
}

// New returns an empty store.
func New() *Store {
	return &Store{records: make(map[string]kv.Pair), watchers: make(map[*watcher]struct{})}
}

// Counts returns the number of calls served so far.
func (s *Store) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// Rev returns the store's revision.
func (s *Store) Rev() kv.Rev {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rev
}

// SetLying makes the store apply every transaction, even if conditions or guards fail.
// SetLying(false) ends this behavior. Open must refuse a lying store.
func (s *Store) SetLying(lying bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lying = lying
}

// Compact forgets all changes so far. A watch that has not seen these changes cannot resume.
func (s *Store) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compact(len(s.history))
	s.compacted = s.rev
}

// Wipe empties the store and restarts its revisions.
func (s *Store) Wipe() { s.Restore(&Snapshot{}) }

// Snapshot is a backup of a Store. A Snapshot is immutable.
type Snapshot struct {
	rev     kv.Rev
	records map[string]kv.Pair
}

// Snapshot returns a backup of the store.
func (s *Store) Snapshot() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Snapshot{rev: s.rev, records: maps.Clone(s.records)}
}

// Restore replaces the store's content and revision with a backup, and breaks every watch.
func (s *Store) Restore(b *Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rev, s.compacted = b.rev, b.rev
	s.records = maps.Clone(b.records)
	if s.records == nil {
		s.records = make(map[string]kv.Pair)
	}
	s.history, s.bytes = nil, 0
	s.order = order{}
	for _, key := range slices.Sorted(maps.Keys(s.records)) {
		s.order.insert(key)
	}
	s.breakWatches()
}

// BreakWatches ends every watch with an error, as a server's restart does.
func (s *Store) BreakWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.breakWatches()
}

func (s *Store) breakWatches() {
	for w := range s.watchers {
		w.broken = true
		w.signal()
	}
}

// Tamper writes a record without any condition, as another tool might. A nil value deletes the
// record. kvkeys.Keys returns the keys of a namespace.
func (s *Store) Tamper(key string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rev++
	s.put(kv.Op{Key: key, Value: value, Delete: value == nil})
}

// Record returns the value of a key, and reports whether the key has a record.
func (s *Store) Record(key string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.read(key)
	return p.Value, p.Rev != 0
}

// Keys returns the keys that begin with prefix, in order.
func (s *Store) Keys(prefix string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	s.order.from(prefix, func(key string) bool {
		if !strings.HasPrefix(key, prefix) {
			return false
		}
		keys = append(keys, key)
		return true
	})
	return keys
}

func (s *Store) apply(b *kv.Batch) *kv.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.Heartbeat {
		s.counts.Heartbeats++
	} else {
		s.counts.Writes++
	}
	if !s.holds(b.Guard) {
		out := &kv.Outcome{Rev: s.rev, Refused: true, Guard: make([]kv.Pair, len(b.Guard))}
		for i, c := range b.Guard {
			out.Guard[i] = s.read(c.Key)
		}
		return out
	}
	out := &kv.Outcome{Results: make([]kv.Result, len(b.Txns))}
	for i := range b.Txns {
		t, r := &b.Txns[i], &out.Results[i]
		if !s.holds(t.If) {
			r.Reads = s.readAll(t.Else)
			continue
		}
		r.OK = true
		if t.Prev {
			r.Prev = s.records[t.Ops[0].Key].Rev
		}
		if len(t.Ops) > 0 {
			s.rev++
		}
		for _, op := range t.Ops {
			s.put(op)
		}
		r.Rev = s.rev
		r.Reads = s.readAll(t.Then)
	}
	out.Rev = s.rev
	return out
}

func (s *Store) holds(conds []kv.Compare) bool {
	if s.lying {
		return true
	}
	for _, c := range conds {
		rev := s.records[c.Key].Rev
		if c.Rev == kv.Exists && rev == 0 || c.Rev != kv.Exists && rev != c.Rev {
			return false
		}
	}
	return true
}

// put applies one operation at the current revision.
func (s *Store) put(op kv.Op) {
	old, had := s.records[op.Key]
	if op.Delete && !had {
		return
	}
	c := kv.Change{Key: op.Key, Rev: s.rev, Deleted: op.Delete}
	if had {
		c.Key = old.Key // one string for a key, no matter how often it is written
	}
	if op.Delete {
		delete(s.records, op.Key)
		s.order.remove(op.Key)
	} else {
		c.Value = bytes.Clone(op.Value)
		s.records[c.Key] = kv.Pair{Key: c.Key, Value: c.Value, Rev: s.rev}
		if !had {
			s.order.insert(c.Key)
		}
	}
	s.history = append(s.history, c)
	s.bytes += len(c.Value)
	if len(s.history) > maxHistory || s.bytes > maxHistoryBytes {
		s.compact(len(s.history) / 4)
	}
	// All watchers must look for changes from time to time, so that compaction does not overtake an
	// idle watcher.
	all := len(s.history)%(maxHistory/16) == 0
	for w := range s.watchers {
		if all || w.matches(c.Key) {
			w.signal()
		}
	}
}

// compact forgets the oldest n changes, and all other changes at the last forgotten revision.
func (s *Store) compact(n int) {
	if n == 0 {
		return
	}
	for n < len(s.history) && s.history[n].Rev == s.history[n-1].Rev {
		n++
	}
	s.compacted = s.history[n-1].Rev
	for _, c := range s.history[:n] {
		s.bytes -= len(c.Value)
	}
	s.history = slices.Delete(s.history, 0, n)
}

// read returns a copy of a record, because a caller's changes must not reach the store.
func (s *Store) read(key string) kv.Pair {
	p, ok := s.records[key]
	if !ok {
		return kv.Pair{Key: key}
	}
	p.Value = bytes.Clone(p.Value)
	return p
}

func (s *Store) readAll(keys []string) []kv.Pair {
	if len(keys) == 0 {
		return nil
	}
	pairs := make([]kv.Pair, len(keys))
	for i, key := range keys {
		pairs[i] = s.read(key)
	}
	return pairs
}

func (s *Store) get(keys []string) *kv.Page {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Reads++
	return &kv.Page{Rev: s.rev, Pairs: s.readAll(keys)}
}

func (s *Store) scan(q kv.Range) *kv.Page {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Reads++
	page := &kv.Page{Rev: s.rev}
	s.order.from(max(q.Prefix, q.From), func(key string) bool {
		if !strings.HasPrefix(key, q.Prefix) || q.Limit > 0 && len(page.Pairs) == q.Limit {
			return false
		}
		if q.KeysOnly {
			page.Pairs = append(page.Pairs, kv.Pair{Key: key, Rev: s.records[key].Rev})
		} else {
			p := s.records[key]
			p.Cut(q.Largest)
			p.Value = bytes.Clone(p.Value) // a copy for the caller, as in read
			page.Pairs = append(page.Pairs, p)
		}
		return true
	})
	return page
}

// watcher is one call of Watch.
type watcher struct {
	prefixes []string
	ready    chan struct{} // has a token if there may be something to deliver
	broken   bool
}

func (w *watcher) matches(key string) bool {
	return slices.ContainsFunc(w.prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
}

func (w *watcher) signal() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

var errBroken = errors.New("memory: the watch was broken")

func (s *Store) watch(
	ctx context.Context, closed <-chan struct{}, prefixes []string, after kv.Rev, fn func(kv.Rev, []kv.Change) error,
) error {
	w := &watcher{prefixes: slices.Clone(prefixes), ready: make(chan struct{}, 1)}
	w.signal()
	s.mu.Lock()
	s.counts.Watches++
	s.watchers[w] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.watchers, w)
		s.mu.Unlock()
	}()
	for {
		select {
		case <-w.ready:
		case <-ctx.Done():
			return ctx.Err()
		case <-closed:
			return errClosed
		}
		rev, changes, err := s.changes(w, after)
		if err != nil {
			return err
		}
		if rev == after {
			continue
		}
		if err := fn(rev, changes); err != nil {
			return err
		}
		after = rev
	}
}

// changes returns the changes that a watcher has not seen, and the revision up to which this list
// is complete.
func (s *Store) changes(w *watcher, after kv.Rev) (kv.Rev, []kv.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case w.broken:
		return 0, nil, errBroken
	case after < s.compacted || after > s.rev:
		return 0, nil, kv.ErrCompacted
	}
	var found []kv.Change
	first, _ := slices.BinarySearchFunc(s.history, after+1,
		func(c kv.Change, rev kv.Rev) int { return int(c.Rev - rev) })
	for _, c := range s.history[first:] {
		if w.matches(c.Key) {
			c.Value = bytes.Clone(c.Value)
			found = append(found, c)
		}
	}
	return s.rev, found, nil
}

var errClosed = errors.New("memory: the client was closed")

// client is one backend's connection to a Store.
type client struct {
	store  *Store
	closed chan struct{}
	once   sync.Once
}

var _ kv.Store = (*client)(nil)

// Client returns a connection to the store, for kv.Open or a wrapper.
func (s *Store) Client() kv.Store { return &client{store: s, closed: make(chan struct{})} }

func (c *client) open(ctx context.Context) error {
	select {
	case <-c.closed:
		return errClosed
	default:
		return ctx.Err()
	}
}

func (c *client) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	if err := c.open(ctx); err != nil {
		return nil, errors.Join(driver.ErrRetry, err)
	}
	return c.store.apply(b), nil
}

func (c *client) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	return c.store.get(keys), nil
}

func (c *client) Range(ctx context.Context, q kv.Range) (*kv.Page, error) {
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	return c.store.scan(q), nil
}

func (c *client) Watch(ctx context.Context, prefixes []string, after kv.Rev, fn func(kv.Rev, []kv.Change) error) error {
	return c.store.watch(ctx, c.closed, prefixes, after, fn)
}

func (c *client) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}
