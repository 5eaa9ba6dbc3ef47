// Package faultproxy provides a TCP proxy that tests put between a client and a real server. Like a
// bad network, the proxy can lose, delay, slow down or repeat bytes, and can cut connections with
// or without a reset.
//
// [New] listens on loopback and forwards to one server. [Proxy.Set] changes the faults of all
// connections, [Proxy.SetNew] changes the faults of new connections only, and [Conn.Set] changes
// the faults of one connection. The proxy does not parse bytes, so TLS passes through unchanged.
// With a [Framer] for the protocol, the proxy counts requests, and a [Flow.Decide] function can
// lose or repeat single requests. [Proxy.Stats] counts connections, bytes and frames. [Proxy.Wait]
// blocks until the counts meet the test's condition, so no test needs to sleep:
//
//	p.Set(faultproxy.Faults{Replies: faultproxy.Flow{Hold: true}})
//	go client.Commit(...)
//	p.Wait(ctx, func(s faultproxy.Stats) bool { return s.Replies.Held > 0 })
//	// The server has applied the commit and the client does not know yet.
//
// # Lost bytes
//
// Because TCP never loses bytes from the middle of a stream, a direction that has lost bytes stays
// silent. When the fault ends, the proxy resets the connection, like a firewall that has forgotten
// the connection. To delay bytes without loss, use Hold. When Hold ends, the proxy delivers all
// held bytes in order, even if the sender has closed its end.
//
// # What it does not do
//
// The proxy implements no protocol, does not terminate TLS, and does not forward UDP. The proxy
// delays and cuts streams, not packets. To lose packets that TCP then resends, use the kernel's
// tools.
package faultproxy
