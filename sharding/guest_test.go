package sharding

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/mark"
	"github.com/tenure-go/tenure/lock"
)

// A process without a Manager never gets a shard from a plan. No shard moves when the process
// joins, while it stays, or when it leaves.
func TestGuest(t *testing.T) {
	park := func(ctx context.Context, _ *core.Lease) error { <-ctx.Done(); return nil }
	for name, visit := range map[string]func(ctx context.Context, b core.Backend, o *core.Options) error{
		"a lock": func(ctx context.Context, b core.Backend, o *core.Options) error {
			locks, err := lock.New(b, o)
			if err != nil {
				return err
			}
			defer locks.Close()
			x, err := locks.Lock(ctx, "x")
			if err != nil {
				return err
			}
			<-ctx.Done()
			return x.Unlock(context.WithoutCancel(ctx))
		},
		"RunSingleton": func(ctx context.Context, b core.Backend, o *core.Options) error {
			return core.RunSingleton(ctx, b, "cron", park, o)
		},
		"RunOnce": func(ctx context.Context, b core.Backend, o *core.Options) error {
			_, err := core.RunOnce(ctx, b, "job", func(ctx context.Context, _ *core.Lease) ([]byte, error) { return nil, park(ctx, nil) }, o)
			return err
		},
		"an Elector": func(ctx context.Context, b core.Backend, o *core.Options) error {
			e, err := core.NewElector(b, o)
			if err == nil {
				err = e.Contend(park, "cron")
			}
			if err != nil {
				return err
			}
			return e.Run(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				a := w.member("a", func(m *member, _ *Options) { m.version = "1" })
				w.member("b", func(_ *member, o *Options) { o.Takes = func(core.Member) bool { return true } })
				w.shares(2*ttl, map[string]int{"a": 15, "b": 15})
				grants := maps.Clone(w.grants)
				b, err := memory.Open(w.Context(), w.store, "test", nil)
				if err != nil {
					w.Fatal(err)
				}
				ctx, stop := context.WithCancel(w.Context())
				left := make(chan error, 1)
				go func() {
					left <- visit(ctx, b, &core.Options{Node: "guest", TTL: ttl, CallTimeout: ttl, Logger: slog.New(slog.DiscardHandler),
						Meta: map[string]string{"version": "2"}})
				}()
				time.Sleep(5 * ttl)
				if v := a.e.View(); len(v.Members) != 3 {
					w.Errorf("%d members, want the guest among them", len(v.Members))
				}
				if found := a.assigned().members; len(found) != 2 {
					w.Errorf("the plan has %d members, want 2", len(found))
				}
				stop()
				if err := <-left; err != nil && !errors.Is(err, context.Canceled) {
					w.Error(err)
				}
				time.Sleep(5 * ttl)
				if !maps.Equal(w.grants, grants) {
					w.Errorf("shards were granted again: %v, before the guest came %v", w.grants, grants)
				}
				b.Close()
			})
		})
	}
}

// The mark of a member with a Manager belongs to Tenure. An application cannot see, set or remove
// the mark.
func TestMark(t *testing.T) {
	bubble(t, func(w *world) {
		a := w.member("a")
		w.member("b")
		w.shares(2*ttl, map[string]int{"a": 15, "b": 15})
		grants := maps.Clone(w.grants)
		err := a.e.Update(w.Context(), func(st *core.MemberState) {
			if _, has := st.Meta[mark.Key]; has {
				w.Error("an application sees the mark")
			}
			st.Meta = nil
		})
		if err != nil {
			w.Error(err)
		}
		err = a.e.Update(w.Context(), func(st *core.MemberState) { st.Meta = map[string]string{mark.Key: ""} })
		if !errors.Is(err, core.ErrInvalid) {
			w.Errorf("an application sets the mark: %v", err)
		}
		time.Sleep(2 * ttl)
		if !maps.Equal(w.grants, grants) {
			w.Error("shards moved when an application emptied its metadata")
		}
		// If there is no room for the mark, the Manager returns an error. Otherwise, it would
		// silently get no shard.
		full := map[string]string{}
		for i := range driver.MaxMetaEntries {
			full[fmt.Sprint(i)] = ""
		}
		if err := a.e.Update(w.Context(), func(st *core.MemberState) { st.Meta = full }); !errors.Is(err, core.ErrInvalid) {
			w.Errorf("an application takes the room of the mark: %v", err)
		}
		m := w.build("c")
		if err := m.e.Update(w.Context(), func(st *core.MemberState) { st.Meta = full }); err != nil {
			w.Error(err)
		}
		if err := m.Run(w.Context()); !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), "sharding marks") {
			w.Errorf("a Manager without room for its mark: %v", err)
		}
		m.ran <- nil
	})
}
