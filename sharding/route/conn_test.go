//go:build unix

package route

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/sharding/assign"
)

type lateConn struct {
	*net.TCPConn
	late   *atomic.Bool
	gate   func() // opens the gate
	opened chan struct{}
	closed chan struct{} // by the client
	once   sync.Once
}

func (c *lateConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if err != nil && c.late.Load() {
		<-c.opened
	}
	return n, err
}

// Write lets the reader continue if a write reaches a peer that is gone.
func (c *lateConn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	if c.late.Load() {
		c.gate()
	}
	return n, err
}

func (c *lateConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.TCPConn.Close()
}

// TestClientIdleConnectionEnds: an owner restarts at its address while the client has an idle
// connection to the owner's former process. A request that is not idempotent is sent once, to the
// new process, although net/http does not repeat such requests.
func TestClientIdleConnectionEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		late bool // net/http reads the end of the connection only after the request
	}{{"unnoticed", true}, {"noticed as the request gets it", false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			got := map[string][]string{} // bodies by process
			serve := func(process, address string) (string, *http.Server) {
				var l net.Listener
				ample.Wait(t, "no process listens at "+address, func() (ok bool) {
					var err error
					l, err = net.Listen("tcp", address)
					return err == nil
				})
				s := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					mu.Lock()
					defer mu.Unlock()
					got[process] = append(got[process], string(body))
				})}
				go func() { _ = s.Serve(l) }()
				t.Cleanup(func() { _ = s.Close() })
				return l.Addr().String(), s
			}
			address, former := serve("former", "127.0.0.1:0")
			client, err := NewClient(&ClientOptions{Members: []string{"http://" + address + "/owners"}, Allow: func(*url.URL) bool { return true }})
			if err != nil {
				t.Fatal(err)
			}
			var late atomic.Bool
			opened := make(chan struct{})
			gate := sync.OnceFunc(func() { close(opened) })
			t.Cleanup(gate)
			conns := make(chan *lateConn, 100)
			transport := newTransport(counted(func(ctx context.Context, network, address string) (net.Conn, error) {
				got, err := new(net.Dialer).DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				l := &lateConn{TCPConn: got.(*net.TCPConn), late: &late, gate: gate, opened: opened, closed: make(chan struct{})}
				conns <- l
				return l, nil
			}))
			t.Cleanup(transport.CloseIdleConnections)
			client.base = transport
			if err := client.table.apply(&ownersJSON{Version: "A.1", Full: true,
				Keyspace: &keyspaceJSON{Name: "k", Hash: keyspace.HashMixed, Digits: 4},
				Members:  map[string]map[string]string{"a": {defaultAddressKey: "http://" + address}},
				Shards:   []ownedJSON{{Shard: "k-0000", Range: &assign.Range{}, Node: "a", Token: 1}}}, client.table.at); err != nil {
				t.Fatal(err)
			}
			do := func(ctx context.Context, body string) {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://orders/"+body, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := client.Do("x", r)
				if err != nil {
					t.Fatalf("request %s: %v", body, err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			do(t.Context(), "first")
			idle := <-conns
			restart := sync.OnceFunc(func() {
				_ = former.Close()
				serve("new", address)
			})
			ctx := t.Context()
			if c.late {
				late.Store(true)
				restart()
			} else {
				ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
					restart()
					<-idle.closed
				}})
			}
			do(ctx, "second")
			mu.Lock()
			defer mu.Unlock()
			if strings.Join(got["former"], " ") != "first" || strings.Join(got["new"], " ") != "second" {
				t.Errorf("the requests reached %v", got)
			}
		})
	}
}
