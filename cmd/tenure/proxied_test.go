//go:build unix

package main

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// proxied is a store that the tool reaches directly, and also through a proxy that counts the
// requests.
type proxied struct {
	direct, through *place
	proxy           *faultproxy.Proxy
	counts          func(frame []byte) bool
}

// patient contains the options for a command that makes hundreds of requests through a proxy. On a
// busy machine, these requests take more than the 10 s limit of one call.
var patient = []string{"--timeout", (limit / 2).String()}

// newProxied writes the configurations of a store at addr. The function config returns the
// configuration for an address.
func newProxied(t *testing.T, kind servers.Kind, addr string, config func(addr string) string) *proxied {
	t.Helper()
	wire := wires[kind]
	proxy, err := faultproxy.New(addr, &faultproxy.Options{RequestFramer: wire.frame})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	counts := wire.counts
	if counts == nil {
		counts = func([]byte) bool { return true }
	}
	return &proxied{newPlace(t, config(addr)), newPlace(t, config(proxy.Addr())), proxy, counts}
}

// decide sets the function that decides about counted requests. If f is nil, all requests pass.
func (p *proxied) decide(t *testing.T, f func(n int) faultproxy.Verdict) {
	t.Helper()
	flow := faultproxy.Flow{}
	var mu sync.Mutex
	n := 0
	if f != nil {
		flow.Decide = func(frame []byte) faultproxy.Verdict {
			mu.Lock()
			defer mu.Unlock()
			if !p.counts(frame) {
				return faultproxy.Pass
			}
			n++
			return f(n)
		}
	}
	if err := p.proxy.Set(faultproxy.Faults{Requests: flow}); err != nil {
		t.Fatal(err)
	}
}

// requests runs a command to its end, and returns the number of its requests.
func (p *proxied) requests(t *testing.T, args ...string) (n int) {
	t.Helper()
	var last atomic.Int64
	p.decide(t, func(n int) faultproxy.Verdict {
		last.Store(int64(n))
		return faultproxy.Pass
	})
	p.through.run(exitOK, args...)
	p.decide(t, nil)
	return int(last.Load())
}

// wires defines how each store's bytes divide into frames, and which frames are requests. If the
// function for requests is nil, all frames are requests.
var wires = map[servers.Kind]struct {
	frame  faultproxy.Framer
	counts func(frame []byte) bool
}{
	servers.Postgres: {faultproxy.PostgresFrames, nil},
	servers.MariaDB:  {faultproxy.MySQLFrames, nil},
	servers.Etcd:     {http2Frame, func(frame []byte) bool { const data = 0; return frame[3] == data }},
	servers.Redis:    {redisFrame, nil},
}

// http2Frame is the Framer of the gRPC client's bytes, which are a preface followed by frames.
func http2Frame(b []byte) int {
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	if n := min(len(b), len(preface)); string(b[:n]) == preface[:n] {
		return len(preface)
	}
	if len(b) < 9 {
		return 0
	}
	return 9 + int(b[0])<<16 + int(b[1])<<8 + int(b[2])
}

// redisFrame is the Framer of Redis commands. A command is a list of strings, each with its length.
func redisFrame(b []byte) int {
	at, left := 0, 1
	for head := byte('*'); left > 0; head = '$' {
		end := bytes.Index(b[at:], []byte("\r\n"))
		if end < 0 {
			return 0
		}
		n, err := strconv.Atoi(strings.TrimPrefix(string(b[at:at+end]), string(head)))
		switch {
		case err != nil || n < 0 || b[at] != head:
			return -1
		case head == '*':
			at, left = at+end+2, n
		default:
			at, left = at+end+2+n+2, left-1
		}
		if at > len(b) {
			return 0
		}
	}
	return at
}

func TestRedisFrame(t *testing.T) {
	t.Parallel()
	const command = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
	for n := range len(command) {
		if got := redisFrame([]byte(command[:n])); got != 0 {
			t.Errorf("%q: got %d, want 0: it is not whole", command[:n], got)
		}
	}
	if got := redisFrame([]byte(command + "*1")); got != len(command) {
		t.Errorf("got %d, want %d", got, len(command))
	}
	if got := redisFrame([]byte("GET k\r\n")); got >= 0 {
		t.Errorf("got %d for what is no list", got)
	}
}

// inDatabase returns the configuration, at any address, of a backend with a database.
func inDatabase(backend string, dsn servers.DSN) func(addr string) string {
	return func(addr string) string {
		return fmt.Sprintf("%s: {dsn: %q, namespace: test}", backend, dsn.At(addr).Reveal())
	}
}
