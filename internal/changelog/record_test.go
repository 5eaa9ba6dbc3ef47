package changelog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

func TestChangeLogRoundTrip(t *testing.T) {
	t.Parallel()
	for want, l := range map[string]changeLog{
		"1 1 0 0": {seq: 1},
		"1 9 9 0": {seq: 9, floor: 9},
		"1 5 2 33 0:shard/a :shard/b": {seq: 5, floor: 2, lost: 33, entries: []entry{
			{seq: 5, name: "shard/a"}, {seq: 5, name: "shard/b"}}},
		"1 6 2 34 0:shard/a =1;free;9 2:member/m": {seq: 6, floor: 2, lost: 34, entries: []entry{
			{seq: 6, name: "shard/a", inline: "1;free;9"}, {seq: 4, name: "member/m"}}},
		"1 70 2 34 3:s:1/ff 60:!state/7": {seq: 70, floor: 2, lost: 34, entries: []entry{
			{seq: 67, name: "s:1/ff"}, {seq: 10, name: "!state/7"}}},
	} {
		if got := string(l.encode()); got != want {
			t.Errorf("%+v encodes to %q; want %q", l, got, want)
		}
		got, err := decode(kv.Pair{Value: []byte(want + " later"), Rev: 50})
		if l = l.written(50); err != nil || !reflect.DeepEqual(got, l) {
			t.Errorf("%q decodes to %+v, %v; want %+v", want, got, err, l)
		}
	}
}

func TestChangeLogCorrupt(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "1", "1 1", "1 1 0", "1 0 0 0", "1 1 2 0", "2 1 0 0", "1 1 -1 0", "1 1 x 0", "1 1 0 x", "1 2 1 2",
		"1 5 0 0 0:",
		"1 5 0 0 -1:a", "1 5 0 0 2:a 1:b", "1 5 0 0 6:a", "1 5 3 0 2:a", "1 5 5 0 :a", "1 5 0 0 9223372036854775807:a",
		"1 5 0 0 x:a", "1 5 0 0  0:a", "1 4611686018427387905 0 0", "1 5 0 0" + strings.Repeat(" x", MaxPiggybackBytes),
	} {
		if l, err := decode(kv.Pair{Key: "k", Value: []byte(bad), Rev: 1}); !errors.Is(err, driver.ErrDamaged) {
			t.Errorf("%q decodes to %+v, %v; want ErrDamaged", bad, l, err)
		}
	}
}

// FuzzChangeLog checks that a readable record is written back unchanged, and that decoding needs no
// more memory than the record's size.
func FuzzChangeLog(f *testing.F) {
	f.Add([]byte("1 5 2 1 0:shard/a :shard/b 2:member/x"))
	f.Add([]byte("1 70 2 1 3:s/ff 60:!state/7 later"))
	f.Add([]byte("1 5 2 1 0:!x/3 :shard/a =1;held;m;4,7,1;1;1;1;3;ff 2:member/x =old"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decode(kv.Pair{Key: "k", Value: b, Rev: 1})
		if err != nil {
			return
		}
		again, err := decode(kv.Pair{Key: "k", Value: l.encode(), Rev: 1})
		if err != nil || !reflect.DeepEqual(again, l) {
			t.Errorf("%q decodes to %+v, and its encoding to %+v, %v", b, l, again, err)
		}
		for k := range kinds {
			next := l.with(k, []string{"shard/a"}, time.Now())
			if next.seq != l.seq+1 || next.floor < l.floor || len(next.encode()) > MaxPiggybackBytes {
				t.Errorf("%+v becomes %+v", l, next)
			}
		}
	})
}

// TestChangeLogIsComplete makes random writes. For a reader at every position, it checks that the
// later entries name every record that was written since, unless the reader has to read all
// records.
func TestChangeLogIsComplete(t *testing.T) {
	t.Parallel()
	for k := range kinds {
		t.Run(k.prefix(), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(k), 2))
			now := time.Unix(0, 0)
			var l changeLog
			var written [][]string // by write number, from 1
			incremental, dropped := 0, 0
			for range 3000 {
				now = now.Add(time.Duration(rng.Int64N(int64(time.Second))))
				if rng.IntN(50) == 0 {
					now = now.Add(time.Minute)
				}
				var names []string
				n := 1 + rng.IntN(3)
				if rng.IntN(40) == 0 {
					n = rng.IntN(300)
				}
				for range n {
					name := fmt.Sprintf("shard/%d", rng.IntN(200))
					if k == logKind { // a shard's chunks have numbers that grow
						name = fmt.Sprintf("s%d/%x", rng.IntN(30), len(written)*1000+len(names)+1)
					}
					names = append(names, name)
				}
				before := l
				l = l.with(k, names, now).written(kv.Rev(2*len(written) + 2))
				if l.floor > 0 && l.lost < kv.Rev(2*l.floor) || l.lost > kv.Rev(2*l.seq) {
					t.Fatalf("write %d: the floor %d was written at %d, not %d", l.seq, l.floor, 2*l.floor, l.lost)
				}
				written = append(written, names)
				if l.seq != int64(len(written)) {
					t.Fatalf("after %d writes the number is %d", len(written), l.seq)
				}
				if size := len(l.encode()); size > maxBytes+64 {
					t.Fatalf("the record has %d bytes", size)
				}
				if l.floor > before.floor {
					dropped++
				}
				if rng.IntN(10) == 0 { // read back, as after an unknown outcome
					again, err := decode(kv.Pair{Value: l.encode(), Rev: kv.Rev(2 * l.seq)})
					if err != nil {
						t.Fatal(err)
					}
					l = again
				}
				for back := range int64(12) {
					at := l.seq - back
					if at < l.floor {
						break
					}
					incremental++
					listed := make(map[string]bool)
					for _, e := range l.entries {
						if e.seq > at {
							group, _ := k.group(e.name)
							listed[e.name], listed[group] = true, true
						}
					}
					for _, names := range written[at:] {
						for _, n := range names {
							if group, _ := k.group(n); !listed[n] && !listed[group] {
								t.Fatalf("write %d: a reader at %d does not learn of %s: %q", l.seq, at, n, l.encode())
							}
						}
					}
				}
			}
			if incremental < 1000 || dropped < 20 {
				t.Errorf("%d readers read entries, and %d times some were dropped: too few", incremental, dropped)
			}
		})
	}
}

func TestChangeLogBounds(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	var l changeLog
	for n := range 100 {
		l = l.with(logKind, []string{fmt.Sprintf("hot/%x", n+1)}, now)
	}
	if len(l.entries) != maxChunks || l.floor != 0 {
		t.Errorf("100 commits to one shard leave %d entries and floor %d; want %d and 0", len(l.entries), l.floor,
			maxChunks)
	}
	l = l.with(logKind, []string{"other/1"}, now.Add(2*maxAge))
	if len(l.entries) != 1 || l.floor != 100 {
		t.Errorf("entries older than %v are kept: %q", maxAge, l.encode())
	}
	var many []string
	for n := range 1000 {
		many = append(many, fmt.Sprintf("shard/%d", n))
	}
	l = changeLog{}.with(stateKind, many, now)
	if len(l.entries) != 0 || l.floor != 1 {
		t.Errorf("1000 names in one write leave %d entries and floor %d; want none, and read all", len(l.entries),
			l.floor)
	}
}
