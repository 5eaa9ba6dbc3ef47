package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// kindOfWrite is a write and its expected outcome. Commit 1 gave the shard the items k and old, and
// the entries a and b. Commit 2 trimmed entry a.
type kindOfWrite struct {
	what    string
	number  driver.WriteNo // 3 is the next number
	stale   bool           // the fence is dead
	ops     []driver.Op
	refused error // the error that the write's error must match
	op      int   // index of the conflicting operation
	items   string
	entries string // the entries that remain
}

const itemsBefore, entriesBefore = "k=v old=v", "b"

func kindsOfWrites() []kindOfWrite {
	effects := []driver.Op{put("new", "1"), del("old"), appendOp("c"), trim(2)}
	and := func(op driver.Op) []driver.Op { return slices.Concat(effects, []driver.Op{op}) }
	refused := func(what string, number driver.WriteNo, err error, op int, ops []driver.Op) kindOfWrite {
		return kindOfWrite{what: what, number: number, ops: ops, refused: err, op: op, stale: errors.Is(err, driver.ErrFenced),
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

// manyKindsInOneCall sends several writes of every kind in one call. Each write that the store must
// refuse comes between two that it must accept.
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
		f.must(ruleA4, err == nil && len(res) == len(writes), "%d writes in one call answer %d results, %v", len(writes),
			len(res), err)
		return res
	}
	before := make([]driver.Head, len(fences))
	for number, ops := range [][]driver.Op{1: {put("k", "v"), put("old", "v"), appendOp("a"), appendOp("b")}, 2: {trim(1)}} {
		if len(ops) == 0 {
			continue
		}
		for i, r := range all(func(i int) driver.Write { return newWrite(fences[i], driver.WriteNo(number), ops...) }) {
			f.must(ruleA4, r.Err == nil, "write %d of the same to many shards answers %v", i, r.Err)
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
	f.must(ruleL4, follow.until(want), "the tail stands at %v; want %v", follow.at, want)
}

func (f *fixture) checkKind(k kindOfWrite, shard driver.ShardID, before driver.Head, r driver.CommitResult) {
	f.t.Helper()
	head := f.head(shard)
	if k.refused != nil {
		f.must(ruleA4, errors.Is(r.Err, k.refused), "%s among other writes answers %v; want %v", k.what, r.Err, k.refused)
		f.must(ruleA4, head == before, "%s among other writes left the head %+v; it was %+v", k.what, head, before)
		var conflict *driver.ConflictError
		f.must(ruleF2, !errors.As(r.Err, &conflict) || conflict.Op == k.op && conflict.Shard == shard && conflict.Head == before,
			"%s among other writes gives %+v; want operation %d", k.what, conflict, k.op)
	} else {
		f.must(ruleA4, r.Err == nil, "%s among other writes answers %v", k.what, r.Err)
		f.must(ruleF1, r.Head == head && head.Number == 3, "%s among other writes answers the head %+v, which reads as %+v",
			k.what, r.Head, head)
	}
	items, err := f.read().List(f.ctx, shard, "", 0, 0)
	f.setup("list", err)
	var got []string
	for _, it := range items {
		got = append(got, fmt.Sprintf("%s=%s", it.Key, it.Value))
	}
	f.must(ruleA4, strings.Join(got, " ") == k.items, "%s among other writes left the items %q; want %q", k.what, strings.Join(got, " "), k.items)
	got = nil
	for _, e := range f.log(shard, head.Oldest-1) {
		got = append(got, string(e.Payload))
	}
	f.must(ruleA4, strings.Join(got, " ") == k.entries, "%s among other writes left the entries %q; want %q", k.what, strings.Join(got, " "), k.entries)
}

// refusedAsOne makes calls whose size the store once accepted but now refuses. Like core, it splits
// the refused calls.
func refusedAsOne(f *fixture) {
	const n = 48
	a := f.join("a")
	fences := a.hold(n)
	widen, err := f.store.Narrow(f.ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		f.skip(err.Error())
	}
	f.setup("narrow the store", err)
	defer func() { f.setup("widen the store", widen(context.WithoutCancel(f.ctx))) }()
	for _, b := range []driver.Backend{a.b, f.read()} {
		f.setup("read from the store again", f.settle(func() error {
			_, err := b.ReadLog(f.ctx, fences[0].Shard, 0, 0)
			return err
		}))
	}
	value := make([]byte, min(4096, max(1, a.b.Info().Limits.WriteBytes)))
	writes := make([]driver.Write, n)
	claims := make([]driver.Claim, n)
	for i := range n {
		writes[i] = newWrite(fences[i], 1, driver.Op{Kind: driver.OpAppend, Value: value})
		claims[i].Shard = driver.ShardID(fmt.Sprintf("more-%d", i))
	}

	refused := inHalves(writes, func(part []driver.Write) []driver.Write {
		res, err := a.Commit(f.ctx, part)
		return tooLarge(f, part, func(i int) error {
			w, why := part[i], err
			if err == nil {
				why = res[i].Err
			}
			head := f.head(w.Fence.Shard)
			if errors.Is(why, driver.ErrTooLarge) {
				f.must(ruleA4, head.Number == 0, "a write is too large with %d others, and left the head %+v", len(part)-1, head)
			} else if why != nil { // the outcome is unknown, or a retry is needed: core sends the item alone
				why = f.settle(func() error {
					err := a.writeCtx(f.ctx, w).Err
					if c, ok := errors.AsType[*driver.ConflictError](err); ok && c.Head.Nonce == w.Nonce {
						return nil
					}
					return err
				})
				f.must(ruleF1, why == nil, "a write whose outcome was not known answers %v by itself", why)
			}
			return why
		})
	})
	if refused == 0 {
		f.setup("narrow the store", errors.New("it took all as one"))
	}
	inHalves(claims, func(part []driver.Claim) []driver.Claim {
		res, err := a.Acquire(f.ctx, part)
		return tooLarge(f, part, func(i int) error {
			why := err
			if err == nil {
				why = res[i].Err
			}
			if owner := f.owner(part[i].Shard); errors.Is(why, driver.ErrTooLarge) {
				f.must(ruleA4, owner == driver.Owner{}, "a claim is too large with %d others, and left the record %+v", len(part)-1, owner)
			} else if why != nil {
				why = f.settle(func() error { return a.claimCtx(f.ctx, part[i]).Err })
				f.must(ruleA3, why == nil, "a claim whose outcome was not known answers %v by itself", why)
			}
			return why
		})
	})
	for i := range n {
		head, owner := f.head(fences[i].Shard), f.owner(claims[i].Shard)
		f.must(ruleF1, head.Number == 1 && head.Nonce == writes[i].Nonce, "after its write a shard has the head %+v", head)
		f.must(ruleA1, owner.Session == a.ID(), "after its claim a shard has the record %+v", owner)
	}
}

// inHalves sends items in one call, and then resends refused items in calls of half the size. It
// returns the number of calls that had refused items.
func inHalves[T any](items []T, send func([]T) (refused []T)) (calls int) {
	if len(items) == 0 {
		return 0
	}
	refused := send(items)
	if len(refused) == 0 {
		return 0
	}
	half := (len(refused) + 1) / 2
	return 1 + inHalves(refused[:half], send) + inHalves(refused[half:], send)
}

// tooLarge returns the items that the store refused because their call was too large. It fails the
// case if a call with a single item was too large.
func tooLarge[T any](f *fixture, items []T, answer func(i int) error) (refused []T) {
	f.t.Helper()
	for i := range items {
		if err := answer(i); errors.Is(err, driver.ErrTooLarge) {
			f.must(ruleA4, len(items) > 1, "an item that the store took before is too large by itself: %v", err)
			refused = append(refused, items[i])
		}
	}
	return refused
}
