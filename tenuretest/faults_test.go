package tenuretest_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/tenuretest"
)

// contend runs a member that leads a shard whenever it can.
func contend(ctx context.Context, m *tenuretest.Member, shard core.ShardID, lead func(context.Context, *core.Lease) error) error {
	e, err := core.NewElector(m.Backend(), m.Options())
	if err != nil {
		return err
	}
	if err := e.Contend(lead, string(shard)); err != nil {
		return err
	}
	return e.Run(ctx)
}

// superseded is a scenario that fails if a process trusts a lease after a later lease has been
// granted.
func superseded(w *tenuretest.World) {
	var newest atomic.Int64
	w.Start(3, func(ctx context.Context, m *tenuretest.Member) error {
		return contend(ctx, m, "s", func(ctx context.Context, lease *core.Lease) error {
			newest.Store(max(newest.Load(), int64(lease.Token())))
			for ctx.Err() == nil {
				if lease.Err() == nil && core.Token(newest.Load()) > lease.Token() {
					w.Errorf("%s trusts token %d after token %d was granted", m.Node(), lease.Token(), newest.Load())
					return nil
				}
				time.Sleep(20 * time.Millisecond)
			}
			return nil
		})
	})
	w.Play()
}

// The clock of a suspended machine stands still, so its process trusts leases beyond their end. No
// other fault has that effect.
func TestSuspendedClockStandsStill(t *testing.T) {
	t.Parallel()
	if seed, _, _ := find(t, &tenuretest.Options{Faults: tenuretest.Suspend}, superseded); seed == 0 {
		t.Error("no process trusts a superseded lease after its machine was suspended, in 100 seeds")
	}
	o := &tenuretest.Options{Faults: tenuretest.AllFaults &^ tenuretest.Suspend}
	seeds := share.Of(t, "seeds", 20, 4)
	for seed := 1; seed <= seeds; seed++ {
		if failures, _ := tenuretest.Played(t, o, seed, superseded); len(failures) > 0 {
			t.Errorf("seed %d: %q", seed, failures)
		}
	}
}

// numbered is a scenario whose only fence is the store's.
func numbered(w *tenuretest.World) {
	w.Start(3, func(ctx context.Context, m *tenuretest.Member) error {
		return contend(ctx, m, "amounts", func(ctx context.Context, lease *core.Lease) error {
			for n := int(lease.Head().Seq) + 1; ; n++ {
				if _, err := lease.Append(ctx, []byte(strconv.Itoa(n))); err != nil {
					return err
				}
				select {
				case <-time.After(40 * time.Millisecond):
				case <-ctx.Done():
					return nil
				}
			}
		})
	})
	w.Play()
	w.Stop()
	all := sums(w)
	if n := len(all); all[n-1] != n*(n+1)/2 {
		w.Errorf("the log does not count from 1 to %d", n)
	}
}

func TestControlHasNoFence(t *testing.T) {
	t.Parallel()
	tenuretest.Run(t, &tenuretest.Options{Seeds: 5}, numbered)
	tenuretest.Control(t, &tenuretest.Options{Seeds: 100}, numbered)
}

// A member has one fault at a time, at least one member has none, and every kind of fault occurs.
func TestSchedule(t *testing.T) {
	t.Parallel()
	for seed := 1; seed <= 50; seed++ {
		seen := tenuretest.Faults(0)
		on := make([]tenuretest.Faults, 3)
		for _, s := range tenuretest.Schedule(t, seed, len(on)) {
			switch {
			case s.On && on[s.Member] != 0:
				t.Fatalf("seed %d: m%d has %v and %v at once", seed, s.Member+1, on[s.Member], s.Fault)
			case s.On:
				on[s.Member] = s.Fault
				seen |= s.Fault
			default:
				on[s.Member] = 0
			}
			if !slices.Contains(on, 0) {
				t.Fatalf("seed %d: all members have a fault at once", seed)
			}
		}
		if seen != tenuretest.AllFaults {
			t.Errorf("seed %d: of all faults only these occur: %v", seed, seen)
		}
	}
}

// If a member's commit failed as not applied, the commit is not in the log, even if the member
// crashed before the store's answer arrived (E1).
func TestRefusedIsNotApplied(t *testing.T) {
	t.Parallel()
	tenuretest.Run(t, &tenuretest.Options{Seeds: share.Of(t, "seeds", 40, 8)}, func(w *tenuretest.World) {
		var mu sync.Mutex
		refused := make(map[string]error)
		w.Start(3, func(ctx context.Context, m *tenuretest.Member) error {
			return contend(ctx, m, "amounts", func(ctx context.Context, lease *core.Lease) error {
				for n := 0; ctx.Err() == nil; n++ {
					entry := fmt.Sprint(lease.Token(), " ", n)
					if _, err := lease.Append(lease.Context(), []byte(entry)); core.NotApplied(err) {
						mu.Lock()
						refused[entry] = err
						mu.Unlock()
					}
					select {
					case <-time.After(5 * time.Millisecond):
					case <-ctx.Done():
					}
				}
				return nil
			})
		})
		w.Play()
		w.Stop()
		for after := core.Seq(0); ; {
			page, err := w.Backend().ReadLog(context.Background(), "amounts", after, 1000)
			if err != nil {
				w.Fatalf("%v", err)
			}
			if len(page.Entries) == 0 {
				return
			}
			for _, x := range page.Entries {
				after = x.Seq
				if err := refused[string(x.Payload)]; err != nil {
					w.Errorf("entry %d is in the log; its caller was told: %v", x.Seq, err)
				}
			}
		}
	})
}
