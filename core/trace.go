package core

import (
	"log/slog"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/trace"
)

const (
	defaultTraceBytes = 256 << 20
	minTraceBytes     = 1 << 20
)

// resolveTrace fills in the default of TraceBytes, or says what is wrong.
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

// newTrace returns the log of a machine with this configuration, nil if there is to be none. It
// notes the steps before Run as well.
func (e *Elector) newTrace(cfg *fsm.Config) *trace.Log {
	if e.o.TraceDir == "" {
		return nil
	}
	return trace.New(trace.Options{
		Dir: e.o.TraceDir, MaxBytes: e.o.TraceBytes, Info: e.info, Config: cfg, Acks: e.traceAcks,
		Clock: func() (fsm.Instant, time.Time) { return e.clk.now(), time.Now() },
		Warn: func(err error) {
			e.note.post(func() { e.note.warn("tenure: trace incomplete", slog.Any("error", err)) })
		},
	})
}

// startTrace begins to write. e.mu is held.
func (e *Elector) startTrace() error {
	if e.traced == nil {
		return nil
	}
	return e.traced.Start(e.m.Config().HostLock)
}

// endTrace writes the rest, unless the disk hangs.
func (e *Elector) endTrace() {
	if e.traced != nil {
		e.traced.Close(e.o.DrainBudget)
	}
}

// toTrace has the leases with acknowledged commits that are not traced yet.
type toTrace struct {
	mu     sync.Mutex // locked after committer.mu
	leases []*Lease
}

// traceAck notes an acknowledged commit, so that one record tells of many: once a second, or
// at the end of the lease. committer.mu is held.
func (l *Lease) traceAck(n driver.WriteNo) {
	c := &l.commits
	switch {
	case c.closed:
		l.e.traced.Acked(l.fence, n, n)
	case c.ackFrom != 0 && n == c.ackTo+1:
		c.ackTo = n
	default:
		if c.ackFrom != 0 {
			l.e.traced.Acked(l.fence, c.ackFrom, c.ackTo)
		} else {
			l.e.toTrace.mu.Lock()
			l.e.toTrace.leases = append(l.e.toTrace.leases, l)
			l.e.toTrace.mu.Unlock()
		}
		c.ackFrom, c.ackTo = n, n
	}
}

// traceAcks traces what traceAck noted.
func (l *Lease) traceAcks() {
	c := &l.commits
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ackFrom != 0 {
		l.e.traced.Acked(l.fence, c.ackFrom, c.ackTo)
	}
	c.ackFrom, c.ackTo = 0, 0
}

// traceAcks traces what was acknowledged under all leases.
func (e *Elector) traceAcks() {
	e.toTrace.mu.Lock()
	leases := e.toTrace.leases
	e.toTrace.leases = nil
	e.toTrace.mu.Unlock()
	for _, l := range leases {
		l.traceAcks()
	}
}
