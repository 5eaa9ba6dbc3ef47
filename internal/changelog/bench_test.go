package changelog_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/proof/watchless"
)

// BenchmarkClaims10000 claims 10,000 shards in batches of 60, four batches at a time. It claims new
// shards, and an evicted member's shards. It compares a store that has a watch with the same store
// through change logs, and ends when another process sees all claims. The store is in memory, so
// the benchmark measures this package.
func BenchmarkClaims10000(b *testing.B) {
	for _, through := range []string{"watch", "changelog"} {
		open := func(b *testing.B, s *memory.Store) *kv.Backend {
			c := s.Client()
			if through == "changelog" {
				c = changelog.New(watchless.New(c), "test", changelog.Options{})
			}
			k, err := kv.Open(b.Context(), c, kv.Options{
				Backend: "test", Namespace: "test", Create: true, Pipeline: 4,
				Limits: driver.Limits{BatchItems: 60, WriteOps: 100, WriteBytes: 1 << 20},
			})
			if err != nil {
				b.Fatal(err)
			}
			return k
		}
		for _, takeover := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/takeover=%v", through, takeover), func(b *testing.B) {
				var acquired time.Duration
				for b.Loop() {
					b.StopTimer()
					store := memory.New()
					claimer, follower := open(b, store), open(b, store)
					claims := make([]driver.Claim, 10_000)
					for i := range claims {
						claims[i].Shard = driver.ShardID(fmt.Sprintf("shard-%05d", i))
					}
					s := joinBench(b, claimer, "successor")
					if takeover {
						former := joinBench(b, claimer, "former")
						got, err := former.Acquire(b.Context(), claims)
						if err != nil {
							b.Fatal(err)
						}
						for i, r := range got {
							claims[i].Seen = driver.Owner{Session: "former", Token: r.Fence.Token}
						}
						if err := former.Close(b.Context()); err != nil {
							b.Fatal(err)
						}
						if _, err := claimer.Observe(b.Context(), driver.ObserveQuery{}); err != nil {
							b.Fatal(err)
						}
					}
					v, err := follower.Observe(b.Context(), driver.ObserveQuery{})
					if err != nil {
						b.Fatal(err)
					}
					seen := make(map[driver.ShardID]bool, len(claims))
					b.StartTimer()
					start := time.Now()
					done := make(chan error, 1)
					go func() {
						_, err := s.Acquire(context.WithoutCancel(b.Context()), claims)
						acquired += time.Since(start)
						done <- err
					}()
					for len(seen) < len(claims) {
						if v, err = follower.Observe(b.Context(), driver.ObserveQuery{Since: v.Cursor}); err != nil {
							b.Fatal(err)
						}
						for _, sh := range v.Shards {
							if sh.Owner.Session == "successor" {
								seen[sh.Shard] = true
							}
						}
					}
					if err := <-done; err != nil {
						b.Fatal(err)
					}
					b.StopTimer()
					for _, k := range []*kv.Backend{claimer, follower} {
						if err := k.Close(); err != nil {
							b.Fatal(err)
						}
					}
					b.StartTimer()
				}
				b.ReportMetric(float64(acquired.Microseconds())/1000/float64(b.N), "ms/acquire")
			})
		}
	}
}

func joinBench(b *testing.B, k *kv.Backend, id driver.SessionID) driver.Session {
	b.Helper()
	s, err := k.Join(b.Context(), driver.Member{Session: id, Node: "n-" + string(id), TTL: 5 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	return s
}
