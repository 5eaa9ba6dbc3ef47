// Package faultproxy is a TCP proxy for tests, between a client and a real server. It treats the
// bytes as a bad network does: it loses, delays, slows or repeats them, and cuts the connection
// with a reset or silently.
//
// [New] listens on loopback and forwards to one server. [Proxy.Set] changes the faults for open and
// new connections, [Proxy.SetNew] for new ones only, and [Conn.Set] for a single one. The proxy
// does not parse the bytes, so TLS passes through unchanged. With a [Framer] for the protocol it
// counts requests, and a [Flow.Decide] function can lose or repeat single ones. [Proxy.Stats]
// counts connections, bytes and frames, and [Proxy.Wait] blocks until the counts are as a test
// wants them, so that no test needs to sleep:
//
//	p.Set(faultproxy.Faults{Replies: faultproxy.Flow{Hold: true}})
//	go client.Commit(...)
//	p.Wait(ctx, func(s faultproxy.Stats) bool { return s.Replies.Held > 0 })
//	// The server has applied the commit and the client does not know yet.
//
// # Lost bytes
//
// TCP never loses bytes from the middle of a stream, so a direction that lost some stays silent.
// When the fault is lifted, the connection is reset, as by a firewall that forgot it. To delay
// without loss use Hold. When it is lifted, it delivers everything in order, even if the sender has
// closed its end.
//
// # What it does not do
//
// The proxy speaks no protocol, does not end TLS, and forwards no UDP. It delays and cuts streams,
// not packets. For loss that TCP repairs use the kernel's tools.
package faultproxy
