package sqlfault

import (
	stdsql "database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
)

// lockClaims returns claims on n locks whose names start with begin. A new value of begin yields
// locks that were never claimed.
func lockClaims(begin string, n int) []driver.Claim {
	c := Claims(n)
	for i := range c {
		c[i].Shard = driver.ShardID(driver.LockPrefix+begin) + c[i].Shard
	}
	return c
}

func fencesOf(granted []driver.AcquireResult) []driver.Fence {
	fences := make([]driver.Fence, len(granted))
	for i, g := range granted {
		fences[i] = g.Fence
	}
	return fences
}

// Locks makes the given number of calls, each of which claims and then releases 500 new locks. The
// between function runs before each release. Locks returns the fences of the last call.
func Locks(t testing.TB, s driver.Session, begin string, calls int, between func()) []driver.Fence {
	t.Helper()
	const perCall = 500
	var last []driver.Fence
	for i := range calls {
		granted, _ := Acquire(t, s, lockClaims(fmt.Sprint(begin, i, "-"), perCall))
		between()
		last = fencesOf(granted)
		if err := s.Release(t.Context(), last); err != nil {
			t.Fatal(err)
		}
	}
	return last
}

// CheckLocks claims and releases 5,000 locks, each once. Few rows may remain, but rows with a head
// must remain, and observers must not miss a change (R2).
func CheckLocks(t *testing.T, b driver.Backend, db *stdsql.DB) {
	t.Helper()
	s := Join(t, b, "n1")
	observe := func(since driver.Cursor) *driver.View {
		t.Helper()
		view, err := b.Observe(t.Context(), driver.ObserveQuery{Since: since})
		if err != nil {
			t.Fatal(err)
		}
		return view
	}
	far := observe("").Cursor
	granted, _ := Acquire(t, s, []driver.Claim{{Shard: "_lock.held"}, {Shard: "_lock.head"}, {Shard: "free"}})
	Commit(t, s, AppendOf(granted[1].Fence, 1, []byte("a")))
	if err := s.Release(t.Context(), fencesOf(granted[1:])); err != nil {
		t.Fatal(err)
	}
	first := Locks(t, s, "first", 1, func() {})
	var near driver.Cursor
	last := Locks(t, s, "many", 9, func() { near = observe("").Cursor })

	rows := func(where string) (n int) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM tenure_shards WHERE "+where).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := rows("session = '' AND number = 0"); n > driver.MaxFreeLocks+1 || n < driver.MaxFreeLocks/2 {
		t.Errorf("5,000 locks that were used once leave %d rows", n)
	}
	for where, want := range map[string]int{"session <> ''": 1, "number > 0": 1, "shard = 'free'": 1} {
		if n := rows(where); n != want {
			t.Errorf("%d rows with %s, want %d", n, where, want)
		}
	}
	if view := observe(far); !view.Reset {
		t.Errorf("an observer that missed releases whose rows are gone gets %d shards and no reset", len(view.Shards))
	}
	view := observe(near)
	freed := make(map[driver.ShardID]driver.Owner)
	for _, s := range view.Shards {
		freed[s.Shard] = s.Owner
	}
	for _, f := range last {
		if view.Reset || freed[f.Shard] != (driver.Owner{Token: f.Token}) {
			t.Fatalf("an observer behind by %d releases gets a reset (%t), or not the one of %s", len(last), view.Reset, f.Shard)
		}
	}
	checkLockClaims(t, b, s, granted[0].Fence, first[0], last[0])
	checkDeadLock(t, s, first[1])
}

// checkLockClaims claims a held lock, a lock without a row, and a free lock.
func checkLockClaims(t *testing.T, b driver.Backend, s driver.Session, held, gone, free driver.Fence) {
	t.Helper()
	other, newest := Join(t, b, "n2"), free.Token
	claim := func(s driver.Session, shard driver.ShardID, seen driver.Owner) driver.AcquireResult {
		t.Helper()
		res, err := s.Acquire(t.Context(), []driver.Claim{{Shard: shard, Seen: seen}})
		if err != nil {
			t.Fatal(err)
		}
		return res[0]
	}
	refused := func(what string, res driver.AcquireResult, owner driver.Owner) {
		t.Helper()
		var why *driver.HeldError
		if !errors.As(res.Err, &why) || why.Owner != owner {
			t.Errorf("%s: %+v, %v; want a *HeldError with %+v", what, res.Fence, res.Err, owner)
		}
	}
	for _, seen := range []driver.Owner{{}, {Token: gone.Token}} {
		refused("a lock that is held", claim(other, held.Shard, seen), driver.Owner{Session: s.ID(), Token: held.Token})
	}
	before := driver.Owner{Session: s.ID(), Token: gone.Token}
	refused("a lock whose row is gone, seen with a session", claim(other, gone.Shard, before), driver.Owner{})
	for i, c := range []struct {
		shard driver.ShardID
		seen  driver.Owner
	}{
		{free.Shard, driver.Owner{}},
		{gone.Shard, driver.Owner{Token: gone.Token}},
		{free.Shard, driver.Owner{Token: gone.Token}},
		{gone.Shard, driver.Owner{Token: 1 << 61}}, // never granted
		{gone.Shard, driver.Owner{}},
	} {
		res := claim(other, c.shard, c.seen)
		if res.Err != nil || res.Fence.Token <= newest {
			t.Fatalf("claim %d of a free lock, seen as %+v: %+v, %v; want a token above %d", i, c.seen, res.Fence, res.Err, newest)
		}
		newest = res.Fence.Token
		if again := claim(other, c.shard, c.seen); c.seen.Token < newest && (again.Err != nil || again.Fence != res.Fence) {
			t.Errorf("claim %d repeated: %+v, %v; want %+v", i, again.Fence, again.Err, res.Fence)
		}
		refused("a lock that another session has got", claim(s, c.shard, c.seen), driver.Owner{Session: other.ID(), Token: newest})
		if err := other.Release(t.Context(), []driver.Fence{res.Fence}); err != nil {
			t.Fatal(err)
		}
	}
}

// checkDeadLock makes calls with the fence of a lock that no longer has a row.
func checkDeadLock(t *testing.T, s driver.Session, dead driver.Fence) {
	t.Helper()
	other, _ := Acquire(t, s, []driver.Claim{{Shard: "beside"}})
	for number, more := range [][]driver.Write{nil, {AppendOf(other[0].Fence, 1, []byte("a"))}} {
		writes := append(more, AppendOf(dead, driver.WriteNo(number+1), []byte("a")))
		res, err := s.Commit(t.Context(), writes)
		if err != nil || !errors.Is(res[len(more)].Err, driver.ErrFenced) || len(more) > 0 && res[0].Err != nil {
			t.Errorf("commits, the last without a row: %+v, %v", res, err)
		}
	}
	if res, err := s.Transfer(t.Context(), []driver.Transfer{{Fence: dead, To: s.ID()}}); err != nil ||
		!errors.Is(res[0].Err, driver.ErrFenced) {
		t.Errorf("a transfer without a row: %+v, %v", res, err)
	}
	if err := s.Release(t.Context(), []driver.Fence{dead}); err != nil {
		t.Errorf("a release without a row: %v", err)
	}
}
