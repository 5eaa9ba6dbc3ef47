package sharding

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/sharding/assign"
)

const (
	// A shard's range is divided into this number of equal parts.
	bins = 16
	// The last cell is for load that cannot be placed in a part of the range.
	keyless = bins
	// The meter does not divide a range into parts narrower than leastWidth. A single hot key
	// therefore never fills a whole part.
	leastWidth = 1 << 16
	// After each halfLife, a load's weight is halved.
	halfLife = 10 * time.Second
	// A key with more than hotShare of the shard's load is hot. A meter lists at most maxHot hot
	// keys.
	hotShare = 0.02
	maxHot   = 8
	// The number of keys in a sketch exceeds 1/hotShare, so that the sketch contains all hot keys.
	counters = 64
	// About this many adds enter the sketch between two reads.
	samples = 512
	// The limit on an add's cost prevents the sums from overflowing.
	maxCost = 1e30
)

// From samples, meter estimates a shard's rate, its distribution in the shard's range, and its
// hottest keys, with an error of about 1 %. A meter takes about 300 bytes, and another 1.5 KiB once
// requests have keys.
type meter struct {
	// step contains the bits of a float64, the cost per sample. An add that costs at least step is
	// always a sample. A cheaper add becomes a sample with the probability cost/step, and then
	// counts as if its cost were step. Therefore, the expected sum equals the sum of the costs, and
	// rare expensive keys are not missed. The method is threshold sampling (Duffield, Lund and
	// Thorup, 2005).
	step atomic.Uint64

	// mu guards the fields below. Only a few hundred reads and samples a second lock mu, so it is
	// seldom contended.
	mu      sync.Mutex
	r       assign.Range
	width   uint64    // width of a part of r, or 0 if r is not divided
	last    time.Time // time of the last read
	busy    time.Time // time of the last read that found load
	seconds float64   // the measured time, which decays like the sums; a rate is a sum divided by seconds
	sums    [bins + 1]float64
	fresh   float64 // costs added since the last read
	sampled int     // number of samples since the step was set
	weight  float64 // the sum of the samples' weights
	hot     *sketch // nil until there are keys
}

// If the shard has no keys, r is empty.
func newMeter(r assign.Range, now time.Time) *meter {
	return &meter{r: r, width: binWidth(r), last: now, busy: now}
}

func (m *meter) cell(hash uint64) int {
	if m.width == 0 || !m.r.Has(hash) {
		return keyless
	}
	return int(min((hash-m.r.From)/m.width, bins-1))
}

// Costs that are negative, not finite, or above 1e30 are ignored.
func (m *meter) add(hash uint64, cost float64) {
	if weight := m.sampleOf(cost); weight > 0 {
		m.mu.Lock()
		defer m.mu.Unlock()
		at := m.cell(hash)
		if at != keyless {
			if m.hot == nil {
				m.hot = &sketch{}
			}
			m.hot.add(hash, weight)
		}
		m.sample(at, weight)
	}
}

func (m *meter) count(cost float64) {
	if weight := m.sampleOf(cost); weight > 0 {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.sample(keyless, weight)
	}
}

// If the add is not a sample, sampleOf returns 0.
func (m *meter) sampleOf(cost float64) float64 {
	if !(cost > 0 && cost <= maxCost) {
		return 0
	}
	step := math.Float64frombits(m.step.Load())
	if cost >= step {
		return cost
	}
	if rand.Float64()*step < cost {
		return step
	}
	return 0
}

// If the interval already has too many samples, sample raises the step immediately instead of at
// the next read. The caller holds m.mu.
func (m *meter) sample(at int, weight float64) {
	m.sums[at] += weight
	m.fresh += weight
	m.sampled++
	if m.weight += weight; m.sampled == samples {
		m.step.Store(math.Float64bits(2 * m.weight / samples))
		m.sampled, m.weight = 0, 0
	}
}

// setRange drops the load outside the new range, because other shards now serve those keys. A new
// part of the range begins without load.
func (m *meter) setRange(r assign.Range) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.r == r {
		return
	}
	_, parts := m.layout()
	m.r, m.width = r, binWidth(r)
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

// read returns the cost per second, divided among 16 parts of equal width, in the order of hashes.
// A hot key is a separate part, and divides the part around it in two. If no request had a key,
// parts is nil. One goroutine at a time calls read, about once a second.
func (m *meter) read(now time.Time) (rate float64, parts []assign.Part) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := now.Sub(m.last); d > 0 {
		m.turn(now, d)
	}
	if m.seconds == 0 {
		return 0, nil
	}
	rate, parts = m.layout()
	for i := range parts {
		parts[i].Load /= m.seconds
	}
	return rate / m.seconds, parts
}

func (m *meter) turn(now time.Time, d time.Duration) {
	m.seconds += d.Seconds()
	m.step.Store(math.Float64bits(m.fresh / samples))
	if m.fresh > 0 {
		m.busy = now
	} else if now.Sub(m.busy) > 10*halfLife {
		clear(m.sums[:]) // only a thousandth of the load is left, so the shard counts as idle, and its reports end
		m.hot = nil
	}
	m.last, m.fresh, m.sampled, m.weight = now, 0, 0, 0
	// The sums and the measured time decay by the same factor, so the decay does not change the
	// rate.
	f := math.Exp2(-float64(d) / float64(halfLife))
	m.seconds *= f
	for i := range m.sums {
		m.sums[i] *= f
	}
	if m.hot != nil {
		m.hot.decay(f)
	}
}

func (m *meter) layout() (sum float64, parts []assign.Part) {
	for _, x := range m.sums {
		sum += x
	}
	if m.width == 0 || sum == m.sums[keyless] {
		return sum, nil
	}
	var hot []assign.Part
	if m.hot != nil {
		hot = m.hot.hottest(hotShare * sum)
	}
	rest := [bins]float64(m.sums[:])
	for i := range rest {
		rest[i] += m.sums[keyless] / bins // this load may be anywhere in the range
	}
	for i := range hot {
		x := &rest[m.cell(hot[i].Range.From)]
		hot[i].Load = min(hot[i].Load, *x)
		*x -= hot[i].Load
	}
	return sum, lay(m.r, &rest, hot)
}

// If a range is too narrow to be divided, binWidth returns 0. The last part also includes the
// remainder.
func binWidth(r assign.Range) uint64 {
	if r == (assign.Range{}) {
		return 1 << 64 / bins
	}
	if w := (r.To - r.From) / bins; w >= leastWidth && !r.Empty() {
		return w
	}
	return 0
}

func bin(r assign.Range, i int) assign.Range {
	w := binWidth(r)
	b := assign.Range{From: r.From + uint64(i)*w, To: r.From + uint64(i+1)*w}
	if i == bins-1 {
		b.To = r.To
	}
	return b
}

// spread distributes p's load among the parts of r that p overlaps, in proportion to the overlap.
func spread(sums *[bins]float64, r assign.Range, p assign.Part) {
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

// The parts and the hot keys are in the order of hashes. The parts' loads exclude the hot keys'
// load.
func lay(r assign.Range, rest *[bins]float64, hot []assign.Part) []assign.Part {
	out := make([]assign.Part, 0, bins+2*len(hot))
	for i, load := range rest {
		b := bin(r, i)
		n := 0
		for n < len(hot) && b.Has(hot[n].Range.From) {
			n++
		}
		room, at := float64(b.To-b.From-uint64(n)), b.From
		piece := func(to uint64) { // also right if b.To is 0, which represents 2^64
			if to != at {
				out = append(out, assign.Part{Range: assign.Range{From: at, To: to}, Load: load * (float64(to-at) / room)})
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

// sketch finds the keys with the most load by the Space-Saving algorithm (Metwally, Agrawal and El
// Abbadi, 2005), with decaying counts. A key without a counter takes over the lowest counter and
// adds its weight to that count.
type sketch struct {
	hash  [counters]uint64
	count [counters]float64 // 0: free
	over  [counters]float64 // the part of the count that may belong to earlier keys
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

func (s *sketch) keep(r assign.Range) {
	for i, h := range s.hash {
		if !r.Has(h) {
			s.count[i] = 0
		}
	}
}

// hottest lists up to maxHot keys whose own load certainly exceeds least, in the order of hashes.
// The part of a count that may belong to the counter's earlier keys is ignored, and decays while
// the key stays hot.
func (s *sketch) hottest(least float64) []assign.Part {
	var out []assign.Part
	for i, h := range s.hash {
		if x := s.count[i] - s.over[i]; x > least {
			out = append(out, assign.Part{Range: assign.Range{From: h, To: h + 1}, Load: x})
		}
	}
	slices.SortFunc(out, func(a, b assign.Part) int { return cmp.Compare(b.Load, a.Load) })
	out = out[:min(len(out), maxHot)]
	slices.SortFunc(out, func(a, b assign.Part) int { return cmp.Compare(a.Range.From, b.Range.From) })
	return out
}
