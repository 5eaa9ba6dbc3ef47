package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
)

// TestStoreAgainstModel applies random transactions to the store and to a plain map. It compares
// results, ranges and the changes that a watch reports.
func TestStoreAgainstModel(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	s := memory.New()
	c := s.Client()
	type record struct {
		value string
		rev   kv.Rev
	}
	model, rev := map[string]record{}, kv.Rev(0)
	for i := range 20_000 {
		key := fmt.Sprintf("%c/%04d", 'a'+rng.IntN(3), rng.IntN(3000))
		have := model[key].rev
		cond := kv.Compare{Key: key, Rev: []kv.Rev{have, kv.Absent, kv.Exists, have + 1}[rng.IntN(4)]}
		holds := cond.Rev == have || cond.Rev == kv.Exists && have != 0
		op := kv.Op{Key: key, Value: fmt.Append(nil, i), Delete: rng.IntN(3) == 0}
		out, err := c.Apply(t.Context(), &kv.Batch{Txns: []kv.Txn{{If: []kv.Compare{cond}, Ops: []kv.Op{op},
			Else: []string{key}, Prev: true}}})
		if err != nil {
			t.Fatal(err)
		}
		r := out.Results[0]
		if r.OK != holds {
			t.Fatalf("step %d: %+v of a record at %d: applied %v, want %v", i, cond, have, r.OK, holds)
		}
		if !holds {
			if r.Reads[0].Rev != have || string(r.Reads[0].Value) != model[key].value {
				t.Fatalf("step %d: a refused transaction reads %+v, want %+v", i, r.Reads[0], model[key])
			}
			continue
		}
		rev++
		if r.Rev != rev || r.Prev != have {
			t.Fatalf("step %d: revision %d after %d, want %d after %d", i, r.Rev, r.Prev, rev, have)
		}
		if op.Delete {
			delete(model, key)
		} else {
			model[key] = record{string(op.Value), rev}
		}
	}
	for _, prefix := range []string{"", "a/", "b/1", "c/2999", "d"} {
		var want []string
		for key := range model {
			if strings.HasPrefix(key, prefix) {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		page, err := c.Range(t.Context(), kv.Range{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range page.Pairs {
			got = append(got, p.Key)
			if want := model[p.Key]; p.Rev != want.rev || string(p.Value) != want.value {
				t.Fatalf("%s is %+v, want %+v", p.Key, p, want)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("prefix %q: %d keys, want %d in order", prefix, len(got), len(want))
		}
		if len(want) > 5 {
			page, err = c.Range(t.Context(), kv.Range{Prefix: prefix, From: want[2], Limit: 2, KeysOnly: true})
			if err != nil || len(page.Pairs) != 2 || page.Pairs[0].Key != want[2] || page.Pairs[1].Key != want[3] ||
				page.Pairs[0].Value != nil {
				t.Fatalf("two keys from %s: %+v, %v", want[2], page, err)
			}
		}
	}
	seen := map[string]string{}
	done := errors.New("done")
	err := c.Watch(t.Context(), []string{"a/", "b/"}, 0, func(_ kv.Rev, changes []kv.Change) error {
		for _, ch := range changes {
			if ch.Deleted {
				delete(seen, ch.Key)
			} else {
				seen[ch.Key] = string(ch.Value)
			}
		}
		return done
	})
	if !errors.Is(err, done) {
		t.Fatal(err)
	}
	for key, r := range model {
		if watched := key[0] != 'c'; watched && seen[key] != r.value || !watched && seen[key] != "" {
			t.Fatalf("the watch delivers %q of %s, want %q", seen[key], key, r.value)
		}
	}
}

// TestCallersCannotReachRecords changes slices that were passed to the store or returned by it.
func TestCallersCannotReachRecords(t *testing.T) {
	t.Parallel()
	c := memory.New().Client()
	value := []byte("value")
	if _, err := c.Apply(t.Context(), &kv.Batch{Txns: []kv.Txn{{Ops: []kv.Op{{Key: "k", Value: value}}}}}); err != nil {
		t.Fatal(err)
	}
	value[0] = 'X'
	for range 2 {
		page, err := c.Get(t.Context(), "k")
		if err != nil || string(page.Pairs[0].Value) != "value" {
			t.Fatalf("the record is %q, %v", page.Pairs[0].Value, err)
		}
		page.Pairs[0].Value[0] = 'Y'
	}
}

func TestWatchAndCompaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		c := s.Client()
		stop := errors.New("stop")
		for range 3 {
			s.Tamper("k", []byte("v"))
		}
		s.Compact()
		never := func(kv.Rev, []kv.Change) error { return stop }
		for _, after := range []kv.Rev{0, 2, 4} {
			if err := c.Watch(t.Context(), []string{"k"}, after, never); !errors.Is(err, kv.ErrCompacted) {
				t.Errorf("a watch after revision %d of 3, compacted: %v", after, err)
			}
		}
		ended := make(chan error, 1)
		seen := kv.Rev(0)
		go func() {
			ended <- c.Watch(t.Context(), []string{"k"}, 3, func(rev kv.Rev, changes []kv.Change) error {
				seen = rev
				return nil
			})
		}()
		synctest.Wait()
		s.Tamper("other", []byte("v"))
		synctest.Wait()
		if seen != 0 {
			t.Error("a watch was woken by a key that it does not watch")
		}
		s.Tamper("k", nil)
		synctest.Wait()
		if seen != 5 {
			t.Errorf("the watch is at revision %d, want 5", seen)
		}
		s.Wipe()
		if err := <-ended; err == nil || errors.Is(err, kv.ErrCompacted) {
			t.Errorf("a watch of a store that was wiped ends with %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Watch(ctx, []string{"k"}, 0, never); !errors.Is(err, context.Canceled) {
			t.Errorf("a watch whose context ended: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Apply(t.Context(), &kv.Batch{}); !driver.NotApplied(err) {
			t.Errorf("a write through a closed client: %v; want one that was not applied", err)
		}
	})
}

// TestHistoryIsBounded writes more than the store keeps. A watch of another key must be able to
// continue.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	s := memory.New()
	c := s.Client()
	payload := []byte("v")
	for range 200_000 {
		s.Tamper("k", payload)
	}
	if err := c.Watch(t.Context(), []string{"k"}, 1,
		func(kv.Rev, []kv.Change) error { return nil }); !errors.Is(err, kv.ErrCompacted) {
		t.Errorf("a watch from the first of 200,000 changes: %v; want ErrCompacted", err)
	}
}

func TestOpener(t *testing.T) {
	t.Parallel()
	o := memory.Opener()
	b, err := o.Open(t.Context(), func(into any) error {
		into.(*memory.Config).Namespace = "orders/eu"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if info := b.Info(); info.Backend != o.Name || info.Namespace != "orders/eu" || info.StoreID == "" {
		t.Errorf("got %+v", info)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	bad := errors.New("unknown field")
	if _, err := o.Open(t.Context(), func(any) error { return bad }); !errors.Is(err, bad) {
		t.Errorf("a configuration that does not decode: %v", err)
	}
}
