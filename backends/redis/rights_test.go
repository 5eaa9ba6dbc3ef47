package redis

import (
	"context"
	"fmt"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestRightLost: if a user loses a write permission after the namespace was opened, calls are
// refused before anything is written. When the user gets the permission back, calls succeed again.
func TestRightLost(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Redis, nil)
	admin := newAdmin(t, config(t, server))
	b := openOn(t, asUser(t, server, t.Name()+"}/*"), Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	f := granted[0].Fence
	no := driver.WriteNo(0)
	commit := func() error {
		no++
		// The commit uses every writing command, with entries, an item, and removals.
		res, err := s.Commit(t.Context(), []driver.Write{{Fence: f, Number: no, Nonce: driver.Nonce(no), Ops: []driver.Op{
			{Kind: driver.OpPut, Key: fmt.Sprintf("k%d", no), Value: []byte("v")},
			{Kind: driver.OpDelete, Key: fmt.Sprintf("k%d", no-1)},
			{Kind: driver.OpAppend, Value: []byte("entry")},
		}}})
		if err == nil {
			err = res[0].Err
		}
		if err != nil {
			no--
		}
		return err
	}
	if err := commit(); err != nil {
		t.Fatal(err)
	}
	for _, right := range []string{"hset", "hdel", "zadd", "zrem", "xadd", "del"} {
		set := func(how string) {
			t.Helper()
			if err := admin.Do(t.Context(), "ACL", "SETUSER", "tenure", how+right).Err(); err != nil {
				t.Fatal(err)
			}
		}
		before := dump(t, admin)
		set("-")
		if err := commit(); !denied(err) || !driver.NotApplied(err) {
			t.Errorf("without %s: got %v, want a refusal", right, err)
		}
		if after := dump(t, admin); after != before {
			t.Errorf("without %s a part was written:\n%s\nbefore:\n%s", right, after, before)
		}
		set("+")
		if err := commit(); err != nil {
			t.Fatalf("with %s again: %v", right, err)
		}
	}
}

// TestConformanceDenied runs the case in which a user loses a permission.
func TestConformanceDenied(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Redis, nil)
	admin := newAdmin(t, config(t, server))
	h := harness(t, config(t, server), asUser(t, server, "suite/*"), Options{}, nil)
	create := h.New
	h.New = func(t conformance.T) *conformance.Store {
		s := create(t)
		s.Deny = func(ctx context.Context) (func(context.Context) error, error) {
			return func(ctx context.Context) error { return admin.Do(ctx, "ACL", "SETUSER", "tenure", "+hset").Err() },
				admin.Do(ctx, "ACL", "SETUSER", "tenure", "-hset").Err()
		}
		return s
	}
	conformance.TestCases(t, h, "Errors/RightTakenAway")
}

// dump returns the whole content of a server.
func dump(t *testing.T, c goredis.UniversalClient) string {
	t.Helper()
	keys, err := c.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{} // printed in the order of the keys
	for _, k := range keys {
		switch kind, err := c.Type(t.Context(), k).Result(); kind {
		case "hash":
			all[k] = c.HGetAll(t.Context(), k).String()
		case "zset":
			all[k] = c.ZRange(t.Context(), k, 0, -1).String()
		case "stream":
			all[k] = c.XRange(t.Context(), k, "-", "+").String()
		default:
			t.Fatalf("the key %s is a %s: %v", k, kind, err)
		}
	}
	return fmt.Sprintf("%q", all)
}
