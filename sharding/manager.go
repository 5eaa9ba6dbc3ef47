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
	"github.com/tenure-go/tenure/internal/seam"
	"github.com/tenure-go/tenure/sharding/assign"
)

// Manager distributes a set of shards among the members of a namespace. Each process runs one
// Manager alongside its Elector. All methods are safe for concurrent use.
type Manager struct {
	b      core.Backend
	e      *core.Elector
	h      core.Handler
	o      *Options
	limits core.Limits

	wake chan struct{} // the loop has work
	news chan struct{} // the assigner's log has new entries

	watched chan struct{}             // Picture was called
	reads   atomic.Bool               // this member's assigner reads loads
	blind   atomic.Bool               // this member does not understand the plans
	refused atomic.Int64              // until this time, the member does not plan, because it did not understand the plans
	form    byte                      // newest form of plans that this member can read
	calm    atomic.Pointer[core.View] // the last view in which every member of the table was alive

	lines  rhythm.Rhythm // log lines about failures after which a call is repeated, by the kind of call
	ranges rhythm.Rhythm // log lines about changes of ranges, by shard

	mu      sync.Mutex
	ran     bool
	table   *assignments
	changed chan struct{} // closed when the table was replaced or a range was given up
	slices  map[string]*Slice
	meters  map[string]*meter
	loads   map[string]float64 // loads by shard, for Picture; replaced, never modified
	loadsAt time.Time
	drained bool // set by Drain
	emptied chan struct{}

	// Only loop's goroutine uses the fields below.
	known     *assignments // the table from which the fields below follow
	fixed     []string     // the shards of Options.Shards, sorted
	names     []string     // fixed and the keyspace's shards, sorted; the fields below are by name
	at        []int32      // index of each name in known, or None
	heirs     []int32
	prefs     []seam.Preference
	contended []bool
	suspects  []*suspicion
	top       int  // the most deaths of any suspect
	cautious  bool // heirs do not claim suspects, which are at most half of all shards
	seen      []sight
	aside     bool // the table last passed to setAside had suspects
	prep      *preparer
	work      context.Context // context of work outside the loop
	began     time.Time
	plans     []planTime // when each plan became known, as time since began
	waiting   bool       // waiting for a member that prepares a shard
	assigning bool       // contends for the assigner's shard
	shown     bool       // the member has published its mark
	draining  bool       // the value that was last published
	leftAt    time.Time
}

// A sight records when this member first saw its lease on a shard. The table at that time may be
// older than the lease, so only a later plan moves the shard away.
type sight struct {
	token  core.Token
	number int64
}

// Run creates a Manager and an Elector, and serves this member's share of the shards until ctx
// ends. The error joins the errors from NewElector, NewManager and both Run methods. When Run
// returns, only stuck handlers are still running (core.ErrStuck).
func Run(ctx context.Context, b core.Backend, h core.Handler, o *Options) error {
	var c core.Options
	if o != nil && o.Elector != nil {
		c = *o.Elector
	}
	if o != nil && c.Logger == nil {
		c.Logger = o.Logger
	}
	e, err := core.NewElector(b, &c)
	if err != nil {
		return err
	}
	m, err := NewManager(b, e, h, o)
	if err != nil {
		return err
	}
	elect, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- e.Run(elect) }()
	err = m.Run(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// NewManager returns a Manager that distributes shards among the members of b's namespace. While
// this process owns a shard, h serves the shard. The Elector must use the same backend, and the
// caller must run it until the Manager's Run has returned. NewManager does no I/O.
func NewManager(b core.Backend, e *core.Elector, h core.Handler, o *Options) (*Manager, error) {
	if b == nil || e == nil || h == nil {
		return nil, fmt.Errorf("tenure: %w: sharding needs a backend, an elector and a handler", core.ErrInvalid)
	}
	c, names, err := o.resolve()
	if err != nil {
		return nil, err
	}
	m := &Manager{
		b: b, e: e, o: c, form: formVersion, ranges: rhythm.Rhythm{Keys: 8}, fixed: names, limits: b.Info().Limits,
		wake: make(chan struct{}, 1), news: make(chan struct{}, 1), watched: make(chan struct{}, 1), emptied: make(chan struct{}),
		changed: make(chan struct{}), slices: map[string]*Slice{}, meters: map[string]*meter{}, table: &assignments{},
	}
	m.h = func(ctx context.Context, l *core.Lease) error {
		name := l.Shard()
		if _, err := c.Keyspace.index(name); err == nil {
			name = c.Keyspace.Name
		}
		return h(context.WithValue(keyspace.With(ctx, name), managerKey{}, m), l)
	}
	m.prep = &preparer{m: m, at: map[string]*preparation{}}
	m.rename(names)
	return m, nil
}

// Run serves this member's shards until ctx ends, and then hands all of them over. The assigner
// then assigns the shards to other members, and Run hands each shard over when its handler has
// returned. Run returns when this member owns no shard, or at the end of the leave budget
// (Options.LeaveBudget). Do not stop the Elector before Run has returned.
//
// If Run has handed every shard over, the error is nil. If the leave budget ends first, the error
// contains the number of shards that are left. The Elector releases these shards when it stops. If
// handlers do not return, the error matches core.ErrStuck and lists their shards. If the Elector
// ends first, the error matches core.ErrStopped. Call Run only once. When Run returns, its
// goroutines have ended.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	ran := m.ran
	m.ran = true
	m.mu.Unlock()
	if ran {
		return fmt.Errorf("tenure: %w: Run is called once; make another Manager", core.ErrStopped)
	}
	// While the member leaves, all its other work must continue.
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
	m.e.Internal(seam.Key{}).Stay()
	return m.loop(ctx, views, failed)
}

// Drain requests that this member's shards move to other members or, if on is false, that this
// member may get shards again. Drain does not wait for the moves. To wait, use Emptied.
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

// Emptied returns a channel that is closed when this member is drained or leaving and no longer
// owns a shard.
func (m *Manager) Emptied() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.emptied
}

// Assignments returns the assignments that this member knows, sorted by shard name.
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

// setTable replaces the table, and makes the slices carry out the changes.
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

func (m *Manager) announce() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Manager) slice(shard string) *Slice {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.slices[shard]
}

// Map returns the map of the keyspace's ranges that this member knows. It returns nil before the
// first plan is known, and without a keyspace.
func (m *Manager) Map() *Map { return m.assigned().ranged() }

func indexOf(t *assignments, shard string) (int, bool) { return slices.BinarySearch(t.names, shard) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// watch passes views to the loop one at a time, and skips intermediate views.
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

// follow reads the assigner's log, and updates the table, whenever tail signals new entries.
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
		if err == nil && m.o.OnRange != nil { // OnRange is not called for plans from before the first read
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
			return // the elector is halted
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

// If this member does not understand the plans, understood logs an error once a minute. It returns
// the time of the last log line.
func (m *Manager) understood(j *journal, said time.Time) time.Time {
	blind, now := j.blind(m.o.Keyspace), time.Now()
	if m.blind.Swap(blind != nil) != (blind != nil) || m.refused.Load() != 0 {
		signal(m.wake)
	}
	if blind == nil {
		m.tried("understand the plans", j.gap)
	} else if now.Sub(said) >= time.Minute {
		m.trying(blind)
		return now
	}
	return said
}

const (
	callTimeout = 5 * time.Second
	resync      = 30 * time.Second       // time between two reads of the log without a hint (S13)
	retry       = 250 * time.Millisecond // wait after a call that failed; see longer
	tailPage    = 256
)

func longer(wait time.Duration) time.Duration { return min(2*wait, callTimeout) }

// The Manager will repeat the call that failed.
func (m *Manager) trying(err error) {
	m.o.Logger.Warn("tenure: sharding: trying again", slog.Any("error", err))
}

// tried logs a repeated call's errors at growing intervals, and its next success. In the log line,
// the text of call follows "tenure: ".
func (m *Manager) tried(call string, err error) {
	now := time.Now()
	if err != nil {
		if _, say := m.lines.Failed(call, now); say {
			m.trying(fmt.Errorf("tenure: %s: %w", call, err))
		}
	} else if s, say := m.lines.Worked(call, now); say {
		m.o.Logger.Info("tenure: sharding: works again", slog.String("call", call), slog.Int("failures", s.Failures),
			slog.Duration("after", now.Sub(s.Since)))
	}
}

func (m *Manager) tail(ctx context.Context) {
	var cursor driver.Cursor
	for wait := retry; ctx.Err() == nil; {
		limited, cancel := context.WithTimeout(ctx, resync) // a reply may have been lost: X1
		page, err := m.b.TailLog(limited, cursor, tailPage)
		quiet := limited.Err() != nil
		cancel()
		switch {
		case errors.Is(err, core.ErrStoreChanged) || ctx.Err() != nil:
			return // the elector is halted; follow reports it
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
			signal(m.news)
		}
	}
}

// Until this process has left, loop makes it contend for the shards in the table.
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
			v = m.e.View() // the last view that was passed to the loop may be older than a grant
		}
		empty, err := m.reconcile(v)
		if err != nil {
			return err
		}
		if empty && ending {
			return stuckErr(v, m.names)
		}
		// With very many shards, reconcile takes milliseconds. The pause lets the handlers run.
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

// learn derives the shards, and each shard's preferred claimants, from a new table.
func (m *Manager) learn(t *assignments) error {
	if m.o.Keyspace.Name != "" && t.keys.same(m.o.Keyspace) {
		m.rename(m.all(t))
	}
	same := slices.Equal(t.names, m.names)
	m.setAside(t)
	m.remember(t.number)
	m.known, m.heirs = t, assign.Heirs(t.members, t.owner)
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
	var changed []seam.Preference
	for i, name := range m.names {
		k := int32(i)
		if !same {
			k = assign.None
			if j, ok := slices.BinarySearch(t.names, name); ok {
				k = int32(j)
			}
		}
		m.at[i] = k
		p := seam.Preference{Shard: name}
		if k != assign.None {
			p.First = t.session(int(k))
			if h := m.heirs[k]; h != assign.None {
				p.Second = t.members[h].ID
			}
		}
		if p != m.prefs[i] && (m.prefs[i].Shard != "" || p.First != "") {
			m.prefs[i] = p
			changed = append(changed, p)
		}
	}
	return m.e.Internal(seam.Key{}).Prefer(changed...)
}

// setAside informs the Elector which shards should have no owner, and why.
func (m *Manager) setAside(t *assignments) {
	if len(t.suspects) == 0 && !m.aside && m.known != nil && t.next == m.known.next && len(t.names) == len(m.known.names) {
		return
	}
	aside := map[string]seam.Aside{}
	for _, o := range m.e.View().Shards {
		if why := t.asideOf(o.Shard); why.Why != "" {
			aside[o.Shard] = why
		}
	}
	m.aside = len(t.suspects) > 0
	m.e.Internal(seam.Key{}).SetAside(aside)
}

// This member contends for the fixed shards and the keyspace's shards. The latter come only from
// the table, so that all members use the same map of the ranges.
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

// rename replaces the list of shards. It keeps the state of the shards that stay in the list, and
// withdraws from the other shards.
func (m *Manager) rename(names []string) {
	if slices.Equal(names, m.names) {
		return
	}
	n := len(names)
	at, prefs, contended, seen := make([]int32, n), make([]seam.Preference, n), make([]bool, n), make([]sight, n)
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
		_ = m.e.Withdraw(asked, gone...) // fails only because the call does not wait
	}
}

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
	_ = m.e.Withdraw(asked, assigner) // does not wait
	return nil
}

// show publishes, without waiting, that this member has a Manager, and whether it is draining. The
// Elector repeats the update until the store has accepted it, and includes it when the member
// joins. If the mark does not fit into the member's metadata, show returns an error.
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

func (m *Manager) late(v *core.View) error {
	n := 0
	for i := range v.Leases {
		if _, ours := slices.BinarySearch(m.names, string(v.Leases[i].Fence.Shard)); ours {
			n++
		}
	}
	return errors.Join(fmt.Errorf("tenure: %d shards are not handed over within the leave budget: the elector releases them when it stops", n), stuckErr(v, m.names))
}

// If all handlers return, stuckErr returns nil.
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
