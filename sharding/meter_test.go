package sharding

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/sharding/assign"
)

var meterStart = time.Unix(1_000_000, 0)

// near reports whether x is within a share of want.
// sampled is the largest error that is expected of a rate that was sampled for a long time: six
// standard deviations. In the first second, the error is up to five times as large.
const sampled = 0.05

func near(x, want, share float64) bool { return math.Abs(x-want) <= share*math.Abs(want) }

// checkParts fails the test unless the parts divide the range, are in order, and have loads that
// add up to the rate.
func checkParts(t *testing.T, r assign.Range, rate float64, parts []assign.Part) {
	t.Helper()
	at, sum := r.From, 0.0
	for i, p := range parts {
		if p.Range.From != at || p.Range.Empty() || p.Load < 0 || i < len(parts)-1 && p.Range.To == 0 {
			t.Fatalf("part %d is %v with load %v, want it to begin at %x", i, p.Range, p.Load, at)
		}
		at = p.Range.To
		sum += p.Load
	}
	if at != r.To || len(parts) < bins || len(parts) > bins+2*maxHot {
		t.Fatalf("%d parts of %v end at %x", len(parts), r, at)
	}
	if !near(sum, rate, 1e-9) {
		t.Fatalf("the parts' sum is %v, the rate %v", sum, rate)
	}
}

func hotParts(parts []assign.Part) map[uint64]float64 {
	hot := map[uint64]float64{}
	for _, p := range parts {
		if p.Range.To == p.Range.From+1 {
			hot[p.Range.From] = p.Load
		}
	}
	return hot
}

// A meter finds the rate, the hot keys and the parts of a skewed load, regardless of the requests'
// costs.
func TestMeterIsAccurate(t *testing.T) {
	t.Parallel()
	const keys, perSecond, seconds = 100_000, 10_000, 30
	hashes := make([]uint64, keys)
	for k := range hashes {
		hashes[k] = Keyspace{}.Of(fmt.Sprint(k))
	}
	for name, cost := range map[string]func(rng *rand.Rand, key uint64) float64{
		"equal":  func(*rand.Rand, uint64) float64 { return 1 },
		"varied": func(rng *rand.Rand, _ uint64) float64 { return rng.ExpFloat64() / 1000 },
		"rare expensive key": func(_ *rand.Rand, key uint64) float64 {
			if key == 300 { // 0.03 % of the requests, a sixth of the load
				return 700
			}
			return 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, 2))
			zipf := rand.NewZipf(rng, 1.1, 1, keys-1)
			m := newMeter(assign.Range{}, meterStart)
			byKey, byBin, total := map[uint64]float64{}, [bins]float64{}, 0.0
			var rate float64
			var parts []assign.Part
			for s := range seconds {
				for range perSecond {
					k := zipf.Uint64()
					h, c := hashes[k], cost(rng, k)
					m.add(h, c)
					byKey[h] += c / seconds
					byBin[h>>60] += c / seconds
					total += c / seconds
				}
				rate, parts = m.read(meterStart.Add(time.Duration(s+1) * time.Second))
			}
			checkParts(t, assign.Range{}, rate, parts)
			if !near(rate, total, sampled) {
				t.Errorf("rate %v, want %v", rate, total)
			}
			hot := hotParts(parts)
			most := 0.0
			for h, want := range byKey {
				most = max(most, want)
				if want > 0.03*total && !near(hot[h], want, 0.25) {
					t.Errorf("key %x has load %v, want %v", h, hot[h], want)
				}
				if want < 0.01*total && hot[h] > 0 {
					t.Errorf("key %x with a share of %v counts as hot", h, want/total)
				}
			}
			for h, want := range byKey {
				if want == most && !near(hot[h]/rate, want/total, 0.1) {
					t.Errorf("the hottest key has a share of %v, want %v", hot[h]/rate, want/total)
				}
			}
			var got [bins]float64
			for _, p := range parts {
				got[p.Range.From>>60] += p.Load
			}
			for i := range got {
				if math.Abs(got[i]-byBin[i]) > 0.03*total {
					t.Errorf("part %d has load %v, want %v", i, got[i], byBin[i])
				}
			}
		})
	}
}

// Uniform load has no hot keys, even in the first interval.
func TestMeterOfUniformLoad(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	m := newMeter(assign.Range{}, meterStart)
	for s := range 5 {
		for range 20_000 {
			m.add(rng.Uint64(), 1)
		}
		rate, parts := m.read(meterStart.Add(time.Duration(s+1) * time.Second))
		if checkParts(t, assign.Range{}, rate, parts); !near(rate, 20_000, 5*sampled) || len(parts) != bins {
			t.Fatalf("rate %v, %d parts", rate, len(parts))
		}
		for _, p := range parts {
			if !near(p.Load, 1250, 1) {
				t.Errorf("%v has load %v, want 1250", p.Range, p.Load)
			}
		}
	}
}

// Requests without a cost, or with a cost that is not a number, do not count as load.
func TestMeterIgnoresGarbage(t *testing.T) {
	t.Parallel()
	m := newMeter(assign.Range{}, meterStart)
	for _, cost := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), 2e30, math.MaxFloat64} {
		m.add(7, cost)
		m.count(cost)
	}
	if rate, parts := m.read(meterStart.Add(time.Second)); rate != 0 || parts != nil {
		t.Errorf("rate %v, parts %v", rate, parts)
	}
	for range 1000 {
		m.add(7, maxCost)
	}
	m.add(8, math.SmallestNonzeroFloat64)
	rate, parts := m.read(meterStart.Add(2 * time.Second))
	if checkParts(t, assign.Range{}, rate, parts); math.IsInf(rate, 0) || rate == 0 {
		t.Errorf("rate %v of the highest costs", rate)
	}
}

// The weight of load is halved after ten seconds, regardless of how often the meter is read. After
// a while without load, the meter is in its initial state.
func TestMeterDecays(t *testing.T) {
	t.Parallel()
	m := newMeter(assign.Range{}, meterStart)
	now := meterStart
	second := func(adds int) float64 {
		for range adds {
			m.add(uint64(adds), 2)
		}
		now = now.Add(time.Second)
		rate, _ := m.read(now)
		return rate
	}
	if rate, parts := m.read(now); rate != 0 || parts != nil {
		t.Errorf("at the beginning the rate is %v", rate)
	}
	for s := range 60 {
		if rate := second(1000); !near(rate, 2000, 5*sampled) {
			t.Fatalf("rate %v after %d s, want 2000", rate, s+1)
		}
	}
	before, _ := m.read(now)
	if again, _ := m.read(now.Add(-time.Second)); again != before {
		t.Errorf("rate %v when the clock went back, %v before", again, before)
	}
	rate := 0.0
	for range 10 {
		rate = second(0)
	}
	if !near(rate, 1000, sampled) {
		t.Errorf("rate %v after 10 s without load, want 1000", rate)
	}
	now = now.Add(10 * time.Second)
	if rate, _ = m.read(now); !near(rate, 500, 0.35) {
		t.Errorf("rate %v after 10 s more without a read, want some 500", rate)
	}
	for range 40 {
		if rate = second(4000); rate > 8000*(1+sampled) {
			t.Fatalf("rate %v of a load of 8000", rate)
		}
	}
	if !near(rate, 8000, 0.1) {
		t.Errorf("rate %v after 40 s with 8000", rate)
	}
	if _, parts := m.read(now); !near(hotParts(parts)[4000], 8000, 0.1) || hotParts(parts)[1000] > 500 {
		t.Errorf("hot keys %v, want the latest", hotParts(parts))
	}
	for range 99 {
		if second(0) == 0 {
			t.Fatal("load is forgotten too early")
		}
	}
	for range 30 {
		rate = second(0)
	}
	if rate != 0 || m.hot != nil {
		t.Errorf("rate %v and a sketch %v after 129 s without load", rate, m.hot)
	}
}

// A shard without keys has a rate but no parts. If a shard with keys also has load without keys,
// that load may be anywhere in the range.
func TestMeterWithoutKeys(t *testing.T) {
	t.Parallel()
	m := newMeter(empty, meterStart)
	m.count(3)
	m.add(1, 4) // a key that is in no range
	if rate, parts := m.read(meterStart.Add(time.Second)); rate != 7 || parts != nil || m.hot != nil {
		t.Errorf("rate %v, parts %v, sketch %v", rate, parts, m.hot)
	}
	m.setRange(assign.Range{})
	for range 7 {
		m.add(1, 1)
	}
	rate, parts := m.read(meterStart.Add(2 * time.Second))
	checkParts(t, assign.Range{}, rate, parts)
	if hot := hotParts(parts); !near(hot[1], rate/2, 0.05) {
		t.Errorf("rate %v, hot keys %v", rate, hot)
	}
}

// After a split, the meter keeps the load of the remaining range, and drops the rest. After a
// merge, the new range begins without load.
func TestMeterFollowsItsRange(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	low, high := uint64(5)<<60+12345, uint64(11)<<60+12345
	m := newMeter(assign.Range{}, meterStart)
	now := meterStart
	fill := func(r assign.Range) (float64, []assign.Part) {
		for range 8000 {
			if h := rng.Uint64(); r.Has(h) {
				m.add(h, 1)
			}
		}
		for range 1000 {
			for _, h := range []uint64{low, high} {
				if r.Has(h) {
					m.add(h, 1)
				}
			}
		}
		now = now.Add(time.Second)
		rate, parts := m.read(now)
		checkParts(t, r, rate, parts)
		return rate, parts
	}
	for range 10 {
		if rate, parts := fill(assign.Range{}); !near(rate, 10_000, 5*sampled) || len(hotParts(parts)) != 2 {
			t.Fatalf("rate %v, hot keys %v", rate, hotParts(parts))
		}
	}
	for _, c := range []struct {
		r     assign.Range
		rate  float64
		hot   []uint64
		after float64
	}{
		{assign.Range{}, 10_000, []uint64{low, high}, 10_000},
		{assign.Range{From: 0, To: 1 << 63}, 5000, []uint64{low}, 5000},                      // a split
		{assign.Range{From: 1 << 62, To: 1 << 63}, 3000, []uint64{low}, 3000},                // another
		{assign.Range{From: 1 << 62, To: 0}, 3000, []uint64{low}, 3540},                      // a merge: 3000 for seven seconds, then 8000
		{assign.Range{From: 1<<62 + 12345, To: 1<<62 + 6<<40}, -1, nil, -1},                  // almost nothing, not at the end of a part
		{assign.Range{From: math.MaxUint64 - 1<<30, To: 0}, -1, nil, -1}, {empty, 0, nil, 0}, // another shard has the range
	} {
		m.setRange(c.r)
		rate, parts := m.read(now)
		if rate > 0 {
			checkParts(t, c.r, rate, parts)
		}
		hot := hotParts(parts)
		if c.rate >= 0 && !near(rate, c.rate, 3*sampled) || len(hot) != len(c.hot) {
			t.Errorf("%v: rate %v, hot keys %v, want %v and %x", c.r, rate, hot, c.rate, c.hot)
		}
		for _, h := range c.hot {
			if !near(hot[h], 1000, 0.25) {
				t.Errorf("%v: key %x has load %v, want 1000", c.r, h, hot[h])
			}
		}
		if c.after > 0 {
			rate, _ = fill(c.r)
			if !near(rate, c.after, 3*sampled) {
				t.Errorf("%v: rate %v after another second, want %v", c.r, rate, c.after)
			}
		}
	}
}

// Parts are also correct at the ends of a range.
func TestBinsCoverTheRange(t *testing.T) {
	t.Parallel()
	for _, r := range []assign.Range{{}, {From: 0, To: 1 << 63}, {From: 1 << 63, To: 0}, {From: 3, To: 1<<20 + 3}, {From: 5, To: 1<<20 + 20}, {From: math.MaxUint64 - 1<<20, To: 0}, {From: 1, To: 0}, {From: 0, To: math.MaxUint64}} {
		g := newMeter(r, meterStart)
		at := r.From
		for i := range bins {
			b := bin(r, i)
			if b.From != at || g.cell(b.From) != i || g.cell(b.To-1) != i || b.To-b.From < leastWidth {
				t.Errorf("part %d of %v is %v", i, r, b)
			}
			at = b.To
			// If there are hot keys at both ends of a part, only the hashes between them remain.
			hot := []assign.Part{{Range: assign.Range{From: b.From, To: b.From + 1}, Load: 1}, {Range: assign.Range{From: b.To - 1, To: b.To}, Load: 2}}
			var rest [bins]float64
			rest[i] = 4
			checkParts(t, r, 7, lay(r, &rest, hot))
		}
		if at != r.To {
			t.Errorf("the last part of %v ends at %x", r, at)
		}
	}
	for _, r := range []assign.Range{empty, {From: 1, To: 1 << 20}, {From: 7, To: 3}} {
		if binWidth(r) != 0 {
			t.Errorf("%v is divided", r)
		}
	}
}

// No sample is lost while the meter is read and changes its range. Most adds are samples, because
// the meter is read all the time.
func TestMeterLosesNothing(t *testing.T) {
	t.Parallel()
	const adders, adds = 8, 5_000
	m, k := newMeter(assign.Range{From: 0, To: 1 << 57}, meterStart), newMeter(empty, meterStart)
	var left sync.WaitGroup
	var done atomic.Bool
	for i := range adders {
		left.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			for n := range adds {
				m.add(rng.Uint64()>>8, 1) // within both ranges
				k.count(1)
				if n%64 == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	read := make(chan int)
	go func() {
		n := 0
		for ; !done.Load(); n++ {
			now := meterStart.Add(time.Duration(n+1) * time.Nanosecond)
			m.read(now)
			k.read(now)
			switch n % 8 {
			case 0:
				m.setRange(assign.Range{From: 0, To: 1 << 56})
			case 5:
				m.setRange(assign.Range{From: 0, To: 1 << 57})
			}
		}
		read <- n
	}()
	left.Wait()
	done.Store(true)
	n := <-read
	for name, m := range map[string]*meter{"keys": m, "no keys": k} {
		m.read(meterStart.Add(time.Duration(n+1) * time.Nanosecond))
		sum := 0.0
		for _, x := range m.sums {
			sum += x
		}
		// The load has decayed for at most n+1 nanoseconds.
		if decayed := math.Exp2(-float64(n+1) / float64(halfLife)); sum < adders*adds*decayed*(1-5*sampled) || sum > adders*adds*(1+5*sampled) {
			t.Errorf("%s: %v of %v were counted, with %d reads", name, sum, adders*adds, n)
		}
	}
}

// The load of a key never exceeds the load of its part.
func TestHotKeyWithinItsPart(t *testing.T) {
	t.Parallel()
	m := newMeter(assign.Range{}, meterStart)
	m.add(1<<60+1, 2)
	m.add(2<<60+1, 3)
	m.hot.add(1<<60+1, 2) // once too often
	rate, parts := m.read(meterStart.Add(time.Second))
	checkParts(t, assign.Range{}, rate, parts)
	if hot := hotParts(parts); !near(hot[1<<60+1], 2, 1e-9) || !near(hot[2<<60+1], 3, 1e-9) {
		t.Errorf("hot keys %v, want loads of 2 and 3", hot)
	}
}

// Even if there are many adds between two reads, only a few of them take the meter's lock.
func TestMeterSamplesFew(t *testing.T) {
	t.Parallel()
	m := newMeter(assign.Range{}, meterStart)
	for s, most := range []int{20 * samples, 2 * samples, 2 * samples} {
		taken := 0
		for range 300_000 {
			before := m.sampled
			m.add(1, 1)
			if m.sampled != before {
				taken++
			}
		}
		if taken > most || taken < samples/2 {
			t.Errorf("%d samples in second %d, want at most %d", taken, s+1, most)
		}
		m.read(meterStart.Add(time.Duration(s+1) * time.Second))
	}
}

// The meters of a member with 2,000 shards take at most a few MB, and less if few shards have load.
func TestMeterSize(t *testing.T) {
	t.Parallel()
	for of, want := range map[reflect.Type]uintptr{
		reflect.TypeFor[meter](): 384, reflect.TypeFor[sketch](): 1536,
	} {
		if size := of.Size(); size > want {
			t.Errorf("%v has %d bytes, want at most %d", of, size, want)
		}
	}
}

// BenchmarkAdd measures the cost of a request, with goroutines that all add to one shard.
//
//	go test ./sharding -run '^$' -bench BenchmarkAdd -benchmem -cpu 8
func BenchmarkAdd(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(rng, 1.1, 1, 99_999)
	hashes := make([]uint64, 1<<16)
	for i := range hashes {
		hashes[i] = Keyspace{}.Of(fmt.Sprint(zipf.Uint64()))
	}
	m := newMeter(assign.Range{}, time.Now())
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case now := <-tick.C:
				m.read(now)
			case <-stop:
				return
			}
		}
	}()
	b.SetParallelism(max(1, 8/runtime.GOMAXPROCS(0)))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := rand.IntN(len(hashes)); pb.Next(); i++ {
			m.add(hashes[i%len(hashes)], 1)
		}
	})
}

func BenchmarkMeterRead(b *testing.B) {
	m := newMeter(assign.Range{}, meterStart)
	rng := rand.New(rand.NewPCG(1, 1))
	now := meterStart
	b.ReportAllocs()
	for b.Loop() {
		for range 10 {
			m.add(rng.Uint64(), 1)
		}
		now = now.Add(time.Millisecond)
		m.read(now)
	}
}
