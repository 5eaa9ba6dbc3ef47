package kv

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/grants"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

// TestHistoryMemory is not parallel, because it measures the heap. A member keeps one string for
// all shards with the same history, and no view contains a history.
func TestHistoryMemory(t *testing.T) {
	const shards, most = 20_000, 8 // bytes per shard
	past := ""
	for range grants.Keep {
		past = grants.Add(grants.Event(time.Now(), driver.EndGone, strings.Repeat("n", 23)), past)
	}
	keys := kvkeys.Keys("ns")
	cost := func(past string) int {
		page := &Page{Rev: shards}
		for i := range shards {
			value := shardRecord{Session: "another-session-0123456789", From: 0, Past: past}.Encode()
			page.Pairs = append(page.Pairs, Pair{Key: keys.Shard(driver.ShardID(fmt.Sprintf("shard-%06d", i))), Value: value, Rev: Rev(i + 1)})
		}
		m := new(mirror)
		m.init(keys, 0)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		m.load(page)
		runtime.GC()
		runtime.ReadMemStats(&after)
		if v := m.view(0, true); len(v.Shards) != shards || strings.Contains(fmt.Sprintf("%+v", v.Shards[0]), "nnn") {
			t.Errorf("the view has %d shards; the first is %+v", len(v.Shards), v.Shards[0])
		}
		if it, _ := m.shards.get("shard-000007"); past != "" && it.val.past.h.Value() != past {
			t.Errorf("the history is %q, want %q", it.val.past.h.Value(), past)
		}
		runtime.KeepAlive(page)
		return int(after.HeapAlloc) - int(before.HeapAlloc)
	}
	without, with := cost(""), cost(past)
	t.Logf("%d bytes of history: %d bytes a shard with it, %d without", len(past), with/shards, without/shards)
	if with-without > most*shards {
		t.Errorf("histories of %d bytes cost %d bytes a shard, want at most %d", len(past), (with-without)/shards, most)
	}
}

// TestDamagedHistory: an invalid history does not damage the owner.
func TestDamagedHistory(t *testing.T) {
	t.Parallel()
	for _, past := range []string{"@", "@\x1b[31m", "@/+/", "@" + strings.Repeat("a+3+n/", 100), "x"} {
		r, err := parseShard(Pair{Value: []byte("1 held s 1 " + past), Rev: 9})
		if err != nil || r.Session != "s" || len(r.Past) > grants.MaxBytes+1 {
			t.Errorf("%q: %+v, %v", past, r, err)
		}
	}
}
