package route_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/kvfault"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
	"github.com/tenure-go/tenure/sharding/route"
)

var (
	restartRate = flag.Int("restart.rate", 1000, "requests a second of TestClientRollingRestart")
	restartRest = flag.Duration("restart.rest", 200*time.Millisecond, "how long it rests before each restart")
	restartHops = flag.Float64("restart.hops", 0.8, "the least share of requests in one hop")
)

type fleet struct {
	*testing.T
	store    *memory.Store
	shards   int
	assigner assign.Assigner     // nil: the default
	arrived  func(*http.Request) // of each request for an order
	ttl      time.Duration       // 0: 10 s
}

type ship struct {
	f       *fleet
	node    string
	address string
	b       core.Backend
	e       *core.Elector
	m       *sharding.Manager
	server  *http.Server
	stop    context.CancelFunc // of the manager
	end     context.CancelFunc // of the elector
	ended   chan error
	ran     chan error
	served  chan error
	gone    bool
	link    kvfault.Link // to the store

	mu    sync.Mutex
	decks map[*core.Lease]*deck
}

type deck struct {
	slice    *sharding.Slice
	requests sync.WaitGroup
}

// launch starts a member at an address. If the address has port 0, a free port is chosen.
func (f *fleet) launch(node, address string) *ship {
	f.Helper()
	x := &ship{f: f, node: node, decks: map[*core.Lease]*deck{}, ended: make(chan error, 1), ran: make(chan error, 1), served: make(chan error, 1)}
	var l net.Listener
	var err error
	await(f.T, "the address "+address, func() bool {
		l, err = net.Listen("tcp", address)
		return err == nil
	})
	x.address = l.Addr().String()
	if x.b, err = memory.Open(f.Context(), f.store, "app", &memory.Options{Wrap: x.link.Wrap}); err != nil {
		f.Fatal(err)
	}
	x.e, err = core.NewElector(x.b, &core.Options{Node: node, TTL: cmp.Or(f.ttl, 10*time.Second), LockDir: "none",
		Meta: map[string]string{"http": "http://" + x.address, "secret": "hidden"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	x.m, err = sharding.NewManager(x.b, x.e, x.serve, &sharding.Options{Interval: 50 * time.Millisecond, Assigner: f.assigner,
		Keyspace: sharding.Keyspace{Name: "orders", Shards: f.shards}})
	if err != nil {
		f.Fatal(err)
	}
	r, err := sharding.NewRouter(x.e, x.m)
	if err != nil {
		f.Fatal(err)
	}
	orders, err := route.NewHandler(x.e, r, http.HandlerFunc(x.place), &route.Options{
		Shard: func(r *http.Request) (string, error) { return shardOf(x.m.Map(), r) }})
	if err != nil {
		f.Fatal(err)
	}
	owners, err := route.NewOwners(x.e, r, nil)
	if err != nil {
		f.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/owners", owners)
	mux.HandleFunc("/orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		if f.arrived != nil {
			f.arrived(r)
		}
		orders.ServeHTTP(w, r)
	})
	x.server = &http.Server{Handler: mux}
	var elect, manage context.Context
	elect, x.end = context.WithCancel(context.Background())
	manage, x.stop = context.WithCancel(context.Background())
	go func() { x.served <- x.server.Serve(l) }()
	go func() { x.ended <- x.e.Run(elect) }()
	go func() { x.ran <- x.m.Run(manage) }()
	f.Cleanup(func() { x.leave(nil) })
	return x
}

func shardOf(m *sharding.Map, r *http.Request) (string, error) {
	if m == nil {
		return "orders-0000", nil // no member owns it yet
	}
	return m.Shard(r.PathValue("id")), nil
}

func (x *ship) serve(ctx context.Context, lease *core.Lease) error {
	slice, err := x.m.OpenSlice(ctx, lease, nil)
	if err != nil {
		return err
	}
	defer slice.Close()
	d := &deck{slice: slice}
	x.mu.Lock()
	x.decks[lease] = d
	x.mu.Unlock()
	<-ctx.Done()
	x.mu.Lock()
	delete(x.decks, lease)
	x.mu.Unlock()
	d.requests.Wait()
	return nil
}

func (x *ship) enter(lease *core.Lease) *deck {
	x.mu.Lock()
	defer x.mu.Unlock()
	d := x.decks[lease]
	if d != nil {
		d.requests.Add(1)
	}
	return d
}

func (x *ship) place(w http.ResponseWriter, r *http.Request) {
	lease := route.FromContext(r.Context())
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 100))
	n, perr := strconv.ParseUint(string(text), 10, 64)
	if err != nil || perr != nil {
		http.Error(w, "a number is missing", http.StatusBadRequest)
		return
	}
	d := x.enter(lease)
	if d == nil {
		route.Refuse(w, lease.Shard())
		return
	}
	defer d.requests.Done()
	_, err = d.slice.Commit(lease.Context(), r.PathValue("id"), core.Append(binary.BigEndian.AppendUint64(nil, n)))
	switch {
	case errors.Is(err, sharding.ErrMoved):
		route.Refuse(w, lease.Shard())
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		_, _ = fmt.Fprintf(w, "%s by %s", lease.Shard(), x.node)
	}
}

// leave stops a member as a deployment should. First, the member's shards move. Then, the member
// answers with the shards' new owners until no request is on its way to the member.
func (x *ship) leave(quiet func()) {
	if x.gone {
		return
	}
	x.gone = true
	x.stop()
	err := <-x.ran
	if quiet != nil {
		quiet()
	}
	if err != nil && quiet != nil {
		x.f.Errorf("manager of %s: %v", x.node, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), ample.Time)
	defer cancel()
	if err := x.server.Shutdown(ctx); err != nil {
		x.f.Errorf("server of %s: %v", x.node, err)
	}
	<-x.served
	x.end()
	if err := errors.Join(<-x.ended, x.b.Close()); err != nil {
		x.f.Errorf("elector of %s: %v", x.node, err)
	}
}

func (x *ship) owns() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.decks)
}

func (f *fleet) even(ships ...*ship) {
	f.Helper()
	defer func() { // before the members leave
		for _, x := range ships {
			if f.Failed() {
				f.Logf("member %s owns %d of %d shards", x.node, x.owns(), f.shards)
			}
		}
	}()
	await(f.T, "even shares", func() bool {
		for _, x := range ships {
			if n := x.owns(); n < f.shards/len(ships) || n > f.shards/len(ships)+1 {
				return false
			}
		}
		return true
	})
}

// client returns a Client that uses the members. Its Run ends with the test.
func client(t *testing.T, change func(*route.ClientOptions), ships ...*ship) *route.Client {
	t.Helper()
	o := &route.ClientOptions{Allow: allowAll, Attempts: 1000, Logger: slog.New(slog.DiscardHandler)}
	for _, x := range ships {
		o.Members = append(o.Members, "http://"+x.address+"/owners")
	}
	if change != nil {
		change(o)
	}
	c, err := route.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	run(t, c)
	return c
}

func run(t *testing.T, c *route.Client) {
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

func known(t *testing.T, c *route.Client) {
	t.Helper()
	await(t, "the map of owners", func() bool {
		_, ok := c.Age()
		return ok
	})
}

func place(ctx context.Context, c *route.Client, key string, n uint64) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://orders.example/orders/"+key, strings.NewReader(strconv.FormatUint(n, 10)))
	if err != nil {
		return err
	}
	r.Header.Set("Number", strconv.FormatUint(n, 10))
	resp, err := c.Do(key, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %s", resp.StatusCode, text)
	}
	return err
}

// load makes requests at a given rate, and never repeats a request.
type load struct {
	c     *route.Client
	hops  sync.Map // number: *atomic.Int32
	next  atomic.Uint64
	mu    sync.Mutex
	fails map[uint64]error
	slow  time.Duration
	under [2]sync.WaitGroup // requests in progress, by even and odd epochs
	epoch atomic.Uint64
	gate  sync.RWMutex
}

func (l *load) arrived(r *http.Request) {
	n, _ := strconv.ParseUint(r.Header.Get("Number"), 10, 64)
	h, _ := l.hops.LoadOrStore(n, new(atomic.Int32))
	h.(*atomic.Int32).Add(1)
}

func (l *load) settle() {
	l.gate.Lock()
	old := l.epoch.Add(1) - 1
	l.gate.Unlock()
	l.under[old%2].Wait()
}

func (l *load) one() {
	l.gate.RLock()
	under := &l.under[l.epoch.Load()%2]
	under.Add(1)
	l.gate.RUnlock()
	defer under.Done()
	n := l.next.Add(1)
	ctx, cancel := context.WithTimeout(context.Background(), ample.Time)
	defer cancel()
	began := time.Now()
	err := place(ctx, l.c, fmt.Sprintf("order-%d", n), n)
	took := time.Since(began)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.slow = max(l.slow, took)
	if err != nil {
		l.fails[n] = err
	}
}

// run makes requests until ctx ends. If the machine is too slow for the rate, the rate is lower.
func (l *load) run(ctx context.Context, rate int) {
	const workers = 64
	ticks := make(chan struct{}, workers)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range ticks {
				l.one()
			}
		})
	}
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for ; ctx.Err() == nil; <-tick.C {
		select {
		case ticks <- struct{}{}:
		default: // the request is late, so it is left out
		}
	}
	close(ticks)
	all.Wait()
}

// TestClientRollingRestart restarts three members one by one while a client without a store sends
// requests. No request fails or is done twice, and nearly all requests take one hop.
//
//	go test ./sharding/route -run TestClientRollingRestart -v -args -restart.rest 10s -restart.hops 0.99
func TestClientRollingRestart(t *testing.T) {
	f := &fleet{T: t, store: memory.New(), shards: 30}
	l := &load{fails: map[uint64]error{}}
	f.arrived = l.arrived
	var ships []*ship
	for i := range 3 {
		ships = append(ships, f.launch(fmt.Sprintf("n%d", i), "127.0.0.1:0"))
	}
	f.even(ships...)
	l.c = client(t, nil, ships...)
	known(t, l.c)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	began := time.Now()
	go func() {
		defer close(done)
		l.run(ctx, *restartRate)
	}()
	for i, x := range ships {
		time.Sleep(*restartRest) // load
		x.leave(func() {
			await(t, "a map without "+x.node, func() bool {
				for k := range 1000 {
					if o, err := l.c.Owner(fmt.Sprint(k)); err != nil || o.Node == x.node {
						return false
					}
				}
				return true
			})
			l.settle()
		})
		ships[i] = f.launch(x.node, x.address)
		f.even(ships...)
	}
	time.Sleep(*restartRest) // load
	took := time.Since(began)
	stop()
	<-done
	all, once := 0, 0
	l.hops.Range(func(_, h any) bool {
		if all++; h.(*atomic.Int32).Load() == 1 {
			once++
		}
		return true
	})
	share := float64(once) / float64(all)
	t.Logf("%d requests in %v, %.0f a second, while all members restarted: %d failed, %.2f %% in one hop, the slowest took %v",
		all, took.Round(time.Millisecond), float64(all)/took.Seconds(), len(l.fails), 100*share, l.slow.Round(time.Millisecond))
	for n, err := range l.fails {
		t.Errorf("request %d: %v", n, err)
	}
	if share < *restartHops || all < 200 {
		t.Errorf("%.2f %% of %d requests took one hop, want %.0f %%", 100*share, all, 100**restartHops)
	}
	written := map[uint64]int{}
	for i := range f.shards {
		for after := core.Seq(0); ; {
			page, err := ships[0].b.ReadLog(t.Context(), core.ShardID(fmt.Sprintf("orders-%04d", i)), after, 1000)
			if err != nil {
				t.Fatal(err)
			}
			if len(page.Entries) == 0 {
				break
			}
			for _, e := range page.Entries {
				written[binary.BigEndian.Uint64(e.Payload)]++
				after = e.Seq
			}
		}
	}
	for n := range l.next.Load() {
		if written[n+1] != 1 && l.fails[n+1] == nil {
			t.Errorf("request %d is written %d times", n+1, written[n+1])
		}
	}
}
