package redis

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestGuardScript: the body runs only under the current grant, and gets the application's keys and
// arguments.
func TestGuardScript(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Redis, nil)
	c := config(t, server)
	client, b := newAdmin(t, c), openOn(t, c, Options{})
	s, other := sqlfault.Join(t, b, "n1"), sqlfault.Join(t, b, "n2")
	granted, _ := sqlfault.Acquire(t, s, []driver.Claim{{Shard: "s"}})
	fence := granted[0].Fence
	script, err := GuardScript("redis.call('APPEND', KEYS[1], ARGV[1])\nreturn #ARGV")
	if err != nil {
		t.Fatal(err)
	}
	run := func(f driver.Fence) error {
		keys, args := b.Guard(f, []string{"{" + t.Name() + "}/app"}, "x")
		return script.Run(t.Context(), client, keys, args...).Err()
	}
	if err := run(fence); err != nil {
		t.Errorf("under the current grant: %v", err)
	}
	for name, f := range map[string]driver.Fence{
		"another session":   {Shard: "s", Session: other.ID(), Token: fence.Token},
		"another token":     {Shard: "s", Session: s.ID(), Token: fence.Token - 1},
		"a later token":     {Shard: "s", Session: s.ID(), Token: fence.Token + 1},
		"another shard":     {Shard: "other", Session: s.ID(), Token: fence.Token},
		"no token":          {Shard: "s", Session: s.ID()},
		"a name of another": {Shard: "s", Session: s.ID()[:1], Token: fence.Token},
	} {
		if err := run(f); !Fenced(err) {
			t.Errorf("%s: %v; want it fenced", name, err)
		}
	}
	if err := s.Release(t.Context(), []driver.Fence{fence}); err != nil {
		t.Fatal(err)
	}
	if err := run(fence); !Fenced(err) {
		t.Errorf("after a release: %v; want it fenced", err)
	}
	again, _ := sqlfault.Acquire(t, s, []driver.Claim{{Shard: "again"}})
	// This is the state after a restore of an older copy, which has the record but not the latest
	// write.
	records := "{" + t.Name() + "}/records"
	rev := client.HGet(t.Context(), records, "rev").Val()
	client.HIncrBy(t.Context(), records, "rev", -1)
	if err := run(again[0].Fence); !Fenced(err) {
		t.Errorf("by a process that knows a later revision: %v; want it fenced", err)
	}
	client.HSet(t.Context(), records, "rev", rev)
	keys, args := b.Guard(again[0].Fence, []string{"{" + t.Name() + "}/app"}, "x")
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := script.Run(t.Context(), client, keys, args...).Err(); !Fenced(err) {
		t.Errorf("under the history of before a restart: %v; want it fenced", err)
	}
	if got := client.Get(t.Context(), "{"+t.Name()+"}/app").Val(); got != "x" {
		t.Errorf("the body ran for %q; want %q", got, "x")
	}
	if _, err := GuardScript("#!lua\nreturn 1"); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "#!lua") {
		t.Errorf("a body with a first line of its own: %v", err)
	}
}
