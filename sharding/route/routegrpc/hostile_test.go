package routegrpc_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding/route/routegrpc"
)

func counted(t *testing.T, network, address string) (l net.Listener, connected *atomic.Int64) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	connected = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connected.Add(1)
			_ = c.Close() // the listener only counts connections
		}
	}()
	return l, connected
}

// TestForwardsToNoLocalAddress: a member advertises an address of the forwarding host, or a name
// that resolves to such an address. A call's metadata is not sent to that address, and no
// connection is made.
func TestForwardsToNoLocalAddress(t *testing.T) {
	l, connected := counted(t, "tcp", ":0")
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	guarded, err := routegrpc.NewPeers(nil, plaintext())
	if err != nil {
		t.Fatal(err)
	}
	defer guarded.Close()
	store := memory.New()
	hosts := []string{"127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "localhost", "LOCALHOST."}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if ip := a.(*net.IPNet).IP; !ip.IsLinkLocalUnicast() {
			host, _, _ := strings.Cut(net.JoinHostPort(ip.String(), "\x00"), ":\x00")
			hosts = append(hosts, host)
		}
	}
	for name, peers := range map[string]*routegrpc.Peers{"guarded": guarded, "open": newPeers(t)} {
		a, b := start(t, store, name+"-a", nil), start(t, store, name+"-b", peers)
		a.own(name, b)
		for _, host := range hosts {
			if name == "open" && !strings.HasPrefix(strings.ToLower(host), "localhost") {
				continue
			}
			address := host + ":" + port
			if err := a.Update(t.Context(), func(s *core.MemberState) { s.Meta["grpc"] = address }); err != nil {
				t.Fatal(err)
			}
			b.knows(name, a, address)
			if err := b.check(name, nil); err == nil {
				t.Errorf("%s, %s: the call was answered", name, address)
			}
		}
	}
	if n := connected.Load(); n != 0 {
		t.Errorf("%d connections to a local address", n)
	}
}

// TestSchemes: text that gRPC would interpret as a scheme, and thus as a file or another kind of
// address, is refused. A connection is always made to a host and a port.
func TestSchemes(t *testing.T) {
	t.Chdir(t.TempDir())
	_, connected := counted(t, "unix", "443") // as unix:443 names it
	p := newPeers(t)
	for _, a := range []string{"unix:443", "UNIX:443", "unix-abstract:443", "passthrough:443", "dns:443", "dns://1.2.3.4/h:443", "unix:///tmp/x:1",
		"unix://443:1", "passthrough:///127.0.0.1:1", "xds:///h:1"} {
		if err := routegrpc.CheckAddress(a); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", a, err)
		}
		if _, err := routegrpc.Take(p, a); !errors.Is(err, core.ErrInvalid) {
			t.Errorf("%q is taken: %v", a, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	conn, err := routegrpc.Dial(p, "unix:443")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err == nil {
		t.Error("a call to unix:443 was answered")
	}
	if n := connected.Load(); n != 0 {
		t.Errorf("%d connections to a socket in the file system", n)
	}
}
