package kv

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
)

// Feeds makes a Plain store a Store: it keeps feed lanes, and serves Watch from
// them. The Store owns p.
//
// Every batch that writes below Keys.State or Keys.Logs carries, as its rider, the
// write of one of this process's lanes: the names of what may have changed. One
// Follow per process, from the first Watch on, reads all lanes whenever one of
// them changes; what they name is read with Get, and delivered. So a change costs
// each process one return of Follow and one Get, whatever the namespace holds; the
// change of one shard's owner, or a short chunk of one shard, costs no Get, since the
// lane has the record, too. Who
// missed names gets ErrCompacted, and reads in full: soon after a change of
// hundreds of records, as rarely as that takes long.
//
// Watch differs from Store's in this: of several chunks of one shard it may tell
// only the last, whose predecessors are found by its number; a chunk that is told
// as deleted may never have been written; a change may be told twice; and changes
// may be later than the revision they are told with. Any prefix that is not below
// State or Logs, such as heartbeats, is followed as it is.
//
// Lanes that nobody writes are removed by who writes next, so that an idle
// namespace stays idle.
func Feeds(p Plain, o FeedOptions) Store {
	f := &feeds{
		plain: p, keys: Keys{o.Namespace},
		readKeys:  cmp.Or(o.ReadKeys, 64),
		retention: cmp.Or(o.Retention, time.Minute),
	}
	f.life, f.end = context.WithCancel(context.Background())
	instance := rand.Text()[:12]
	for k := range feedKinds {
		f.writers[k].init(k, instance, cmp.Or(o.Lanes, 4))
		f.journals[k].init(f.keys, k)
	}
	return f
}

type feeds struct {
	plain     Plain
	keys      Keys
	readKeys  int
	retention time.Duration
	writers   [feedKinds]writers

	life    context.Context // ends with Close
	end     context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	begun    bool // the lanes were read
	journals [feedKinds]journal
	told     Rev                      // everything up to here is in the journals
	seen     Rev                      // the latest revision that a page has shown
	moved    [feedKinds]int64         // how far the journals were when the last page was told
	changed  [feedKinds]chan struct{} // closed when a journal moves; nil if nobody waits
	reader   *feedReader
	full     [feedKinds]fullRead // the latest
}

// feedReader is the goroutine that follows the lanes.
type feedReader struct {
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

var errFeedsClosed = errors.New("tenure: the store was closed")

// Get is Plain's.
func (f *feeds) Get(ctx context.Context, keys ...string) (*Page, error) {
	return f.plain.Get(ctx, keys...)
}

// Range is Plain's. It sees what the lanes showed before it began, so its revision
// is at least that: a watch that needs everything read again can begin there. The
// first read of everything reads the lanes before it, so that such a watch finds
// out what became of them.
func (f *feeds) Range(ctx context.Context, q Range) (*Page, error) {
	if q.Prefix == f.keys.State() || q.Prefix == f.keys.Heads() {
		if err := f.baseline(ctx); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	var seen Rev
	if f.reader != nil && f.reader.err == nil {
		seen = f.seen
	}
	f.mu.Unlock()
	start := time.Now()
	page, err := f.plain.Range(ctx, q)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	switch q.Prefix {
	case f.keys.State():
		f.full[stateFeed] = fullRead{time.Now(), time.Since(start)}
	case f.keys.Heads():
		f.full[logFeed] = fullRead{time.Now(), time.Since(start)}
	}
	f.mu.Unlock()
	page.Rev = max(page.Rev, seen)
	return page, nil
}

// Close joins the reader.
func (f *feeds) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.end()
	err := f.plain.Close()
	f.running.Wait()
	return err
}

// kind is the kind of lane that tells about keys with a prefix.
func (f *feeds) kind(prefix string) (feedKind, bool) {
	switch {
	case strings.HasPrefix(prefix, f.keys.State()):
		return stateFeed, true
	case strings.HasPrefix(prefix, f.keys.Logs()):
		return logFeed, true
	}
	return 0, false
}

// Watch delivers changes. See Store, and Feeds for what differs.
func (f *feeds) Watch(ctx context.Context, prefixes []string, after Rev, fn func(Rev, []Change) error) error {
	fed := 0
	var kind feedKind
	for _, p := range prefixes {
		if k, ok := f.kind(p); ok {
			if fed > 0 && k != kind {
				return fmt.Errorf("tenure: a watch of both state and logs: %w", errors.ErrUnsupported)
			}
			kind = k
			fed++
		}
	}
	switch fed {
	case 0:
		return f.follow(ctx, prefixes, after, fn)
	case len(prefixes):
		return f.watch(ctx, kind, prefixes, after, fn)
	}
	return fmt.Errorf("tenure: a watch of lanes and other records at once: %w", errors.ErrUnsupported)
}

// watch delivers what the lanes of a kind tell.
func (f *feeds) watch(ctx context.Context, kind feedKind, prefixes []string, after Rev, fn func(Rev, []Change) error) error {
	r, err := f.read(ctx)
	if err != nil {
		return err
	}
	j := &f.journals[kind]
	rev := after // what fn was told last
	at := int64(-1)
	for {
		f.mu.Lock()
		if at < 0 {
			if after < j.floor {
				f.mu.Unlock()
				return f.missed(ctx, kind)
			}
			at = j.lost
		}
		keys, ok := j.since(at, rev)
		now, told := j.seq, f.told
		if f.changed[kind] == nil {
			f.changed[kind] = make(chan struct{})
		}
		changed := f.changed[kind]
		f.mu.Unlock()
		if !ok {
			return f.missed(ctx, kind)
		}
		if len(keys) > 0 {
			if err := f.deliver(ctx, kind, prefixes, keys, rev, max(rev, told), fn); err != nil {
				return err
			}
			rev = max(rev, told)
		}
		at = now
		select {
		case <-changed:
		case <-r.done:
			return r.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// maxFedChunks is how many chunks are read, and kept in memory, at once.
const maxFedChunks = 16

// deliver reads what was told without a detail, and calls fn with what is newer than revision after;
// everything up to rev is delivered then.
func (f *feeds) deliver(ctx context.Context, kind feedKind, prefixes []string, told []toldKey, after, rev Rev, fn func(Rev, []Change) error) error {
	told = slices.DeleteFunc(told, func(t toldKey) bool {
		return !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(t.key, p) })
	})
	atOnce := f.readKeys
	if kind == logFeed {
		atOnce = min(atOnce, maxFedChunks)
		// Each shard's in order, over all that is read at once.
		slices.SortFunc(told, func(a, b toldKey) int { return strings.Compare(a.key, b.key) })
	}
	var changes []Change
	for len(told) > 0 {
		n := min(atOnce, len(told))
		var read []toldKey
		var keys []string
		for _, t := range told[:n] {
			if c, ok := f.keys.undetailed(t); ok {
				changes = append(changes, c)
				continue
			}
			read, keys = append(read, t), append(keys, t.key)
		}
		page := &Page{}
		if len(keys) > 0 {
			var err error
			if page, err = f.plain.Get(ctx, keys...); err != nil {
				return err
			}
		}
		if len(page.Pairs) != len(keys) {
			return fmt.Errorf("tenure: the store answered %d of %d keys", len(page.Pairs), len(keys))
		}
		for i, p := range page.Pairs {
			switch t := read[i]; {
			case p.Rev == 0: // its deletion was told at that revision at the latest
				changes = append(changes, Change{Key: t.key, Rev: t.rev, Deleted: true})
			case p.Rev > after:
				changes = append(changes, Change{Key: t.key, Value: p.Value, Rev: p.Rev})
			}
		}
		told = told[n:]
		if len(told) > 0 && kind == stateFeed {
			continue
		}
		upTo := after // nothing, until all was read
		if len(told) == 0 {
			upTo = rev
		}
		slices.SortStableFunc(changes, func(a, b Change) int { return cmp.Compare(a.Rev, b.Rev) })
		if err := fn(upTo, changes); err != nil {
			return err
		}
		changes = nil
	}
	return nil
}

// missed asks for a read of everything, but leaves time between two of them: while
// thousands of records change, each process reads them a few times and not
// thousands of times.
func (f *feeds) missed(ctx context.Context, kind feedKind) error {
	f.mu.Lock()
	last := f.full[kind]
	f.mu.Unlock()
	rest := time.Until(last.end.Add(min(2*last.took, time.Second)))
	if rest <= 0 {
		return ErrCompacted
	}
	t := time.NewTimer(rest)
	defer t.Stop()
	select {
	case <-t.C:
		return ErrCompacted
	case <-ctx.Done():
		return ctx.Err()
	case <-f.life.Done():
		return errFeedsClosed
	}
}

// read makes sure that the lanes are followed, and were read once.
func (f *feeds) read(ctx context.Context) (*feedReader, error) {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil, errFeedsClosed
	}
	r := f.reader
	if r == nil || r.err != nil {
		r = &feedReader{began: make(chan struct{}), done: make(chan struct{})}
		f.reader = r
		f.running.Go(func() {
			err := f.plain.Follow(f.life, []string{f.keys.Feeds()}, func(p *Page) error {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.look(p)
				if r.pages++; r.pages == 1 {
					close(r.began)
				}
				return nil
			})
			if err == nil {
				err = errors.New("tenure: the store ended a watch without an error")
			}
			f.mu.Lock()
			r.err = err
			f.mu.Unlock()
			close(r.done)
		})
	}
	f.mu.Unlock()
	select {
	case <-r.began:
		return r, nil
	case <-r.done:
		return nil, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// baseline reads the lanes unless they were read before.
func (f *feeds) baseline(ctx context.Context) error {
	f.mu.Lock()
	begun := f.begun
	f.mu.Unlock()
	if begun {
		return nil
	}
	page, err := f.plain.Range(ctx, Range{Prefix: f.keys.Feeds()})
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.begun { // else another page was faster, and may be later
		f.look(page)
	}
	return nil
}

// look takes over a page of lanes. The caller holds the lock.
func (f *feeds) look(p *Page) {
	now := time.Now()
	f.begun = true
	here := p.Rev
	for _, lane := range p.Pairs {
		here = max(here, lane.Rev)
	}
	f.told, f.seen = max(f.told, p.Rev), max(f.seen, here)
	sane := true
	for k := range f.journals {
		sane = f.journals[k].look(p.Pairs, f.seen, now) && sane
	}
	if !sane { // what the store showed before says nothing about what it is now
		f.told, f.seen = p.Rev, here
		for k := range f.journals {
			f.journals[k].forget(here)
		}
	}
	for k := range f.journals {
		if f.journals[k].seq != f.moved[k] && f.changed[k] != nil {
			close(f.changed[k])
			f.changed[k] = nil
		}
		f.moved[k] = f.journals[k].seq
	}
}

// follow watches a few records as they are.
func (f *feeds) follow(ctx context.Context, prefixes []string, after Rev, fn func(Rev, []Change) error) error {
	known := make(map[string]Rev)
	rev := after
	return f.plain.Follow(ctx, prefixes, func(p *Page) error {
		rev = max(rev, p.Rev)
		var changes []Change
		here := make(map[string]struct{}, len(p.Pairs))
		for _, r := range p.Pairs {
			here[r.Key] = struct{}{}
			if r.Rev > max(after, known[r.Key]) {
				changes = append(changes, Change{Key: r.Key, Value: r.Value, Rev: r.Rev})
			}
			known[r.Key] = r.Rev
		}
		for key, was := range known {
			if _, ok := here[key]; !ok {
				changes = append(changes, Change{Key: key, Rev: max(rev, was+1), Deleted: true})
				delete(known, key)
			}
		}
		if len(changes) == 0 {
			return nil
		}
		slices.SortFunc(changes, func(a, b Change) int { return cmp.Compare(a.Rev, b.Rev) })
		return fn(rev, changes)
	})
}
