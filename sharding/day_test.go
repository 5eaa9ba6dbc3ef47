package sharding_test

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/sharding/assign"
)

var long = flag.Bool("long", false, "a virtual day with 100,000 shards, and one with 1,000 members; minutes")

// TestDay: despite crashes, leaves and joins, no shard is forgotten, and only a few more shards
// move than necessary. The number of calls does not depend on the number of shards.
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

// TestLoadedDay simulates a day on which the load of the keys drifts. Ranges are split and merged
// while members crash between the steps, and keys kill the members that serve them.
//
//	go test ./sharding -run TestLoadedDay -v -timeout 60m -args -long
func TestLoadedDay(t *testing.T) {
	t.Parallel()
	day := loadedDay()
	whole := int(day.Time / time.Minute)
	day.Time = time.Duration(share.Of(t, "minutes", whole, whole/5)) * time.Minute
	day.Poison = min(day.Poison, day.Time/3)
	r, err := Simulate(day)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", r)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

// TestDayFindsFaults: the simulation detects assigners that break the promises.
func TestDayFindsFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		less       int // with -short: minutes within which the fault must be found
		change     func(*Config)
	}{
		{"loads are ignored", "times its goal", 60, func(c *Config) {
			c.Assigner = broken(func(x *assign.Cluster) *assign.Plan {
				for i := range x.Shards {
					x.Shards[i].Load, x.Shards[i].Parts = 0, nil
				}
				return assign.Balance{}.Plan(x)
			})
		}},
		{"too much moves in a minute", "moves within a minute", 20, func(c *Config) { c.Assigner = assign.Balance{MovesPerMinute: 0.2} }},
		{"shards go to and fro", "shards moved, want", 12, func(c *Config) {
			c.Assigner = broken(func(x *assign.Cluster) *assign.Plan {
				p := assign.Balance{}.Plan(x)
				for i := range 2 {
					p.Owner[i] = int32((len(x.Shards[i].Parts) + int(x.Shards[i].Moved)) % len(x.Members))
				}
				return p
			})
		}},
		{"no shard is held back", "killed 4 members", 12, func(c *Config) { c.Quarantine.Deaths = -1 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			day := loadedDay()
			day.Time = time.Duration(share.Of(t, "minutes", 60, c.less)) * time.Minute
			if c.change(&day); day.Poison > 0 {
				day.Poison = day.Time / 5
			}
			r, err := Simulate(day)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the judge finds %v, want %q\n%v", err, c.want, r)
			}
		})
	}
}

type broken func(*assign.Cluster) *assign.Plan

// Plan implements assign.Assigner.
func (b broken) Plan(c *assign.Cluster) *assign.Plan {
	x := *c
	x.Shards = slices.Clone(c.Shards)
	return b(&x)
}

func loadedDay() Config {
	c := Config{Members: 20, Shards: 40, Keys: 10_000, Time: 2 * time.Hour, Churn: 0.2, Blow: 0.5, Poison: 25 * time.Minute}
	if *long {
		c.Members, c.Shards, c.Keys, c.Time = 50, 200, 50_000, 24*time.Hour
	}
	return c
}

func TestSameSeedSameDay(t *testing.T) {
	t.Parallel()
	loaded := loadedDay()
	loaded.Members, loaded.Shards, loaded.Time, loaded.Poison = 10, 20, 30*time.Minute, 10*time.Minute
	for _, c := range []Config{{Members: 8, Shards: 100, Time: time.Hour, Churn: 1, Seed: 7}, loaded} {
		var days [2]string
		for i := range days {
			r, err := Simulate(c)
			if err != nil {
				t.Fatal(err)
			}
			r.Took = 0
			days[i] = r.String()
		}
		if days[0] != days[1] {
			t.Errorf("%v\nand then\n%v", days[0], days[1])
		}
	}
}
