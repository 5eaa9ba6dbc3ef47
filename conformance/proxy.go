package conformance

import "github.com/tenure-go/tenure/internal/proof/faultproxy"

// Proxy runs a TCP proxy in front of the server at address (host:port) until t ends. Proxy returns
// the proxy's address, and a Wire that controls the faults of all connections through the proxy.
// Use Proxy for [Store.OpenFaulty], for [Store.OpenSeveral] (one proxy for each server), and for
// the system suite's Cut. If the proxy cannot be started, t fails.
//
// The proxy does not parse the bytes that it forwards. TLS therefore passes through, Hold holds
// back every request, and Duplicate is nil. Hold holds back at most 4 MiB per connection. TCP never
// loses bytes in the middle of a stream, so a connection that lost bytes is reset when the fault
// ends. Cut resets the connections and refuses new ones.
func Proxy(t T, address string) (through string, wire *Wire) {
	t.Helper()
	p, wire := newProxy(t, address)
	return p.Addr(), wire
}

func newProxy(t T, address string) (*faultproxy.Proxy, *Wire) {
	t.Helper()
	p, err := faultproxy.New(address, nil)
	if err != nil {
		t.Fatalf("%v", err)
	}
	must := func(err error) {
		if err != nil {
			t.Errorf("%v", err)
		}
	}
	t.Cleanup(func() { must(p.Close()) })
	set := func(f faultproxy.Faults) func() func() {
		return func() func() {
			must(p.Set(f))
			return func() { must(p.Set(faultproxy.Faults{})) }
		}
	}
	return p, &Wire{
		DropRequests: set(faultproxy.Faults{Requests: faultproxy.Flow{Swallow: true}}),
		DropReplies:  set(faultproxy.Faults{Replies: faultproxy.Flow{Swallow: true}}),
		Hold:         set(faultproxy.Faults{Requests: faultproxy.Flow{Hold: true}}),
		Cut: func() func() {
			must(p.Refuse())
			p.Reset()
			return func() { must(p.Admit()) }
		},
	}
}
