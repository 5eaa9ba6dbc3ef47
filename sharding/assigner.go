package sharding

import (
	"context"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/core"
)

// assign is the handler of the assigner's shard: it plans while it holds the
// lease. It takes up where the former assigner's complete plans end.
func (m *Manager) assign(ctx context.Context, lease *core.Lease) error {
	j := &journal{read: bounded(lease.ReadLog), table: &assignments{}}
	for {
		_, err := j.catchUp(ctx)
		if err == nil {
			break
		}
		lease.Progress()
		if ctx.Err() != nil || !pause(ctx, retry) {
			return nil
		}
		lease.Progress()
		m.o.OnError(fmt.Errorf("tenure: read the plans: %w", err))
	}
	if j.gap != nil {
		m.o.OnError(j.gap)
	}
	p := &planner{
		Assigner: m.o.Assigner, Specs: m.o.Shards, Keys: m.o.Keyspace, Takes: m.o.Takes, Zone: m.o.ZoneKey,
		Cooldown: m.o.Cooldown, Penalty: m.o.Penalty, Quarantine: m.o.Quarantine, PrepareBudget: m.o.PrepareBudget,
		calm: m.calm.Load,
	}
	size := partBytes
	if limit := m.limits.WriteBytes; limit > 0 {
		size = max(min(size, limit-64), 64)
	}
	began := time.Now()
	var loads map[string]float64
	told := &loadReader{m: m}
	m.reads.Store(true)
	defer m.reads.Store(false)
	for round := 0; ctx.Err() == nil; round++ {
		lease.Progress()
		if m.o.Loads != nil {
			loads = m.askLoads(ctx, loads)
			lease.Progress()
		}
		v := m.e.View()
		if v.Rules == nil && time.Since(began) < callTimeout { // a drained node would get shards
			m.untilNext(ctx, lease, v, true)
			continue
		}
		again := p.obey(v, time.Now())
		p.wall = began.Add(time.Since(began)) // also when the clock is set
		settled := m.settled(ctx, j.table, round)
		lease.Progress()
		again = told.look(ctx, v) || again
		m.publish(told.now)
		lease.Progress()
		out, err := p.next(time.Since(began), j.table, v, measured{loads, told.now}, settled)
		if err != nil {
			return err
		}
		if out.change != nil {
			if err := j.write(lease.Context(), lease, out.change, size); err != nil {
				return err
			}
			tellQuarantine(out, j.table)
			if m.o.OnPlan != nil {
				m.o.OnPlan(out)
			}
		}
		lease.Progress()
		m.untilNext(ctx, lease, v, again || out.again || m.o.Loads != nil)
	}
	return nil
}

// settled are the givers of the splits and merges that are complete: every taker has noted its
// range. Each round begins with another change, and reads the rest in later rounds if it takes
// longer than an interval.
func (m *Manager) settled(ctx context.Context, t *assignments, round int) (out []string) {
	limited, cancel := context.WithTimeout(ctx, m.o.Interval)
	defer cancel()
	for i := range t.changes {
		c := &t.changes[(i+round)%len(t.changes)]
		if done, err := m.taken(limited, c.Number, c.Gifts); err == nil && done {
			out = append(out, c.From)
		}
	}
	return out
}

// untilNext waits until there is reason to plan again: half an interval at the
// least, and half an interval from when something changed, so that changes which
// come together make one plan.
func (m *Manager) untilNext(ctx context.Context, lease *core.Lease, v *core.View, again bool) {
	half := max(m.o.Interval/2, time.Millisecond/2)
	if !pause(ctx, half) {
		return
	}
	lease.Progress()
	for !again && ctx.Err() == nil {
		// In steps, so that a watchdog sees that this goes on.
		limited, cancel := context.WithTimeout(ctx, m.o.Interval)
		_, err := m.e.WaitView(limited, v)
		cancel()
		lease.Progress()
		if err == nil {
			break
		}
	}
	pause(ctx, half)
}

// pause waits for d; false if ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (m *Manager) askLoads(ctx context.Context, last map[string]float64) map[string]float64 {
	limited, cancel := context.WithTimeout(ctx, m.o.Interval)
	defer cancel()
	loads, err := m.o.Loads(limited)
	if err != nil {
		m.o.OnError(err)
		return last
	}
	return loads
}
