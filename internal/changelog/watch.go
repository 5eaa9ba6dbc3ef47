package changelog

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

// New turns a Store into a kv.Store for one namespace. The kv.Store writes change logs, serves
// Watch from them, and owns s.
//
// The prefixes of one Watch must be all below Keys.State (internal/kvkeys), all below Keys.Logs, or
// all elsewhere. Watch follows other records, such as heartbeats, directly. For any other
// combination, Watch returns errors.ErrUnsupported. If a reader missed entries, Watch returns
// kv.ErrCompacted. A single change of hundreds of records can cause this error. The longer full
// reads take, the less often Watch returns it.
func New(s Store, namespace string, o Options) kv.Store {
	keys := kvkeys.Keys(namespace)
	l := &store{
		below: s, keys: keys,
		readKeys:  cmp.Or(o.ReadKeys, 64),
		retention: cmp.Or(o.Retention, time.Minute),
	}
	l.life, l.end = context.WithCancel(context.Background())
	instance := rand.Text()[:12]
	for k := range kinds {
		f := &l.feeds[k]
		f.writers.init(k, instance, cmp.Or(o.Parallel, 4))
		f.observer.init(keys, k)
		f.sweep.next = time.Now().Add(min(l.retention, maxAge))
	}
	return l
}

// store implements kv.Store on top of a Store.
type store struct {
	below     Store
	keys      kvkeys.Keys
	readKeys  int
	retention time.Duration

	life    context.Context // ends with Close
	end     context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	feeds  [kinds]feed
}

// feed contains the change logs of one kind, from this process and all other processes. store.mu
// guards all fields except writers.
type feed struct {
	writers  writers
	observer observer
	complete kv.Rev        // the observer has seen every change up to this revision
	latest   kv.Rev        // the latest revision that a page has shown
	wake     chan struct{} // closed when the observer moves; nil if no watch waits
	reader   *reader       // nil until the first watch
	sweep    sweep
	full     fullRead // the latest
}

// reader is the goroutine that follows the change logs of a kind.
type reader struct {
	began chan struct{} // closed by its first page
	pages int
	done  chan struct{}
	err   error // after done
}

// fullRead records when a full read ended, and how long it took.
type fullRead struct {
	end  time.Time
	took time.Duration
}

func (s *store) key(name string) string { return s.keys.ChangeLogs() + name }

var errClosed = errors.New("tenure: the store was closed")

func (s *store) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	return s.below.Get(ctx, keys...)
}

// Range reads from the Store. The read sees every change that the change logs showed before the
// read began, so the read's revision is at least the logs' revision. After a full read, a watch can
// begin at that revision. The first full read begins with the change logs, so the watch knows their
// state.
func (s *store) Range(ctx context.Context, q kv.Range) (*kv.Page, error) {
	whole := kinds // the kind that is read in full
	switch q.Prefix {
	case s.keys.State():
		whole = stateKind
	case s.keys.Heads():
		whole = logKind
	}
	if whole < kinds {
		if err := s.baseline(ctx, whole); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	var latest kv.Rev
	for k := range s.feeds {
		if f := &s.feeds[k]; f.reader != nil && f.reader.err == nil {
			latest = max(latest, f.latest)
		}
	}
	s.mu.Unlock()
	start := time.Now()
	page, err := s.below.Range(ctx, q)
	if err != nil {
		return nil, err
	}
	if whole < kinds {
		s.mu.Lock()
		s.feeds[whole].full = fullRead{time.Now(), time.Since(start)}
		s.mu.Unlock()
	}
	page.Rev = max(page.Rev, latest)
	return page, nil
}

// Close waits for the readers.
func (s *store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	err := s.below.Close()
	s.running.Wait()
	return err
}

// logged returns the kind of change log, if any, that lists changes to keys with a prefix.
func (s *store) logged(prefix string) (kind, bool) {
	switch {
	case strings.HasPrefix(prefix, s.keys.State()):
		return stateKind, true
	case strings.HasPrefix(prefix, s.keys.Logs()):
		return logKind, true
	}
	return 0, false
}

// Watch delivers changes. See kv.Store and, for the prefixes, New.
func (s *store) Watch(ctx context.Context, prefixes []string, after kv.Rev, fn func(kv.Rev, []kv.Change) error) error {
	logged := 0
	var kind kind
	for _, p := range prefixes {
		if k, ok := s.logged(p); ok {
			if logged > 0 && k != kind {
				return fmt.Errorf("tenure: a watch of both state and logs: %w", errors.ErrUnsupported)
			}
			kind = k
			logged++
		}
	}
	switch logged {
	case 0:
		return s.follow(ctx, prefixes, after, fn)
	case len(prefixes):
		return s.watch(ctx, kind, prefixes, after, fn)
	}
	return fmt.Errorf("tenure: a watch of state or logs and of other records at once: %w", errors.ErrUnsupported)
}

// watchFunc is the function that a watch calls with changes (see kv.Store).
type watchFunc = func(rev kv.Rev, changes []kv.Change) error

// watch delivers the changes listed in one kind's change logs.
func (s *store) watch(ctx context.Context, kind kind, prefixes []string, after kv.Rev, fn watchFunc) error {
	r, err := s.read(ctx, kind)
	if err != nil {
		return err
	}
	f := &s.feeds[kind]
	rev := after // revision of the last call of fn
	at := int64(-1)
	for {
		s.mu.Lock()
		if at < 0 {
			if after < f.observer.floor {
				s.mu.Unlock()
				return s.missed(ctx, kind)
			}
			at = f.observer.lost
		}
		keys, ok := f.observer.since(at, rev)
		now, complete := f.observer.seq, f.complete
		if f.wake == nil {
			f.wake = make(chan struct{})
		}
		wake := f.wake
		s.mu.Unlock()
		if !ok {
			return s.missed(ctx, kind)
		}
		if len(keys) > 0 {
			keys = slices.DeleteFunc(keys, func(c changedKey) bool {
				return !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(c.key, p) })
			})
			if err := s.deliver(ctx, kind, keys, rev, max(rev, complete), fn); err != nil {
				return err
			}
			rev = max(rev, complete)
		}
		at = now
		select {
		case <-wake:
		case <-r.done:
			return r.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// maxReadChunks limits the number of chunks that are read together, and therefore the number of
// chunks in memory.
const maxReadChunks = 16

// deliver reads the changed keys without an inline value, and calls fn with the changes that are
// newer than revision after. When deliver returns, every change up to rev has been delivered.
func (s *store) deliver(ctx context.Context, kind kind, changed []changedKey, after, rev kv.Rev, fn watchFunc) error {
	atOnce := s.readKeys
	if kind == logKind {
		atOnce = min(atOnce, maxReadChunks)
		// The chunks of each shard must stay in order across all reads.
		slices.SortFunc(changed, func(a, b changedKey) int { return strings.Compare(a.key, b.key) })
	}
	var changes []kv.Change
	for len(changed) > 0 {
		n := min(atOnce, len(changed))
		found, err := s.changes(ctx, changed[:n], after)
		if err != nil {
			return err
		}
		changes = append(changes, found...)
		changed = changed[n:]
		if len(changed) > 0 && kind == stateKind {
			continue
		}
		upTo := after // nothing is complete until all chunks are read
		if len(changed) == 0 {
			upTo = rev
		}
		slices.SortStableFunc(changes, func(a, b kv.Change) int { return cmp.Compare(a.Rev, b.Rev) })
		if err := fn(upTo, changes); err != nil {
			return err
		}
		changes = nil
	}
	return nil
}

// changes returns the changes of some keys, and reads the records of keys without an inline value.
func (s *store) changes(ctx context.Context, changed []changedKey, after kv.Rev) (changes []kv.Change, err error) {
	var read []changedKey
	var keys []string
	for _, c := range changed {
		if change, ok := c.change(s.keys); ok {
			changes = append(changes, change)
			continue
		}
		read, keys = append(read, c), append(keys, c.key)
	}
	if len(keys) == 0 {
		return changes, nil
	}
	page, err := s.below.Get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	if len(page.Pairs) != len(keys) {
		return nil, fmt.Errorf("tenure: the store answered %d of %d keys", len(page.Pairs), len(keys))
	}
	for i, p := range page.Pairs {
		switch {
		case p.Rev == 0: // deleted, at that revision at the latest
			changes = append(changes, kv.Change{Key: read[i].key, Rev: read[i].rev, Deleted: true})
		case p.Rev > after:
			changes = append(changes, kv.Change{Key: read[i].key, Value: p.Value, Rev: p.Rev})
		}
	}
	return changes, nil
}

// The error kv.ErrCompacted requests a full read. It is delayed, so that each process makes only a
// few full reads while thousands of records change.
func (s *store) missed(ctx context.Context, kind kind) error {
	s.mu.Lock()
	last := s.feeds[kind].full
	s.mu.Unlock()
	rest := time.Until(last.end.Add(min(2*last.took, time.Second)))
	if rest <= 0 {
		return kv.ErrCompacted
	}
	t := time.NewTimer(rest)
	defer t.Stop()
	select {
	case <-t.C:
		return kv.ErrCompacted
	case <-ctx.Done():
		return ctx.Err()
	case <-s.life.Done():
		return errClosed
	}
}

// read starts the reader that follows the change logs of a kind, if necessary, and waits for the
// first page.
func (s *store) read(ctx context.Context, k kind) (*reader, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, errClosed
	}
	r := s.feeds[k].reader
	if r == nil || r.err != nil {
		r = &reader{began: make(chan struct{}), done: make(chan struct{})}
		s.feeds[k].reader = r
		s.running.Go(func() {
			err := s.below.Follow(s.life, []string{s.key(k.prefix())}, func(p *kv.Page) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.look(k, p)
				if r.pages++; r.pages == 1 {
					close(r.began)
				}
				return nil
			})
			if err == nil {
				err = errors.New("tenure: the store ended a watch without an error")
			}
			s.mu.Lock()
			r.err = err
			s.mu.Unlock()
			close(r.done)
		})
	}
	s.mu.Unlock()
	select {
	case <-r.began:
		return r, nil
	case <-r.done:
		return nil, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// baseline reads the change logs of a kind, unless they have already been read.
func (s *store) baseline(ctx context.Context, k kind) error {
	s.mu.Lock()
	begun := s.feeds[k].observer.begun
	s.mu.Unlock()
	if begun {
		return nil
	}
	page, err := s.below.Range(ctx, kv.Range{Prefix: s.key(k.prefix())})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.feeds[k].observer.begun { // otherwise another page arrived first, and may be newer
		s.look(k, page)
	}
	return nil
}

// look applies a page of one kind's change logs. The caller holds the lock.
func (s *store) look(k kind, p *kv.Page) {
	f := &s.feeds[k]
	here := p.Rev
	for _, l := range p.Pairs {
		here = max(here, l.Rev)
	}
	f.complete, f.latest = max(f.complete, p.Rev), max(f.latest, here)
	before := f.observer.seq
	if !f.observer.look(p.Pairs, f.latest, time.Now()) {
		// Earlier pages of either kind prove nothing about the store's current state.
		for k := range s.feeds {
			f := &s.feeds[k]
			f.complete, f.latest = 0, 0
			f.observer.forget(here)
			f.moved()
		}
		f.complete, f.latest = p.Rev, here
	}
	if f.observer.seq != before {
		f.moved()
	}
}

func (f *feed) moved() {
	if f.wake != nil {
		close(f.wake)
		f.wake = nil
	}
}

// follow watches a few records directly.
func (s *store) follow(ctx context.Context, prefixes []string, after kv.Rev, fn func(kv.Rev, []kv.Change) error) error {
	known := make(map[string]kv.Rev)
	rev := after
	return s.below.Follow(ctx, prefixes, func(p *kv.Page) error {
		rev = max(rev, p.Rev)
		var changes []kv.Change
		here := make(map[string]struct{}, len(p.Pairs))
		for _, r := range p.Pairs {
			here[r.Key] = struct{}{}
			if r.Rev > max(after, known[r.Key]) {
				changes = append(changes, kv.Change{Key: r.Key, Value: r.Value, Rev: r.Rev})
			}
			known[r.Key] = r.Rev
		}
		for key, was := range known {
			if _, ok := here[key]; !ok {
				changes = append(changes, kv.Change{Key: key, Rev: max(rev, was+1), Deleted: true})
				delete(known, key)
			}
		}
		if len(changes) == 0 {
			return nil
		}
		slices.SortFunc(changes, func(a, b kv.Change) int { return cmp.Compare(a.Rev, b.Rev) })
		return fn(rev, changes)
	})
}
