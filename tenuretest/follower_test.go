package tenuretest_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/tenuretest"
)

// account is a read model that outlives its member. It has a sum, and the position of the last
// entry in the sum.
type account struct {
	careless bool // adds entries that it already has
	position follower.Position
	store    string
	applied  core.Seq
	sum      int
}

func (a *account) apply(b follower.Batch) error {
	for _, e := range b.Entries {
		if e.Seq <= a.applied && !a.careless {
			continue
		}
		n, err := strconv.Atoi(string(e.Payload))
		if err != nil {
			return err
		}
		a.applied, a.sum = e.Seq, a.sum+n
	}
	return nil
}

// positions saves the position of account a for member m.
type positions struct {
	m *tenuretest.Member
	a *account
}

func (p positions) Load(ctx context.Context) (c follower.Checkpoint, err error) {
	err = p.m.Do(ctx, func() error {
		if p.a.store != "" {
			c = follower.Checkpoint{Store: p.a.store, Positions: []follower.Position{p.a.position}}
		}
		return nil
	})
	return c, err
}

func (p positions) Save(ctx context.Context, store string, at follower.Position) error {
	return p.m.Do(ctx, func() error { p.a.store, p.a.position = store, at; return nil })
}

// keep is the main function of a member. The member appends amounts while it is the leader, and
// follows the log of all leaders.
func keep(ctx context.Context, m *tenuretest.Member, a *account) error {
	e, err := core.NewElector(m.Backend(), m.Options())
	if err != nil {
		return err
	}
	err = e.Contend(func(ctx context.Context, lease *core.Lease) error {
		for n := 1; ; n++ {
			if _, err := lease.Append(ctx, []byte(strconv.Itoa(n))); err != nil {
				return err
			}
			select {
			case <-time.After(80 * time.Millisecond):
			case <-ctx.Done():
				return nil
			}
		}
	}, "amounts")
	if err != nil {
		return err
	}
	tailer, err := follower.NewTailer(m.Backend(), &follower.Options{
		Logger: slog.New(slog.DiscardHandler), BackoffMax: time.Second, Pulse: time.Second,
	})
	if err != nil {
		return err
	}
	err = tailer.Follow("account", follower.Stored(positions{m, a}, func(ctx context.Context, b follower.Batch) error {
		return m.Do(ctx, func() error { return a.apply(b) })
	}, nil), "amounts")
	if err != nil {
		return err
	}
	var both sync.WaitGroup
	var followed error
	both.Go(func() { followed = tailer.Run(ctx) })
	err = e.Run(ctx)
	both.Wait()
	return errors.Join(err, followed)
}

// accounts is the scenario. After the faults, each member's sum must equal the sum of the log.
func accounts(careless bool) func(w *tenuretest.World) {
	return func(w *tenuretest.World) {
		nodes := []string{"m1", "m2", "m3"}
		all := map[string]*account{}
		for _, node := range nodes {
			all[node] = &account{careless: careless}
		}
		w.Start(len(nodes), func(ctx context.Context, m *tenuretest.Member) error {
			return keep(ctx, m, all[m.Node()])
		})
		w.Play()
		written := core.Seq(len(sums(w)))
		w.Await("each member to apply what was written up to the end of the faults", func() bool {
			return !slices.ContainsFunc(nodes, func(node string) bool { return all[node].applied < written })
		})
		w.Stop()
		want := sums(w)
		for _, node := range nodes {
			if a := all[node]; a.sum != want[a.applied-1] {
				w.Errorf("%s has %d after entry %d, and the log %d", node, a.sum, a.applied, want[a.applied-1])
			}
		}
	}
}

// sums returns the sum of the log after each entry.
func sums(w *tenuretest.World) (out []int) {
	sum := 0
	for {
		page, err := w.Backend().ReadLog(context.Background(), "amounts", core.Seq(len(out)), 1000)
		if err != nil {
			w.Fatalf("reading the log: %v", err)
		}
		if len(page.Entries) == 0 {
			return out
		}
		for _, e := range page.Entries {
			n, err := strconv.Atoi(string(e.Payload))
			if err != nil {
				w.Fatalf("entry %d: %v", e.Seq, err)
			}
			sum += n
			out = append(out, sum)
		}
	}
}
