package sqlfault

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

const (
	// quietAfter is how long nothing happens before CheckQuiet begins to count.
	quietAfter = 11 * time.Second
	// quietFor is how long it counts: four heartbeats of a member.
	quietFor = 13 * time.Second
)

// CheckQuiet has members with a TTL of 10 s share ten shards, one for each backend, and
// counts, when nothing has happened for a while, what they cost the store: at most so
// many of what count counts, a second. A time at whose beginning or end hears is false is not
// judged: who does not hear the others polls.
func CheckQuiet(
	t *testing.T, most float64, what string, count func() int64, hears func() bool, backends ...driver.Backend,
) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
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
			Node: fmt.Sprint("n", i), TTL: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
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
	for deadline := time.Now().Add(time.Minute); !settled(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the members do not share the shards after a minute")
		}
	}
	time.Sleep(quietAfter)
	// Beside a heartbeat that is late come others, so that a machine that is busy for a while
	// costs more: what is wanted is the rate while it is not.
	rate := math.Inf(1)
	for times, judged := 0, 0; judged < 3 && times < 8; times++ {
		Until(t, "all hear each other", hears)
		start, before := time.Now(), count()
		time.Sleep(quietFor)
		if !hears() {
			continue
		}
		judged++
		rate = min(rate, float64(count()-before)/time.Since(start).Seconds())
		if t.Logf("%d idle processes, TTL 10 s: %.1f %s a second", len(members), rate, what); rate <= most {
			return
		}
	}
	if math.IsInf(rate, 1) {
		t.Fatal("at no time all heard each other: is the disk this slow, or fs.inotify.max_user_instances used up?")
	}
	t.Errorf("%d idle processes cost %.1f %s a second, want at most %.1f", len(members), rate, what, most)
}
