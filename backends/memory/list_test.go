package memory_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
)

// TestListLimit: a limit counts only items, so foreign records whose keys no item can have do not
// hide items. The limit also applies to the store's answers, and many foreign records cost few
// calls.
func TestListLimit(t *testing.T) {
	t.Parallel()
	s := memory.New()
	put := func(key string) {
		t.Helper()
		_, err := s.Client().Apply(t.Context(), &kv.Batch{Txns: []kv.Txn{{Ops: []kv.Op{{Key: "test/!item/s/" + key}}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	const many = 5000
	for i := range many {
		put(fmt.Sprintf("bad/%04d key", i)) // no key has a space
		put(fmt.Sprintf("good/%04d", i))
	}
	put("a")
	put("bad/9999")
	c := &counted{Store: s.Client()}
	b, err := kv.Open(t.Context(), c, kv.Options{
		Backend: "test", Namespace: "test", Create: true, Pipeline: 1,
		Limits: driver.Limits{BatchItems: 100, WriteOps: 100, WriteBytes: 1 << 20},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, x := range []struct {
		prefix         string
		limit, want    int
		calls, records int
	}{
		{"good/", 1, 1, 1, 1},
		{"good/", 10, 10, 1, 10},
		{"good/", many, many, 1, many},
		{"good/", many + 1, many, 1, many},
		{"", 1, 1, 1, 1},
		{"", 2, 2, 20, many + 1000},
		{"", 10, 10, 20, many + 1000},
		{"", many, many, 3, 2*many + 2},
		{"", 0, many + 2, 1, 2*many + 2},
		{"bad/", 1, 1, 20, many + 1000},
		{"bad/", 2, 1, 20, many + 1},
	} {
		c.calls, c.records = 0, 0
		items, err := b.List(t.Context(), "s", x.prefix, x.limit, 0)
		if err != nil || len(items) != x.want {
			t.Errorf("%d items with %q: got %d, %v; want %d", x.limit, x.prefix, len(items), err, x.want)
		}
		for i := 1; i < len(items); i++ {
			if items[i-1].Key >= items[i].Key {
				t.Errorf("%d items with %q: %q comes before %q", x.limit, x.prefix, items[i-1].Key, items[i].Key)
			}
		}
		if c.calls > x.calls || c.records > x.records {
			t.Errorf("%d items with %q: %d calls read %d records, want at most %d and %d", x.limit, x.prefix, c.calls, c.records,
				x.calls, x.records)
		}
	}
}

// counted counts the records read by ranges. It is not safe for concurrent use.
type counted struct {
	kv.Store
	calls, records int
}

func (c *counted) Range(ctx context.Context, q kv.Range) (*kv.Page, error) {
	page, err := c.Store.Range(ctx, q)
	if err == nil {
		c.calls++
		c.records += len(page.Pairs)
	}
	return page, err
}
