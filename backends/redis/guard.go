package redis

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// GuardScript returns a script that runs the application's script body behind a fence (rule F1).
// The body runs only if the lease is current, and the check and the body are one atomic step on the
// server. KEYS and ARGV begin with the application's own keys and arguments, and end with one key
// and six arguments from [Backend.Guard]. In a cluster, the application's keys must be in the
// namespace's slot: "{orders}/paid/42" is in the slot of the namespace "orders". If the lease is
// not current, the script returns an error that [Fenced] recognizes. If the body begins with a line
// "#!lua", GuardScript returns an error that matches driver.ErrInvalid.
//
//	script, err := redis.GuardScript(`return redis.call('SET', KEYS[1], ARGV[1])`)
//	...
//	keys, args := b.Guard(lease.Fence(), []string{"{orders}/paid/42"}, "yes")
//	err = script.Run(ctx, client, keys, args...).Err()
//
// Disable the client's retries. After an error that Fenced does not recognize, the outcome may be
// unknown, so read the keys before you send the script again.
//
// If [Options.Replicas] is set, send WAIT for that many replicas after the script, on the same
// connection. Consider the script done only if that many replicas answer. A master that was cut off
// still runs scripts until min-replicas-max-lag has passed. By that time, a successor's script may
// already run on the replica that took over. All effects of scripts on the cut-off master are later
// undone.
func GuardScript(body string) (*goredis.Script, error) {
	if strings.HasPrefix(body, "#!") {
		return nil, fmt.Errorf("tenure: %w: a guarded script begins with %q: leave the line out", driver.ErrInvalid, "#!lua")
	}
	guard, err := scriptFiles.ReadFile("scripts/guard.lua")
	if err != nil {
		return nil, fmt.Errorf("tenure: the guard of scripts: %w", err)
	}
	return goredis.NewScript(string(guard) + body), nil
}

// Guard returns the keys and arguments for running a script from GuardScript under a fence. The
// application's keys and arguments come first. Guard reads nothing from the server.
func (b *Backend) Guard(fence driver.Fence, keys []string, args ...any) ([]string, []any) {
	identity, opened, record, held, known := "", "-", "", "-", "0" // no record begins like this
	if conditions, value, acked, ok := kv.Granted(b.Backend, fence); ok {
		rev := func(i int) string { return strconv.FormatInt(int64(conditions[i].Rev), 10) + " " }
		identity, opened = b.store.names.record(conditions[0].Key), rev(0)
		record, held = b.store.names.record(conditions[1].Key), rev(1)+string(value)
		known = strconv.FormatInt(int64(acked), 10)
	}
	return append(keys[:len(keys):len(keys)], b.store.names.key("records")),
		append(args[:len(args):len(args)], b.store.history.Load().replication, known, identity, opened, record, held)
}

// Fenced reports whether a script from GuardScript was refused without running its body. If so, the
// lease is no longer current, or the server was restarted after Guard returned the arguments. After
// a restart, the session's next heartbeat shows whether the lease continues.
func Fenced(err error) bool {
	var e goredis.Error
	return errors.As(err, &e) && strings.HasPrefix(e.Error(), "FENCED ")
}
