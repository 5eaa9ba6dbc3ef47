package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/mark"
	"github.com/tenure-go/tenure/internal/seam"
)

func (a *app) readCommands() []*cobra.Command {
	status := &cobra.Command{Use: "status", Short: "Count members and shards, and say who is silent",
		Long: `Count members and shards, and say who is silent.

A member's record says nothing of whether it runs, so status waits for a heartbeat of each:
about a third of the TTL where all run, and the longest TTL at the most. A shard of a silent
member counts as unowned. The exit code is 7 if a member is silent or in trouble, if there is none,
or if a shard is in quarantine.`,
		Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.with(cmd, a.status) }}
	members := &cobra.Command{Use: "members", Short: "List the members that have a session", Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.with(cmd, a.members) }}
	var all, locks bool
	var node string
	shards := &cobra.Command{Use: "shards", Short: "List the shards and their owners", Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all && locks {
				return usage("--all lists shards and --locks lists locks: choose one")
			}
			if node != "" {
				if err := driver.CheckNode(node); err != nil {
					return err
				}
			}
			return a.with(cmd, func(ctx context.Context, b core.Backend) error {
				if locks {
					return a.locks(ctx, b, node)
				}
				return a.shards(ctx, b, all, node)
			})
		}}
	shards.Flags().BoolVar(&all, "all", false, `also those that are Tenure's own, whose names begin with "_"`)
	shards.Flags().BoolVar(&locks, "locks", false, "the locks that are held instead")
	shards.Flags().StringVar(&node, "node", "", "only those of this node")
	who := &cobra.Command{Use: "who SHARD", Short: "Say who owns a shard; exit code 3 if nobody does",
		Args: args("SHARD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onShard(cmd, args[0], a.who)
		}}
	ranges := &cobra.Command{Use: "ranges", Short: "List the ranges of the keyspace, and which shard answers for each", Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.with(cmd, a.ranges) }}
	var prefix string
	items := &cobra.Command{Use: "items SHARD", Short: "List the items of a shard", Args: args("SHARD"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := driver.CheckPrefix(prefix); err != nil {
				return err
			}
			return a.onShard(cmd, args[0], func(ctx context.Context, b core.Backend, s core.ShardID) error {
				return a.items(ctx, b, s, prefix)
			})
		}}
	items.Flags().StringVar(&prefix, "prefix", "", "only those whose key begins with this")
	return []*cobra.Command{status, members, shards, ranges, who, items, a.logCommand(), a.historyCommand(), a.watchCommand()}
}

func (a *app) onShard(cmd *cobra.Command, shard string, do func(context.Context, core.Backend,
	core.ShardID) error) error {
	s, err := shardArg(shard)
	if err != nil {
		return err
	}
	return a.with(cmd, func(ctx context.Context, b core.Backend) error { return do(ctx, b, s) })
}

func sessions(v *driver.View) map[core.SessionID]*core.Member {
	m := make(map[core.SessionID]*core.Member, len(v.Members))
	for i := range v.Members {
		m[v.Members[i].Session] = &v.Members[i]
	}
	return m
}

type memberOut struct {
	Node     string         `json:"node"`
	Session  core.SessionID `json:"session"`
	Version  core.Version   `json:"version"`
	TTL      string         `json:"ttl"`
	Priority int32          `json:"priority"`
	Weight   int32          `json:"weight"`
	Draining bool           `json:"draining"` // the member itself requested a drain, for example because it is leaving
	// Drained is the operators' rule that drains the member's node, if any.
	Drained *control.Rule `json:"drained,omitempty"`
	// Ineligible explains why the member may not own shards, and is omitted if the member is
	// eligible.
	Ineligible string            `json:"ineligible,omitempty"`
	Shards     int               `json:"shards"`
	Meta       map[string]string `json:"meta,omitempty"` // without the reason why the member is not eligible
}

func (a *app) members(ctx context.Context, b core.Backend) error {
	v, err := a.state(ctx, b)
	if err != nil {
		return err
	}
	versions, err := a.versions(ctx, b, v)
	if err != nil {
		return err
	}
	rules, err := call(ctx, a, func(ctx context.Context) ([]control.Rule, error) { return control.Read(ctx, b) })
	if err != nil && rules == nil {
		return err
	}
	drained := map[string]*control.Rule{}
	for i := range rules {
		if r := &rules[i]; r.Kind == control.Drain && r.Active(time.Now()) {
			drained[r.Node] = r
		}
	}
	owned := map[core.SessionID]int{}
	for _, s := range v.Shards {
		owned[s.Owner.Session]++
	}
	out := []memberOut{}
	t := &table{head: []string{"NODE", "SESSION", "VERSION", "TTL", "PRIORITY", "WEIGHT", "DRAINING", "NOT ELIGIBLE", "SHARDS", "META"}}
	for _, m := range v.Members {
		o := memberOut{m.Node, m.Session, versions[m.Session], m.TTL.String(), m.Priority, m.Weight, m.Draining, drained[m.Node],
			m.Ineligible(), owned[m.Session], maps.Clone(m.Meta)}
		delete(o.Meta, mark.IneligibleKey)
		delete(o.Meta, mark.TroubleKey)
		out = append(out, o)
		var meta []string
		for _, k := range slices.Sorted(maps.Keys(o.Meta)) {
			meta = append(meta, k+"="+o.Meta[k])
		}
		draining := fmt.Sprint(o.Draining)
		if o.Drained != nil {
			draining = "rule " + ruleText(*o.Drained)
		}
		t.add(o.Node, o.Session, o.Version, o.TTL, o.Priority, o.Weight, draining, o.Ineligible, o.Shards, strings.Join(meta, " "))
	}
	return a.print(out, t)
}

// The versions are those of the members' latest heartbeats.
func (a *app) versions(ctx context.Context, b core.Backend, v *driver.View) (map[core.SessionID]core.Version, error) {
	out := map[core.SessionID]core.Version{}
	if len(v.Members) == 0 {
		return out, nil
	}
	q := driver.ObserveQuery{Since: v.Cursor}
	for _, m := range v.Members {
		q.Beats = append(q.Beats, driver.Beat{Session: m.Session})
	}
	// A session that has just ended has no heartbeat, so the call may wait for a change.
	limited, cancel := context.WithTimeout(ctx, min(a.timeout, 5*time.Second))
	defer cancel()
	page, err := b.Observe(limited, q)
	if err != nil {
		if limited.Err() != nil && ctx.Err() == nil {
			return out, nil
		}
		return nil, fmt.Errorf("read the heartbeats: %w", err)
	}
	for _, x := range page.Beats {
		out[x.Session] = x.Version
	}
	return out, nil
}

type shardOut struct {
	Shard   core.ShardID   `json:"shard"`
	Node    string         `json:"node"` // empty if the owner is not alive
	Session core.SessionID `json:"session"`
	Token   core.Token     `json:"token"`
	// Trouble is an owner's problem that requires human action, if any.
	Trouble string `json:"trouble,omitempty"`
	// Aside explains why the shard should have no owner, and is omitted if the shard should have an
	// owner. AsideUntil is the time at which the reason ends, such as the end of a quarantine, and
	// is omitted if the reason is permanent.
	Aside      string    `json:"aside,omitempty"`
	AsideUntil time.Time `json:"aside_until,omitzero"`
}

func (o *shardOut) setAside(why func(shard string) seam.Aside) {
	if x := why(string(o.Shard)); o.Node == "" {
		o.Aside, o.AsideUntil = x.Why, x.Until
	}
}

func (a *app) shards(ctx context.Context, b core.Backend, all bool, node string) error {
	v, err := a.state(ctx, b)
	if err != nil {
		return err
	}
	why, failed := a.aside(ctx, b)
	if failed != nil && !damaged(failed) {
		return failed
	}
	live := sessions(v)
	out := []shardOut{}
	t := &table{head: []string{"SHARD", "NODE", "SESSION", "TOKEN", "SET ASIDE"}}
	for _, s := range v.Shards {
		o := newShardOut(s, live)
		o.setAside(why)
		if driver.IsLock(s.Shard) || !all && driver.Reserved(string(s.Shard)) || node != "" && node != o.Node {
			continue
		}
		out = append(out, o)
		t.add(o.Shard, o.Node, o.Session, o.Token, o.Aside)
	}
	return errors.Join(a.print(out, t), failed)
}

type lockOut struct {
	Lock    string         `json:"lock"`
	Node    string         `json:"node"`
	Session core.SessionID `json:"session"`
	Token   core.Token     `json:"token"`
}

// Only held locks are listed, because a store may remove the records of free locks at any time.
func (a *app) locks(ctx context.Context, b core.Backend, node string) error {
	v, err := a.state(ctx, b)
	if err != nil {
		return err
	}
	live := sessions(v)
	out := []lockOut{}
	t := &table{head: []string{"LOCK", "NODE", "SESSION", "TOKEN"}}
	for _, s := range v.Shards {
		name, lock := strings.CutPrefix(string(s.Shard), driver.LockPrefix)
		m := live[s.Owner.Session]
		if !lock || m == nil || node != "" && node != m.Node {
			continue
		}
		out = append(out, lockOut{name, m.Node, s.Owner.Session, s.Owner.Token})
		t.add(name, m.Node, s.Owner.Session, s.Owner.Token)
	}
	return a.print(out, t)
}

func newShardOut(s driver.ShardState, live map[core.SessionID]*core.Member) shardOut {
	o := shardOut{Shard: s.Shard, Session: s.Owner.Session, Token: s.Owner.Token}
	if m := live[s.Owner.Session]; m != nil {
		o.Node, o.Trouble = m.Node, m.Trouble()
	}
	return o
}

func (a *app) who(ctx context.Context, b core.Backend, shard core.ShardID) error {
	v, err := a.state(ctx, b)
	if err != nil {
		return err
	}
	s, err := find(v, shard)
	if err != nil {
		return err
	}
	o := newShardOut(s, sessions(v))
	why, failed := a.aside(ctx, b)
	if failed != nil && !damaged(failed) {
		return failed
	}
	o.setAside(why)
	t := &table{}
	t.add("shard", o.Shard)
	t.add("node", o.Node)
	t.add("session", o.Session)
	t.add("token", o.Token)
	if o.Trouble != "" {
		t.add("trouble", o.Trouble)
	}
	if err := a.print(o, t); err != nil {
		return err
	}
	if o.Aside != "" {
		return notFound(fmt.Sprintf("nobody owns shard %q: %s", shard, o.Aside))
	}
	if o.Node == "" {
		return notFound(fmt.Sprintf("nobody owns shard %q at present: its last token is %d", o.Shard, o.Token))
	}
	return nil
}

func find(v *driver.View, shard core.ShardID) (driver.ShardState, error) {
	at := func(id core.ShardID) (int, bool) {
		return slices.BinarySearchFunc(v.Shards, id, func(s driver.ShardState, id core.ShardID) int { return cmp.Compare(s.Shard, id) })
	}
	i, ok := at(shard)
	if !ok {
		for _, d := range v.Damaged {
			if d.Shard == shard {
				return driver.ShardState{}, d
			}
		}
		lists := "tenure shards lists those that were"
		if _, ok := at(driver.LockPrefix + shard); ok {
			lists = fmt.Sprintf("the lock of that name is %q", driver.LockPrefix+shard)
		}
		return driver.ShardState{}, notFound(fmt.Sprintf("shard %q was never owned in this namespace: %s", shard, lists))
	}
	return v.Shards[i], nil
}

type itemOut struct {
	Key     string       `json:"key"`
	Version core.Version `json:"version"`
	Value   payload      `json:"value"`
	// Damaged explains why the value is missing, and is omitted if the value is present.
	Damaged *driver.DamagedError `json:"damaged,omitempty"`
}

// listItems omits values that are too long for a commit, and describes them in the error leftOut.
func (a *app) listItems(ctx context.Context, b core.Backend, shard core.ShardID, prefix string) (list []itemOut, leftOut, err error) {
	most := cmp.Or(b.Info().Limits.WriteBytes, driver.MaxListBytes)
	items, err := call(ctx, a, func(ctx context.Context) ([]core.Item, error) { return b.List(ctx, shard, prefix, 0, most) })
	if err != nil {
		return nil, nil, fmt.Errorf("shard %q: list items: %w", shard, err)
	}
	list = []itemOut{}
	for _, i := range items {
		list = append(list, itemOut{i.Key, i.Version, newPayload(i.Value), i.Damaged})
		if i.Damaged != nil && leftOut == nil {
			leftOut = exit(exitDamaged, fmt.Sprintf("shard %q: values are left out, first that of item %q: %s: no commit writes that "+
				"much: remove the record by the store's own tools", shard, i.Key, i.Damaged.Why))
		}
	}
	return list, leftOut, nil
}

func (a *app) items(ctx context.Context, b core.Backend, shard core.ShardID, prefix string) error {
	list, leftOut, err := a.listItems(ctx, b, shard, prefix)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		if err := a.known(ctx, b, shard); err != nil {
			return err
		}
	}
	t := &table{head: []string{"KEY", "VERSION", "VALUE"}}
	for _, i := range list {
		value := i.Value.String()
		if i.Damaged != nil {
			value = "LEFT OUT: " + i.Damaged.Why
		}
		t.add(i.Key, i.Version, value)
	}
	return cmp.Or(a.print(list, t), leftOut)
}

func (a *app) known(ctx context.Context, b core.Backend, shard core.ShardID) error {
	v, err := a.state(ctx, b)
	if err == nil {
		_, err = find(v, shard)
	}
	return err
}
