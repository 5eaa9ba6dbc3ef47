package route_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding/route"
)

// tell makes the owner advertise an address, and waits until the other member knows the address.
func (m *member) tell(address string, other *member) {
	m.t.Helper()
	if err := m.Update(m.t.Context(), func(s *core.MemberState) { s.Meta["http"] = address }); err != nil {
		m.t.Fatal(err)
	}
	await(m.t, "the new address", func() bool { x, _ := other.View().Member(m.View().Session); return x.Meta["http"] == address })
	time.Sleep(10 * time.Millisecond) // a Router's view may be 5 ms old
}

// victim listens on all addresses of this machine, and counts connections.
func victim(t *testing.T) (port string, connected *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	connected = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connected.Add(1)
			_ = c.Close() // the victim only counts connections
		}
	}()
	if _, port, err = net.SplitHostPort(l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	return port, connected
}

// TestForwardsToNoLocalAddress: a member advertises an address of the forwarding host, or a name
// that resolves to such an address. No connection is made, so the client's credentials are not sent
// there, and the answer names the owner.
func TestForwardsToNoLocalAddress(t *testing.T) {
	port, connected := victim(t)
	store := memory.New()
	a := start(t, store, "a", nil, nil)
	b := start(t, store, "b", nil, func(o *route.Options) { o.Forward = true })
	named := start(t, store, "c", nil, forward) // allows everything
	a.own("s", b, named)
	hosts := []string{"127.0.0.1", "127.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "localhost", "LOCALHOST", "localhost."}
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
	for _, host := range hosts {
		for _, m := range []*member{b, named} {
			if m == named && !strings.HasPrefix(strings.ToLower(host), "localhost") {
				continue
			}
			address := "http://" + host + ":" + port
			a.tell(address, m)
			code, _, p, _ := do(t, http.DefaultClient, "GET", m.server.URL+"/s", "", "Authorization", "Bearer secret", "Cookie", "secret=1")
			// Some of these names resolve to nothing on some machines.
			if p == nil || code != 421 && p.Type != "urn:tenure:route:unreachable" {
				t.Errorf("%s: answered %d %+v, want 421", address, code, p)
			}
		}
	}
	if n := connected.Load(); n != 0 {
		t.Errorf("%d connections to a local address", n)
	}
}

// TestAsksNoProxy: forwarded requests bypass the environment's proxy. A process reads the
// environment's proxy settings only once, so the test runs in a separate process.
func TestAsksNoProxy(t *testing.T) {
	const owner = "http://192.0.2.1:9" // an address for documentation, which no machine has
	if os.Getenv("TENURE_TEST_PROXIED") != "" {
		store := memory.New()
		a, b := start(t, store, "a", nil, nil), start(t, store, "b", nil, forward)
		a.own("s", b)
		a.tell(owner, b)
		for _, url := range []string{owner, b.server.URL + "/s"} { // the first URL shows that the proxy is otherwise used
			c := &http.Client{Timeout: 2 * time.Second}
			if resp, err := c.Get(url); err == nil {
				_ = resp.Body.Close() // whatever the answer is
			}
		}
		return
	}
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer proxy.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAsksNoProxy$")
	cmd.Env = append(os.Environ(), "TENURE_TEST_PROXIED=1", "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the proxy was asked %d times, want once, by a client that asks it", n)
	}
}
