// Command orders takes orders over HTTP, on any number of machines: the shards of the
// orders are shared among the members, a request is forwarded to the owner of its shard,
// and each member keeps a read model, which it follows from the logs of all shards.
//
//	go run ./orders -config orders/orders.yaml -listen 127.0.0.1:8080 -ops 127.0.0.1:8081
//	curl -X POST -d '{"customer": "c1", "cents": 1250}' http://127.0.0.1:8080/orders/a-1
//	curl 'http://127.0.0.1:8080/orders/a-1?within=2s'
//
// The board and the probes are on the port of -ops, for operators only.
//
// What an order needs is one commit under the fence: its item, which makes a repeated
// request harmless, and its entry in the log. A read is answered from the member's own
// model, if that is no older than the request allows, else with 503.
//
// The shards divide the orders by ranges of their ids' hashes. Ranges with many requests are
// split, idle ones merged, and an operator may do both. Orders go on meanwhile: those that move
// are refused with 503 until their new shard has them, and clients try again.
//
// The test splits and merges ranges, restarts the members in order, and kills one by SIGKILL,
// all under load: every acknowledged order is in every read model, once.
package main
