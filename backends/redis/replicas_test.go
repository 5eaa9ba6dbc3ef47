package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// replicated is a master, its replica, and a server that follows the replica after its promotion.
// The servers have the options of the documentation.
type replicated struct {
	master, replica, spare *servers.Server
	way                    *faultproxy.Proxy // from the replica to the master
}

func newReplicated(t testing.TB) *replicated {
	t.Helper()
	r := &replicated{servers.New(t, servers.Redis, nil), servers.New(t, servers.Redis, nil), servers.New(t, servers.Redis, nil), nil}
	halts(t, r.master, r.replica, r.spare)
	var err error
	if r.way, err = faultproxy.New(r.master.Addr(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.way.Close() })
	follow(t, r.replica, r.way.Addr())
	return r
}

// cut separates the master from the replica. Neither server sees an error.
func (r *replicated) cut(t testing.TB) {
	t.Helper()
	if err := r.way.Set(faultproxy.BlackHole()); err != nil {
		t.Fatal(err)
	}
}

// promote makes the replica take over, with its own replica.
func (r *replicated) promote(t testing.TB) {
	t.Helper()
	if err := newAdmin(t, config(t, r.replica)).Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	follow(t, r.spare, r.replica.Addr())
	ample.Wait(t, "the replica's replica does not count", func() bool {
		info, err := newAdmin(t, config(t, r.replica)).InfoMap(t.Context(), "replication").Result()
		return err == nil && info["Replication"]["min_slaves_good_slaves"] == "1"
	})
}

// TestGoesOn: if all replicas have the acknowledged writes, processes continue on the replica that
// takes over, with their sessions and leases, and no revision is assigned twice.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	at := proxied(t, r.master)
	o := Options{Replicas: 1, ReplicaTimeout: 10 * time.Second}
	b := openOn(t, at.config, o)
	s := sqlfault.Join(t, b, "n1")
	f := claims(t, s, "s")
	sqlfault.Commit(t, s, sqlfault.AppendOf(f, 1, []byte("one")))
	r.cut(t)
	lost := unreplicated(t, b, s, "t")
	if err := r.master.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.promote(t)
	at.lead(t, r.replica)
	ample.Wait(t, "no heartbeat is answered", func() bool {
		err := s.Beat(bounded(t, ample.Time))
		if errors.Is(err, driver.ErrStoreChanged) {
			t.Fatal(err)
		}
		return err == nil
	})
	sqlfault.Commit(t, s, sqlfault.AppendOf(f, 2, []byte("two")))
	if page, err := b.ReadLog(t.Context(), "s", 0, 10); err != nil || len(page.Entries) != 2 {
		t.Errorf("the log: %+v, %v; want 2 entries", page, err)
	}
	if again := claims(t, s, "t"); int64(again.Token) <= lost {
		t.Errorf("token %d was granted; the master that was cut off had reached revision %d", again.Token, lost)
	}
	other := sqlfault.Join(t, openOn(t, at.config, o), "n2")
	if err := other.Beat(t.Context()); err != nil {
		t.Error(err)
	}
}

// unreplicated claims a shard at a master that was cut off, and returns its new revision.
func unreplicated(t *testing.T, b *Backend, s driver.Session, shard driver.ShardID) int64 {
	t.Helper()
	b.store.opts.ReplicaTimeout = 50 * time.Millisecond
	defer func() { b.store.opts.ReplicaTimeout = 10 * time.Second }()
	got, err := s.Acquire(t.Context(), []driver.Claim{{Shard: shard}})
	if err == nil {
		err = got[0].Err
	}
	if err == nil || driver.NotApplied(err) {
		t.Errorf("a claim that no replica has: %v; want an unknown outcome", err)
	}
	// This is the state after many more of these writes.
	rev, err := b.store.clients.calls.HIncrBy(t.Context(), b.store.names.key("records"), "rev", 1000).Result()
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// TestLostStops: a process got an answer that the new server lacks, because only another replica
// had the write. The process stops and reports the loss.
func TestLostStops(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	at := proxied(t, r.master)
	b := openOn(t, at.config, Options{Replicas: 1, ReplicaTimeout: 10 * time.Second})
	s := sqlfault.Join(t, b, "n1")
	f := claims(t, s, "s")
	r.cut(t)
	other := servers.New(t, servers.Redis, nil)
	follow(t, other, r.master.Addr())
	sqlfault.Commit(t, s, sqlfault.AppendOf(f, 1, []byte("lost")))
	if err := r.master.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.promote(t)
	at.lead(t, r.replica)
	if err := s.Beat(t.Context()); !errors.Is(err, driver.ErrStoreChanged) || !strings.Contains(err.Error(), "lost what was written") {
		t.Errorf("a heartbeat: %v; want ErrStoreChanged, saying what was lost", err)
	}
}

// TestGoesOnWhere: a process continues at a server that shares its past up to its last answer.
func TestGoesOnWhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		found string
		rev   kv.Rev
		ok    bool
	}{
		"another call attached already":    {"new p 0 L old:99", 5, true},
		"the first to come":                {"old p 0 L -", 10, true},
		"the first to come, behind":        {"old p 0 L -", 9, false},
		"others came before":               {"other p 0 L between:20,old:10,first:3", 500, true},
		"others came before, behind":       {"other p 0 L between:20,old:9,first:3", 500, false},
		"another past":                     {"other p 0 L between:20,first:3", 500, false},
		"another past, as long ago":        {"other p 0 L -", 500, false},
		"a damaged past":                   {"other p 0 L old:x", 500, false},
		"a record that is not there":       {"", 0, false},
		"a process that was answered more": {"older p 0 L old:10", 500, true},
	} {
		s := new(store)
		s.seen.Store(10)
		s.history.Store(&history{replication: "old", lineage: "L"})
		want := record{replication: "new", lineage: "L"}
		if name == "another call attached already" {
			s.history.Store(&history{replication: "new", lineage: "L"})
		}
		if err := s.goesOn(want, c.found, c.rev); c.ok != (err == nil) || err != nil && !errors.Is(err, driver.ErrStoreChanged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBackloglessPromotion: a promoted server that had no replicas for repl-backlog-ttl no longer
// shows its promotion, but is still recognized.
func TestBackloglessPromotion(t *testing.T) {
	t.Parallel()
	p := promoteBehind(t, Options{})
	admin := newAdmin(t, p.address.config)
	if err := admin.ConfigSet(t.Context(), "repl-backlog-ttl", "1").Err(); err != nil {
		t.Fatal(err)
	}
	ample.Wait(t, "the backlog is still there", func() bool {
		info, err := admin.InfoMap(t.Context(), "replication").Result()
		return err == nil && info["Replication"]["second_repl_offset"] == "-1"
	})
	if err := p.old.Beat(t.Context()); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("a heartbeat: %v; want ErrStoreChanged", err)
	}
}

// TestLagAboveTTL: Join refuses a TTL if a cut-off master would accept writes for that long.
func TestLagAboveTTL(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	set := func(seconds int) {
		if err := newAdmin(t, config(t, r.master)).ConfigSet(t.Context(), "min-replicas-max-lag", fmt.Sprint(seconds)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for lag, ok := range map[int]bool{1: true, 9: true, 10: false, 60: false} {
		set(lag)
		b := openOn(t, config(t, r.master), Options{Replicas: 1, ReplicaTimeout: 10 * time.Second})
		_, err := b.Join(t.Context(), driver.Member{Session: driver.SessionID(fmt.Sprint("s", lag)), Node: "n", TTL: 10 * time.Second})
		if ok != (err == nil) || err != nil && (!errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "min-replicas-max-lag is")) {
			t.Errorf("a lag of %d s, and a TTL of 10 s: %v", lag, err)
		}
	}
	set(0)
	refuses(t, config(t, r.master), Options{Replicas: 1}, driver.ErrUnsupported, "min-replicas-max-lag is \"0\"")
}

// TestReadsWait: reads of data that is known to be on the replicas do not wait. Other reads wait
// for the replicas.
func TestReadsWait(t *testing.T) {
	t.Parallel()
	r := newReplicated(t)
	o := Options{Replicas: 1, ReplicaTimeout: 10 * time.Second}
	b := openOn(t, config(t, r.master), o)
	reader := openOn(t, config(t, r.master), o)
	s := sqlfault.Join(t, b, "n1")
	f := claims(t, s, "s")
	write := func(no driver.WriteNo) driver.Write {
		w := sqlfault.AppendOf(f, no, []byte("entry"))
		w.Ops = append(w.Ops, driver.Op{Kind: driver.OpPut, Key: "k", Value: []byte("v")})
		return w
	}
	sqlfault.Commit(t, s, write(1))
	reads := map[string]func(context.Context) error{
		"ReadLog": func(ctx context.Context) error { _, err := reader.ReadLog(ctx, "s", 0, 10); return err },
		"Get":     func(ctx context.Context) error { _, err := reader.Get(ctx, "s", "k"); return err },
		"List":    func(ctx context.Context) error { _, err := reader.List(ctx, "s", "", 0, 0); return err },
		"Observe": func(ctx context.Context) error { _, err := reader.Observe(ctx, driver.ObserveQuery{}); return err },
		"TailLog": func(ctx context.Context) error { _, err := reader.TailLog(ctx, "", 10); return err },
	}
	for name, read := range reads {
		if err := read(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	reader.store.opts.ReplicaTimeout = 50 * time.Millisecond
	r.cut(t)
	for name, read := range reads {
		if err := read(t.Context()); err != nil {
			t.Errorf("%s without the replica, with nothing new: %v", name, err)
		}
	}
	b.store.opts.ReplicaTimeout = 50 * time.Millisecond
	if res, err := s.Commit(t.Context(), []driver.Write{write(2)}); err == nil && res[0].Err == nil {
		t.Error("a commit that no replica has is acknowledged")
	}
	for name, read := range reads {
		if err := read(t.Context()); err == nil || !strings.Contains(err.Error(), "0 of 1 replicas") {
			t.Errorf("%s of what no replica has: %v; want it refused", name, err)
		}
	}
	if err := s.Beat(t.Context()); err == nil {
		t.Error("a heartbeat that no replica has extends trust")
	}
}

// TestCutOffMaster: a master is cut off from its replica, which is promoted and has its own
// replica. The holder uses the former master, and a successor uses the new master. The two never
// trust their leases at the same time. Each of them waits for a replica after each guarded script,
// and only one holder's scripts are accepted.
func TestCutOffMaster(t *testing.T) {
	t.Parallel()
	var worst time.Duration
	both, rounds := 0, rounds(t)
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			overlap, guarded := cutOff(t)
			if worst = max(worst, overlap); guarded {
				both++
			}
		})
	}
	t.Logf("%d rounds: the longest overlap of trust is %v; guarded scripts of both were accepted %d times", rounds, worst, both)
	if worst > 0 || both > 0 {
		t.Error("a master that was cut off kept its holders' trust")
	}
}

func cutOff(t *testing.T) (overlap time.Duration, guarded bool) {
	const ttl = 2 * time.Second
	r := newReplicated(t)
	if err := everywhere(t.Context(), t, []*servers.Server{r.master, r.replica}, "CONFIG", "SET", "min-replicas-max-lag", 1); err != nil {
		t.Fatal(err)
	}
	o := Options{Replicas: 1, ReplicaTimeout: 300 * time.Millisecond, Create: true}
	namespace := t.Name()
	lead := func(s *servers.Server, node string) (*Backend, *atomic.Pointer[core.Lease]) {
		var b *Backend
		ample.Wait(t, node+" does not open", func() (ok bool) {
			var err error
			b, err = Open(bounded(t, 5*time.Second), config(t, s), namespace, &o)
			return err == nil
		})
		t.Cleanup(func() { b.Close() })
		e, err := core.NewElector(b, &core.Options{Node: node, TTL: ttl, LockDir: "none"})
		if err != nil {
			t.Fatal(err)
		}
		lease := new(atomic.Pointer[core.Lease])
		if err := e.Contend(func(ctx context.Context, l *core.Lease) error {
			lease.Store(l)
			<-ctx.Done()
			return nil
		}, "s"); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		done := make(chan struct{})
		go func() { defer close(done); _ = e.Run(ctx) }()
		t.Cleanup(func() { stop(); <-done })
		return b, lease
	}
	trusted := func(l *atomic.Pointer[core.Lease]) bool { return l.Load() != nil && l.Load().Err() == nil }
	both := func(a, b *atomic.Pointer[core.Lease]) bool { return trusted(b) && trusted(a) && trusted(b) } // at the moment of a's check
	// The client of A always queries the former master, although Sentinels would lead a process
	// away from that master.
	was, a := lead(r.master, "A")
	ample.Wait(t, "A does not lead", func() bool { return trusted(a) })
	wait(t.Context(), rand.N(time.Second))
	r.cut(t)
	wait(t.Context(), rand.N(2*time.Second))
	r.promote(t)
	now, b := lead(r.replica, "B")
	script := guardedBy(t)
	oldAccepted, newAccepted := false, false
	look := func() {
		began := time.Now()
		for both(a, b) {
			overlap = max(overlap, time.Since(began))
			wait(t.Context(), time.Millisecond)
		}
		oldAccepted = oldAccepted || script(was, r.master, a.Load())
	}
	ample.Wait(t, "no guarded script of the successor is accepted", func() bool {
		look()
		newAccepted = trusted(b) && script(now, r.replica, b.Load())
		return newAccepted
	})
	for range ample.During(ttl, time.Millisecond) {
		look()
	}
	return overlap, oldAccepted && newAccepted
}

// guardedBy runs a guarded script as documented, and reports whether it counts.
func guardedBy(t *testing.T) func(b *Backend, s *servers.Server, l *core.Lease) bool {
	script, err := GuardScript("return redis.call('SET', KEYS[1], ARGV[1])")
	if err != nil {
		t.Fatal(err)
	}
	clients := make(map[*servers.Server]goredis.UniversalClient)
	return func(b *Backend, s *servers.Server, l *core.Lease) bool {
		if clients[s] == nil {
			clients[s] = newAdmin(t, config(t, s))
		}
		keys, args := b.Guard(l.Fence(), []string{"{" + string(b.store.names.keys) + "}/paid"}, "yes")
		pipe := clients[s].Pipeline()
		ran := script.Eval(t.Context(), pipe, keys, args...)
		replicas := pipe.Do(t.Context(), "WAIT", 1, 50)
		_, _ = pipe.Exec(t.Context()) // each has its error
		n, err := replicas.Int()
		return ran.Err() == nil && err == nil && n == 1
	}
}

// TestReadsSurvive: concurrent readers never see data that is lost when the master is cut off and
// the replica is promoted.
func TestReadsSurvive(t *testing.T) {
	t.Parallel()
	gone, rounds := 0, rounds(t)
	for round := range rounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			if lostReads(t, Options{Replicas: 1, ReplicaTimeout: 10 * time.Second}) > 0 {
				gone++
			}
		})
	}
	t.Logf("%d rounds: what was read was gone after the promotion in %d", rounds, gone)
	if gone > 0 {
		t.Error("a promotion took back what a read had answered")
	}
}

// TestReadsSurviveControl does not wait for replicas, and expects the loss of data that was read.
// Otherwise, TestReadsSurvive would prove nothing.
func TestReadsSurviveControl(t *testing.T) {
	t.Parallel()
	for round := range min(rounds(t), 5) {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			if lostReads(t, Options{AllowLoss: true}) == 0 {
				t.Error("nothing that was read is gone; want damage")
			}
		})
	}
}

// lostReads returns how many commits that were read are lost after a promotion.
func lostReads(t *testing.T, o Options) int64 {
	t.Helper()
	r := newReplicated(t)
	o.Create = true
	opened := func(s *servers.Server, o Options) (b *Backend) {
		ample.Wait(t, "it does not open", func() bool {
			var err error
			b, err = Open(bounded(t, ample.Time), config(t, s), t.Name(), &o)
			if err != nil && !errors.Is(err, driver.ErrRetry) {
				t.Fatal(err)
			}
			return err == nil
		})
		t.Cleanup(func() { b.Close() })
		return b
	}
	writer, reader := opened(r.master, o), opened(r.master, o)
	s := sqlfault.Join(t, writer, "n1")
	f := claims(t, s, "s")
	follower := newAdmin(t, config(t, r.replica))
	ample.Wait(t, "the replica lacks the namespace", func() bool {
		return follower.HExists(t.Context(), writer.store.names.key("records"), "!state/shard/s").Val()
	})
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var seen, written atomic.Int64 // the highest commit that a read showed, and the highest sent
	all.Go(func() {
		for no := driver.WriteNo(1); ctx.Err() == nil; no++ {
			written.Store(int64(no))
			w := sqlfault.AppendOf(f, no, []byte(fmt.Sprint(no)))
			w.Ops = append(w.Ops, driver.Op{Kind: driver.OpPut, Key: "k", Value: []byte(fmt.Sprint(no))})
			short, cancel := context.WithTimeout(ctx, time.Second)
			_, _ = s.Commit(short, []driver.Write{w}) // if its outcome is unknown, readers must not see it
			cancel()
		}
	})
	saw := func(no int64) {
		for old := seen.Load(); no > old && !seen.CompareAndSwap(old, no); old = seen.Load() {
		}
	}
	item := func(value []byte) {
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			t.Error(err)
		}
		saw(n)
	}
	var cursor driver.Cursor
	for _, read := range []func(context.Context){
		func(ctx context.Context) {
			if page, err := reader.ReadLog(ctx, "s", driver.Seq(seen.Load()), 10); err == nil {
				saw(int64(page.Head.Number))
			}
		},
		func(ctx context.Context) {
			if it, err := reader.Get(ctx, "s", "k"); err == nil && it != nil {
				item(it.Value)
			}
		},
		func(ctx context.Context) {
			if all, err := reader.List(ctx, "s", "", 0, 0); err == nil && len(all) > 0 {
				item(all[0].Value)
			}
		},
		func(ctx context.Context) {
			page, err := reader.TailLog(ctx, cursor, 10)
			if err != nil {
				return
			}
			cursor = page.Cursor
			for _, e := range page.Entries {
				saw(int64(e.Seq))
			}
			for _, h := range page.Heads {
				saw(int64(h.Head.Number))
			}
		},
	} {
		all.Go(func() {
			for ctx.Err() == nil {
				short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				read(short)
				cancel()
			}
		})
	}
	ample.Wait(t, "nothing is read", func() bool { return seen.Load() > 3 })
	wait(ctx, rand.N(100*time.Millisecond))
	r.cut(t)
	wait(ctx, 300*time.Millisecond)
	stop()
	all.Wait()
	if err := r.master.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.promote(t)
	page, err := opened(r.replica, Options{AllowLoss: true}).ReadLog(t.Context(), "s", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d commits sent, those up to %d read, those up to %d are there", written.Load(), seen.Load(), page.Head.Number)
	return max(0, seen.Load()-int64(page.Head.Number))
}
