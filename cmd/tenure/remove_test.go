package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

func TestRemoveNamespace(t *testing.T) {
	t.Parallel()
	formats := map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string {
			return fmt.Sprintf("sqlite: {path: %q, namespace: test}", filepath.Join(t.TempDir(), "test.db"))
		},
		"postgres": func(t *testing.T) string {
			return fmt.Sprintf("postgres: {dsn: %q, namespace: test}", pool.Get(t, servers.Postgres, nil).Database(t).Reveal())
		},
		"mysql": func(t *testing.T) string {
			return fmt.Sprintf("mysql: {dsn: %q, namespace: test}", pool.Get(t, servers.MariaDB, nil).Database(t).Reveal())
		},
	}
	for kind, format := range atAddress {
		formats[string(kind)] = func(t *testing.T) string { return fmt.Sprintf(format, servers.New(t, kind, nil).Addr()) }
	}
	for name, format := range formats {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			removeNamespace(t, format(t))
		})
	}
}

// used is a namespace in which a member wrote.
func used(t *testing.T, backend, namespace string) (p *place, stop func()) {
	t.Helper()
	p = newPlace(t, strings.Replace(backend, "namespace: test", fmt.Sprintf("namespace: %q", namespace), 1))
	p.run(exitOK, "init", "--yes")
	wrote := make(chan error, 100)
	stop = p.member("leader", "orders-1", func(ctx context.Context, l *core.Lease) error {
		_, err := l.Commit(ctx, core.Put("k", []byte(namespace)), core.Append([]byte(namespace)))
		wrote <- err
		<-ctx.Done()
		return nil
	})
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	return p, stop
}

func removeNamespace(t *testing.T, backend string) {
	others := map[string]*place{}
	for _, name := range []string{"test/eu", "tes", "test-2", "Test", "a.b_c/test"} {
		p, stop := used(t, backend, name)
		stop()
		others[name] = p
	}
	p, stop := used(t, backend, "test")
	p.bad(exitRefused, "leader", "remove-namespace", "--confirm", "test")
	stop()
	p.bad(exitRefused, `names "test"`, "remove-namespace", "--confirm", "tes")
	if _, errs := p.run(exitRefused, "remove-namespace"); !strings.Contains(errs, "--confirm") {
		t.Errorf("without a name: %s", errs)
	}
	p.run(exitOK, "remove-namespace", "--dry-run")
	if out, _ := p.run(exitOK, "items", "orders-1"); !strings.Contains(out, "k") {
		t.Errorf("nothing was to be removed: %s", out)
	}
	if _, errs := p.run(exitOK, "remove-namespace", "--confirm", "test"); !strings.Contains(errs, "removed: ") {
		t.Errorf("it removed %s", errs)
	}
	p.bad(exitNotFound, "tenure init", "status")
	p.bad(exitNotFound, "tenure init", "remove-namespace", "--confirm", "test")
	p.run(exitOK, "remove-namespace", "--confirm", "test", "--force")
	for name, other := range others {
		if out, _ := other.run(exitOK, "items", "orders-1", "-o", "json"); !strings.Contains(out, name) {
			t.Errorf("namespace %q has lost items: %s", name, out)
		}
		if out, _ := other.run(exitOK, "log", "orders-1"); !strings.Contains(out, name) {
			t.Errorf("namespace %q has lost entries: %s", name, out)
		}
		other.run(exitOK, "verify")
	}
	again, stop := used(t, backend, "test") // it begins again
	defer stop()
	if out, _ := again.run(exitOK, "log", "orders-1"); strings.Count(out, "\n") != 1 {
		t.Errorf("the new one has entries of the former: %s", out)
	}
}

// A living member halts if its namespace is removed with --force.
func TestRemoveNamespaceOfAMember(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.run(exitOK, "init")
	halted := make(chan error, 1)
	a := &app{path: p.path, key: "tenure", timeout: limit}
	b, err := a.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	o := a.conf.Options()
	o.LockDir, o.ReturnHalted = "none", true
	e, err := core.NewElector(b, o)
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan struct{})
	if err := e.Contend(func(ctx context.Context, _ *core.Lease) error { close(granted); <-ctx.Done(); return nil }, "s"); err != nil {
		t.Fatal(err)
	}
	go func() { halted <- e.Run(t.Context()) }()
	<-granted
	p.bad(exitRefused, "1 member alive", "remove-namespace", "--confirm", "test")
	p.run(exitOK, "remove-namespace", "--confirm", "test", "--force")
	if err := <-halted; !errors.Is(err, core.ErrStoreChanged) && !errors.Is(err, core.ErrLost) {
		t.Errorf("the member ended with %v", err)
	}
}

// After an unfinished removal, no member can open or create the namespace, and another removal
// finishes the first.
func TestRemoveNamespaceAgain(t *testing.T) {
	t.Parallel()
	for table, file := range map[string]string{
		"rosters": "-members", "nodes": "-members", "logs": "", "items": "", "tails": "", "shards": "", "namespaces": "",
	} {
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "test.db")
			p, stop := used(t, fmt.Sprintf("sqlite: {path: %q, namespace: test}", path), "test")
			stop()
			do := func(statement string) {
				db, err := sqlite.OpenDB(path + file)
				if err != nil {
					t.Fatal(err)
				}
				defer db.Close()
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			do("CREATE TRIGGER planned BEFORE DELETE ON tenure_" + table + " BEGIN SELECT RAISE(ABORT, 'no more'); END")
			if code, _, errs := p.exec("remove-namespace", "--confirm", "test"); code == exitOK || !strings.Contains(errs, "--force") {
				t.Errorf("the removal ended with %d: %s", code, errs)
			}
			if table == "rosters" { // the first one
				p.run(exitOK, "verify")
			} else {
				p.run(exitDamaged, "status")
				p.run(exitDamaged, "init")
			}
			do("DROP TRIGGER planned")
			p.run(exitOK, "remove-namespace", "--confirm", "test", "--force")
			p.bad(exitNotFound, "tenure init", "status")
			p.run(exitOK, "init")
			p.run(exitSilent, "status")
		})
	}
}
