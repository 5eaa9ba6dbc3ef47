package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
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
		{Kind: control.Stop, Node: "a", Away: 1, Expires: time.Unix(1, 0), Sessions: []core.SessionID{"s1"}},
		{Kind: control.Resolve, Shards: "s", Effect: "pay/1", Outcome: control.OutcomeDone, Result: "found", Began: time.Unix(1, 0)},
		{Kind: control.Resolve, Shards: strings.Repeat("s", 128), Effect: strings.Repeat("e", 256), Outcome: control.OutcomeRepeat},
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
		{}, {Kind: "later"}, {Kind: control.Drain}, {Kind: control.Drain, Node: "a/b"},
		{Kind: control.Drain, Node: "a", Shards: "s"}, {Kind: control.Pin, Node: "a"}, {Kind: control.Pin, Node: "a",
			Shards: "s/*"},
		{Kind: control.Pin, Node: "a", Shards: "_assigner"}, {Kind: control.Pin, Node: "a", Shards: "_*"},
		{Kind: control.Freeze, Node: "a"}, {Kind: control.Freeze, Reason: strings.Repeat("x", 501)},
		{Kind: control.Freeze, Reason: "a\x1b[31m"}, {Kind: control.Freeze, Author: "a\u009b31m"},
		{Kind: control.Stop, Node: "a", Away: 1}, {Kind: control.Stop, Node: "a", Expires: time.Unix(1, 0)},
		{Kind: control.Stop, Node: "a", Away: -1, Expires: time.Unix(1, 0)}, {Kind: control.Stop, Away: 1, Expires: time.Unix(1, 0)},
		{Kind: control.Stop, Node: "a", Away: 1, Expires: time.Unix(1, 0), Sessions: []core.SessionID{"a/b"}},
		{Kind: control.Stop, Node: "a", Away: 1, Expires: time.Unix(1, 0), Sessions: make([]core.SessionID, 101)},
		{Kind: control.Drain, Node: "a", Away: 1}, {Kind: control.Freeze, Sessions: []core.SessionID{"s1"}},
		{Kind: control.Resolve, Shards: "s", Effect: "pay/1"}, {Kind: control.Resolve, Shards: "s", Outcome: control.OutcomeDone},
		{Kind: control.Resolve, Effect: "pay/1", Outcome: control.OutcomeDone},
		{Kind: control.Resolve, Shards: "s*", Effect: "a", Outcome: "done"},
		{Kind: control.Resolve, Shards: "s", Effect: "a b", Outcome: "done"}, {Kind: control.Resolve, Shards: "s", Effect: "a", Outcome: "odd"},
		{Kind: control.Resolve, Shards: "s", Effect: strings.Repeat("e", 257), Outcome: "done"},
		{Kind: control.Resolve, Shards: "s", Effect: "a", Outcome: "failed", Result: "x"},
		{Kind: control.Resolve, Shards: "s", Effect: "a", Outcome: "done", Result: "a\x1b[31m"}, {Kind: control.Freeze, Effect: "a"},
		{Kind: control.Resolve, Shards: "s", Effect: "a", Outcome: "done", Repeats: -1}, {Kind: control.Freeze, Repeats: 1},
		{Kind: control.Freeze, Writer: "a\u202eb"}, {Kind: control.Freeze, Reason: "a\u200bb"},
	} {
		if err := r.Validate(); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%+v: got %v, want ErrInvalid", r, err)
		}
		if _, err := control.Put(&r); err == nil {
			t.Errorf("%+v is written", r)
		}
	}
}

// TestRead: Read returns the rules that were written. It leaves out a record that is not a rule,
// and names the record.
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

// TestReadBounded: Read returns few rules and a short error, regardless of the records that a
// member has written.
func TestReadBounded(t *testing.T) {
	t.Parallel()
	b, err := memory.Open(t.Context(), memory.New(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	rule := func(i int) core.Op {
		r := control.Rule{Kind: control.Drain, Node: fmt.Sprintf("node-%05d", i), Reason: strings.Repeat("<", 500),
			Author: strings.Repeat("<", 500), Writer: strings.Repeat("<", 500)}
		op, err := control.Put(&r)
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
	junk := func(i int) core.Op {
		key := fmt.Sprintf("rule/%s%05d", strings.Repeat("x", 400), i)
		return core.Put(key, [][]byte{
			bytes.Repeat([]byte("\x01"), 500),
			[]byte(`{"kind":"drain","token":1` + strings.Repeat("0", 10_000) + `}`),
			[]byte(`{"kind":"drain","at":"` + strings.Repeat(`\u0007`, 2000) + `"}`),
			[]byte(`{"kind":"` + strings.Repeat("y", 20_000) + `"}`),
		}[i%4])
	}
	write(t, b, 2000, 100, junk)
	write(t, b, control.MaxRules, 100, rule)
	rules, err := control.Read(t.Context(), b)
	if len(rules) != control.MaxRules || err == nil || !strings.Contains(err.Error(), "remove some") || len(err.Error()) > 8<<10 {
		t.Errorf("got %d rules beside junk, and an error of %d bytes: %.300v", len(rules), len(fmt.Sprint(err)), err)
	}
	write(t, b, control.MaxRules+7, 100, rule)
	rules, err = control.Read(t.Context(), b)
	if len(rules) != control.MaxRules || err == nil || !strings.Contains(err.Error(), "remove some") || !errors.Is(err, core.ErrInvalid) {
		t.Errorf("got %d rules of %d, %.300v", len(rules), control.MaxRules+7, err)
	}
	if rules[len(rules)-1].Node != fmt.Sprintf("node-%05d", control.MaxRules-1) {
		t.Errorf("the last rule is of %s", rules[len(rules)-1].Node)
	}
}

// TestLargeJunkHidesNothing: junk records that sort before all rules hide no rule. Each record is
// as long as the longest rule, and together the records exceed the size limit of one List.
func TestLargeJunkHidesNothing(t *testing.T) {
	t.Parallel()
	b, err := memory.Open(t.Context(), memory.New(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	write(t, b, 600, 10, func(i int) core.Op { return core.Put(fmt.Sprintf("rule/a%d", i), make([]byte, control.MaxRecord)) })
	write(t, b, 1, 1, func(int) core.Op {
		op, err := control.Put(&control.Rule{Kind: control.Drain, Node: "n"})
		if err != nil {
			t.Fatal(err)
		}
		return op
	})
	if rules, err := control.Read(t.Context(), b); len(rules) != 1 || !errors.Is(err, core.ErrInvalid) {
		t.Errorf("got %d rules, %.300v; want one, and ErrInvalid", len(rules), err)
	}
}

// write commits n operations, batch at a time, under a lease of the rules' shard.
func write(t *testing.T, b core.Backend, n, batch int, op func(i int) core.Op) {
	t.Helper()
	err := core.RunSingleton(t.Context(), b, control.Shard, func(_ context.Context, l *core.Lease) error {
		for from := 0; from < n; from += batch {
			var ops []core.Op
			for i := range min(batch, n-from) {
				ops = append(ops, op(from+i))
			}
			if _, err := l.Commit(l.Context(), ops...); err != nil {
				t.Error(err)
				return nil
			}
		}
		return nil
	}, &core.Options{Node: "tool", LockDir: "none"})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReadBehindJunk: a member reads only a part of 50,000 junk records, half of which have keys of
// one kind. The junk hides no rule of another kind. The test is not parallel, because it counts
// allocations.
func TestReadBehindJunk(t *testing.T) {
	stores := map[string]func() (core.Backend, error){
		"memory": func() (core.Backend, error) { return memory.Open(t.Context(), memory.New(), "test", nil) },
		"sqlite": func() (core.Backend, error) {
			return sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"), "test", nil)
		},
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			b, err := open()
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			write(t, b, 50_000, 1000, func(i int) core.Op {
				return core.Put([]string{"rule/0", "rule/drain/0"}[i%2]+strconv.Itoa(i), bytes.Repeat([]byte("j"), 500))
			})
			write(t, b, 1, 1, func(int) core.Op {
				op, err := control.Put(&control.Rule{Kind: control.Pin, Node: "a", Shards: "orders-1"})
				if err != nil {
					t.Fatal(err)
				}
				return op
			})
			counted := &counting{Backend: b}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			rules, err := control.Read(t.Context(), counted)
			runtime.ReadMemStats(&after)
			if len(rules) != 1 || rules[0].Kind != control.Pin || err == nil || len(err.Error()) > 8<<10 ||
				!strings.Contains(err.Error(), "more than 4000 records") {
				t.Errorf("got %d rules, and an error of %d bytes: %.300v", len(rules), len(fmt.Sprint(err)), err)
			}
			if counted.items > 10*control.MaxRules {
				t.Errorf("%d records were read, want some thousands at most", counted.items)
			}
			allocated := (after.TotalAlloc - before.TotalAlloc) >> 20
			t.Logf("%d records read, %d MiB allocated", counted.items, allocated)
			if allocated > 16 {
				t.Errorf("%d MiB were allocated, want at most 16", allocated)
			}
		})
	}
}

// counting counts the items that it lists.
type counting struct {
	core.Backend
	items int
}

func (c *counting) List(ctx context.Context, shard core.ShardID, prefix string, limit, largest int) ([]core.Item, error) {
	items, err := c.Backend.List(ctx, shard, prefix, limit, largest)
	c.items += len(items)
	return items, err
}
