package control_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	good := []control.Rule{
		{Kind: control.Drain, Node: "a"},
		{Kind: control.Pin, Node: "a", Shards: "orders-1"},
		{Kind: control.Pin, Node: "a", Shards: "orders-*"},
		{Kind: control.Exclude, Node: "a", Shards: "*"},
		{Kind: control.Exclude, Node: "a", Shards: "shard*"},
		{Kind: control.Freeze, Author: "me", Reason: "an upgrade"},
	}
	keys := map[string]bool{}
	for _, r := range good {
		if err := r.Validate(); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
		if err := driver.CheckKey(r.Key()); err != nil || keys[r.Key()] {
			t.Errorf("%+v: key %q: %v", r, r.Key(), err)
		}
		keys[r.Key()] = true
	}
	for _, r := range []control.Rule{
		{}, {Kind: "stop"}, {Kind: control.Drain}, {Kind: control.Drain, Node: "a/b"},
		{Kind: control.Drain, Node: "a", Shards: "s"}, {Kind: control.Pin, Node: "a"}, {Kind: control.Pin, Node: "a",
			Shards: "s/*"},
		{Kind: control.Pin, Node: "a", Shards: "_assigner"}, {Kind: control.Pin, Node: "a", Shards: "_*"},
		{Kind: control.Freeze, Node: "a"}, {Kind: control.Freeze, Reason: strings.Repeat("x", control.MaxText+1)},
		{Kind: control.Freeze, Reason: "a\x1b[31m"},
	} {
		if err := r.Validate(); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%+v: got %v, want ErrInvalid", r, err)
		}
		if _, err := control.Put(&r); err == nil {
			t.Errorf("%+v is written", r)
		}
	}
}

// TestRead: what was written is read; a record that is no rule is left out, and named.
func TestRead(t *testing.T) {
	t.Parallel()
	b, err := memory.Open(t.Context(), memory.New(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if rules, err := control.Read(t.Context(), b); len(rules) != 0 || err != nil {
		t.Errorf("got %v, %v without rules", rules, err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	pin := control.Rule{Kind: control.Pin, Node: "a", Shards: "s-*", Author: "me", Reason: "a test", At: now,
		Expires: now.Add(time.Hour)}
	drain := control.Rule{Kind: control.Drain, Node: "b", At: now}
	err = core.RunSingleton(t.Context(), b, control.Shard, func(ctx context.Context, l *core.Lease) error {
		one, err := control.Put(&pin)
		if err != nil {
			return err
		}
		two, err := control.Put(&drain)
		if err != nil {
			return err
		}
		_, err = l.Commit(ctx, one, two, core.Put("rule/drain/c", []byte(`{"kind":"drain","node":"d"}`)),
			core.Put("rule/x", []byte("{")))
		return err
	}, &core.Options{Node: "tool", LockDir: "none"})
	if err != nil {
		t.Fatal(err)
	}
	rules, err := control.Read(t.Context(), b)
	if want := []control.Rule{drain, pin}; !reflect.DeepEqual(rules, want) {
		t.Errorf("got %+v, want %+v", rules, want)
	}
	if err == nil || !strings.Contains(err.Error(), `"rule/drain/c"`) || !strings.Contains(err.Error(), `"rule/x"`) {
		t.Errorf("got %v, want the two that are not understood", err)
	}
	if !pin.Active(now) || pin.Active(now.Add(time.Hour)) || !drain.Active(now.Add(time.Hour)) {
		t.Error("Active does not go by Expires")
	}
}
