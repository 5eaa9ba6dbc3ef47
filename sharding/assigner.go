package sharding

import (
	"context"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/goexit"
	"github.com/tenure-go/tenure/internal/mark"
)

// assign, the handler of the assigner's shard, makes plans until the lease ends. It continues from
// the previous assigner's last complete plan.
func (m *Manager) assign(ctx context.Context, lease *core.Lease) error {
	j := &journal{read: bounded(lease.ReadLog), table: &assignments{}, newest: m.form}
	for wait := retry; ; wait = longer(wait) {
		_, err := j.catchUp(ctx)
		if err == nil {
			break
		}
		lease.Progress()
		if ctx.Err() != nil || !pause(ctx, wait) {
			return nil
		}
		lease.Progress()
		m.tried("read the plans", err)
	}
	if err := j.blind(m.o.Keyspace); err != nil {
		m.refused.Store(time.Now().Add(time.Minute).UnixNano()) // stored before the signal, so that reconcile does not contend
		signal(m.wake)
		if !m.blind.Load() { // otherwise follow reports the error
			m.trying(err)
		}
		return nil
	}
	m.tried("understand the plans", j.gap)
	p := &planner{
		Assigner: m.o.Assigner, Specs: m.o.Shards, Keys: m.o.Keyspace, Takes: m.o.Takes, Zone: m.o.ZoneKey,
		Cooldown: m.o.Cooldown, Penalty: m.o.Penalty, Quarantine: m.o.Quarantine, PrepareBudget: m.o.PrepareBudget,
		calm: m.calm.Load,
	}
	size := partSize(m.limits)
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
		if v.Rules == nil && time.Since(began) < callTimeout { // without the rules, a drained node would get shards
			m.untilNext(ctx, lease, v, true)
			continue
		}
		j.form = m.formFor(v)
		again := p.obey(v, time.Now())
		p.wall = began.Add(time.Since(began)) // a change of the system clock has no effect
		var settled []string
		settled, p.untaken = m.settled(ctx, j.table, round)
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
			tellQuarantine(m.o.Logger, out, j.table)
			if m.o.OnPlan != nil {
				m.o.OnPlan(out)
			}
		}
		lease.Progress()
		m.untilNext(ctx, lease, v, again || out.again || m.o.Loads != nil)
	}
	return nil
}

func (m *Manager) formFor(v *core.View) byte {
	form := m.form
	for i := range v.Members {
		if n := formOf(&v.Members[i]); n > 0 {
			form = max(min(form, n), formVersion)
		}
	}
	return form
}

// A member's mark contains the newest form of plans that the member reads. Without a mark, formOf
// returns 0.
func formOf(m *core.Member) byte {
	n, _ := strconv.ParseUint(m.Meta[mark.Key], 10, 8)
	return byte(n)
}

// settled returns the givers in complete splits and merges, and the takers that refused a range. A
// split or merge is complete once every taker has noted its range. Each round begins with a
// different change. If the reads take longer than an interval, later rounds read the remaining
// notes.
func (m *Manager) settled(ctx context.Context, t *assignments, round int) (givers []string, refused []untaken) {
	limited, cancel := context.WithTimeout(ctx, m.o.Interval)
	defer cancel()
	for i := range t.changes {
		c := &t.changes[(i+round)%len(t.changes)]
		gifts := c.Gifts
		if len(gifts) == 0 { // the giver notes that it has the ranges again
			gifts = []gift{{Shard: c.From}}
		}
		done, back, err := m.taken(limited, c.Number, gifts)
		switch {
		case err != nil || !done:
		case len(back) > 0:
			refused = append(refused, back...)
		default:
			givers = append(givers, c.From)
		}
	}
	return givers, refused
}

// untilNext waits, for at least half an interval, until there is a reason to plan again. After a
// change, it waits another half interval, so that changes that occur together lead to one plan.
func (m *Manager) untilNext(ctx context.Context, lease *core.Lease, v *core.View, again bool) {
	half := max(m.o.Interval/2, time.Millisecond/2)
	if !pause(ctx, half) {
		return
	}
	lease.Progress()
	for !again && ctx.Err() == nil {
		// Wait in short steps, so that a watchdog sees progress.
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

// If ctx ends first, pause returns false.
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
	var loads map[string]float64
	err := goexit.Call(func() (err error) { loads, err = m.o.Loads(limited); return err })
	if m.tried("ask for the loads", err); err != nil {
		return last
	}
	return loads
}
