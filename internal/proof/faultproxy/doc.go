// Package faultproxy is a TCP proxy for tests that stands between a client and a
// real server and treats the bytes as a bad network does: loses them, holds them
// and delivers them late, slows them down, repeats them, cuts the connection with a
// reset or silently.
//
// [New] listens on loopback and forwards to one server. [Proxy.Set] changes the
// faults, for open and new connections or, with [Proxy.SetNew], for new ones only;
// a [Conn] can be treated by itself. The proxy does not parse the bytes, so TLS
// passes through untouched; with a [Framer] for the protocol it counts requests,
// and a [Flow.Decide] function can lose or repeat single ones. [Proxy.Stats] counts
// connections, bytes and frames, and [Proxy.Wait] blocks until the counts are as a
// test wants them, so that no test needs to sleep:
//
//	p.Set(faultproxy.Faults{Replies: faultproxy.Flow{Hold: true}})
//	go client.Commit(...)
//	p.Wait(ctx, func(s faultproxy.Stats) bool { return s.Replies.Held > 0 })
//	// The server has applied the commit and the client does not know yet.
//
// # Lost bytes
//
// TCP never loses bytes from the middle of a stream, so a connection that lost
// some is never joined together again: the direction stays silent, and when the
// fault is lifted the connection is reset, as by a firewall that forgot it. To
// delay without loss use Hold, which delivers everything in order when lifted,
// also when the sender has long closed its end.
//
// # What it does not do
//
// It does not speak any protocol, does not end TLS, and carries no UDP. It delays
// and cuts streams, not packets: for loss that TCP repairs by itself use the
// kernel's tools.
package faultproxy
