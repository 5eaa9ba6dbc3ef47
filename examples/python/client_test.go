package python_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/route"
)

const shards = 8

// member serves orders, and appends the body of each order to the log of the order's shard.
type member struct {
	t     *testing.T
	node  string
	url   string
	b     core.Backend
	m     *sharding.Manager
	serve *http.Server
	hits  atomic.Int64
	leave func()
	quiet func() // waits until no request is on its way here; may be nil

	mu    sync.Mutex
	under map[*core.Lease]*sync.WaitGroup
}

func start(t *testing.T, store *memory.Store, node string) *member {
	t.Helper()
	x := &member{t: t, node: node, under: map[*core.Lease]*sync.WaitGroup{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x.url = "http://" + l.Addr().String()
	if x.b, err = memory.Open(t.Context(), store, "app", nil); err != nil {
		t.Fatal(err)
	}
	e, err := core.NewElector(x.b, &core.Options{Node: node, TTL: 10 * time.Second, LockDir: "none",
		Meta: map[string]string{"http": x.url}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	x.m, err = sharding.NewManager(x.b, e, x.own, &sharding.Options{Interval: 50 * time.Millisecond,
		Keyspace: sharding.Keyspace{Name: "orders", Shards: shards}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := sharding.NewRouter(e, x.m)
	if err != nil {
		t.Fatal(err)
	}
	orders, err := route.NewHandler(e, r, http.HandlerFunc(x.place), &route.Options{
		Shard: func(r *http.Request) (string, error) { return x.m.Map().Shard(r.PathValue("id")), nil }})
	if err != nil {
		t.Fatal(err)
	}
	owners, err := route.NewOwners(e, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/owners", owners)
	mux.HandleFunc("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		x.hits.Add(1)
		orders.ServeHTTP(w, r)
	})
	x.serve = &http.Server{Handler: mux}
	elect, end := context.WithCancel(context.Background())
	manage, stop := context.WithCancel(context.Background())
	ended, ran, served := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() { ended <- e.Run(elect) }()
	go func() { ran <- x.m.Run(manage) }()
	go func() { served <- x.serve.Serve(l) }()
	x.leave = sync.OnceFunc(func() {
		stop()
		<-ran // it fails where nobody is left to take over
		if x.quiet != nil {
			x.quiet()
		}
		ctx, cancel := context.WithTimeout(context.Background(), ample.Time)
		defer cancel()
		err := x.serve.Shutdown(ctx)
		end()
		if err := errors.Join(err, <-ended, x.b.Close()); err != nil {
			t.Error(err)
		}
		<-served
	})
	t.Cleanup(x.leave)
	return x
}

func (x *member) own(ctx context.Context, lease *core.Lease) error {
	slice, err := x.m.OpenSlice(ctx, lease, nil)
	if err != nil {
		return err
	}
	defer slice.Close()
	under := new(sync.WaitGroup)
	x.mu.Lock()
	x.under[lease] = under
	x.mu.Unlock()
	<-ctx.Done()
	x.mu.Lock()
	delete(x.under, lease)
	x.mu.Unlock()
	under.Wait()
	return nil
}

func (x *member) place(w http.ResponseWriter, r *http.Request) {
	lease := route.FromContext(r.Context())
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 100))
	x.mu.Lock()
	under := x.under[lease]
	if under != nil {
		under.Add(1)
	}
	x.mu.Unlock()
	if under == nil || err != nil {
		route.Refuse(w, lease.Shard())
		return
	}
	defer under.Done()
	if _, err := lease.Append(lease.Context(), body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprintf(w, "%s %s %s", lease.Shard(), x.node, r.Header.Get("Authorization"))
}

// even waits until every member's map shows that all members own the same number of shards.
func even(t *testing.T, members ...*member) {
	t.Helper()
	ample.Wait(t, "the shares do not become even", func() bool {
		for _, x := range members {
			if !x.knows(shards / len(members)) {
				return false
			}
		}
		return true
	})
}

// knows reports whether the member's map shows that each member owns n shards.
func (x *member) knows(n int) bool {
	resp, err := http.Get(x.url + "/owners")
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	var m struct{ Shards []struct{ Node string } }
	if err := json.NewDecoder(resp.Body).Decode(&m); err != nil {
		return false
	}
	owns := map[string]int{}
	for _, s := range m.Shards {
		owns[s.Node]++
	}
	for node, owned := range owns {
		if node == "" || owned != n {
			return false
		}
	}
	return len(owns)*n == shards
}

func python(t *testing.T) string {
	t.Helper()
	at, err := exec.LookPath("python3")
	if err == nil {
		err = exec.CommandContext(t.Context(), at, "--version").Run()
	}
	if err != nil {
		t.Skip("client.py needs python3, which is not here:", err)
	}
	return at
}

// TestClient checks that, while one of two members leaves, the owner of each order's key writes the
// order once and gets the client's credential.
func TestClient(t *testing.T) {
	at := python(t)
	store := memory.New()
	a, b := start(t, store, "a"), start(t, store, "b")
	even(t, a, b)
	ctx, cancel := context.WithTimeout(t.Context(), 2*ample.Time)
	defer cancel()
	cmd := exec.CommandContext(ctx, at, "client.py", b.url+"/owners,"+a.url+"/owners")
	cmd.Env = append(os.Environ(), "TENURE_ALLOW=127.0.0.0/8", "TENURE_BEARER=secret")
	var problems bytes.Buffer
	cmd.Stderr = &problems
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	const least = 300
	answers := bufio.NewScanner(out)
	var answered atomic.Int64
	b.quiet = func() {
		for from := answered.Load(); answered.Load() < from+20 && ctx.Err() == nil; {
			time.Sleep(time.Millisecond)
		}
	}
	gone := make(chan struct{})
	left := func() bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	}
	by := map[string]int{}
	orders := int64(0)
	for i := 0; i < least || !left(); i++ {
		orders++
		if i == least/3 {
			go func() {
				defer close(gone)
				b.leave()
			}()
		}
		key := fmt.Sprintf("öre-%d", i)
		if _, err := fmt.Fprintf(in, "%s %d\n", key, i); err != nil {
			t.Fatal(err, problems.String())
		}
		if ctx.Err() != nil || !answers.Scan() {
			t.Fatalf("no answer to %s: %v %s", key, answers.Err(), problems.String())
		}
		answered.Add(1)
		f := strings.Fields(answers.Text())
		if len(f) != 6 || f[0] != key || f[1] != "200" || f[2] != a.m.Map().Shard(key) || f[4]+f[5] != "Bearersecret" {
			t.Errorf("%s: %q", key, answers.Text())
			continue
		}
		by[f[3]]++
	}
	if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
		t.Errorf("%v: %s", err, problems.String())
	}
	hits := a.hits.Load() + b.hits.Load()
	t.Logf("%v by member, %d requests for %d orders", by, hits, orders)
	if by["a"] == 0 || by["b"] == 0 || hits > orders*5/4 {
		t.Errorf("%v by member, %d requests for %d orders", by, hits, orders)
	}
	written := map[string]int{}
	for i := range shards {
		page, err := a.b.ReadLog(t.Context(), core.ShardID(fmt.Sprintf("orders-%04d", i)), 0, 10_000)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entries {
			written[string(e.Payload)]++
		}
	}
	for i := range orders {
		if n := written[fmt.Sprint(i)]; n != 1 {
			t.Errorf("order %d is written %d times", i, n)
		}
	}
}

// TestClientSendsNowhereElse checks that the client sends nothing to loopback unless TENURE_ALLOW
// allows loopback.
func TestClientSendsNowhereElse(t *testing.T) {
	at := python(t)
	a := start(t, memory.New(), "a")
	even(t, a)
	for _, allow := range []string{"", "10.0.0.0/8,fd00::/8"} {
		cmd := exec.CommandContext(t.Context(), at, "client.py", a.url+"/owners")
		cmd.Env = append(os.Environ(), "TENURE_ALLOW="+allow, "TENURE_BEARER=secret")
		cmd.Stdin = strings.NewReader("key 1\n")
		out, err := cmd.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("is not allowed")) || bytes.Contains(out, []byte("secret")) || a.hits.Load() != 0 {
			t.Errorf("%q: %v, %d requests: %s", allow, err, a.hits.Load(), out)
		}
	}
}

// TestClientLeavesAStaleMember checks that the client asks another member for the map if the owner
// in an outdated map refuses requests or does not answer.
func TestClientLeavesAStaleMember(t *testing.T) {
	at := python(t)
	owner := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "done") }))
	defer owner.Close()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { route.Refuse(w, "s-0000") }))
	defer refusing.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	tells := func(address string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("after") == "v."+address[strings.LastIndex(address, ":")+1:] {
				time.Sleep(50 * time.Millisecond) // nothing changes
				w.WriteHeader(http.StatusNoContent)
				return
			}
			_, _ = fmt.Fprintf(w, `{"version":"v.%s","full":true,"keyspace":{"name":"s","hash":"fnv1a-mixed","digits":4},"members":{"a":{"http":%q}},
				"shards":[{"shard":"s-0000","range":["0x0000000000000000","0x10000000000000000"],"node":"a","token":7}]}`,
				address[strings.LastIndex(address, ":")+1:], address)
		}))
		t.Cleanup(s.Close)
		return s.URL + "/owners"
	}
	for name, stale := range map[string]string{"refuses": refusing.URL, "does not answer": gone.URL} {
		ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
		cmd := exec.CommandContext(ctx, at, "client.py", tells(stale)+","+tells(owner.URL))
		cmd.Env = append(os.Environ(), "TENURE_ALLOW=127.0.0.0/8")
		cmd.Stdin = strings.NewReader("key 1\n")
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil || !bytes.Contains(out, []byte("key 200 done")) {
			t.Errorf("a member that %s: %v: %s", name, err, out)
		}
	}
}
