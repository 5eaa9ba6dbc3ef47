package sharding

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/seam"
)

// Tools read the map, and the reasons why shards are set aside, from the log alone.
func TestReadPlans(t *testing.T) {
	bubble(t, func(w *world) {
		b, err := memory.Open(w.Context(), w.store, "test", nil)
		if err != nil {
			w.Fatal(err)
		}
		defer b.Close()
		m, why, err := ReadPlans(w.Context(), b, seam.Key{})
		if m != nil || err != nil {
			w.Fatalf("the map without plans: %v, %v", m, err)
		}
		if why("orders-0000") != (seam.Aside{}) {
			w.Errorf("without plans: %v", err)
		}
		for _, node := range []string{"a", "b"} {
			w.member(node, func(m *member, o *Options) {
				o.Shards, o.Keyspace = []string{"fixed"}, Keyspace{Name: "k", Shards: 4}
				m.handler = func(ctx context.Context, l *core.Lease) error {
					if l.Shard() != "fixed" {
						s, err := m.OpenSlice(ctx, l, copyItems(m.b, o.Keyspace))
						if err != nil {
							return err
						}
						defer s.Close()
					}
					return m.hold(ctx, l)
				}
			})
		}
		time.Sleep(3 * ttl)
		w.rule(control.Put, control.Rule{Kind: control.Merge, Hash: keyspace.FormatHash(1 << 63)})
		time.Sleep(5 * ttl)
		if m, why, err = ReadPlans(w.Context(), b, seam.Key{}); err != nil {
			w.Fatal(err)
		}
		if m.Len() != 3 || why("k-0002") != merged || why("k-0000") != (seam.Aside{}) || why("k-0004") != (seam.Aside{}) || why("other") != (seam.Aside{}) {
			w.Errorf("after a merge: %v, %v", m, why("k-0002"))
		}
	})
}

// asideOf returns a reason for shards in quarantine and for shards that have ended, but for no
// other shard.
func TestAsideOf(t *testing.T) {
	until := time.Unix(2_000_000_000, 0).UTC()
	table := &assignments{keys: Keyspace{Name: "k", Shards: 2}, next: 5, names: []string{"fixed", "k-0000", "k-0003"},
		suspects: map[string]*suspicion{"fixed": {Until: until.Unix(), Deaths: []int64{1, 2}}, "k-0000": {Deaths: []int64{1}}}}
	for shard, want := range map[string]bool{
		"k-0001": true, "k-0002": true, "k-0004": true,
		"k-0000": false, "k-0003": false, "k-0005": false, "k-1": false, "k-": false, "x": false, "": false, "k-00001": false,
	} {
		if got := table.asideOf(shard); (got == merged) != want || !want && got != (seam.Aside{}) {
			t.Errorf("%q: got %+v, want merged %v", shard, got, want)
		}
	}
	if got := table.asideOf("fixed"); !got.Until.Equal(until) || got.Why == "" {
		t.Errorf("got %+v", got)
	}
}

// If plans cannot be decoded, ReadPlans returns an error instead of an empty map.
func TestReadGarbage(t *testing.T) {
	bubble(t, func(w *world) {
		b, err := memory.Open(w.Context(), w.store, "test", nil)
		if err != nil {
			w.Fatal(err)
		}
		defer b.Close()
		written := make(chan error, 1)
		e, err := core.NewElector(b, &core.Options{Node: "n", TTL: ttl, LockDir: "none", Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			w.Fatal(err)
		}
		ctx, stop := context.WithCancel(w.Context())
		if err := e.Contend(func(ctx context.Context, l *core.Lease) error {
			defer stop()
			_, err := l.Append(ctx, []byte("\xffgarbage"))
			written <- err
			return err
		}, assigner); err != nil {
			w.Fatal(err)
		}
		if err := errors.Join(e.Run(ctx), <-written); err != nil {
			w.Fatal(err)
		}
		if _, _, err := ReadPlans(w.Context(), b, seam.Key{}); !errors.Is(err, core.ErrInvalid) {
			w.Errorf("ReadPlans: %v", err)
		}
	})
}
