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

// measuredTTL is the TTL of members of the role "measure". measured is how many heartbeats of each
// count, after those during which members join and claim.
const (
	measuredTTL = 5 * time.Second
	unmeasured  = 10
	measured    = 30
)

// measure is a member that contends for a shard, and appends while it has it. It prints the median
// and the longest of its heartbeats, in nanoseconds, and how often trust lapsed.
func measure(ctx context.Context, b *sqlite.Backend) error {
	var mu sync.Mutex
	var took []time.Duration
	var before, lapses int
	e, err := core.NewElector(b, &core.Options{
		TTL: measuredTTL, Heartbeat: measuredTTL / 15, Logger: slog.New(slog.DiscardHandler), Hooks: core.Hooks{
			OnSession: func(e core.SessionEvent) {
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
