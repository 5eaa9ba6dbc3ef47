// Package route chooses, for backends of stores that have several servers, the
// server of each call (rule E4):
//
//	t := routes.Call(ctx)
//	reply, err := servers[t.Server].Do(t.Context, request)
//	t.Done(outcome)
//
// All calls go to one server, the current one, until it fails or falls silent.
//
// # Heartbeats find the server that is silent
//
// Core sends another heartbeat while one has no answer. [Routes.Beat] takes it to a
// server that owes no answer. When that one answers while the other server, which
// was asked earlier, has had several times as long and is still silent, that server
// is suspect: another server becomes the current one, and the calls under way on the
// silent server end with [ErrSilent]. So nothing waits for its own time-out there.
// A store that stalls as a whole makes no server suspect: its servers answer at
// about the same time.
//
// A call that a server refuses, or that ends by its deadline, makes another server
// the current one as well; then only watches end, because a watch is no longer
// checked by heartbeats when they go elsewhere.
//
// # What it does not do
//
// It starts no timer and no goroutine, and repeats no call: the caller gets the
// error, and its next call goes to another server.
package route
