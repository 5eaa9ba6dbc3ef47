package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/operator"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/seam"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/route"
)

var pool servers.Pool

// TestMain runs the tests. In a process that a test started, TestMain runs a member instead. The
// member ends when its standard input ends, which happens at the end of the test.
func TestMain(m *testing.M) {
	if os.Getenv("ORDERS_MEMBER") == "" {
		os.Exit(pool.Run(m))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); os.Exit(3) }()
	err := run(ctx, &config.LoadOptions{Path: "orders.yaml", Data: []byte(os.Getenv("ORDERS_CONFIG"))}, "127.0.0.1:0", "127.0.0.1:0", os.Getenv("ORDERS_MODEL"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type member struct {
	t    *testing.T
	node string
	dir  string

	cmd   *exec.Cmd
	stdin io.Closer
	ended chan error
	url   atomic.Pointer[string] // of the process; nil while there is none
}

// start starts a process whose keyspace begins with the given number of ranges.
func (m *member) start(backend string, shards int) {
	m.t.Helper()
	m.cmd = exec.Command(os.Args[0])
	m.cmd.Env = append(os.Environ(), "ORDERS_MEMBER=1", "ORDERS_MODEL="+filepath.Join(m.dir, m.node+".db"), fmt.Sprintf(`ORDERS_CONFIG=
tenure:
  node: %s
  ttl: 2s
  lock_dir: none
  open_wait: 30s
  stop_timeout: 30s
  drain_budget: 5s
  backends: {%s}
  sharding:
    interval: 100ms
    leave_budget: 10s
    keyspace: {name: orders, shards: %d}
  follower: {backoff_max: 1s}
`, m.node, backend, shards))
	m.cmd.Stderr = m.t.Output()
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		m.t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.ended = make(chan error, 1)
	lines := make(chan string, 1)
	go func() {
		defer close(lines)
		if in := bufio.NewScanner(out); in.Scan() {
			lines <- in.Text()
		}
		_, _ = io.Copy(io.Discard, out)
		m.ended <- m.cmd.Wait()
	}()
	select {
	case line := <-lines:
		address, ok := strings.CutPrefix(line, "listening on ")
		if !ok {
			m.t.Fatalf("%s says %q", m.node, line)
		}
		m.url.Store(&address)
	case <-time.After(ample.Time):
		m.t.Fatalf("%s does not start", m.node)
	}
}

// stop sends the process a signal, and waits until the process ends.
func (m *member) stop(s os.Signal) {
	m.t.Helper()
	if s == os.Kill {
		m.url.Store(nil)
	}
	if err := m.cmd.Process.Signal(s); err != nil {
		m.t.Fatal(err)
	}
	select {
	case err := <-m.ended:
		if s != os.Kill && err != nil {
			m.t.Errorf("%s, asked to stop, ended with %v", m.node, err)
		}
	case <-time.After(ample.Time):
		m.t.Errorf("%s does not end", m.node)
		_ = m.cmd.Process.Kill()
		<-m.ended
	}
	m.url.Store(nil)
	_ = m.stdin.Close()
	m.cmd = nil
}

type world struct {
	t       *testing.T
	members []*member
	client  *http.Client

	mu    sync.Mutex
	acked map[string]int64
	at    map[string]time.Time
	tried int // requests
	reads int // that were answered from a read model
}

// some returns the URL of a running member.
func (w *world) some() string {
	for _, i := range rand.Perm(len(w.members)) {
		if u := w.members[i].url.Load(); u != nil {
			return *u
		}
	}
	return "http://127.0.0.1:1" // nobody
}

// ask sends a request to a running member. A failed request does not fail the test.
func (w *world) ask(method, path, body string) (int, string) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.some()+path, strings.NewReader(body))
	if err != nil {
		w.t.Error(err)
		return 0, ""
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// load places orders until ctx ends, and repeats earlier orders, which must change nothing.
func (w *world) load(ctx context.Context, client int) {
	for n := 0; ctx.Err() == nil; n++ {
		if !w.place(client, n) || !w.place(client, rand.IntN(n+1)) {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// place sends an order until a member acknowledges the order.
func (w *world) place(client, n int) bool {
	id, cents := fmt.Sprintf("c%d-%d", client, n), int64(client*1000+n%100+1)
	body := fmt.Sprintf(`{"customer": "c%d", "cents": %d}`, client, cents)
	var code int
	var text string
	ample.Soon(context.Background(), func() bool {
		code, text = w.ask("POST", "/orders/"+id, body)
		w.mu.Lock()
		w.tried++
		if _, known := w.acked[id]; code == http.StatusCreated && !known {
			w.acked[id], w.at[id] = cents, time.Now()
		}
		w.mu.Unlock()
		return code == http.StatusCreated || code == http.StatusConflict || code == http.StatusBadRequest
	})
	if code != http.StatusCreated {
		w.t.Errorf("order %s: %d %s", id, code, text)
	}
	return code == http.StatusCreated
}

// read reads orders until ctx ends. An answer must not be older than the request allows.
func (w *world) read(ctx context.Context) {
	const within = time.Second
	for ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
		asked := time.Now()
		w.mu.Lock()
		id := ""
		for x, at := range w.at {
			if asked.Sub(at) > within {
				id = x
				break
			}
		}
		cents := w.acked[id]
		w.mu.Unlock()
		if id == "" {
			continue
		}
		switch code, text := w.ask("GET", "/orders/"+id+"?within="+within.String(), ""); code {
		case http.StatusOK:
			var o order
			if err := json.Unmarshal([]byte(text), &o); err != nil || o.Cents != cents {
				w.t.Errorf("order %s, of %d cents, reads %s, %v", id, cents, text, err)
			}
			w.mu.Lock()
			w.reads++
			w.mu.Unlock()
		case http.StatusNotFound:
			w.t.Errorf("order %s is missing from an answer that is at most %v old, %v after it was acknowledged", id, within, time.Since(asked)+within)
		}
	}
}

// equal waits until every read model contains exactly the acknowledged orders.
func (w *world) equal() {
	w.t.Helper()
	for _, m := range w.members {
		var differs error
		if !ample.Soon(w.t.Context(), func() bool { differs = w.differs(m); return differs == nil }) {
			w.t.Error(differs)
		}
	}
}

// differs returns an error if a member's read model differs from the acknowledged orders.
func (w *world) differs(m *member) error {
	got := map[string]int64{}
	resp, err := http.Get(*m.url.Load() + "/model")
	if err == nil {
		err = errors.Join(json.NewDecoder(resp.Body).Decode(&got), resp.Body.Close())
	}
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	missing, wrong, more := 0, 0, 0
	for id, cents := range w.acked {
		if has, there := got[id]; !there {
			missing++
		} else if has != cents {
			wrong++
		}
	}
	for id := range got {
		if _, there := w.acked[id]; !there {
			more++
		}
	}
	if missing+wrong+more == 0 {
		return nil
	}
	return fmt.Errorf("%s: of %d acknowledged orders %d are missing from the read model, %d have another amount, and %d others are there",
		m.node, len(w.acked), missing, wrong, more)
}

// progress waits until n more orders are acknowledged.
func (w *world) progress(n int) {
	w.t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.acked)
	}
	from := count()
	if !ample.Soon(w.t.Context(), func() bool { return count() >= from+n }) {
		w.t.Fatalf("%d orders are acknowledged in %v, want %d", count()-from, ample.Time, n)
	}
}

// TestOrders splits ranges, restarts three members one by one, and merges ranges while one member
// is dead, all under load. The read models must equal the acknowledged orders. If the program wrote
// an order's item unconditionally, or did not check moving keys, a repeated order would be in the
// logs twice.
func TestOrders(t *testing.T) {
	for name, backend := range map[string]func(t *testing.T) string{
		"sqlite": func(t *testing.T) string {
			return fmt.Sprintf("sqlite: {namespace: orders, path: %q}", filepath.Join(t.TempDir(), "orders.db"))
		},
		"postgres": func(t *testing.T) string {
			return fmt.Sprintf("postgres: {namespace: orders, create: true, migrate: true, dsn: %q}",
				pool.Get(t, servers.Postgres, nil).Database(t).Reveal())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, backend(t))
		})
	}
}

func play(t *testing.T, backend string) {
	local := func(u *url.URL) bool { return u.Hostname() == "127.0.0.1" }
	tr, err := route.NewTransport(&route.TransportOptions{Allow: local, Attempts: 3, Wait: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, client: &http.Client{Transport: tr}, acked: map[string]int64{}, at: map[string]time.Time{}}
	dir := t.TempDir()
	for _, node := range []string{"a", "b", "c"} {
		m := &member{t: t, node: node, dir: dir}
		w.members = append(w.members, m)
		m.start(backend, 4)
		t.Cleanup(func() {
			if m.cmd != nil {
				m.stop(os.Kill)
			}
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer stop()
	for i := range 3 {
		clients.Go(func() { w.load(ctx, i) })
	}
	clients.Go(func() { w.read(ctx) })
	const some = 50 // orders
	w.progress(some)

	ranges := open(t, backend)
	ranges.write(control.Split, quarter/2, quarter+quarter/2, 2*quarter+quarter/2)
	w.progress(some)
	ranges.await(true, quarter/2, quarter+quarter/2, 2*quarter+quarter/2)
	w.progress(some)
	for _, m := range w.members { // a rolling restart
		m.stop(syscall.SIGTERM)
		w.progress(some / 2)
		m.start(backend, 4)
		w.progress(some / 2)
	}
	w.split()
	killed := w.members[rand.IntN(len(w.members))]
	killed.stop(os.Kill)
	ranges.write(control.Merge, quarter/2, quarter) // of one shard with two
	w.progress(some)
	killed.start(backend, 4)
	ranges.await(false, quarter/2, quarter)
	w.progress(some)

	stop()
	clients.Wait()
	w.equal()
	t.Logf("%d orders acknowledged by %d requests, %d bounded reads", len(w.acked), w.tried, w.reads)
	if w.reads == 0 {
		t.Error("no read was answered")
	}
	for _, m := range w.members {
		m.stop(syscall.SIGTERM)
	}
}

// TestControl writes to a read model without a log entry, fence or position, like a member that
// continues after it was replaced. The comparison in TestOrders must detect that this read model
// differs from the acknowledged orders.
func TestControl(t *testing.T) {
	t.Parallel()
	w := &world{t: t, client: http.DefaultClient, acked: map[string]int64{}, at: map[string]time.Time{}}
	m := &member{t: t, node: "a", dir: t.TempDir()}
	w.members = []*member{m}
	m.start(fmt.Sprintf("sqlite: {namespace: orders, path: %q}", filepath.Join(t.TempDir(), "orders.db")), 1)
	defer func() { m.stop(syscall.SIGTERM) }()
	for n := range 3 {
		if !w.place(1, n) {
			return
		}
	}
	w.equal()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(m.dir, "a.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, c := range []struct{ write, undo, want string }{
		{"UPDATE orders SET cents = cents + 1 WHERE id = 'c1-0'", "UPDATE orders SET cents = cents - 1 WHERE id = 'c1-0'", "1 have another amount"},
		{"UPDATE orders SET id = 'c1-9' WHERE id = 'c1-1'", "UPDATE orders SET id = 'c1-1' WHERE id = 'c1-9'", "1 are missing"},
		{"INSERT INTO orders (id, customer, cents) VALUES ('c2-0', 'c2', 1)", "DELETE FROM orders WHERE id = 'c2-0'", "1 others are there"},
	} {
		if _, err := db.ExecContext(t.Context(), c.write); err != nil {
			t.Fatal(err)
		}
		if err := w.differs(m); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("after %s: got %v, want that %s", c.write, err, c.want)
		}
		if _, err := db.ExecContext(t.Context(), c.undo); err != nil {
			t.Fatal(err)
		}
		if err := w.differs(m); err != nil {
			t.Errorf("after %s: %v", c.undo, err)
		}
	}
}

// quarter is the number of hashes in a quarter of the keyspace.
const quarter = 1 << 62

// ranges acts as an operator who divides the keys.
type ranges struct {
	t *testing.T
	b core.Backend
}

func open(t *testing.T, backend string) *ranges {
	t.Helper()
	text := fmt.Sprintf("tenure: {backends: {%s}}", backend)
	c, err := config.Load(&config.LoadOptions{Path: "orders.yaml", Data: []byte(text), Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Open(t.Context(), sqlite.Opener(), postgres.Opener())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return &ranges{t, b}
}

// write writes an operator's rule for each hash, as the command tenure does.
func (o *ranges) write(kind control.Kind, hashes ...uint64) {
	o.t.Helper()
	w := &operator.Writer{Backend: o.b, Options: &core.Options{TTL: 2 * time.Second}, Timeout: ample.Time}
	for _, h := range hashes {
		rule := control.Rule{Kind: kind, Hash: fmt.Sprintf("0x%016x", h), Author: "test", At: time.Now()}
		err := w.Write(o.t.Context(), func(context.Context, *driver.View) (*operator.Decision, error) {
			op, err := control.Put(&rule)
			return &operator.Decision{Ops: []core.Op{op}, Changes: []operator.Change{{Rule: rule, At: rule.At}}}, err
		})
		if err != nil {
			o.t.Fatal(err)
		}
	}
}

// await waits until the map has a range that begins at each of the hashes. If begins is false,
// await waits until no range begins at any of the hashes.
func (o *ranges) await(begins bool, hashes ...uint64) {
	o.t.Helper()
	wrong := 0
	if !ample.Soon(o.t.Context(), func() bool {
		m, _, err := sharding.ReadPlans(o.t.Context(), o.b, seam.Key{})
		if err != nil {
			o.t.Fatal(err)
		}
		wrong = 0
		for _, h := range hashes {
			begun := false
			for _, r := range m.All() {
				begun = begun || r.From == h
			}
			if begun != begins {
				wrong++
			}
		}
		return wrong == 0
	}) {
		o.t.Fatalf("of %d hashes %d are not as the rules say: range begins %v", len(hashes), wrong, begins)
	}
}

// split repeats acknowledged orders until a shard that was split off acknowledges one of them.
func (w *world) split() {
	w.t.Helper()
	w.mu.Lock()
	acked := maps.Clone(w.acked)
	w.mu.Unlock()
	ample.Wait(w.t, "no order is with a shard that was split off", func() bool {
		for id, cents := range acked {
			code, text := w.ask("POST", "/orders/"+id, fmt.Sprintf(`{"customer": "c%d", "cents": %d}`, cents/1000, cents))
			if code == http.StatusCreated && text >= "orders-0004" {
				return true
			}
		}
		return false
	})
}

// TestFile checks that the program accepts the configuration file in this folder.
func TestFile(t *testing.T) {
	c, err := config.Load(&config.LoadOptions{Path: "orders.yaml", Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	var s sharding.Options
	if err := errors.Join(c.Section("sharding", &s), s.Keyspace.Validate()); err != nil {
		t.Errorf("%+v, %v", s, err)
	}
	if w := c.Warnings(); len(w) > 0 {
		t.Error(strings.Join(w, "\n"))
	}
}
