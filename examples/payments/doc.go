// Command payments makes payments when they are due, through a provider that loses replies, while
// the leader is replaced.
//
//	go run ./payments
//
// This process runs two members and the provider, an HTTP server. Like most payment providers, it
// charges once for each idempotency key. Every third time, it hangs up instead of answering. The
// first leader is stopped while payments are under way, and the second continues them with the same
// keys. At the end, the program compares the payments due with the provider's charges.
package main
