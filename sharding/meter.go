package sharding

import (
	"cmp"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// bins is the number of parts of equal width of a shard's range.
	bins = 16
	// keyless is the cell of load that has no place in the range.
	keyless = bins
	// leastWidth is the least width of a part; a narrower range is not divided. So a part has
	// room for more than a hot key. If the rest is as narrow as a key, it has almost no load.
	leastWidth = 1 << 16
	// halfLife is the time after which load counts half as much.
	halfLife = 10 * time.Second
	// A key with more than hotShare of the shard's load is hot. The hottest maxHot are listed.
	hotShare = 0.02
	maxHot   = 8
	// counters is the number of keys in a sketch. It is above 1/hotShare, so that all hot keys are
	// in it.
	counters = 64
	// samples is the approximate number of adds that enter the sketch between two reads.
	samples = 512
	// maxCost is the largest cost of an add, so that no sum overflows.
	maxCost = 1e30
	// retired marks the cells of a grid that was replaced. It is a NaN. No sum is a NaN.
	retired = 0x7ff8000000000001
	// A grid doubles its stripes after maxClashes in one interval. After gridReads reads, it is
	// replaced with a grid of one stripe, so that a shard that is no longer busy frees its memory.
	maxClashes = 64
	gridReads  = 64
)

// lanes hands out lanes; all meters of a process share one value.
type lanes struct {
	idle    sync.Pool // mostly returns the lane that the same processor put back
	made    atomic.Uint32
	stripes int // of a grid, at most: a power of two, and one for each processor up to 64
}

// lane belongs to one add while that add runs. It mostly stays on one processor, so its stripes
// are in that processor's cache. A random stripe for each add would be in another processor's
// cache.
type lane struct {
	stripe uint32
	seed   uint64
	_      [48]byte // a cache line
}

func newLanes() *lanes {
	l := &lanes{stripes: 1}
	for l.stripes < min(runtime.GOMAXPROCS(0), 64) {
		l.stripes *= 2
	}
	return l
}

func (l *lanes) take() *lane {
	if ln, ok := l.idle.Get().(*lane); ok {
		return ln
	}
	return &lane{stripe: l.made.Add(1), seed: rand.Uint64()}
}

// random returns a number from 0 to 1, by a linear congruential generator (Knuth's MMIX).
func (ln *lane) random() float64 {
	ln.seed = ln.seed*6364136223846793005 + 1442695040888963407
	return float64(ln.seed>>11) / (1 << 53)
}

// stripe holds the costs added since the last read, by part, as bits of a float64.
type stripe struct {
	cells [bins + 1]atomic.Uint64
	_     [56]byte // up to whole cache lines
}

// grid receives adds. If there are enough stripes, each processor has its own.
type grid struct {
	r       Range
	width   uint64
	stripes []stripe // none, or a power of two
	clashes atomic.Int32
}

// cell returns the cell of a hash.
func (g *grid) cell(hash uint64) int {
	if g.width == 0 || !g.r.Has(hash) {
		return keyless
	}
	return int(min((hash-g.r.From)/g.width, bins-1))
}

// meter measures the load of one shard: its rate, its distribution in the shard's range, and its
// hottest keys. It takes about 350 bytes. Once there is load, each stripe takes 200 bytes more.
// An uncontended shard has one stripe. Keys take 1.5 KiB more.
type meter struct {
	lanes *lanes
	grid  atomic.Pointer[grid]
	// step is the cost per sample, as bits of a float64. An add of at least that cost enters the
	// sketch. A cheaper add enters it with a probability of cost/step, as if it cost step. So each
	// key's expected cost is its full cost, and rare expensive keys are not missed. This is
	// threshold sampling (Duffield, Lund and Thorup, 2005).
	step atomic.Uint64

	// mu guards the rest. Reads and sampled adds take it, which happens a few hundred times a
	// second. So it is seldom contended, and processors seldom lose the cache line above.
	mu      sync.Mutex
	last    time.Time // of the last read
	busy    time.Time // of the last read that found load
	reads   int
	seconds float64           // the time measured, decayed like the sums: a rate is their quotient
	sums    [bins + 1]float64 // of costs, by cell, decayed
	fresh   float64           // costs added since the last read
	sampled int               // since the step was set
	weight  float64           // the sum of the samples' weights
	hot     *sketch           // nil until there are keys
}

// newMeter returns a meter of a shard with that range. An empty range is for a shard without keys.
func newMeter(l *lanes, r Range, now time.Time) *meter {
	m := &meter{lanes: l, last: now, busy: now}
	m.grid.Store(&grid{r: r, width: binWidth(r)})
	return m
}

// add counts the cost of a request for a key. It ignores costs that are negative, not finite, or
// above 1e30.
func (m *meter) add(hash uint64, cost float64) {
	if !(cost > 0 && cost <= maxCost) {
		return
	}
	ln := m.lanes.take()
	step := math.Float64frombits(m.step.Load())
	sample := cost >= step || ln.random()*step < cost
	for {
		g := m.grid.Load()
		if m.enter(g, ln, g.cell(hash), cost) {
			break
		}
	}
	m.lanes.idle.Put(ln)
	if sample {
		m.sample(hash, max(cost, step))
	}
}

// count counts the cost of a request without a key.
func (m *meter) count(cost float64) {
	if !(cost > 0 && cost <= maxCost) {
		return
	}
	ln := m.lanes.take()
	for !m.enter(m.grid.Load(), ln, keyless, cost) {
	}
	m.lanes.idle.Put(ln)
}

// enter adds a cost to a cell. If it returns false, the caller loads the grid again and retries.
func (m *meter) enter(g *grid, ln *lane, cell int, cost float64) bool {
	if len(g.stripes) == 0 {
		m.grow(g)
		return false
	}
	c := &g.stripes[ln.stripe&uint32(len(g.stripes)-1)].cells[cell]
	old := c.Load()
	if old == retired {
		return false
	}
	if c.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+cost)) {
		return true
	}
	m.clash(g, ln)
	return false
}

// clash gives the lane another stripe after two adds met in the same one. If that happens
// often, clash doubles the stripes, like Java's Striped64 (Lea).
func (m *meter) clash(g *grid, ln *lane) {
	ln.stripe = uint32(ln.random() * 64)
	if len(g.stripes) < m.lanes.stripes && g.clashes.Add(1) == maxClashes {
		m.grow(g)
	}
}

// grow doubles the stripes of a grid, if it is still in use.
func (m *meter) grow(g *grid) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.grid.Load() == g {
		m.replace(g, g.r, max(1, 2*len(g.stripes)))
	}
}

// replace moves the costs in a grid to the sums, and retires its cells. Adds that still use this
// grid go to the new one. The caller holds the lock.
func (m *meter) replace(g *grid, r Range, stripes int) {
	m.grid.Store(&grid{r: r, width: binWidth(r), stripes: make([]stripe, stripes)})
	m.drain(g, retired)
}

// drain moves the costs in a grid to the sums, and stores a value in all cells.
func (m *meter) drain(g *grid, leave uint64) {
	for i := range g.stripes {
		for k := range g.stripes[i].cells {
			c := &g.stripes[i].cells[k]
			if c.Load() == leave {
				continue // a read leaves the cache line of an idle stripe in its place
			}
			cost := math.Float64frombits(c.Swap(leave))
			m.sums[k] += cost
			m.fresh += cost
		}
	}
}

// sample puts a key in the sketch. If there are too many samples for one interval, it raises the
// step immediately, before the next read does.
func (m *meter) sample(hash uint64, weight float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.grid.Load().cell(hash) != keyless {
		if m.hot == nil {
			m.hot = &sketch{}
		}
		m.hot.add(hash, weight)
	}
	m.sampled++
	if m.weight += weight; m.sampled == samples {
		m.step.Store(math.Float64bits(2 * m.weight / samples))
		m.sampled, m.weight = 0, 0
	}
}

// setRange changes the shard's range. Load outside the new range goes to another shard with its
// keys. A new part begins without load.
func (m *meter) setRange(r Range) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.grid.Load()
	if g.r == r {
		return
	}
	m.replace(g, r, min(1, len(g.stripes)))
	_, parts := m.layout(g)
	if parts != nil {
		clear(m.sums[:])
	}
	for _, p := range parts {
		spread((*[bins]float64)(m.sums[:]), r, p)
	}
	if m.hot != nil {
		m.hot.keep(r)
	}
}

// read returns the cost per second, and its distribution in the range as 16 parts of equal width,
// in the order of hashes. A hot key is a part of its own, and divides the part in which it lies in
// two. If no request had a key, parts is nil. It is called about once a second, by one goroutine at
// a time.
func (m *meter) read(now time.Time) (rate float64, parts []Part) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.grid.Load()
	if d := now.Sub(m.last); d > 0 {
		m.turn(g, now, d)
	}
	if m.seconds == 0 {
		return 0, nil
	}
	rate, parts = m.layout(g)
	for i := range parts {
		parts[i].Load /= m.seconds
	}
	return rate / m.seconds, parts
}

// turn ends an interval of length d.
func (m *meter) turn(g *grid, now time.Time, d time.Duration) {
	if m.reads++; m.reads%gridReads == 0 {
		stripes := 0
		if m.busy.Equal(m.last) { // otherwise the next adds would all wait for the lock to make one
			stripes = 1
		}
		m.replace(g, g.r, stripes)
	} else {
		m.drain(g, 0)
		g.clashes.Store(0)
	}
	m.seconds += d.Seconds()
	m.step.Store(math.Float64bits(m.fresh / samples))
	if m.fresh > 0 {
		m.busy = now
	} else if now.Sub(m.busy) > 10*halfLife {
		clear(m.sums[:]) // a thousandth is left: the shard is idle, and its reports end
		m.hot = nil
	}
	m.last, m.fresh, m.sampled, m.weight = now, 0, 0, 0
	// Sums and time decay in the same way, so the rate stays the same until more of either
	// arrives.
	f := math.Exp2(-float64(d) / float64(halfLife))
	m.seconds *= f
	for i := range m.sums {
		m.sums[i] *= f
	}
	if m.hot != nil {
		m.hot.decay(f)
	}
}

// layout returns the sum of the costs, and its parts in the range of a grid.
func (m *meter) layout(g *grid) (sum float64, parts []Part) {
	for _, x := range m.sums {
		sum += x
	}
	if g.width == 0 || sum == m.sums[keyless] {
		return sum, nil
	}
	var hot []Part
	if m.hot != nil {
		hot = m.hot.hottest(hotShare * sum)
	}
	rest := [bins]float64(m.sums[:])
	for i := range rest {
		rest[i] += m.sums[keyless] / bins // it may lie anywhere
	}
	for i := range hot {
		x := &rest[g.cell(hot[i].Range.From)]
		hot[i].Load = min(hot[i].Load, *x)
		*x -= hot[i].Load
	}
	return sum, lay(g.r, &rest, hot)
}

// binWidth returns the width of a part of a range, or 0 if the range is not divided. The last part
// also has the remainder.
func binWidth(r Range) uint64 {
	if r == (Range{}) {
		return 1 << 64 / bins
	}
	if w := (r.To - r.From) / bins; w >= leastWidth && !r.Empty() {
		return w
	}
	return 0
}

// bin returns the i-th part of a range that is divided.
func bin(r Range, i int) Range {
	w := binWidth(r)
	b := Range{r.From + uint64(i)*w, r.From + uint64(i+1)*w}
	if i == bins-1 {
		b.To = r.To
	}
	return b
}

// spread adds the load of p to the parts of r that it overlaps, in proportion.
func spread(sums *[bins]float64, r Range, p Part) {
	if binWidth(r) == 0 || p.Range.Empty() {
		return
	}
	first, last := p.Range.From, p.Range.To-1
	for i := range sums {
		b := bin(r, i)
		from, to := max(first, b.From), min(last, b.To-1)
		if from <= to {
			sums[i] += p.Load * (float64(to-from) + 1) / (float64(last-first) + 1)
		}
	}
}

// lay returns the parts of r, without the hot keys' load, and the hot keys, all in order of hashes.
func lay(r Range, rest *[bins]float64, hot []Part) []Part {
	out := make([]Part, 0, bins+2*len(hot))
	for i, load := range rest {
		b := bin(r, i)
		n := 0
		for n < len(hot) && b.Has(hot[n].Range.From) {
			n++
		}
		room, at := float64(b.To-b.From-uint64(n)), b.From
		piece := func(to uint64) { // b.To may be 0, for 2^64: the difference is right, too
			if to != at {
				out = append(out, Part{Range{at, to}, load * (float64(to-at) / room)})
			}
		}
		for _, key := range hot[:n] {
			piece(key.Range.From)
			out = append(out, key)
			at = key.Range.To
		}
		piece(b.To)
		hot = hot[n:]
	}
	return out
}

// sketch counts the keys with the most load. It uses space-saving (Metwally, Agrawal and El
// Abbadi, 2005), with counts that decay. A key without a counter takes over the lowest one and
// adds to it.
type sketch struct {
	hash  [counters]uint64
	count [counters]float64 // 0: free
	over  [counters]float64 // the part of the count that earlier keys may have
}

func (s *sketch) add(hash uint64, weight float64) {
	least := 0
	for i, h := range s.hash {
		if h == hash && s.count[i] > 0 {
			s.count[i] += weight
			return
		}
		if s.count[i] < s.count[least] {
			least = i
		}
	}
	s.hash[least], s.over[least] = hash, s.count[least]
	s.count[least] += weight
}

func (s *sketch) decay(f float64) {
	for i := range s.count {
		s.count[i] *= f
		s.over[i] *= f
	}
}

// keep forgets keys outside a range.
func (s *sketch) keep(r Range) {
	for i, h := range s.hash {
		if !r.Has(h) {
			s.count[i] = 0
		}
	}
}

// hottest lists the keys that certainly have more than least, at most maxHot, in order of hashes.
// The part of a count that comes from earlier keys is left out. It decays while the key stays hot.
func (s *sketch) hottest(least float64) []Part {
	var out []Part
	for i, h := range s.hash {
		if x := s.count[i] - s.over[i]; x > least {
			out = append(out, Part{Range{h, h + 1}, x})
		}
	}
	slices.SortFunc(out, func(a, b Part) int { return cmp.Compare(b.Load, a.Load) })
	out = out[:min(len(out), maxHot)]
	slices.SortFunc(out, func(a, b Part) int { return cmp.Compare(a.Range.From, b.Range.From) })
	return out
}
