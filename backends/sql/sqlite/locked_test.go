package sqlite_test

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// BenchmarkWriteLocked reports the fraction of time for which the data file's write lock is held.
// One process commits entries to a shard at a given rate, or as fast as it can. The fraction is the
// probability that a process suspended at a random moment keeps the others from writing.
func BenchmarkWriteLocked(b *testing.B) {
	for _, rate := range []int{10, 100, 1000, 0} {
		b.Run(fmt.Sprintf("commits%d", rate), func(b *testing.B) {
			path := dbPath(b)
			s := join(b, open(b, path, nil), "n1")
			res, err := s.Acquire(b.Context(), sqlfault.Claims(1))
			if err != nil {
				b.Fatal(err)
			}
			db, err := stdsql.Open("sqlite", path+"?_pragma=busy_timeout(0)")
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			probe, err := db.Conn(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			defer probe.Close()
			ctx, stop := context.WithCancel(b.Context())
			ended, commits := make(chan error, 1), 0
			go func() {
				number := res[0].Head.Number
				for began := time.Now(); ctx.Err() == nil; commits++ {
					if rate > 0 {
						time.Sleep(time.Until(began.Add(time.Duration(commits) * time.Second / time.Duration(rate))))
					}
					number++
					out, err := s.Commit(b.Context(), []driver.Write{appendOf(res[0].Fence, number, strings.Repeat("x", 128))})
					if err != nil || out[0].Err != nil {
						ended <- fmt.Errorf("%w %+v", err, out)
						return
					}
				}
				ended <- nil
			}()
			locked := 0
			for b.Loop() {
				time.Sleep(rand.N(4 * time.Millisecond))
				if _, err := probe.ExecContext(b.Context(), "BEGIN IMMEDIATE"); err != nil {
					if !strings.Contains(err.Error(), "SQLITE_BUSY") {
						b.Fatal(err)
					}
					locked++
					continue
				}
				if _, err := probe.ExecContext(b.Context(), "ROLLBACK"); err != nil {
					b.Fatal(err)
				}
			}
			stop()
			if err := <-ended; err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(100*float64(locked)/float64(b.N), "%locked")
			b.ReportMetric(float64(commits)/b.Elapsed().Seconds(), "commits/s")
		})
	}
}
