package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/boundjson"
	"github.com/tenure-go/tenure/internal/operator"
)

// historyLease contains the facts that the store has kept about a lease.
type historyLease struct {
	Token   core.Token     `json:"token"`
	Session core.SessionID `json:"session,omitempty"` // set only for the current owner
	Node    string         `json:"node,omitempty"`    // set only for the current owner
	Entries int            `json:"entries"`           // number of the entries read that belong to this lease
	First   core.Seq       `json:"first,omitempty"`
	Last    core.Seq       `json:"last,omitempty"`
	// Rules are the operators' rules that requested the lease's move or resignation.
	Rules []operator.Change `json:"rules,omitempty"`
}

type historyOut struct {
	Shard  core.ShardID    `json:"shard"`
	Owners []driver.Grant  `json:"owners"`           // owners of the last four leases, oldest first
	Damage string          `json:"damage,omitempty"` // why the record of the owners is incomplete
	Oldest core.Seq        `json:"oldest"`           // the first entry that was read, or 0
	Cut    bool            `json:"cut,omitempty"`    // earlier entries exist, which --limit left out
	Leases []*historyLease `json:"leases"`           // in the order of tokens
}

func (a *app) historyCommand() *cobra.Command {
	var limit int64
	c := &cobra.Command{Use: "history SHARD", Short: "Show the leases of a shard, as far as the store keeps them",
		Long: `Show who owned a shard, since when, and why it ended: the last four leases, oldest first. The
store remembers no more, and nothing of locks. The times are of the wall clocks of the members
that wrote them, for people: they decide nothing. A lease ends as released, passed to another
session, renewed under a new token, preempted, or gone: its session had ended. The time of the
last is when the next member took the shard. What nobody wrote is unknown.

Then show what else there is of leases, oldest first: their tokens, the log entries that each
appended, and the moves and resignations that operators asked for. It is made of the token of
each log entry, that of the last commit, the shard's record, and the log of the operators'
rules. A lease that committed nothing, or whose entries were trimmed, is missing there. Earlier
leases are in the members' own logs, and in the metrics of observe/tenureprom.`,
		Args: args("SHARD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 0 {
				return usage(fmt.Sprintf("--limit %d is negative: give 0 for all", limit))
			}
			return a.onShard(cmd, args[0], func(ctx context.Context, b core.Backend, s core.ShardID) error {
				return a.history(ctx, b, s, core.Seq(limit))
			})
		}}
	c.Flags().Int64Var(&limit, "limit", 10000, "read at most the newest so many entries; 0: all")
	return c
}

func (a *app) history(ctx context.Context, b core.Backend, shard core.ShardID, limit core.Seq) error {
	x := &historian{a: a, b: b, leases: map[core.Token]*historyLease{}}
	oldest, err := x.entries(ctx, shard, limit, func(e *core.Entry) {
		l := x.lease(e.Token)
		l.Entries++
		l.First, l.Last = cmp.Or(l.First, e.Seq), e.Seq
	})
	if err != nil {
		return err
	}
	_, err = x.entries(ctx, control.Shard, operator.KeptChanges, func(e *core.Entry) {
		if c, err := decodeChange(e.Payload); err == nil && c.Rule.Token != 0 && c.Rule.Shards == string(shard) {
			l := x.lease(c.Rule.Token)
			l.Rules = append(l.Rules, c)
		}
	})
	if err != nil {
		return err
	}
	v, err := a.state(ctx, b) // read after the logs, so that it has the newest token
	if err != nil {
		return err
	}
	s, err := find(v, shard)
	if err != nil {
		return err
	}
	if s.Owner.Token != 0 {
		owner := newShardOut(s, sessions(v))
		l := x.lease(s.Owner.Token)
		l.Session, l.Node = owner.Session, owner.Node
	}
	out := historyOut{Shard: shard, Owners: []driver.Grant{}, Oldest: oldest, Cut: x.cut, Leases: []*historyLease{}}
	t := &table{}
	if h, ok := b.(driver.Historian); ok {
		found, err := call(ctx, a, func(ctx context.Context) ([]driver.Grant, error) { return h.History(ctx, shard) })
		if d, ok := errors.AsType[*driver.DamagedError](err); ok {
			out.Damage = d.Why
		} else if err != nil {
			return err
		}
		out.Owners = append(out.Owners, found...)
		t.add("NODE", "SINCE", "UNTIL", "END")
		for _, g := range out.Owners {
			until := ""
			if g.End != "" {
				until = clock(g.Until)
			}
			t.add(cmp.Or(g.Node, unknown), clock(g.Since), until, g.End)
		}
		if out.Damage != "" {
			t.add("damaged: " + out.Damage)
		}
		t.add()
	}
	for _, l := range x.leases {
		out.Leases = append(out.Leases, l)
	}
	slices.SortFunc(out.Leases, func(a, b *historyLease) int { return cmp.Compare(a.Token, b.Token) })
	t.add("TOKEN", "NODE", "ENTRIES", "FROM", "TO", "RULES")
	for _, l := range out.Leases {
		from, to := "", ""
		if l.Entries > 0 {
			from, to = fmt.Sprint(l.First), fmt.Sprint(l.Last)
		}
		t.add(l.Token, l.Node, l.Entries, from, to, rulesText(l.Rules))
	}
	if out.Cut {
		t.add(fmt.Sprintf("entries before %d were not read: give --limit 0 to read all", oldest))
	}
	return a.print(out, t)
}

const unknown = "unknown" // the store does not know the value

func clock(t time.Time) string {
	if t.Unix() <= 0 {
		return unknown
	}
	return t.UTC().Format(time.RFC3339)
}

func rulesText(changes []operator.Change) string {
	text := ""
	for _, c := range changes {
		what := string(c.Rule.Kind)
		if c.Rule.Node != "" {
			what += " to " + c.Rule.Node
		}
		if c.Removed {
			what += ", taken back"
		}
		if text != "" {
			text += "; "
		}
		if c.Removed {
			text += what + " by " + c.By
			continue
		}
		text += what + " " + ruleText(c.Rule)
	}
	return text
}

type historian struct {
	a      *app
	b      core.Backend
	leases map[core.Token]*historyLease
	cut    bool // the limit left out entries of the shard
}

func (x *historian) lease(t core.Token) *historyLease {
	l := x.leases[t]
	if l == nil {
		l = &historyLease{Token: t}
		x.leases[t] = l
	}
	return l
}

// The log's newest entries, up to the limit, are passed to the function. The lease of the last
// commit is recorded. The result is the first entry's number, or 0 if there is no entry.
func (x *historian) entries(ctx context.Context, shard core.ShardID, limit core.Seq, each func(*core.Entry)) (core.Seq, error) {
	r := &logReader{a: x.a, b: x.b, shard: shard}
	head, err := r.page(ctx, 0, 0)
	if err != nil {
		return 0, err
	}
	if shard != control.Shard && head.Head.Token != 0 {
		x.lease(head.Head.Token)
	}
	r.after = max(head.Head.Oldest, 1) - 1
	if limit > 0 && head.Head.Seq-limit > r.after {
		r.after = head.Head.Seq - limit
		x.cut = x.cut || shard != control.Shard
	}
	first := core.Seq(0)
	for r.after < head.Head.Seq {
		p, err := call(ctx, x.a, func(ctx context.Context) (*core.LogPage, error) {
			return x.b.ReadLog(ctx, shard, r.after, pageSize)
		})
		if trimmed, ok := errors.AsType[*driver.TrimmedError](err); ok && trimmed.Oldest > r.after+1 { // the log was trimmed in the meantime
			r.after = trimmed.Oldest - 1
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("shard %q: read the log: %w", shard, err)
		}
		if len(p.Entries) == 0 {
			return 0, exit(exitDamaged, fmt.Sprintf("shard %q: the log ends at entry %d, and its head says %d: run tenure verify",
				shard, r.after, head.Head.Seq))
		}
		for i := range p.Entries {
			r.after = p.Entries[i].Seq
			first = cmp.Or(first, r.after)
			each(&p.Entries[i])
		}
	}
	return first, nil
}

func decodeChange(payload []byte) (c operator.Change, err error) {
	err = boundjson.Unmarshal(payload, 2*control.MaxRecord, 512, &c)
	return c, err
}
