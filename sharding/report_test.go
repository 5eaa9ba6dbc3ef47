package sharding

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding/assign"
)

// loadedReport returns a report on shards of a keyspace with equal ranges. Some shards have hot
// keys. The shards are in ascending order of load.
func loadedReport(rng *rand.Rand, shards int, parts bool) *report {
	r := &report{Session: "s0123456789abcdef0123456789abcdef", Capacity: 5000}
	width := math.MaxUint64/uint64(max(shards, 1)) + 1
	for i := range shards {
		s := shardReport{Name: fmt.Sprintf("orders-%04d", i), Rate: float64(i+1) * 1.5}
		if parts {
			own := assign.Range{From: uint64(i) * width, To: uint64(i+1) * width}
			if i == shards-1 {
				own.To = 0
			}
			var rest [bins]float64
			sum := 0.0
			for k := range rest {
				rest[k] = rng.Float64()
				sum += rest[k]
			}
			var hot []assign.Part
			for range i % 3 {
				h := own.From + uint64(len(hot))*(width/3) + rng.Uint64N(width/3)
				hot = append(hot, assign.Part{Range: assign.Range{From: h, To: h + 1}, Load: 1 + rng.Float64()})
				sum += hot[len(hot)-1].Load
			}
			s.Parts = lay(own, &rest, hot)
			for k := range s.Parts {
				s.Parts[k].Load *= s.Rate / sum
			}
		}
		r.Shards = append(r.Shards, s)
	}
	return r
}

// Decoded reports have rates that are accurate to seven digits, and parts that are accurate to a
// byte.
func TestReportsArrive(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{0, 1, 3, 200} {
		want := loadedReport(rand.New(rand.NewPCG(1, 1)), shards, true)
		if shards > 1 {
			want.Shards[1].Parts = nil
			want.Shards[2].Rate, want.Shards[2].Parts = 0, nil
		}
		order := slices.Clone(want.Shards)
		rand.New(rand.NewPCG(2, 2)).Shuffle(shards, func(i, j int) { want.Shards[i], want.Shards[j] = want.Shards[j], want.Shards[i] })
		before := slices.Clone(want.Shards)
		got, err := decodeReport(want.encode(60 << 10))
		if err != nil || got.Session != want.Session || got.Capacity != want.Capacity || len(got.Shards) != shards {
			t.Fatalf("read %+v, %v", got, err)
		}
		if !reflect.DeepEqual(want.Shards, before) {
			t.Error("encode changed the report")
		}
		for i, g := range got.Shards {
			w := order[i]
			if g.Name != w.Name || g.Rate != float64(float32(w.Rate)) || len(g.Parts) != len(w.Parts) {
				t.Fatalf("read %+v\nwant %+v", g, w)
			}
			for k, p := range g.Parts {
				if p.Range != w.Parts[k].Range || math.Abs(p.Load-w.Parts[k].Load) > 0.01*w.Rate {
					t.Errorf("%s: part %v has load %v, want %v", g.Name, p.Range, p.Load, w.Parts[k].Load)
				}
			}
			if len(g.Parts) > 0 {
				checkParts(t, assign.Range{From: g.Parts[0].Range.From, To: g.Parts[len(g.Parts)-1].Range.To}, g.Rate, g.Parts)
			}
		}
	}
}

// A decoded report has the parts of the meter, with the hot keys that the meter found.
func TestMetersParts(t *testing.T) {
	t.Parallel()
	m := newMeter(assign.Range{From: 1 << 62, To: 0}, meterStart)
	rng := rand.New(rand.NewPCG(3, 3))
	for range 3000 {
		m.add(1<<62+rng.Uint64N(3<<62), 1)
		m.add(math.MaxUint64, 1) // the last of all hashes
		m.add(1<<62, 0.5)        // the first hash of the range
	}
	rate, parts := m.read(meterStart.Add(time.Second))
	checkParts(t, assign.Range{From: 1 << 62, To: 0}, rate, parts)
	r := &report{Session: "s", Shards: []shardReport{{"a", rate, parts}}}
	got, err := decodeReport(r.encode(1000))
	if err != nil {
		t.Fatal(err)
	}
	checkParts(t, assign.Range{From: 1 << 62, To: 0}, rate, got.Shards[0].Parts)
	want, hot := hotParts(parts), hotParts(got.Shards[0].Parts)
	if len(want) != 2 || len(hot) != 2 || !near(hot[1<<62], want[1<<62], 0.02) || !near(hot[math.MaxUint64], want[math.MaxUint64], 0.02) {
		t.Errorf("hot keys %v, want %v", hot, want)
	}
}

// Invalid loads are written as 0, and the report remains readable.
func TestReportsOfGarbage(t *testing.T) {
	t.Parallel()
	whole := func(load float64) []assign.Part { return []assign.Part{{Range: assign.Range{}, Load: load}} }
	for _, s := range []shardReport{
		{"a", math.NaN(), whole(1)}, {"a", -1, whole(1)}, {"a", 1e-300, whole(1)}, {"a", 1, whole(0)},
		{"a", 1, whole(math.NaN())}, {"a", 1, whole(math.Inf(1))}, {"a", 1, whole(-1)},
		{"a", 1, []assign.Part{{Range: empty, Load: 1}}}, {"a", 1, []assign.Part{{Range: assign.Range{From: 3, To: 9}, Load: 1}}}, {"a", math.Inf(1), nil}, {"a", 1e300, nil},
	} {
		r := &report{Session: "s", Capacity: math.Inf(-1), Shards: []shardReport{s}}
		got, err := decodeReport(r.encode(1000))
		if err != nil || got.Capacity != 0 || got.Shards[0].Parts != nil {
			t.Errorf("%+v was read as %+v, %v", s, got, err)
		} else if rate := got.Shards[0].Rate; !(rate >= 0 && rate <= math.MaxFloat32) || s.Rate > 1e299 && rate != math.MaxFloat32 {
			t.Errorf("a rate of %v was read as %v", s.Rate, rate)
		}
	}
	// Hot keys beyond the limit count as load of their parts.
	r := &report{Session: "s", Shards: []shardReport{{"a", 160, nil}}}
	rest := [bins]float64{}
	var hot []assign.Part
	for i := range 2 * maxHot {
		h := uint64(i)<<60 + 99
		hot = append(hot, assign.Part{Range: assign.Range{From: h, To: h + 1}, Load: 10})
	}
	r.Shards[0].Parts = lay(assign.Range{}, &rest, hot)
	got, err := decodeReport(r.encode(1000))
	if err != nil {
		t.Fatal(err)
	}
	checkParts(t, assign.Range{}, 160, got.Shards[0].Parts)
	if n := len(hotParts(got.Shards[0].Parts)); n != maxHot {
		t.Errorf("%d hot keys, want %d", n, maxHot)
	}
}

// A report that would be too long omits the parts of the least loaded shards, and contains
// everything else that fits.
func TestReportsKeepToTheirLimit(t *testing.T) {
	t.Parallel()
	r := loadedReport(rand.New(rand.NewPCG(4, 4)), 30, true)
	whole := len(r.encode(1 << 20))
	lastShards, lastParts := 0, 0
	for limit := range whole + 2 {
		b := r.encode(limit)
		got, err := decodeReport(b)
		if err != nil || got.Session != r.Session || got.Capacity != r.Capacity {
			t.Fatalf("limit %d: read %+v, %v", limit, got, err)
		}
		if len(b) > limit && len(got.Shards) > 0 {
			t.Fatalf("%d bytes, the limit is %d", len(b), limit)
		}
		with := 0
		for i, s := range got.Shards { // the last names have the most load
			if s.Name != r.Shards[30-len(got.Shards)+i].Name {
				t.Fatalf("limit %d: shard %d is %s", limit, i, s.Name)
			}
			if s.Parts != nil {
				with++
			} else if with > 0 {
				t.Fatalf("limit %d: %s has no parts, one with less load has", limit, s.Name)
			}
		}
		if with > 0 && len(got.Shards) < 30 || with < lastParts || len(got.Shards) < lastShards {
			t.Fatalf("limit %d: %d shards, %d with parts, after %d and %d", limit, len(got.Shards), with, lastShards, lastParts)
		}
		lastShards, lastParts = len(got.Shards), with
		if limit >= whole && with != 30 {
			t.Fatalf("limit %d of %d: %d shards, %d with parts", limit, whole, len(got.Shards), with)
		}
	}
}

// 2,000 shards fit into an item, with parts for the most loaded shards.
func TestReportSize(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	size := func(shards int, parts bool) float64 {
		return float64(len(loadedReport(rng, shards, parts).encode(1<<20))) / float64(shards)
	}
	bare, full, even := size(2000, false), size(2000, true), size(2048, true)
	t.Logf("%.1f bytes for a shard without parts; with parts and one hot key %.1f, or %.1f with bounds as a split in halves makes them", bare, full, even)
	if bare > 9 || full > 52 || even > 38 {
		t.Error("want at most 9, 52 and 38")
	}
	got, err := decodeReport(loadedReport(rng, 2000, true).encode(60 << 10))
	if err != nil || len(got.Shards) != 2000 || got.Shards[1500].Parts == nil {
		t.Fatalf("%d shards, %v", len(got.Shards), err)
	}
}

func TestDecodeReportChecksBounds(t *testing.T) {
	t.Parallel()
	good := loadedReport(rand.New(rand.NewPCG(6, 6)), 3, true)
	b := good.encode(1 << 20)
	for n := range b {
		if _, err := decodeReport(b[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are a report", n, len(b))
		}
	}
	if _, err := decodeReport(append(slices.Clone(b), 0)); err == nil {
		t.Error("a byte too many is no error")
	}
	if _, err := decodeReport(append([]byte{2}, b[1:]...)); err == nil || !strings.Contains(err.Error(), "one version") {
		t.Errorf("of another version: %v", err)
	}
	head := append(appendString([]byte{reportVersion}, "s"), 0, 0, 0, 0)
	shard := func(name string, rest ...byte) []byte { return append(appendString([]byte{0}, name), rest...) }
	one := []byte{0, 0, 128, 63} // 1.0
	loads := slices.Repeat([]byte{1}, bins)
	hot := func(h byte, load byte) []byte { return []byte{h, 0, 0, 0, 0, 0, 0, 9, load} }
	for name, c := range map[string]struct {
		ok   bool
		body [][]byte
	}{
		"no shards":           {true, [][]byte{{0}}},
		"a shard":             {true, [][]byte{{1}, shard("a"), one, {0}}},
		"parts":               {true, [][]byte{{1}, shard("a"), one, {1, 0, 0}, loads}},
		"hot keys":            {true, [][]byte{{1}, shard("a"), one, {3, 0, 0}, loads, hot(1, 1), hot(2, 1)}},
		"too many shards":     {false, [][]byte{{200, 1}, shard("a"), one, {0}}},
		"a bad name":          {false, [][]byte{{1}, shard("a b"), one, {0}}},
		"no name":             {false, [][]byte{{1}, shard(""), one, {0}}},
		"a long name":         {false, [][]byte{{1}, shard(strings.Repeat("a", 129)), one, {0}}},
		"the same name":       {false, [][]byte{{2}, shard("a"), one, {0}, shard("a"), one, {0}}},
		"names not in order":  {false, [][]byte{{2}, shard("b"), one, {0}, shard("a"), one, {0}}},
		"a rate of NaN":       {false, [][]byte{{1}, shard("a", 0, 0, 192, 127, 0)}},
		"a rate of Inf":       {false, [][]byte{{1}, shard("a", 0, 0, 128, 127, 0)}},
		"a negative rate":     {false, [][]byte{{1}, shard("a", 0, 0, 128, 191, 0)}},
		"parts of nothing":    {false, [][]byte{{1}, shard("a", 0, 0, 0, 0), {1, 0, 0}, loads}},
		"parts without load":  {false, [][]byte{{1}, shard("a"), one, {1, 0, 0}, make([]byte, bins)}},
		"an empty range":      {false, [][]byte{{1}, shard("a"), one, {1, 1, 1}, loads}},
		"nine hot keys":       {false, [][]byte{{1}, shard("a"), one, {10, 0, 0}, loads, slices.Repeat(hot(1, 1), 9)}},
		"a hot key twice":     {false, [][]byte{{1}, shard("a"), one, {3, 0, 0}, loads, hot(1, 1), hot(1, 1)}},
		"a hot key elsewhere": {false, [][]byte{{1}, shard("a"), one, {2, 0, 1}, loads, hot(255, 1)}},
	} {
		_, err := decodeReport(append(slices.Clone(head), slices.Concat(c.body...)...))
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, session := range []core.SessionID{"", "_s", "a b", core.SessionID(strings.Repeat("s", 65))} {
		if _, err := decodeReport((&report{Session: session}).encode(100)); err == nil {
			t.Errorf("session %q is no error", session)
		}
	}
}

// FuzzReport: decoding arbitrary bytes returns either an error or a report that can be used and
// encoded again.
//
//	go test ./sharding -run '^$' -fuzz FuzzReport
func FuzzReport(f *testing.F) {
	for shards := range 4 {
		f.Add(loadedReport(rand.New(rand.NewPCG(7, 7)), max(1, 3*shards), shards > 0).encode(1 << 20))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeReport(b)
		if err != nil {
			return
		}
		again, err := decodeReport(r.encode(1 << 30))
		if err != nil || again.Session != r.Session || again.Capacity != r.Capacity || len(again.Shards) != len(r.Shards) {
			t.Fatalf("%+v was written and read as %+v, %v", r, again, err)
		}
		for i, s := range r.Shards {
			if s.Parts != nil {
				checkParts(t, assign.Range{From: s.Parts[0].Range.From, To: s.Parts[len(s.Parts)-1].Range.To}, s.Rate, s.Parts)
			}
			if a := again.Shards[i]; a.Name != s.Name || a.Rate != s.Rate || (a.Parts == nil) != (s.Parts == nil) {
				t.Fatalf("%+v was written and read as %+v", s, a)
			}
		}
		r.differs(again)
	})
}

// A member reports changes that matter to the assigner, and an idle member reports nothing.
func TestReportDiffers(t *testing.T) {
	t.Parallel()
	hotKey := func(h uint64, load float64) []assign.Part {
		return lay(assign.Range{}, &[bins]float64{}, []assign.Part{{Range: assign.Range{From: h, To: h + 1}, Load: load}})
	}
	three := func(a, b, c float64) *report {
		return &report{Session: "s", Capacity: 1, Shards: []shardReport{{"a", a, nil}, {"b", b, nil}, {"c", c, nil}}}
	}
	with := func(r *report, change func(*report)) *report {
		change(r)
		return r
	}
	for name, c := range map[string]struct {
		now, last *report
		want      bool
	}{
		"the first":                  {three(1, 2, 3), nil, true},
		"the first, idle":            {three(0, 0, 0), nil, false},
		"idle":                       {three(0, 0, 0), three(0, 0, 0), false},
		"idle, another set":          {with(three(0, 0, 0), func(r *report) { r.Shards = r.Shards[:2] }), three(0, 0, 0), false},
		"the first load":             {three(0, 1e-9, 0), three(0, 0, 0), true},
		"the last load":              {three(0, 0, 0), three(0, 1e-9, 0), true},
		"the same":                   {three(10, 20, 70), three(10, 20, 70), false},
		"another order":              {with(three(10, 20, 70), func(r *report) { slices.Reverse(r.Shards) }), three(10, 20, 70), false},
		"a tenth more in all":        {three(10, 21, 79), three(10, 20, 70), false},
		"more than a tenth":          {three(10, 21.5, 79), three(10, 20, 70), true},
		"more than a tenth less":     {three(10, 18, 61.5), three(10, 20, 70), true},
		"a quarter more of one":      {three(10, 25, 65), three(10, 20, 70), false},
		"more than a quarter of one": {three(10, 25.5, 64.5), three(10, 20, 70), true},
		"more than a quarter less":   {three(10, 14.5, 75.5), three(10, 20, 70), true},
		"of next to nothing":         {three(1, 29, 70), three(2.9, 27, 70), false},
		"a shard went":               {with(three(10, 20, 70), func(r *report) { r.Shards = r.Shards[:2]; r.Shards[1].Rate = 90 }), three(10, 20, 70), true},
		"another shard":              {with(three(10, 20, 70), func(r *report) { r.Shards[0].Name = "d" }), three(10, 20, 70), true},
		"another session":            {with(three(10, 20, 70), func(r *report) { r.Session = "t" }), three(10, 20, 70), true},
		"another capacity":           {with(three(10, 20, 70), func(r *report) { r.Capacity = 2 }), three(10, 20, 70), true},
		"a new hot key":              {with(three(10, 20, 70), func(r *report) { r.Shards[1].Parts = hotKey(7, 5) }), three(10, 20, 70), true},
		"a new key of little load":   {with(three(10, 20, 70), func(r *report) { r.Shards[1].Parts = hotKey(7, 1.9) }), three(10, 20, 70), false},
		"a hot key went":             {three(10, 20, 70), with(three(10, 20, 70), func(r *report) { r.Shards[1].Parts = hotKey(7, 5) }), false},
		"another hot key": {with(three(10, 20, 70), func(r *report) { r.Shards[1].Parts = hotKey(7, 5) }),
			with(three(10, 20, 70), func(r *report) { r.Shards[1].Parts = hotKey(8, 5) }), true},
		"the same hot key": {with(three(10, 20, 70), func(r *report) { r.Shards[1].Parts = hotKey(7, 5) }),
			with(three(10, 20, 70), func(r *report) { r.Shards[1].Parts = hotKey(7, 9) }), false},
	} {
		if got := c.now.differs(c.last); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The assigner reads at most 20 reports a second.
func TestReportEvery(t *testing.T) {
	t.Parallel()
	for members, want := range map[int]time.Duration{0: time.Second, 1: time.Second, 20: time.Second, 21: 1050 * time.Millisecond, 500: 25 * time.Second} {
		if got := reportEvery(members, time.Second); got != want {
			t.Errorf("%d members write every %v, want %v", members, got, want)
		}
	}
}

func BenchmarkReportEncode2000(b *testing.B) {
	r := loadedReport(rand.New(rand.NewPCG(1, 1)), 2000, true)
	b.ReportAllocs()
	for b.Loop() {
		r.encode(60 << 10)
	}
}

func BenchmarkReportDecode2000(b *testing.B) {
	body := loadedReport(rand.New(rand.NewPCG(1, 1)), 2000, true).encode(60 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := decodeReport(body); err != nil {
			b.Fatal(err)
		}
	}
}
