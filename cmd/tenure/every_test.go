//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

// every contains valid arguments for every command except version, which needs no namespace.
var every = map[string][]string{
	"status":           {"status"},
	"members":          {"members"},
	"shards":           {"shards"},
	"ranges":           {"ranges"},
	"who":              {"who", "s"},
	"watch":            {"watch", "--for", "1s"},
	"log":              {"log", "s"},
	"items":            {"items", "s"},
	"history":          {"history", "s"},
	"init":             {"init"},
	"doctor":           {"doctor"},
	"verify":           {"verify"},
	"export":           {"export"},
	"rules":            {"rules"},
	"drain":            {"drain", "node", "--force", "--yes"},
	"undrain":          {"undrain", "node"},
	"pin":              {"pin", "s", "node", "--force", "--yes"},
	"unpin":            {"unpin", "s"},
	"exclude":          {"exclude", "s", "node", "--force", "--yes"},
	"include":          {"include", "s", "node"},
	"freeze":           {"freeze", "--yes"},
	"unfreeze":         {"unfreeze"},
	"move":             {"move", "s", "node", "--force", "--yes"},
	"resign":           {"resign", "s", "--yes"},
	"unmove":           {"unmove", "s"},
	"split":            {"split", "s", "--yes"},
	"merge":            {"merge", "s", "t", "--yes"},
	"unsplit":          {"unsplit", "0x8000000000000000"},
	"release":          {"release", "s", "--yes"},
	"unrelease":        {"unrelease", "s"},
	"effects":          {"effects"},
	"effect":           {"effect", "resolve", "s", "pay/1", "done", "--yes"},
	"may-stop":         {"may-stop", "node"},
	"evict":            {"evict", "00", "--yes"},
	"raise-floor":      {"raise-floor", "1000000", "--yes"},
	"remove-namespace": {"remove-namespace", "--confirm", "test"},
	"repair":           {"repair", "k", "--shards", "4", "--yes"},
	"serve":            {"serve", "--listen", "unix:/nonexistent/dir/tenure.sock"},
	"run":              {"run", "--shard", "s", "--", "true"},
	"certify":          {"certify"},
}

func TestEveryCommandIsListed(t *testing.T) {
	t.Parallel()
	a := &app{in: strings.NewReader(""), out: io.Discard, errs: io.Discard}
	for _, c := range a.root().Commands() {
		if _, ok := every[c.Name()]; !ok && c.Name() != "version" && c.Name() != "check" { // which ask no store
			t.Errorf("every has no arguments of the command %q: add them", c.Name())
		}
	}
}

// allBad runs every command, except the excluded ones, and expects the same error from each.
func (p *place) allBad(code int, want string, flags []string, without ...string) {
	p.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(every)) {
		if !slices.Contains(without, name) {
			p.bad(code, want, append(slices.Clone(flags), every[name]...)...)
		}
	}
}

// TestWithoutNamespace: no command except init creates anything.
func TestWithoutNamespace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := newPlace(t, fmt.Sprintf("sqlite: {path: %q, namespace: test, create: true}", filepath.Join(dir, "test.db")))
	p.allBad(exitUsage, "no backend is configured", []string{"--key", "other"})
	p.allBad(exitNotFound, "tenure init", nil, "init")
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("got the files %v, %v, want none", left, err)
	}
	p.run(exitOK, "init")
	// The namespace exists and is empty.
	for name, want := range map[string]string{
		"who": "never owned", "log": "never owned", "items": "never owned", "history": "never owned", "move": "never owned",
		"resign": "never owned", "undrain": "no such rule", "unpin": "no such rule", "include": "no such rule",
		"unfreeze": "no such rule", "unmove": "no such rule", "evict": "tenure members", "may-stop": "tenure members",
		"ranges": "no keyspace", "split": "no keyspace", "merge": "no keyspace", "unsplit": "no such rule", "release": "never owned",
		"unrelease": "no such rule", "effect": "never owned",
	} {
		p.bad(exitNotFound, want, every[name]...)
	}
}

// TestWithoutRights: if a user may read but not write, each command refuses when it opens the
// store, and changes nothing.
func TestWithoutRights(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	const format = "postgres: {dsn: %q, namespace: test}"
	owner := newPlace(t, fmt.Sprintf(format, dsn.Reveal()))
	owner.run(exitOK, "init")
	owner.run(exitOK, "freeze", "--yes")
	before, _ := owner.run(exitOK, "export")

	admin, err := sql.Open("pgx", server.Admin().Database(dsn.Name()).Reveal())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	reader := dsn.As("reader_"+dsn.Name()[len(dsn.Name())-8:], "planted")
	if _, err := admin.ExecContext(t.Context(), fmt.Sprintf("CREATE ROLE %[1]s LOGIN PASSWORD 'planted'; GRANT USAGE ON SCHEMA public TO %[1]s; "+
		"GRANT SELECT ON ALL TABLES IN SCHEMA public TO %[1]s", reader.User())); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := admin.ExecContext(context.Background(), fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", reader.User())); err != nil {
			t.Error(err)
		}
	}()
	p := newPlace(t, fmt.Sprintf(format, reader.Reveal()))
	p.allBad(exitRefused, "permission denied", nil)
	if after, _ := owner.run(exitOK, "export"); after != before {
		t.Errorf("the namespace was changed:\n%s\nbefore:\n%s", after, before)
	}
}
