package kv

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

// TestRecentAgainstModel compares the linked map with a list that is searched linearly.
func TestRecentAgainstModel(t *testing.T) {
	t.Parallel()
	type change struct {
		key int
		val int
		seq int64
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var r recent[int, int]
	r.init()
	var model []change // oldest first
	drop := func(k int) { model = slices.DeleteFunc(model, func(c change) bool { return c.key == k }) }
	for seq := int64(1); seq <= 5000; seq++ {
		k := rng.IntN(40)
		if rng.IntN(4) == 0 {
			drop(k)
			r.remove(k)
		} else {
			drop(k)
			model = append(model, change{k, int(seq), seq})
			r.set(k, int(seq), Rev(seq), seq)
		}
		from := seq - rng.Int64N(60)
		var want, got []change
		for _, c := range slices.Backward(model) {
			if c.seq > from {
				want = append(want, c)
			}
		}
		r.since(from, func(it *recentItem[int, int]) { got = append(got, change{it.key, it.val, it.seq}) })
		if !slices.Equal(got, want) {
			t.Fatalf("after change %d, since %d: got %v, want %v", seq, from, got, want)
		}
	}
	if len(r.items) > 40 {
		t.Errorf("%d slots for 40 keys: removed ones are not used again", len(r.items))
	}
}

func newMirror(t *testing.T) *mirror {
	t.Helper()
	m := new(mirror)
	m.init(kvkeys.Keys("n"), 100)
	return m
}

func memberPair(t *testing.T, k kvkeys.Keys, s driver.SessionID, rev Rev) Pair {
	t.Helper()
	v, err := encodeJSON(memberRecord{Format: jsonFormat, Member: driver.Member{Session: s, Node: "n", TTL: 5 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	return Pair{Key: k.Member(s), Value: v, Rev: rev}
}

func TestMirrorMergesReadAndWatch(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	shard := func(s driver.SessionID, rev Rev) Pair {
		return Pair{Key: m.keys.Shard("s"), Value: shardRecord{Session: s}.Encode(), Rev: rev}
	}
	m.load(&Page{Rev: 10, Pairs: []Pair{memberPair(t, m.keys, "a", 3), memberPair(t, m.keys, "b", 4), shard("a", 5)}})
	at := m.seq
	m.follow(12, []Change{{Key: m.keys.Shard("s"), Value: shard("b", 12).Value, Rev: 12}})
	m.load(&Page{Rev: 11, Pairs: []Pair{memberPair(t, m.keys, "a", 3), shard("a", 5)}}) // overtaken, so ignored
	if v := m.view(at, false); len(v.Shards) != 1 || v.Shards[0].Owner != (driver.Owner{Session: "b", Token: 112}) || len(v.Gone) != 0 {
		t.Errorf("after a change and an older read: %+v", v)
	}
	at = m.seq
	m.load(&Page{Rev: 20, Pairs: []Pair{memberPair(t, m.keys, "b", 4), shard("b", 12)}}) // the departure of a was missed
	m.follow(21, []Change{{Key: m.keys.Member("a"), Value: memberPair(t, m.keys, "a", 3).Value, Rev: 3}})
	v := m.view(at, false)
	if !slices.Equal(v.Gone, []driver.SessionID{"a"}) || len(v.Members)+len(v.Shards) != 0 {
		t.Errorf("after a read without member a: %+v; want it gone and nothing else", v)
	}
	full := m.view(0, true)
	if len(full.Members) != 1 || full.Members[0].Session != "b" || len(full.Shards) != 1 || len(full.Gone) != 0 {
		t.Errorf("the full state is %+v", full)
	}
}

func TestMirrorLeavesCorruptRecordsOut(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	m.load(&Page{Rev: 10, Pairs: []Pair{
		{Key: m.keys.Member("a"), Value: []byte("{"), Rev: 1},
		{Key: m.keys.Members() + "no/name", Value: []byte("{}"), Rev: 1},
		{Key: m.keys.Shard("x"), Value: []byte("junk"), Rev: 2},
		{Key: m.keys.Shards() + "no/name", Value: []byte("1 free 1"), Rev: 2},
		{Key: m.keys.State() + "other", Value: []byte("1 free 1"), Rev: 2},
		{Key: m.keys.Shard("s"), Value: []byte("1 free 7"), Rev: 3},
	}})
	if v := m.view(0, true); len(v.Members) != 0 || len(v.Shards) != 1 || v.Shards[0] != (driver.ShardState{Shard: "s", Owner: driver.Owner{Token: 7}}) {
		t.Errorf("got %+v, want shard s alone", v)
	}
}

func TestMirrorForgetsOldDepartures(t *testing.T) {
	t.Parallel()
	m := newMirror(t)
	m.load(&Page{Rev: 1})
	start := m.seq
	for i := range Rev(3 * maxGone) {
		s := driver.SessionID(fmt.Sprintf("s%d", i))
		p := memberPair(t, m.keys, s, 2*i+2)
		m.follow(2*i+3, []Change{{Key: p.Key, Value: p.Value, Rev: p.Rev}, {Key: p.Key, Rev: 2*i + 3, Deleted: true}})
	}
	if m.gone != maxGone || len(m.members.items) > maxGone+2 {
		t.Errorf("%d departures in %d slots; want %d", m.gone, len(m.members.items), maxGone)
	}
	if start >= m.floor {
		t.Errorf("a reader at %d would miss departures: the floor is %d", start, m.floor)
	}
	if v := m.view(m.floor, false); len(v.Gone) != maxGone {
		t.Errorf("a reader at the floor sees %d departures, want %d", len(v.Gone), maxGone)
	}
}

func TestTailResetsOnGap(t *testing.T) {
	t.Parallel()
	var tl tail
	tl.init(kvkeys.Keys("n"))
	tl.last = map[driver.ShardID]driver.Seq{"s": 3}
	put := func(rev Rev, shard driver.ShardID, last driver.Seq, n int) Change {
		return Change{Key: tl.keys.Chunk(shard, last), Value: encodeChunk(1, 1, make([][]byte, n)), Rev: rev}
	}
	tl.follow(5, []Change{put(4, "s", 3, 1), put(5, "s", 5, 2), put(5, "new", 1, 1)}) // the head covers the first
	if got, _ := tl.after(0, 100); len(got) != 3 || got[0].Seq != 4 || got[2].Shard != "new" {
		t.Fatalf("entries %+v, want 4 and 5 of s, 1 of new", got)
	}
	if got, seq := tl.after(0, 1); len(got) != 2 || seq != 1 {
		t.Errorf("a page of about 1 has %d entries and ends at %d; want the whole commit of 2", len(got), seq)
	}
	before := tl.seq
	tl.follow(7, []Change{put(7, "s", 8, 1)}) // 6 and 7 are missing
	if tl.floor <= before || len(tl.chunks) != 0 {
		t.Errorf("after a gap the floor is %d and %d chunks are kept; want every reader reset", tl.floor, len(tl.chunks))
	}
	tl.follow(8, []Change{put(8, "s", 9, 1)})
	if got, _ := tl.after(tl.floor, 100); len(got) != 1 || got[0].Seq != 9 {
		t.Errorf("after the reset: %+v, want entry 9", got)
	}
}

func TestTailIsBounded(t *testing.T) {
	t.Parallel()
	var tl tail
	tl.init(kvkeys.Keys("n"))
	tl.last = map[driver.ShardID]driver.Seq{}
	payload := [][]byte{make([]byte, 1<<20)}
	for i := driver.Seq(1); i <= 40; i++ {
		tl.follow(Rev(i), []Change{{Key: tl.keys.Chunk("s", i), Value: encodeChunk(1, 1, payload), Rev: Rev(i)}})
		if tl.bytes > maxTailBytes {
			t.Fatalf("%d bytes are kept, the bound is %d", tl.bytes, maxTailBytes)
		}
	}
	if tl.floor == 0 || len(tl.chunks) == 0 || tl.chunks[0].seq != tl.floor+1 {
		t.Errorf("floor %d does not end before the first of %d chunks kept", tl.floor, len(tl.chunks))
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	sizes := []int{5, 5, 20, 1, 1, 1}
	got := split(len(sizes), 3, 10, func(i int) int { return sizes[i] })
	if want := []span{{0, 2}, {2, 3}, {3, 6}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := split(0, 3, 10, nil); len(got) != 0 {
		t.Errorf("no items give %v", got)
	}
}
