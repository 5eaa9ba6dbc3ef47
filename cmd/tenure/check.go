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
	"github.com/tenure-go/tenure/core/driver"
)

func (a *app) checkCommands() []*cobra.Command {
	initialise := &cobra.Command{Use: "init",
		Short: "Make the namespace, and its tables where the store has any, if they are missing", Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.initialise(cmd.Context()) }}
	initialise.Flags().BoolP("yes", "y", false, "taken as by the other commands that write; init asks nothing")
	doctor := &cobra.Command{Use: "doctor",
		Short: "Check the configuration, the store, its round trip, limits and settings, and this user's rights", Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.with(cmd, a.doctor) }}
	verify := &cobra.Command{Use: "verify",
		Short: "Read every log and item, and compare them with the heads and tokens", Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.with(cmd, a.verify) }}
	var noLogs, noItems bool
	export := &cobra.Command{Use: "export", Short: "Write everything that the namespace holds, as lines of JSON",
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.with(cmd, func(ctx context.Context, b core.Backend) error {
				return a.export(ctx, b, !noItems,
					!noLogs)
			})
		}}
	export.Flags().BoolVar(&noLogs, "no-logs", false, "leave out the logs' entries")
	export.Flags().BoolVar(&noItems, "no-items", false, "leave out items")
	return []*cobra.Command{initialise, doctor, verify, export}
}

func (a *app) initialise(ctx context.Context) error {
	a.hasty = true
	b, err := a.openAs(ctx, true)
	if err != nil {
		return err
	}
	info := b.Info()
	t := &table{}
	t.add("backend", info.Backend)
	t.add("namespace", info.Namespace)
	t.add("store", info.StoreID)
	return errors.Join(a.print(map[string]string{"backend": info.Backend, "namespace": info.Namespace,
		"store_id": info.StoreID}, t), b.Close())
}

type doctorOut struct {
	Backend    string `json:"backend"`
	Namespace  string `json:"namespace"`
	StoreID    string `json:"store_id"`
	RoundTrip  string `json:"round_trip"`         // the median round trip of the reads
	Slowest    string `json:"slowest_round_trip"` // the slowest round trip of the reads
	MinTTL     string `json:"min_ttl"`
	Poll       string `json:"poll"`
	WriteOps   int    `json:"write_ops"`
	WriteBytes int    `json:"write_bytes"`
	Rights     string `json:"rights"`
	// Findings describe the store's settings, permissions and clocks. Findings with a remedy also
	// appear in Warnings.
	Findings []driver.Finding `json:"findings"`
	Warnings []string         `json:"warnings"`
}

const trips = 9 // number of reads that the command doctor times

func (a *app) doctor(ctx context.Context, b core.Backend) error {
	info := b.Info()
	var took []time.Duration
	for range trips {
		began := time.Now()
		if _, err := call(ctx, a, func(ctx context.Context) (*core.Item, error) {
			return b.Get(ctx, driver.PingShard,
				"0")
		}); err != nil {
			return fmt.Errorf("read from the store: %w", err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	v, err := a.state(ctx, b)
	if err != nil {
		return err
	}
	l := info.Limits
	o := doctorOut{Backend: info.Backend, Namespace: info.Namespace, StoreID: info.StoreID,
		RoundTrip: took[trips/2].String(), Slowest: took[trips-1].String(), MinTTL: l.MinTTL.String(),
		Poll:     l.PollPeriod.String(),
		WriteOps: l.WriteOps, WriteBytes: l.WriteBytes,
		Rights:   "read and conditional write, tried when the store was opened",
		Warnings: append([]string{}, a.conf.Warnings()...)}
	ttl := a.conf.Options().TTL
	if ttl == 0 {
		ttl = 10 * time.Second
	}
	if slowest := took[trips-1]; slowest > ttl/6 {
		o.Warnings = append(o.Warnings,
			fmt.Sprintf("a read took %v, more than a sixth of the TTL %v: raise ttl, or move nearer to the store",
				slowest, ttl))
	}
	for _, d := range v.Damaged {
		o.Warnings = append(o.Warnings, d.Error())
	}
	if o.Findings, err = a.examine(ctx, b); err != nil {
		return err
	}
	t := &table{}
	t.add("backend", o.Backend)
	t.add("namespace", o.Namespace)
	t.add("store", o.StoreID)
	t.add("round trip", fmt.Sprintf("%s, at most %s of %d", o.RoundTrip, o.Slowest, trips))
	t.add("shortest ttl", o.MinTTL)
	t.add("poll period", o.Poll)
	t.add("one commit", fmt.Sprintf("%s operations, %s bytes", bound(o.WriteOps), bound(o.WriteBytes)))
	t.add("rights", o.Rights)
	for _, f := range o.Findings {
		t.add(f.Name, f.Value)
		if f.Remedy != "" {
			o.Warnings = append(o.Warnings, fmt.Sprintf("%s: %s: %s", f.Name, f.Value, f.Remedy))
		}
	}
	for _, w := range o.Warnings {
		t.add("warning", w)
	}
	if err := a.print(o, t); err != nil || len(v.Damaged) == 0 {
		return err
	}
	return exit(exitDamaged, fmt.Sprintf("%s cannot be read: docs/operations.md says how to mend damaged records",
		counted(len(v.Damaged), "record")))
}

// examine looks for a wrong clock, missing permissions, and settings that lose writes.
func (a *app) examine(ctx context.Context, b core.Backend) ([]driver.Finding, error) {
	x, ok := b.(driver.Examiner)
	if !ok {
		return []driver.Finding{}, nil
	}
	found, err := call(ctx, a, x.Examine)
	if err != nil {
		return nil, fmt.Errorf("examine the store: %w", err)
	}
	return found, nil
}

// A bound of 0 means that there is no limit.
func bound(n int) string {
	if n <= 0 {
		return "any number of"
	}
	return fmt.Sprint(n)
}

type verifyOut struct {
	Shards   int      `json:"shards"`
	Entries  int      `json:"entries"`
	Items    int      `json:"items"`
	Problems []string `json:"problems"`
}

// The members may run while verify checks the namespace. Because verify reads each shard's log
// before its record, a record that is older than the log shows damage.
func (a *app) verify(ctx context.Context, b core.Backend) error {
	before, err := a.state(ctx, b)
	if err != nil {
		return err
	}
	x := &verifier{a: a, b: b, tokens: map[core.ShardID]core.Token{}}
	x.out.Problems = []string{}
	for _, s := range before.Shards {
		if err := x.shard(ctx, s.Shard); err != nil {
			return err
		}
	}
	after, err := a.state(ctx, b)
	if err != nil {
		return err
	}
	x.records(before, after)
	t := &table{}
	t.add("shards", x.out.Shards)
	t.add("entries", x.out.Entries)
	t.add("items", x.out.Items)
	t.add("problems", len(x.out.Problems))
	for _, p := range x.out.Problems {
		t.add("problem", p)
	}
	if err := a.print(x.out, t); err != nil || len(x.out.Problems) == 0 {
		return err
	}
	return exit(exitDamaged, fmt.Sprintf("%s: docs/operations.md says what to do about damaged records",
		counted(len(x.out.Problems), "problem")))
}

type verifier struct {
	a      *app
	b      core.Backend
	out    verifyOut
	tokens map[core.ShardID]core.Token // the largest token seen in the shard's log or head
}

func (x *verifier) problem(format string, args ...any) {
	x.out.Problems = append(x.out.Problems, fmt.Sprintf(format, args...))
}

func (x *verifier) shard(ctx context.Context, s core.ShardID) error {
	x.out.Shards++
	items, err := call(ctx, x.a, func(ctx context.Context) ([]core.Item, error) { return x.b.List(ctx, s, "", 0, 1) })
	switch {
	case errors.Is(err, core.ErrDamaged):
		x.problem("shard %s: items: %v", s, err)
	case err != nil:
		return fmt.Errorf("shard %q: list items: %w", s, err)
	}
	x.out.Items += len(items)
	l := &logWalk{x: x, shard: s}
	head, err := l.page(ctx, 0, 0)
	if err != nil || head == nil {
		return err
	}
	l.after = max(head.Head.Oldest, 1) - 1
	for range maxEmpty {
		more, err := l.next(ctx)
		for err == nil && more {
			more, err = l.next(ctx)
		}
		if err != nil || l.whole {
			return err
		}
		if err := pause(ctx, pauseFor/5); err != nil { // the head may be newer than the page
			return err
		}
	}
	x.problem("shard %s: the log ends at entry %d, and its head says %d", s, l.after, l.head.Seq)
	return nil
}

const maxEmpty = 5 // number of consecutive empty pages below the head that show a gap

type logWalk struct {
	x     *verifier
	shard core.ShardID
	after core.Seq
	token core.Token
	no    driver.WriteNo
	head  core.Head
	whole bool // the log was read to its end, or is unreadable
}

// If a log is damaged, page records a problem and returns nil without an error.
func (l *logWalk) page(ctx context.Context, after core.Seq, most int) (*core.LogPage, error) {
	p, err := call(ctx, l.x.a, func(ctx context.Context) (*core.LogPage, error) {
		return l.x.b.ReadLog(ctx, l.shard,
			after, most)
	})
	switch {
	case errors.Is(err, core.ErrDamaged):
		l.x.problem("shard %s: log: %v", l.shard, err)
		return nil, nil
	case err != nil && !errors.Is(err, core.ErrTrimmed):
		return nil, fmt.Errorf("shard %q: read the log: %w", l.shard, err)
	}
	return p, err
}

// At the end of the log, next returns false.
func (l *logWalk) next(ctx context.Context) (bool, error) {
	p, err := l.page(ctx, l.after, pageSize)
	var trimmed *core.TrimmedError
	switch {
	case errors.As(err, &trimmed): // the log was trimmed since the last page
		if trimmed.Oldest <= l.after+1 {
			l.x.problem("shard %s: entry %d is said to be trimmed, and the oldest is %d", l.shard, l.after+1,
				trimmed.Oldest)
			l.whole = true
			return false, nil
		}
		l.after = trimmed.Oldest - 1
		return true, nil
	case err != nil:
		return false, err
	case p == nil:
		l.whole = true
		return false, nil
	}
	l.head = p.Head
	for i := range p.Entries {
		e := &p.Entries[i]
		if e.Seq != l.after+1 {
			l.x.problem("shard %s: entry %d follows entry %d: a gap", l.shard, e.Seq, l.after)
		}
		if e.Token < l.token {
			l.x.problem("shard %s: entry %d has token %d, below %d of the one before", l.shard, e.Seq, e.Token, l.token)
		}
		if e.Number < l.no {
			l.x.problem("shard %s: entry %d is of commit %d, before %d", l.shard, e.Seq, e.Number, l.no)
		}
		l.after, l.token, l.no = e.Seq, max(l.token, e.Token), max(l.no, e.Number)
		l.x.out.Entries++
	}
	if len(p.Entries) > 0 {
		return true, nil
	}
	l.whole = l.head.Seq <= l.after
	switch {
	case l.head.Seq < l.after:
		l.x.problem("shard %s: the log has entry %d, and its head says %d", l.shard, l.after, l.head.Seq)
	case l.whole && l.head.Token < l.token:
		l.x.problem("shard %s: the head has token %d, and the log %d", l.shard, l.head.Token, l.token)
	case l.whole && l.head.Number < l.no:
		l.x.problem("shard %s: the head is of commit %d, and the log of %d", l.shard, l.head.Number, l.no)
	}
	l.x.tokens[l.shard] = max(l.token, l.head.Token)
	return false, nil
}

// The tokens in the shards' records must not be lower than tokens that verify has already seen.
func (x *verifier) records(before, after *driver.View) {
	now := map[core.ShardID]core.Token{}
	for _, s := range after.Shards {
		now[s.Shard] = s.Owner.Token
		if t := x.tokens[s.Shard]; s.Owner.Token < t {
			x.problem("shard %s: the record has token %d, and a commit %d", s.Shard, s.Owner.Token, t)
		}
	}
	for _, s := range before.Shards {
		if t, ok := now[s.Shard]; ok && t < s.Owner.Token {
			x.problem("shard %s: the token went back from %d to %d", s.Shard, s.Owner.Token, t)
		}
	}
	for _, d := range after.Damaged {
		x.problem("%v", d)
	}
}

// The output contains the namespace, the members, and the shards as lines of JSON. Items and log
// entries are optional.
func (a *app) export(ctx context.Context, b core.Backend, items, logs bool) error {
	v, err := a.state(ctx, b)
	if err != nil {
		return err
	}
	info := b.Info()
	err = a.record(map[string]any{"kind": "namespace", "backend": info.Backend, "namespace": info.Namespace,
		"store_id": info.StoreID, "floor": v.Floor})
	for i := range v.Members {
		err = errors.Join(err, a.record(map[string]any{"kind": "member", "member": v.Members[i]}))
	}
	if err != nil {
		return err
	}
	var leftOut error
	for _, s := range v.Shards {
		err := a.exportShard(ctx, b, s, items, logs)
		if code, ok := errors.AsType[*exitError](err); ok && code.code == exitDamaged {
			leftOut = cmp.Or(leftOut, err) // export continues with the other shards
		} else if err != nil {
			return err
		}
	}
	return leftOut
}

func (a *app) record(v any) error {
	text, err := asJSON(v, "")
	return errors.Join(err, a.write(text))
}

func (a *app) exportShard(ctx context.Context, b core.Backend, s driver.ShardState, items,
	logs bool) error {
	r := &logReader{a: a, b: b, shard: s.Shard}
	head, err := r.page(ctx, 0, 0)
	if err != nil {
		return err
	}
	if err := a.record(map[string]any{"kind": "shard", "shard": s.Shard, "owner": s.Owner,
		"head": head.Head}); err != nil {
		return err
	}
	var leftOut error
	if items {
		list, left, err := a.listItems(ctx, b, s.Shard, "")
		if err != nil {
			return err
		}
		leftOut = left
		for _, i := range list {
			if err := a.record(struct {
				Kind  string       `json:"kind"`
				Shard core.ShardID `json:"shard"`
				itemOut
			}{"item", s.Shard, i}); err != nil {
				return err
			}
		}
	}
	r.after = max(head.Head.Oldest, 1) - 1
	for logs && r.after < head.Head.Seq {
		p, err := r.page(ctx, r.after, pageSize)
		if err != nil {
			return err
		}
		if len(p.Entries) == 0 {
			return exit(exitDamaged,
				fmt.Sprintf("shard %q: the log ends at entry %d, and its head says %d: run tenure verify", s.Shard,
					r.after, head.Head.Seq))
		}
		for i := range p.Entries {
			r.after = p.Entries[i].Seq
			if err := a.record(struct {
				Kind string `json:"kind"`
				entryOut
			}{"entry", newEntryOut(&p.Entries[i])}); err != nil {
				return err
			}
		}
	}
	return leftOut
}
