// Package route chooses the server of each call, for backends of stores that have several servers
// (rule E4):
//
//	t := routes.Call(ctx)
//	reply, err := servers[t.Server].Do(t.Context, request)
//	t.Done(outcome)
//
// All calls go to one server, the current one, until it fails or falls silent.
//
// # Heartbeats find the server that is silent
//
// Core sends another heartbeat while one has no answer. [Routes.Beat] sends it to a server that
// owes no answer. The first server was asked earlier. If it is still silent when the second one
// answers, and has had several times as long, it is suspect. Another server becomes the current
// one. Calls in progress on the silent server end with [ErrSilent], and do not wait for their
// own time-outs. If a store stalls as a whole, no server becomes suspect, because its servers
// answer at about the same time.
//
// If a server refuses a call, or the call reaches its deadline, another server also becomes the
// current one. Then only watches end, because heartbeats that go elsewhere no longer check
// their server.
//
// # What it does not do
//
// The package starts no timer and no goroutine, and repeats no call. The caller gets the error,
// and its next call goes to another server.
package route
