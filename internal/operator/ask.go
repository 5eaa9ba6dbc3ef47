package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/boundjson"
	"github.com/tenure-go/tenure/internal/seam"
)

// These constants define the limits and defaults of a Question.
const (
	DefaultAway = 1
	MaxAway     = 10_000
	DefaultFor  = 10 * time.Minute
	MinFor      = time.Second
	MaxFor      = 24 * time.Hour
)

// maxGone limits the number of nodes listed in an Answer.
const maxGone = 100

// ErrNoNode means that the node has neither a living member nor a place.
var ErrNoNode = errors.New("no such node")

type Question struct {
	Node string
	// Away is the number of nodes, including Node, that may be away at the same time. If Away is 0,
	// the default is DefaultAway.
	Away int
	// Members is the number of nodes that should run, or 0 if it is unknown. Missing nodes count as
	// away.
	Members int
	// For is the duration of the place, from MinFor to MaxFor. If For is 0, the default is
	// DefaultFor.
	For time.Duration
	// Keep is the minimum remaining time at which Ask leaves an existing place unchanged. If Keep
	// is 0, Ask always extends the place.
	Keep time.Duration
	// Look makes Ask answer without writing to the store.
	Look bool
	// Silent lists the sessions that have shown no heartbeat for their TTL.
	Silent []core.SessionID
	// Aside returns the reason why a shard should have no owner. Shards that should have no owner
	// do not count as unowned. If all shards should have an owner, Aside is nil.
	Aside func(shard string) seam.Aside
	// Writer, Author and Reason are stored with the rule.
	Writer, Author, Reason string
}

// Check validates a Question and fills in its defaults.
func (q *Question) Check() error {
	q.Away, q.For = cmp.Or(q.Away, DefaultAway), cmp.Or(q.For, DefaultFor)
	switch {
	case q.Away < 1 || q.Away > MaxAway:
		return invalid("%d nodes away is outside 1 to %d", q.Away, MaxAway)
	case q.Members < 0 || q.Members > MaxAway:
		return invalid("%d members is outside 0 to %d", q.Members, MaxAway)
	case q.For < MinFor || q.For > MaxFor:
		return invalid("a place for %v is outside %v to %v", q.For, MinFor, MaxFor)
	}
	return driver.CheckNode(q.Node)
}

// An Answer states whether a node may be stopped, and why.
type Answer struct {
	May    bool   `json:"may"`
	Node   string `json:"node"`
	Reason string `json:"reason"`
	// Until is the expiry time of Node's place, and is omitted if Node has no place.
	Until time.Time `json:"until,omitzero"`
	// Budget is the number of nodes that may be away. The smallest budget applies, among this
	// question's and those of the nodes with a place.
	Budget int `json:"budget"`
	// Away lists up to 100 other nodes that are or may be away. AwayTotal is the total number of
	// such nodes.
	Away      []Gone `json:"away"`
	AwayTotal int    `json:"away_total"`
	Missing   int    `json:"missing,omitempty"` // number of members that should run but do not
	Up        int    `json:"up"`                // other nodes that could serve shards and hold no place
	Unowned   int    `json:"unowned"`           // shards without a living owner, except Tenure's own
}

// Gone is a node that is or may be away.
type Gone struct {
	Node  string    `json:"node"`
	Why   string    `json:"why"`
	Until time.Time `json:"until,omitzero"` // when its place expires; omitted if it has no place
	away  int       // the budget of its place
}

// Retry returns the time to wait before asking again: the time until the first place expires, but
// at least 1 s and at most 10 s.
func (a *Answer) Retry(now time.Time) time.Duration {
	wait := 10 * time.Second
	for _, g := range a.Away {
		if !g.Until.IsZero() {
			wait = min(wait, g.Until.Sub(now))
		}
	}
	return max(wait, time.Second)
}

// Ask answers a Question. If the node may stop, it has a place when Ask returns. An error means
// that there is no answer, and matches ErrNoNode if the node has neither a living member nor a
// place. After a write with an unknown outcome, calling Ask again finds the place.
func (w *Writer) Ask(ctx context.Context, q Question) (*Answer, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	v, err := w.state(ctx)
	if err != nil {
		return nil, err
	}
	p, err := w.picture(ctx, v)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	a, own, err := p.judge(&q, now)
	if err != nil || !a.May || q.Look || own != nil && q.Keep > 0 && own.Away <= q.Away && own.Expires.Sub(now) >= q.Keep {
		return a, err
	}
	err = w.Write(ctx, func(ctx context.Context, v *driver.View) (*Decision, error) {
		p, err := w.picture(ctx, v)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		var own *control.Rule
		if a, own, err = p.judge(&q, now); err != nil || !a.May {
			return nil, err
		}
		rule := p.place(&q, own, now)
		op, err := control.Put(rule)
		a.Until = rule.Expires
		a.Reason = fmt.Sprintf("node %s holds a place until %s: %s", q.Node, clock(rule.Expires), a.count())
		return &Decision{[]core.Op{op}, []Change{{Rule: *rule, By: q.Writer, At: rule.At}}}, err
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Done ends a node's place, even if the place's record cannot be decoded, and reports whether there
// was one. The error matches ErrNoNode if the node has neither a living member nor a place.
func (w *Writer) Done(ctx context.Context, node, by string) (bool, error) {
	if err := driver.CheckNode(node); err != nil {
		return false, err
	}
	key := (&control.Rule{Kind: control.Stop, Node: node}).Key()
	find := func(ctx context.Context, v *driver.View) (*core.Item, error) {
		item, err := limited(ctx, w, func(ctx context.Context) (*core.Item, error) {
			return w.Backend.Get(ctx, control.Shard, key)
		})
		if err != nil {
			return nil, fmt.Errorf("read the place: %w", err)
		}
		if item == nil && !(&picture{view: v}).lives(node) {
			return nil, noNode(node)
		}
		return item, nil
	}
	v, err := w.state(ctx)
	if err != nil {
		return false, err
	}
	if item, err := find(ctx, v); err != nil || item == nil {
		return false, err
	}
	had := false
	err = w.Write(ctx, func(ctx context.Context, v *driver.View) (*Decision, error) {
		item, err := find(ctx, v)
		if err != nil || item == nil {
			return nil, err
		}
		had = true
		rule := control.Rule{Kind: control.Stop, Node: node}
		if r, err := decode(item); err == nil {
			rule = *r
		}
		change := Change{Rule: rule, Removed: true, By: by, At: time.Now().UTC().Truncate(time.Second)}
		return &Decision{[]core.Op{core.Delete(key)}, []Change{change}}, nil
	})
	return had && err == nil, err
}

func decode(i *core.Item) (*control.Rule, error) {
	r := new(control.Rule)
	if boundjson.Unmarshal(i.Value, control.MaxRecord, 256, r) != nil || r.Validate() != nil || r.Key() != i.Key || r.Kind != control.Stop {
		_, node, _ := strings.Cut(strings.TrimPrefix(i.Key, "rule/"), "/")
		return nil, fmt.Errorf("tenure: %w: the record %.200q of shard %q is not understood as the place of a node: "+
			"use a newer version, or end it by tenure may-stop %.140q --done", driver.ErrDamaged, i.Key, control.Shard, node)
	}
	return r, nil
}

// Back reports whether a rule is a Stop for a node that is back. A node is back if it has a living
// session that it did not have when the rule was written.
func Back(r *control.Rule, members []core.Member) bool {
	return r.Kind == control.Stop && slices.ContainsFunc(members, func(m core.Member) bool {
		return m.Node == r.Node && !slices.Contains(r.Sessions, m.Session)
	})
}

type picture struct {
	view    *driver.View
	stops   []control.Rule // includes ended Stops, and Stops of nodes that are back
	drained map[string]bool
}

// If the record of a Stop cannot be decoded, picture returns an error, because the node may be
// away. It leaves out other rules that cannot be decoded.
func (w *Writer) picture(ctx context.Context, v *driver.View) (*picture, error) {
	rules, err := limited(ctx, w, func(ctx context.Context) ([]control.Rule, error) {
		return control.Read(ctx, w.Backend)
	})
	if err != nil && rules == nil {
		return nil, err
	}
	prefix := strings.TrimSuffix((&control.Rule{Kind: control.Stop, Node: "x"}).Key(), "x")
	items, err := limited(ctx, w, func(ctx context.Context) ([]core.Item, error) {
		return w.Backend.List(ctx, control.Shard, prefix, control.MaxRules+1, control.MaxRecord)
	})
	if err != nil {
		return nil, fmt.Errorf("read the places: %w", err)
	}
	if len(items) > control.MaxRules {
		return nil, invalid("there are more than %d places: end some of them by tenure may-stop NODE --done", control.MaxRules)
	}
	p := &picture{view: v, drained: map[string]bool{}}
	for i := range items {
		r, err := decode(&items[i])
		if err != nil {
			return nil, err
		}
		p.stops = append(p.stops, *r)
	}
	now := time.Now()
	for i := range rules {
		if r := &rules[i]; r.Kind == control.Drain && r.Active(now) {
			p.drained[r.Node] = true
		}
	}
	return p, nil
}

// A draining member with the tool prefix exists only to write rules.
func tool(m *core.Member) bool { return m.Draining && strings.HasPrefix(m.Node, toolPrefix) }

func (p *picture) lives(node string) bool {
	return slices.ContainsFunc(p.view.Members, func(m core.Member) bool { return m.Node == node && !tool(&m) })
}

func (p *picture) sessions(node string) []core.SessionID {
	var all []core.SessionID
	for i := range p.view.Members {
		if m := &p.view.Members[i]; m.Node == node {
			all = append(all, m.Session)
		}
	}
	return all
}

// The map contains the nodes with a living member. If none of a node's members can serve shards,
// the value is the reason.
func (p *picture) nodes(silent []core.SessionID) map[string]string {
	all := map[string]string{}
	for i := range p.view.Members {
		m := &p.view.Members[i]
		if tool(m) {
			continue
		}
		why := ""
		switch {
		case slices.Contains(silent, m.Session):
			why = "it makes no heartbeat"
		case m.Ineligible() != "":
			why = fmt.Sprintf("it is not eligible: %.200q", m.Ineligible())
		case m.Draining:
			why = "it drains or leaves"
		case p.drained[m.Node]:
			why = "a rule drains it"
		}
		if old, seen := all[m.Node]; !seen || old != "" {
			all[m.Node] = why
		}
	}
	return all
}

// The node's existing place is returned, but no new place is granted.
func (p *picture) judge(q *Question, now time.Time) (a *Answer, own *control.Rule, err error) {
	nodes := p.nodes(q.Silent)
	a = &Answer{Node: q.Node, Budget: q.Away, Away: []Gone{}}
	var away []Gone
	known := len(nodes)
	for i := range p.stops {
		r := &p.stops[i]
		if !r.Active(now) || Back(r, p.view.Members) {
			continue
		}
		if _, lives := nodes[r.Node]; !lives {
			known++
		}
		if r.Node == q.Node {
			own = r
			continue
		}
		away = append(away, Gone{r.Node, "it holds a place", r.Expires, r.Away})
		delete(nodes, r.Node)
	}
	if _, lives := nodes[q.Node]; !lives && own == nil {
		return nil, nil, noNode(q.Node)
	}
	delete(nodes, q.Node)
	for node, why := range nodes {
		if why != "" {
			away = append(away, Gone{Node: node, Why: why})
		} else {
			a.Up++
		}
	}
	slices.SortFunc(away, func(x, y Gone) int { return strings.Compare(x.Node, y.Node) })
	a.Missing = max(0, q.Members-known)
	a.AwayTotal, a.Away = len(away), append(a.Away, away[:min(len(away), maxGone)]...)
	for _, g := range away {
		if g.away > 0 {
			a.Budget = min(a.Budget, g.away)
		}
	}
	a.Unowned = p.unowned(q.Aside)
	if own != nil {
		a.Until = own.Expires
	}
	a.decide(q, own)
	return a, own, nil
}

// A node keeps its place unless it now asks with a smaller budget.
func (a *Answer) decide(q *Question, own *control.Rule) {
	switch {
	case own != nil && own.Away <= q.Away:
		a.May = true
		a.Reason = fmt.Sprintf("node %s holds a place until %s: %s", q.Node, clock(own.Expires), a.count())
	case a.AwayTotal+a.Missing >= a.Budget:
		a.Reason = a.count() + a.list()
	case a.Up == 0:
		a.Reason = "no other node is up and eligible, so nobody would serve the shards: " + a.count() + a.list()
	default:
		a.May = true
		a.Reason = fmt.Sprintf("node %s may be stopped: %s", q.Node, a.count())
	}
}

func (a *Answer) count() string {
	text := fmt.Sprintf("%d other nodes are away, and %d may be at a time", a.AwayTotal+a.Missing, a.Budget)
	if a.AwayTotal+a.Missing == 1 {
		text = fmt.Sprintf("1 other node is away, and %d may be at a time", a.Budget)
	}
	if a.Missing > 0 {
		text += fmt.Sprintf("; %d of the members that should run are missing", a.Missing)
	}
	return text
}

func (a *Answer) list() string {
	const most = 5
	text := ""
	for i, g := range a.Away {
		if i == most {
			text += fmt.Sprintf("; and %d more", a.AwayTotal-most)
			break
		}
		text += fmt.Sprintf("; node %s: %s", g.Node, g.Why)
		if !g.Until.IsZero() {
			text += " until " + clock(g.Until)
		}
	}
	return text
}

// The rule gives the node a place, or extends it.
func (p *picture) place(q *Question, own *control.Rule, now time.Time) *control.Rule {
	now = now.UTC()
	r := &control.Rule{Kind: control.Stop, Node: q.Node, Away: q.Away, Sessions: p.sessions(q.Node), Author: cmp.Or(q.Author, q.Writer),
		Writer: q.Writer, Reason: q.Reason, At: now.Truncate(time.Second)}
	r.Expires = now.Add(q.For + time.Second - 1).Truncate(time.Second) // rounded up, so not earlier than requested
	if own != nil {
		r.Sessions, r.Away = own.Sessions, min(own.Away, q.Away)
		if own.Expires.After(r.Expires) {
			r.Expires = own.Expires
		}
	}
	return r
}

// A shard is unowned if it should have an owner but has no living one.
func (p *picture) unowned(aside func(string) seam.Aside) int {
	live := make(map[core.SessionID]bool, len(p.view.Members))
	for _, m := range p.view.Members {
		live[m.Session] = true
	}
	n := 0
	for _, s := range p.view.Shards {
		if !live[s.Owner.Session] && !driver.Reserved(string(s.Shard)) && (aside == nil || aside(string(s.Shard)).Why == "") {
			n++
		}
	}
	return n
}

// Times are shown in UTC, because readers may be in different time zones.
func clock(t time.Time) string { return t.UTC().Format("15:04:05Z") }

func noNode(node string) error {
	return fmt.Errorf("tenure: %w: no member of node %q lives, and it holds no place: tenure members lists the nodes", ErrNoNode, node)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("tenure: %w: %s", driver.ErrInvalid, fmt.Sprintf(format, args...))
}
