package stores_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/fleet"
)

// TestStartAtOnce: members with the same host's label that start at the same time all join, and no
// join fails. Each member has its own connections.
func TestStartAtOnce(t *testing.T) {
	const members, rounds = 8, 5
	for _, at := range fleet.Places() {
		t.Run(at.Name, func(t *testing.T) {
			store := at.New(t)
			for round := range rounds {
				t.Run(strconv.Itoa(round), func(t *testing.T) { // it ends with its backends closed, whose connections add up
					backends := make([]core.Backend, members)
					for i := range backends {
						backends[i] = store.Open(t, fmt.Sprint("n", round))
					}
					ctx, stop := context.WithCancel(t.Context())
					begin := make(chan struct{})
					var all, joined sync.WaitGroup
					joined.Add(members)
					for i, b := range backends {
						e, err := core.NewElector(b, &core.Options{Node: "host", TTL: time.Minute, LockDir: "none", Logger: slog.New(slog.DiscardHandler),
							Hooks: core.Hooks{OnEvent: func(ev core.Event) {
								if ev.Kind == core.SessionJoined {
									joined.Done()
								} else if ev.Kind == core.SessionJoinFailed {
									t.Error(ev.Err)
								}
							}}})
						if err != nil {
							t.Fatal(err)
						}
						if err := e.Contend(func(ctx context.Context, _ *core.Lease) error { <-ctx.Done(); return nil }, fmt.Sprint("s", i)); err != nil {
							t.Fatal(err)
						}
						all.Go(func() {
							<-begin
							if err := e.Run(ctx); err != nil {
								t.Error(err)
							}
						})
					}
					close(begin)
					done := make(chan struct{})
					go func() { joined.Wait(); close(done) }()
					ample.Wait(t, "not all have joined", func() bool {
						select {
						case <-done:
							return true
						default:
							return false
						}
					})
					stop()
					all.Wait()
				})
			}
		})
	}
}
