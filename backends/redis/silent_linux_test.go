package redis

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// full returns an address whose connection queue is full. The kernel accepts no more connections,
// as if the host were gone.
func full(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = syscall.Listen(int(fd), 0) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	d := net.Dialer{Timeout: 300 * time.Millisecond}
	for range 10 {
		conn, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
			return l.Addr().String()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the kernel goes on to accept connections")
	return ""
}

// TestStartAtSilentNode: a process that starts while a cluster's first address is silent soon
// serves, whether or not that address accepts connections.
func TestStartAtSilentNode(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Redis, 3, nil)
	for name, silent := range map[string]string{"Accepts": mute(t), "NeverAccepts": full(t)} {
		t.Run(name, func(t *testing.T) {
			c := &goredis.UniversalOptions{Addrs: append([]string{silent}, cluster.Addrs()...)}
			startsSoon(t, c, Options{AllowLoss: true}, cluster.Members()[0])
		})
	}
}

// TestNodeIsGone: the host of the namespace's node, which another node named, accepts no
// connections. The process soon gets answers again.
func TestNodeIsGone(t *testing.T) {
	t.Parallel()
	cluster := servers.NewCluster(t, servers.Redis, 3, nil)
	b := openOn(t, &goredis.UniversalOptions{Addrs: cluster.Addrs()}, Options{AllowLoss: true})
	s := sqlfault.Join(t, b, "n1")
	beats(t, s)
	cut(b)
	d := b.store.clients.dialer
	d.mu.Lock()
	d.node, d.known = full(t), true
	d.mu.Unlock()
	beatsWithin(t, s, 4*time.Second, cluster.Members()[0])
}
