package sharding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/mark"
	"github.com/tenure-go/tenure/internal/rhythm"
)

// Manager shares a set of shards among the members of a namespace, for one
// process, beside its Elector. All methods are safe for concurrent use.
type Manager struct {
	b      core.Backend
	e      *core.Elector
	h      core.Handler
	o      *Options
	limits core.Limits

	wake chan struct{} // something for the loop
	news chan struct{} // something in the assigner's log

	watched chan struct{}             // Picture was called
	reads   atomic.Bool               // this member's assigner reads loads
	blind   atomic.Bool               // this member does not understand the plans
	refused atomic.Int64              // until when it is not the assigner, since it did not understand them as such
	form    byte                      // of plans, the newest that it reads
	calm    atomic.Pointer[core.View] // the last one in which every member of the table lived

	lines  rhythm.Rhythm // of what is tried again, by the kind of call
	ranges rhythm.Rhythm // of changes of ranges, by the shard

	mu      sync.Mutex
	ran     bool
	table   *assignments
	changed chan struct{} // closed when there is another table, or a range was given up
	slices  map[string]*Slice
	meters  map[string]*meter
	lanes   *lanes
	loads   map[string]float64 // by shard, for Picture; it is replaced, not modified
	loadsAt time.Time
	drained bool // by Drain
	emptied chan struct{}

	// What follows is the loop's own.
	known     *assignments // for which the rest was worked out
	fixed     []string     // those of Options.Shards, sorted
	names     []string     // those and the keyspace's, sorted; the next ones are by name
	at        []int32      // index in known of each own shard, or None
	heirs     []int32
	prefs     []core.Preference
	contended []bool
	suspects  []*suspicion
	top       int  // deaths of a suspect
	cautious  bool // heirs leave suspects alone: these are not the most of all shards
	seen      []sight
	aside     bool // the elector was told of shards that are set aside
	prep      *preparer
	work      context.Context // of what goes on beside the loop
	began     time.Time
	plans     []planTime // when each was known, by the time since then
	waiting   bool       // for a member that prepares a shard
	assigning bool       // contends for the assigner's shard
	shown     bool       // to the others, with the mark
	draining  bool       // as the others were last told
	leftAt    time.Time
}

// A sight is when a lease of a shard was seen first: what the table said then may
// be older than the lease, so that only a later plan takes it away again.
type sight struct {
	token  core.Token
	number int64
}

// NewManager returns a Manager that shares out shards among the members of b's
// namespace, each served by h while this process owns it. The Elector is the
// caller's to run, on the same backend, until after the Manager's Run returned.
// It does no I/O.
func NewManager(b core.Backend, e *core.Elector, h core.Handler, o *Options) (*Manager, error) {
	if b == nil || e == nil || h == nil {
		return nil, fmt.Errorf("tenure: %w: sharding needs a backend, an elector and a handler", core.ErrInvalid)
	}
	c, names, err := o.resolve()
	if err != nil {
		return nil, err
	}
	served := func(ctx context.Context, l *core.Lease) error {
		name := l.Shard()
		if _, err := c.Keyspace.index(name); err == nil {
			name = c.Keyspace.Name
		}
		return h(keyspace.With(ctx, name), l)
	}
	m := &Manager{
		b: b, e: e, h: served, o: c, form: formVersion, ranges: rhythm.Rhythm{Keys: 8}, fixed: names, limits: b.Info().Limits,
		wake: make(chan struct{}, 1), news: make(chan struct{}, 1), watched: make(chan struct{}, 1), emptied: make(chan struct{}),
		changed: make(chan struct{}), slices: map[string]*Slice{}, meters: map[string]*meter{}, lanes: newLanes(), table: &assignments{},
	}
	m.prep = &preparer{m: m, at: map[string]*preparation{}}
	m.rename(names)
	return m, nil
}

// Run takes part until ctx ends, then has this member emptied: the assigner gives
// its shards to others, each is handed over when its handler returned, and Run
// returns when none is left, or at the end of the leave budget. Then, and not
// before, the Elector may be stopped.
//
// The error is nil if everything was handed over. At the end of the leave budget it
// says how many shards are left, which the Elector gives back when it stops. It
// matches core.ErrStuck, with their names, if the handlers of shards do not return,
// and core.ErrStopped if the Elector ended first. Run is called once. Every
// goroutine is joined when it returns.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	ran := m.ran
	m.ran = true
	m.mu.Unlock()
	if ran {
		return fmt.Errorf("tenure: %w: Run is called once; make another Manager", core.ErrStopped)
	}
	// Leaving needs everything to go on.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	defer parts.Wait()
	defer m.prep.close()
	defer stop()
	m.work, m.began = work, time.Now()
	m.prep.begin()
	views := make(chan *core.View)
	failed := make(chan error, 1)
	parts.Go(func() { m.follow(work) })
	parts.Go(func() { m.watch(work, views, failed) })
	parts.Go(func() { m.tellLoad(work) })
	parts.Go(func() { m.watchLoad(work) })
	if err := m.show(false); err != nil {
		return err
	}
	m.e.Stay()
	return m.loop(ctx, views, failed)
}

// Drain has this member emptied, or, with false, lets it take shards again. It
// does not wait: Emptied tells.
func (m *Manager) Drain(on bool) {
	m.mu.Lock()
	m.drained = on
	if !on {
		select {
		case <-m.emptied:
			m.emptied = make(chan struct{})
		default:
		}
	}
	m.mu.Unlock()
	signal(m.wake)
}

// Emptied returns a channel that is closed when this member, drained or leaving,
// has no shard any more.
func (m *Manager) Emptied() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.emptied
}

// Wake says that the assigner's log has news, for an application that follows the
// namespace's logs itself (Options.Poll): call it for entries of AssignerShard.
func (m *Manager) Wake() { signal(m.news) }

// AssignerShard is the shard whose log has the plans.
const AssignerShard = assigner

// Assignments returns the table in force here, in the order of the shards' names.
func (m *Manager) Assignments() []Assignment {
	t := m.assigned()
	out := make([]Assignment, len(t.names))
	for i := range out {
		out[i] = t.at(i)
	}
	return out
}

func (m *Manager) assigned() *assignments {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.table
}

// setTable makes another table known, and has slices carry out what it changes.
func (m *Manager) setTable(t *assignments) {
	m.mu.Lock()
	m.table = t
	m.mu.Unlock()
	m.announce()
	for i := range t.changes {
		for _, shard := range append(named(t.changes[i].Gifts), t.changes[i].From) {
			if s := m.slice(shard); s != nil {
				s.advance()
			}
		}
	}
	signal(m.wake)
}

// announce wakes slices that wait for another table, or for a range.
func (m *Manager) announce() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.changed)
	m.changed = make(chan struct{})
}

// slice is the open slice of a shard; nil if there is none.
func (m *Manager) slice(shard string) *Slice {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.slices[shard]
}

// Map returns the map of the keyspace's ranges that is in force here; nil before the first plan
// is known, and without a keyspace.
func (m *Manager) Map() *Map { return m.assigned().ranged() }

// indexOf is the place of a shard in the table.
func indexOf(t *assignments, shard string) (int, bool) { return slices.BinarySearch(t.names, shard) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// watch passes views on, one at a time: those in between are merged.
func (m *Manager) watch(ctx context.Context, views chan<- *core.View, failed chan<- error) {
	var v *core.View
	for {
		next, err := m.e.WaitView(ctx, v)
		if err != nil {
			failed <- err
			return
		}
		v = next
		if m.assigned().calm(v) {
			m.calm.Store(v)
		}
		select {
		case views <- v:
		case <-ctx.Done():
			failed <- ctx.Err()
			return
		}
	}
}

// follow keeps the table up to date with the assigner's log. What another shard's
// log does is only a hint to look.
func (m *Manager) follow(ctx context.Context) {
	j := journalOf(m.b)
	j.newest = m.form
	var hints sync.WaitGroup
	defer hints.Wait()
	every := m.o.Poll
	if every == 0 {
		every = resync
		hints.Go(func() { m.tail(ctx) })
	}
	var said time.Time
	for wait := retry; ; {
		changed, err := j.catchUp(ctx)
		if changed {
			m.setTable(j.table)
		}
		if err == nil && m.o.OnRange != nil { // not for what was there before
			j.tell = m.tellRanges
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			said = m.understood(j, said)
		}
		m.tried("read the plans", err)
		if errors.Is(err, core.ErrStoreChanged) {
			return // it is halted
		}
		next := min(every, time.Minute)
		if err != nil {
			next, wait = min(every, wait), longer(wait)
		} else {
			wait = retry
		}
		t := time.NewTimer(next)
		select {
		case <-m.news:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// understood takes in whether the plans are, and says each minute that they are not. said is when it
// did so last.
func (m *Manager) understood(j *journal, said time.Time) time.Time {
	blind, now := j.blind(m.o.Keyspace), time.Now()
	if m.blind.Swap(blind != nil) != (blind != nil) || m.refused.Load() != 0 {
		signal(m.wake)
	}
	if blind == nil {
		m.tried("understand the plans", j.gap)
	} else if now.Sub(said) >= time.Minute {
		m.o.OnError(blind)
		return now
	}
	return said
}

const (
	callTimeout = 5 * time.Second
	resync      = 30 * time.Second       // between two looks at the log without a hint (S13)
	retry       = 250 * time.Millisecond // after a call that failed; see longer
	tailPage    = 256
)

// longer is the wait after a call that failed again.
func longer(wait time.Duration) time.Duration { return min(2*wait, callTimeout) }

// tried reports a call that is made again and again to OnError if it failed, in a rhythm, and logs
// that it works again. The kind of call completes "tenure: ".
func (m *Manager) tried(call string, err error) {
	now := time.Now()
	if err != nil {
		if _, say := m.lines.Failed(call, now); say {
			m.o.OnError(fmt.Errorf("tenure: %s: %w", call, err))
		}
	} else if s, say := m.lines.Worked(call, now); say {
		slog.Info("tenure: sharding: works again", slog.String("call", call), slog.Int("failures", s.Failures),
			slog.Duration("after", now.Sub(s.Since)))
	}
}

// tail waits for entries of the assigner's log.
func (m *Manager) tail(ctx context.Context) {
	var cursor driver.Cursor
	for wait := retry; ctx.Err() == nil; {
		limited, cancel := context.WithTimeout(ctx, resync) // a reply may have been lost: X1
		page, err := m.b.TailLog(limited, cursor, tailPage)
		quiet := limited.Err() != nil
		cancel()
		switch {
		case errors.Is(err, core.ErrStoreChanged) || ctx.Err() != nil:
			return // it is halted; follow says so
		case err != nil && quiet:
			continue
		}
		if m.tried("follow the plans", err); err != nil {
			pause(ctx, wait)
			wait = longer(wait)
			continue
		}
		cursor, wait = page.Cursor, retry
		if page.Reset || slices.ContainsFunc(page.Entries, func(e core.Entry) bool { return e.Shard == assigner }) {
			m.Wake()
		}
	}
}

// loop brings what this process contends for in line with the table, until it is
// to leave and has left.
func (m *Manager) loop(ctx context.Context, views <-chan *core.View, failed <-chan error) error {
	var v *core.View
	done := ctx.Done()
	lame, budget := time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	defer lame.Stop()
	defer budget.Stop()
	lame.Stop()
	budget.Stop()
	ending := false
	tick := time.NewTicker(m.o.Interval)
	defer tick.Stop()
	for {
		select {
		case v = <-views:
		case <-m.wake:
		case <-tick.C:
			if !m.leaving() && !m.waiting {
				continue
			}
		case <-done:
			done = nil
			lame.Reset(m.e.Leave())
			continue
		case <-lame.C:
			ending = true
			m.Drain(true)
			budget.Reset(m.o.LeaveBudget)
		case <-budget.C:
			return m.late(m.e.View())
		case err := <-failed:
			return err
		}
		if v == nil {
			continue
		}
		began := time.Now()
		if m.leaving() {
			v = m.e.View() // the last one passed on may be from before a grant
		}
		empty, err := m.reconcile(v)
		if err != nil {
			return err
		}
		if empty && ending {
			return stuckErr(v, m.names)
		}
		// With very many shards a look takes milliseconds: leave the processor to
		// the handlers.
		if took := time.Since(began); took > time.Millisecond {
			pause(context.Background(), min(4*took, 200*time.Millisecond))
		}
	}
}

func (m *Manager) leaving() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.drained
}

// learn works out what follows from a new table: which shards there are, and which member claims
// each of them first.
func (m *Manager) learn(t *assignments) error {
	if m.o.Keyspace.Name != "" && t.keys.same(m.o.Keyspace) {
		m.rename(m.all(t))
	}
	same := slices.Equal(t.names, m.names)
	m.setAside(t)
	m.remember(t.number)
	m.known, m.heirs = t, heirs(t.members, t.owner)
	clear(m.suspects)
	next := 0
	m.top = t.top()
	for name, s := range t.suspects {
		if m.o.Quarantine.close(s, m.top) {
			next++
		}
		if i, ok := slices.BinarySearch(m.names, name); ok {
			m.suspects[i] = s
		}
	}
	m.cautious = 2*next <= len(t.names)
	var changed []core.Preference
	for i, name := range m.names {
		k := int32(i)
		if !same {
			k = None
			if j, ok := slices.BinarySearch(t.names, name); ok {
				k = int32(j)
			}
		}
		m.at[i] = k
		p := core.Preference{Shard: name}
		if k != None {
			p.First = t.session(int(k))
			if h := m.heirs[k]; h != None {
				p.Second = t.members[h].ID
			}
		}
		if p != m.prefs[i] && (m.prefs[i].Shard != "" || p.First != "") {
			m.prefs[i] = p
			changed = append(changed, p)
		}
	}
	return m.e.Prefer(changed...)
}

// setAside tells the elector which shards are not meant to have an owner.
func (m *Manager) setAside(t *assignments) {
	if len(t.suspects) == 0 && !m.aside && m.known != nil && t.next == m.known.next && len(t.names) == len(m.known.names) {
		return
	}
	aside := map[string]core.Aside{}
	for _, o := range m.e.View().Shards {
		if why := t.asideOf(o.Shard); why.Why != "" {
			aside[o.Shard] = why
		}
	}
	m.aside = len(t.suspects) > 0
	m.e.SetAside(aside)
}

// all are the shards to contend for: the fixed ones, and those of the table's keyspace. The
// latter are known from the table alone, so that there is one map of the ranges.
func (m *Manager) all(t *assignments) []string {
	own := slices.Equal(t.specs, m.o.Shards)
	if own {
		return t.names
	}
	out := slices.Clone(m.fixed)
	for _, name := range t.names {
		if _, err := t.keys.index(name); err == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// rename takes over another list of shards. What is known of those that stay is kept; those
// that are gone are withdrawn from.
func (m *Manager) rename(names []string) {
	if slices.Equal(names, m.names) {
		return
	}
	n := len(names)
	at, prefs, contended, seen := make([]int32, n), make([]core.Preference, n), make([]bool, n), make([]sight, n)
	m.suspects = make([]*suspicion, n)
	var gone []string
	old := 0
	for i, name := range names {
		for ; old < len(m.names) && m.names[old] < name; old++ {
			gone = append(gone, m.names[old])
		}
		if old < len(m.names) && m.names[old] == name {
			at[i], prefs[i], contended[i], seen[i] = m.at[old], m.prefs[old], m.contended[old], m.seen[old]
			old++
		}
	}
	gone = append(gone, m.names[old:]...)
	m.names, m.at, m.prefs, m.contended, m.seen = names, at, prefs, contended, seen
	if len(gone) > 0 {
		asked, cancel := context.WithCancel(context.Background())
		cancel()
		_ = m.e.Withdraw(asked, gone...) // fails only because it does not wait
	}
}

// standForAssigner contends for planning, or stops to.
func (m *Manager) standForAssigner(want bool) error {
	if want == m.assigning {
		return nil
	}
	m.assigning = want
	if want {
		return m.e.Contend(m.assign, assigner)
	}
	asked, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.e.Withdraw(asked, assigner) // it is not waited for
	return nil
}

// show tells the others that this member has a Manager, and whether it is to be emptied. It does not
// wait: the elector sends it until the store has it, and joins with it. The error says that the
// member's metadata have no room for that.
func (m *Manager) show(draining bool) error {
	if m.shown && m.draining == draining {
		return nil
	}
	m.shown, m.draining = true, draining
	asked, cancel := context.WithCancel(mark.Allow(context.Background()))
	cancel()
	err := m.e.Update(asked, func(st *core.MemberState) {
		st.Draining = draining
		if st.Meta == nil {
			st.Meta = map[string]string{}
		}
		st.Meta[mark.Key] = strconv.Itoa(int(m.form))
	})
	if errors.Is(err, core.ErrInvalid) {
		return fmt.Errorf("%w: sharding marks its members there: use fewer entries, or shorter ones", err)
	}
	return nil
}

// late says what could not be handed over within the leave budget.
func (m *Manager) late(v *core.View) error {
	n := 0
	for i := range v.Leases {
		if _, ours := slices.BinarySearch(m.names, string(v.Leases[i].Fence.Shard)); ours {
			n++
		}
	}
	return errors.Join(fmt.Errorf("tenure: %d shards are not handed over within the leave budget: the elector releases them when it stops", n), stuckErr(v, m.names))
}

// stuckErr names the shards whose handler does not return.
func stuckErr(v *core.View, names []string) error {
	var stuck []string
	for _, l := range v.Leases {
		if _, ours := slices.BinarySearch(names, string(l.Fence.Shard)); ours && (l.State == core.LeaseStuck || l.State == core.LeaseRevoked) {
			stuck = append(stuck, string(l.Fence.Shard))
		}
	}
	if len(stuck) == 0 {
		return nil
	}
	return &core.StuckError{Shards: stuck}
}
