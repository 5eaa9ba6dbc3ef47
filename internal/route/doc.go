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
// While a heartbeat has no answer, core sends another. [Routes.Beat] sends that one to a server
// from which no answer is pending. A server becomes suspect if it is still silent when the second
// server answers, although it has had several times as long to answer. Another server then becomes
// the current one. Calls in progress on the silent server end with [ErrSilent], instead of waiting
// for their own time-outs. If the whole store stalls, no server becomes suspect, because all
// servers answer at about the same time.
//
// If a server refuses a call, or the call reaches its deadline, another server also becomes the
// current one. In this case, only watches on the old server end, because heartbeats no longer check
// that server.
//
// # What it does not do
//
// The package starts no timer and no goroutine, and repeats no call. The caller gets the error,
// and its next call goes to another server.
package route
