package trace

import (
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

// A runner's actions are compared with its machine's requests. The actions are calls, answers, and
// lease events for the application.
type runner struct {
	on     bool // the runner's actions are compared
	made   map[fsm.CallID]*made
	views  []*Call // views that the machine has not received yet
	leases map[driver.Fence]*told
	begun  map[driver.ShardID]driver.Fence // leases whose handlers are running
	ending []driver.Fence                  // leases revoked in the previous step; the application has not been notified of them yet
	resync fsm.Instant                     // instant of the last step that requested a full read; 0 once that read is done
	last   fsm.Instant                     // instant of the previous step
	until  map[driver.SessionID]fsm.Instant
}

type made struct {
	out  Effect
	call *Call // nil if the call has not been made yet
}

type told struct {
	open                     bool // the lease has not been revoked
	begun, returned, drained bool // drained means that the machine knows that the handler has returned
	ended                    fsm.Instant
	last                     driver.WriteNo // number of the last commit, which may be from before the lease or in doubt
	seq                      driver.Seq     // last log entry after that commit
	seqKnown                 bool
}

func newRunner(on bool) *runner {
	return &runner{on: on, made: make(map[fsm.CallID]*made), leases: make(map[driver.Fence]*told),
		begun: make(map[driver.ShardID]driver.Fence), until: make(map[driver.SessionID]fsm.Instant)}
}

// Only one breach by the runner is recorded for each run, because later breaches may follow from
// it.
func (t *tracer) differs(rule string, shard driver.ShardID, format string, args ...any) {
	if !t.runner.on {
		return
	}
	t.runner.on = false
	t.note("what the runner did is not compared after step %d: it breached %s", t.run.Steps, rule)
	t.breach(Breach{Rule: rule, Time: t.now, Shard: string(shard), Nodes: []string{t.run.Node}, Text: fmt.Sprintf(format, args...)})
}

func (t *tracer) called(c *Call) {
	r := t.runner
	if !r.on {
		return
	}
	if c.Kind == observed {
		if len(r.views) > 0 {
			t.differs("S13", "", "the state that was read at %v was not given to the machine", r.views[0].Sent)
		}
		r.views = append(r.views, c)
		return
	}
	m := r.made[c.Call]
	if m == nil {
		t.differs("S7", "", "call %d, of %q, was not asked for", c.Call, c.Kind)
		return
	}
	out := &m.out
	switch {
	case m.call != nil && c.Kind != effects[fsm.EffClose]:
		t.differs("E2", "", "call %d, of %q, was made twice", c.Call, c.Kind)
	case c.Kind != out.Kind || c.Kind != effects[fsm.EffRead] && c.Session != out.Session:
		t.differs("S7", "", "call %d was %q of session %q; the machine asked for %q of session %q",
			c.Call, c.Kind, c.Session, out.Kind, out.Session)
	case c.Asked != out.hash():
		t.differs("S7", "", "call %d, of %q, did not ask for what the machine asks for: %s", c.Call, c.Kind, plain(*out))
	}
	m.call = c
}

// The answer or view that the machine received must match what the store sent.
func (t *tracer) given(in *Input, at fsm.Instant) {
	r := t.runner
	if !r.on {
		return
	}
	for _, f := range r.ending {
		t.differs("S9", f.Shard, "lease %d of shard %q was revoked, and the application was not told", f.Token, f.Shard)
	}
	r.ending = nil
	if at < r.last {
		t.differs("S9", "", "the clock went back, from %v to %v", r.last, at)
	}
	r.last = at
	switch {
	case in.Kind == inputs[fsm.InDrained]:
		t.drained(in)
	case in.Kind == inputs[fsm.InObserved]:
		t.viewed(in)
	case in.Call != 0:
		t.replied(in)
	}
}

func (t *tracer) replied(in *Input) {
	m := t.runner.made[in.Call]
	switch {
	case m == nil:
		t.differs("S4", "", "the machine was given an answer to call %d, which has none to come", in.Call)
	case m.call == nil:
		t.differs("S4", "", "the machine was given an answer to call %d, of %q, which the store did not answer", in.Call, m.out.Kind)
	case replyTo(m.out.Kind) != in.Kind || m.call.Answer != in.hash():
		t.differs("S4", "", "the machine was given %q for call %d, of %q, and the store's answer was another one",
			in.Kind, in.Call, m.out.Kind)
	}
	delete(t.runner.made, in.Call)
}

// replyTo returns the kind of input that answers an effect.
func replyTo(effect string) string {
	for i := range fsm.EffClose {
		if e := i + 1; effects[e] == effect {
			return inputs[fsm.InJoined+fsm.InputKind(e-fsm.EffJoin)]
		}
	}
	return ""
}

func (t *tracer) viewed(in *Input) {
	r := t.runner
	if len(r.views) == 0 {
		t.differs("S13", "", "the machine was given a state that was not read")
		return
	}
	c := r.views[0]
	r.views = r.views[1:]
	switch {
	case in.SentAt > c.Sent:
		t.differs("S13", "", "the machine was given a state as of %v, which was read at %v", in.SentAt, c.Sent)
	case c.Answer != in.hash():
		t.differs("S13", "", "the machine was given another state than was read")
	// SentAt is an instant before the call reached the backend. Between SentAt and the call, the
	// machine may request the full state.
	case r.resync != 0 && in.SentAt > r.resync && !c.Full:
		t.differs("S13", "", "the machine asked for the full state at %v, and what was read at %v is what had changed only",
			r.resync, in.SentAt)
	case c.Full && in.SentAt >= r.resync:
		r.resync = 0
	}
}

func (t *tracer) asks(e *Effect, at fsm.Instant) {
	r := t.runner
	if e.Call != 0 {
		r.made[e.Call] = &made{out: *e}
	}
	switch {
	case e.Kind == effects[fsm.EffResync]:
		r.resync = max(at, 1)
	case e.Kind == effects[fsm.EffExtend]:
		r.until[e.Session] = max(r.until[e.Session], e.Until)
	case e.Kind == effects[fsm.EffGrant] && e.Fence != nil:
		r.until[e.Fence.Session] = max(r.until[e.Fence.Session], e.Until)
		r.leases[*e.Fence] = &told{open: true}
	case e.Kind == effects[fsm.EffRevoke] && e.Fence != nil:
		if l := r.leases[*e.Fence]; l != nil {
			l.open = false
			r.ending = append(r.ending, *e.Fence)
		}
	}
}

// Each lease event that the application saw is compared with the machine's lease.
func (t *tracer) told(x *Lease, at fsm.Instant) {
	r, f := t.runner, x.Fence
	if !r.on {
		return
	}
	l := r.leases[f]
	if l == nil {
		t.differs("S4", f.Shard, "the application was told of lease %d of shard %q, which was not granted", f.Token, f.Shard)
		return
	}
	if until := r.until[f.Session]; x.Until > until {
		t.differs("S8", f.Shard, "lease %d of shard %q is trusted until instant %d, and the machine trusts it until %d",
			f.Token, f.Shard, x.Until, until)
	}
	switch x.Is {
	case LeaseBegun:
		if other, ok := r.begun[f.Shard]; ok {
			t.differs("S11", f.Shard, "the handler of lease %d of shard %q is called while that of lease %d runs",
				f.Token, f.Shard, other.Token)
		}
		if !l.open {
			t.differs("S5", f.Shard, "the handler of lease %d of shard %q is called after it was revoked", f.Token, f.Shard)
		}
		l.begun, r.begun[f.Shard] = true, f
		if x.Head != nil {
			l.last, l.seq, l.seqKnown = x.Head.Number, x.Head.Seq, true
			t.begins[f.Shard] = append(t.begins[f.Shard], begin{f, *x.Head, t.run.Node, t.now})
		}
	case LeaseEnded:
		if len(r.ending) == 0 || r.ending[0] != f {
			t.differs("S9", f.Shard, "the application was told that lease %d of shard %q has ended, and it was not revoked then",
				f.Token, f.Shard)
			return
		}
		r.ending, l.ended = r.ending[1:], at
		if x.Valid {
			t.differs("S6", f.Shard, "lease %d of shard %q was revoked, and is valid for the application", f.Token, f.Shard)
		}
	case LeaseJoined:
		if r.begun[f.Shard] == f {
			delete(r.begun, f.Shard)
		}
		l.returned = true
		t.joined[f] = true
	}
}

func (t *tracer) drained(in *Input) {
	for f, l := range t.runner.leases {
		if f.Shard == in.Shard && f.Token == in.Token && l.returned {
			l.drained = true
			return
		}
	}
	t.differs("S12", in.Shard, "the machine was told that the work under lease %d of shard %q was joined, and it was not",
		in.Token, in.Shard)
}

// Commits are compared with the lease under which they were made.
func (t *tracer) outcome(a *Acks) {
	r, f := t.runner, a.Fence
	l := r.leases[f]
	if !r.on {
		return
	}
	switch {
	case l == nil:
		t.differs("S3", f.Shard, "commit %d of shard %q was made under lease %d, which was not granted", a.From, f.Shard, f.Token)
		return
	case !l.begun:
		t.differs("S4", f.Shard, "commit %d of shard %q was made under lease %d, of which no application was told",
			a.From, f.Shard, f.Token)
	case l.drained:
		t.differs("S12", f.Shard, "commit %d of shard %q was in flight when the work under lease %d counted as joined",
			a.To, f.Shard, f.Token)
	case a.From > l.last+1:
		t.differs("S4", f.Shard, "commit %d of shard %q, under lease %d, followed %d: what was in between was not acknowledged, nor in doubt",
			a.From, f.Shard, f.Token, l.last)
	case a.From <= l.last && !a.Doubt && l.seqKnown:
		t.differs("S15", f.Shard, "commit %d of shard %q, under lease %d, came after %d", a.From, f.Shard, f.Token, l.last)
	case a.Sent > r.until[f.Session] || l.ended != 0 && a.Sent > l.ended:
		t.differs("S5", f.Shard, "commit %d of shard %q was sent at instant %d, and lease %d was trusted until %d, and ended at %d (0: it did not)",
			a.To, f.Shard, a.Sent, f.Token, r.until[f.Session], l.ended)
	case l.seqKnown && !a.Doubt && a.Seq != l.seq+a.Entries:
		t.differs("L1", f.Shard, "the log of shard %q ended with entry %d before commit %d, which appended %d entries, and with %d after it",
			f.Shard, l.seq, a.From, a.Entries, a.Seq)
	}
	l.last, l.seq, l.seqKnown = max(l.last, a.To), a.Seq, !a.Doubt
}

// At the end of a whole trace, the machine's requests must match the runner's actions.
func (t *tracer) ends() {
	for id, m := range t.runner.made {
		if m.call == nil {
			t.differs("S7", "", "call %d, of %q, was not made", id, m.out.Kind)
		} else {
			t.differs("S4", "", "the machine was not given the answer to call %d, of %q", id, m.out.Kind)
		}
	}
	if len(t.runner.views) > 0 {
		t.differs("S13", "", "the state that was read at %v was not given to the machine", t.runner.views[0].Sent)
	}
}
