// Package route chooses a server for each call by a backend whose store has several servers (rule
// E4):
//
//	t := routes.Call(ctx)
//	reply, err := servers[t.Server].Do(t.Context, request)
//	t.Done(outcome)
//
// All calls go to the current server until that server fails or stops answering.
//
// # Heartbeats detect a silent server
//
// While a heartbeat is unanswered, core sends another heartbeat, and [Routes.Beat] chooses a
// different server for the new heartbeat. The first server becomes suspect after it has been silent
// for several times the round trip of the second server. A different server then becomes the
// current server. Calls in progress on the suspect server end with [ErrSilent] instead of waiting
// for their time-outs. If the whole store stalls, no server becomes suspect, because all servers
// then answer at about the same time.
//
// A different server also becomes the current server if the current server refuses a call, or if a
// call reaches its deadline. The package then ends only the watches on the old server, because
// heartbeats no longer check that server.
//
// # What it does not do
//
// The package starts no timers or goroutines, and never retries a call. The caller gets the error,
// and the caller's next call goes to another server.
package route
