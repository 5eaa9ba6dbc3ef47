package effect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
)

// Bounds of Options.
const (
	MaxConcurrent = 1024     // of Options.Concurrent
	MaxMaxInDoubt = 10_000   // of Options.MaxInDoubt
	MaxMaxResult  = 64 << 10 // of Options.MaxResult, in bytes
	MaxAttempts   = 1000     // of Options.Attempts
)

// Options say how a Ledger treats effects. The zero value, and nil, work: an effect whose
// outcome nobody knows stays in doubt.
type Options struct {
	// Scope is what idempotency keys are unique in. Default: the namespace and the shard, joined by
	// "/". The name of the keyspace replaces that of a shard in a sharding.Keyspace, because effects
	// continue in another shard when a range is split (see Take). If ctx is not that of a
	// sharding.Manager's handler, a shard with a name like orders-0000 counts as one of the keyspace
	// orders. Set Scope if two such shards have effects with the same key.
	Scope string

	// Repeatable says that the other side honours idempotency keys: it makes the effect once
	// however often it gets the same key. An attempt without an answer is then repeated,
	// and so is an effect that a former leader left in doubt, by the next Do, unless
	// Resolve is set, which is asked about the latter.
	Repeatable bool
	// Resolve, if set, decides about an effect in doubt, for example by asking the other side
	// for its key. Open begins to call it for every effect that was left open, and Do calls it
	// where an attempt had no answer, which with Repeatable is after the last one. An error is
	// tried again after a back-off, up to Attempts times, then a minute later. ctx ends after
	// Deadline, or when the lease may not be used. Up to Concurrent calls run at once.
	Resolve func(ctx context.Context, e Effect) (Decision, error)
	// Rules, if set, returns the operators' rules: func() []control.Rule { return
	// elector.View().Rules }. A rule of the kind control.Resolve, which the command tenure effect
	// resolve writes, decides about an effect that is open and not attempted, before Resolve is
	// asked. Rules is called every second, and for each decision.
	Rules func() []control.Rule

	// Concurrent is how many calls of fn and Resolve run at once; Do waits for its turn. So many
	// effects are open when a process dies. Default 64.
	Concurrent int
	// MaxInDoubt is how many effects may be open without being attempted. With more, Do begins
	// no new one, with ErrFull. Default 1000.
	MaxInDoubt int
	// MaxResult bounds a result, in bytes. Default 4096, at most a quarter of the bytes of one
	// commit (core.Limits). The fact that the effect happened is kept whatever the result is.
	MaxResult int

	// Deadline bounds one Do from the first attempt on, waits included, and one call of
	// Resolve. Default 30 s. Where it is above core.Options.DrainBudget, an effect that began
	// just before the lease was to be given back may outlast the budget, and is in doubt then.
	Deadline time.Duration
	// Attempts is how often fn is called within one Do, at most. Default 5.
	Attempts int
	// BackoffMin and BackoffMax bound the wait between attempts, which doubles. A random part of
	// up to a half is taken off. Defaults 100 ms and 5 s.
	BackoffMin, BackoffMax time.Duration

	// Keep is how long an ended effect is kept, by the leader's clock; a Do with its key after
	// that makes the effect again. Default 24 h. At least 1 s. A clock that is set ahead by so
	// much shortens it.
	Keep time.Duration

	// OnError is told each effect that stays in doubt, as an *InDoubtError, and what failed in
	// the background and is tried again. It is called from various goroutines. Default: a line
	// at Warn to slog.Default, of what is tried again the first, one after 1, 5 and 15 minutes
	// and then every 15, for all ledgers with the same Stats.
	OnError func(error)
	// Stats counts what this ledger does. Give all ledgers of a process the same. Default: one that
	// nobody sees.
	Stats *Stats
}

// number matches what the names of a keyspace's shards end in.
var number = regexp.MustCompile(`-[0-9]{4,}$`)

// resolve returns a copy with the defaults filled in.
func (o *Options) resolve(keyspace string, lease *core.Lease) (*Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	l, shard := lease.Limits(), lease.Shard()
	if keyspace != "" && keyspace != shard && strings.Contains(c.Scope, shard) {
		return nil, invalid("Scope %.60q names the shard, and effects of the keyspace %q continue in other shards: leave Scope empty",
			c.Scope, keyspace)
	}
	c.Scope = cmp.Or(c.Scope, lease.Namespace()+"/"+cmp.Or(keyspace, number.ReplaceAllString(shard, ""), shard))
	c.Concurrent = cmp.Or(c.Concurrent, 64)
	c.MaxInDoubt = cmp.Or(c.MaxInDoubt, 1000)
	c.MaxResult = cmp.Or(c.MaxResult, 4096)
	c.Deadline = cmp.Or(c.Deadline, 30*time.Second)
	c.Attempts = cmp.Or(c.Attempts, 5)
	c.BackoffMin = cmp.Or(c.BackoffMin, 100*time.Millisecond)
	c.BackoffMax = cmp.Or(c.BackoffMax, max(5*time.Second, c.BackoffMin))
	c.Keep = cmp.Or(c.Keep, 24*time.Hour)
	if c.OnError == nil {
		c.OnError = func(err error) { c.Stats.logError(shard, err) }
	}
	c.Stats = cmp.Or(c.Stats, &Stats{})
	if len(c.Scope) > 1024 || strings.Contains(c.Scope, "\x00") {
		return nil, invalid("Scope has %d bytes, or a zero byte: use a name of at most 1024", len(c.Scope))
	}
	most := MaxMaxResult
	if l.WriteBytes > 0 {
		most = min(most, l.WriteBytes/4)
	}
	for _, n := range []struct {
		name        string
		v, min, max int
	}{
		{"Concurrent", c.Concurrent, 1, MaxConcurrent}, {"MaxInDoubt", c.MaxInDoubt, 1, MaxMaxInDoubt},
		{"MaxResult", c.MaxResult, 1, most}, {"Attempts", c.Attempts, 1, MaxAttempts},
	} {
		if n.v < n.min || n.v > n.max {
			return nil, invalid("%s %d is outside %d to %d", n.name, n.v, n.min, n.max)
		}
	}
	const year = 365 * 24 * time.Hour
	for _, d := range []struct {
		name   string
		v, min time.Duration
	}{
		{"Deadline", c.Deadline, time.Millisecond}, {"BackoffMin", c.BackoffMin, time.Millisecond},
		{"BackoffMax", c.BackoffMax, c.BackoffMin}, {"Keep", c.Keep, time.Second},
	} {
		if d.v < d.min || d.v > 10*year {
			return nil, invalid("%s %v is outside %v to 10 years", d.name, d.v, d.min)
		}
	}
	return &c, nil
}

func (s *Stats) logError(shard string, err error) {
	if doubt, ok := errors.AsType[*InDoubtError](err); ok {
		slog.Warn("tenure: effect in doubt", slog.String("shard", doubt.Shard), slog.String("key", doubt.Effect.Key),
			slog.String("error", doubt.Effect.Reason))
		return
	}
	if _, say := s.lines.Failed("", time.Now()); say {
		slog.Warn("tenure: effects: trying again", slog.String("shard", shard), slog.Any("error", err))
	}
}

func (s *Stats) logEnd() {
	if _, say := s.lines.Worked("", time.Now()); say {
		slog.Info("tenure: effects: work again")
	}
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("tenure: %w: effect: %s", core.ErrInvalid, fmt.Sprintf(format, args...))
}
