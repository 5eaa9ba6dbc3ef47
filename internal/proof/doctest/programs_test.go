package doctest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// needs are the requirements of a page's programs and fragments: a server, and the page's form of
// its address.
type needs struct {
	kind   servers.Kind
	writes string                      // the page's form of the address or the DSN
	is     func(db servers.DSN) string // its replacement
}

// The data sources that pages write.
const (
	postgresDSN = "postgres://postgres:secret@127.0.0.1/postgres"
	mysqlDSN    = "root:secret@tcp(127.0.0.1:3306)/app"
)

// pagesNeed lists the pages whose blocks need a server.
func pagesNeed() map[string]needs {
	addr := func(db servers.DSN) string { return db.Addr() }
	dsn := func(db servers.DSN) string { return db.Reveal() }
	return map[string]needs{
		"docs/backends/etcd.md":      {servers.Etcd, "127.0.0.1:2379", addr},
		"docs/backends/consul.md":    {servers.Consul, "127.0.0.1:8500", addr},
		"docs/backends/zookeeper.md": {servers.ZooKeeper, "127.0.0.1:2181", addr},
		"docs/backends/redis.md":     {servers.Redis, "127.0.0.1:6379", addr},
		"docs/backends/postgres.md":  {servers.Postgres, postgresDSN, dsn},
		"docs/backends/mysql.md":     {servers.MariaDB, mysqlDSN, dsn},
	}
}

// program is a block, or a fragment in its wrapper, that is built and run.
type program struct {
	*block
	source string
	args   []string
	addr   string // replaces pageAddr
	isTest bool   // it has a test, which runs instead of main
	binary string
}

// plant contains the machine's servers. An unavailable server is an error, which skips the blocks
// that need the server.
type plant struct {
	started map[servers.Kind]*servers.Server
	failed  map[servers.Kind]error
}

func startServers(t *testing.T) *plant {
	t.Helper()
	p := &plant{started: make(map[servers.Kind]*servers.Server), failed: make(map[servers.Kind]error)}
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	t.Cleanup(cancel)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, n := range pagesNeed() {
		wg.Go(func() {
			s, err := servers.Start(ctx, n.kind, &servers.Options{NoSync: true})
			if errors.Is(err, servers.ErrUnavailable) { // a running server accepts no options
				s, err = servers.Start(ctx, n.kind, nil)
			}
			mu.Lock()
			defer mu.Unlock()
			p.started[n.kind], p.failed[n.kind] = s, err
		})
	}
	wg.Wait()
	t.Cleanup(func() {
		for _, s := range p.started {
			if s == nil {
				continue
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

// located returns the block's source with the addresses of this machine's server.
func (p *plant) located(t *testing.T, b *block, source string) string {
	t.Helper()
	n, ok := pagesNeed()[b.page]
	if !ok || p.started[n.kind] == nil {
		return source
	}
	s := p.started[n.kind]
	db := s.Admin()
	if n.kind == servers.Postgres || n.kind == servers.MariaDB {
		db = s.Database(t)
	}
	source = strings.ReplaceAll(source, n.writes, n.is(db))
	return strings.ReplaceAll(source, `"orders"`, `"`+b.name()+`"`) // one server, with a namespace for each block
}

// TestBlocks compiles and runs every block of Go in the pages for users, and compares a program's
// output with the console's block that follows it.
func TestBlocks(t *testing.T) {
	servers.Short(t)
	p := startServers(t)
	mod := module(t)
	var all []*program
	used := make(map[int]bool)
	given := make(map[string]bool)
	for _, b := range goBlocks(t) {
		if strings.HasPrefix(b.mark, "module ") { // this module cannot import it; its test compiles the block
			continue
		}
		x := &program{block: b, source: b.text, addr: freeAddr(t, given)}
		if !b.isProgram() {
			w := wrapped(t, b, used)
			x.source, x.args, x.isTest = w.text, w.args, strings.Contains(w.text, "\"testing\"")
		}
		x.source = strings.ReplaceAll(p.located(t, b, x.source), pageAddr, x.addr)
		file := "main.go"
		if x.isTest {
			file = "main_test.go"
		}
		write(t, filepath.Join(mod, b.name(), file), x.source)
		x.binary = filepath.Join(mod, "bin", b.name())
		all = append(all, x)
	}
	for i, w := range wrappers() {
		if !used[i] {
			t.Errorf("no block of %s has %q: its wrapper is not needed", w.page, w.has)
		}
	}
	hasty := hastyShards(t, mod, all)
	goTool(t, mod, "build", "-o", filepath.Join(mod, "bin")+string(filepath.Separator), "./...")
	for _, x := range all {
		if x.isTest {
			goTool(t, mod, "test", "-c", "-o", x.binary, "./"+x.name())
		}
	}
	t.Run("run", func(t *testing.T) {
		t.Run("closing entries", func(t *testing.T) {
			t.Parallel()
			closes(t, hasty)
		})
		for _, x := range all {
			t.Run(x.name(), func(t *testing.T) {
				t.Parallel()
				if n, ok := pagesNeed()[x.page]; ok {
					servers.Unavailable(t, n.kind, p.failed[n.kind])
				}
				x.run(t)
			})
		}
	})
}

func (x *program) run(t *testing.T) {
	s := &session{T: t, dir: t.TempDir(), binary: x.binary, args: x.args}
	files(t, x.page, s.dir, x.addr)
	if !x.isProgram() { // it fails on its own
		s.play(&block{page: x.page, line: x.line, text: "$ go run .\n...\n"})
		return
	}
	if x.next == nil || x.next.lang != "console" {
		t.Fatalf("%s: a program is followed by a block ```console with its output", x.block)
	}
	console := *x.next
	console.text = strings.ReplaceAll(console.text, pageAddr, x.addr)
	s.play(&console)
}

// pageAddr is the address of the servers of pages.
const pageAddr = "127.0.0.1:8080"

// freeAddr returns an unused address, with a port below the kernel's range for outgoing
// connections, so no outgoing connection takes the port before the program does. Programs run in
// parallel, so no two programs get the same address.
func freeAddr(t *testing.T, given map[string]bool) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10000+rand.IntN(5000)))
		if err != nil {
			continue
		}
		l.Close()
		if addr := l.Addr().String(); !given[addr] {
			given[addr] = true
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}
