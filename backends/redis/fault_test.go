package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/intercept"
	"github.com/tenure-go/tenure/internal/proof/outage"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/share"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestStruck appends to a log, each entry exactly once, while the server is killed and
// restarted from its log, stalled, and forgets the scripts.
func TestStruck(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Redis, nil)
	c := config(t, server)
	admin := newAdmin(t, c)
	b := intercept.Wrap(openOn(t, c, Options{}), impatient)
	n, seen := 0, driver.WriteNo(0)
	sqlfault.FaultWhileWriting(t, b, int64(share.Of(t, "faults", 9, 3)), func(ctx context.Context) (int, error) {
		// Inject a fault only after progress.
		if page, err := b.ReadLog(ctx, "faulted", 0, 1); err != nil || page.Head.Number < seen+10 {
			return 0, nil
		} else {
			seen = page.Head.Number
		}
		n++
		switch n % 3 {
		case 0:
			return 1, admin.ScriptFlush(ctx).Err()
		case 1:
			return 1, server.Restart(ctx)
		}
		if err := server.Stop(ctx); err != nil {
			return 0, err
		}
		wait(ctx, 400*time.Millisecond)
		return 1, server.Cont()
	})
}

// impatient gives every commit a time-out, as core does.
func impatient(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
	if c.Op == intercept.Commit {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
	}
	return proceed(ctx)
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// TestIdentityTampered: overwriting or losing the identity stops the members.
func TestIdentityTampered(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Redis, nil)
	c := config(t, server)
	admin := newAdmin(t, c)
	records := func(namespace string) string { return "{" + namespace + "}/records" }
	outage.Identity(t, func(t *testing.T, namespace string) driver.Backend {
		b, err := Open(t.Context(), c, namespace, &Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}, map[string]func(string) error{
		"garbage": func(namespace string) error {
			return admin.HSet(t.Context(), records(namespace), "!id", "7 garbage").Err()
		},
		"removed": func(namespace string) error { return admin.HDel(t.Context(), records(namespace), "!id").Err() },
		"lost":    func(namespace string) error { return admin.Del(t.Context(), records(namespace)).Err() },
		"anew": func(namespace string) error {
			keys, err := admin.Keys(t.Context(), "{"+namespace+"}/*").Result()
			if err == nil {
				err = admin.Del(t.Context(), keys...).Err()
			}
			if err != nil {
				return err
			}
			b, err := Open(t.Context(), c, namespace, &Options{Create: true})
			if err == nil {
				err = b.Close()
			}
			return err
		},
	})
}

// TestFlushed: FLUSHALL stops the members. When the namespace begins again, it has a different
// identity and a different first revision.
func TestFlushed(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Redis, nil)
	c := config(t, server)
	b := openOn(t, c, Options{})
	s := sqlfault.Join(t, b, "n1")
	sqlfault.Acquire(t, s, sqlfault.Claims(1))
	identity := func(b *Backend) kv.Rev {
		page, err := b.store.Get(t.Context(), b.store.names.keys.Identity())
		if err != nil {
			t.Fatal(err)
		}
		return page.Pairs[0].Rev
	}
	was := identity(b)
	admin := newAdmin(t, c)
	flush := func() {
		if err := admin.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	flush()
	if err := s.Beat(t.Context()); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("a heartbeat: %v; want ErrStoreChanged", err)
	}
	if _, err := Open(t.Context(), c, t.Name(), nil); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("opening: %v; want ErrStoreChanged", err)
	}
	flush() // so that the first writes are repeated
	anew := openOn(t, c, Options{})
	if anew.Info().StoreID == b.Info().StoreID || identity(anew) == was {
		t.Error("the namespace has the identity of before")
	}
	if _, err := b.Observe(t.Context(), driver.ObserveQuery{}); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("a view of before: %v; want ErrStoreChanged", err)
	}
}

// TestNamesLost: if the names of a namespace's records are evicted or deleted, the namespace
// accepts no writes, so that no decision is based on partial data.
func TestNamesLost(t *testing.T) {
	t.Parallel()
	c := config(t, pool.Get(t, servers.Redis, nil))
	for name, lose := range map[string]func(goredis.UniversalClient, string) error{
		"all": func(admin goredis.UniversalClient, key string) error { return admin.Del(t.Context(), key).Err() },
		"one": func(admin goredis.UniversalClient, key string) error { return admin.ZPopMin(t.Context(), key).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			b := openOn(t, c, Options{})
			s := sqlfault.Join(t, b, "n1")
			if err := lose(newAdmin(t, c), b.store.names.key("names")); err != nil {
				t.Fatal(err)
			}
			if r, err := s.Acquire(t.Context(), []driver.Claim{{Shard: "s"}}); !halted(err, r) {
				t.Errorf("a claim: %+v, %v; want ErrStoreChanged", r, err)
			}
			if err := s.Beat(t.Context()); !errors.Is(err, driver.ErrStoreChanged) {
				t.Errorf("a heartbeat: %v; want ErrStoreChanged", err)
			}
		})
	}
}

// TestFull: a server without free memory refuses writes, which counts as an answer, and continues.
func TestFull(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Redis, nil)
	c := config(t, server)
	admin, b := newAdmin(t, c), openOn(t, c, Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	f := granted[0].Fence
	sqlfault.Commit(t, s, sqlfault.AppendOf(f, 1, []byte("before")))
	set := func(bytes string) {
		if err := admin.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("1")
	res, err := s.Commit(t.Context(), []driver.Write{sqlfault.AppendOf(f, 2, []byte("during"))})
	if err == nil {
		err = res[0].Err
	}
	if !errors.Is(err, driver.ErrRetry) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("a commit: %v; want ErrRetry, naming OOM", err)
	}
	if err := s.Beat(t.Context()); !errors.Is(err, driver.ErrRetry) {
		t.Errorf("a heartbeat: %v; want ErrRetry", err)
	}
	if page, err := b.ReadLog(t.Context(), f.Shard, 0, 10); err != nil || len(page.Entries) != 1 {
		t.Errorf("the log: %+v, %v", page, err)
	}
	set("0")
	if err := s.Beat(t.Context()); err != nil {
		t.Errorf("a heartbeat afterwards: %v", err)
	}
	sqlfault.Commit(t, s, sqlfault.AppendOf(f, 2, []byte("after")))
}

// TestRestart: a server whose log has every acknowledged write continues under the same history. A
// server that can lose acknowledged writes does not continue.
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, allow := range []bool{false, true} {
		t.Run(fmt.Sprintf("AllowLoss-%v", allow), func(t *testing.T) {
			t.Parallel()
			server := servers.New(t, servers.Redis, nil)
			c := config(t, server)
			b := openOn(t, c, Options{AllowLoss: allow})
			s := sqlfault.Join(t, b, "n1")
			granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if allow {
				if err := s.Beat(t.Context()); !errors.Is(err, driver.ErrStoreChanged) {
					t.Errorf("a heartbeat after a restart: %v; want ErrStoreChanged", err)
				}
				anew := openOn(t, c, Options{AllowLoss: true})
				if said := anew.Info().Rollback; !strings.Contains(said, "has what was written up to revision") {
					t.Errorf("the first to open says %q; want what was rolled back", said)
				}
				if said := openOn(t, c, Options{AllowLoss: true}).Info().Rollback; said != "" {
					t.Errorf("the second to open says %q", said)
				}
				next := sqlfault.Join(t, anew, "n2")
				again, _ := sqlfault.Acquire(t, next, []driver.Claim{{Shard: "other"}})
				if was := granted[0].Fence.Token; again[0].Fence.Token < was+1<<39 {
					t.Errorf("token %d was granted after a restart, and %d before it", again[0].Fence.Token, was)
				}
				return
			}
			// The first call finds the restart, and no part of it was applied.
			if err := s.Beat(t.Context()); err != nil && !errors.Is(err, driver.ErrRetry) {
				t.Errorf("the first heartbeat after a restart: %v; want ErrRetry or none", err)
			}
			if err := s.Beat(t.Context()); err != nil {
				t.Errorf("a heartbeat after a restart: %v", err)
			}
			sqlfault.Commit(t, s, sqlfault.AppendOf(granted[0].Fence, 1, []byte("after")))
		})
	}
}

// replicate makes a server a replica of another, and waits until the replica follows. cut stops the
// replication of later writes.
func replicate(t *testing.T, of, replica *servers.Server) (cut func()) {
	t.Helper()
	proxy, err := faultproxy.New(of.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	follow(t, replica, proxy.Addr())
	return func() {
		if err := proxy.Refuse(); err != nil {
			t.Error(err)
		}
		proxy.Reset()
	}
}

// follow makes a server the replica of the server at addr, and waits until both have the same data.
func follow(t testing.TB, replica *servers.Server, addr string) {
	t.Helper()
	host, port, _ := strings.Cut(addr, ":")
	follower := newAdmin(t, config(t, replica))
	if err := follower.Do(t.Context(), "REPLICAOF", host, port).Err(); err != nil {
		t.Fatal(err)
	}
	ample.Wait(t, "the replica does not follow", func() bool {
		info, err := follower.InfoMap(t.Context(), "replication").Result()
		return err == nil && info["Replication"]["master_link_status"] == "up"
	})
}

// TestPromotedBehind: a replica without the last grants takes over. A former process uses no lease
// that it gets there, and no token is granted twice.
func TestPromotedBehind(t *testing.T) {
	t.Parallel()
	for round := range rounds(t) {
		p := promoteBehind(t, Options{})
		p.guardsRefused(t)
		if r, err := p.old.Acquire(t.Context(), []driver.Claim{{Shard: "t"}}); !halted(err, r) {
			t.Errorf("round %d: a claim to the promoted replica: %+v, %v; want ErrStoreChanged", round, r, err)
		}
		if err := p.old.Beat(t.Context()); !errors.Is(err, driver.ErrStoreChanged) {
			t.Errorf("round %d: a heartbeat to the promoted replica: %v; want ErrStoreChanged", round, err)
		}
		fresh := sqlfault.Join(t, openOn(t, p.address.config, Options{}), "fresh")
		if again := claims(t, fresh, "t"); again.Token < p.lost.Token+1<<39 {
			t.Errorf("round %d: token %d was granted by the promoted replica, and %d before", round, again.Token,
				p.lost.Token)
		}
		p.guardsRefused(t)
	}
}

// guardsRefused checks that no script runs under a former lease (F1).
func (p *promoted) guardsRefused(t *testing.T) {
	t.Helper()
	guard := guardOf(newAdmin(t, p.address.config), "{"+p.backend.Info().Namespace+"}-texts")
	for _, by := range []*Backend{p.backend, p.late} {
		for _, f := range []driver.Fence{p.held, p.lost} {
			write, err := guard.Begin(t.Context(), by, f)
			if err == nil {
				err = write(t.Context(), "late")
			}
			if !errors.Is(err, driver.ErrFenced) {
				t.Errorf("GuardScript under token %d of before the promotion, with %d lost: %v; want it fenced", f.Token, p.lost.Token, err)
			}
		}
	}
	if texts, err := guard.Texts(t.Context()); err != nil || len(texts) != 0 {
		t.Errorf("guarded scripts wrote %v, %v", texts, err)
	}
}

// TestSecondPromotedFromOldest promotes one replica and then another, which followed only the first
// master. The processes at one replica know nothing of the other replica. The second replica's
// tokens are greater than the first's (I2).
func TestSecondPromotedFromOldest(t *testing.T) {
	t.Parallel()
	for round := range rounds(t) {
		one := servers.New(t, servers.Redis, nil)
		namespace := fmt.Sprint("oldest-", round)
		open := func(s *servers.Server) driver.Session {
			b, err := Open(t.Context(), config(t, s), namespace, &Options{Create: s == one})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.Close() })
			return sqlfault.Join(t, b, "fresh")
		}
		claims(t, open(one), "s")
		var replicas []*servers.Server
		for range 2 {
			replica := servers.New(t, servers.Redis, nil)
			defer replicate(t, one, replica)()
			replicas = append(replicas, replica)
		}
		rev := func(s *servers.Server) string {
			return newAdmin(t, config(t, s)).HGet(t.Context(), "{"+namespace+"}/records", "rev").Val()
		}
		for _, r := range replicas {
			ample.Wait(t, "a replica lacks something", func() bool { return rev(r) == rev(one) })
		}
		if err := one.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		var newest driver.Token
		for _, promoted := range replicas {
			if err := newAdmin(t, config(t, promoted)).Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
				t.Fatal(err)
			}
			s := open(promoted)
			for n := range 10 {
				f := claims(t, s, driver.ShardID(fmt.Sprint("t", n)))
				if f.Token <= newest {
					t.Fatalf("round %d: token %d was granted; token %d had been granted by the replica promoted before", round, f.Token, newest)
				}
				newest = f.Token
			}
		}
	}
}

// TestPromotedBehindControl removes the compare of the server's history, and expects a new token
// that is not above an acknowledged token. Otherwise, TestPromotedBehind would prove nothing.
func TestPromotedBehindControl(t *testing.T) {
	t.Parallel()
	for round := range rounds(t) {
		p := promoteBehind(t, Options{AllowLoss: true})
		const compare = "'master_replid:' .. ARGV[1]"
		text, err := scriptFiles.ReadFile("scripts/apply.lua")
		if err != nil || !strings.Contains(string(text), compare) {
			t.Fatalf("the script has no %q: %v", compare, err)
		}
		p.backend.store.scripts.apply = goredis.NewScript(strings.ReplaceAll(string(text), compare, "'master_replid:'"))
		if again := claims(t, p.old, "t"); again.Token > p.lost.Token {
			t.Errorf("round %d: token %d was granted by the promoted replica, and %d before; want damage", round,
				again.Token, p.lost.Token)
		}
	}
}

// TestPromotedAlone: a promoted replica that refuses writes because it has no replica still stops a
// former process.
func TestPromotedAlone(t *testing.T) {
	t.Parallel()
	p := promoteBehind(t, Options{})
	if err := newAdmin(t, p.address.config).ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := p.old.Beat(t.Context()); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("a heartbeat: %v; want ErrStoreChanged", err)
	}
}

// promoted is a replica that took over without the last grant.
type promoted struct {
	address *address
	backend *Backend       // a former process, which does not know of the promotion
	old     driver.Session // of the former process
	held    driver.Fence   // granted to it, as the replica knows
	late    *Backend       // another former process
	lost    driver.Fence   // recently granted to another session
}

func promoteBehind(t *testing.T, o Options) *promoted {
	t.Helper()
	one, two := servers.New(t, servers.Redis, nil), servers.New(t, servers.Redis, nil)
	p := &promoted{address: proxied(t, one)}
	p.backend = openOn(t, p.address.config, o)
	p.old = sqlfault.Join(t, p.backend, "old")
	p.held = claims(t, p.old, "s")
	p.late = openOn(t, config(t, one), o)
	late := sqlfault.Join(t, p.late, "late")
	cut := replicate(t, one, two)
	if err := p.old.Beat(t.Context()); err != nil && !errors.Is(err, driver.ErrRetry) {
		t.Fatal(err)
	}
	// The replica has everything that the former process knows. Otherwise, that process would halt.
	revision := func(s *servers.Server) string {
		return newAdmin(t, config(t, s)).HGet(t.Context(), p.backend.store.names.key("records"), "rev").Val()
	}
	ample.Wait(t, "the replica lacks the heartbeat", func() bool { return revision(one) == revision(two) })
	cut()
	p.lost = claims(t, late, "t")
	if err := one.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := newAdmin(t, config(t, two)).Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	p.address.lead(t, two)
	return p
}

func halted(err error, r []driver.AcquireResult) bool {
	if err == nil && len(r) > 0 {
		err = r[0].Err
	}
	return errors.Is(err, driver.ErrStoreChanged)
}

func claims(t *testing.T, s driver.Session, shard driver.ShardID) driver.Fence {
	t.Helper()
	ctx := bounded(t, ample.Time)
	for {
		r, err := s.Acquire(ctx, []driver.Claim{{Shard: shard}})
		if err == nil {
			err = r[0].Err
		}
		switch {
		case err == nil:
			return r[0].Fence
		case !errors.Is(err, driver.ErrRetry) || ctx.Err() != nil:
			t.Fatal(err)
		}
	}
}

// TestReplicas: a write on too few replicas has an unknown outcome, and a write on enough replicas
// succeeds.
func TestReplicas(t *testing.T) {
	t.Parallel()
	one, two := servers.New(t, servers.Redis, nil), servers.New(t, servers.Redis, nil)
	replicate(t, one, two)
	halts(t, one)
	b := openOn(t, config(t, one), Options{Replicas: 1, ReplicaTimeout: 30 * time.Second})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	sqlfault.Commit(t, s, sqlfault.AppendOf(granted[0].Fence, 1, []byte("x")))
	if err := two.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.store.opts.ReplicaTimeout = 100 * time.Millisecond
	res, err := s.Commit(t.Context(), []driver.Write{sqlfault.AppendOf(granted[0].Fence, 2, []byte("y"))})
	if err == nil {
		err = res[0].Err
	}
	if err == nil || driver.NotApplied(err) || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Errorf("a commit that no replica has: %v; want an unknown outcome", err)
	}
	if err := s.Beat(t.Context()); err == nil || driver.NotApplied(err) {
		t.Errorf("a heartbeat that no replica has: %v; want an unknown outcome", err)
	}
	b.store.opts.ReplicaTimeout = 30 * time.Second
	if err := two.Cont(); err != nil {
		t.Fatal(err)
	}
	sqlfault.Commit(t, s, sqlfault.AppendOf(granted[0].Fence, 3, []byte("z")))
}

// TestReadsNothingFromReplicas: a master that became a replica answers nothing.
func TestReadsNothingFromReplicas(t *testing.T) {
	t.Parallel()
	one, two := servers.New(t, servers.Redis, nil), servers.New(t, servers.Redis, nil)
	b := openOn(t, config(t, one), Options{})
	s := sqlfault.Join(t, b, "n1")
	replicate(t, two, one)
	if _, err := b.Get(t.Context(), "s", "k"); err == nil {
		t.Error("a replica answers a read")
	}
	if err := s.Beat(t.Context()); !errors.Is(err, driver.ErrRetry) || !strings.Contains(err.Error(), "replica of") {
		t.Errorf("a heartbeat: %v; want ErrRetry, naming the master", err)
	}
}

// TestHeartbeatsDoNotQueue: heartbeats, and the pings that replace them, are answered while the
// largest number of other calls is in flight.
func TestHeartbeatsDoNotQueue(t *testing.T) {
	t.Parallel()
	b := openOn(t, config(t, pool.Get(t, servers.Redis, nil)), Options{})
	s := sqlfault.Join(t, b, "n1")
	for range concurrent {
		_, give, err := b.store.clients.take(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		defer give()
	}
	if err := s.Beat(bounded(t, ample.Time)); err != nil {
		t.Errorf("a heartbeat: %v", err)
	}
	if _, err := b.Get(bounded(t, ample.Time), driver.PingShard, "0"); err != nil {
		t.Errorf("a ping: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := b.Get(short, "s", "0"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another read: %v; want its deadline", err)
	}
}
