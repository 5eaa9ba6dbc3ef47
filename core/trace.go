package core

import (
	"log/slog"
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

// startTrace begins to write, with the steps before Run. e.mu is held.
func (e *Elector) startTrace() error {
	if e.o.TraceDir == "" {
		return nil
	}
	cfg := e.o.machine() // before those steps
	cfg.HostLock = e.m.Config().HostLock
	warn := func(err error) {
		e.note.post(func() { e.note.warn("tenure: trace incomplete", slog.Any("error", err)) })
	}
	l, err := trace.Start(e.o.TraceDir, e.o.TraceBytes, e.info, &cfg, e.instant, e.traceAcks, warn)
	if err != nil {
		return err
	}
	for _, r := range e.early {
		l.Put(r)
	}
	e.traced, e.early = l, nil
	return nil
}

// instant is an instant and the time of the wall clock at it.
func (e *Elector) instant() (fsm.Instant, time.Time) { return e.clk.now(), time.Now() }

// endTrace writes the rest, unless the disk hangs.
func (e *Elector) endTrace() {
	if e.traced != nil {
		e.traced.Close(e.o.DrainBudget)
	}
}

// traceAck notes an acknowledged commit, so that one record tells of many: once a second, or
// at the end of the lease. c.mu is held.
func (c *committer) traceAck(t *trace.Log, f Fence, n driver.WriteNo) {
	switch {
	case c.closed:
		t.Acked(f, n, n)
	case c.ackFrom != 0 && n == c.ackTo+1:
		c.ackTo = n
	default:
		c.flushAcks(t, f)
		c.ackFrom, c.ackTo = n, n
	}
}

// flushAcks traces what traceAck noted. c.mu is held.
func (c *committer) flushAcks(t *trace.Log, f Fence) {
	if c.ackFrom != 0 {
		t.Acked(f, c.ackFrom, c.ackTo)
	}
	c.ackFrom, c.ackTo = 0, 0
}

// traceAcks traces what was acknowledged under all leases.
func (e *Elector) traceAcks() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.runs {
		e.traceAcksOf(r.lease)
	}
}

func (e *Elector) traceAcksOf(l *Lease) {
	l.commits.mu.Lock()
	defer l.commits.mu.Unlock()
	l.commits.flushAcks(e.traced, l.fence)
}
