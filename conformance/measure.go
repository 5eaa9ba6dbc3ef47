package conformance

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// Measure is one number about a backend, taken on a store of the harness while the suite runs
// nothing else.
type Measure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

const (
	// measureFor limits each measurement of a rate.
	measureFor = time.Second
	// measureIdle is how long an idle process is watched.
	measureIdle = 3 * time.Second
)

// Measure determines the limits and measures of the report. It runs as a case, which may hang
// or fail.
func (r *Report) Measure(t T, h Harness) {
	t.Helper()
	var m measurement
	c := Case{
		Area: "Measure", Property: "Bounds", Rules: []Rule{ruleA6, ruleM1, ruleO2, ruleO3, ruleE1}, Shows: "the cost of calls", alone: true,
		run: func(f *fixture) {
			m.f = f
			m.run()
		},
	}
	scratch := new(Report)
	if t.Run("Measure", func(t T) { runCase(t, &h, c, scratch) }) {
		r.Limits, r.Measures = m.limits, m.found
	}
}

type measurement struct {
	f      *fixture
	limits driver.Limits
	found  []Measure
}

func (m *measurement) add(value float64, unit, format string, args ...any) {
	m.found = append(m.found, Measure{Name: fmt.Sprintf(format, args...), Value: value, Unit: unit})
}

func (m *measurement) run() {
	f := m.f
	a := f.join("a")
	m.limits = a.b.Info().Limits
	m.idle()
	m.add(median(200, a.beat), "ms", "a heartbeat, median")

	fence, number := a.acquire("s"), driver.WriteNo(0)
	entry := appendOp("an entry of 32 bytes, or nearly.")
	m.add(rate(func() int {
		number++
		f.setup("commit", a.write(fence, number, entry).Err)
		return 1
	}), "/s", "commits of one entry, one after the other")

	n := max(1, min(m.limits.BatchItems, 256))
	claims := make([]driver.Claim, n)
	for i := range claims {
		claims[i].Shard = driver.ShardID(fmt.Sprintf("many-%d", i))
	}
	begin := time.Now()
	granted, err := a.Acquire(f.ctx, claims)
	f.setup("acquire many shards", err)
	m.add(float64(n)/time.Since(begin).Seconds(), "/s", "claims, %d in one call", n)
	number = 0
	m.add(rate(func() int {
		number++
		writes := make([]driver.Write, n)
		for i, g := range granted {
			f.setup("acquire one of many shards", g.Err)
			writes[i] = driver.Write{Fence: g.Fence, Number: number, Nonce: 1, Ops: []driver.Op{entry}}
		}
		results, err := a.Commit(f.ctx, writes)
		f.setup("commit under many leases", err)
		for _, r := range results {
			f.setup("commit under one of many leases", r.Err)
		}
		return n
	}), "/s", "commits of one entry, %d shards in one call", n)

	other := f.watch(f.open())
	i := 0
	m.add(median(40, func() {
		shard := driver.ShardID(fmt.Sprintf("seen-%d", i))
		i++
		a.acquire(shard)
		f.must(ruleO2, other.until(func() bool { return other.shards[shard].Token != 0 }), "a grant was not seen")
	}), "ms", "from claiming a shard until another process saw it, median")
	m.handOver(a, other)
	m.held(a, fence)
}

// held finds the shortest TTL at which a member would have kept its trust. It sends a heartbeat
// each third of the TTL. The heartbeat must be answered before the trust of the one before it ends,
// after nine tenths of a TTL. At the same time, another process commits without a pause, and this
// one appends.
func (m *measurement) held(a *member, fence driver.Fence) {
	f := m.f
	head, busy := f.head(fence.Shard), f.join("busy")
	own := busy.acquire("busy")
	ctx, cancel := context.WithTimeout(f.ctx, measureIdle)
	defer cancel()
	write := func(m *member, fence driver.Fence, number driver.WriteNo) func() {
		return func() {
			for ; ctx.Err() == nil; number++ {
				f.setup("commit", m.write(fence, number, appendOp("busy")).Err)
			}
		}
	}
	var slowest time.Duration
	together(write(a, fence, head.Number+1), write(busy, own, 1), func() {
		for ctx.Err() == nil {
			begin := time.Now()
			a.beat()
			slowest = max(slowest, time.Since(begin))
		}
	})
	const spare = 0.9 - 1.0/3 // share of a TTL in which the answer must come
	m.add(float64(slowest)/spare/float64(time.Millisecond), "ms",
		"shortest TTL kept by the slowest heartbeat in %v, commits beside it", measureIdle)
}

// handOver measures the time of a planned change of owner: from the transfer to the first commit of
// the successor, which learns of its lease from its view.
func (m *measurement) handOver(a *member, view *mirror) {
	f := m.f
	b := f.join("successor")
	i := 0
	var fence driver.Fence
	prepare := func() {
		shard := driver.ShardID(fmt.Sprintf("handed-%d", i))
		i++
		fence = a.acquire(shard)
		f.must(ruleO2, view.until(func() bool { return view.shards[shard].Token == fence.Token }), "a grant was not seen")
	}
	m.add(milliseconds(timed(40, func() {
		_, err := a.Transfer(f.ctx, []driver.Transfer{{Fence: fence, To: b.ID()}})
		f.setup("transfer", err)
		seen := func() bool { return view.shards[fence.Shard].Session == b.ID() }
		f.must(ruleO2, view.until(seen), "a transfer was not seen")
		own := driver.Fence{Shard: fence.Shard, Session: b.ID(), Token: view.shards[fence.Shard].Token}
		f.setup("the successor's commit", b.write(own, 1, appendOp("first")).Err)
	}, prepare)), "ms", "planned hand-over, until the new owner's first commit, median")
}

// idle counts the calls of a process that only watches.
func (m *measurement) idle() {
	f := m.f
	if f.store.Calls == nil {
		return
	}
	b := f.open()
	view, tail := f.watch(b), f.tail(b)
	ctx, cancel := context.WithCancel(f.ctx)
	var blocked sync.WaitGroup
	blocked.Go(func() { _, _ = b.Observe(ctx, driver.ObserveQuery{Since: view.cursor, Beats: view.asked()}) })
	blocked.Go(func() { _, _ = b.TailLog(ctx, tail.cursor, 10) })
	f.settled(m.limits.PollPeriod)
	used, window := f.idleFor(measureIdle)
	cancel()
	blocked.Wait()
	perMinute := float64(time.Minute) / float64(window)
	m.add(math.Round(float64(used.Reads)*perMinute), "/min", "reads of an idle process that follows views and logs")
	m.add(math.Round(float64(used.Writes)*perMinute), "/min", "writes of it, heartbeats aside")
}

// median returns the median of n durations of f, in milliseconds.
func median(n int, f func()) float64 { return milliseconds(timed(n, f)) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// timed returns the median of n durations of f, each after preparations that do not count.
func timed(n int, f func(), prepare ...func()) time.Duration {
	took := make([]time.Duration, n)
	for i := range took {
		for _, p := range prepare {
			p()
		}
		begin := time.Now()
		f()
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	return took[n/2]
}

// rate calls f for a second and returns the sum of its results per second.
func rate(f func() int) float64 {
	done, begin := 0, time.Now()
	for range ample.During(measureFor, 0) {
		done += f()
	}
	return float64(done) / time.Since(begin).Seconds()
}
