package sharding

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// Manager shares a set of shards among the members of a namespace, for one
// process, beside its Elector. All methods are safe for concurrent use.
type Manager struct {
	b      core.Backend
	e      *core.Elector
	h      core.Handler
	o      *Options
	names  []string // sorted
	limits core.Limits

	wake chan struct{} // something for the loop
	news chan struct{} // something in the assigner's log

	mu      sync.Mutex
	ran     bool
	table   *assignments
	drained bool // by Drain
	emptied chan struct{}

	// What follows is the loop's own.
	known     *assignments // for which the rest was worked out
	at        []int32      // index in known of each own shard, or None
	heirs     []int32
	prefs     []core.Preference
	contended []bool
	seen      []sight
	assigning bool // contends for the assigner's shard
	draining  bool // as the others were last told
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
	n := len(names)
	return &Manager{
		b: b, e: e, h: h, o: c, names: names, limits: b.Info().Limits,
		wake: make(chan struct{}, 1), news: make(chan struct{}, 1), emptied: make(chan struct{}),
		table: &assignments{}, at: make([]int32, n), prefs: make([]core.Preference, n), contended: make([]bool, n), seen: make([]sight, n),
	}, nil
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
	defer stop()
	views := make(chan *core.View)
	failed := make(chan error, 1)
	parts.Go(func() { m.follow(work) })
	parts.Go(func() { m.watch(work, views, failed) })
	m.draining = true // by a Manager that ran before on this Elector
	m.show(false)
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
	j := &journal{table: &assignments{}, read: bounded(func(ctx context.Context, after core.Seq, max int) (*core.LogPage, error) {
		return m.b.ReadLog(ctx, assigner, after, max)
	})}
	var hints sync.WaitGroup
	defer hints.Wait()
	every := m.o.Poll
	if every == 0 {
		every = resync
		hints.Go(func() { m.tail(ctx) })
	}
	var told error
	for wait := time.Duration(0); ; {
		changed, err := j.catchUp(ctx)
		if changed {
			m.mu.Lock()
			m.table = j.table
			m.mu.Unlock()
			signal(m.wake)
		}
		if j.gap != nil && j.gap != told { //nolint:errorlint // each gap is an error of its own
			m.o.OnError(j.gap)
		}
		told = j.gap
		if ctx.Err() != nil {
			return
		}
		if wait = every; err != nil {
			m.o.OnError(fmt.Errorf("tenure: read the plans: %w", err))
			wait = min(every, retry)
		}
		t := time.NewTimer(wait)
		select {
		case <-m.news:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

const (
	callTimeout = 5 * time.Second
	resync      = 30 * time.Second       // between two looks at the log without a hint (S13)
	retry       = 250 * time.Millisecond // after a call that failed
	tailPage    = 256
)

// tail waits for entries of the assigner's log.
func (m *Manager) tail(ctx context.Context) {
	var cursor driver.Cursor
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, resync) // a reply may have been lost: X1
		page, err := m.b.TailLog(limited, cursor, tailPage)
		quiet := limited.Err() != nil
		cancel()
		if err != nil {
			if !quiet {
				m.o.OnError(fmt.Errorf("tenure: follow the plans: %w", err))
				pause(ctx, retry)
			}
			continue
		}
		cursor = page.Cursor
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
			if !m.leaving() {
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

// learn works out what follows from a new table: who claims what first.
func (m *Manager) learn(t *assignments) error {
	same := slices.Equal(t.specs, m.o.Shards)
	m.known, m.heirs = t, heirs(t.members, t.owner)
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

// show tells the others whether this member is to be emptied. It does not wait: the
// elector sends it until the store has it, and joins with it.
func (m *Manager) show(draining bool) {
	if m.draining == draining {
		return
	}
	m.draining = draining
	asked, cancel := context.WithCancel(context.Background())
	cancel()
	_ = m.e.Update(asked, func(st *core.MemberState) { st.Draining = draining })
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
