//go:build unix

package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
)

// measuredTTL is the TTL of members in the role "measure". measured is how many of each member's
// heartbeats count. Heartbeats during joins and claims do not count.
const (
	measuredTTL = 5 * time.Second
	unmeasured  = 10
	measured    = 30
)

// measure is a member that contends for a shard, and appends while it leads the shard. It prints
// the median and the maximum duration of its heartbeats, in nanoseconds, and how often trust
// lapsed.
func measure(ctx context.Context, b *sqlite.Backend) error {
	var mu sync.Mutex
	var took []time.Duration
	var before, lapses int
	e, err := core.NewElector(b, &core.Options{
		TTL: measuredTTL, Heartbeat: measuredTTL / 15, Logger: slog.New(slog.DiscardHandler), Hooks: core.Hooks{
			OnEvent: func(e core.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Kind == core.SessionLapsed && before == unmeasured {
					lapses++
				}
			},
			OnCall: func(c core.Call) {
				mu.Lock()
				defer mu.Unlock()
				if c.Kind != "beat" || len(took) == measured {
					return
				}
				if before < unmeasured {
					before++
					return
				}
				if took = append(took, c.Took); len(took) == measured {
					slices.Sort(took)
					fmt.Println(int64(took[measured/2]), int64(took[measured-1]), lapses)
				}
			},
		},
	})
	if err != nil {
		return err
	}
	err = e.Contend(func(ctx context.Context, l *core.Lease) error {
		for ctx.Err() == nil {
			_, _ = l.Append(ctx, []byte("x"))
		}
		return nil
	}, "a")
	if err != nil {
		return err
	}
	if err := e.Run(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
