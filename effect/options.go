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
	"github.com/tenure-go/tenure/internal/goexit"
)

// The limits of Options. MaxResult is also at most a quarter of the bytes of one commit.
const (
	maxConcurrent = 1024     // of Options.Concurrent
	mostInDoubt   = 10_000   // of Options.MaxInDoubt
	MaxMaxResult  = 64 << 10 // of Options.MaxResult, in bytes
	maxAttempts   = 1000     // of Options.Attempts
)

// Options say how a Ledger treats effects. The zero value and nil are valid. With them, an effect
// whose outcome is unknown stays in doubt.
type Options struct {
	// Scope is the scope in which idempotency keys are unique. Default: the namespace and the
	// shard, joined by "/". In a sharding.Keyspace, the keyspace's name replaces the shard's,
	// because effects continue in another shard when a range is split (see Take). If ctx does not
	// come from a sharding.Manager's handler, a shard with a name like orders-0000 counts as part
	// of the keyspace orders. If two such shards have effects with the same key, set Scope.
	Scope string

	// Repeatable states that the other side honours idempotency keys: it makes the effect once,
	// however often it receives the same key. The ledger then repeats an attempt without an answer.
	// The next Do also repeats an effect that a former leader left in doubt. If Resolve is set, the
	// ledger calls Resolve for it instead.
	Repeatable bool
	// Resolve, if set, decides on an effect in doubt, for example by asking the other side about
	// its key. Open calls it for every effect that was left open. Do calls it after an attempt
	// without an answer, or, with Repeatable, after the last attempt. If Resolve returns an error,
	// the ledger calls it again after a back-off, up to Attempts times, and again a minute later.
	// ctx ends after Deadline, or when the lease may no longer be used. Up to Concurrent calls run
	// concurrently.
	Resolve func(ctx context.Context, e Effect) (Decision, error)
	// Rules returns the operators' rules. Default: the lease's rules (core.Lease.Rules). The
	// command "tenure effect resolve" writes rules of the kind control.Resolve. Such a rule decides
	// on an effect that is open and not being attempted, before Resolve is called. The ledger calls
	// Rules every second, and for each decision.
	Rules func() []control.Rule

	// Concurrent is the number of calls of fn and Resolve that run concurrently. It excludes nested
	// effects (see Do), of which at most 1024 run. Do waits for its turn. When a process dies, up
	// to this number of effects are open. Default 64, at most 1024.
	Concurrent int
	// MaxInDoubt is the number of effects that may be open without being attempted. Above this
	// number, Do begins no new effect and returns ErrFull. Default 1000, at most 10,000.
	MaxInDoubt int
	// MaxResult limits a result, in bytes. Default 4096, at most a quarter of the bytes of one
	// commit (core.Limits). If a result is longer, the ledger keeps only the fact that the effect
	// happened.
	MaxResult int

	// Deadline limits one Do, from its first attempt on and including waits, and one call of
	// Resolve. Default 30 s. If it exceeds core.Options.DrainBudget, an effect that begins just
	// before the lease ends may outlast the budget. Such an effect is then in doubt.
	Deadline time.Duration
	// Attempts is the largest number of calls of fn within one Do. Default 5, at most 1000.
	Attempts int
	// BackoffMin and BackoffMax limit the wait between attempts, which doubles each time. A random
	// part of up to half is subtracted. Defaults 100 ms and 5 s.
	BackoffMin, BackoffMax time.Duration

	// Keep is how long an ended effect is kept, by the leader's clock. A later Do with its key
	// makes the effect again. Default 24 h, at least 1 s. A clock that is set ahead shortens Keep
	// by the same amount. An effect whose end that clock recorded is kept longer by the same
	// amount.
	Keep time.Duration

	// Logger logs each effect that stays in doubt at Warn, and each effect that an operator decided
	// at Info. If the ledger retries after background errors, Logger logs the first at Warn, one
	// after 1, 5 and 15 minutes, and then one every 15 minutes. It logs the end of these errors at
	// Info. All ledgers with the same Stats share these lines. Default: slog.Default at the call of
	// Open.
	Logger *slog.Logger
	// Stats counts this ledger's work. Give all ledgers of a process the same Stats. Default: a
	// private Stats.
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
	if rules := c.Rules; rules == nil {
		c.Rules = lease.Rules
	} else {
		c.Rules = func() (all []control.Rule) {
			_ = goexit.Call(func() error { all = rules(); return nil })
			return all
		}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = goexit.Logger(c.Logger).With(slog.String("shard", shard))
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
		{"Concurrent", c.Concurrent, 1, maxConcurrent}, {"MaxInDoubt", c.MaxInDoubt, 1, mostInDoubt},
		{"MaxResult", c.MaxResult, 1, most}, {"Attempts", c.Attempts, 1, maxAttempts},
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

// logError logs an effect in doubt, or an error after which the ledger tries again.
func (o *Options) logError(err error) {
	if doubt, ok := errors.AsType[*InDoubtError](err); ok {
		o.Logger.Warn("tenure: effect in doubt", slog.String("key", doubt.Effect.Key), slog.String("error", doubt.Effect.Reason))
		return
	}
	if _, say := o.Stats.lines.Failed("", time.Now()); say {
		o.Logger.Warn("tenure: effects: trying again", slog.Any("error", err))
	}
}

func (o *Options) logEnd() {
	if _, say := o.Stats.lines.Worked("", time.Now()); say {
		o.Logger.Info("tenure: effects: work again")
	}
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("tenure: %w: effect: %s", core.ErrInvalid, fmt.Sprintf(format, args...))
}
