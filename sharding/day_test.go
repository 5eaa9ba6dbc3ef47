package sharding_test

import (
	"flag"
	"testing"
	"time"
)

var long = flag.Bool("long", false, "a virtual day with 100,000 shards, and one with 1,000 members; minutes")

// TestDay: through crashes, leaves and joins no shard is forgotten, few more move
// than must, and the calls do not depend on the number of shards.
//
//	go test ./sharding -run TestDay -v -timeout 60m -args -long
func TestDay(t *testing.T) {
	sizes := []Config{{Members: 20, Shards: 500, Time: 4 * time.Hour, Churn: 0.3}, {Members: 20, Shards: 4000, Time: 4 * time.Hour, Churn: 0.3}}
	if *long {
		sizes = []Config{{Members: 100, Shards: 100_000}, {Members: 1000, Shards: 10_000}}
	}
	var calls []float64
	for _, c := range sizes {
		r, err := Simulate(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("\n%v", r)
		if err := r.Err(); err != nil {
			t.Error(err)
		}
		if r.Crashes == 0 || r.Leaves == 0 || r.Planned.Count == 0 || r.Crash.Count == 0 {
			t.Error("too little happened to prove anything")
		}
		if float64(r.Moves) > 1.1*float64(r.Bound) {
			t.Errorf("%d shards moved, want at most a tenth more than %d", r.Moves, r.Bound)
		}
		if limit := r.TTL + 500*time.Millisecond; r.Crash.P99 > limit {
			t.Errorf("p99 of a takeover is %v, want at most %v", r.Crash.P99, limit)
		}
		calls = append(calls, r.PerMemberMinute)
	}
	if !*long && (calls[1] > 1.1*calls[0] || calls[0] > 1.1*calls[1]) {
		t.Errorf("%.2f calls per member and minute with few shards, %.2f with many", calls[0], calls[1])
	}
}

// The same seed gives the same day.
func TestSameSeedSameDay(t *testing.T) {
	t.Parallel()
	c := Config{Members: 8, Shards: 100, Time: time.Hour, Churn: 1, Seed: 7}
	a, err := Simulate(c)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Simulate(c)
	if err != nil {
		t.Fatal(err)
	}
	a.Took, b.Took = 0, 0
	if a.String() != b.String() {
		t.Errorf("%v\nand then\n%v", a, b)
	}
}
