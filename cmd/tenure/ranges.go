package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/operator"
	"github.com/tenure-go/tenure/internal/seam"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
)

// This is the default duration of rules about ranges and quarantine. When a rule ends, a range
// stays unchanged until the assigner has another reason to change it.
const lasting = time.Hour

func (a *app) rangeCommands() []*cobra.Command {
	o := &order{a: a}
	command := func(use, short string, args cobra.PositionalArgs, run func(*cobra.Command, []string) error) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short, Args: args, RunE: run}
		o.telling(c, lasting)
		return c
	}
	var at []string
	split := command("split SHARD", "Split the range of a shard, by default in the middle", args("SHARD"),
		func(cmd *cobra.Command, args []string) error { return o.split(cmd, args[0], at) })
	split.Long = `Split the range of a shard, by default in the middle.

The shard keeps the range up to the first hash, and new shards get the rest. While the rule lasts
the assigner does not merge the ranges again.`
	split.Flags().StringArrayVar(&at, "at", nil,
		fmt.Sprintf("the hash that a new range begins with, as 0x8000000000000000; up to %d times", keyspace.MaxCuts))
	merge := command("merge SHARD SHARD", "Merge the ranges of two shards that are neighbours", args("SHARD", "SHARD"),
		func(cmd *cobra.Command, args []string) error { return o.merge(cmd, args[0], args[1]) })
	merge.Long = `Merge the ranges of two shards that are neighbours.

The shard with the lower range answers for both, and the other one ends. While the rule lasts the
assigner does not split the range there again.`
	release := command("release SHARD", "End the quarantine of a shard, and prevent the next", args("SHARD"),
		func(cmd *cobra.Command, args []string) error {
			return o.put(cmd, control.Rule{Kind: control.Release, Shards: args[0]})
		})
	unsplit := &cobra.Command{Use: "unsplit HASH", Aliases: []string{"unmerge"}, Short: "End the rule of a split or merge at a hash",
		Args: args("HASH"), RunE: func(cmd *cobra.Command, args []string) error {
			h, err := hashArg(args[0])
			if err != nil {
				return err
			}
			return o.remove(cmd, control.Rule{Kind: control.Split, Hash: keyspace.FormatHash(h)}) // also the key of a merge
		}}
	o.asking(unsplit)
	unrelease := &cobra.Command{Use: "unrelease SHARD", Short: "End the release of a shard, which may go into quarantine again",
		Args: args("SHARD"), RunE: func(cmd *cobra.Command, args []string) error {
			return o.remove(cmd, control.Rule{Kind: control.Release, Shards: args[0]})
		}}
	o.asking(unrelease)
	return []*cobra.Command{split, merge, unsplit, release, unrelease}
}

var hashForm = regexp.MustCompile(`^0x[0-9a-fA-F]{16}$`)

// hashArg requires all 16 digits, because a person who writes 0x8 probably means the middle of the
// keyspace, not the hash 8.
func hashArg(s string) (uint64, error) {
	if !hashForm.MatchString(s) {
		return 0, usage(fmt.Sprintf("%s is no hash: write all 16 digits, as in 0x8000000000000000", quoted(s)))
	}
	return keyspace.ParseHash(s)
}

func unread(err error) error {
	if errors.Is(err, core.ErrInvalid) {
		return &exitError{exitDamaged, err}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("read the plans: %w", err)
}

// ranged returns an error if the keyspace has no map.
func (a *app) ranged(ctx context.Context, b core.Backend) (*sharding.Map, error) {
	m, err := call(ctx, a, func(ctx context.Context) (*sharding.Map, error) {
		m, _, err := sharding.ReadPlans(ctx, b, seam.Key{})
		return m, err
	})
	switch {
	case err != nil:
		return nil, unread(err)
	case m == nil:
		return nil, notFound("this namespace has no keyspace: its members make one with their first plan, if sharding.Options.Keyspace is set")
	}
	return m, nil
}

// The returned function gives the reason why a shard should have no owner. It is never nil, so
// callers can continue even if the plans are unreadable.
func (a *app) aside(ctx context.Context, b core.Backend) (func(shard string) seam.Aside, error) {
	why, err := call(ctx, a, func(ctx context.Context) (func(string) seam.Aside, error) {
		_, why, err := sharding.ReadPlans(ctx, b, seam.Key{})
		return why, err
	})
	if err != nil {
		return func(string) seam.Aside { return seam.Aside{} }, unread(err)
	}
	return why, nil
}

// After an error about unreadable records, the command can still show all other records.
func damaged(err error) bool {
	e, ok := errors.AsType[*exitError](err)
	return ok && e.code == exitDamaged
}

type rangesOut struct {
	Keyspace string     `json:"keyspace"`
	Hash     string     `json:"hash"` // the name of the hash function
	Number   int64      `json:"number"`
	Ranges   []rangeOut `json:"ranges"`
}

type rangeOut struct {
	Shard string  `json:"shard"`
	From  string  `json:"from"`
	To    string  `json:"to"`    // the first hash after the range
	Share float64 `json:"share"` // share of the keyspace, in percent
	Node  string  `json:"node"`  // empty if no living member owns the shard
}

func (a *app) ranges(ctx context.Context, b core.Backend) error {
	m, err := a.ranged(ctx, b)
	if err != nil {
		return err
	}
	return a.printRanges(ctx, b, m)
}

func (a *app) printRanges(ctx context.Context, b core.Backend, m *sharding.Map) error {
	v, err := a.state(ctx, b)
	if err != nil {
		return err
	}
	live := sessions(v)
	nodes := make(map[string]string, len(v.Shards))
	for _, s := range v.Shards {
		nodes[string(s.Shard)] = newShardOut(s, live).Node
	}
	out := rangesOut{Keyspace: m.Keyspace.Name, Hash: cmp.Or(m.Keyspace.Hash, keyspace.HashMixed), Number: m.Number, Ranges: []rangeOut{}}
	t := &table{head: []string{"SHARD", "FROM", "TO", "SHARE", "NODE"}}
	for shard, r := range m.All() {
		x := rangeOut{Shard: shard, Share: share(r), Node: nodes[shard]}
		x.From, x.To = keyspace.Bounds(r.From, r.To)
		out.Ranges = append(out.Ranges, x)
		t.add(x.Shard, x.From, x.To, fmt.Sprintf("%.4g%%", x.Share), x.Node)
	}
	return a.print(out, t)
}

// The result is a percentage of the keyspace.
func share(r assign.Range) float64 {
	// The width is computed as To-1-From, because the 2^64 hashes of the whole keyspace do not fit
	// into 64 bits.
	return 100 * (float64(r.To-1-r.From) + 1) / math.Exp2(64)
}

func rangeOf(m *sharding.Map, shard core.ShardID) (assign.Range, error) {
	for name, r := range m.All() {
		if name == string(shard) {
			return r, nil
		}
	}
	return assign.Range{}, notFound(fmt.Sprintf("shard %q has no range in keyspace %q: tenure ranges lists those that have", shard, m.Keyspace.Name))
}

func refused(format string, args ...any) error {
	return exit(exitRefused, "nothing was changed: "+fmt.Sprintf(format, args...))
}

// The rules divide a shard's range at the given hashes.
func (o *order) split(cmd *cobra.Command, name string, at []string) error {
	shard, err := shardArg(name)
	if err != nil {
		return err
	}
	if len(at) > keyspace.MaxCuts {
		return usage(fmt.Sprintf("--at is given %d times: at most %d hashes divide a range at once", len(at), keyspace.MaxCuts))
	}
	var hashes []uint64
	for _, text := range at {
		h, err := hashArg(text)
		if err != nil {
			return err
		}
		hashes = append(hashes, h)
	}
	slices.Sort(hashes)
	if len(slices.Compact(slices.Clone(hashes))) < len(hashes) {
		return usage("--at is given twice with one hash")
	}
	return o.divide(cmd, control.Split, func(m *sharding.Map) ([]uint64, string, error) {
		r, err := rangeOf(m, shard)
		if err != nil {
			return nil, "", err
		}
		from, to := keyspace.Bounds(r.From, r.To)
		if len(hashes) == 0 {
			if r.To-r.From == 1 {
				return nil, "", refused("the range of shard %q has one hash, %s: it cannot be split", shard, from)
			}
			hashes = []uint64{r.From + (r.To-1-r.From)/2 + 1}
		}
		for _, h := range hashes {
			switch {
			case h == r.From:
				return nil, "", refused("the range of shard %q begins at %s already", shard, from)
			case !r.Has(h):
				return nil, "", refused("hash %s is outside the range of shard %q: use one above %s and below %s", keyspace.FormatHash(h), shard, from, to)
			}
		}
		if m.Len()+len(hashes) > keyspace.MaxShards {
			return nil, "", refused("there are %d ranges, and %d shards at most: merge some first", m.Len(), keyspace.MaxShards)
		}
		var parts []string
		for i, h := range hashes {
			part := assign.Range{From: h, To: r.To}
			if i+1 < len(hashes) {
				part.To = hashes[i+1]
			}
			parts = append(parts, rangeText(part))
		}
		return hashes, fmt.Sprintf("shard %q keeps %s, and new shards get %s", shard, rangeText(assign.Range{From: r.From, To: hashes[0]}), strings.Join(parts, ", ")), nil
	})
}

func rangeText(r assign.Range) string {
	from, to := keyspace.Bounds(r.From, r.To)
	return from + " to " + to
}

// The rule prevents any range from beginning at the hash where the two shards' ranges meet.
func (o *order) merge(cmd *cobra.Command, one, other string) error {
	a, err := shardArg(one)
	if err != nil {
		return err
	}
	b, err := shardArg(other)
	switch {
	case err != nil:
		return err
	case a == b:
		return usage(fmt.Sprintf("shard %q is named twice: name two neighbours", a))
	}
	return o.divide(cmd, control.Merge, func(m *sharding.Map) ([]uint64, string, error) {
		low, err := rangeOf(m, a)
		if err != nil {
			return nil, "", err
		}
		high, err := rangeOf(m, b)
		if err != nil {
			return nil, "", err
		}
		a, b := a, b
		if high.From < low.From {
			a, b, low, high = b, a, high, low
		}
		if low.To != high.From {
			return nil, "", refused("shards %q and %q are no neighbours: the range of the one ends at %s, and that of the other begins at %s", a, b, keyspace.FormatHash(low.To), keyspace.FormatHash(high.From))
		}
		return []uint64{high.From}, fmt.Sprintf("shard %q answers for %s, and shard %q ends", a, rangeText(assign.Range{From: low.From, To: high.To}), b), nil
	})
}

// The operator sees and confirms the changed ranges before a rule is written for each hash.
func (o *order) divide(cmd *cobra.Command, kind control.Kind, plan func(*sharding.Map) (hashes []uint64, what string, err error)) error {
	var first control.Rule
	if err := o.sign(&first); err != nil {
		return err
	}
	checked := first
	checked.Kind, checked.Hash = kind, keyspace.FormatHash(1) // checked before any call to the store
	if err := checked.Validate(); err != nil {
		return err
	}
	return o.a.with(cmd, func(ctx context.Context, b core.Backend) error {
		m, err := o.a.ranged(ctx, b)
		if err != nil {
			return err
		}
		hashes, what, err := plan(m)
		if err != nil {
			return err
		}
		rules := make([]control.Rule, len(hashes))
		for i, h := range hashes {
			rules[i] = first
			rules[i].Kind, rules[i].Hash = kind, keyspace.FormatHash(h)
		}
		check := func(ctx context.Context) error {
			all, err := call(ctx, o.a, func(ctx context.Context) ([]control.Rule, error) { return control.Read(ctx, b) })
			if err != nil && all == nil {
				return err
			}
			return cmp.Or(contradicted(rules, all), room(rules, all))
		}
		if err := check(ctx); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(o.a.errs, what+", "+during(first))
		if o.dryRun {
			return nil
		}
		if err := o.confirm(); err != nil {
			return err
		}
		return o.a.writer(b).Write(ctx, func(ctx context.Context, _ *driver.View) (*operator.Decision, error) {
			if err := check(ctx); err != nil { // another rule may have been written in the meantime
				return nil, err
			}
			d := &operator.Decision{}
			for i := range rules {
				op, err := control.Put(&rules[i])
				if err != nil {
					return nil, err
				}
				d.Ops, d.Changes = append(d.Ops, op), append(d.Changes, operator.Change{Rule: rules[i], By: rules[i].Writer, At: rules[i].At})
			}
			return d, nil
		})
	})
}

func during(r control.Rule) string {
	if r.Expires.IsZero() {
		return "by a rule without an end"
	}
	return "by a rule until " + r.Expires.Local().Format(time.DateTime)
}

// contradicted returns an error if a rule in force contradicts a new rule.
func contradicted(rules, all []control.Rule) error {
	for _, r := range rules {
		for _, x := range all {
			if x.Key() == r.Key() && x.Kind != r.Kind && x.Active(r.At) {
				return refused("a rule %q at hash %s is in force, %s: tenure unsplit %s first", x.Kind, x.Hash, printable(ruleText(x)), x.Hash)
			}
		}
	}
	return nil
}

// releasing describes the effect of releasing a shard.
func (o *order) releasing(ctx context.Context, b core.Backend, v *driver.View, r *control.Rule) (string, error) {
	if _, err := find(v, core.ShardID(r.Shards)); err != nil {
		return "", err
	}
	why, err := o.a.aside(ctx, b)
	if err != nil {
		return "", err
	}
	switch x := why(r.Shards); {
	case x.Why == "":
		return fmt.Sprintf("shard %q is not in quarantine, and does not go into it, %s", r.Shards, during(*r)), nil
	case x.Until.IsZero():
		return "", refused("shard %q has ended: %s", r.Shards, x.Why)
	default:
		return fmt.Sprintf("the quarantine of shard %q, which would last until %s, ends, and none begins, %s",
			r.Shards, x.Until.Local().Format(time.DateTime), during(*r)), nil
	}
}
