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
)

var meterStart = time.Unix(1_000_000, 0)

// near reports whether x is within a share of want.
func near(x, want, share float64) bool { return math.Abs(x-want) <= share*math.Abs(want) }

// checkParts fails if the parts are not those of the range, in order, with the rate as their sum.
func checkParts(t *testing.T, r Range, rate float64, parts []Part) {
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

// hotParts returns the parts that are one hash wide.
func hotParts(parts []Part) map[uint64]float64 {
	hot := map[uint64]float64{}
	for _, p := range parts {
		if p.Range.To == p.Range.From+1 {
			hot[p.Range.From] = p.Load
		}
	}
	return hot
}

// A meter finds the rate, the hot keys and the parts of a skewed load, whatever the requests cost.
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
			m := newMeter(newLanes(), Range{}, meterStart)
			byKey, byBin, total := map[uint64]float64{}, [bins]float64{}, 0.0
			var rate float64
			var parts []Part
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
			checkParts(t, Range{}, rate, parts)
			if !near(rate, total, 0.02) {
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
				if math.Abs(got[i]-byBin[i]) > 0.01*total {
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
	m := newMeter(newLanes(), Range{}, meterStart)
	for s := range 5 {
		for range 20_000 {
			m.add(rng.Uint64(), 1)
		}
		rate, parts := m.read(meterStart.Add(time.Duration(s+1) * time.Second))
		if checkParts(t, Range{}, rate, parts); !near(rate, 20_000, 1e-9) || len(parts) != bins {
			t.Fatalf("rate %v, %d parts", rate, len(parts))
		}
		for _, p := range parts {
			if !near(p.Load, 1250, 0.15) {
				t.Errorf("%v has load %v, want 1250", p.Range, p.Load)
			}
		}
	}
}

// Requests without a cost, or with a cost that is no number, are no load.
func TestMeterIgnoresGarbage(t *testing.T) {
	t.Parallel()
	m := newMeter(newLanes(), Range{}, meterStart)
	for _, cost := range []float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), 2e30, math.MaxFloat64} {
		m.add(7, cost)
		m.count(cost)
	}
	if rate, parts := m.read(meterStart.Add(time.Second)); rate != 0 || parts != nil || len(m.grid.Load().stripes) != 0 {
		t.Errorf("rate %v, parts %v, %d stripes", rate, parts, len(m.grid.Load().stripes))
	}
	for range 1000 {
		m.add(7, maxCost)
	}
	m.add(8, math.SmallestNonzeroFloat64)
	rate, parts := m.read(meterStart.Add(2 * time.Second))
	if checkParts(t, Range{}, rate, parts); math.IsInf(rate, 0) || rate == 0 {
		t.Errorf("rate %v of the highest costs", rate)
	}
}

// Load counts half as much after ten seconds, however often it is read. After a while without load
// the meter is as good as new.
func TestMeterDecays(t *testing.T) {
	t.Parallel()
	m := newMeter(newLanes(), Range{}, meterStart)
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
		if rate := second(1000); !near(rate, 2000, 1e-9) {
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
	if !near(rate, 1000, 0.02) {
		t.Errorf("rate %v after 10 s without load, want 1000", rate)
	}
	now = now.Add(10 * time.Second)
	if rate, _ = m.read(now); !near(rate, 500, 0.35) {
		t.Errorf("rate %v after 10 s more without a read, want some 500", rate)
	}
	for range 40 {
		if rate = second(4000); rate > 8000 {
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
	if rate != 0 || m.hot != nil || len(m.grid.Load().stripes) > 1 {
		t.Errorf("rate %v and a sketch %v with %d stripes after 129 s without load", rate, m.hot, len(m.grid.Load().stripes))
	}
	for range gridReads {
		second(0)
	}
	if n := len(m.grid.Load().stripes); n != 0 {
		t.Errorf("an idle meter has %d stripes", n)
	}
}

// A shard without keys has a rate and no parts. Load without keys beside keys may lie anywhere.
func TestMeterWithoutKeys(t *testing.T) {
	t.Parallel()
	m := newMeter(newLanes(), empty, meterStart)
	m.count(3)
	m.add(1, 4) // a key that no range has
	if rate, parts := m.read(meterStart.Add(time.Second)); rate != 7 || parts != nil || m.hot != nil {
		t.Errorf("rate %v, parts %v, sketch %v", rate, parts, m.hot)
	}
	m.setRange(Range{})
	for range 7 {
		m.add(1, 1)
	}
	rate, parts := m.read(meterStart.Add(2 * time.Second))
	checkParts(t, Range{}, rate, parts)
	if hot := hotParts(parts); !near(hot[1], rate/2, 0.05) {
		t.Errorf("rate %v, hot keys %v", rate, hot)
	}
}

// After a split the load of the remaining range keeps its place, and the rest leaves the meter;
// after a merge the new range begins without load.
func TestMeterFollowsItsRange(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	low, high := uint64(5)<<60+12345, uint64(11)<<60+12345
	m := newMeter(newLanes(), Range{}, meterStart)
	now := meterStart
	fill := func(r Range) (float64, []Part) {
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
		if rate, parts := fill(Range{}); !near(rate, 10_000, 1e-9) || len(hotParts(parts)) != 2 {
			t.Fatalf("rate %v, hot keys %v", rate, hotParts(parts))
		}
	}
	for _, c := range []struct {
		r     Range
		rate  float64
		hot   []uint64
		after float64
	}{
		{Range{}, 10_000, []uint64{low, high}, 10_000},
		{Range{0, 1 << 63}, 5000, []uint64{low}, 5000},                      // a split
		{Range{1 << 62, 1 << 63}, 3000, []uint64{low}, 3000},                // another
		{Range{1 << 62, 0}, 3000, []uint64{low}, 3540},                      // a merge: 3000 for seven seconds, then 8000
		{Range{1<<62 + 12345, 1<<62 + 6<<40}, -1, nil, -1},                  // next to nothing, at no bound of a part
		{Range{math.MaxUint64 - 1<<30, 0}, -1, nil, -1}, {empty, 0, nil, 0}, // another shard has it
	} {
		m.setRange(c.r)
		rate, parts := m.read(now)
		if rate > 0 {
			checkParts(t, c.r, rate, parts)
		}
		hot := hotParts(parts)
		if c.rate >= 0 && !near(rate, c.rate, 0.05) || len(hot) != len(c.hot) {
			t.Errorf("%v: rate %v, hot keys %v, want %v and %x", c.r, rate, hot, c.rate, c.hot)
		}
		for _, h := range c.hot {
			if !near(hot[h], 1000, 0.25) {
				t.Errorf("%v: key %x has load %v, want 1000", c.r, h, hot[h])
			}
		}
		if c.after > 0 {
			rate, _ = fill(c.r)
			if !near(rate, c.after, 0.05) {
				t.Errorf("%v: rate %v after another second, want %v", c.r, rate, c.after)
			}
		}
	}
}

// Parts are also right at the ends of a range.
func TestBinsCoverTheRange(t *testing.T) {
	t.Parallel()
	for _, r := range []Range{{}, {0, 1 << 63}, {1 << 63, 0}, {3, 1<<20 + 3}, {5, 1<<20 + 20}, {math.MaxUint64 - 1<<20, 0}, {1, 0}, {0, math.MaxUint64}} {
		g := &grid{r: r, width: binWidth(r)}
		at := r.From
		for i := range bins {
			b := bin(r, i)
			if b.From != at || g.cell(b.From) != i || g.cell(b.To-1) != i || b.To-b.From < leastWidth {
				t.Errorf("part %d of %v is %v", i, r, b)
			}
			at = b.To
			// Hot keys at both ends of a part leave what is between them.
			hot := []Part{{Range{b.From, b.From + 1}, 1}, {Range{b.To - 1, b.To}, 2}}
			var rest [bins]float64
			rest[i] = 4
			checkParts(t, r, 7, lay(r, &rest, hot))
		}
		if at != r.To {
			t.Errorf("the last part of %v ends at %x", r, at)
		}
	}
	for _, r := range []Range{empty, {1, 1 << 20}, {7, 3}} {
		if binWidth(r) != 0 {
			t.Errorf("%v is divided", r)
		}
	}
}

// No added load is lost while the meter is read, changes its range and grows.
func TestMeterLosesNothing(t *testing.T) {
	t.Parallel()
	const adders, adds = 8, 5_000
	l := newLanes()
	l.stripes = 8
	m, k := newMeter(l, Range{0, 1 << 57}, meterStart), newMeter(l, empty, meterStart)
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
				m.setRange(Range{0, 1 << 56})
			case 3:
				m.grow(m.grid.Load())
				k.grow(k.grid.Load())
			case 5:
				m.setRange(Range{0, 1 << 57})
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
		// It has decayed by that many nanoseconds at most.
		if decayed := math.Exp2(-float64(n+1) / float64(halfLife)); sum < adders*adds*decayed*(1-1e-9) || sum > adders*adds*(1+1e-9) {
			t.Errorf("%s: %v of %v were counted, with %d reads", name, sum, adders*adds, n)
		}
	}
}

// A sampled key never has more than the exact load of its part.
func TestHotKeyWithinItsPart(t *testing.T) {
	t.Parallel()
	m := newMeter(newLanes(), Range{}, meterStart)
	m.add(1<<60+1, 2)
	m.add(2<<60+1, 3)
	m.sample(1<<60+1, 2) // once too often
	rate, parts := m.read(meterStart.Add(time.Second))
	checkParts(t, Range{}, rate, parts)
	if hot := hotParts(parts); !near(hot[1<<60+1], 2, 1e-9) || !near(hot[2<<60+1], 3, 1e-9) {
		t.Errorf("hot keys %v, want loads of 2 and 3", hot)
	}
}

// A late add to a replaced grid is refused, in each of its cells, and earlier adds count.
func TestRetiredGridTakesNothing(t *testing.T) {
	t.Parallel()
	m := newMeter(newLanes(), Range{}, meterStart)
	m.add(1, 5)
	g := m.grid.Load()
	for name, retire := range map[string]func(){
		"grow": func() { m.grow(g) }, "setRange": func() { m.setRange(Range{0, 1 << 63}) },
		"many reads": func() {
			for n := range gridReads {
				m.read(meterStart.Add(time.Duration(n+1) * time.Nanosecond))
			}
		},
	} {
		m.add(1, 1)
		g = m.grid.Load()
		retire()
		for cell := range bins + 1 {
			if m.grid.Load() == g || m.enter(g, m.lanes.take(), cell, 1) {
				t.Errorf("%s: cell %d of the former grid took an add", name, cell)
			}
		}
	}
	if rate, _ := m.read(meterStart.Add(time.Second)); !near(rate, 8, 1e-6) {
		t.Errorf("rate %v, want 8", rate)
	}
}

// Contention makes a grid grow, and a quiet time makes it small again.
func TestMeterGrowsWithContention(t *testing.T) {
	t.Parallel()
	l := newLanes()
	l.stripes = 4
	m := newMeter(l, Range{}, meterStart)
	m.add(1, 1)
	ln := l.take()
	for _, want := range []int{1, 2, 4, 4} {
		g := m.grid.Load()
		if len(g.stripes) != want {
			t.Fatalf("%d stripes, want %d", len(g.stripes), want)
		}
		for range maxClashes - 1 {
			m.clash(g, ln)
		}
		if m.grid.Load() != g {
			t.Fatalf("a grid of %d stripes grows too early", want)
		}
		m.clash(g, ln)
	}
	g := m.grid.Load()
	l.stripes = 8
	for range 3 { // clashes within a minute do not count like clashes within a second
		for range maxClashes - 1 {
			m.clash(g, ln)
		}
		m.turn(g, meterStart.Add(time.Second), time.Second)
	}
	if m.grid.Load() != g {
		t.Error("a grid grows with few clashes in each second")
	}
	for s := range gridReads {
		m.add(1, 1)
		m.read(meterStart.Add(time.Duration(s+1) * time.Second))
	}
	if n := len(m.grid.Load().stripes); n != 1 {
		t.Errorf("%d stripes after a minute without contention", n)
	}
}

// Between two reads few adds take the meter's lock, however many there are.
func TestMeterSamplesFew(t *testing.T) {
	t.Parallel()
	m := newMeter(newLanes(), Range{}, meterStart)
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

// A member with 2,000 shards has at most some MB of meters, and less if few have load.
func TestMeterSize(t *testing.T) {
	t.Parallel()
	for of, want := range map[reflect.Type]uintptr{
		reflect.TypeFor[meter](): 384, reflect.TypeFor[grid](): 64, reflect.TypeFor[stripe](): 192,
		reflect.TypeFor[sketch](): 1536, reflect.TypeFor[lane](): 64,
	} {
		if size := of.Size(); size > want {
			t.Errorf("%v has %d bytes, want at most %d", of, size, want)
		}
	}
}

// The price of a request, with goroutines that all add to one shard.
//
//	go test ./sharding -run '^$' -bench BenchmarkAdd -benchmem -cpu 8
func BenchmarkAdd(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(rng, 1.1, 1, 99_999)
	hashes := make([]uint64, 1<<16)
	for i := range hashes {
		hashes[i] = Keyspace{}.Of(fmt.Sprint(zipf.Uint64()))
	}
	m := newMeter(newLanes(), Range{}, time.Now())
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
	m := newMeter(newLanes(), Range{}, meterStart)
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
