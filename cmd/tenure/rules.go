package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/boundjson"
	"github.com/tenure-go/tenure/internal/operator"
)

// These settings are shared by the commands that write rules.
type order struct {
	a       *app
	reason  string
	author  string
	expires time.Duration
	token   int64 // token of the lease to act on; 0 means the current lease
	force   bool
	dryRun  bool
	yes     bool
	wait    time.Duration // how long resolve waits for the leader to obey
}

// These flags are for commands that ask for confirmation before changing anything.
func (o *order) asking(c *cobra.Command) {
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "only show what would change")
	c.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask")
}

// These flags are for commands that write rules.
func (o *order) telling(c *cobra.Command, expires time.Duration) {
	c.Flags().StringVar(&o.reason, "reason", "", "why, for those who list the rules")
	c.Flags().StringVar(&o.author, "author", "", "who asks for it; the user and host that write it are kept beside")
	usage := "the rule ends after this time; default never"
	if expires > 0 {
		usage = "the rule ends after this time; 0: never"
	}
	c.Flags().DurationVar(&o.expires, "expires", expires, usage)
	o.asking(c)
}

func (a *app) ruleCommands() []*cobra.Command {
	o := &order{a: a}
	set := func(use, short string, names []string, rule func(args []string) control.Rule) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short, Args: args(names...), RunE: func(cmd *cobra.Command,
			args []string) error {
			return o.put(cmd, rule(args))
		}}
		o.telling(c, 0)
		if slices.Contains(names, "NODE") {
			c.Flags().BoolVar(&o.force, "force", false, "also for a node that has no member at present")
		}
		return c
	}
	remove := func(use, short string, names []string, rule func(args []string) control.Rule) *cobra.Command {
		c := &cobra.Command{Use: use, Short: short, Args: args(names...), RunE: func(cmd *cobra.Command,
			args []string) error {
			return o.remove(cmd, rule(args))
		}}
		o.asking(c)
		return c
	}
	node, shard, both := []string{"NODE"}, []string{"SHARD"}, []string{"SHARD", "NODE"}
	drain := func(x []string) control.Rule { return control.Rule{Kind: control.Drain, Node: x[0]} }
	pin := func(x []string) control.Rule { return control.Rule{Kind: control.Pin, Shards: x[0], Node: x[1]} }
	// A pin's key does not depend on the node.
	unpin := func(x []string) control.Rule { return control.Rule{Kind: control.Pin, Shards: x[0], Node: "any"} }
	exclude := func(x []string) control.Rule { return control.Rule{Kind: control.Exclude, Shards: x[0], Node: x[1]} }
	freeze := func([]string) control.Rule { return control.Rule{Kind: control.Freeze} }
	// The real token is set later, because the keys of moves and resignations do not depend on it.
	move := func(x []string) control.Rule {
		return control.Rule{Kind: control.Move, Shards: x[0], Node: x[1], Token: core.Token(max(o.token, 1))}
	}
	resign := func(x []string) control.Rule {
		return control.Rule{Kind: control.Resign, Shards: x[0], Token: core.Token(max(o.token, 1))}
	}
	once := func(c *cobra.Command) *cobra.Command {
		c.Flags().Int64Var(&o.token, "token", 0, "only if the shard still has this token; default: the one seen now")
		return c
	}
	var last int
	rules := &cobra.Command{Use: "rules", Short: "List the operators' rules", Args: args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if last < 0 {
				return usage(fmt.Sprintf("--last %d is negative: give 0 or more", last))
			}
			return a.with(cmd, func(ctx context.Context, b core.Backend) error { return a.rules(ctx, b, last) })
		}}
	rules.Flags().IntVar(&last, "last", 0, "only the newest so many rules, the oldest of them first; 0: all, by kind")
	return append([]*cobra.Command{
		rules,
		set("drain NODE", "Have the members of a node own nothing", node, drain),
		remove("undrain NODE", "End the drain of a node", node, drain),
		set("pin SHARD NODE", `Have a node own a shard while it lives; a prefix of shards ends in "*"`, both, pin),
		remove("unpin SHARD", "End the pin of a shard or prefix", shard, unpin),
		set("exclude SHARD NODE", `Have a node not own a shard; a prefix of shards ends in "*"`, both, exclude),
		remove("include SHARD NODE", "End such an exclusion", both, exclude),
		once(set("move SHARD NODE", "Have the owner of a shard hand it over to a node, once", both, move)),
		once(set("resign SHARD", "Have the owner of a shard give it to another member, once", shard, resign)),
		remove("unmove SHARD", "Take back a move or resignation that was not carried out yet", shard, resign),
		set("freeze", "Move nothing but shards whose owner is gone or leaves", nil, freeze),
		remove("unfreeze", "End the freeze", nil, freeze),
		a.mayStopCommand(),
	}, append(a.rangeCommands(), a.effectCommands()...)...)
}

type ruleOut struct {
	control.Rule
	Ended bool `json:"ended"` // also true for the place of a node that is back
	Spent bool `json:"spent"` // the shard no longer has the rule's token
}

func (a *app) rules(ctx context.Context, b core.Backend, last int) error {
	list, err := call(ctx, a, func(ctx context.Context) ([]control.Rule, error) { return control.Read(ctx, b) })
	if err != nil && list == nil {
		return err
	}
	if last > 0 {
		slices.SortStableFunc(list, func(x, y control.Rule) int { return x.At.Compare(y.At) })
		list = list[max(0, len(list)-last):]
	}
	v, failed := a.state(ctx, b)
	if failed != nil {
		return failed
	}
	tokens := tokensOf(v)
	out := []ruleOut{}
	t := &table{head: []string{"RULE", "SHARDS", "EFFECT", "NODE", "HASH", "TOKEN", "AUTHOR", "WRITER", "AT", "EXPIRES", "REASON"}}
	for _, r := range list {
		o := ruleOut{r, !r.Active(time.Now()) || operator.Back(&r, v.Members), r.Spent(tokens[r.Shards])}
		out = append(out, o)
		expires := ""
		if !r.Expires.IsZero() {
			expires = r.Expires.Local().Format(time.DateTime)
		}
		if o.Ended {
			expires += " (ended)"
		}
		token := ""
		switch {
		case o.Spent:
			token = fmt.Sprintf("%d (spent)", r.Token)
		case r.Token != 0:
			token = fmt.Sprint(r.Token)
		}
		t.add(r.Kind, r.Shards, effectText(&r), r.Node, r.Hash, token, r.Author, r.Writer, r.At.Local().Format(time.DateTime), expires, r.Reason)
	}
	if shown := a.print(out, t); shown != nil {
		return shown
	}
	if err != nil {
		return exit(exitDamaged, err.Error())
	}
	return nil
}

// sign fills in a rule's author, writer and expiry time.
func (o *order) sign(r *control.Rule) error {
	if o.expires < 0 {
		return usage(fmt.Sprintf("--expires %v is negative: use 0 for a rule without an end", o.expires))
	}
	r.At = time.Now().UTC().Truncate(time.Second)
	if o.expires > 0 {
		r.Expires = r.At.Add(max(o.expires, time.Second))
	}
	r.Writer, r.Reason = writer(), o.reason
	r.Author = cmp.Or(o.author, r.Writer)
	return nil
}

// A rule is written after the operator has seen its effect and confirmed it.
func (o *order) put(cmd *cobra.Command, r control.Rule) error {
	if err := o.sign(&r); err != nil {
		return err
	}
	if o.token < 0 {
		return usage(fmt.Sprintf("--token %d is negative: give the one that tenure who shows", o.token))
	}
	if err := r.Validate(); err != nil {
		return err
	}
	return o.a.with(cmd, func(ctx context.Context, b core.Backend) error {
		v, err := o.a.state(ctx, b)
		if err != nil {
			return err
		}
		if r.Token != 0 {
			if err := o.aim(ctx, b, v, &r); err != nil {
				return err
			}
		}
		preview := func() (string, error) { return o.preview(v, &r) }
		if r.Kind == control.Release {
			preview = func() (string, error) { return o.releasing(ctx, b, v, &r) }
		}
		if r.Kind == control.Resolve {
			preview = func() (string, error) { return o.resolving(ctx, b, v, &r) }
		}
		what, err := preview()
		if err != nil {
			return err
		}
		op, err := control.Put(&r)
		if err != nil {
			return err
		}
		if err := o.room(ctx, b, &r); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(o.a.errs, what)
		if o.dryRun {
			return nil
		}
		if err := o.confirm(); err != nil {
			return err
		}
		if err := o.a.commit(ctx, b, op, operator.Change{Rule: r, By: r.Writer, At: r.At}); err != nil || o.wait == 0 {
			return err
		}
		return o.awaitDecided(ctx, b, &r)
	})
}

func (o *order) room(ctx context.Context, b core.Backend, r *control.Rule) error {
	all, err := call(ctx, o.a, func(ctx context.Context) ([]control.Rule, error) { return control.Read(ctx, b) })
	if err != nil && all == nil {
		return err
	}
	return room([]control.Rule{*r}, all)
}

// A leader obeys only a limited number of rules, and room returns an error if there would be more.
func room(rules, all []control.Rule) error {
	more := 0
	for i := range rules {
		if !slices.ContainsFunc(all, func(x control.Rule) bool { return x.Key() == rules[i].Key() }) {
			more++
		}
	}
	if more == 0 || len(all)+more <= control.MaxRules {
		return nil
	}
	return exit(exitRefused, fmt.Sprintf("nothing was changed: there are %d rules, and more than %d are not obeyed: remove some", len(all), control.MaxRules))
}

// aim binds a move or a resignation to the current lease. It returns an error if no member could
// carry out the rule, or if another rule would undo its effect.
func (o *order) aim(ctx context.Context, b core.Backend, v *driver.View, r *control.Rule) error {
	s, err := find(v, core.ShardID(r.Shards))
	if err != nil {
		return err
	}
	owner := newShardOut(s, sessions(v))
	refuse := func(format string, args ...any) error {
		return exit(exitRefused, "nothing was changed: "+fmt.Sprintf(format, args...))
	}
	switch {
	case o.token != 0 && core.Token(o.token) != owner.Token:
		return refuse("shard %q has token %d now, of node %s: correct --token", r.Shards, owner.Token, printable(owner.Node))
	case owner.Node == "":
		return notFound(fmt.Sprintf("nobody owns shard %q at present: its last token is %d", r.Shards, owner.Token))
	case strings.Contains(owner.Trouble, fmt.Sprintf("handler of shard %q", r.Shards)):
		return refuse("node %s is %s, since no rule ends a handler, and its shard is free when its process ends", owner.Node, owner.Trouble)
	case r.Node == owner.Node:
		return refuse("node %s owns shard %q already", r.Node, r.Shards)
	}
	r.Token = owner.Token
	rules, err := call(ctx, o.a, func(ctx context.Context) ([]control.Rule, error) { return control.Read(ctx, b) })
	if err != nil {
		return err
	}
	for _, x := range rules {
		switch {
		case !x.Active(r.At):
		case x.Kind == control.Freeze:
			return refuse("the namespace is frozen: tenure unfreeze first")
		case x.Kind == control.Pin && covers(x.Shards, r.Shards):
			return refuse("shard %q is pinned to node %s: tenure unpin %s first", r.Shards, x.Node, x.Shards)
		case r.Node == "" || x.Node != r.Node:
		case x.Kind == control.Drain:
			return refuse("node %s is drained: tenure undrain %s first", x.Node, x.Node)
		case x.Kind == control.Exclude && covers(x.Shards, r.Shards):
			return refuse("node %s is not to own shard %q: tenure include %s %s first", x.Node, r.Shards, x.Shards, x.Node)
		}
	}
	return nil
}

// A rule applies to one shard name, or to a prefix followed by "*".
func covers(shards, shard string) bool {
	p, isPrefix := strings.CutSuffix(shards, "*")
	return shards == shard || isPrefix && strings.HasPrefix(shard, p)
}

func tokensOf(v *driver.View) map[string]core.Token {
	tokens := make(map[string]core.Token, len(v.Shards))
	for _, s := range v.Shards {
		tokens[string(s.Shard)] = s.Owner.Token
	}
	return tokens
}

// The user comes from the operating system rather than from environment variables.
func writer() string {
	name, host := "unknown", "unknown"
	if uid := os.Getuid(); uid >= 0 {
		name = fmt.Sprintf("uid %d", uid)
		if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
			name = u.Username
		}
	} else if u, err := user.Current(); err == nil { // this branch runs on Windows
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

// ruleText describes a rule's author and reason. The text also contains the writer if the names
// differ, because the writer chooses the author's name.
func ruleText(r control.Rule) string {
	text := "of " + r.Author
	if r.Writer != r.Author {
		text += ", written by " + cmp.Or(r.Writer, "nobody knows whom")
	}
	if r.Reason != "" {
		text += ": " + r.Reason
	}
	return text
}

func (o *order) preview(v *driver.View, r *control.Rule) (string, error) {
	lives := slices.ContainsFunc(v.Members, func(m core.Member) bool { return m.Node == r.Node })
	if r.Node != "" && !lives && !o.force {
		return "", notFound(fmt.Sprintf("no member of node %q lives: correct it (see: tenure members), or add --force",
			r.Node))
	}
	live := sessions(v)
	n := 0
	for _, s := range v.Shards {
		out := newShardOut(s, live)
		if out.Node == "" || strings.HasPrefix(string(s.Shard), "_") {
			continue
		}
		if r.Kind == control.Drain && out.Node == r.Node || covers(r.Shards, string(s.Shard)) &&
			(out.Node == r.Node) == (r.Kind == control.Exclude) {
			n++
		}
	}
	switch r.Kind {
	case control.Freeze:
		return "no shard moves any more, but for those whose owner is gone or leaves", nil
	case control.Move:
		return fmt.Sprintf("shard %q moves to node %s, if it still has token %d", r.Shards, r.Node, r.Token), nil
	case control.Resign:
		return fmt.Sprintf("shard %q moves to another node, if it still has token %d", r.Shards, r.Token), nil
	case control.Pin:
		return fmt.Sprintf("node %s gets %s, while it lives", r.Node, counted(n, "shard")), nil
	case control.Drain, control.Exclude:
	case control.Stop, control.Split, control.Merge, control.Release, control.Resolve: // the effects of these rules are shown elsewhere
	}
	return fmt.Sprintf("other nodes, if there are any, get %s from node %s", counted(n, "shard"), r.Node), nil
}

func (o *order) confirm() error {
	if o.yes {
		return nil
	}
	if f, ok := o.a.in.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return exit(exitRefused, "nothing was changed: add --yes, or --dry-run to only look")
	}
	_, _ = fmt.Fprint(o.a.errs, "go on? [y/N] ")
	line, _ := bufio.NewReader(o.a.in).ReadString('\n')
	if strings.EqualFold(strings.TrimSpace(line), "y") {
		return nil
	}
	return exit(exitRefused, "nothing was changed")
}

func (o *order) remove(cmd *cobra.Command, r control.Rule) error {
	op, err := control.Remove(&r)
	if err != nil {
		return err
	}
	return o.a.with(cmd, func(ctx context.Context, b core.Backend) error {
		item, err := call(ctx, o.a, func(ctx context.Context) (*core.Item, error) {
			return b.Get(ctx, control.Shard,
				r.Key())
		})
		switch {
		case err != nil:
			return fmt.Errorf("read the rule: %w", err)
		case item == nil:
			return notFound("there is no such rule: tenure rules lists them")
		}
		change := operator.Change{Removed: true, By: writer(), At: time.Now().UTC().Truncate(time.Second)}
		if change.Rule, err = decodeRule(item.Value); err != nil {
			return exit(exitDamaged, fmt.Sprintf("nothing was changed: the rule %.80q is not understood: %.120q", item.Key,
				err.Error()))
		}
		_, _ = fmt.Fprintln(o.a.errs, "this rule ends:", printable(string(change.Rule.Kind)+" "+ruleText(change.Rule)))
		if o.dryRun {
			return nil
		}
		if err := o.confirm(); err != nil {
			return err
		}
		return o.a.commit(ctx, b, op, change)
	})
}

// Each change to a rule is also appended to the log of rules.
func (a *app) commit(ctx context.Context, b core.Backend, op core.Op, change operator.Change) error {
	return a.writer(b).Write(ctx, func(context.Context, *driver.View) (*operator.Decision, error) {
		return &operator.Decision{Ops: []core.Op{op}, Changes: []operator.Change{change}}, nil
	})
}

func (a *app) writer(b core.Backend) *operator.Writer {
	return &operator.Writer{Backend: b, Options: a.conf.Options(), Timeout: a.timeout, Denied: denied,
		Late: func(ttl time.Duration, err error) {
			_, _ = fmt.Fprintln(a.errs, a.oneLine(fmt.Errorf("the rule is written, and the lease may stay for %v: %w", ttl, err)))
		}}
}

// Operators must be able to end invalid rules, so decodeRule accepts them.
func decodeRule(value []byte) (r control.Rule, err error) {
	err = boundjson.Unmarshal(value, control.MaxRecord, 256, &r)
	return r, err
}
