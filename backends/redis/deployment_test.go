package redis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// deployment is a set of servers in which a replica takes over from a lost master.
type deployment struct {
	config    *goredis.UniversalOptions
	options   Options
	servers   []*servers.Server
	sentinels []*servers.Server // may be empty
	hasten    func() error      // makes the others notice within seconds that a server is gone
}

// everywhere sends a command to all given servers.
func everywhere(ctx context.Context, t testing.TB, all []*servers.Server, command ...any) error {
	var failed error
	for _, s := range all {
		failed = errors.Join(failed, newAdmin(t, config(t, s)).Do(ctx, command...).Err())
	}
	return failed
}

// halts makes servers refuse writes soon after they are cut off from their replica. The delay is
// longer than a replica's silence on a busy machine.
func halts(t testing.TB, all ...*servers.Server) {
	t.Helper()
	err := everywhere(t.Context(), t, all, "CONFIG", "SET", "min-replicas-to-write", 1, "min-replicas-max-lag", 5)
	if err != nil {
		t.Fatal(err)
	}
}

// newSentinels starts a master, its replica, and three Sentinels that know both.
func newSentinels(t testing.TB) *deployment {
	t.Helper()
	all := []*servers.Server{servers.New(t, servers.Redis, nil), servers.New(t, servers.Redis, nil)}
	follow(t, all[1], all[0].Addr())
	sentinels := servers.NewCluster(t, servers.Sentinel, 3, &servers.Options{Upstream: all[0]})
	for _, s := range sentinels.Members() {
		admin := newAdmin(t, config(t, s))
		ample.Wait(t, "a Sentinel does not know the replica", func() bool {
			info, err := admin.Info(t.Context(), "sentinel").Result()
			return err == nil && strings.Contains(info, "slaves=1,")
		})
	}
	halts(t, all...)
	return &deployment{
		config:  &goredis.UniversalOptions{Addrs: sentinels.Addrs(), MasterName: servers.SentinelMaster},
		options: Options{Replicas: 1, ReplicaTimeout: 10 * time.Second, Insecure: true},
		servers: all, sentinels: sentinels.Members(),
		hasten: func() error {
			return everywhere(t.Context(), t, sentinels.Members(), "SENTINEL", "SET", servers.SentinelMaster,
				"down-after-milliseconds", 500)
		},
	}
}

func newCluster(t testing.TB) *deployment {
	t.Helper()
	cluster := servers.NewCluster(t, servers.Redis, 6, nil)
	all := cluster.Members()
	halts(t, all...)
	d := &deployment{
		config:  &goredis.UniversalOptions{Addrs: cluster.Addrs()},
		options: Options{Replicas: 1, ReplicaTimeout: 10 * time.Second},
		servers: all,
	}
	d.hasten = func() error {
		running := slices.DeleteFunc(slices.Clone(all), func(s *servers.Server) bool {
			return newAdmin(t, config(t, s)).Ping(bounded(t, 2*time.Second)).Err() != nil
		})
		return everywhere(t.Context(), t, running, "CONFIG", "SET", "cluster-node-timeout", 1000)
	}
	return d
}

func (d *deployment) masterOf(t testing.TB, b *Backend) *servers.Server {
	t.Helper()
	v, err := b.store.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range d.servers {
		if strings.HasSuffix(s.Addr(), ":"+v.info["tcp_port"]) {
			return s
		}
	}
	t.Fatalf("no server has port %s", v.info["tcp_port"])
	return nil
}

// entries is the number of entries of the log in TestTakenOver.
const entries = 2

// waitsForItsReplica stalls a master's replica. No write may be confirmed, even if other nodes of
// the cluster have replicas.
func (d *deployment) waitsForItsReplica(
	t *testing.T, b *Backend, s driver.Session, f driver.Fence, master *servers.Server,
) {
	t.Helper()
	half := len(d.servers) / 2
	replica := d.servers[(slices.Index(d.servers, master)+half)%len(d.servers)]
	if err := replica.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.store.opts.ReplicaTimeout = 50 * time.Millisecond
	res, err := s.Commit(t.Context(), []driver.Write{sqlfault.AppendOf(f, entries-1, []byte("unknown"))})
	if err == nil {
		err = res[0].Err
	}
	if err == nil || driver.NotApplied(err) {
		t.Errorf("a write that the master's replica does not have: %v; want an unknown outcome", err)
	}
	b.store.opts.ReplicaTimeout = d.options.ReplicaTimeout
	if err := replica.Cont(); err != nil {
		t.Fatal(err)
	}
}

// TestTakenOver: the master is killed or stalled, and its replica takes over. Once the former
// master is back as a replica, a process continues at the new master, under its lease, with the
// acknowledged writes. Before that, nothing is acknowledged. The process's Sentinel may have fallen
// silent earlier.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) *deployment{
		"Sentinel": newSentinels, "SilentSentinel": newSentinels, "Cluster": newCluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			b := openOn(t, d.config, d.options)
			s := sqlfault.Join(t, b, "n1")
			was := claims(t, s, "s")
			master := d.masterOf(t, b)
			d.waitsForItsReplica(t, b, s, was, master)
			sqlfault.Commit(t, s, sqlfault.AppendOf(was, entries, []byte("acknowledged")))
			gone, back := master.Kill, master.Restart
			if name == "Cluster" {
				gone, back = master.Stop, func(context.Context) error { return master.Cont() }
			}
			if name == "SilentSentinel" {
				if err := d.hasten(); err != nil {
					t.Fatal(err)
				}
				standStill(t, d.sentinels[0])
			}
			if err := gone(t.Context()); err != nil {
				t.Fatal(err)
			}
			if name != "SilentSentinel" {
				if err := d.hasten(); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			b.store.opts.ReplicaTimeout = 100 * time.Millisecond // the new master has no replica yet
			beat := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				return s.Beat(ctx)
			}
			ample.Wait(t, "no heartbeat finds the new master", func() bool {
				err := beat()
				if err == nil {
					t.Fatal("a heartbeat that no replica has is accepted")
				}
				return goredis.HasErrorPrefix(err, "NOREPLICAS") || strings.Contains(err.Error(), "0 of 1 replicas")
			})
			t.Logf("a heartbeat finds the new master after %v", time.Since(began))
			if err := back(t.Context()); err != nil {
				t.Fatal(err)
			}
			if name != "Cluster" { // as the Sentinels do later
				follow(t, master, d.servers[1].Addr())
			}
			b.store.opts.ReplicaTimeout = d.options.ReplicaTimeout
			ample.Wait(t, "no heartbeat is answered by the new master", func() bool {
				err := beat()
				if errors.Is(err, driver.ErrStoreChanged) {
					t.Fatal(err)
				}
				return err == nil
			})
			if d.masterOf(t, b) == master {
				t.Error("the former master answers")
			}
			sqlfault.Commit(t, s, sqlfault.AppendOf(was, entries+1, []byte("after")))
			page, err := b.ReadLog(t.Context(), "s", 0, 10)
			if err != nil || len(page.Entries) != entries+1 {
				t.Errorf("the log after the takeover: %+v, %v; want %d entries", page, err, entries+1)
			}
			fresh := openOn(t, d.config, d.options)
			if again := claims(t, sqlfault.Join(t, fresh, "n2"), "t"); again.Token <= was.Token {
				t.Errorf("token %d was granted by the new master, and %d before", again.Token, was.Token)
			}
		})
	}
}
