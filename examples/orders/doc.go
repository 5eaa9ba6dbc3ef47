// Command orders takes orders over HTTP, on any number of machines. The members share the shards of
// the orders. A request is forwarded to the owner of its shard. Each member keeps a read model,
// which follows the logs of all shards.
//
//	go run ./orders -config orders/orders.yaml -listen 127.0.0.1:8080 -ops 127.0.0.1:8081
//	curl -X POST -d '{"customer": "c1", "cents": 1250}' http://127.0.0.1:8080/orders/a-1
//	curl 'http://127.0.0.1:8080/orders/a-1?within=2s'
//
// The board and the probes are at the address of -ops, which is for operators only.
//
// An order is one commit under the fence: its item, which makes a repeated request harmless, and
// its entry in the log. A member answers a read from its own model if the model is fresh enough for
// the request, and otherwise with 503.
//
// Each shard has the orders in one range of their ids' hashes. The program splits ranges with many
// requests, and merges idle ranges. An operator can do both by hand. Other orders continue while a
// range moves. The program refuses orders in that range with 503 until the new shard has it, and
// clients try again.
//
// The test splits and merges ranges, restarts the members in order, and kills one with SIGKILL, all
// under load. At the end, every read model must contain every acknowledged order exactly once.
package main
