package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/effect"
)

// Without a shard argument, "tenure effects" reads at most this many shards.
const mostEffectShards = 1000

// An operator's decision about an effect waits this long for a leader.
const resolveExpires = 24 * time.Hour

func (a *app) effectCommands() []*cobra.Command {
	limit := 0
	effects := &cobra.Command{Use: "effects [SHARD]",
		Short: "List the effects in doubt and those under way, of one shard or all",
		Args: func(cmd *cobra.Command, names []string) error {
			if len(names) == 0 {
				return nil
			}
			return args("SHARD")(cmd, names)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > 10_000 {
				return usage(fmt.Sprintf("--limit %d is outside 1 to 10000", limit))
			}
			if len(args) == 0 {
				return a.with(cmd, func(ctx context.Context, b core.Backend) error { return a.effects(ctx, b, "", limit) })
			}
			return a.onShard(cmd, args[0], func(ctx context.Context, b core.Backend, s core.ShardID) error {
				return a.effects(ctx, b, s, limit)
			})
		}}
	effects.Flags().IntVar(&limit, "limit", 1000, "at most so many")

	o := &order{a: a}
	var result string
	resolve := &cobra.Command{Use: "resolve SHARD KEY done|failed|repeat", Short: "Decide about an effect in doubt, by hand",
		Long: `Decide about an effect in doubt, by hand.

  done    it happened: Do returns --result from now on
  failed  it did not happen, or was compensated: it is not attempted again
  repeat  the next Do attempts it once more, with the same idempotency key

The leader of the shard carries it out within some seconds, or the next leader if there is none.
It keeps author and reason with the effect. With --wait the command ends when that is done, and with
exit code 1 if it is not done in time.`,
		Args: args("SHARD", "KEY", "done|failed|repeat"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.wait < 0 {
				return usage(fmt.Sprintf("--wait %v is negative: use 0 for not to wait", o.wait))
			}
			return o.put(cmd, control.Rule{Kind: control.Resolve, Shards: args[0], Effect: args[1], Outcome: args[2], Result: result})
		}}
	o.telling(resolve, resolveExpires)
	resolve.Flags().StringVar(&result, "result", "", "what Do returns, with done")
	resolve.Flags().DurationVar(&o.wait, "wait", 0, "wait so long for the leader to carry it out; 0: do not wait")
	unresolve := &cobra.Command{Use: "unresolve SHARD KEY", Short: "Take back such a decision that was not carried out yet",
		Args: args("SHARD", "KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.remove(cmd, control.Rule{Kind: control.Resolve, Shards: args[0], Effect: args[1], Outcome: control.OutcomeRepeat})
		}}
	o.asking(unresolve)
	one := &cobra.Command{Use: "effect", Short: "Decide about one effect: resolve, unresolve", Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("tenure effect takes resolve or unresolve: see tenure effect --help")
			}
			return usage(fmt.Sprintf("there is no command tenure effect %s: use resolve or unresolve", quoted(args[0])))
		}}
	one.AddCommand(resolve, unresolve)
	return []*cobra.Command{effects, one}
}

// awaitDecided waits until an effect has the outcome in the rule.
func (o *order) awaitDecided(ctx context.Context, b core.Backend, r *control.Rule) error {
	for late := time.Now().Add(o.wait); ; {
		e, err := call(ctx, o.a, func(ctx context.Context) (*effect.Effect, error) { return effect.Read(ctx, b, r.Shards, r.Effect) })
		switch {
		case err != nil:
			return fmt.Errorf("the decision is written, and whether it was carried out is not known: %w", err)
		case e == nil || !e.Began.Equal(r.Began):
			return notFound(fmt.Sprintf("the decision is written, and effect %q of then is no longer kept", r.Effect))
		case string(e.State) == r.Outcome && e.State != effect.Repeat || r.Outcome == control.OutcomeRepeat && e.Repeats > r.Repeats:
			_, _ = fmt.Fprintf(o.a.errs, "effect %q is decided: %s\n", r.Effect, e.State)
			return nil
		case !e.State.Open() || e.Repeats > r.Repeats:
			return exit(exitRefused, fmt.Sprintf("effect %q was decided otherwise before the leader saw the decision: %s", r.Effect, e.State))
		case time.Now().After(late):
			return exit(exitOther, fmt.Sprintf("effect %q is not decided after %v, and the decision waits: its leader must be up, and have a ledger "+
				"(effect.Open): see tenure who %s", r.Effect, o.wait, r.Shards))
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func effectText(r *control.Rule) string {
	if r.Kind != control.Resolve {
		return ""
	}
	return r.Effect + ": " + r.Outcome
}

type effectOut struct {
	Shard core.ShardID `json:"shard"`
	effect.Effect
	// UnderWay is true if the owner that began an attempt is alive, because the attempt may then be
	// in progress.
	UnderWay bool `json:"under_way"`
}

func (a *app) effects(ctx context.Context, b core.Backend, shard core.ShardID, limit int) error {
	v, err := a.state(ctx, b)
	if err != nil {
		return err
	}
	shards := v.Shards
	if shard != "" {
		s, err := find(v, shard)
		if err != nil {
			return err
		}
		shards = []driver.ShardState{s}
	}
	if len(shards) > mostEffectShards {
		return usage(fmt.Sprintf("there are %d shards, and without a name %d are read at most: name one", len(shards), mostEffectShards))
	}
	live := sessions(v)
	out := []effectOut{}
	var unread error
	t := &table{head: []string{"SHARD", "EFFECT", "STATE", "BEGAN", "ATTEMPTS", "TOKEN", "IDEMPOTENCY KEY", "REASON"}}
	for _, s := range shards {
		if driver.Reserved(string(s.Shard)) || len(out) == limit {
			continue
		}
		list, err := call(ctx, a, func(ctx context.Context) ([]effect.Effect, error) {
			return effect.ReadOpen(ctx, b, string(s.Shard), limit-len(out))
		})
		switch {
		case errors.Is(err, core.ErrDamaged) && unread == nil:
			unread = err
		case err != nil && !errors.Is(err, core.ErrDamaged):
			return err
		}
		for _, e := range list {
			x := effectOut{s.Shard, e, underWay(e, newShardOut(s, live))}
			out = append(out, x)
			t.add(x.Shard, x.Key, stateText(x), x.Began.Local().Format(time.DateTime), x.Attempts, x.Token, x.ID, x.Reason)
		}
	}
	if err := a.print(out, t); err != nil {
		return err
	}
	if unread != nil {
		return exit(exitDamaged, strings.ReplaceAll(unread.Error(), "\n", "; "))
	}
	return nil
}

// underWay reports whether a shard's owner may be attempting an effect.
func underWay(e effect.Effect, owner shardOut) bool {
	return e.State == effect.Begun && owner.Node != "" && e.Token == owner.Token
}

func stateText(x effectOut) string {
	switch {
	case x.UnderWay:
		return "under way"
	case x.State == effect.Begun:
		return string(effect.InDoubt)
	}
	return string(x.State)
}

// resolving describes a decision about an effect, and binds it to the effect's current state.
func (o *order) resolving(ctx context.Context, b core.Backend, v *driver.View, r *control.Rule) (string, error) {
	s, err := find(v, core.ShardID(r.Shards))
	if err != nil {
		return "", err
	}
	e, err := call(ctx, o.a, func(ctx context.Context) (*effect.Effect, error) { return effect.Read(ctx, b, r.Shards, r.Effect) })
	owner := newShardOut(s, sessions(v))
	switch {
	case err != nil:
		return "", err
	case e == nil:
		return "", notFound(fmt.Sprintf("shard %q has no effect %q: tenure effects %s lists those in doubt", r.Shards, r.Effect, r.Shards))
	case !e.State.Open():
		return "", refused("effect %q is %s since %s", e.Key, e.State, e.Ended.Local().Format(time.DateTime))
	case underWay(*e, owner):
		return "", refused("effect %q is under way under token %d of node %s: wait until it has ended or is in doubt",
			e.Key, e.Token, printable(owner.Node))
	}
	r.Began, r.Repeats = e.Began, e.Repeats
	by := "the leader of the shard on node " + printable(owner.Node)
	if owner.Node == "" {
		by = "the next leader of the shard"
	}
	what := map[string]string{control.OutcomeDone: "is done", control.OutcomeFailed: "has failed, and is not attempted again",
		control.OutcomeRepeat: "is attempted once more by the next Do"}[r.Outcome]
	return fmt.Sprintf("effect %q of shard %q, in doubt since %s, with idempotency key %s, %s: %s writes it", e.Key, r.Shards,
		e.Began.Local().Format(time.DateTime), e.ID, what, by), nil
}
