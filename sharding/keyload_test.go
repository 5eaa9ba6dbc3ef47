package sharding

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/sharding/assign"
)

// A KeyLoad is the load of a keyspace's keys.
type KeyLoad struct {
	rng    *rand.Rand
	noise  float64
	hashes []uint64 // of the keys, ascending
	weight []float64
	sum    []float64 // of the weights before each key
	rank   []int     // keys, by weight at first
	big    []int     // keys that can be hot, by hash
	tide   float64   // a key's load is its weight multiplied by tide

	mean    []float64                     // by key; nil without waves
	reports map[assign.Range]*shardReport // without new noise
}

const hotKeys = 4000

func newKeyLoad(seed uint64, keys int, zipf float64) *KeyLoad {
	w := &KeyLoad{rng: rand.New(rand.NewPCG(seed, 1)), noise: 0.03, tide: 1}
	state := seed
	w.hashes = make([]uint64, keys)
	for i := range w.hashes { // SplitMix64
		state += 0x9e3779b97f4a7c15
		w.hashes[i] = keyspace.Rank(state, 0)
	}
	slices.Sort(w.hashes)
	w.weight, w.sum = make([]float64, keys), make([]float64, keys+1)
	w.rank = w.rng.Perm(keys)
	for r, k := range w.rank {
		w.weight[k] = math.Pow(float64(r+1), -zipf)
	}
	w.big = slices.Sorted(slices.Values(w.rank[:min(hotKeys, keys)]))
	w.add()
	return w
}

func (w *KeyLoad) add() {
	for i, x := range w.weight {
		w.sum[i+1] = w.sum[i] + x
	}
}

// at returns the first key whose hash is at least h. Hashes are evenly distributed, so the first
// guess is close.
func (w *KeyLoad) at(h uint64) int {
	n := len(w.hashes)
	guess := int(float64(h) / (1 << 64) * float64(n))
	step := 64
	lo, hi := max(guess-step, 0), min(guess+step, n)
	for lo > 0 && w.hashes[lo-1] >= h {
		step *= 4
		lo = max(lo-step, 0)
	}
	for hi < n && w.hashes[hi] < h {
		step *= 4
		hi = min(hi+step, n)
	}
	i, _ := slices.BinarySearch(w.hashes[lo:hi], h)
	return lo + i
}

func (w *KeyLoad) load(r assign.Range) float64 {
	if r.Empty() {
		return 0
	}
	to := len(w.hashes)
	if r.To != 0 {
		to = w.at(r.To)
	}
	return max(w.sum[to]-w.sum[w.at(r.From)], 0)
}

func (w *KeyLoad) noisy(x float64) float64 {
	return w.tide * x * max(1+w.noise*w.rng.NormFloat64(), 0.1)
}

// hottest yields the keys of a range that can be hot.
func (w *KeyLoad) hottest(r assign.Range) []int {
	from, _ := slices.BinarySearchFunc(w.big, r.From, func(k int, h uint64) int { return cmp.Compare(w.hashes[k], h) })
	to := len(w.big)
	if r.To != 0 {
		to, _ = slices.BinarySearchFunc(w.big, r.To, func(k int, h uint64) int { return cmp.Compare(w.hashes[k], h) })
	}
	return w.big[from:to]
}

// report sets the load that an owner reports for a range. It consists of 16 parts of the same
// width, and up to 8 keys that each have more than a twentieth of the load.
func (w *KeyLoad) report(s *assign.Shard) {
	load := w.load(s.Range)
	s.Load, s.Parts = w.noisy(load), []assign.Part{}
	hot := slices.Clone(w.hottest(s.Range))
	hot = slices.DeleteFunc(hot, func(k int) bool { return w.weight[k] <= load/20 })
	slices.SortFunc(hot, func(a, b int) int { return cmp.Compare(w.weight[b], w.weight[a]) })
	hot = hot[:min(len(hot), 8)]
	slices.Sort(hot)
	last := s.Range.To - 1
	width := (last - s.Range.From) / 16
	from := s.Range.From
	add := func(r assign.Range) {
		if from = r.To; r.Empty() || r.From == r.To {
			return
		}
		s.Parts = append(s.Parts, assign.Part{Range: r, Load: w.noisy(w.load(r))})
	}
	for i := range 16 {
		end := s.Range.From + uint64(i+1)*width
		if i == 15 || width == 0 {
			end = s.Range.To
		}
		for len(hot) > 0 && w.hashes[hot[0]] >= from && w.hashes[hot[0]] <= end-1 {
			h := w.hashes[hot[0]]
			hot = hot[1:]
			if h > from {
				add(assign.Range{From: from, To: h})
			}
			add(assign.Range{From: h, To: h + 1})
		}
		if from <= end-1 && from != s.Range.To || i == 0 && width == 0 && len(s.Parts) == 0 {
			add(assign.Range{From: from, To: end})
		}
		if width == 0 {
			break
		}
	}
}

// swap exchanges the loads of two keys, one of which is hot.
func (w *KeyLoad) swap(hot, with int) {
	a, b := w.rank[hot], w.rank[with]
	w.weight[a], w.weight[b] = w.weight[b], w.weight[a]
	w.rank[hot], w.rank[with] = b, a
	i, _ := slices.BinarySearch(w.big, a)
	if with >= hotKeys {
		w.big = slices.Delete(w.big, i, i+1)
		i, _ = slices.BinarySearch(w.big, b)
		w.big = slices.Insert(w.big, i, b)
	}
	w.add()
}

// NewKeyLoad returns the load of keys that follow Zipf's law.
func NewKeyLoad(seed uint64, keys int, zipf float64) *KeyLoad { return newKeyLoad(seed, keys, zipf) }

const (
	waves = 16  // parts of the keyspace, whose waves have different phases
	swell = 0.5 // amplitude of a wave, as a fraction of the mean
)

// Drift sets the load for a time of the day: the load of each part of the keyspace is a wave with a
// period of one day. The keys are weighted again from their average load.
func (w *KeyLoad) Drift(day float64) {
	if w.mean == nil {
		w.mean = slices.Clone(w.weight)
	}
	var at [waves]float64
	for i := range at {
		at[i] = 1 + swell*math.Sin(2*math.Pi*(day+float64(i*7%waves)/waves))
	}
	for k, h := range w.hashes {
		w.weight[k] = w.mean[k] * at[h>>60]
	}
	w.add()
	clear(w.reports)
}

// Swap exchanges the loads of one of the hottest keys and a cold key.
func (w *KeyLoad) Swap(hottest int) {
	hot, cold := w.rng.IntN(hottest), hotKeys+w.rng.IntN(len(w.rank)-hotKeys)
	a, b := w.rank[hot], w.rank[cold]
	w.mean[a], w.mean[b] = w.mean[b], w.mean[a]
	w.swap(hot, cold)
	clear(w.reports)
}

// Key returns the hash of a random key. The probability of each key is in proportion to its load.
func (w *KeyLoad) Key() uint64 {
	i, _ := slices.BinarySearch(w.sum, w.rng.Float64()*w.Total())
	return w.hashes[min(i, len(w.hashes)-1)]
}

// Total returns the total load.
func (w *KeyLoad) Total() float64 { return w.sum[len(w.weight)] }

// Load returns the load of a range.
func (w *KeyLoad) Load(r assign.Range) float64 { return w.load(r) }

// Hottest returns the load of a range's hottest key.
func (w *KeyLoad) Hottest(r assign.Range) (most float64) {
	for _, k := range w.hottest(r) {
		most = max(most, w.weight[k])
	}
	return most
}

// A Teller is a member that reports its load, as Manager.tellLoad does.
type Teller struct {
	last    *report
	carrier string
	told    time.Duration
}

// Tell returns the report that is due from a member with these ranges, or nil if no report is due.
func (w *KeyLoad) Tell(t *Teller, now, interval time.Duration, members int, session core.SessionID, capacity float64,
	shards []string, ranges []assign.Range,
) []byte {
	if len(shards) == 0 || t.last != nil && now-t.told < reportEvery(members, interval) {
		return nil
	}
	r := &report{Session: session, Capacity: capacity}
	for i, name := range shards {
		exact := w.reports[ranges[i]]
		if exact == nil {
			s := assign.Shard{Range: ranges[i]}
			w.report(&s)
			exact = &shardReport{Rate: s.Load, Parts: s.Parts}
			if w.reports == nil {
				w.reports = map[assign.Range]*shardReport{}
			}
			w.reports[ranges[i]] = exact
		}
		noise := w.noisy(1)
		s := shardReport{Name: name, Rate: exact.Rate * noise, Parts: slices.Clone(exact.Parts)}
		for k := range s.Parts {
			s.Parts[k].Load *= noise
		}
		r.Shards = append(r.Shards, s)
	}
	if !r.differs(t.last) && (t.last == nil || shards[0] == t.carrier) {
		return nil
	}
	t.last, t.carrier, t.told = r, shards[0], now
	return r.encode(maxReport)
}
