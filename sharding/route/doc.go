// Package route sends each HTTP request to the owner of the request's shard. If this process owns
// the shard, a [Handler] serves the request. If another member owns the shard, the Handler either
// forwards the request to the owner or answers with the owner's address. A client's [Transport]
// then sends the request to that address. Package routegrpc does the same for gRPC. A [Client]
// needs no store. A Client keeps a copy of the map of owners, which every member can serve
// ([NewOwners]), and sends each request to the owner of its key.
//
//	router, err := sharding.NewRouter(elector, manager)
//	h, err := route.NewHandler(elector, router, orders, &route.Options{
//		Shard:   func(r *http.Request) (string, error) { return router.Shard(r.PathValue("order")) },
//		Forward: true,
//	})
//
// In the application's handler (orders, in this example), [FromContext] returns the lease under
// which the request is served. Commits under this lease are fenced.
//
// # Where the owner is
//
// A member publishes its address in its metadata (core.Options.Meta or Elector.Update) under the
// key "http", without a path, for example "http://10.0.0.7:8080" or "https://orders-7.internal". A
// Handler checks an address before using it. Without this check, anyone who can write to the
// namespace could publish an address and receive clients' requests and credentials. By default, a
// Handler does not forward to its own machine, or to loopback, link-local, multicast or unspecified
// addresses. If members share a machine, [Options].Allow must allow their addresses. Allow can also
// limit forwarding to a private network.
//
// # One hop
//
// A forwarded request has the header Tenure-Forwarded, and is not forwarded again. A receiving
// member that does not own the shard answers with the owner's address. Therefore, two members whose
// views differ cannot forward a request in a loop. If a client sets the header, members do not
// forward its requests. The header Tenure-Forwarded has no other effect.
//
// # Answers
//
//	421 Misdirected Request    owner: another member owns the shard; the document has its
//	                           node, address and token
//	503 Service Unavailable    unowned; or unreachable: the member could not connect to the
//	                           owner; see Retry-After
//	502 Bad Gateway            lost: the request was forwarded, but its answer was lost, so
//	                           the request may have been done
//	400 Bad Request            invalid: the request names no shard
//
// Each body is a problem document (RFC 9457). Its type is "urn:tenure:route:" followed by one of
// the words above, such as "owner". After a 421 or 503, the request had no effect. A token in an
// answer is for logs and comparisons. It is not a credential.
//
// # Clients without a store
//
// A member serves the map of owners for clients that are not members:
//
//	owners, err := route.NewOwners(elector, router, nil)
//	mux.Handle("/owners", owners)
//
// A client requests the map from any of the members that it knows, and keeps a copy of the map:
//
//	c, err := route.NewClient(&route.ClientOptions{Members: []string{"http://10.0.0.7:8080/owners", "http://10.0.0.8:8080/owners"}})
//	go c.Run(ctx) // join it
//	resp, err := c.Do(orderID, req)
//
// The client computes a key's shard, so a request takes one hop. After a 421, the client checks the
// owner's address with Allow, sends the request to that address, and requests the map again. The
// client tries again only if the request was not carried out (see [Client.Do]), and never repeats a
// request whose answer was lost. After a 503, the client also requests the map from another member.
// While no member answers, the client keeps using its copy of the map (see Age). The client sends
// requests only to addresses that Allow allows, and follows no redirects.
//
// So that no request fails during a restart, a member must stop in this order. First, Manager.Run
// hands the member's shards over and returns. Then, the member answers 421 for a few seconds, until
// the clients know the new owners. Finally, the member shuts down its server and then stops the
// Elector. In a test, three members restart one after another while clients send 1,000 requests a
// second. No request fails, and 99 % of the requests take one hop.
//
// # The map of owners
//
// A GET request returns the map as JSON. The map takes at most 24 MiB, and is compressed if the
// client accepts gzip:
//
//	{"version": "K3JQ.17", "full": true, "number": 4,
//	 "keyspace": {"name": "orders", "hash": "fnv1a-mixed", "digits": 4},
//	 "members": {"a": {"http": "http://10.0.0.7:8080"}},
//	 "shards": [{"shard": "orders-0000", "range": ["0x0000000000000000", "0x10000000000000000"], "node": "a", "token": 7}]}
//
// A "range" consists of its first hash and the hash after its last hash. A shard without "node" has
// no owner, and a shard without "range" has no keys. If a request has ?after=VERSION&wait=10s, the
// member waits up to 10 s for a change before it answers. The longest wait is 30 s. If nothing has
// changed, the answer is 204. If the map has changed, the answer contains the shards that changed
// since that version, and "members" if the members changed. If the version is old, or was issued by
// another process, the answer contains the whole map, with "full": true. The version is also the
// ETag.
//
// [OwnersOptions].MaxWaiting is the maximum number of requests that wait. A member answers further
// requests immediately, with Retry-After. A member that is stopping, or has not heard from the
// store for a TTL, answers 503. Clients then request the map from another member. The header
// Tenure-News-Age is the number of seconds since the member last heard from the store. The map
// contains nodes, their addresses under OwnersOptions.AddressKeys, tokens and shards. The members'
// clients may know all of these values, because a 421 reveals them too. To withhold the map from
// other callers, set Authorize. On loopback, wrap the handler in tenurehttp.CheckHost.
//
// # What it does not do
//
// Package route does not authenticate clients. A forwarded request carries its client's headers, so
// that the owner can authenticate the client again. The forwarding member sets X-Forwarded-For,
// X-Forwarded-Host and X-Forwarded-Proto to the values that it saw. If a shard is handed over while
// it serves a request, the request's commits may be refused. The shard's handler decides how long
// to wait for such requests before it returns.
package route
