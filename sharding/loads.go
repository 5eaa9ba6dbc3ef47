package sharding

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding/assign"
)

// A member that has load publishes its capacity in its metadata, and writes a report whenever its
// loads have changed enough. The report is an item of the first planned shard that the member owns,
// written under that shard's lease, so it needs no additional record. The assigner reads the
// reports of members that publish a capacity. While no load is measured, members write no reports.
const (
	metaKey    = "tenure.load" // the key of the capacity in core.MemberState.Meta
	reportKey  = "tenure/load" // the key of the report's item
	maxReport  = 60 << 10      // maximum size of a report, in bytes
	readAtOnce = 20            // maximum number of reports read in a second
)

// Add counts the cost of a request for a shard outside the Keyspace. The cost may have any unit,
// such as milliseconds of work. Add ignores costs that are negative or not finite. A cost counts
// only while this member owns the shard. In a Keyspace, use Slice.Add, which also records how the
// load is distributed in the range.
func (m *Manager) Add(shard string, cost float64) {
	m.mu.Lock()
	x := m.meterOf(shard, empty)
	m.mu.Unlock()
	x.count(cost)
}

// Add counts the cost of a request for a key. The cost may have any unit, such as requests, bytes,
// or milliseconds of work. Add takes tens of nanoseconds and does not allocate. Add ignores costs
// that are negative or not finite, and keys that the slice refuses.
func (s *Slice) Add(key string, cost float64) {
	if h := s.m.o.Keyspace.Of(key); s.serving.Load().has.Has(h) {
		s.meter.add(h, cost)
	}
}

// The caller holds m.mu.
func (m *Manager) meterOf(shard string, r assign.Range) *meter {
	x := m.meters[shard]
	if x == nil {
		x = newMeter(r, time.Now())
		m.meters[shard] = x
	}
	return x
}

func (m *Manager) tellLoad(ctx context.Context) {
	t := time.NewTicker(m.o.Interval)
	defer t.Stop()
	var last *report
	var carrier core.Fence
	var told time.Time
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		m.mu.Lock()
		meters := maps.Clone(m.meters)
		m.mu.Unlock()
		if len(meters) == 0 && last == nil {
			continue
		}
		v := m.e.View()
		r := m.measure(v, meters)
		lease := m.carrier(v)
		if lease == nil || time.Since(told) < reportEvery(len(v.Members), m.o.Interval) {
			continue
		}
		if !r.differs(last) && (last == nil || lease.Fence() == carrier) {
			continue
		}
		told = time.Now()
		size := maxReport
		if limit := m.limits.WriteBytes; limit > 0 {
			size = max(min(size, limit/2), 256)
		}
		limited, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := lease.Commit(limited, core.Put(reportKey, r.encode(size)))
		cancel()
		if err == nil {
			last, carrier = r, lease.Fence()
			m.showLoad(v, r.total() > 0)
		}
		if err == nil || lease.Err() == nil && ctx.Err() == nil {
			m.tried("report the load", err)
		}
	}
}

func (m *Manager) measure(v *core.View, meters map[string]*meter) *report {
	r, now := &report{Session: v.Session, Capacity: m.o.Capacity}, time.Now()
	for i := range v.Leases {
		l := &v.Leases[i]
		x := meters[string(l.Fence.Shard)]
		if x == nil || l.State != core.LeaseHeld {
			continue
		}
		rate, parts := x.read(now)
		r.Shards = append(r.Shards, shardReport{Name: string(l.Fence.Shard), Rate: rate, Parts: parts})
	}
	return r
}

// carrier returns the lease of the first planned shard that this member owns, or nil.
func (m *Manager) carrier(v *core.View) *core.Lease {
	t := m.assigned()
	for i := range v.Leases {
		if shard := string(v.Leases[i].Fence.Shard); t.has(shard) {
			return m.e.Lease(shard)
		}
	}
	return nil
}

// showLoad publishes the member's capacity in its metadata while the member has load, and otherwise
// removes it.
func (m *Manager) showLoad(v *core.View, has bool) {
	text := strconv.FormatFloat(m.o.Capacity, 'g', 6, 64)
	me, _ := v.Member(v.Session)
	if before, had := me.Meta[metaKey]; had == has && (!has || before == text) {
		return
	}
	asked, cancel := context.WithCancel(context.Background())
	cancel()
	err := m.e.Update(asked, func(st *core.MemberState) {
		if !has {
			delete(st.Meta, metaKey)
			return
		}
		if st.Meta == nil {
			st.Meta = map[string]string{}
		}
		st.Meta[metaKey] = text
	})
	if errors.Is(err, core.ErrInvalid) {
		m.tried("tell the assigner of this member's load", err)
	}
}

// If a member's metadata contain no valid capacity, capacityOf returns 0.
func capacityOf(m *core.Member) float64 {
	x, err := strconv.ParseFloat(m.Meta[metaKey], 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
		return 0
	}
	return x
}

type loadReader struct {
	m       *Manager
	reports map[core.SessionID]*report
	read    map[core.SessionID]time.Time // when each report was last read
	seen    map[core.SessionID]core.Version
	now     map[string]*shardReport // merged reports, by shard
}

// look reads the reports that are due, at most readAtOnce per second, and reports whether any
// member has load. If so, new reports may arrive even if the view does not change.
func (r *loadReader) look(ctx context.Context, v *core.View) (some bool) {
	for i := range v.Members {
		_, has := v.Members[i].Meta[metaKey]
		some = some || has
	}
	if !some {
		clear(r.reports)
		r.now = nil
		return false
	}
	if r.reports == nil {
		r.reports, r.read, r.seen = map[core.SessionID]*report{}, map[core.SessionID]time.Time{}, map[core.SessionID]core.Version{}
	}
	every := reportEvery(len(v.Members), r.m.o.Interval)
	budget := max(1, int(readAtOnce*r.m.o.Interval/time.Second))
	t := r.m.assigned()
	first := map[core.SessionID]string{} // the first planned shard of each member, which carries its report
	for i := range v.Shards {
		if o := &v.Shards[i]; o.Session != "" && first[o.Session] == "" && t.has(o.Shard) {
			first[o.Session] = o.Shard
		}
	}
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for i := range v.Members {
		x := &v.Members[i]
		if _, has := x.Meta[metaKey]; !has {
			delete(r.reports, x.Session)
			delete(r.seen, x.Session)
			continue
		}
		shard := first[x.Session]
		if shard == "" || budget == 0 || time.Since(r.read[x.Session]) < every {
			continue
		}
		budget--
		r.read[x.Session] = time.Now()
		item, err := r.m.b.Get(limited, core.ShardID(shard), reportKey)
		if err != nil || item == nil || len(item.Value) > maxReport || item.Version == r.seen[x.Session] {
			continue // use the previous report
		}
		got, err := decodeReport(item.Value)
		if err != nil {
			err = fmt.Errorf("shard %q: %w", shard, err)
		}
		if r.m.tried("read a report of load", err); err == nil && got.Session == x.Session {
			r.reports[x.Session], r.seen[x.Session] = got, item.Version
		}
	}
	r.merge(v)
	return true
}

// For each shard, merge uses the owner's report. If the owner has not reported the shard, merge
// uses the first report, in the order of sessions, that contains it.
func (r *loadReader) merge(v *core.View) {
	r.now = map[string]*shardReport{}
	for _, id := range slices.Sorted(maps.Keys(r.reports)) {
		rep := r.reports[id]
		if _, lives := v.Member(id); !lives {
			delete(r.reports, id)
			delete(r.read, id)
			delete(r.seen, id)
			continue
		}
		for i := range rep.Shards {
			s := &rep.Shards[i]
			o, _ := v.Owner(s.Name)
			if old := r.now[s.Name]; old == nil || o.Session == id {
				r.now[s.Name] = s
			}
		}
	}
}
