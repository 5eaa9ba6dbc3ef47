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
	"github.com/tenure-go/tenure/internal/proof/suite"
)

const (
	// measureFor limits each measurement of a rate.
	measureFor = time.Second
	// measureIdle is how long the suite watches an idle process.
	measureIdle = 3 * time.Second
)

// measure adds the limits and measurements to the report. It runs as a case because it may hang or
// fail.
func measure(t T, h Harness, r *suite.Report) {
	t.Helper()
	var m measurement
	c := testCase{
		Area: "Measure", Property: "Bounds", Rules: []rule{ruleA6, ruleM1, ruleO2, ruleO3, ruleE1}, Shows: "the cost of calls", alone: true,
		run: func(f *fixture) {
			m.f = f
			m.run()
		},
	}
	scratch := new(suite.Report)
	if t.Run("Measure", func(t T) { runCase(t, &h, c, scratch) }) {
		r.Limits, r.Measures = m.limits, m.found
	}
}

type measurement struct {
	f      *fixture
	limits driver.Limits
	found  []suite.Measure
}

func (m *measurement) add(value float64, unit, format string, args ...any) {
	m.found = append(m.found, suite.Measure{Name: fmt.Sprintf(format, args...), Value: value, Unit: unit})
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

// The figure is the shortest TTL at which a member would have kept its trust. A heartbeat is due in
// each third of the TTL. A heartbeat is trusted for nine tenths of a TTL, so the answer to the next
// heartbeat must arrive within that time. During the measurement, another process commits without a
// pause, and this process appends.
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
	const spare = 0.9 - 1.0/3 // the share of a TTL within which the answer must arrive
	m.add(float64(slowest)/spare/float64(time.Millisecond), "ms",
		"shortest TTL kept by the slowest heartbeat in %v, commits beside it", measureIdle)
}

// handOver measures how long a planned change of owner takes, from the transfer to the successor's
// first commit. The successor learns of its lease from its view.
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

func median(n int, f func()) float64 { return milliseconds(timed(n, f)) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// timed returns the median duration of n calls to f. The functions in prepare run before each call,
// and their time is excluded.
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

// rate calls f repeatedly for a second, and returns the sum of its results per second.
func rate(f func() int) float64 {
	done, begin := 0, time.Now()
	for range ample.During(measureFor, 0) {
		done += f()
	}
	return float64(done) / time.Since(begin).Seconds()
}
