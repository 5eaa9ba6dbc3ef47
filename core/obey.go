package core

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

// rulebook contains the operators' rules that this member knows. The member reads the rules when a
// view shows that their shard's record has changed. No calls are therefore made while there are no
// rules, or while they do not change. Elector.mu guards the rulebook.
type rulebook struct {
	rules []control.Rule // nil until the member knows whether rules exist
	seen  driver.Owner   // record of the rules' shard in the newest view
	read  driver.Owner   // the record when the rules were read
	again bool           // the rules must be read again even if seen equals read
	wake  chan struct{}
	// The map gave contains the shards that this member gave up because its node was drained. For
	// each shard, the value identifies the members that could have taken the shard at that time
	// (see successors). If a shard comes back, the member keeps it until other members can take it.
	// If the member gave the shard away again, the shard would circulate.
	gave map[ShardID]uint64
}

func newRulebook() *rulebook {
	return &rulebook{wake: make(chan struct{}, 1), gave: map[ShardID]uint64{}}
}

// look records the state of the rules' shard in a view, and wakes obeyRules if the rules or the
// possible successors may have changed.
func (b *rulebook) look(v *driver.View) {
	for i := range v.Shards {
		if v.Shards[i].Shard == control.Shard {
			b.seen = v.Shards[i].Owner
		}
	}
	if b.rules == nil && v.Reset && b.seen == (driver.Owner{}) {
		b.rules = []control.Rule{}
	}
	// The holder of the lease on the rules' shard may have written rules since the last read. This
	// member reads those rules when the holder releases the lease. After the holder's crash, this
	// member reads the rules when the holder's session ends, or with the next full view.
	b.again = b.again || b.seen.Session != "" && (v.Reset || slices.Contains(v.Gone, b.seen.Session))
	if b.again || b.seen != b.read || len(b.rules) > 0 && len(v.Members)+len(v.Gone) > 0 {
		poke(b.wake)
	}
}

// obeyRules reads the operators' rules when they may have changed, and obeys them.
func (e *Elector) obeyRules(ctx context.Context) {
	for {
		select {
		case <-e.rules.wake:
		case <-ctx.Done():
			return
		}
		if !e.readRules(ctx) {
			t := time.NewTimer(e.dice.jittered(e.o.TTL))
			select {
			case <-t.C:
				poke(e.rules.wake)
			case <-ctx.Done():
			}
			t.Stop()
			continue
		}
		e.mu.Lock()
		if e.phase == running {
			e.obey(time.Now())
		}
		e.mu.Unlock()
	}
}

// readRules reads the rules if they may have changed, and reports whether the read succeeded. After
// a failure, the rules that were read earlier still apply. The rate of the log lines is limited,
// because any writer to the store can cause them.
func (e *Elector) readRules(ctx context.Context) bool {
	e.mu.Lock()
	b := e.rules
	seen, again := b.seen, b.again
	b.again = false
	e.mu.Unlock()
	if !again && seen == b.read {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, e.o.CallTimeout)
	defer cancel()
	ctx, call := e.note.startCall(ctx, callList, 0, control.Shard, nil)
	rules, err := control.Read(ctx, e.b)
	call.done(err)
	e.note.badRules(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if rules == nil && err != nil {
		b.again = true
		return false
	}
	b.rules, b.read = rules, seen
	e.snap.bump()
	return true
}

// obey gives up held shards as the active rules require, except shards that an assigner manages.
// The caller must hold e.mu.
func (e *Elector) obey(now time.Time) {
	b := e.rules
	var drain *control.Rule
	var once []*control.Rule
	for i := range b.rules {
		r := &b.rules[i]
		if !r.Active(now) {
			continue
		}
		switch r.Kind {
		case control.Freeze:
			return
		case control.Drain:
			if r.Node == e.o.Node {
				drain = r
			}
		case control.Move, control.Resign:
			once = append(once, r)
		case control.Pin, control.Exclude, control.Split, control.Merge, control.Release: // for planners
		case control.Resolve: // for package effect
		case control.Stop: // for callers that request a Stop
		}
	}
	for _, rule := range once {
		r := e.yielding(ShardID(rule.Shards))
		if r == nil || rule.Spent(r.lease.fence.Token) {
			continue
		}
		if rule.Kind == control.Resign {
			e.yield(r, "", ErrWithdrawn, rule)
		} else if to := e.sessionOf(rule.Node); to != "" && rule.Node != e.o.Node {
			e.yield(r, to, ErrHandOver, rule)
		}
	}
	if drain == nil {
		clear(b.gave)
		return
	}
	others := e.successors(now)
	for s := range e.runs {
		if strings.HasPrefix(string(s), "_") || others == 0 || b.gave[s] == others {
			continue
		}
		if r := e.yielding(s); r != nil {
			b.gave[s] = others
			e.yield(r, "", ErrWithdrawn, drain)
		}
	}
}

// yielding returns a shard's run if a rule may end it, or nil. A rule may end the run if this
// member wants and serves the shard, and no assigner assigns the shard.
func (e *Elector) yielding(s ShardID) *run {
	r := e.runs[s]
	if r == nil || r.again || r.state != LeaseStarting && r.state != LeaseHeld || e.m.Preferred(s) {
		return nil
	}
	if _, wanted := e.contended[s]; !wanted {
		return nil
	}
	return r
}

// yield asks a run's handler to stop so that another member gets the shard. The given session is
// the successor. If none is given, the first other member that claims the shard gets it. Once the
// lease is settled, this member contends for the shard again. If other members may claim the shard,
// this member first waits half a TTL, to give a successor on a busy machine enough time.
func (e *Elector) yield(r *run, to SessionID, cause error, rule *control.Rule) {
	r.again = true
	if to == "" && e.successors(time.Now()) != 0 {
		r.wait = e.o.TTL / 2
	}
	e.askToStop(r, fmt.Errorf("%w: the operator's rule %q of %s: %s", cause, rule.Kind, rule.Author, rule.Reason))
	e.note.obeyed(r.lease.fence, *rule)
	e.queue = append(e.queue, fsm.Input{Kind: fsm.InUnwant, Shard: r.lease.fence.Shard, To: to})
	e.drainQueue()
}

// sessionOf returns the session of a live member on a node, or "" if the node has no live member.
func (e *Elector) sessionOf(node string) SessionID {
	for _, m := range e.m.AppendMembers(nil) {
		if m.Node == node {
			return m.Session
		}
	}
	return ""
}

// successors returns a checksum that identifies the other members that are eligible and not
// drained, or 0 if no such member exists.
func (e *Elector) successors(now time.Time) uint64 {
	drained := map[string]bool{}
	for i := range e.rules.rules {
		if r := &e.rules.rules[i]; r.Kind == control.Drain && r.Active(now) {
			drained[r.Node] = true
		}
	}
	sum := uint64(0)
	for _, m := range e.m.AppendMembers(nil) {
		if m.Session == e.m.Session() || m.Draining || drained[m.Node] || m.Ineligible() != "" {
			continue
		}
		h := fnv.New64a()
		h.Write([]byte(m.Session))
		sum += h.Sum64()
	}
	return sum
}

// badRules logs the error from reading the rules. A nil error means success.
func (n *notifier) badRules(err error) {
	n.post(func() {
		if err == nil {
			if _, say := n.lines.Worked("rules", time.Now()); say {
				n.info("tenure: operators' rules are read again")
			}
		} else if _, say := n.lines.Failed("rules", time.Now()); say {
			n.warn("tenure: operators' rules cannot be read", slog.Any("error", err))
		}
	})
}
