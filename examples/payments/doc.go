// Command payments makes payments when they are due, through a provider that loses replies,
// while the leader is replaced.
//
//	go run ./payments
//
// Two members are in this process, and so is the provider, an HTTP server. It charges once for
// each idempotency key, as most providers of payments do, and hangs up instead of every third
// answer. The first leader is stopped in the middle, with payments under way; the second one
// goes on with their keys. At its end the program compares what was to be paid with what the
// provider charged.
package main
