package etcd

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// TestUnits: a batch that is applied takes one request. A refused transaction has no effect on its
// neighbors, and gets its own answer.
func TestUnits(t *testing.T) {
	t.Parallel()
	calls := new(counter)
	c := config(t, pool.Get(t, servers.Etcd, nil))
	c.DialOptions = []grpc.DialOption{grpc.WithStatsHandler(calls)}
	opts, err := (*Options)(nil).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	st, err := dial(t.Context(), c, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	key := func(i int) string { return fmt.Sprintf("units/%03d", i) }
	apply := func(guard []kv.Compare, txns []kv.Txn, want int64) *kv.Outcome {
		t.Helper()
		before := calls.writes.Load()
		out, err := st.Apply(t.Context(), &kv.Batch{Guard: guard, Txns: txns})
		if err != nil {
			t.Fatal(err)
		}
		if got := calls.writes.Load() - before; got != want {
			t.Errorf("%d transactions were sent as %d requests, want %d", len(txns), got, want)
		}
		return out
	}
	st.maxOps = defaultTxnOps
	n := st.limits().BatchItems
	puts := func(rev func(i int) kv.Rev) []kv.Txn {
		txns := make([]kv.Txn, n)
		for i := range txns {
			txns[i] = kv.Txn{
				If: []kv.Compare{{Key: key(i), Rev: rev(i)}}, Ops: []kv.Op{{Key: key(i), Value: []byte("v")}},
				Then: []string{key(i)}, Else: []string{"units/none", key(i)}, Prev: true,
			}
		}
		return txns
	}
	guard := []kv.Compare{{Key: "units/guard", Rev: kv.Absent}}
	first := apply(guard, puts(func(int) kv.Rev { return kv.Absent }), 1)
	for i, r := range first.Results {
		if !r.OK || r.Rev != first.Rev || r.Prev != 0 || len(r.Reads) != 1 || r.Reads[0].Key != key(i) ||
			r.Reads[0].Rev != r.Rev {
			t.Fatalf("transaction %d: %+v", i, r)
		}
	}
	stale := map[int]bool{0: true, 70: true, n - 1: true}
	second := apply(guard, puts(func(i int) kv.Rev {
		if stale[i] {
			return first.Rev - 1
		}
		return first.Rev
	}), 2)
	for i, r := range second.Results {
		switch {
		case stale[i]:
			if r.OK || len(r.Reads) != 2 || r.Reads[0].Rev != 0 || r.Reads[1].Key != key(i) ||
				r.Reads[1].Rev != first.Rev {
				t.Fatalf("stale transaction %d: %+v", i, r)
			}
		case !r.OK || r.Prev != first.Rev || len(r.Reads) != 1 || r.Reads[0].Rev != r.Rev:
			t.Fatalf("transaction %d: %+v", i, r)
		}
	}
	guard[0].Rev = kv.Exists
	if out := apply(guard, puts(func(int) kv.Rev { return kv.Absent }), 1); !out.Refused || len(out.Guard) != 1 ||
		out.Guard[0].Rev != 0 {
		t.Errorf("a guard that does not hold: %+v", out)
	}

	// Only the transaction that is too large fails, and no part of it is sent.
	st.maxBytes = 64 << 10
	for at, requests := range []int64{1, 2, 1} {
		txns := puts(func(int) kv.Rev { return kv.Exists })[:3]
		txns[at].Ops[0].Value = make([]byte, 64<<10)
		for i, r := range apply(nil, txns, requests).Results {
			if i == at && (r.OK || !errors.Is(r.Err, driver.ErrTooLarge)) || i != at && (!r.OK || r.Err != nil) {
				t.Errorf("beside transaction %d, which is too large, %d: %+v", at, i, r)
			}
		}
	}
}
