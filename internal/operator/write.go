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

// KeptChanges is the number of entries kept in the rules' log.
const KeptChanges = 1000

const (
	mostTidied = 16              // maximum number of rules removed in one commit
	toolDrain  = 2 * time.Second // how long a commit that is in progress when the lease should end may take
	staleReads = 20
	staleWait  = 50 * time.Millisecond
	toolPrefix = "tool." // prefix of the labels of Writers
	defaultTTL = 10 * time.Second
)

// A Change is an entry in the rules' log.
type Change struct {
	Rule    control.Rule `json:"rule"`
	Removed bool         `json:"removed,omitempty"` // if false, the rule was put
	By      string       `json:"by"`                // user and host that made the change
	At      time.Time    `json:"at"`
}

// A Writer writes rules. Each Write takes a lease as a draining member, so that the member is
// assigned no shards. A Writer is safe for concurrent use.
type Writer struct {
	Backend core.Backend
	// Options applies to the members that write, and may be nil. The Writer ignores Node, Hooks and
	// the options for handing over a shard.
	Options *core.Options
	// Timeout limits each store call. The wait for the lease is limited to Timeout plus two TTLs.
	Timeout time.Duration
	// Denied, if set, reports whether a store rejected a call because of a missing permission. The
	// Writer gives up at the first such error, although an Elector would retry.
	Denied func(error) bool
	// Late, if set, is called if an error follows a successful write. Its arguments are the time
	// for which the lease may remain, and the error.
	Late func(ttl time.Duration, err error)
}

// A Decision contains a commit's operations, and its changes for the log.
type Decision struct {
	Ops     []core.Op
	Changes []Change
}

// A decider makes a Decision under a lease. Its view of the namespace is at least as new as the
// lease.
type decider = func(ctx context.Context, v *driver.View) (*Decision, error)

// Write takes the lease of the rules' shard, reads the namespace, and calls decide. It commits the
// resulting Decision with a log entry for each change, and removes old rules. If decide returns nil
// or an error before its context ends, nothing is written, and Write returns that error unchanged.
// Any other error states whether the rule was written.
func (w *Writer) Write(ctx context.Context, decide decider) error {
	o, ttl, err := w.options()
	if err != nil {
		return err
	}
	// The lease of a killed Writer lasts for the TTL.
	limited, stop := context.WithTimeout(ctx, w.Timeout+2*ttl)
	defer stop()
	work, done := context.WithCancel(limited)
	defer done()
	one := &writing{w: w, decide: decide, refused: make(chan error, 1), written: make(chan error, 1)}
	o.Hooks.OnCall = func(c core.Call) { one.heard(c.Err, done) }
	// The handler returns on its own, so the work ends and the lease is released. If the handler
	// were asked to return, the lease would go to the only other member (C13), which may have no
	// handler for the shard.
	o.Hooks.OnEvent = func(e core.Event) {
		switch e.Kind {
		case core.LeaseReleased, core.LeaseTransferred, core.LeaseLost, core.LeaseRefused, core.LeaseUnknown:
			done()
		default: // the lease has not ended
		}
	}
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
		defer late.Reset(toolDrain) // limits the wait for a store that does not answer
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

func limited[T any](ctx context.Context, w *Writer, do func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, w.Timeout)
	defer cancel()
	v, err := do(bounded)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil {
		err = fmt.Errorf("the store did not answer within %v: %w", w.Timeout, err)
	}
	return v, err
}

func (w *Writer) state(ctx context.Context) (*driver.View, error) {
	v, err := limited(ctx, w, func(ctx context.Context) (*driver.View, error) {
		return w.Backend.Observe(ctx, driver.ObserveQuery{})
	})
	if err != nil {
		return nil, fmt.Errorf("read the namespace: %w", err)
	}
	return v, nil
}

// A server that lags behind may return a state from before the lease, so stateUnder then reads the
// namespace again. For example, an old state may show a node's sessions before the node's place was
// written.
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

// The added operations remove ended and spent rules. Because of the lease, no other Writer can
// write rules before the commit.
func (w *Writer) tidy(ctx context.Context, l *core.Lease, v *driver.View, ops []core.Op) []core.Op {
	tokens := make(map[string]core.Token, len(v.Shards))
	for _, s := range v.Shards {
		tokens[string(s.Shard)] = s.Owner.Token
	}
	rules, _ := control.Read(ctx, w.Backend) // rules that this version does not understand stay
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

// A writing takes a lease for a single commit.
type writing struct {
	w       *Writer
	decide  decider
	began   atomic.Bool
	decided atomic.Bool // decide decided to write nothing, or failed, before the work ended
	refused chan error  // the first call that the store refused because a permission is missing
	written chan error
}

// If a permission is missing, the Elector would retry the call until the time is up, so heard ends
// the work.
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

// Even if the lease should end during the commit, write waits for the answer, because only the
// answer shows the outcome. If ctx ends before the decision, the decision's error is only a
// consequence, and the cause is whatever ended the work.
func (x *writing) write(ctx context.Context, l *core.Lease) error {
	if x.began.Swap(true) {
		return nil
	}
	v, err := x.w.stateUnder(ctx, l)
	var d *Decision
	if err == nil {
		d, err = x.decide(ctx, v)
		x.decided.Store((err != nil || d == nil) && ctx.Err() == nil)
	}
	if err != nil || d == nil {
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

// The Elector must have ended before outcome is called.
func (x *writing) outcome() (written, refused error) {
	select {
	case refused = <-x.refused:
	default:
	}
	written = fmt.Errorf("no lease of shard %q was granted in time: another operator may be writing", control.Shard)
	if x.began.Load() {
		written = <-x.written // arrives at most two call time-outs after the end of the lease
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

// Label returns the node label for a host's members that only write rules.
func Label(host string) string {
	host = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, host)
	return toolPrefix + host[:min(len(host), 100)]
}
