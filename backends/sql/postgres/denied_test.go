package postgres

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

const deniedTTL = 2 * time.Second

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) has(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.text.String(), text)
}

// contender runs a member that appends to a shard while it leads.
func contender(t *testing.T, dsn servers.DSN, node string) (*core.Elector, *journal) {
	t.Helper()
	j := new(journal)
	e, err := core.NewElector(open1(t, dsn), &core.Options{Node: node, TTL: deniedTTL, BackoffMax: time.Second, LockDir: "none",
		DrainBudget: time.Minute, Logger: slog.New(slog.NewTextHandler(j, nil))})
	if err != nil {
		t.Fatal(err)
	}
	err = e.Contend(func(ctx context.Context, l *core.Lease) error {
		for ctx.Err() == nil {
			if _, err := l.Append(l.Context(), []byte(node)); errors.Is(err, core.ErrLost) {
				return nil
			}
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	}, "s")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return e, j
}

func open1(t *testing.T, dsn servers.DSN) core.Backend {
	t.Helper()
	b, err := Open(t.Context(), dsn.Reveal(), "denied", &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func awaited(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range 3000 {
		if cond() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not within 30 s: %s", what)
}

// TestDenied: a leader whose role loses a permission logs the server's own message, and a member
// with another role takes over (C18). The same applies to a member that may not claim.
func TestDenied(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	user := restricted(t, server, dsn, nil)
	admin := setup.DB(t, server.Admin().Database(dsn.Name()))
	a, log := contender(t, user, "a")
	owner := func(e *core.Elector) string {
		o, _ := e.View().Owner("s")
		return o.Node
	}
	awaited(t, "a leads", func() bool { return owner(a) == "a" })
	b, _ := contender(t, dsn, "b")
	awaited(t, "they see each other", func() bool { return owner(b) == "a" && len(a.View().Members) == 2 })

	sqlfault.Exec(t, admin, "REVOKE INSERT ON tenure_logs FROM "+user.User())
	awaited(t, "b leads", func() bool { return owner(b) == "b" })
	awaited(t, "a line", func() bool {
		return log.has("tenure: store refuses calls") && log.has("permission denied for table tenure_logs (SQLSTATE 42501)")
	})
	awaited(t, "b knows", func() bool {
		m, _ := b.View().Member(a.View().Session)
		return strings.HasPrefix(m.Trouble(), "commit refused since ")
	})
	sqlfault.Exec(t, admin, "GRANT INSERT ON tenure_logs TO "+user.User())
	awaited(t, "a is eligible", func() bool { return a.View().Ineligible == "" && a.View().Trouble == "" })

	sqlfault.Exec(t, admin, "REVOKE INSERT ON tenure_shards FROM "+user.User())
	if err := a.Contend(func(context.Context, *core.Lease) error { return nil }, "t"); err != nil {
		t.Fatal(err)
	}
	awaited(t, "a line about claims", func() bool { return log.has("call=acquire") })
	sqlfault.Exec(t, admin, "GRANT INSERT ON tenure_shards TO "+user.User())
	awaited(t, "a owns t", func() bool {
		o, _ := b.View().Owner("t")
		return o.Token != 0 && a.View().Trouble == ""
	})
}
