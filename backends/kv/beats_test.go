package kv_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
)

// dated answers reads with an old revision, as ZooKeeper does. The records may be newer than the
// revision.
type dated struct{ kv.Store }

func (d dated) Get(ctx context.Context, keys ...string) (*kv.Page, error) {
	p, err := d.Store.Get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	return &kv.Page{Rev: 1, Pairs: p.Pairs}, nil
}

// TestLateWatchIsNoHeartbeat: an observer knows a version that its watch has not delivered. Earlier
// versions from the watch do not show that the member is alive. A version from a read does,
// although the page does not show how recent that version is.
func TestLateWatchIsNoHeartbeat(t *testing.T) {
	t.Parallel()
	store := memory.New()
	f, owner := &fixture{t: t, ctx: t.Context(), store: store, link: new(kvfault.Link)}, on(t, store, 1024)
	b, err := kv.Open(f.ctx, dated{f.link.Wrap(store.Client())}, kv.Options{
		Backend: "test", Namespace: "test", Create: true,
		Limits: driver.Limits{BatchItems: 100, WriteOps: 100, WriteBytes: 1 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	f.b = b
	observer, peer := f.join("observer"), owner.join("peer")

	v, err := b.Observe(f.ctx, driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	cursor := v.Cursor
	v, err = b.Observe(f.ctx, driver.ObserveQuery{Since: cursor, Beats: []driver.Beat{{Session: "peer"}}})
	if err != nil || len(v.Beats) != 1 {
		t.Fatalf("the first heartbeat: %+v, %v", v, err)
	}
	told, cursor := v.Beats[0].Version, v.Cursor

	f.link.Set(kvfault.Watch, kvfault.HoldRequest)
	if err := peer.Beat(f.ctx); err != nil {
		t.Fatal(err)
	}
	evicted, err := observer.Evict(f.ctx, []driver.Suspect{{Session: "peer", Version: told}})
	if err != nil || evicted[0].Current <= told {
		t.Fatalf("evicting version %d: %+v, %v", told, evicted, err)
	}
	known := []driver.Beat{{Session: "peer", Version: evicted[0].Current}}
	ctx, cancel := f.brief()
	defer cancel()
	v, err = b.Observe(ctx, driver.ObserveQuery{Since: cursor, Beats: known})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an observer that knows version %d got %+v, %v; want nothing", known[0].Version, v, err)
	}
	full, err := b.Observe(f.ctx, driver.ObserveQuery{Beats: known})
	if err != nil || len(full.Beats) != 0 {
		t.Errorf("a full read gave %+v, %v to an observer that knows version %d; want no heartbeat", full, err,
			known[0].Version)
	}

	if err := peer.Beat(f.ctx); err != nil {
		t.Fatal(err)
	}
	full, err = b.Observe(f.ctx, driver.ObserveQuery{Beats: known})
	if err != nil || len(full.Beats) != 1 || full.Beats[0].Version <= known[0].Version {
		t.Errorf("a full read gave %+v, %v after a heartbeat behind version %d; want it", full, err, known[0].Version)
	}
}
