package mysql

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestSafeUpdates: where the server's sql_safe_updates keeps a member from evicting one that is gone,
// the member says so, with the remedy.
func TestSafeUpdates(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.MariaDB, &servers.Options{NoSync: true})
	dsn := server.Database(t)
	gone, err := Open(t.Context(), dsn.Reveal(), "safe", &Options{Create: true, Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Join(t.Context(), core.Member{Session: "gone", Node: "gone", TTL: time.Second}); err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	sqlfault.Exec(t, setup.DB(t, server.Admin()), "SET GLOBAL sql_safe_updates = 1")
	b, err := Open(t.Context(), dsn.Reveal(), "safe", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	e, err := core.NewElector(b, &core.Options{Node: "b", TTL: time.Second, CallTimeout: time.Second, DrainBudget: time.Second, LockDir: "none"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Contend(func(ctx context.Context, _ *core.Lease) error { <-ctx.Done(); return nil }, "mine"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	for tries := 0; !strings.Contains(e.View().Trouble, "evict refused since "); tries++ {
		if tries == 6000 {
			t.Fatalf("after a minute the trouble is %q", e.View().Trouble)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got := e.View().Trouble; !strings.Contains(got, "sql_safe_updates is on: switch it off") {
		t.Errorf("the trouble is %q", got)
	}
	cancel()
	<-done
}
