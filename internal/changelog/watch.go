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

// New makes a Store a kv.Store for the namespace of keys: it keeps change logs, and
// serves Watch from them. The kv.Store owns s.
//
// Its Watch is of prefixes that are below Keys.State of internal/kvkeys, below Keys.Logs, or all
// elsewhere, such as heartbeats, which are followed as they are; others are refused
// with errors.ErrUnsupported. It answers a reader that missed entries with
// kv.ErrCompacted: soon after a change of hundreds of records, as rarely as a read in
// full takes long.
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

// store is a kv.Store over a Store.
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

// feed is the change logs of one kind, this process's and all others'. All of it but the
// writers is guarded by store.mu.
type feed struct {
	writers  writers
	observer observer
	complete kv.Rev        // the observer has everything up to here
	latest   kv.Rev        // the latest revision that a page has shown
	wake     chan struct{} // closed when the observer moves; nil if nobody waits
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

// fullRead is when a read of everything ended, and how long it took.
type fullRead struct {
	end  time.Time
	took time.Duration
}

// key is the key of a change log.
func (s *store) key(name string) string { return s.keys.ChangeLogs() + name }

var errClosed = errors.New("tenure: the store was closed")

// Get is that of the Store.
func (s *store) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	return s.below.Get(ctx, keys...)
}

// Range is that of the Store. It sees every change that the change logs showed before
// it began, so its revision is at least that of the change logs: a watch that needs
// everything read again can begin there. The first read of everything reads the
// change logs before it, so that such a watch learns their state.
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

// Close joins the readers.
func (s *store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	err := s.below.Close()
	s.running.Wait()
	return err
}

// logged is the kind of the change logs that have the changes of keys with a prefix, if
// any have.
func (s *store) logged(prefix string) (kind, bool) {
	switch {
	case strings.HasPrefix(prefix, s.keys.State()):
		return stateKind, true
	case strings.HasPrefix(prefix, s.keys.Logs()):
		return logKind, true
	}
	return 0, false
}

// Watch delivers changes. See kv.Store, and New for the prefixes.
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

// watchFunc is the function that a watch calls with changes. See kv.Store.
type watchFunc = func(rev kv.Rev, changes []kv.Change) error

// watch delivers the changes that are in the change logs of a kind.
func (s *store) watch(ctx context.Context, kind kind, prefixes []string, after kv.Rev, fn watchFunc) error {
	r, err := s.read(ctx, kind)
	if err != nil {
		return err
	}
	f := &s.feeds[kind]
	rev := after // up to which fn was called last
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

// maxReadChunks is how many chunks are read, and kept in memory, at once.
const maxReadChunks = 16

// deliver reads the changed keys that have no inline value, and calls fn with those that
// are newer than revision after; everything up to rev is delivered then.
func (s *store) deliver(ctx context.Context, kind kind, changed []changedKey, after, rev kv.Rev, fn watchFunc) error {
	atOnce := s.readKeys
	if kind == logKind {
		atOnce = min(atOnce, maxReadChunks)
		// Each shard's in order, over all that is read at once.
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
		upTo := after // nothing, until all was read
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

// changes are those of some changed keys, read where they have no inline value.
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
		case p.Rev == 0: // it was deleted at that revision at the latest
			changes = append(changes, kv.Change{Key: read[i].key, Rev: read[i].rev, Deleted: true})
		case p.Rev > after:
			changes = append(changes, kv.Change{Key: read[i].key, Value: p.Value, Rev: p.Rev})
		}
	}
	return changes, nil
}

// missed requests a read of everything, but leaves time between two of them: while
// thousands of records change, each process reads them a few times and not thousands of
// times.
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

// read makes sure that the change logs of a kind are followed, and were read once.
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

// baseline reads the change logs of a kind unless they were read before.
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
	if !s.feeds[k].observer.begun { // else another page was faster, and may be later
		s.look(k, page)
	}
	return nil
}

// look takes over a page of the change logs of a kind. The caller holds the lock.
func (s *store) look(k kind, p *kv.Page) {
	f := &s.feeds[k]
	here := p.Rev
	for _, l := range p.Pairs {
		here = max(here, l.Rev)
	}
	f.complete, f.latest = max(f.complete, p.Rev), max(f.latest, here)
	before := f.observer.seq
	if !f.observer.look(p.Pairs, f.latest, time.Now()) {
		// Earlier pages, of both kinds, say nothing about the store's present state.
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

// moved wakes the watches of a feed whose observer has moved.
func (f *feed) moved() {
	if f.wake != nil {
		close(f.wake)
		f.wake = nil
	}
}

// follow watches a few records as they are.
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
