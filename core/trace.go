package core

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/trace"
)

const (
	defaultTraceBytes = 256 << 20
	minTraceBytes     = 1 << 20
)

// resolveTrace fills in TraceBytes's default, or returns an error that explains what to change.
func (o *Options) resolveTrace() error {
	switch {
	case o.TraceDir == "" && o.TraceBytes != 0:
		return optErr("TraceBytes %d is set without TraceDir: set both, or none", o.TraceBytes)
	case o.TraceBytes != 0 && o.TraceBytes < minTraceBytes:
		return optErr("TraceBytes %d is below %d: raise it, or leave it 0 for its default", o.TraceBytes, minTraceBytes)
	case o.TraceBytes == 0:
		o.TraceBytes = defaultTraceBytes
	}
	return nil
}

// If tracing is on, newTrace creates the machine's trace, which includes the steps before Run.
func (e *Elector) newTrace(cfg *fsm.Config) {
	if e.o.TraceDir == "" {
		return
	}
	e.traced = trace.New(trace.Options{
		Dir: e.o.TraceDir, MaxBytes: e.o.TraceBytes, Info: e.info, Config: cfg, Acks: e.traceAcks,
		Clock: e.clk.read,
		Warn: func(err error) {
			e.note.post(func() { e.note.warn("tenure: trace incomplete", slog.Any("error", err)) })
		},
	})
	e.b = &wire{Backend: e.b, clk: e.clk, log: e.traced}
}

// startTrace starts writing. The caller holds e.mu.
func (e *Elector) startTrace() error {
	if e.traced == nil {
		return nil
	}
	return e.traced.Start(e.m.Config().HostLock)
}

// endTrace writes the remaining records. If the disk hangs, endTrace stops after the drain budget.
func (e *Elector) endTrace() {
	if e.traced != nil {
		e.traced.Close(e.o.DrainBudget)
	}
}

// toTrace lists the leases with acknowledged commits that have not been traced yet.
type toTrace struct {
	mu     sync.Mutex // locked after committer.mu
	leases []*Lease
}

// traceOutcome records a commit that was acknowledged or is in doubt. One trace record, written
// once a second or at the end of the lease, covers many commits. The caller holds committer.mu.
func (d *delivery) traceOutcome(out *outcome) {
	l := d.l
	c := &l.commits
	a := trace.Acks{Fence: l.fence, From: d.w.Number, To: d.w.Number, Sent: d.sent}
	switch {
	case errors.Is(out.err, ErrUnknown):
		if a.Doubt = true; out.number != 0 {
			a.From, a.To = out.number, out.number
		}
	case out.err != nil:
		return
	default:
		a.From, a.To, a.Seq = out.head.Number, out.head.Number, out.head.Seq
		for _, p := range d.parts {
			a.Entries += Seq(p.appends)
		}
	}
	switch last := &c.untraced; {
	case c.closed:
		c.traceAcks(l)
		l.e.traced.Acked(a)
	case last.From != 0 && last.Doubt == a.Doubt && a.From == last.To+1 && a.Seq == last.Seq+a.Entries:
		last.To, last.Seq, last.Entries, last.Sent = a.To, a.Seq, last.Entries+a.Entries, a.Sent
	default:
		if last.From != 0 {
			l.e.traced.Acked(*last)
		} else {
			l.e.toTrace.mu.Lock()
			l.e.toTrace.leases = append(l.e.toTrace.leases, l)
			l.e.toTrace.mu.Unlock()
		}
		*last = a
	}
}

// traceAcks traces the commits that traceOutcome recorded.
func (l *Lease) traceAcks() {
	l.commits.mu.Lock()
	defer l.commits.mu.Unlock()
	l.commits.traceAcks(l)
}

// The caller of traceAcks must hold c.mu.
func (c *committer) traceAcks(l *Lease) {
	if c.untraced.From != 0 {
		l.e.traced.Acked(c.untraced)
	}
	c.untraced = trace.Acks{}
}

// traceBegun records that the lease's handler is called. The caller holds e.mu.
func (l *Lease) traceBegun() {
	if l.e.traced != nil {
		head := l.Head()
		l.e.traced.Told(&trace.Lease{Fence: l.fence, Is: trace.LeaseBegun, Until: fsm.Instant(l.trust.until.Load()), Head: &head})
	}
}

// traceEnded records that the lease was revoked, and whether the application still considers it
// valid. The caller holds e.mu.
func (l *Lease) traceEnded() {
	if l.e.traced != nil {
		l.e.traced.Told(&trace.Lease{Fence: l.fence, Is: trace.LeaseEnded, Until: fsm.Instant(l.trust.until.Load()),
			Valid: l.Err() == nil || l.ctx.Err() == nil})
	}
}

// traceJoined records that the lease's handler has returned and its commits are settled. The caller
// holds e.mu.
func (l *Lease) traceJoined() {
	if l.e.traced != nil {
		l.traceAcks()
		l.e.traced.Told(&trace.Lease{Fence: l.fence, Is: trace.LeaseJoined})
	}
}

func (e *Elector) traceAcks() {
	e.toTrace.mu.Lock()
	leases := e.toTrace.leases
	e.toTrace.leases = nil
	e.toTrace.mu.Unlock()
	for _, l := range leases {
		l.traceAcks()
	}
}
