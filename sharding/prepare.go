package sharding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/goexit"
	"github.com/tenure-go/tenure/sharding/assign"
)

// While a shard's owner continues to serve it, the member to which a plan assigns the shard calls
// Options.Prepare. When the member has prepared all its incoming shards, it writes the plan's
// number into its metadata. The owner waits for that number, for at most Options.PrepareBudget, and
// then hands the shard over. A member without Prepare publishes no number, and owners do not wait
// for it. With Options.PrepareRequired, an exclamation mark and the unprepared shards, or * for all
// shards, follow the number. The owners keep the unprepared shards, and the assigner plans again.
const (
	readyKey   = "tenure.ready" // the key in core.MemberState.Meta
	maxUnready = 4              // maximum number of shards that the metadata name
)

// A member's metadata shows its readiness, which is its progress in preparing shards.
type readiness struct {
	number   int64 // the number of the plan up to which the member has prepared its shards
	required bool
	failed   []string
}

// If owners do not wait for the member, prepares is false.
func readinessOf(m *core.Member) (r readiness, prepares bool) {
	words := strings.Fields(m.Meta[readyKey])
	if len(words) == 0 {
		return r, false
	}
	var digits string
	digits, r.required = strings.CutSuffix(words[0], "!")
	var err error
	r.number, err = strconv.ParseInt(digits, 10, 64)
	r.failed = words[1:]
	return r, err == nil
}

func (r *readiness) String() string {
	text := strconv.FormatInt(r.number, 10)
	if !r.required {
		return text
	}
	failed := r.failed
	if len(failed) > maxUnready {
		failed = []string{"*"}
	}
	return strings.Join(append([]string{text + "!"}, failed...), " ")
}

func (r *readiness) lacks(shard string, plan int64) bool {
	return r.required && r.number >= plan && (slices.Contains(r.failed, shard) || slices.Contains(r.failed, "*"))
}

type preparer struct {
	m    *Manager
	work sync.WaitGroup

	mu     sync.Mutex
	at     map[string]*preparation
	queue  []*preparation
	busy   int   // number of workers
	number int64 // number of the table from which the preparations follow
	ready  int64 // number of the plan in the metadata
	known  bool  // the metadata contain a number
}

// A preparation's context ends when this member no longer expects the shard.
type preparation struct {
	shard    string
	incoming bool // a plan assigned the shard to this member; the owner waits
	done     bool
	err      error
	ctx      context.Context
	end      context.CancelCauseFunc
}

var (
	errUnexpected = errors.New("the shard is not expected here any more")
	errTooLong    = errors.New("the preparation takes longer than Options.PrepareBudget")
)

// The keys of want are the expected shards. A value is true if the shard's owner waits until the
// shard is prepared.
func (p *preparer) expect(ctx context.Context, number int64, want map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number = number
	for shard, x := range p.at {
		if _, still := want[shard]; !still {
			x.end(errUnexpected)
			delete(p.at, shard)
		}
	}
	p.queue = slices.DeleteFunc(p.queue, func(x *preparation) bool { return x.ctx.Err() != nil })
	for shard, incoming := range want {
		x := p.at[shard]
		if x == nil {
			x = &preparation{shard: shard}
			x.ctx, x.end = context.WithCancelCause(ctx)
			p.at[shard] = x
			p.queue = append(p.queue, x)
		} else if x.err != nil && incoming && !x.incoming { // the preparation failed while this member was a standby
			x.done, x.err = false, nil
			x.ctx, x.end = context.WithCancelCause(ctx)
			p.queue = append(p.queue, x)
		}
		x.incoming = incoming
	}
	slices.SortStableFunc(p.queue, func(a, b *preparation) int { // shards for which an owner waits come first
		if a.incoming != b.incoming {
			if a.incoming {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.shard, b.shard)
	})
	for p.busy < min(p.m.o.PrepareAtOnce, len(p.queue)) {
		p.busy++
		p.work.Go(p.run)
	}
	p.tell()
}

func (p *preparer) run() {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 {
			p.busy--
			p.mu.Unlock()
			return
		}
		x := p.queue[0]
		p.queue = p.queue[1:]
		p.mu.Unlock()
		late := time.AfterFunc(p.m.o.PrepareBudget, func() { x.end(errTooLong) })
		err := goexit.Call(func() error { return p.m.o.Prepare(x.ctx, x.shard) })
		inTime := late.Stop()
		if !inTime {
			err = errTooLong
		}
		if err != nil && !errors.Is(context.Cause(x.ctx), errUnexpected) {
			comes := "which comes all the same"
			if p.m.o.PrepareRequired {
				comes = "which goes to another member"
			}
			p.m.trying(fmt.Errorf("tenure: prepare shard %q, %s: %w", x.shard, comes, err))
		}
		p.mu.Lock()
		x.done, x.err = true, err
		p.tell()
		p.mu.Unlock()
	}
}

// Once no owner waits for another preparation, tell publishes this member's progress. The caller
// holds p.mu.
func (p *preparer) tell() {
	some := false
	var failed []string
	for _, x := range p.at {
		if x.incoming && !x.done {
			return
		}
		some = some || x.incoming
		if x.incoming && x.err != nil {
			failed = append(failed, x.shard)
		}
	}
	if p.known && (!some || p.ready == p.number) {
		return // no owner waits for a new number
	}
	p.say(p.number, failed)
}

// The caller holds p.mu.
func (p *preparer) say(number int64, failed []string) {
	p.ready, p.known = number, true
	slices.Sort(failed)
	r := readiness{number: number, required: p.m.o.PrepareRequired, failed: failed}
	text := r.String()
	asked, cancel := context.WithCancel(context.Background())
	cancel()
	err := p.m.e.Update(asked, func(st *core.MemberState) {
		if st.Meta == nil {
			st.Meta = map[string]string{}
		}
		st.Meta[readyKey] = text
	})
	if errors.Is(err, core.ErrInvalid) {
		p.m.tried("tell owners what this member has prepared: they wait for Options.PrepareBudget", err)
	}
}

// The Manager calls begin before the member gets any shards.
func (p *preparer) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.m.o.Prepare != nil {
		p.say(0, nil)
	}
}

func (p *preparer) close() {
	p.mu.Lock()
	p.queue = nil
	for _, x := range p.at {
		x.end(errUnexpected)
	}
	p.mu.Unlock()
	p.work.Wait()
}

func (m *Manager) prepare(v *core.View, leave bool) {
	if m.o.Prepare == nil {
		return
	}
	want := map[string]bool{}
	for i, name := range m.names {
		k := m.at[i]
		o, _ := v.Owner(name)
		if k == assign.None || leave || o.Session == v.Session { // the handler has the shard now
			continue
		}
		switch v.Session {
		case m.known.session(int(k)):
			if _, begun := m.prep.at[name]; begun || o.Node != "" {
				want[name] = o.Node != ""
			}
		default:
			if h := m.heirs[k]; m.o.Standby > 0 && h != assign.None && m.known.members[h].ID == v.Session {
				want[name] = false
			}
		}
	}
	m.prep.expect(m.work, m.known.number, want)
}

// unready reports whether this member, the shard's owner, must still wait before it hands the shard
// over.
func (m *Manager) unready(v *core.View, k int, to core.SessionID) bool {
	x, _ := v.Member(to)
	ready, prepares := readinessOf(&x)
	plan := m.known.moved[k]
	switch {
	case !prepares, ready.required && !m.leftAt.IsZero() && time.Since(m.leftAt) > m.o.LeaveBudget/2:
		return false
	case ready.number >= plan:
		return ready.lacks(m.known.names[k], plan)
	case ready.required: // the assigner will end the wait
		return true
	}
	since := m.plans[0].at
	for _, p := range m.plans {
		if p.number > plan {
			break
		}
		since = p.at
	}
	if waited := time.Since(m.began) - since; waited >= m.o.PrepareBudget {
		return false
	}
	m.waiting = true
	return true
}

// remember records when this member first learned of a plan, and forgets plans for which it no
// longer waits.
func (m *Manager) remember(number int64) {
	now := time.Since(m.began)
	if n := len(m.plans); n == 0 || m.plans[n-1].number < number {
		m.plans = append(m.plans, planTime{number, now})
	}
	for len(m.plans) > 1 && m.plans[1].at+m.o.PrepareBudget <= now {
		m.plans = m.plans[1:]
	}
}
