// Command orders takes orders over HTTP, on any number of machines. The members share the shards of
// the orders. A request is forwarded to the owner of its shard. Each member keeps a read model,
// which follows the logs of all shards.
//
//	go run ./orders -config orders/orders.yaml -listen 127.0.0.1:8080 -ops 127.0.0.1:8081
//	curl -X POST -d '{"customer": "c1", "cents": 1250}' http://127.0.0.1:8080/orders/a-1
//	curl 'http://127.0.0.1:8080/orders/a-1?within=2s'
//
// The board and the probes are on the port of -ops, for operators only.
//
// An order is one commit under the fence: its item, which makes a repeated request harmless, and
// its entry in the log. A member answers a read from its own model if the model is fresh enough for
// the request, and otherwise with 503.
//
// The shards divide the orders by ranges of their ids' hashes. Ranges with many requests are split,
// and idle ones merged; an operator may do both. Orders continue while this happens. An order whose
// range moves is refused with 503 until the new shard has it, and the client tries again.
//
// The test splits and merges ranges, restarts the members in order, and kills one by SIGKILL, all
// under load. At its end every acknowledged order is in every read model, once.
package main
