package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
)

// KeptChanges is how many entries of the rules' log are kept.
const KeptChanges = 1000

const (
	mostTidied = 16              // rules in one commit
	toolDrain  = 2 * time.Second // for a commit that is under way when the lease is to end
	staleReads = 20
	staleWait  = 50 * time.Millisecond
	toolPrefix = "tool." // begins the labels of Writers
	defaultTTL = 10 * time.Second
)

// A Change is an entry of the rules' log.
type Change struct {
	Rule    control.Rule `json:"rule"`
	Removed bool         `json:"removed,omitempty"` // it was put otherwise
	By      string       `json:"by"`                // user and host that made the change
	At      time.Time    `json:"at"`
}

// A Writer writes rules. The member that it is meanwhile drains, so that it is assigned
// nothing. Safe for concurrent use; each Write takes a lease.
type Writer struct {
	Backend core.Backend
	// Options of the members; nil works. Node, hooks and what passes a shard on are not used.
	Options *core.Options
	// Timeout bounds each call to the store, and the wait for the lease with two TTLs more.
	Timeout time.Duration
	// Denied says which errors are of a store that refuses for lack of a right; nil: none.
	// The Writer ends at the first one, since Electors try again.
	Denied func(error) bool
	// Late, if set, gets what went wrong after the rule was written, with the time for which
	// the lease may stay.
	Late func(ttl time.Duration, err error)
}

// A Decision is what to write, in one commit: the operations, and an entry of the log for each
// change.
type Decision struct {
	Ops     []core.Op
	Changes []Change
}

// decider decides under a lease, from a view of the namespace that is not older than it.
type decider = func(ctx context.Context, v *driver.View) (*Decision, error)

// Write takes the lease of the rules' shard, reads the namespace, asks decide, and commits what
// it returns, with the change as an entry of the log and with what tidies up. It writes nothing if decide
// returns nil, or an error, which it returns as it is. Any other error says whether the rule
// is written.
func (w *Writer) Write(ctx context.Context, decide decider) error {
	o, ttl, err := w.options()
	if err != nil {
		return err
	}
	// A writer that was killed keeps the lease for its TTL.
	limited, stop := context.WithTimeout(ctx, w.Timeout+2*ttl)
	defer stop()
	work, done := context.WithCancel(limited)
	defer done()
	one := &writing{w: w, decide: decide, refused: make(chan error, 1), written: make(chan error, 1)}
	o.Hooks.OnCall = func(c core.Call) { one.heard(c.Err, done) }
	// The handler returns without being asked, and work ends after that, so that the lease is
	// released. If it were asked to return, the lease would go to the only other member (C13),
	// which may be a process without a handler for it.
	o.Hooks.OnSettled = func(core.Settled) { done() }
	e, err := core.NewElector(w.Backend, o)
	if err != nil {
		return err
	}
	asked, cancel := context.WithCancel(ctx)
	cancel()
	_ = e.Update(asked, func(st *core.MemberState) { st.Draining = true })
	late := time.AfterFunc(time.Hour, done)
	defer late.Stop()
	err = e.Contend(func(ctx context.Context, l *core.Lease) error {
		defer late.Reset(toolDrain) // which a store that does not answer is waited for
		return one.write(ctx, l)
	}, control.Shard)
	if err != nil {
		return err
	}
	ran := e.Run(work)
	written, refused := one.outcome()
	switch {
	case one.decided.Load():
		return written
	case written == nil && (ran != nil || refused != nil) && w.Late != nil:
		w.Late(ttl, cmp.Or(refused, ran))
	case written != nil && ctx.Err() != nil:
		return errors.Join(written, ctx.Err())
	}
	return written
}

// options are those of the member that writes.
func (w *Writer) options() (*core.Options, time.Duration, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, 0, err
	}
	o := new(core.Options)
	if w.Options != nil {
		*o = *w.Options
	}
	o.Node, o.Supersede, o.LockDir = Label(host), false, "none"
	o.Logger, o.Hooks = slog.New(slog.DiscardHandler), core.Hooks{}
	o.DrainBudget, o.LameDuck = toolDrain, 0
	o.Eligible = nil
	return o, cmp.Or(o.TTL, defaultTTL), nil
}

// limited bounds one call to the store.
func limited[T any](ctx context.Context, w *Writer, do func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	v, err := do(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		err = fmt.Errorf("the store did not answer within %v: %w", w.Timeout, err)
	}
	return v, err
}

// state reads the whole namespace.
func (w *Writer) state(ctx context.Context) (*driver.View, error) {
	v, err := limited(ctx, w, func(ctx context.Context) (*driver.View, error) {
		return w.Backend.Observe(ctx, driver.ObserveQuery{})
	})
	if err != nil {
		return nil, fmt.Errorf("read the namespace: %w", err)
	}
	return v, nil
}

// stateUnder reads the whole namespace as it is under a lease. A server that is behind may
// still show what was before it, such as the sessions that a node had before its place was
// written: that read is made again.
func (w *Writer) stateUnder(ctx context.Context, l *core.Lease) (*driver.View, error) {
	for range staleReads {
		v, err := w.state(ctx)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(v.Shards, func(s driver.ShardState) bool { return s.Shard == control.Shard })
		if i >= 0 && v.Shards[i].Owner.Token >= l.Fence().Token {
			return v, nil
		}
		t := time.NewTimer(staleWait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, context.Cause(ctx)
		}
	}
	return nil, fmt.Errorf("tenure: %w: the store shows the namespace as it was before the lease of shard %q: try again",
		core.ErrRetry, control.Shard)
}

// tidy appends to a commit what removes the rules that have ended or are spent. The lease
// keeps others from writing rules meanwhile.
func (w *Writer) tidy(ctx context.Context, l *core.Lease, v *driver.View, ops []core.Op) []core.Op {
	tokens := make(map[string]core.Token, len(v.Shards))
	for _, s := range v.Shards {
		tokens[string(s.Shard)] = s.Owner.Token
	}
	rules, _ := control.Read(ctx, w.Backend) // those that are not understood stay
	for i := range rules {
		r := &rules[i]
		ended := !r.Active(time.Now()) || r.Spent(tokens[r.Shards]) || Back(r, v.Members)
		written := slices.ContainsFunc(ops, func(op core.Op) bool { return op.Key == r.Key() })
		if written || !ended || len(ops) > mostTidied {
			continue
		}
		ops = append(ops, core.Delete(r.Key()))
	}
	if n := l.Head().Seq; n > KeptChanges {
		ops = append(ops, core.Trim(n-KeptChanges))
	}
	return ops
}

// writing is one commit, under a lease that is taken for it.
type writing struct {
	w       *Writer
	decide  decider
	began   atomic.Bool
	decided atomic.Bool // to write nothing
	refused chan error  // the first call that the store refused for lack of a right
	written chan error
}

// heard ends the work at the first call that is refused for lack of a right: it would be
// tried again until the time is up.
func (x *writing) heard(err error, end func()) {
	if err == nil || x.w.Denied == nil || !x.w.Denied(err) {
		return
	}
	select {
	case x.refused <- err:
		end()
	default:
	}
}

// write decides and commits. A commit that is under way when the lease is to end is waited
// for, since only its answer says what became of it.
func (x *writing) write(ctx context.Context, l *core.Lease) error {
	if x.began.Swap(true) {
		return nil
	}
	v, err := x.w.stateUnder(ctx, l)
	var d *Decision
	if err != nil {
		err = fmt.Errorf("nothing was written: %w", err)
	} else {
		d, err = x.decide(ctx, v)
	}
	if err != nil || d == nil {
		x.decided.Store(true)
		x.written <- err
		return nil
	}
	ops := x.w.tidy(ctx, l, v, slices.Clone(d.Ops))
	for i := range d.Changes {
		var entry []byte
		if entry, err = json.Marshal(d.Changes[i]); err != nil {
			break
		}
		ops = append(ops, core.Append(entry))
	}
	if err == nil {
		_, err = l.Commit(context.WithoutCancel(ctx), ops...)
	}
	x.written <- err
	return err
}

// outcome is what became of the commit, after the Elector's end.
func (x *writing) outcome() (written, refused error) {
	select {
	case refused = <-x.refused:
	default:
	}
	written = fmt.Errorf("no lease of shard %q was granted in time: another operator may be writing", control.Shard)
	if x.began.Load() {
		written = <-x.written // at the latest two call time-outs after the lease
	}
	switch {
	case written == nil, x.decided.Load():
		return written, refused
	case errors.Is(written, core.ErrUnknown):
		return fmt.Errorf("whether the rule is written, tenure rules tells: %w", written), refused
	case refused != nil:
		written = refused
	}
	return fmt.Errorf("nothing was written: %w", written), refused
}

// Label is the node label of members that only write, on a host.
func Label(host string) string {
	host = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, host)
	return toolPrefix + host[:min(len(host), 100)]
}
