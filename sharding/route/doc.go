// Package route sends HTTP requests to the owner of their shard. If this process owns the shard of
// a request, a [Handler] serves the request. Otherwise, the Handler forwards it to the owner, or
// answers with the owner's address, and a client's [Transport] tries again there. Package routegrpc
// does the same for gRPC. A [Client] needs no store. It keeps a copy of the map of owners, which
// every member can serve ([NewOwners]), and sends each request to the owner of the request's key.
//
//	router, err := sharding.NewRouter(elector, manager)
//	h, err := route.NewHandler(elector, router, orders, &route.Options{
//		Shard:   func(r *http.Request) (string, error) { return router.Shard(r.PathValue("order")) },
//		Forward: true,
//	})
//
// In the handler orders, [FromContext] returns the lease under which the request is served. Commits
// under that lease are fenced.
//
// # Where the owner is
//
// A member publishes its address in its metadata (core.Options.Meta or Elector.Update) under the
// key "http", without a path, for example "http://10.0.0.7:8080" or "https://orders-7.internal".
// The address is checked before use. Without this check, any writer of the namespace could publish
// an address of its choice, and would receive the requests and credentials of clients. By default,
// a Handler does not forward to its own machine, or to loopback, link-local, multicast or
// unspecified addresses. If members share a machine, [Options].Allow must allow their addresses.
// Allow can also limit forwarding to a private network.
//
// # One hop
//
// A forwarded request has the header Tenure-Forwarded, and is not forwarded again. A member that
// does not own the shard answers with the owner. Two members with different views therefore make no
// loop. If a client sets the header itself, its requests are not forwarded, but nothing else
// changes.
//
// # Answers
//
//	421 Misdirected Request    owner: another member owns the shard; the document has its
//	                           node, address and token
//	503 Service Unavailable    unowned, or unreachable: the owner could not be connected
//	                           to; see Retry-After
//	502 Bad Gateway            lost: the request was forwarded, and its answer lost; it may
//	                           have been done
//	400 Bad Request            invalid: the request names no shard
//
// The body is a problem document (RFC 9457). Its type is the word above after "urn:tenure:route:".
// With 421 and 503, nothing was done. A token in an answer is for logs and comparisons. It is not a
// credential.
//
// # Clients without a store
//
// A member serves the map of owners for clients that are not members:
//
//	owners, err := route.NewOwners(elector, router, nil)
//	mux.Handle("/owners", owners)
//
// A client keeps a copy of that map, and requests it from any of the members that it knows:
//
//	c, err := route.NewClient(&route.ClientOptions{Members: []string{"http://10.0.0.7:8080/owners", "http://10.0.0.8:8080/owners"}})
//	go c.Run(ctx) // join it
//	resp, err := c.Do(orderID, req)
//
// The client computes the shard of a key itself, so that a request takes one hop. After a 421, the
// client checks the owner's address with Allow, sends the request there, and requests the map
// again. The client tries again only if nothing was done (see [Client.Do]), and never sends a
// request again if its answer was lost. After a 503, it also requests the map from another member.
// While no member answers, the client uses the map that it has; Age returns the age of that map.
// The client sends requests only to addresses that Allow allows, and follows no redirects.
//
// To restart without failed requests, a member stops in this order. First, Manager.Run hands the
// member's shards over and returns. Then, the member answers 421 for some seconds, until the
// clients know the new owners. Finally, the member shuts its server down, and then stops the
// Elector. In a test, three members restart one by one under 1,000 requests a second. No request
// fails, and 99 % take one hop.
//
// # The map of owners
//
// GET answers with the map as JSON, at most 24 MiB, compressed if the client accepts gzip:
//
//	{"version": "K3JQ.17", "full": true, "number": 4,
//	 "keyspace": {"name": "orders", "hash": "fnv1a-mixed", "digits": 4},
//	 "members": {"a": {"http": "http://10.0.0.7:8080"}},
//	 "shards": [{"shard": "orders-0000", "range": ["0x0000000000000000", "0x10000000000000000"], "node": "a", "token": 7}]}
//
// A range consists of its first hash and the hash after its last. A shard without a node has no
// owner. A shard without a range has no keys. With ?after=VERSION&wait=10s, the answer waits for a
// change, for at most 30 s. If nothing has changed, the answer is 204. Otherwise, it contains the
// shards that changed since that version, and "members" if the members changed. If the version is
// old, or comes from another process, the answer contains the whole map, with "full": true. The
// version is also the ETag.
//
// [OwnersOptions].MaxWaiting limits how many requests wait. Further requests get an answer
// immediately, with Retry-After. If a member is stopping, or has heard nothing from the store for a
// TTL, it answers 503, and clients ask another member. The header Tenure-News-Age is the number of
// seconds since the member last heard from the store. The map contains nodes, their addresses under
// OwnersOptions.AddressKeys, tokens and shards. Clients of the members may know all this, because a
// 421 reveals the same facts. To withhold the map from others, set Authorize. On loopback, wrap the
// handler in tenurehttp.CheckHost.
//
// # What it does not do
//
// Package route does not authenticate clients. A forwarded request carries the headers of its
// client, so that the owner can authenticate the client again. The forwarding member sets
// X-Forwarded-For, X-Forwarded-Host and X-Forwarded-Proto to the values that it saw. If a request
// is served during a hand-over of its shard, its commits may be refused. The handler of the shard
// decides how long it waits for such requests.
package route
