// Package route takes HTTP requests to the owner of their shard. A [Handler] serves a
// request here if this process owns its shard; else it forwards the request to the owner,
// or answers with the owner, and a client's [Transport] tries again there. Package
// routegrpc does the same for gRPC.
//
//	router, err := sharding.NewRouter(elector, keyspace)
//	h, err := route.NewHandler(elector, router, orders, &route.Options{
//		Shard:   func(r *http.Request) (string, error) { return keyspace.Shard(r.PathValue("order")), nil },
//		Forward: true,
//	})
//
// In orders, [FromContext] has the lease under which the request is served: what it
// commits is fenced.
//
// # Where the owner is
//
// A member tells its address in its metadata, core.Options.Meta or Elector.Update, under
// the key "http": "http://10.0.0.7:8080" or "https://orders-7.internal", without a path.
// It is checked before it is used: whoever may write to the namespace could name any
// address, and would get the requests of clients, with their credentials. A request is not
// forwarded to loopback, link-local, multicast and unspecified addresses, whatever their
// name, unless [Options].Allow allows the address; Allow narrows it to one's own network.
//
// # One hop
//
// A request that was forwarded says so in its header [Forwarded], and is never forwarded
// again: a member that does not own the shard, or not any more, answers with the owner.
// So two members with different views make no loop. A client that sets the header itself
// loses the forwarding, and nothing else.
//
// # Answers
//
//	421 Misdirected Request    another member owns the shard; the body is a Problem with its
//	                           node, address and token
//	503 Service Unavailable    nobody serves the shard at present, or the owner could not be
//	                           reached; see Retry-After
//	502 Bad Gateway            the request was forwarded, and its answer lost: it may have
//	                           been done
//	400 Bad Request            the request names no shard
//
// With 421 and 503 nothing was done. A token in an answer goes into logs and comparisons;
// it is no credential.
//
// # What it does not do
//
// It does not authenticate. A forwarded request carries the headers of its client, so the
// owner authenticates it again. The headers X-Forwarded-For, -Host and -Proto are those
// that the forwarding member has seen. A request that is served while its shard is handed
// over may find its commits refused; the handler of the shard decides for how long it waits
// for such requests.
package route
