//go:build unix

package main

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// rightful is a store whose user may write. An administrator revokes the user's permissions, and
// grants them again.
type rightful struct {
	*proxied
	take, give func() error
	b          core.Backend
}

// rightfuls contains, for each kind of store, a function that creates a rightful.
var rightfuls = map[servers.Kind]func(t *testing.T) *rightful{
	servers.Postgres: rightfulPostgres, servers.Etcd: rightfulEtcd, servers.Redis: rightfulRedis,
}

func rightfulPostgres(t *testing.T) *rightful {
	server := pool.Get(t, servers.Postgres, nil)
	dsn := server.Database(t)
	newPlace(t, inDatabase("postgres", dsn)(dsn.Addr())).run(exitOK, "init")
	admin, err := sql.Open("pgx", server.Admin().Database(dsn.Name()).Reveal())
	if err != nil {
		t.Fatal(err)
	}
	user := dsn.As("writer_"+dsn.Name()[len(dsn.Name())-8:], "planted")
	do := func(statements string) func() error {
		return func() error {
			_, err := admin.Exec(strings.ReplaceAll(statements, "USER", user.User()))
			return err
		}
	}
	t.Cleanup(func() {
		if err := do("DROP OWNED BY USER; DROP ROLE USER")(); err != nil {
			t.Error(err)
		}
		admin.Close()
	})
	if err := do("CREATE ROLE USER LOGIN PASSWORD 'planted'; GRANT USAGE ON SCHEMA public TO USER; " +
		"GRANT SELECT ON ALL TABLES IN SCHEMA public TO USER")(); err != nil {
		t.Fatal(err)
	}
	return &rightful{proxied: newProxied(t, servers.Postgres, dsn.Addr(), inDatabase("postgres", user)),
		take: do("REVOKE INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public FROM USER"),
		give: do("GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO USER")}
}

func rightfulEtcd(t *testing.T) *rightful {
	server := servers.New(t, servers.Etcd, &servers.Options{NoSync: true, Config: []string{"bcrypt-cost = 4"}})
	client := func(user, password string) *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr()}, Username: user, Password: password})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	ctx, first := t.Context(), client("", "")
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"root", "writer"} {
		must(first.RoleAdd(ctx, name))
		must(first.UserAdd(ctx, name, "planted"))
		must(first.UserGrantRole(ctx, name, name))
	}
	must(first.AuthEnable(ctx))
	root, end := client("root", "planted"), clientv3.GetPrefixRangeEnd("test/")
	set := func(kind clientv3.PermissionType) func() error {
		return func() error {
			_, err := root.RoleGrantPermission(ctx, "writer", "test/", end, kind)
			return err
		}
	}
	must(nil, set(clientv3.PermissionType(clientv3.PermReadWrite))())
	return &rightful{proxied: newProxied(t, servers.Etcd, server.Addr(), func(addr string) string {
		return fmt.Sprintf("etcd: {endpoints: [%q], namespace: test, username: writer, password: planted}", addr)
	}), take: set(clientv3.PermissionType(clientv3.PermRead)), give: set(clientv3.PermissionType(clientv3.PermReadWrite))}
}

func rightfulRedis(t *testing.T) *rightful {
	server := servers.New(t, servers.Redis, nil)
	admin := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	t.Cleanup(func() { admin.Close() })
	do := func(rules string) func() error {
		var args []any
		for _, f := range strings.Fields("ACL SETUSER writer " + rules) {
			args = append(args, f)
		}
		return func() error { return admin.Do(t.Context(), args...).Err() }
	}
	if err := do("on >planted ~{test}/* +@all -@admin +info +config|get")(); err != nil {
		t.Fatal(err)
	}
	return &rightful{proxied: newProxied(t, servers.Redis, server.Addr(), func(addr string) string {
		return fmt.Sprintf("redis: {addrs: [%q], namespace: test, username: writer, password: planted}", addr)
	}), take: do("-@write"), give: do("+@write")}
}

// TestRightLost revokes the user's permission to write at one of the tool's requests, a different
// request each time. The tool reports in one line what to change, and exits with the code for a
// refusal. Either the tool has written nothing, or it wrote the whole change before that request.
// With -rounds=300, the test tries each request.
func TestRightLost(t *testing.T) {
	t.Parallel()
	for kind, rightful := range rightfuls {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			r := rightful(t)
			if err := r.give(); err != nil {
				t.Fatal(err)
			}
			r.direct.run(exitOK, "init")
			r.direct.lead("orders-1")
			a := &app{path: r.direct.path, key: "tenure", timeout: limit}
			var err error
			if r.b, err = a.open(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer r.b.Close()
			for _, args := range [][]string{
				{"pin", "orders-1", "leader", "--yes"}, {"unpin", "orders-1", "--yes"},
				{"move", "orders-1", "gone", "--yes", "--force"}, {"release", "orders-1", "--yes"},
				{"raise-floor", "1000000", "--yes"},
			} {
				if args[0] != "raise-floor" || kind == servers.Postgres {
					r.losing(t, args...)
				}
			}
		})
	}
}

// losing runs a command that loses the permissions at some of its requests.
func (r *rightful) losing(t *testing.T, args ...string) {
	t.Helper()
	undo := map[string][]string{"pin": {"unpin", "orders-1", "--yes"}, "unpin": {"pin", "orders-1", "leader", "--yes"},
		"move": {"unmove", "orders-1", "--yes"}, "release": {"unrelease", "orders-1", "--yes"}}[args[0]]
	if args[0] == "unpin" {
		r.direct.run(exitOK, undo...)
	}
	args = append(args, patient...)
	total := r.requests(t, args...)
	const least = 2
	step := max(1, total/(least+*rounds))
	refused, done := 0, 0
	for at := total; at > 0; at -= step {
		if undo != nil {
			r.direct.run(exitOK, undo...)
		} else { // a floor is raised once
			args[1] += "0"
		}
		before := r.state(t)
		var mu sync.Mutex // the last request may have no answer, so the command may end before it
		over := false
		r.decide(t, func(n int) faultproxy.Verdict {
			mu.Lock()
			defer mu.Unlock()
			if n == at && !over {
				if err := r.take(); err != nil {
					t.Error(err)
				}
			}
			return faultproxy.Pass
		})
		code, _, errs := r.through.exec(args...)
		mu.Lock()
		over = true
		mu.Unlock()
		r.decide(t, nil)
		if err := r.give(); err != nil {
			t.Fatal(err)
		}
		after := r.state(t)
		lines := strings.Split(strings.TrimSuffix(errs, "\n"), "\n")
		last := lines[len(lines)-1]
		switch {
		case code == exitOK && after != before:
			done++
		case code == exitRefused && after == before && strings.HasPrefix(last, "tenure: ") &&
			strings.Contains(last, "docs/backends/") && len(lines) <= 2 && !strings.Contains(errs, "planted"):
			refused++
		default:
			t.Errorf("%s without rights from request %d of %d on: exit code %d, changed %v, %q", args[0], at, total, code,
				after != before, errs)
		}
		if code != exitOK && undo != nil {
			r.direct.run(exitOK, args...) // the rights are back
		}
	}
	t.Logf("%s: %d requests; refused %d times, and done before the loss %d times", args[0], total, refused, done)
	if refused == 0 {
		t.Errorf("%s was never refused", args[0])
	}
}

// state returns the state that the commands change: rules, their log, and the floor.
func (r *rightful) state(t *testing.T) string {
	t.Helper()
	rules, err := control.Read(t.Context(), r.b)
	if err != nil {
		t.Fatal(err)
	}
	head, err := r.b.ReadLog(t.Context(), control.Shard, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	v, err := r.b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("rules %+v, %d entries, floor %d", rules, head.Head.Seq, v.Floor)
}
