// Command payments makes payments when they are due, although the provider loses replies and the
// leader is replaced during the run.
//
//	go run ./payments
//
// The process runs two members and an HTTP server as the provider. Like most payment providers,
// this provider charges once for each idempotency key. On every third request, it closes the
// connection instead of answering. The program stops the first leader while payments are in
// progress, and the second leader finishes them with the same keys. Finally, the program compares
// the due payments with the provider's charges.
package main
