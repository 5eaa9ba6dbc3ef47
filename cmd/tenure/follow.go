package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

type entryOut struct {
	Shard   core.ShardID   `json:"shard"`
	Seq     core.Seq       `json:"seq"`
	Token   core.Token     `json:"token"`
	Number  driver.WriteNo `json:"number"`
	Payload payload        `json:"payload"`
}

func newEntryOut(e *core.Entry) entryOut {
	return entryOut{e.Shard, e.Seq, e.Token, e.Number, newPayload(e.Payload)}
}

func (a *app) logCommand() *cobra.Command {
	var after int64
	var limit int
	var last int64
	var follow bool
	c := &cobra.Command{Use: "log SHARD", Short: "Show the entries of a shard's decision log", Args: args("SHARD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if after < -1 {
				return usage(fmt.Sprintf("--after %d is negative: give the number of an entry, or leave it out", after))
			}
			if limit < 0 {
				return usage(fmt.Sprintf("--limit %d is negative: give 0 for all", limit))
			}
			if last < 0 || last > 0 && after >= 0 {
				return usage(fmt.Sprintf("--last %d: give 0 or more, and leave out --after", last))
			}
			return a.onShard(cmd, args[0], func(ctx context.Context, b core.Backend, s core.ShardID) error {
				r := &logReader{a: a, b: b, shard: s, after: core.Seq(after), last: core.Seq(last), left: limit, all: limit == 0}
				err := r.run(ctx, after < 0, follow)
				if follow && ctx.Err() != nil {
					return nil // the normal end of the command
				}
				return err
			})
		}}
	c.Flags().Int64Var(&after, "after", -1, "the number of the entry before the first; default: from the oldest")
	c.Flags().Int64Var(&last, "last", 0, "begin with the newest so many entries; 0: with the oldest")
	c.Flags().IntVar(&limit, "limit", 0, "at most so many entries; 0: all")
	c.Flags().BoolVarP(&follow, "follow", "f", false, "go on with entries as they are appended")
	return c
}

const (
	pageSize = 256
	lookFor  = 30 * time.Second // the longest wait, because a hint may be lost
	pauseFor = 500 * time.Millisecond
)

type logReader struct {
	a      *app
	b      core.Backend
	shard  core.ShardID
	after  core.Seq
	last   core.Seq
	left   int
	all    bool
	cursor driver.Cursor
}

func (r *logReader) run(ctx context.Context, fromOldest, follow bool) error {
	head, err := r.page(ctx, 0, 0)
	if err != nil {
		return err
	}
	if head.Head == (core.Head{}) && !follow {
		return r.a.known(ctx, r.b, r.shard)
	}
	if fromOldest {
		r.after = max(head.Head.Oldest, 1) - 1
	}
	if r.last > 0 {
		r.after = max(r.after, head.Head.Seq-r.last)
	}
	for {
		if err := r.catchUp(ctx); err != nil || !follow || r.done() {
			return err
		}
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
}

func (r *logReader) done() bool { return !r.all && r.left <= 0 }

func (r *logReader) page(ctx context.Context, after core.Seq, most int) (*core.LogPage, error) {
	p, err := call(ctx, r.a, func(ctx context.Context) (*core.LogPage, error) {
		return r.b.ReadLog(ctx, r.shard,
			after, most)
	})
	var trimmed *core.TrimmedError
	if errors.As(err, &trimmed) {
		return nil, fmt.Errorf("shard %q: entry %d was trimmed: the oldest that is left is %d: use --after %d: %w",
			r.shard, after+1,
			trimmed.Oldest, trimmed.Oldest-1, core.ErrTrimmed)
	}
	if err != nil {
		return nil, fmt.Errorf("shard %q: read the log: %w", r.shard, err)
	}
	return p, nil
}

func (r *logReader) catchUp(ctx context.Context) error {
	for !r.done() {
		most := pageSize
		if !r.all {
			most = min(most, r.left)
		}
		p, err := r.page(ctx, r.after, most)
		if err != nil || len(p.Entries) == 0 {
			return err
		}
		for i := range p.Entries {
			e := &p.Entries[i]
			o := newEntryOut(e)
			if err := r.a.line(o, fmt.Sprintf("%d\ttoken %d\t%s", e.Seq, e.Token,
				printable(o.Payload.String()))); err != nil {
				return err
			}
			r.after = e.Seq
			r.left--
		}
	}
	return nil
}

// After wait returns, the log may have new entries.
func (r *logReader) wait(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	for {
		p, err := r.b.TailLog(limited, r.cursor, pageSize)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case limited.Err() != nil:
			return nil
		case err != nil && core.NotApplied(err) && !errors.Is(err, core.ErrRetry):
			return fmt.Errorf("shard %q: follow the log: %w", r.shard, err)
		case err != nil:
			return pause(ctx, pauseFor)
		}
		r.cursor = p.Cursor
		if p.Reset || slices.ContainsFunc(p.Entries, func(e core.Entry) bool { return e.Shard == r.shard }) {
			return nil
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type changeOut struct {
	Time    time.Time      `json:"time"` // when this process saw the change, by its clock
	Kind    string         `json:"kind"` // one of joined, updated, gone, owned and free
	Shard   core.ShardID   `json:"shard,omitempty"`
	Node    string         `json:"node,omitempty"`
	Session core.SessionID `json:"session,omitempty"`
	Token   core.Token     `json:"token,omitempty"`
}

func (a *app) watchCommand() *cobra.Command {
	var once time.Duration
	c := &cobra.Command{Use: "watch", Short: "Show changes of members and owners until interrupted", Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if once < 0 {
				return usage(fmt.Sprintf("--for %v is negative: leave it out to watch until interrupted", once))
			}
			return a.with(cmd, func(ctx context.Context, b core.Backend) error {
				if once > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, once)
					defer cancel()
				}
				w := &watcher{a: a, b: b, members: map[core.SessionID]core.Member{},
					shards: map[core.ShardID]driver.Owner{}}
				err := w.run(ctx)
				if ctx.Err() != nil {
					return nil // the normal end of the command
				}
				return err
			})
		}}
	c.Flags().DurationVar(&once, "for", 0, "end after this time")
	return c
}

type watcher struct {
	a       *app
	b       core.Backend
	cursor  driver.Cursor
	members map[core.SessionID]core.Member
	shards  map[core.ShardID]driver.Owner
}

func (w *watcher) run(ctx context.Context) error {
	for {
		v, err := w.b.Observe(ctx, driver.ObserveQuery{Since: w.cursor})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && core.NotApplied(err) && !errors.Is(err, core.ErrRetry):
			return fmt.Errorf("watch the namespace: %w", err)
		case err != nil:
			_, _ = fmt.Fprintln(w.a.errs, w.a.oneLine(fmt.Errorf("watch the namespace: %w: tried again", err)))
			if err := pause(ctx, pauseFor); err != nil {
				return err
			}
			continue
		}
		w.cursor = v.Cursor
		if err := w.show(v); err != nil {
			return err
		}
	}
}

func (w *watcher) show(v *driver.View) error {
	now := time.Now()
	var out []changeOut
	gone := v.Gone
	if v.Reset {
		live := sessions(v)
		for _, s := range slices.Sorted(maps.Keys(w.members)) {
			if live[s] == nil {
				gone = append(gone, s)
			}
		}
	}
	for _, m := range v.Members {
		old, known := w.members[m.Session]
		w.members[m.Session] = m
		switch {
		case !known:
			out = append(out, changeOut{Time: now, Kind: "joined", Node: m.Node, Session: m.Session})
		case old.Update != m.Update:
			out = append(out, changeOut{Time: now, Kind: "updated", Node: m.Node, Session: m.Session})
		}
	}
	for _, s := range gone {
		if m, known := w.members[s]; known {
			delete(w.members, s)
			out = append(out, changeOut{Time: now, Kind: "gone", Node: m.Node, Session: s})
		}
	}
	for _, s := range v.Shards {
		if w.shards[s.Shard] == s.Owner {
			continue
		}
		w.shards[s.Shard] = s.Owner
		c := changeOut{Time: now, Kind: "owned", Shard: s.Shard, Session: s.Owner.Session, Token: s.Owner.Token,
			Node: w.members[s.Owner.Session].Node}
		if c.Session == "" {
			c.Kind = "free"
		}
		out = append(out, c)
	}
	for _, c := range out {
		text := fmt.Sprintf("%s %-8s", c.Time.Format("15:04:05.000"), c.Kind)
		if c.Shard != "" {
			text += fmt.Sprintf(" %s token %d", c.Shard, c.Token)
		}
		text += fmt.Sprintf(" %s %s", printable(c.Node), printable(string(c.Session)))
		if err := w.a.line(c, text); err != nil {
			return err
		}
	}
	return nil
}
