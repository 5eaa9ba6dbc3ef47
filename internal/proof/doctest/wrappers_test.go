package doctest

import (
	"strings"
	"testing"
)

// wrapper turns a block that is part of a program into a program or a test, and checks the promises
// of the surrounding text.
type wrapper struct {
	page string
	has  string   // text in the block
	text string   // has marker in the place of the block
	args []string // the program's arguments
}

// wrapped returns the block in its wrapper.
func wrapped(t *testing.T, b *block, used map[int]bool) *wrapper {
	t.Helper()
	for i, w := range wrappers() {
		if w.page == b.page && strings.Contains(b.text, w.has) && !used[i] {
			used[i] = true
			w.text = strings.Replace(w.text, marker, b.text, 1)
			return &w
		}
	}
	t.Fatalf("%s: the block is no program, and has no wrapper in wrappers_test.go:\n%s", b, b.text)
	return nil
}

// must is a part of every wrapper.
const must = `
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func check(ok bool, what string) {
	if !ok {
		panic("the page is wrong: " + what)
	}
}
`

const work = `
func work(b core.Backend) (lease *core.Lease) {
	must(core.RunSingleton(context.Background(), b, "s1", func(ctx context.Context, l *core.Lease) error {
		lease = l
		_, err := l.Append(ctx, nil)
		return err
	}, nil))
	return lease
}
`

// opened returns a wrapper of a block that opens a backend, as b, or raises its floor. The
// namespace must exist before.
func opened(imports, begin, end string) string {
	return "package main\n\nimport (\n\t\"context\"\n\n\t\"github.com/tenure-go/tenure/core\"\n" + imports + ")\n" +
		must + work +
		"\nfunc main() {\n\tctx := context.Background()\n" + begin + "\n" + marker + "\n" + end + "\n}\n"
}

const reopened = `	must(err)
	work(b)
	must(b.Close())`

// effectsProgram checks that the board and the metrics show an effect that waits.
const effectsProgram = `package main

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/observe/tenurehttp"
	"github.com/tenure-go/tenure/observe/tenureprom"
)
` + must + `
func main() {
	b, err := memory.Open(context.Background(), memory.New(), "shop", nil)
	must(err)
	defer b.Close()
	metrics, registry := tenureprom.New(nil), prometheus.NewRegistry()
	registry.MustRegister(metrics)
	running, stop := context.WithCancel(context.Background())
	var elector *core.Elector
	serve := func(ctx context.Context, lease *core.Lease) error {
` + marker + `
		must(err)
		defer ledger.Close()
		_, err = ledger.Do(ctx, "pay/1", func(context.Context, string) ([]byte, error) { return nil, errors.New("no answer") })
		check(errors.Is(err, effect.ErrInDoubt), "an attempt without an answer is in doubt")
		w := httptest.NewRecorder()
		board.ServeHTTP(w, httptest.NewRequest("GET", "/view", nil))
		check(strings.Contains(w.Body.String(), "\"unresolved\": 1"), "the board shows it")
		check(!strings.Contains(w.Body.String(), "pay/1"), "no page has its key")
		families, err := registry.Gather()
		must(err)
		shown := false
		for _, f := range families {
			shown = shown || f.GetName() == "tenure_effects"
		}
		check(shown, "there are metrics of effects")
		stop()
		return nil
	}
	elector, err = core.NewElector(b, nil)
	must(err)
	must(elector.Contend(serve, "payments"))
	must(elector.Run(running))
}
`

// takeProgram makes an effect in a shard, and takes the effect to another shard. unsentProgram has
// no server at the bank's address.
const unsentProgram = `package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
)

func main() {
	http.DefaultTransport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}}
	calls, body := 0, io.Reader(strings.NewReader("12"))
	charge := func(ctx context.Context, id string) ([]byte, error) {
		if calls++; calls == 2 {
			return []byte("receipt"), nil
		}
` + marker + `
		return nil, resp.Body.Close()
	}
	b, err := memory.Open(context.Background(), memory.New(), "shop", nil)
	must(err)
	defer b.Close()
	must(core.RunSingleton(context.Background(), b, "payments", func(ctx context.Context, lease *core.Lease) error {
		l, err := effect.Open(ctx, lease, nil)
		must(err)
		defer l.Close()
		receipt, err := l.Do(ctx, "pay/1", charge)
		check(err == nil && string(receipt) == "receipt", "a request without a connection is tried again")
		return nil
	}, &core.Options{LockDir: "none"}))
}
` + must

const takeProgram = `package main

import (
	"context"
	"strings"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
)
` + must + `
func main() {
	background, from := context.Background(), "orders-0000"
	keys, r := sharding.Keyspace{Name: "orders", Shards: 2, Hash: "fnv1a"}, assign.Range{}
	backend, err := memory.Open(background, memory.New(), "shop", nil)
	must(err)
	defer backend.Close()
	ran := 0
	pay := func(ctx context.Context, lease *core.Lease) error {
		ledger, err := effect.Open(ctx, lease, nil)
		must(err)
		defer ledger.Close()
		_, err = ledger.Do(ctx, "pay/1", func(context.Context, string) ([]byte, error) { ran++; return nil, nil })
		return err
	}
	must(core.RunSingleton(background, backend, from, pay, nil))
	must(core.RunSingleton(background, backend, "orders-0002", func(ctx context.Context, lease *core.Lease) error {
` + marker + `
		must(err)
		_, err = lease.Commit(ctx, effects...)
		must(err)
		return pay(ctx, lease)
	}, nil))
	check(ran == 1, "the effect is made again")
}
`

// boardProgram reads the board's page where it is mounted.
const boardProgram = `package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/observe/tenurehttp"
	"github.com/tenure-go/tenure/follower"
)
` + must + `
func main() {
	b, err := memory.Open(context.Background(), memory.New(), "orders", nil)
	must(err)
	defer b.Close()
	journal := &tenurehttp.Journal{}
	elector, err := core.NewElector(b, &core.Options{Node: "n1", Hooks: journal.Hooks()})
	must(err)
	tailer, err := follower.NewTailer(b, nil)
	must(err)
	mux := http.NewServeMux()
` + marker + `
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/tenure/", nil))
	check(w.Code == 200 && strings.Contains(w.Body.String(), "<h1>Tenure</h1>"), w.Body.String())
}
`

// onEtcd, and similar constants, make the namespace and a client.
const (
	onEtcd = `	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://127.0.0.1:2379"}})
	must(err)
	defer client.Close()
	open := func() *etcd.Backend {
		b, err := etcd.OpenClient(ctx, client, "orders", &etcd.Options{Create: true})
		must(err)
		return b
	}`
	etcdImports = `	"github.com/tenure-go/tenure/backends/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
`
	onConsul = `	client, err := api.NewClient(&api.Config{Address: "127.0.0.1:8500"})
	must(err)
	open := func() *consul.Backend {
		b, err := consul.OpenClient(ctx, client, "orders", &consul.Options{Create: true})
		must(err)
		return b
	}`
	consulImports = `	"github.com/hashicorp/consul/api"
	"github.com/tenure-go/tenure/backends/consul"
`
	onZooKeeper = `	open := func() *zookeeper.Backend {
		b, err := zookeeper.Open(ctx, []string{"127.0.0.1:2181"}, "orders", &zookeeper.Options{Create: true})
		must(err)
		return b
	}`
	zooKeeperImports = `	"github.com/tenure-go/tenure/backends/zookeeper"
`
	onRedis = `	client := goredis.NewUniversalClient(&goredis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}})
	defer client.Close()
	open := func() *redis.Backend {
		b, err := redis.Open(ctx, &goredis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}}, "orders",
			&redis.Options{Create: true})
		must(err)
		return b
	}`
	redisImports = `	goredis "github.com/redis/go-redis/v9"
	"github.com/tenure-go/tenure/backends/redis"
`
	// raised checks that tokens are above the raised floor.
	begun  = "\n\tfirst := open()\n\twork(first)\n\tmust(first.Close())\n\t{"
	raised = `	must(err)
	}
	b := open()
	check(work(b).Token() > 1_000_000, "the floor is not raised")
	must(b.Close())`
	onPostgres = `	open := func() *postgres.Backend {
		b, err := postgres.Open(ctx, "` + postgresDSN + `", "orders", &postgres.Options{Create: true, Migrate: true})
		must(err)
		return b
	}`
	postgresImports = "\t\"github.com/tenure-go/tenure/backends/sql/postgres\"\n"
	elsewhere       = `	if len(os.Args) < 2 {
		return // it names a host that is not there
	}`
)

func wrappers() []wrapper {
	return []wrapper{
		{page: "docs/board.md", has: "tenurehttp.Handler(", text: boardProgram},
		{page: "docs/effects.md", has: "effect.Stats{}", text: effectsProgram},
		{page: "docs/effects.md", has: "effect.Take(", text: takeProgram},
		{page: "docs/effects.md", has: "effect.NotSent(", text: unsentProgram},
		{page: "docs/backends/etcd.md", has: "etcd.OpenClient(", text: opened(etcdImports, onEtcd+begun, reopened+"\n\t}")},
		{page: "docs/backends/etcd.md", has: "etcd.RaiseFloor(", text: opened(etcdImports, onEtcd+begun, raised)},
		{page: "docs/backends/etcd.md", has: "client.Txn(", text: opened(etcdImports, onEtcd+`
	b := open()
	defer b.Close()
	var lease *core.Lease
	book := func() bool {`, `		must(err)
		return resp.Succeeded
	}
	must(core.RunSingleton(ctx, b, "s1", func(ctx context.Context, l *core.Lease) error {
		lease = l
		check(book(), "a current lease is refused")
		return nil
	}, nil))
	check(!book(), "a former lease is not refused")`)},
		{page: "docs/backends/consul.md", has: "consul.OpenClient(", text: opened(consulImports, onConsul+begun, reopened+"\n\t}")},
		{page: "docs/backends/consul.md", has: "b.GuardOps(", text: opened(consulImports+"\t\"errors\"\n\t\"fmt\"\n", onConsul+`
	b := open()
	defer b.Close()
	var lease *core.Lease
	book := func() error {`, `		must(err)
		if !ok { // GuardOps may know nothing yet of the end of the lease
			return fmt.Errorf("%w: %+v", core.ErrLost, *resp.Errors[0])
		}
		return nil
	}
	must(core.RunSingleton(ctx, b, "s1", func(ctx context.Context, l *core.Lease) error {
		lease = l
		return book()
	}, nil))
	check(errors.Is(book(), core.ErrLost), "a former lease is not refused")`)},
		{page: "docs/backends/consul.md", has: "consul.RaiseFloor(", text: opened(consulImports, onConsul+begun, raised)},
		{page: "docs/backends/redis.md", has: "redis.RaiseFloor(", text: opened(redisImports, onRedis+begun, raised)},
		{page: "docs/backends/redis.md", has: "redis.GuardScript(", text: opened(redisImports, onRedis+`
	b := open()
	defer b.Close()
	var lease *core.Lease
	pay := func() error {`, `		return err
	}
	must(core.RunSingleton(ctx, b, "s1", func(ctx context.Context, l *core.Lease) error {
		lease = l
		return pay()
	}, nil))
	check(redis.Fenced(pay()), "a former lease is not refused")`)},
		{page: "docs/backends/redis.md", has: `"WAIT", 1, 1000`, text: opened("\t\"errors\"\n\t\"os\"\n"+redisImports, elsewhere+"\n"+onRedis+`
	b := open()
	defer b.Close()
	script, err := redis.GuardScript("return 1")
	must(err)
	keys, args := b.Guard(core.Fence{}, nil)
	must(func() error {`, `	}())`)},
		{page: "docs/backends/zookeeper.md", has: "zk-0", text: opened("\t\"crypto/tls\"\n\t\"os\"\n"+zooKeeperImports+"\t\"github.com/tenure-go/tenure/core/driver\"\n", elsewhere+`
	password, tlsConfig := os.Args[1], &tls.Config{}`, reopened)},
		{page: "docs/backends/zookeeper.md", has: "zookeeper.RaiseFloor(", text: opened(zooKeeperImports, onZooKeeper+begun, raised)},
		{page: "docs/backends/zookeeper.md", has: "b.GuardOps(", text: opened("\t\"errors\"\n\t\"fmt\"\n\t\"time\"\n\t\"github.com/go-zookeeper/zk\"\n"+zooKeeperImports, onZooKeeper+`
	b := open()
	defer b.Close()
	conn, events, err := zk.Connect([]string{"127.0.0.1:2181"}, 10*time.Second, zk.WithLogInfo(false))
	must(err)
	defer conn.Close()
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	_, err = conn.Create("/app", nil, 0, zk.WorldACL(zk.PermAll))
	must(err)
	_, err = conn.Create("/app/paid", nil, 0, zk.WorldACL(zk.PermAll))
	must(err)
	paid := []byte("yes")
	var lease *core.Lease
	book := func() error {`, `		return err
	}
	must(core.RunSingleton(ctx, b, "s1", func(ctx context.Context, l *core.Lease) error {
		lease = l
		must(book())
		got, _, err := conn.Get("/app/paid")
		must(err)
		check(string(got) == "yes", "a current lease is refused")
		return nil
	}, nil))
	err = book()
	for deadline := time.Now().Add(time.Minute); errors.Is(err, core.ErrRetry) && time.Now().Before(deadline); {
		err = book()
	}
	check(errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) || errors.Is(err, core.ErrLost), fmt.Sprint("a former lease is not refused: ", err))`)},
		{page: "docs/backends/postgres.md", has: "b.FencePgx(", text: opened("\t\"errors\"\n\t\"github.com/jackc/pgx/v5\"\n"+postgresImports, onPostgres+`
	b := open()
	defer b.Close()
	conn, err := pgx.Connect(ctx, "`+postgresDSN+`")
	must(err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE TABLE reports (day DATE)")
	must(err)
	var lease *core.Lease
	report := func() error {`, `		return err
	}
	must(core.RunSingleton(ctx, b, "s1", func(ctx context.Context, l *core.Lease) error {
		lease = l
		return report()
	}, nil))
	check(errors.Is(report(), core.ErrLost), "a former lease is not refused")
	var reports int
	must(conn.QueryRow(ctx, "SELECT count(*) FROM reports").Scan(&reports))
	check(reports == 1, "the former lease's report is there")`)},
		{page: "docs/comparison.md", has: "concurrency.NewElection(", text: before(`	"go.etcd.io/etcd/client/v3/concurrency"
	clientv3 "go.etcd.io/etcd/client/v3"
	"errors"
`, "client *clientv3.Client")},
		{page: "docs/comparison.md", has: "client.LockKey(", text: before(`	"github.com/hashicorp/consul/api"
	"errors"
`, "client *api.Client")},
		{page: "docs/comparison.md", has: "zk.NewLock(", text: before("\t\"github.com/go-zookeeper/zk\"\n", "conn *zk.Conn")},
		{page: "docs/comparison.md", has: "pg_try_advisory_lock", text: before("\t\"database/sql\"\n", "db *sql.DB")},
		{page: "docs/comparison.md", has: "rs.NewMutex(", text: strings.Replace(before("\t\"errors\"\n\t\"time\"\n", "rs redsyncs"),
			"func lead", redsyncStub+"func lead", 1)},
		{page: "docs/comparison.md", has: "locks.Lock(", text: lockedWrapper},
		{page: "docs/guides/fencing.md", has: "fence.ResponseError(", text: fencedWrapper},
		{page: "docs/following.md", has: "snapshots.Write(", text: snapshotsWrapper},
		{page: "docs/sharding.md", has: "Keyspace: keys", text: rangesWrapper},
		{page: "docs/sharding.md", has: "sharding.NewManager(", text: shardingWrapper},
		{page: "docs/sharding.md", has: "sharding.Run(", text: strings.NewReplacer("background, stopElector :=", "_, stopElector :=",
			"elector, err := core.NewElector(backend, nil)\n\tmust(err)\n", "").Replace(shardingWrapper)},
		// Compiled only: it would pull an image.
		{page: "docs/own-ci.md", has: "containers.Run(", text: "package main\n\nimport (\n\t\"testing\"\n\n" +
			"\t\"github.com/tenure-go/tenure/conformance/containers\"\n)\n\n" + marker, args: []string{"-test.run=^$"}},
		{page: "docs/writing-a-backend.md", has: "conformance.Test(", text: suiteWrapper,
			args: []string{"-test.run=TestConformance/Membership"}},
		{page: "docs/writing-a-backend.md", has: "conformance.KVFaults(", text: faultsWrapper,
			args: []string{"-test.run=TestConformance/(Commit|Errors)"}},
	}
}

// before returns a wrapper of code that uses another library for election. It is only compiled.
func before(imports, param string) string {
	return "package main\n\nimport (\n\t\"context\"\n" + imports + ")\n\n" +
		"var publish func(context.Context) error\n\n" +
		"func lead(ctx context.Context, " + param + ") error {\n" + marker + "\n\treturn nil\n}\n\n" +
		"func main() { _ = lead }\n"
}

// redsyncStub has the signatures of redsync, which only the module bench requires.
const redsyncStub = `var pay func(ctx context.Context, value string) error

type redsyncs interface {
	NewMutex(name string, options ...any) interface {
		LockContext(context.Context) error
		UnlockContext(context.Context) (bool, error)
		Value() string
	}
}

var redsync struct{ WithExpiry func(time.Duration) any }

`

const lockedWrapper = `package main

import (
	"context"
	"errors"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/lock"
)
` + must + `
var paid core.Token

func pay(ctx context.Context, token core.Token) error {
	check(ctx.Err() == nil && token > paid, "the token is not greater each time")
	paid = token
	return nil
}

func once(ctx context.Context, locks *lock.Locks) error {
` + marker + `
}

func main() {
	ctx := context.Background()
	backend, err := sqlite.Open(ctx, "tenure.db", "billing", nil)
	must(err)
	defer backend.Close()
	locks, err := lock.New(backend, nil)
	must(err)
	defer locks.Close()
	must(once(ctx, locks))
	must(once(ctx, locks))
}
`

const fencedWrapper = `package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/fence"
)
` + must + `
func main() {
	booked, fails := 0, false
	mark := fence.NewMark(&fence.Memory{}, nil)
	server := httptest.NewServer(mark.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		check(r.URL.Path == "/entries", r.URL.Path)
		if booked++; fails {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}), nil))
	defer server.Close()
	ledger := server.URL
	book := func(lease interface {
		Context() context.Context
		Fence() core.Fence
	}) error {
` + marker + `
	}
	b, err := memory.Open(context.Background(), memory.New(), "orders", nil)
	must(err)
	defer b.Close()
	var leases []*core.Lease
	for range 2 {
		must(core.RunSingleton(context.Background(), b, "ledger", func(ctx context.Context, lease *core.Lease) error {
			leases = append(leases, lease)
			return book(lease)
		}, nil))
	}
	err = book(late{leases[0]})
	check(booked == 2 && errors.Is(err, core.ErrLost), "a former lease is not refused")
	check(book(leases[1]) != nil && booked == 2, "a lease that ended sends requests")
	fails = true
	check(book(late{leases[1]}) != nil, "a failure passes for success")
}

// late is a lease whose request is on its way already.
type late struct{ *core.Lease }

func (late) Context() context.Context { return context.Background() }
`

const snapshotsWrapper = `package main

import (
	"context"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/follower"
)
` + must + `
func main() {
	ctx := context.Background()
	b, err := sqlite.Open(ctx, "tenure.db", "orders", nil)
	must(err)
	defer b.Close()
	snapshots, err := follower.NewSnapshotter(nil)
	must(err)
	must(core.RunSingleton(ctx, b, "s1", func(ctx context.Context, lease *core.Lease) error {
		seq, err := lease.Append(ctx, []byte("3"))
		must(err)
		state := []byte("3")
		{
` + marker + `
			must(err)
		}
		got, err := snapshots.Read(ctx, b, "s1")
		must(err)
		check(got != nil && string(got.State) == "3", "the snapshot is not there")
		return nil
	}, nil))
}
`

const shardingWrapper = `package main

import (
	"context"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding"
)
` + must + `
func main() {
	ctx, leave := context.WithTimeout(context.Background(), time.Minute)
	defer leave()
	background, stopElector := context.WithCancel(context.Background())
	defer stopElector()
	backend, err := sqlite.Open(ctx, "tenure.db", "orders", nil)
	must(err)
	defer backend.Close()
	elector, err := core.NewElector(backend, nil)
	must(err)
	served := make(chan string, 2000)
	serve := func(ctx context.Context, lease *core.Lease) error {
		served <- lease.Shard()
		<-ctx.Done()
		return nil
	}
	go func() {
		defer leave()
		for range 1024 {
			<-served
		}
	}()
` + marker + `
	must(err)
	check(len(served) == 0, "other shards than the page's are served")
}
`

// rangesWrapper sends more requests for one key than for all others, until the key has a separate
// range that contains the key's item.
const rangesWrapper = `package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
)
` + must + `
type request struct {
	key   string
	value []byte
}

func (r request) answer(err error) {
	check(err == nil || errors.Is(err, sharding.ErrMoved) || errors.Is(err, core.ErrLost), fmt.Sprint(err))
}

func requests(ctx context.Context) iter.Seq[request] {
	return func(yield func(request) bool) {
		for n := 0; ctx.Err() == nil; n++ {
			key := fmt.Sprint("order-", n%100)
			if n%2 == 0 {
				key = "hot"
			}
			if !yield(request{key, []byte(key)}) {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
}

func main() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	backend, err := sqlite.Open(ctx, "tenure.db", "orders", nil)
	must(err)
	defer backend.Close()
	elector, err := core.NewElector(backend, nil)
	must(err)
	var m *sharding.Manager
` + marker + `
	must(err)
	ended := make(chan error)
	managed, leave := context.WithCancel(ctx)
	go func() { ended <- elector.Run(ctx) }()
	go func() { ended <- m.Run(managed) }()
	hot := keys.Of("hot")
	for alone := false; !alone; time.Sleep(10 * time.Millisecond) {
		check(ctx.Err() == nil, "a hot key gets its own range")
		shard := ""
		if m.Map() != nil {
			for name, r := range m.Map().All() {
				if r == (assign.Range{From: hot, To: hot + 1}) {
					shard = name
				}
			}
		}
		if shard != "" {
			item, err := backend.Get(ctx, core.ShardID(shard), "order/hot")
			must(err)
			alone = item != nil
		}
	}
	leave()
	must(<-ended)
	stop()
	must(<-ended)
}
`

// faultsWrapper runs the suite with the page's faults. It compiles the other test code for a
// separate repository, which must need no internal package.
const faultsWrapper = `package pages

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	mystore "pages/mystore"
)

func TestMain(m *testing.M) { os.Exit(conformance.Main(m, mystore.Opener())) }

func TestConformance(t *testing.T) {
	conformance.Test(t, conformance.Harness{Name: "mystore", New: newStore})
}

func TestGarbage(t *testing.T) { conformance.TestGarbage(t, newStore, 0) }

func TestSystem(t *testing.T) {
	conformance.TestSystem(t, conformance.SystemConfig{Opener: mystore.Opener(), Store: func(t conformance.T, _ uint64) *conformance.SystemStore {
		addr, wire := conformance.Proxy(t, "127.0.0.1:1")
		return &conformance.SystemStore{Options: map[string]string{"address": addr},
			Cut: func(context.Context) (func() error, error) {
				heal := wire.Cut()
				return func() error { heal(); return nil }, nil
			}}
	}})
}

func newStore(conformance.T) *conformance.Store {
	server := mystore.New()
	store := &conformance.Store{Open: func(ctx context.Context) (driver.Backend, error) {
		return mystore.Open(ctx, server, "suite", nil)
	}}
` + marker + `
	return store
}
`

// suiteWrapper runs the suite of a backend. The example of this repository is that backend.
const suiteWrapper = `package pages

import (
	"context"
	"testing"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	mystore "pages/mystore"
)
` + marker
