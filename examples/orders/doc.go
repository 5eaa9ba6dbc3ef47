// Command orders takes orders over HTTP, on any number of machines. The members divide the shards
// among themselves. A member forwards each request to the owner of the request's shard. Each member
// keeps a read model that follows the logs of all shards.
//
//	go run ./orders -config orders/orders.yaml -listen 127.0.0.1:8080 -ops 127.0.0.1:8081
//	curl -X POST -d '{"customer": "c1", "cents": 1250}' http://127.0.0.1:8080/orders/a-1
//	curl 'http://127.0.0.1:8080/orders/a-1?within=2s'
//
// The board and the probes are at the -ops address, which is only for operators.
//
// The owner writes each order as an item and a log entry, in one commit under the fence. The item
// makes a repeated request harmless. A member answers reads from its read model. If the model is
// not fresh enough for a request, the member answers with 503.
//
// Each shard contains the orders whose ids hash into one range. Ranges with many requests are
// split, and idle ranges are merged. Operators can also split and merge ranges manually. While a
// range moves, orders in other ranges are still accepted. Orders in the moving range are rejected
// with 503, and clients retry until the new shard has the range.
//
// Under load, the test splits and merges ranges, restarts the members in turn, and kills a member
// with SIGKILL. Finally, every read model must contain each acknowledged order exactly once.
package main
