package consul

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/kvkeys"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// short returns a context for one call.
func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

// tryCommit returns the error of the call or of its write.
func tryCommit(ctx context.Context, s driver.Session, w driver.Write) error {
	r, err := s.Commit(ctx, []driver.Write{w})
	if err == nil {
		err = r[0].Err
	}
	return err
}

// again retries a call that fails without a leader.
func again(t *testing.T, what string, do func(context.Context) error) {
	t.Helper()
	var err error
	if !ample.Soon(t.Context(), func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err = do(ctx)
		return err == nil
	}) {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestQuorumLost: while two of three servers are down, nothing is decided, and no error reports a
// lost session. When one of these servers is back, the same session has the same lease.
func TestQuorumLost(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Consul, 3, nil)
	b := openOn(t, cluster.Members()[0], "app", new(traffic))
	s := sqlfault.Join(t, b, "n1")
	fences, next := acquire(t, s, sqlfault.Claims(1))
	commit(t, s, entry1(fences[0], 1, []byte("before")))
	successor := sqlfault.Join(t, b, "n2")
	for _, m := range cluster.Members()[1:] {
		if err := m.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	again(t, "the servers notice", func(context.Context) error {
		if err := s.Beat(short(t)); err != nil {
			return nil
		}
		return errors.New("a heartbeat is still acknowledged")
	})
	for range ample.During(3*time.Second, 0) {
		beat := s.Beat(short(t))
		claim, err := successor.Acquire(short(t), next)
		if err == nil {
			err = claim[0].Err
		}
		if beat == nil || errors.Is(beat, driver.ErrSessionLost) || errors.Is(beat, driver.ErrStoreChanged) {
			t.Fatalf("a heartbeat without a quorum: %v", beat)
		}
		if err == nil || errors.Is(err, driver.ErrHeld) {
			t.Fatalf("a claim without a quorum was decided: %v", err)
		}
	}
	if err := cluster.Members()[1].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	again(t, "a heartbeat after the quorum is back", s.Beat)
	commit(t, s, entry1(fences[0], 2, []byte("after")))
}

// TestQuorumLostForLong repeats TestQuorumLost with electors, for ten TTLs. No member is evicted,
// and each shard stays with its owner. The electors use the server that stays up. A member whose
// agent returns later than a majority would rightly be evicted.
func TestQuorumLostForLong(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Consul, 3, nil)
	outage.Quorum(t, cluster, time.Second, func(int) driver.Backend {
		return openOn(t, cluster.Members()[2], "app", new(traffic))
	})
}

// TestLeaderLost kills the leader while an owner uses another server.
func TestLeaderLost(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Consul, 3, nil)
	leader := leaderOf(t, cluster.Members())
	b := openOn(t, cluster.Members()[(leader+1)%3], "app", new(traffic))
	s := sqlfault.Join(t, b, "n1")
	fences, _ := acquire(t, s, sqlfault.Claims(1))
	if err := cluster.Members()[leader].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	again(t, "a heartbeat under a new leader", s.Beat)
	commit(t, s, entry1(fences[0], 1, []byte("after")))
	// A view continues after its blocked query was cut off.
	again(t, "a view", func(ctx context.Context) error {
		_, err := b.Observe(ctx, driver.ObserveQuery{})
		return err
	})
}

// TestServerStopped: while the server is suspended, calls end with their contexts and an unknown
// outcome. Afterwards, calls succeed again.
func TestServerStopped(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Consul, nil)
	b := openOn(t, server, "app", new(traffic))
	s := sqlfault.Join(t, b, "n1")
	fences, _ := acquire(t, s, sqlfault.Claims(1))
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // to send it
	defer cancel()
	err := tryCommit(ctx, s, entry1(fences[0], 1, []byte("x")))
	if !errors.Is(err, context.DeadlineExceeded) || driver.NotApplied(err) {
		t.Errorf("a commit to a stopped server: %v, want an unknown outcome", err)
	}
	if err := server.Cont(); err != nil {
		t.Fatal(err)
	}
	again(t, "a heartbeat afterwards", s.Beat)
	// The write has the same nonce and number, so it is applied only once.
	again(t, "the commit, again or found", func(ctx context.Context) error {
		page, err := b.ReadLog(ctx, fences[0].Shard, 0, 10)
		if err != nil {
			return err
		}
		if page.Head.Number == 0 {
			return errors.Join(tryCommit(ctx, s, entry1(fences[0], 1, []byte("x"))), errors.New("look again"))
		}
		if len(page.Entries) != 1 {
			t.Fatalf("%d entries of one commit", len(page.Entries))
		}
		return nil
	})
}

// TestRepliesLost holds back the server's answers. The calls are applied, but no caller knows this.
func TestRepliesLost(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Consul, nil)
	proxy, err := faultproxy.New(server.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	ns := fresh()
	b, err := Open(t.Context(), Config{Address: proxy.Addr()}, ns, &Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s := sqlfault.Join(t, b, "n1")
	fences, _ := acquire(t, s, sqlfault.Claims(1))
	if err := proxy.Set(faultproxy.Faults{Replies: faultproxy.Flow{Hold: true}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // to send it
	defer cancel()
	err = tryCommit(ctx, s, entry1(fences[0], 1, []byte("x")))
	if err == nil || driver.NotApplied(err) {
		t.Errorf("a commit whose reply is lost: %v, want an unknown outcome", err)
	}
	if err := proxy.Set(faultproxy.Faults{}); err != nil {
		t.Fatal(err)
	}
	other := openOn(t, server, ns, new(traffic))
	again(t, "the entry", func(ctx context.Context) error {
		page, err := other.ReadLog(ctx, fences[0].Shard, 0, 1)
		if err == nil && page.Head.Number != 1 {
			err = fmt.Errorf("the head is %+v", page.Head)
		}
		return err
	})
	again(t, "a heartbeat afterwards", s.Beat)
}

// TestConnectionLimit: if an agent accepts no more connections, the error reports that nothing was
// applied.
func TestConnectionLimit(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Consul,
		&servers.Options{Config: []string{"limits = { http_max_conns_per_client = 8 }"}})
	b := openOn(t, server, "app", new(traffic))
	s := sqlfault.Join(t, b, "n1")
	greedy := transport(dialer(""))
	defer greedy.CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{}, 16)
	for range cap(ended) { // each blocks on its own connection
		go func() {
			defer func() { ended <- struct{}{} }()
			for ctx.Err() == nil {
				// Consul notices that the client has gone when the query ends.
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+server.Addr()+
					"/v1/kv/none?index=1000000&wait=10s", nil)
				if err != nil {
					t.Error(err)
					return
				}
				if res, err := greedy.RoundTrip(req); err == nil {
					res.Body.Close()
				}
			}
		}()
	}
	refused := false
	again(t, "the limit", func(context.Context) error {
		other, err := Open(short(t), Config{Address: server.Addr()}, "app", nil)
		if err == nil {
			other.Close()
			return errors.New("a further connection is still taken")
		}
		refused = errors.Is(err, driver.ErrRetry)
		return nil
	})
	if !refused {
		t.Log("the agent closed the connection without an answer: unknown")
	}
	if err := s.Beat(t.Context()); err != nil {
		t.Errorf("a heartbeat on the connection that is there: %v", err)
	}
	cancel()
	for range cap(ended) {
		<-ended
	}
	again(t, "a new process afterwards", func(ctx context.Context) error {
		other, err := Open(ctx, Config{Address: server.Addr()}, "app", nil)
		if err == nil {
			err = other.Close()
		}
		return err
	})
}

// TestValueLimit: a server whose limit is lower than configured applies nothing.
func TestValueLimit(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Consul,
		&servers.Options{Config: []string{"limits = { kv_max_value_size = 65536, txn_max_req_len = 65536 }"}})
	b := openOn(t, server, "app", new(traffic))
	s := sqlfault.Join(t, b, "n1")
	fences, _ := acquire(t, s, sqlfault.Claims(1))
	// The connection may be reset before the refusal arrives. The outcome is then unknown.
	err := tryCommit(t.Context(), s, entry1(fences[0], 1, make([]byte, 100<<10)))
	if err == nil || driver.NotApplied(err) && !errors.Is(err, driver.ErrTooLarge) {
		t.Errorf("100 KiB where the server takes 64: %v, want ErrTooLarge, or unknown", err)
	}
	page, rerr := b.ReadLog(t.Context(), fences[0].Shard, 0, 0)
	if rerr != nil || page.Head.Number != 0 {
		t.Errorf("the head is %+v, %v; want none", page, rerr)
	}
	commit(t, s, entry1(fences[0], 1, []byte("small")))
}

// TestIdleCost counts the requests of an idle process that owns 1 or 10,000 shards, observes and
// follows. A blocking query is repeated only when its time is over.
func TestIdleCost(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Consul, nil) // without other processes' writes
	const heartbeats = 20
	cost := func(namespace string, shards int) [2]int64 {
		count := new(traffic)
		var woken atomic.Int64
		n := newNetwork(count)
		n.answer = func(res *http.Response) {
			asked := res.Request.URL.Query()
			whole := asked.Get("wait") == fmt.Sprint(waitTime.Milliseconds(), "ms")
			if asked.Has("index") && (!whole || res.Header.Get("X-Consul-Index") != asked.Get("index")) {
				woken.Add(1)
			}
		}
		b, err := open(t.Context(), []*slots{n.slots(t, server)}, namespace, &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		s := sqlfault.Join(t, b, "n1")
		acquire(t, s, sqlfault.Claims(shards))
		view, err := b.Observe(t.Context(), driver.ObserveQuery{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for cursor := view.Cursor; ctx.Err() == nil; {
				if v, err := b.Observe(ctx, driver.ObserveQuery{Since: cursor}); err == nil {
					cursor = v.Cursor
				}
			}
		}()
		defer func() { cancel(); <-ended }()
		// settle waits until 400 looks, each of which takes 5 ms or more, have found nothing new.
		settle := func() {
			last, still := int64(0), 0
			ample.Wait(t, "requests go on and on", func() bool {
				now := count.reads.Load() + count.writes.Load() + woken.Load()
				if still++; now != last {
					last, still = now, 0
				}
				return still == 400
			})
		}
		settle()
		reads, writes, early := count.reads.Load(), count.writes.Load(), woken.Load()
		for range heartbeats {
			if err := s.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		settle()
		if n := woken.Load() - early; n > 0 {
			t.Errorf("%d shards: %d blocked queries were answered before their time was over, want none", shards, n)
		}
		return [2]int64{count.reads.Load() - reads, count.writes.Load() - writes}
	}
	one, many := cost("one", 1), cost("many", 10_000)
	t.Logf("%d heartbeats: %d reads, %d writes; with 10,000 shards %v", heartbeats, one[0], one[1], many)
	if one != many || one[1] != heartbeats || one[0] != 0 {
		t.Errorf("reads and writes %v and %v, want the same, and [0 %d]", one, many, heartbeats)
	}
}

// TestFollowWhenTheIndexGoesBack: a server whose index decreases with each answer is queried at
// most twice a second.
func TestFollowWhenTheIndexGoesBack(t *testing.T) {
	t.Parallel()
	server, count := pool.Get(t, servers.Consul, nil), new(traffic)
	n := newNetwork(count)
	index := 1_000_000
	n.answer = func(res *http.Response) {
		if res.Header.Get("X-Consul-Index") != "" {
			index--
			res.Header.Set("X-Consul-Index", fmt.Sprint(index))
		}
	}
	s, keys := storeOver(t, n.slots(t, server))
	const seconds = 5
	ctx, cancel := context.WithTimeout(t.Context(), seconds*time.Second)
	defer cancel()
	delivered := 0
	err := s.Follow(ctx, []string{keys.ChangeLogs()}, func(*kv.Page) error { delivered++; return nil })
	if !errors.Is(err, context.DeadlineExceeded) || delivered != 1 {
		t.Errorf("delivered %d times, %v; want once, until the context ended", delivered, err)
	}
	if got := count.total(); got > 2*seconds+3 {
		t.Errorf("%d requests in %d s, want at most two a second and three at first", got, seconds)
	}
}

// storeOver returns a store without a backend, in an unused namespace.
func storeOver(t *testing.T, l *slots) (*store, kvkeys.Keys) {
	t.Helper()
	keys, err := kvkeys.New(fresh())
	if err != nil {
		t.Fatal(err)
	}
	o, err := (*Options)(nil).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s := newStore([]*slots{l}, keys, o)
	t.Cleanup(func() { s.Close() })
	return s, keys
}

// TestReadIsNotOlderThanFollow: a client gets an index from a blocked query, and then reads another
// prefix that changed earlier. The client must not conclude that the store went back.
func TestReadIsNotOlderThanFollow(t *testing.T) {
	t.Parallel()
	server := pool.Get(t, servers.Consul, nil)
	admin, err := client(server)
	if err != nil {
		t.Fatal(err)
	}
	s, keys := storeOver(t, newNetwork(new(traffic)).slots(t, server))
	for _, key := range []string{keys.Shard("s"), keys.ChangeLogs() + "log-a-1"} { // by another process
		if _, err := admin.KV().Put(&api.KVPair{Key: key, Value: []byte("x")}, nil); err != nil {
			t.Fatal(err)
		}
	}
	var delivered kv.Rev
	enough := errors.New("enough")
	if err := s.Follow(t.Context(), []string{keys.ChangeLogs()},
		func(p *kv.Page) error { delivered = p.Rev; return enough }); !errors.Is(err, enough) {
		t.Fatal(err)
	}
	page, err := s.Range(t.Context(), kv.Range{Prefix: keys.State()})
	if err != nil || page.Rev < delivered {
		t.Errorf("a read at revision %+v, %v, after %d was delivered", page, err, delivered)
	}
}

// TestHeartbeatsHaveTheirOwnSlot: a heartbeat succeeds while every slot for other requests is taken
// (rule E4).
func TestHeartbeatsHaveTheirOwnSlot(t *testing.T) {
	t.Parallel()
	n := newNetwork(new(traffic))
	s, keys := storeOver(t, n.slots(t, pool.Get(t, servers.Consul, nil)))
	for range requestSlots {
		if _, err := s.addresses[0].kinds[requests].take(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	put := []kv.Txn{{Ops: []kv.Op{{Key: keys.Beat("x"), Value: []byte("1")}}}}
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	if _, err := s.Apply(ctx, &changelog.Batch{Batch: kv.Batch{Heartbeat: true, Txns: put}}); err != nil {
		t.Errorf("a heartbeat: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Apply(ctx, &changelog.Batch{Batch: kv.Batch{Txns: put}}); !errors.Is(err, driver.ErrRetry) {
		t.Errorf("another write: %v, want ErrRetry, as nothing was sent", err)
	}
}

// TestPingsHaveTheirOwnSlots: a ping succeeds while every slot for other requests is taken, even if
// the server holds these requests for seconds because it has no leader.
func TestPingsHaveTheirOwnSlots(t *testing.T) {
	t.Parallel()
	s, keys := storeOver(t, newNetwork(new(traffic)).slots(t, pool.Get(t, servers.Consul, nil)))
	for range requestSlots {
		if _, err := s.addresses[0].kinds[requests].take(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	if _, err := s.Get(ctx, keys.Item(driver.PingShard, "0")); err != nil {
		t.Errorf("a ping: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Get(short, keys.Item("s", "0")); err == nil {
		t.Error("another read passes although every slot is taken")
	}
}

// TestAcquireCost counts the requests of 10,000 first claims, and of 10,000 claims after an
// eviction. A loaded machine cannot change these counts.
func TestAcquireCost(t *testing.T) {
	t.Parallel()
	count := new(traffic)
	b := openOn(t, pool.Get(t, servers.Consul, nil), fresh(), count)
	s, successor := sqlfault.Join(t, b, "n1"), sqlfault.Join(t, b, "n2")
	before := count.writes.Load()
	_, next := acquire(t, s, sqlfault.Claims(10_000))
	first := count.writes.Load() - before
	view, err := b.Observe(t.Context(), driver.ObserveQuery{Beats: []driver.Beat{{Session: s.ID()}}})
	if err != nil || len(view.Beats) != 1 {
		t.Fatal(err, view)
	}
	before = count.writes.Load()
	if res, err := successor.Evict(t.Context(),
		[]driver.Suspect{{Session: s.ID(), Version: view.Beats[0].Version}}); err != nil || !res[0].Evicted {
		t.Fatal(err, res)
	}
	acquire(t, successor, next)
	takeover := count.writes.Load() - before
	t.Logf("10,000 shards: %d writes at first, %d for a takeover", first, takeover)
	if first > 100 || takeover > 190 {
		t.Errorf("%d and %d writes, want at most 100 and 190", first, takeover)
	}
}

// TestDeletesHaveGrowingRevisions: Consul returns no index for a deletion. Two consecutive
// deletions must not look like a store that stopped or went back.
func TestDeletesHaveGrowingRevisions(t *testing.T) {
	t.Parallel()
	n := newNetwork(new(traffic))
	s, keys := storeOver(t, n.slots(t, pool.Get(t, servers.Consul, nil)))
	apply := func(o kv.Op) kv.Rev {
		out, err := s.Apply(t.Context(), &changelog.Batch{Batch: kv.Batch{Txns: []kv.Txn{{Ops: []kv.Op{o}}}}})
		if err != nil || !out.Results[0].OK {
			t.Fatal(err, out)
		}
		return out.Results[0].Rev
	}
	key := keys.Item("s", "k")
	last := apply(kv.Op{Key: key, Value: []byte("v")})
	for range 3 {
		rev := apply(kv.Op{Key: key, Delete: true})
		if rev <= last {
			t.Fatalf("a deletion has revision %d after %d", rev, last)
		}
		last = rev
	}
	if rev := apply(kv.Op{Key: key, Value: []byte("v")}); rev <= last {
		t.Errorf("a write has revision %d after %d, which was more than is true", rev, last)
	}
}

// TestRefusedHeartbeatHasItsOwnSlot: after a refused heartbeat, the read of the reason does not
// wait for other requests (rule E4).
func TestRefusedHeartbeatHasItsOwnSlot(t *testing.T) {
	t.Parallel()
	s, keys := storeOver(t, newNetwork(new(traffic)).slots(t, pool.Get(t, servers.Consul, nil)))
	for range requestSlots {
		if _, err := s.addresses[0].kinds[requests].take(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	gone := []kv.Compare{{Key: keys.Beat("x"), Rev: kv.Exists}}
	put := kv.Txn{Ops: []kv.Op{{Key: keys.Beat("x"), Value: []byte("1")}}}
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	out, err := s.Apply(ctx, &changelog.Batch{Batch: kv.Batch{Heartbeat: true, Guard: gone, Txns: []kv.Txn{put}}})
	if err != nil || !out.Refused || len(out.Guard) != 1 {
		t.Errorf("with a guard that does not hold: %+v, %v", out, err)
	}
	put.If, put.Else = gone, []string{keys.Beat("x")}
	out, err = s.Apply(ctx, &changelog.Batch{Batch: kv.Batch{Heartbeat: true, Txns: []kv.Txn{put}}})
	if err != nil || out.Results[0].OK || out.Results[0].Err != nil || len(out.Results[0].Reads) != 1 {
		t.Errorf("with a condition that does not hold: %+v, %v", out, err)
	}
}

// over is a context that has ended, with a Done channel that is still open.
type over struct{ context.Context }

func (over) Err() error { return context.Canceled }

// TestCloseLeavesNoConnection: a request that ends after Close, but before its context ends, closes
// the connection that it leaves idle.
func TestCloseLeavesNoConnection(t *testing.T) {
	t.Parallel()
	c, err := client(pool.Get(t, servers.Consul, nil))
	if err != nil {
		t.Fatal(err)
	}
	dropped := 0
	s, _ := storeOver(t, shared(c, func() { dropped++ }))
	for _, want := range []int{0, 1} {
		request, err := s.begin(t.Context(), requests)
		if err != nil {
			t.Fatal(err)
		}
		if want == 1 {
			s.life = over{s.life}
		}
		if request.done(); dropped != want {
			t.Errorf("connections were dropped %d times, want %d", dropped, want)
		}
	}
}
