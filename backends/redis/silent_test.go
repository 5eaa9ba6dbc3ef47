package redis

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// serves returns how long it takes to open a namespace. It also returns how long it then takes
// until a process serves a shard under a lease that was confirmed two more times.
func serves(t *testing.T, c *goredis.UniversalOptions, o Options, ttl time.Duration) (opened, served time.Duration) {
	t.Helper()
	began := time.Now()
	b := openOn(t, c, o)
	opened = time.Since(began)
	began = time.Now()
	s := sqlfault.Join(t, b, "n"+ttl.String())
	claims(t, s, "s"+driver.ShardID(ttl.String()))
	if _, err := b.ReadLog(t.Context(), "s", 0, 0); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := s.Beat(t.Context()); err != nil {
			t.Error(err)
		}
	}
	return opened, time.Since(began)
}

// newSentinelsAlone starts a master without a replica, and three Sentinels.
func newSentinelsAlone(t *testing.T) (
	c *goredis.UniversalOptions, o Options, sentinels *servers.Cluster, master *servers.Server,
) {
	t.Helper()
	master = servers.New(t, servers.Redis, nil)
	sentinels = servers.NewCluster(t, servers.Sentinel, 3, &servers.Options{Upstream: master})
	c = &goredis.UniversalOptions{Addrs: sentinels.Addrs(), MasterName: servers.SentinelMaster}
	return c, Options{Insecure: true, AllowLoss: true}, sentinels, master
}

func standStill(t *testing.T, s *servers.Server) {
	t.Helper()
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Cont(); err != nil {
			t.Error(err)
		}
	})
}

// besidePings measures pings to a server without faults.
func besidePings(t *testing.T, s *servers.Server) *ample.Gauge {
	t.Helper()
	admin := newAdmin(t, config(t, s))
	admin.Ping(t.Context()) // connects
	return ample.Beside(t, 20*time.Millisecond, func() { admin.Ping(context.WithoutCancel(t.Context())) })
}

// startsSoon opens a namespace and serves a shard within two TTLs each.
func startsSoon(t *testing.T, c *goredis.UniversalOptions, o Options, healthy *servers.Server) {
	for _, ttl := range []time.Duration{500 * time.Millisecond, time.Second} {
		t.Run(ttl.String(), func(t *testing.T) {
			g := besidePings(t, healthy)
			opened, served := serves(t, c, o, ttl)
			t.Logf("opened after %v, serves after %v, %.2f TTL", opened, served, served.Seconds()/ttl.Seconds())
			g.AtMost("opening", opened, 2*ttl)
			g.AtMost("serving", served, 2*ttl)
		})
	}
}

// TestStartAtSilentSentinel: a process that starts while a Sentinel is stopped soon serves, and its
// heartbeats are answered.
func TestStartAtSilentSentinel(t *testing.T) {
	t.Parallel()
	c, o, sentinels, master := newSentinelsAlone(t)
	standStill(t, sentinels.Members()[0])
	startsSoon(t, c, o, master)
}

func passing(t *testing.T, addr string) *faultproxy.Proxy {
	t.Helper()
	p, err := faultproxy.New(addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// mute is an address that accepts connections and never answers.
func mute(t *testing.T) string {
	t.Helper()
	p := passing(t, "127.0.0.1:1")
	if err := p.Set(faultproxy.Faults{Mute: true}); err != nil {
		t.Fatal(err)
	}
	return p.Addr()
}

// beats returns how long it takes until a heartbeat is answered.
func beats(t *testing.T, s driver.Session) time.Duration {
	t.Helper()
	began := time.Now()
	ample.Wait(t, "no heartbeat is answered", func() bool { return s.Beat(bounded(t, 5*time.Second)) == nil })
	return time.Since(began)
}

// beatsWithin waits until a heartbeat is answered, and checks how long this took.
func beatsWithin(t *testing.T, s driver.Session, most time.Duration, healthy *servers.Server) {
	t.Helper()
	g := besidePings(t, healthy)
	took := beats(t, s)
	t.Logf("a heartbeat after %v", took)
	g.AtMost("a heartbeat", took, most)
}

// newWays starts a cluster of three masters, each behind a proxy.
func newWays(t *testing.T) (*goredis.UniversalOptions, *servers.Cluster, map[string]*faultproxy.Proxy) {
	t.Helper()
	cluster := servers.NewCluster(t, servers.Redis, 3, nil)
	ways := make(map[string]*faultproxy.Proxy)
	for _, addr := range cluster.Addrs() {
		ways[addr] = passing(t, addr)
	}
	c := &goredis.UniversalOptions{Addrs: cluster.Addrs()}
	c.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, ways[addr].Addr())
	}
	return c, cluster, ways
}

// TestSlowNodes: a process starts even if all nodes of a cluster, or only the node with the
// namespace, take longer to answer than the patience for one node.
func TestSlowNodes(t *testing.T) {
	t.Parallel()
	c, cluster, ways := newWays(t)
	set := func(t *testing.T, f faultproxy.Faults, to ...string) {
		for _, addr := range to {
			if err := ways[addr].Set(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"Each", "Owner"} {
		t.Run(name, func(t *testing.T) {
			b := openOn(t, c, Options{AllowLoss: true})
			late := cluster.Addrs()
			if name == "Owner" {
				late = []string{(&deployment{servers: cluster.Members()}).masterOf(t, b).Addr()}
			}
			set(t, faultproxy.Faults{Replies: faultproxy.Flow{Latency: 300 * time.Millisecond}}, late...)
			defer set(t, faultproxy.Faults{}, late...)
			began := time.Now()
			openOn(t, c, Options{AllowLoss: true})
			t.Logf("opened after %v", time.Since(began))
		})
	}
}

// TestNodesFallSilent: a process's node was silent for the length of a call, and all other nodes
// are still silent. The process soon gets answers again.
func TestNodesFallSilent(t *testing.T) {
	t.Parallel()
	c, cluster, ways := newWays(t)
	own := (&deployment{servers: cluster.Members()}).masterOf(t, openOn(t, c, Options{AllowLoss: true})).Addr()
	others := slices.DeleteFunc(cluster.Addrs(), func(addr string) bool { return addr == own })
	c.Addrs = append([]string{own}, others...)
	b := openOn(t, c, Options{AllowLoss: true})
	s := sqlfault.Join(t, b, "n1")
	for _, addr := range others {
		if err := ways[addr].Set(faultproxy.BlackHole()); err != nil {
			t.Fatal(err)
		}
	}
	stall := func(hold bool) {
		if err := ways[own].Set(faultproxy.Faults{Replies: faultproxy.Flow{Hold: hold}}); err != nil {
			t.Fatal(err)
		}
	}
	stall(true)
	if err := s.Beat(bounded(t, 100*time.Millisecond)); err == nil {
		t.Error("a heartbeat is answered by a node that stands still")
	}
	d := b.store.clients.dialer
	ample.Wait(t, "the node is not left", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.node != own
	})
	stall(false)
	beatsWithin(t, s, 2*time.Second, cluster.Members()[0])
}

func cut(b *Backend) {
	d := b.store.clients.dialer
	d.mu.Lock()
	defer d.mu.Unlock()
	for line := range d.open {
		_ = line.Conn.Close()
	}
}

// TestSentinelFallsSilent: a process's Sentinel is stopped, or its host accepts no connections, and
// the connections to the server are cut. Another Sentinel soon names the server.
func TestSentinelFallsSilent(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]time.Duration{"StandsStill": 2 * time.Second, "Gone": 4 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, o, sentinels, master := newSentinelsAlone(t)
			c.Addrs = c.Addrs[:1] // the first one names the others
			var gone atomic.Bool
			c.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if addr == c.Addrs[0] && gone.Load() {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				var d net.Dialer
				return d.DialContext(ctx, network, addr)
			}
			b := openOn(t, c, o)
			s := sqlfault.Join(t, b, "n1")
			beats(t, s)
			standStill(t, sentinels.Members()[0])
			gone.Store(name == "Gone")
			cut(b)
			beatsWithin(t, s, bound, master)
		})
	}
}

// slow returns addresses that lead to servers. Their answers are late until heal is called.
func slow(t *testing.T, addrs []string, latency time.Duration) (through []string, heal func()) {
	t.Helper()
	var all []*faultproxy.Proxy
	set := func(d time.Duration) {
		for _, p := range all {
			if err := p.Set(faultproxy.Faults{Replies: faultproxy.Flow{Latency: d}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, addr := range addrs {
		p := passing(t, addr)
		all, through = append(all, p), append(through, p.Addr())
	}
	set(latency)
	return through, func() { set(0) }
}

// TestSlowSentinels: a process starts even if each Sentinel takes longer to answer than the initial
// patience. When the Sentinels are quick again, patience returns to its initial value.
func TestSlowSentinels(t *testing.T) {
	t.Parallel()
	c, o, _, _ := newSentinelsAlone(t)
	var heal func()
	c.Addrs, heal = slow(t, c.Addrs, 400*time.Millisecond)
	began := time.Now()
	b := openOn(t, c, o)
	opened := time.Since(began)
	s := sqlfault.Join(t, b, "n1")
	t.Logf("opened after %v, a heartbeat after %v", opened, beats(t, s))
	heal()
	cut(b)
	t.Logf("a heartbeat after %v once they are quick", beats(t, s))
	if got := time.Duration(b.store.clients.dialer.sentinels.patience.Load()); got != sentinelPatience {
		t.Errorf("quick Sentinels are waited for %v, want %v", got, sentinelPatience)
	}
}

// TestNodeOutsideItsCluster: the first address is a node that has lost its cluster and refuses
// commands, while the others serve.
func TestNodeOutsideItsCluster(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Redis, 3, nil)
	c := &goredis.UniversalOptions{Addrs: cluster.Addrs()}
	own := (&deployment{servers: cluster.Members()}).masterOf(t, openOn(t, c, Options{AllowLoss: true})).Addr()
	outside := slices.IndexFunc(c.Addrs, func(addr string) bool { return addr != own })
	admin := newAdmin(t, &goredis.UniversalOptions{Addrs: c.Addrs[outside : outside+1]})
	err := admin.Do(t.Context(), "CLUSTER", "DELSLOTSRANGE", 16384*outside/3, 16384*(outside+1)/3-1).Err() // the node's slots
	if err != nil {
		t.Fatal(err)
	}
	ample.Wait(t, "the node is still in its cluster", func() bool {
		info, err := admin.Do(t.Context(), "CLUSTER", "INFO").Text()
		return err == nil && strings.Contains(info, "cluster_state:fail")
	})
	c.Addrs[0], c.Addrs[outside] = c.Addrs[outside], c.Addrs[0]
	serves(t, c, Options{AllowLoss: true}, time.Second)
}

// TestPing tests which answers make an address a usable node.
func TestPing(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]string{
		"+PONG\r\n":                                 "",
		"-NOAUTH Authentication required.\r\n":      "",
		"-NOPERM this user has no permissions\r\n":  "",
		"-MASTERDOWN Link with MASTER is down\r\n":  "",
		"-ERR max number of clients reached\r\n":    "it refuses connections",
		"-DENIED Redis is running in protected\r\n": "it refuses connections",
		"-LOADING Redis is loading the dataset\r\n": "it refuses connections",
		"HTTP/1.1 400 Bad Request\r\n":              "this is no Redis",
		"+PONG\r\n+PONG\r\n":                        "this is no Redis",
		"\n":                                        "this is no Redis",
		"+" + strings.Repeat("x", 1<<20):            "EOF",
		"+PON":                                      "EOF",
	} {
		ours, theirs := net.Pipe()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := theirs.Read(make([]byte, 64)); err == nil {
				_, _ = theirs.Write([]byte(answer)) // as much as is read
			}
			_ = theirs.Close()
		})
		err := ping(t.Context(), ours)
		_ = ours.Close()
		all.Wait()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", answer, err, want)
		}
	}
}

// TestTLSAtSilentNode: the handshake with a silent address does not delay other connections. The
// server has no other nodes, and answers like a cluster with one node.
func TestTLSAtSilentNode(t *testing.T) {
	t.Parallel()
	server := servers.New(t, servers.Redis, &servers.Options{TLS: servers.TLSServer})
	c := config(t, server)
	c.Addrs = append([]string{mute(t)}, c.Addrs...)
	startsSoon(t, c, Options{AllowLoss: true}, server)
}
