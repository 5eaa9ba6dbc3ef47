package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

var slicesOf = flag.Int("slices", 0, "measure what tracing costs, in so many pairs of slices")

// TestTraceCost compares a member that traces with a member that writes no traces. The members take
// turns appending on one server, each with 64 producers on 64 shards. Two consecutive slices run
// under the same conditions, while long runs differ by 20 percent. The test therefore compares many
// short pairs of slices. It fails if tracing costs over 1 percent by more than twice the standard
// error.
func TestTraceCost(t *testing.T) {
	for _, name := range []string{"sqlite", "etcd"} {
		t.Run(name, func(t *testing.T) {
			switch {
			case *slicesOf == 0:
				t.Skip("it wants a quiet machine for minutes: -args -slices=125")
			case *slicesOf < 10: // of one pair there is no error to judge by
				t.Fatalf("-slices=%d: give at least 10", *slicesOf)
			}
			s, err := chosen(stores(), name, func(s *store) string { return s.name })
			if err != nil {
				t.Fatal(err)
			}
			on := started(t, s[0])
			b := &bout{store: s[0], on: on, contender: s[0].contenders[0], serve: on.dsn,
				name: fmt.Sprint("bench-trace-", time.Now().UnixNano()), fail: func(err error) { t.Error(err) }}
			compare(t, b)
		})
	}
}

func compare(t *testing.T, b *bout) {
	const shards, slice, warm = 64, time.Second, 4
	var members [2][]*core.Lease // without a trace, with one
	for i := range members {
		at := b.place(usual)
		if i == 1 {
			at.traces = t.TempDir()
		}
		own := make([]string, shards)
		for n := range own {
			own[n] = fmt.Sprintf("shard-%d-%02d", i, n)
		}
		var end error
		leases, leave, err := b.leases(t.Context(), at, own, &end)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if leave(); end != nil {
				t.Error(end)
			}
		}()
		members[i] = leases
	}
	var ratios []float64
	var count [2]float64
	for pair := range *slicesOf + warm {
		var n [2]float64
		for turn := range 2 {
			i := (pair + turn) % 2 // the first of a pair is the second of the next
			n[i] = appended(t, members[i], slice)
		}
		if pair >= warm {
			ratios = append(ratios, math.Log(n[1]/n[0])) // both members of a pair have the same weight
			count[0], count[1] = count[0]+n[0], count[1]+n[1]
		}
	}
	mean, off := meanOf(ratios)
	mean, most := math.Exp(mean), math.Exp(mean+2*off)
	t.Logf("%d pairs: with traces %.2f %% of the entries without, standard error %.2f %%; %.0f entries a second without, %.0f with",
		len(ratios), 100*mean, 100*off, count[0]/float64(len(ratios))/slice.Seconds(), count[1]/float64(len(ratios))/slice.Seconds())
	if most < 0.99 {
		t.Errorf("with traces %.2f %% of the entries without, want 99", 100*mean)
	}
}

// appended returns the number of entries that the leases append within d.
func appended(t *testing.T, leases []*core.Lease, d time.Duration) float64 {
	counts, errs := make([]float64, len(leases)), make([]error, len(leases))
	began := time.Now()
	var all sync.WaitGroup
	for p, lease := range leases {
		all.Go(func() {
			for range ample.During(d, 0) {
				if _, errs[p] = lease.Append(t.Context(), body()); errs[p] != nil {
					return
				}
				counts[p]++
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	n := 0.0
	for _, c := range counts {
		n += c
	}
	return n * float64(d) / float64(time.Since(began)) // the last ones end a little later
}

// meanOf returns the mean and its standard error.
func meanOf(v []float64) (mean, off float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		off += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(off / float64(len(v)*(len(v)-1)))
}
