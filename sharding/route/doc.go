// Package route takes HTTP requests to the owner of their shard. If this process owns the shard of
// a request, a [Handler] serves it. Otherwise, it forwards the request to the owner, or answers
// with the owner's address, where a client's [Transport] tries again. Package routegrpc does the
// same for gRPC. A [Client] needs no store: it keeps the map of owners that any member serves
// ([NewOwners]), and sends each request to the owner of its key.
//
//	router, err := sharding.NewRouter(elector, manager)
//	h, err := route.NewHandler(elector, router, orders, &route.Options{
//		Shard:   func(r *http.Request) (string, error) { return router.Shard(r.PathValue("order")) },
//		Forward: true,
//	})
//
// In orders, [FromContext] returns the lease under which the request is served. Commits under that
// lease are fenced.
//
// # Where the owner is
//
// A member publishes its address in its metadata (core.Options.Meta or Elector.Update) under the
// key "http": "http://10.0.0.7:8080" or "https://orders-7.internal", without a path. The address is
// checked before use. Otherwise, any writer of the namespace could name its own address, and would
// receive the requests and credentials of clients. By default, a Handler does not forward to
// loopback, link-local, multicast or unspecified addresses, or to addresses of its own machine,
// whatever the name. If members share a machine, [Options].Allow must allow their addresses. Allow
// can also limit forwarding to a private network.
//
// # One hop
//
// A forwarded request has the header [Forwarded], and is not forwarded again. A member that does
// not own the shard answers with the owner. So two members with different views make no loop. If a
// client sets the header itself, its requests are not forwarded. Nothing else changes.
//
// # Answers
//
//	421 Misdirected Request    another member owns the shard; the body is a problem document
//	                           with its node, address and token
//	503 Service Unavailable    the shard has no owner now, or the owner could not be
//	                           reached; see Retry-After
//	502 Bad Gateway            the request was forwarded, and its answer lost: it may have
//	                           been done
//	400 Bad Request            the request names no shard
//
// With 421 and 503, nothing was done. A token in an answer is for logs and comparisons, and is
// no credential.
//
// # Clients without a store
//
// A member serves the map of owners for clients that are not members:
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
// It computes the shard of a key itself, so that a request takes one hop. On 421, it checks the
// owner's address with Allow, sends the request there, and asks for the map. It tries again only if
// nothing was done. That is so after 421 and 503, after a failed connection, and after the owner
// closed an idle connection before the request was written. It never sends a request again if its
// answer was lost. After a 503, it also asks another member for the map. While no member answers,
// it uses the map that it has. Age returns the age of that map. The client sends requests only to
// addresses that Allow allows, and follows no redirects.
//
// For a restart without failed requests, a member stops in this order. Manager.Run returns once
// its shards are handed over. The member answers 421 for some seconds, until the clients know the
// new owners. It shuts its server down, and stops the Elector last. In a test, three members
// restart one by one under 1,000 requests a second. No request fails, and 99 % take one hop.
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
// A range is given as its first hash and the hash after its last. A shard without a node has no
// owner. A shard without a range has no keys. With ?after=VERSION&wait=10s, the answer waits for a
// change, for at most 30 s. If nothing has changed, the answer is 204. Otherwise, it has the
// shards that changed since that version, and "members" if the members changed. If the version is
// old, or from another process, the answer has the whole map, with "full": true. The version is
// also the ETag.
//
// [OwnersOptions].MaxWaiting limits the requests that wait; further requests get an answer
// immediately, with Retry-After. A member that is stopping, or has heard nothing from the store for
// a TTL, answers 503. Ask another member then. The header Tenure-News-Age is the number of seconds
// since it last heard from the store. The map names nodes, the addresses under
// OwnersOptions.AddressKeys, tokens and shards. The members' clients may know all this, since they
// also learn it from 421. Authorize keeps it from others. On loopback, wrap the handler in
// tenurehttp.CheckHost.
//
// # What it does not do
//
// It does not authenticate. A forwarded request carries the headers of its client, so the owner
// authenticates it again. The forwarding member sets X-Forwarded-For, -Host and -Proto to the
// values that it saw. Commits of a request that is served during a hand-over of its shard may be
// refused. The handler of the shard decides how long it waits for such requests.
package route
