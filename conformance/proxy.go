package conformance

import "github.com/tenure-go/tenure/internal/proof/faultproxy"

// Proxy puts a TCP proxy before the server at address, host:port, until t ends. It
// returns the address to connect to instead, and the faults of all connections through
// it: for [Store.OpenFaulty] and [Store.OpenSeveral], each with its own proxy, and
// for the Cut of the system suite. t fails if the proxy cannot be had.
//
// The proxy does not parse the bytes, so TLS passes through. Therefore Hold keeps every
// request, at most 4 MiB of each connection, and Duplicate is nil. A connection that
// lost bytes is reset when the fault ends, since TCP loses none in the middle of a
// stream. Cut resets the connections and has new ones refused.
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
