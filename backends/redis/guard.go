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

// GuardScript returns the application's script behind a fence (rule F1). body runs if and only
// if a lease is its shard's current grant, in the same step of the same server. The script's
// KEYS and ARGV begin with the application's, and end with those of [Backend.Guard], one key
// and six arguments. In a cluster, the application's keys must be in the namespace's slot, as
// "{orders}/paid/42" is in that of "orders". If the lease is not current, body does not run,
// and the script returns an error that [Fenced] recognizes. The error of GuardScript matches
// driver.ErrInvalid if body begins with a line "#!lua".
//
//	script, err := redis.GuardScript(`return redis.call('SET', KEYS[1], ARGV[1])`)
//	...
//	keys, args := b.Guard(lease.Fence(), []string{"{orders}/paid/42"}, "yes")
//	err = script.Run(ctx, client, keys, args...).Err()
//
// Disable the client's retries. After an error that Fenced does not recognize, the outcome may
// be unknown, so read before sending the script again.
//
// With [Options.Replicas], send WAIT for that many replicas after the script, on the same
// connection, and count the script as done only if they answer. A master that was cut off runs
// the script until min-replicas-max-lag has passed, while a successor's script runs at the
// replica that took over. All effects at the cut-off master are then taken back.
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

// Guard returns the keys and the arguments with which a script of GuardScript runs under a fence:
// the application's, and then the guard's. It reads nothing.
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

// Fenced reports whether a script of GuardScript was refused, so that its body did not run.
// Either the lease is no longer the current grant, or the server was restarted after the
// arguments were made. In the second case, the session's next heartbeat finds out whether the
// lease continues.
func Fenced(err error) bool {
	var e goredis.Error
	return errors.As(err, &e) && strings.HasPrefix(e.Error(), "FENCED ")
}
