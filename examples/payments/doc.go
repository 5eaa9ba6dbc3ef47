// Command payments makes payments when they are due, through a provider that loses replies, while
// the leader is replaced.
//
//	go run ./payments
//
// Two members are in this process, and so is the provider, an HTTP server. Like most payment
// providers it charges once for each idempotency key. It hangs up instead of every third answer.
// The first leader is stopped in the middle, with payments under way. The second one continues with
// their keys. At its end the program compares the payments due with the provider's charges.
package main
