package sqlfault

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

const (
	// quietAfter is how long CheckQuiet waits without changes before it begins to count.
	quietAfter = 11 * time.Second
	// quietBeats is the number of each member's heartbeats during which CheckQuiet counts calls.
	quietBeats = 4
)

// CheckQuiet makes members with a TTL of 10 s share ten shards, with one member for each backend.
// After a quiet time, it uses count to count their calls to the store. The number of calls per
// second must not exceed most. CheckQuiet measures time in heartbeats, because a busy machine
// delays heartbeats and calls alike. It ignores a period if hears returns false at the beginning or
// end, because a process that does not hear the others polls.
func CheckQuiet(
	t *testing.T, most float64, what string, count func() int64, hears func() bool, backends ...driver.Backend,
) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	const ttl = 10 * time.Second
	var beats atomic.Int64
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	shards := make([]string, 10)
	for i := range shards {
		shards[i] = fmt.Sprint("s", i)
	}
	var members []*core.Elector
	for i, b := range backends {
		e, err := core.NewElector(b, &core.Options{
			Node: fmt.Sprint("n", i), TTL: ttl, Logger: slog.New(slog.DiscardHandler), Hooks: core.Hooks{OnCall: func(c core.Call) {
				if c.Kind == "beat" {
					beats.Add(1)
				}
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		err = e.Contend(func(ctx context.Context, _ *core.Lease) error {
			<-ctx.Done()
			return nil
		}, shards...)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { _ = e.Run(ctx) })
		members = append(members, e)
	}
	settled := func() bool {
		for _, e := range members {
			v := e.View()
			if len(v.Members) != len(members) || len(v.Shards) < len(shards) {
				return false
			}
		}
		return true
	}
	ample.Wait(t, "the members do not share the shards", settled)
	time.Sleep(quietAfter)
	// A late heartbeat causes more heartbeats, so members on a busy machine make more calls for a
	// while. Therefore, the test uses the smallest rate.
	rate := math.Inf(1)
	// If a change is seen before its hint arrives, readers poll for a minute, which is about five
	// of these quiet times.
	for times, judged := 0, 0; judged < 7 && times < 12; times++ {
		ample.Wait(t, "not all hear each other", hears)
		last, before := beats.Load()+int64(quietBeats*len(members)), count()
		ample.Wait(t, "the members send no heartbeats", func() bool { return beats.Load() >= last })
		after := count()
		if !hears() {
			continue
		}
		judged++
		rate = min(rate, float64(after-before)/(quietBeats*ttl.Seconds()/3))
		if t.Logf("%d idle processes, TTL %v: %.1f %s a second", len(members), ttl, rate, what); rate <= most {
			return
		}
	}
	if math.IsInf(rate, 1) {
		t.Fatal("at no time all heard each other: is the disk this slow, or fs.inotify.max_user_instances used up?")
	}
	t.Errorf("%d idle processes cost %.1f %s a second, want at most %.1f", len(members), rate, what, most)
}
