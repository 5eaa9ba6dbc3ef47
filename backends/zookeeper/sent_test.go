package zookeeper

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestHandOverReads: the successor of a hand-over commits without a read, repeatedly.
func TestHandOverReads(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, nil)
	type side struct {
		traffic traffic
		b       *Backend
		s       driver.Session
		cursor  driver.Cursor
	}
	var sides [2]side
	for i := range sides {
		to := &sides[i]
		to.b = openOn(t, Options{dial: to.traffic.dial}, server)
		to.s = sqlfault.Join(t, to.b, string(rune('a'+i)))
		view, err := to.b.Observe(t.Context(), driver.ObserveQuery{})
		if err != nil {
			t.Fatal(err)
		}
		to.cursor = view.Cursor
	}
	granted, _ := sqlfault.Acquire(t, sides[0].s, sqlfault.Claims(1))
	fence := granted[0].Fence
	for round := 1; round <= 6; round++ {
		from, to := &sides[1-round%2], &sides[round%2]
		if err := commit(t.Context(), from.s, fence, driver.WriteNo(2*round-1), "last"); err != nil {
			t.Fatal(err)
		}
		res, err := from.s.Transfer(t.Context(), []driver.Transfer{{Fence: fence, To: to.s.ID()}})
		if err != nil || res[0].Err != nil {
			t.Fatal(err, res)
		}
		fence = res[0].Fence
		for seen := (driver.Owner{}); seen.Token != fence.Token; {
			view, err := to.b.Observe(bounded(t, ample.Time), driver.ObserveQuery{Since: to.cursor})
			if err != nil {
				t.Fatal(err)
			}
			to.cursor = view.Cursor
			for _, sh := range view.Shards {
				seen = sh.Owner
			}
		}
		before := to.traffic.calls()
		if err := commit(t.Context(), to.s, fence, driver.WriteNo(2*round), "first"); err != nil {
			t.Fatal(err)
		}
		if after := to.traffic.calls(); after.Reads != before.Reads || after.Writes != before.Writes+1 {
			t.Errorf("round %d: the successor's first commit: from %+v to %+v; want one write", round, before, after)
		}
	}
}

// TestSentStats: lines and words of a different form below a change log are ignored.
func TestSentStats(t *testing.T) {
	t.Parallel()
	s := &store{stats: stats{m: make(map[string]stat)}}
	f := found{value: []byte("1 1 0 0 0:shard/a\n!state/shard/a 0 4 2 later\n!head/a 7 5 3\n" +
		"!head/b 90 5 3\n!head/c 7 0 3\n!head/d 7 5 -1\n!head/e 7 5\n!head/f x 5 3\n!item/a/b 7 5 3\n\n"),
		stat: stat{rev: 9}, exists: true}
	f.split("/tenure/ns/!feed/state-x-1")
	if string(f.value) != "1 1 0 0 0:shard/a" {
		t.Errorf("the change log is %q", f.value)
	}
	s.learnSent("ns/!feed/state-x-1", f)
	want := map[string]stat{"ns/!state/shard/a": {9, 4, 2}, "ns/!head/a": {7, 5, 3}}
	for key, m := range want {
		if s.stats.m[key] != m {
			t.Errorf("%s has the stat %+v; want %+v", key, s.stats.m[key], m)
		}
	}
	if len(s.stats.m) != len(want) {
		t.Errorf("stats %+v; want %+v", s.stats.m, want)
	}
	s.learnSent("ns/!feed/state-x-1", found{sent: make([]byte, changelog.MaxPiggybackBytes+1), stat: stat{rev: 9}})
}

// TestForeignRecords: a member writes a change log with a stat that names no record, and creates
// nodes with names that are not keys. The others continue to read.
func TestForeignRecords(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.ZooKeeper, nil)
	admin := client(t, server)
	b := openOn(t, Options{}, server)
	s := sqlfault.Join(t, b, "n1")
	view, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	node := defaultRoot + "/" + t.Name()
	for name, value := range map[string]string{
		"!feed/s-0123456789AB-0":  "1 1 0\nx 1 1 1",
		"!feed/a b":               "1 1 0\nx 1 1 1",
		"!state/member/a b":       "{}",
		"!state/shard/sp\u00e4t":  "1 free 3",
		"!head/:":                 "",
		"!beat/..:" + t.Name():    "",
		"!state/shard/a::b":       "1 free 3",
		"!node/" + t.Name() + " ": "",
	} {
		if _, err := admin.Create(node+"/"+name, []byte(value), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	if err := commit(t.Context(), s, granted[0].Fence, 1, "a"); err != nil {
		t.Error(err)
	}
	for seen := false; !seen; {
		view, err = b.Observe(bounded(t, ample.Time), driver.ObserveQuery{Since: view.Cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, sh := range view.Shards {
			seen = seen || sh.Shard == granted[0].Fence.Shard && sh.Owner.Session == s.ID()
		}
	}
	other := openOn(t, Options{}, server)
	full, err := other.Observe(bounded(t, ample.Time), driver.ObserveQuery{})
	if err != nil || len(full.Members) != 1 || len(full.Shards) != 1 {
		t.Errorf("another process sees %+v, %v; want one member and one shard", full, err)
	}
	if got := entries(t, other, granted[0].Fence.Shard); got != "a" {
		t.Errorf("another process reads %q", got)
	}
}
