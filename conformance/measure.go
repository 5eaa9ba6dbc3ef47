package conformance

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// Measure is one number about a backend, taken on a store of the harness with
// nothing else running in the suite.
type Measure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

const (
	// measureFor bounds each measurement of a rate.
	measureFor = time.Second
	// measureIdle is how long an idle process is watched.
	measureIdle = 3 * time.Second
)

// measure takes the report's limits and measures, as a case that hangs and fails
// like any other.
func (r *Report) measure(t T, h Harness) {
	t.Helper()
	var m measurement
	c := Case{
		Area: "Measure", Property: "Bounds", Rules: []Rule{A6, M1, O2, O3, E1}, Shows: "what calls cost", alone: true,
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
		shard := driver.ShardID(fmt.Sprintf("told-%d", i))
		i++
		a.acquire(shard)
		f.must(O2, other.until(func() bool { return other.shards[shard].Token != 0 }), "a grant was not told")
	}), "ms", "from claiming a shard until another process was told, median")
}

// idle counts what a process asks of the store that only watches.
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
	settle := time.NewTimer(50*time.Millisecond + 2*m.limits.PollPeriod)
	<-settle.C
	before := f.store.Calls()
	window := time.NewTimer(measureIdle)
	<-window.C
	after := f.store.Calls()
	cancel()
	blocked.Wait()
	perMinute := float64(time.Minute / measureIdle)
	m.add(float64(after.Reads-before.Reads)*perMinute, "/min", "reads of an idle process that follows views and logs")
	m.add(float64(after.Writes-before.Writes)*perMinute, "/min", "writes of it, heartbeats aside")
}

// median is the middle of n durations of f, in milliseconds.
func median(n int, f func()) float64 {
	took := make([]time.Duration, n)
	for i := range took {
		begin := time.Now()
		f()
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	return float64(took[n/2]) / float64(time.Millisecond)
}

// rate calls f for a second and returns how much it did per second.
func rate(f func() int) float64 {
	done, begin := 0, time.Now()
	for time.Since(begin) < measureFor {
		done += f()
	}
	return float64(done) / time.Since(begin).Seconds()
}
