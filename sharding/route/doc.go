// Package route takes HTTP requests to the owner of their shard. A [Handler] serves a
// request here if this process owns its shard; else it forwards the request to the owner,
// or answers with the owner, and a client's [Transport] tries again there. Package
// routegrpc does the same for gRPC. A [Client] needs no store: it keeps the map of owners that any
// member serves ([NewOwners]), and sends each request to the owner of its key.
//
//	router, err := sharding.NewRouter(elector, manager)
//	h, err := route.NewHandler(elector, router, orders, &route.Options{
//		Shard:   func(r *http.Request) (string, error) { return router.Shard(r.PathValue("order")) },
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
// # Clients without a store
//
// A member serves the map of owners, for clients that are no members:
//
//	owners, err := route.NewOwners(elector, router, nil)
//	mux.Handle("/owners", owners)
//
// A client keeps that map, and asks any of the members that it knows:
//
//	c, err := route.NewClient(&route.ClientOptions{Members: []string{"http://10.0.0.7:8080/owners", "http://10.0.0.8:8080/owners"}})
//	go c.Run(ctx) // join it
//	resp, err := c.Do(orderID, req)
//
// It computes the shard of a key itself, so that a request takes one hop. On 421 it follows the
// answer, once the address is allowed, and asks for the map. Where nothing was done, it tries
// again: after 421 and 503, and where the owner could not be connected to, or had closed an idle
// connection before the request was written. A request whose answer is lost is never sent again. After a 503, too, it asks another member for the map.
// While no member answers, it goes on with the map that it has. Age returns how old its news are. Its requests go to the owners' addresses that Allow allows, and redirects are
// not followed.
//
// For a restart without failed requests a member leaves in this order: Manager.Run returns once
// its shards are handed over; the member then answers 421 for some seconds, until the clients know
// the new owners; then it shuts its server down, and stops the Elector last. In a test with three
// members that restart one by one under 1,000 requests a second no request fails, and 99 % take one
// hop.
//
// # The map of owners
//
// GET answers with the map as JSON, in 64 MiB at most, and packed if the client takes gzip:
//
//	{"version": "K3JQ.17", "full": true, "number": 4,
//	 "keyspace": {"name": "orders", "hash": "fnv1a-mixed", "digits": 4},
//	 "members": {"a": {"http": "http://10.0.0.7:8080"}},
//	 "shards": [{"shard": "orders-0000", "range": ["0x0000000000000000", "0x10000000000000000"], "node": "a", "token": 7}]}
//
// A range has its first hash and the first one after it. A shard without a node has no owner; one
// without a range has no keys. With ?after=VERSION&wait=10s the answer waits until something
// changed, 30 s at most, and is 204 if nothing has. Otherwise it has the shards that changed since
// that version, and "members" if these did. It has all, with "full": true, where the version is not
// known: it is another process's, or old. The ETag is the version, too.
//
// Requests that wait are bounded by [OwnersOptions].MaxWaiting; further ones are answered at once,
// with Retry-After. A member that stops, or had no news from the store for a TTL, answers 503: ask
// another one. The header Tenure-News-Age has the seconds since those news. The map names nodes, the addresses under OwnersOptions.AddressKeys, tokens and the names of
// shards. It is no secret to the members' clients, who learn it from 421, too; Authorize keeps it
// from others. On loopback wrap it in tenurehttp.CheckHost.
//
// # What it does not do
//
// It does not authenticate. A forwarded request carries the headers of its client, so the
// owner authenticates it again. The headers X-Forwarded-For, -Host and -Proto are those
// that the forwarding member has seen. A request that is served while its shard is handed
// over may find its commits refused; the handler of the shard decides for how long it waits
// for such requests.
package route
