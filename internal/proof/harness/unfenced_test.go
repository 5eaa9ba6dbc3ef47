package harness

import (
	"errors"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
)

// TestUnfenced shows that the control accepts a former owner's write, which the backend refuses.
func TestUnfenced(t *testing.T) {
	t.Parallel()
	b, err := memory.Open(t.Context(), memory.New(), "control", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx := t.Context()
	u := Unfenced(b)
	join := func(id driver.SessionID) driver.Session {
		s, err := u.Join(ctx, driver.Member{Session: id, Node: string(id), TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	former, owner := join("former"), join("owner")
	res, err := former.Acquire(ctx, []driver.Claim{{Shard: "s"}})
	if err != nil || res[0].Err != nil {
		t.Fatal(err, res)
	}
	stale := driver.Write{Fence: res[0].Fence, Number: 1, Nonce: 1,
		Ops: []driver.Op{{Kind: driver.OpAppend, Value: []byte("stale")}}}
	if res, err = former.Transfer(ctx, []driver.Transfer{{Fence: stale.Fence, To: "owner"}}); err != nil ||
		res[0].Err != nil {
		t.Fatal(err, res)
	}
	w := driver.Write{Fence: res[0].Fence, Number: 1, Nonce: 2,
		Ops: []driver.Op{{Kind: driver.OpAppend, Value: []byte("good")}}}
	if got, err := owner.Commit(ctx, []driver.Write{w}); err != nil || got[0].Err != nil {
		t.Fatal(err, got)
	}
	got, err := former.Commit(ctx, []driver.Write{stale})
	if err != nil || got[0].Err != nil || got[0].Head.Seq != 2 {
		t.Errorf("the control refused a stale write: %v, %+v", err, got)
	}
	if got, err := former.Commit(ctx, []driver.Write{w}); err != nil || got[0].Err != nil &&
		!errors.Is(got[0].Err, driver.ErrConflict) {
		t.Errorf("a repeated write: %v, %+v", err, got)
	}
}
