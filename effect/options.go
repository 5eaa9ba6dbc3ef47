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

// These are the limits of Options. In addition, MaxResult is at most a quarter of one commit's
// bytes.
const (
	maxConcurrent = 1024     // of Options.Concurrent
	mostInDoubt   = 10_000   // of Options.MaxInDoubt
	MaxMaxResult  = 64 << 10 // of Options.MaxResult, in bytes
	maxAttempts   = 1000     // of Options.Attempts
)

// Options configure a Ledger. The zero value and nil are valid. With the default options, an effect
// whose outcome is unknown stays in doubt.
type Options struct {
	// Scope is the scope in which idempotency keys are unique. The default is the namespace and the
	// shard, joined by "/". In a sharding.Keyspace, the keyspace's name replaces the shard's name,
	// because effects continue in another shard when a range is split (see Take). If Open's ctx
	// does not come from a sharding.Manager's handler, a shard with a name such as orders-0000
	// counts as part of the keyspace orders. If two such shards have effects with the same key, set
	// Scope.
	Scope string

	// Repeatable states that the receiver honors idempotency keys. Such a receiver performs an
	// effect only once, even if it receives the same key several times. The ledger then repeats an
	// attempt that got no answer. The next Do also repeats an effect that a former leader left in
	// doubt, unless Resolve is set; the ledger then calls Resolve instead.
	Repeatable bool
	// Resolve, if set, decides an effect in doubt, for example by asking the receiver about the
	// effect's key. Open calls Resolve for every effect that was left open. Do calls Resolve after
	// an attempt that got no answer or, with Repeatable, after the last such attempt. If Resolve
	// returns an error, the ledger calls it again after a back-off, up to Attempts times. A minute
	// later, the ledger starts a new series of attempts. The context ends after Deadline, or when
	// the lease may no longer be used. Up to Concurrent calls run in parallel.
	Resolve func(ctx context.Context, e Effect) (Decision, error)
	// Rules returns the operators' rules. The default is core.Lease.Rules. The command "tenure
	// effect resolve" writes rules of the kind control.Resolve. Such a rule decides an effect that
	// is open and not being attempted, and takes precedence over Resolve. The ledger calls Rules
	// every second, and for each decision.
	Rules func() []control.Rule

	// Concurrent is the maximum number of calls to fn and Resolve in progress. Further calls to Do
	// wait for their turn. Nested effects (see Do) do not count, and have a separate limit of 1024.
	// A process that dies leaves at most Concurrent attempted effects open. Default 64, at most
	// 1024.
	Concurrent int
	// MaxInDoubt limits how many effects may be open without being attempted. When the limit is
	// reached, Do begins no new effect and returns ErrFull. Default 1000, at most 10,000.
	MaxInDoubt int
	// MaxResult is the maximum size of a result, in bytes. Default 4096, at most a quarter of one
	// commit's bytes (core.Limits). If a result is longer, the ledger keeps only the fact that the
	// effect happened.
	MaxResult int

	// Deadline limits how long one Do takes from its first attempt, including waits. Deadline also
	// limits one call to Resolve. Default 30 s. If Deadline exceeds core.Options.DrainBudget, an
	// effect that begins just before the lease ends may outlast the budget. Such an effect is then
	// in doubt.
	Deadline time.Duration
	// Attempts is the maximum number of calls to fn within one Do. Default 5, at most 1000.
	Attempts int
	// BackoffMin and BackoffMax limit the wait between attempts, which doubles each time. The
	// ledger shortens each wait by a random amount of up to half. Defaults 100 ms and 5 s.
	BackoffMin, BackoffMax time.Duration

	// Keep is how long the ledger keeps an ended effect, according to the leader's clock. After
	// that time, a Do with the same key repeats the effect. Default 24 h, at least 1 s. A leader
	// whose clock is ahead removes effects that much too early. Effects that ended under that
	// leader are kept that much too long.
	Keep time.Duration

	// Logger logs each effect that stays in doubt at Warn, and each effect that an operator decided
	// at Info. If background work keeps failing, Logger logs the first error at Warn, further
	// errors after 1, 5 and 15 minutes, and then one error every 15 minutes. It logs the end of
	// these errors at Info. Ledgers with the same Stats log these errors together. The default is
	// the result of slog.Default when Open is called.
	Logger *slog.Logger
	// Stats counts this ledger's work. Set the same Stats for all of a process's ledgers. Default:
	// a private Stats.
	Stats *Stats
}

// The names of a keyspace's shards end in a number.
var number = regexp.MustCompile(`-[0-9]{4,}$`)

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

// logError logs either an effect in doubt or an error after which the ledger tries again.
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
