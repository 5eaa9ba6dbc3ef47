package sharding

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/shape"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/sharding/assign"
)

// A trace is a keyspace under load, with members and owners, but without a store. In each interval,
// every owner reports the rates of its ranges, with some noise, and one plan is made and carried
// out. A range that was split or merged is busy for one interval, and its load is estimated from
// its Parts.
type trace struct {
	*KeyLoad
	a                     assign.Balance
	blind                 bool // the loads of split or merged ranges are not estimated
	members               []assign.Member
	shards                []assign.Shard
	fresh                 map[string]float64 // estimates, for one interval
	begun                 int
	named                 int
	number                int64
	ledger                []float64 // moved, by interval
	urgent                []bool
	worst                 []float64 // by interval
	raw                   []float64
	splits, merges, moves int
	most, least           int // shards
}

func newTrace(seed uint64, keys int, zipf float64, members, shards int) *trace {
	w := &trace{KeyLoad: newKeyLoad(seed, keys, zipf), begun: shards, fresh: map[string]float64{}, number: 1}
	for i := range members {
		w.members = append(w.members, assign.Member{ID: core.SessionID(fmt.Sprintf("s%04d", i)), Node: fmt.Sprintf("n%d", i), Weight: 1})
	}
	for i := range shards {
		r := assign.Range{From: uint64(float64(i)/float64(shards)*(1<<32)) << 32, To: uint64(float64(i+1)/float64(shards)*(1<<32)) << 32}
		w.shards = append(w.shards, assign.Shard{Name: w.name(), Owner: assign.None, Range: r})
	}
	first := w.a.Plan(&assign.Cluster{Members: w.members, Shards: w.shards, Begun: shards})
	for _, m := range first.Moves {
		w.shards[m.Shard].Owner = m.To
	}
	return w
}

func (w *trace) name() string {
	w.named++
	return fmt.Sprintf("orders-%06d", w.named-1)
}

func (w *trace) step(t testing.TB) *assign.Plan {
	t.Helper()
	c := &assign.Cluster{Members: w.members, Begun: w.begun}
	for i := range w.shards {
		s := w.shards[i]
		if x, ok := w.fresh[s.Name]; ok {
			if s.Busy = true; !w.blind {
				s.Load = x
			}
		} else {
			w.report(&s)
		}
		c.Shards = append(c.Shards, s)
	}
	clear(w.fresh)
	for i := max(len(w.ledger)-59, 0); i < len(w.ledger); i++ {
		c.Moved += w.ledger[i]
		c.Urgent = c.Urgent || w.urgent[i]
	}
	p := w.a.Plan(c)
	shape.Check(t, c, p)
	w.number++
	w.moves += len(p.Moves)
	w.splits += len(p.Splits)
	w.merges += len(p.Merges)
	w.ledger, w.urgent = append(w.ledger, p.Moved), append(w.urgent, p.Urgent)
	for _, m := range p.Moves {
		w.shards[m.Shard].Owner, w.shards[m.Shard].Moved = m.To, w.number
	}
	for _, m := range p.Merges {
		from, to := &w.shards[m.From], &w.shards[m.To]
		w.fresh[to.Name] = c.Shards[m.From].Load + c.Shards[m.To].Load
		to.Range = assign.Range{From: min(from.Range.From, to.Range.From), To: max(from.Range.To-1, to.Range.To-1) + 1}
		from.Range = empty
	}
	for _, x := range p.Splits {
		s := &w.shards[x.Shard]
		ends := append(slices.Clone(x.At), s.Range.To)
		s.Range.To = x.At[0]
		w.fresh[s.Name] = c.Shards[x.Shard].Within(s.Range)
		for i, h := range x.At {
			n := assign.Shard{Name: w.name(), Owner: w.shards[x.Shard].Owner, Moved: w.number, Range: assign.Range{From: h, To: ends[i+1]}}
			w.fresh[n.Name] = c.Shards[x.Shard].Within(n.Range)
			w.shards = append(w.shards, n)
		}
	}
	w.shards = slices.DeleteFunc(w.shards, func(s assign.Shard) bool { return s.Range.Empty() })
	w.judge()
	return p
}

func (w *trace) judge() {
	of, hot := make([]float64, len(w.members)), make([]float64, len(w.members))
	for i := range w.shards {
		s := &w.shards[i]
		of[s.Owner] += w.load(s.Range)
		for _, k := range w.hottest(s.Range) {
			hot[s.Owner] = max(hot[s.Owner], w.weight[k])
		}
	}
	mean := w.sum[len(w.weight)] / float64(len(w.members))
	worst, raw := 0.0, 0.0
	for m := range of {
		worst = max(worst, of[m]/max(mean, hot[m]))
		raw = max(raw, of[m]/mean)
	}
	w.worst, w.raw = append(w.worst, worst), append(w.raw, raw)
	w.most = max(w.most, len(w.shards))
	if w.least == 0 {
		w.least = len(w.shards)
	}
	w.least = min(w.least, len(w.shards))
}

// minute finds the 60 intervals in which the most load moved, beginning at the given interval. It
// returns this load, as a fraction of all load, and the first of these intervals.
func (w *trace) minute(from int) (most float64, when int) {
	for i := from; i < len(w.ledger); i++ {
		sum := 0.0
		for j := i; j < min(i+60, len(w.ledger)); j++ {
			sum += w.ledger[j]
		}
		if sum > most {
			most, when = sum, i
		}
	}
	return most / w.sum[len(w.weight)], when
}

func (w *trace) String() string {
	n := len(w.worst) - 1
	return fmt.Sprintf("%.3f times its goal, %.3f times the mean; %d to %d shards, %d now; %d moves, %d splits, %d merges",
		w.worst[n], w.raw[n], w.least, w.most, len(w.shards), w.moves, w.splits, w.merges)
}

func (w *trace) changes() int { return w.moves + w.splits + w.merges }

func highest(of []float64, from int) float64 { return slices.Max(of[from:]) }

// TestZipf: the load of 1,000,000 keys is evenly distributed over 50 members after ten intervals.
//
//	go test ./sharding -run TestZipf -v
func TestZipf(t *testing.T) {
	for _, zipf := range []float64{0.8, 1.1, 1.4} {
		for _, shards := range []int{50, 200} {
			w := newTrace(1, 1_000_000, zipf, 50, shards)
			for range 10 {
				w.step(t)
			}
			moved, _ := w.minute(0)
			t.Logf("Zipf %.1f from %d ranges: %.2f\n%v; %.1f %% moved", zipf, shards, w.worst, w, 100*moved)
			if got := w.worst[9]; got > 1.15 {
				t.Errorf("Zipf %.1f from %d ranges: a member has %.3f times its goal after 10 intervals", zipf, shards, got)
			}
			if most := shards + 16*50; w.most > most || w.least < shards {
				t.Errorf("%d to %d ranges, want %d to %d", w.least, w.most, shards, most)
			}
		}
	}
}

// If the loads of new ranges are not estimated, the owners' reports are used one interval later.
func TestZipfWithoutEstimates(t *testing.T) {
	t.Parallel()
	w := newTrace(2, 100_000, 1.1, 20, 40)
	w.blind = true
	for range 120 {
		w.step(t)
	}
	calm := w.changes()
	for range 120 {
		w.step(t)
	}
	t.Logf("%d changes, then %d more; %v", calm, w.changes()-calm, w)
	if got := highest(w.worst, 20); got > 1.15 || w.changes()-calm > 10 {
		t.Errorf("a member has %.3f times its goal, or there is no end", got)
	}
}

// isLong reports whether -long is set, which another package of this directory defines.
func isLong() bool {
	f := flag.Lookup("long")
	return f != nil && f.Value.String() == "true"
}

// TestDrift: in each minute of an hour, two hot keys turn cold and two cold keys turn hot. One of
// the hot keys is among the hundred hottest, and the other is among the 20th to the 200th. If two
// of the five hottest keys moved to other members in one minute, some member would have 4 % of all
// load too much, and more than 2 % would move.
//
//	go test ./sharding -run TestDrift -v -timeout 30m -args -long
func TestDrift(t *testing.T) {
	t.Parallel()
	keys, hour, seeds := 50_000, 600, []uint64{1}
	if isLong() {
		keys, hour, seeds = 1_000_000, 3600, []uint64{1, 2, 3}
	}
	for _, seed := range seeds {
		w := newTrace(seed, keys, 1.1, 50, 200)
		worst, raw, jump := 0.0, 0.0, 0.0
		for i := range hour {
			if i%60 == 0 && i > 0 {
				w.swap(w.rng.IntN(100), hotKeys+w.rng.IntN(keys-hotKeys))
				w.swap(20+w.rng.IntN(180), hotKeys+w.rng.IntN(keys-hotKeys))
			}
			w.step(t)
			switch {
			case i < 10:
			case i%60 < 5:
				jump = max(jump, w.worst[i])
			default:
				worst, raw = max(worst, w.worst[i]), max(raw, w.raw[i])
			}
		}
		moved, when := w.minute(10)
		t.Logf("seed %d: at most %.3f times its goal, %.3f times the mean; in the 5 intervals after a jump %.3f; %.2f %% moved in the minute from %d on\n%v",
			seed, worst, raw, jump, 100*moved, when, w)
		if worst > 1.25 {
			t.Errorf("seed %d: a member has %.3f times its goal", seed, worst)
		}
		if moved > 0.02*1.01 { // the noise is also in the sum of loads
			t.Errorf("seed %d: %.2f %% of all load moved in the minute from interval %d on", seed, 100*moved, when)
		}
	}
}

// A key with 30 % of all load gets its own range, and then its own member.
func TestHotKey(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		w := newTrace(seed, 50_000, 0.9, 20, 40)
		for range 20 {
			w.step(t)
		}
		hot := w.rank[hotKeys-1-w.rng.IntN(1000)]
		w.weight[hot] = w.sum[len(w.weight)] * 0.3 / 0.7
		w.add()
		for range 5 {
			w.step(t)
		}
		for _, s := range w.shards {
			if s.Range.Has(w.hashes[hot]) && s.Range.To-s.Range.From != 1 {
				t.Errorf("seed %d: the key is in the range %v after 5 intervals", seed, s.Range)
			}
		}
		for range 5 {
			w.step(t)
		}
		t.Logf("seed %d: %v", seed, w)
		if got := w.worst[len(w.worst)-1]; got > 1.15 {
			t.Errorf("seed %d: a member has %.3f times its goal", seed, got)
		}
	}
}

// In a flash crowd, a hundredth of the keys has twenty times its usual load for a minute.
func TestFlashCrowd(t *testing.T) {
	t.Parallel()
	w := newTrace(3, 50_000, 0.9, 20, 80)
	run := func(n int) (changes int) {
		before := w.changes()
		for range n {
			w.step(t)
		}
		return w.changes() - before
	}
	crowd := func(factor float64) {
		from := len(w.weight) / 3
		for k := from; k < from+len(w.weight)/100; k++ {
			w.weight[k] *= factor
		}
		w.add()
	}
	run(120)
	calm, before := run(60), len(w.shards)
	crowd(20)
	first := run(10)
	after := run(50)
	t.Logf("%d changes in a calm minute, %d in 10 intervals of the crowd, %d in 50; %v", calm, first, after, w)
	if got := highest(w.worst, len(w.worst)-50); got > 1.15 {
		t.Errorf("a member has %.3f times its goal from 10 intervals after the crowd came", got)
	}
	crowd(1.0 / 20)
	ended := run(300)
	quiet := run(300)
	t.Logf("%d changes in 300 intervals after it, %d in 300 more; %v", ended, quiet, w)
	if calm > 5 || after > first || quiet > 10 || first+after+ended > 200 {
		t.Errorf("changes: %d, %d, %d, %d, %d", calm, first, after, ended, quiet)
	}
	if got := highest(w.worst, len(w.worst)-240); got > 1.25 {
		t.Errorf("a member has %.3f times its goal from a minute after the crowd went", got)
	}
	if len(w.shards) > before+before/4 {
		t.Errorf("%d ranges, %d before", len(w.shards), before)
	}
}

// If the load of all keys falls to a quarter during a day and rises again, nothing moves, and no
// range is split or merged.
func TestDiurnalWave(t *testing.T) {
	t.Parallel()
	w := newTrace(4, 50_000, 0.9, 20, 80)
	for range 120 {
		w.step(t)
	}
	before := w.changes()
	day := share.Of(t, "minutes of the day", 1440, 288)
	for i := range day {
		w.tide = 0.625 + 0.375*math.Cos(2*math.Pi*float64(i)/float64(day))
		w.step(t)
	}
	t.Logf("%d changes in a day; %v", w.changes()-before, w)
	if n := w.changes() - before; n > 30 {
		t.Errorf("%d changes in a day in which all load rises and falls", n)
	}
	if got := highest(w.worst, 120); got > 1.15 {
		t.Errorf("a member has %.3f times its goal", got)
	}
}
