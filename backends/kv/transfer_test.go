package kv_test

import (
	"context"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
)

// reading is a store that counts the records that applied transactions read.
type reading struct {
	kv.Store
	then int
}

func (r *reading) Apply(ctx context.Context, b *kv.Batch) (*kv.Outcome, error) {
	out, err := r.Store.Apply(ctx, b)
	for i := range b.Txns {
		if err == nil && !out.Refused && out.Results[i].OK {
			r.then += len(b.Txns[i].Then)
		}
	}
	return out, err
}

// TestTransferReadsNoKnownHead: a transfer answers with the head that it compared. It reads the
// head only if the known head is outdated or missing.
func TestTransferReadsNoKnownHead(t *testing.T) {
	t.Parallel()
	mem := memory.New()
	open := func(s kv.Store) *fixture {
		b, err := kv.Open(t.Context(), s, kv.Options{
			Backend: "test", Namespace: "test", Create: true, Pipeline: 1,
			Limits: driver.Limits{BatchItems: 100, WriteOps: 100, WriteBytes: 1 << 20},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
		return &fixture{t: t, ctx: t.Context(), b: b}
	}
	reads := &reading{Store: mem.Client()}
	f := open(reads)
	a, b := f.join("a"), f.join("b")
	pass := func(s driver.Session, fence driver.Fence, to driver.SessionID, head driver.Head, then int) driver.Fence {
		t.Helper()
		reads.then = 0
		r, err := s.Transfer(t.Context(), []driver.Transfer{{Fence: fence, To: to}})
		if err != nil || r[0].Err != nil {
			t.Fatal(err, r)
		}
		if r[0].Head != head || reads.then != then {
			t.Errorf("head %+v after %d reads; want %+v after %d", r[0].Head, reads.then, head, then)
		}
		return r[0].Fence
	}
	fence := f.acquire(a, "s", driver.Owner{})
	fence = pass(a, fence, "b", driver.Head{}, 0)
	head := f.append(b, fence, 1).Head
	fence = pass(b, fence, "a", head, 0)

	other := open(mem.Client()) // it writes under the same fence, unknown to the first process
	same, err := other.b.Join(t.Context(), driver.Member{Session: "c", Node: "n-c", TTL: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	moved := other.append(same, fence, 2)
	if moved.Err != nil {
		t.Fatal(moved.Err)
	}
	pass(a, fence, "b", moved.Head, 1)
}
