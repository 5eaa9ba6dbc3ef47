package kv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
)

// maxBeatKeys is the maximum number of heartbeats watched individually. If calls request more, the
// Backend watches all heartbeats of the namespace.
const maxBeatKeys = 32

// Observe waits for changes of members and shards. See driver.Backend. Without a cursor, Observe
// always reads the store.
func (b *Backend) Observe(ctx context.Context, q driver.ObserveQuery) (*driver.View, error) {
	for _, a := range q.Beats {
		if err := driver.CheckSession(a.Session); err != nil {
			return nil, err
		}
	}
	if err := b.readable(ctx); err != nil {
		return nil, err
	}
	m := &b.mirror
	since, ok := b.position(q.Since)
	m.mu.Lock()
	full := !ok || since < m.floor || since > m.seq
	m.asks[&q] = struct{}{}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.asks, &q)
		m.mu.Unlock()
	}()
	if !full {
		return b.follow(ctx, &q, since)
	}
	if err := b.reload(ctx); err != nil {
		return nil, err
	}
	beats, _, err := b.readBeats(ctx, sessions(q.Beats))
	if err != nil {
		return nil, err
	}
	return b.full(beats, q.Beats), nil
}

// full returns the whole state. The next call starts a watch.
func (b *Backend) full(beats map[driver.SessionID]Rev, asked []driver.Beat) *driver.View {
	m := &b.mirror
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.view(0, true)
	v.Beats = newer(beats, asked)
	v.Cursor = b.cursor(m.seq)
	b.odd.Tell(v)
	return v
}

// follow waits for a change numbered above since, or for a newer heartbeat.
func (b *Backend) follow(ctx context.Context, q *driver.ObserveQuery, since int64) (*driver.View, error) {
	m := &b.mirror
	for {
		if err := b.watchBeats(ctx, q); err != nil {
			return nil, err
		}
		m.mu.Lock()
		if len(q.Beats) > 0 && !m.covers(q) {
			m.mu.Unlock()
			continue // another call has just replaced this watch
		}
		state, err := b.watchState()
		if err != nil {
			m.mu.Unlock()
			return nil, err
		}
		beating := m.beating
		v := m.view(since, since < m.floor)
		v.Beats = newer(m.beats, q.Beats)
		v.Cursor = b.cursor(m.seq)
		changed := m.waiting()
		err = b.readable(ctx) // under the lock, because each later reason to return closes a channel
		m.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if v.Reset || len(v.Shards)+len(v.Members)+len(v.Gone)+len(v.Beats)+len(v.Damaged) > 0 {
			b.odd.Tell(v)
			return v, nil
		}
		var beatsDone <-chan struct{} // nil without beats, and so never ready
		if len(q.Beats) > 0 {
			beatsDone = beating.done
		}
		select {
		case <-changed:
		case <-state.done:
			return nil, b.readError(state.err)
		case <-beatsDone:
			// Another call may have replaced the watch with a wider one.
			if !errors.Is(beating.err, errReplaced) {
				return nil, b.readError(beating.err)
			}
		case <-ctx.Done():
		case <-b.life.Done():
		}
		if err := b.readable(ctx); err != nil {
			return nil, err
		}
	}
}

// readable returns an error if a call must not wait for changes.
func (b *Backend) readable(ctx context.Context) error {
	if b.life.Err() != nil {
		return errClosed()
	}
	if err := b.changed.Load(); err != nil {
		return *err
	}
	if err := ctx.Err(); err != nil {
		return b.readError(err)
	}
	return nil
}

// reload checks the identity and reads the full state into the mirror.
func (b *Backend) reload(ctx context.Context) error {
	page, err := b.get(ctx, []string{b.keys.Identity()})
	if err != nil {
		return err
	}
	if err := b.checkIdentity(page.Pairs[0]); err != nil {
		return err
	}
	b.mirror.mu.Lock()
	floor := b.mirror.rev
	b.mirror.mu.Unlock()
	page, err = b.store.Range(ctx, Range{Prefix: b.keys.State(), Largest: maxJSONRecord})
	if err != nil {
		return b.readError(err)
	}
	if page.Rev < floor { // otherwise the state would go backwards (rule O1)
		return b.storeChanged("its revision is %d after %d was read", page.Rev, floor)
	}
	b.mirror.load(page)
	return nil
}

// watchState starts the state watch unless it is already running. The caller holds the mirror's
// lock.
func (b *Backend) watchState() (*run, error) {
	m := &b.mirror
	if m.state.alive() {
		return m.state, nil
	}
	from := m.rev
	r, err := b.start(func(ctx context.Context, _ *run) error {
		for {
			err := b.store.Watch(ctx, []string{b.keys.State()}, from, func(rev Rev, changes []Change) error {
				for _, c := range changes {
					b.learn(c)
				}
				m.follow(rev, changes)
				return nil
			})
			if !errors.Is(err, ErrCompacted) {
				return err
			}
			if err := b.reload(ctx); err != nil {
				return err
			}
			m.mu.Lock()
			from = m.rev
			m.mu.Unlock()
		}
	})
	if err != nil {
		return nil, err
	}
	m.state = r
	return r, nil
}

// readBeats reads heartbeats. If the watch has already delivered a later version, readBeats returns
// that version, so that versions never decrease. A record may be newer than its page's revision.
func (b *Backend) readBeats(ctx context.Context, of []driver.SessionID) (map[driver.SessionID]Rev, Rev, error) {
	if len(of) == 0 {
		return nil, 0, nil
	}
	keys := make([]string, len(of))
	for i, s := range of {
		keys[i] = b.keys.Beat(s)
	}
	page, err := b.get(ctx, keys)
	if err != nil {
		return nil, 0, err
	}
	beats := make(map[driver.SessionID]Rev, len(of))
	m := &b.mirror
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range of {
		read := page.Pairs[i].Rev
		beats[s] = read
		rev, watched := m.beats[s]
		switch {
		case !watched || read == rev:
		case read < rev && (read != 0 || rev > page.Rev):
			beats[s] = rev
		default:
			m.beats[s] = read
			m.wakeLocked()
		}
	}
	return beats, page.Rev, nil
}

// watchBeats ensures that a watch updates the query's heartbeats in the mirror.
func (b *Backend) watchBeats(ctx context.Context, q *driver.ObserveQuery) error {
	if len(q.Beats) == 0 {
		return nil
	}
	m := &b.mirror
	m.mu.Lock()
	if m.covers(q) && m.beating.alive() {
		m.mu.Unlock()
		return nil
	}
	// Keep watching the heartbeats that other calls wait for.
	want := make(map[driver.SessionID]struct{})
	for other := range m.asks {
		for _, a := range other.Beats {
			want[a.Session] = struct{}{}
		}
	}
	m.mu.Unlock()

	beats, from, err := b.readBeats(ctx, slices.Collect(maps.Keys(want)))
	if err != nil {
		return err
	}
	prefixes := []string{b.keys.Beats()}
	if len(want) <= maxBeatKeys {
		prefixes = prefixes[:0]
		for s := range want {
			prefixes = append(prefixes, b.keys.Beat(s))
		}
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	for s, rev := range m.beats { // the watch delivered these after the read
		if read, ok := beats[s]; ok && rev > from {
			beats[s] = max(rev, read)
		}
	}
	former := m.beating
	r, err := b.start(func(ctx context.Context, r *run) error {
		err := b.store.Watch(ctx, prefixes, from, func(_ Rev, changes []Change) error {
			if !m.followBeats(r, changes) {
				return errReplaced
			}
			return nil
		})
		if !errors.Is(err, ErrCompacted) {
			return err
		}
		return errReplaced // the caller reads them again
	})
	if err != nil {
		return err
	}
	m.beats, m.beating = beats, r
	if former != nil {
		former.stop(errReplaced)
	}
	return nil
}

// covers reports whether the watch covers all requested heartbeats, without too many others.
func (m *mirror) covers(q *driver.ObserveQuery) bool {
	for _, a := range q.Beats {
		if _, ok := m.beats[a.Session]; !ok {
			return false
		}
	}
	if len(m.beats) <= 2*len(q.Beats)+maxBeatKeys {
		return true
	}
	asked := 0
	for other := range m.asks {
		asked += len(other.Beats)
	}
	return len(m.beats) <= 2*asked+maxBeatKeys
}

func sessions(beats []driver.Beat) []driver.SessionID {
	s := make([]driver.SessionID, len(beats))
	for i, b := range beats {
		s[i] = b.Session
	}
	return s
}

// errReplaced is the error of a watch that another watch has replaced.
var errReplaced = errors.New("tenure: another watch took over")

// run represents a goroutine that runs a watch until it fails or is stopped.
type run struct {
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error // set when done is closed
}

func (r *run) alive() bool {
	if r == nil {
		return false
	}
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

func (r *run) stop(cause error) { r.cancel(cause) }

// start runs f in a goroutine that Close ends and waits for.
func (b *Backend) start(f func(context.Context, *run) error) (*run, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed()
	}
	ctx, cancel := context.WithCancelCause(b.life)
	r := &run{cancel: cancel, done: make(chan struct{})}
	b.running.Go(func() {
		defer close(r.done)
		defer cancel(nil)
		r.err = f(ctx, r)
		if cause := context.Cause(ctx); cause != nil {
			r.err = cause
		}
		if r.err == nil {
			r.err = fmt.Errorf("tenure: the store ended a watch without an error")
		}
	})
	return r, nil
}
