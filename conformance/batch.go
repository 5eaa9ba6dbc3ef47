package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// kindOfWrite is a write to a shard that has the items k and old, of commit 1, and the
// entries a and b, of which a is trimmed by commit 2; and what it leaves.
type kindOfWrite struct {
	what    string
	number  driver.WriteNo // 3 is the next
	stale   bool           // under a fence that is over
	ops     []driver.Op
	refused error // what its error matches
	op      int   // of the conflict
	items   string
	entries string // that are left
}

const itemsBefore, entriesBefore = "k=v old=v", "b"

func kindsOfWrites() []kindOfWrite {
	effects := []driver.Op{put("new", "1"), del("old"), appendOp("c"), trim(2)}
	and := func(op driver.Op) []driver.Op { return slices.Concat(effects, []driver.Op{op}) }
	refused := func(what string, number driver.WriteNo, err error, op int, ops []driver.Op) kindOfWrite {
		return kindOfWrite{what: what, number: number, ops: ops, refused: err, op: op, stale: err == driver.ErrFenced,
			items: itemsBefore, entries: entriesBefore}
	}
	applied := func(what, items, entries string, ops ...driver.Op) kindOfWrite {
		return kindOfWrite{what: what, number: 3, ops: ops, items: items, entries: entries}
	}
	return []kindOfWrite{
		applied("an append", itemsBefore, "b c", appendOp("c")),
		refused("a stale fence", 3, driver.ErrFenced, 0, effects),
		applied("appends and a put", "k=2 old=v", "b c  d", appendOp("c"), appendOp(""), put("k", "2"), appendOp("d")),
		refused("a number that was used", 2, driver.ErrConflict, driver.NumberConflict, effects),
		applied("preconditions that hold", "k=v new=1", entriesBefore, putIf("new", "1", driver.Absent), del("old")),
		refused("a number too far", 4, driver.ErrConflict, driver.NumberConflict, effects),
		applied("a trim of all but what it appends", itemsBefore, "c", trim(2), appendOp("c")),
		refused("a precondition that fails", 3, driver.ErrConflict, len(effects), and(putIf("k", "x", driver.Absent))),
		applied("a trim of what is trimmed already", "k= old=v", entriesBefore, trim(1), put("k", "")),
		refused("a trim beyond the head", 3, driver.ErrConflict, len(effects), and(trim(3))),
		applied("deletes", "", entriesBefore, del("k"), del("old"), del("none")),
	}
}

// manyKindsInOneCall makes writes of every kind in one call, several of each, in an
// order in which each refused one stands between others.
func manyKindsInOneCall(f *fixture) {
	const each = 4
	a := f.join("a")
	kinds := kindsOfWrites()
	fences := make([]driver.Fence, each*len(kinds))
	for i := range fences {
		fences[i] = a.acquire(driver.ShardID(fmt.Sprintf("s%02d", i)))
	}
	all := func(write func(i int) driver.Write) []driver.CommitResult {
		writes := make([]driver.Write, len(fences))
		for i := range writes {
			writes[i] = write(i)
		}
		res, err := a.Commit(f.ctx, writes)
		f.must(A4, err == nil && len(res) == len(writes), "%d writes in one call answer %d results, %v", len(writes),
			len(res), err)
		return res
	}
	before := make([]driver.Head, len(fences))
	for number, ops := range [][]driver.Op{1: {put("k", "v"), put("old", "v"), appendOp("a"), appendOp("b")}, 2: {trim(1)}} {
		if len(ops) == 0 {
			continue
		}
		for i, r := range all(func(i int) driver.Write { return newWrite(fences[i], driver.WriteNo(number), ops...) }) {
			f.must(A4, r.Err == nil, "write %d of the same to many shards answers %v", i, r.Err)
			before[i] = r.Head
		}
	}
	follow := f.tail(f.open())
	results := all(func(i int) driver.Write {
		k := kinds[i%len(kinds)]
		fence := fences[i]
		if k.stale {
			fence.Token++
		}
		return newWrite(fence, k.number, k.ops...)
	})
	want := map[driver.ShardID]driver.Seq{}
	for i, r := range results {
		k, shard := kinds[i%len(kinds)], fences[i].Shard
		f.checkKind(k, shard, before[i], r)
		want[shard] = f.head(shard).Seq
	}
	f.must(L4, follow.until(want), "the tail stands at %v; want %v", follow.at, want)
}

// checkKind looks at what a write answered and left.
func (f *fixture) checkKind(k kindOfWrite, shard driver.ShardID, before driver.Head, r driver.CommitResult) {
	f.t.Helper()
	head := f.head(shard)
	if k.refused != nil {
		f.must(A4, errors.Is(r.Err, k.refused), "%s among other writes answers %v; want %v", k.what, r.Err, k.refused)
		f.must(A4, head == before, "%s among other writes left the head %+v; it was %+v", k.what, head, before)
		var conflict *driver.ConflictError
		f.must(F2, !errors.As(r.Err, &conflict) || conflict.Op == k.op && conflict.Shard == shard && conflict.Head == before,
			"%s among other writes gives %+v; want operation %d", k.what, conflict, k.op)
	} else {
		f.must(A4, r.Err == nil, "%s among other writes answers %v", k.what, r.Err)
		f.must(F1, r.Head == head && head.Number == 3, "%s among other writes answers the head %+v, which reads as %+v",
			k.what, r.Head, head)
	}
	items, err := f.read().List(f.ctx, shard, "")
	f.setup("list", err)
	var got []string
	for _, it := range items {
		got = append(got, fmt.Sprintf("%s=%s", it.Key, it.Value))
	}
	f.must(A4, strings.Join(got, " ") == k.items, "%s among other writes left the items %q; want %q", k.what, strings.Join(got, " "), k.items)
	got = nil
	for _, e := range f.log(shard, head.Oldest-1) {
		got = append(got, string(e.Payload))
	}
	f.must(A4, strings.Join(got, " ") == k.entries, "%s among other writes left the entries %q; want %q", k.what, strings.Join(got, " "), k.entries)
}
