package trace

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// A begin is the start of a handler, with the shard's head in the lease.
type begin struct {
	fence driver.Fence
	head  driver.Head
	node  string
	at    time.Time
}

type said struct {
	session driver.SessionID
	update  driver.UpdateNo
}

// The checker uses the state that a member saw to find views that are older than the member's
// previous view (O1).
type seen struct {
	tokens  map[driver.ShardID]driver.Token
	beats   map[driver.SessionID]driver.Version
	updates map[driver.SessionID]driver.UpdateNo
	gone    map[driver.SessionID]bool
}

func newSeen() *seen {
	return &seen{tokens: make(map[driver.ShardID]driver.Token), beats: make(map[driver.SessionID]driver.Version),
		updates: make(map[driver.SessionID]driver.UpdateNo), gone: make(map[driver.SessionID]bool)}
}

// The session to which a token belongs never changes (A2).
func (t *tracer) holder(shard driver.ShardID, o driver.Owner) {
	if o.Session == "" {
		return
	}
	if t.holders[shard] == nil {
		t.holders[shard] = make(map[driver.Token]driver.SessionID)
	}
	was, ok := t.holders[shard][o.Token]
	if t.holders[shard][o.Token] = o.Session; !ok || was == o.Session {
		return
	}
	t.breach(Breach{Rule: "A2", Time: t.now, Shard: string(shard), Nodes: []string{t.run.Node}, Text: fmt.Sprintf(
		"the store gave token %d of shard %q to session %q and to session %q", o.Token, shard, was, o.Session)})
}

// Each view is compared with the same member's earlier views.
func (t *tracer) look(v *View) {
	for i := range v.Shards {
		s := &v.Shards[i]
		t.holder(s.Shard, s.Owner)
		if was := t.seen.tokens[s.Shard]; s.Owner.Token < was && s.Owner.Token != 0 {
			t.back(s.Shard, "token %d of shard %q was shown after token %d", s.Owner.Token, s.Shard, was)
		}
		t.seen.tokens[s.Shard] = max(t.seen.tokens[s.Shard], s.Owner.Token)
	}
	for _, b := range v.Beats {
		if was := t.seen.beats[b.Session]; b.Version < was && b.Version != 0 {
			t.back("", "version %d of session %q was shown after version %d", b.Version, b.Session, was)
		}
		t.seen.beats[b.Session] = max(t.seen.beats[b.Session], b.Version)
	}
	for _, id := range v.Gone {
		t.seen.gone[id] = true
	}
	for i := range v.Members {
		m := &v.Members[i]
		if t.seen.gone[m.Session] {
			t.breach(Breach{Rule: "M3", Time: t.now, Nodes: []string{t.run.Node}, Text: fmt.Sprintf("session %q was shown after it had gone", m.Session)})
		}
		if was := t.seen.updates[m.Session]; m.Update < was {
			t.breach(Breach{Rule: "M4", Time: t.now, Nodes: []string{t.run.Node}, Text: fmt.Sprintf(
				"update %d of session %q was shown after update %d", m.Update, m.Session, was)})
		}
		t.seen.updates[m.Session] = m.Update
		key := said{m.Session, m.Update}
		if !slices.ContainsFunc(t.showed[key], func(x showed) bool { return reflect.DeepEqual(x.state, m.MemberState) }) {
			t.showed[key] = append(t.showed[key], showed{m.MemberState, t.run.Node, t.now})
		}
	}
}

type showed struct {
	state driver.MemberState
	node  string
	at    time.Time
}

func (t *tracer) back(shard driver.ShardID, format string, args ...any) {
	t.breach(Breach{Rule: "O1", Time: t.now, Shard: string(shard), Nodes: []string{t.run.Node}, Text: fmt.Sprintf(format, args...)})
}

func (t *tracer) says(session driver.SessionID, st *driver.MemberState) {
	key := said{session, st.Update}
	t.saying[key] = append(t.saying[key], st)
}

// compareShown compares the members' states in views with the states that they published (M4).
func (c *checker) compareShown() {
	for key, states := range c.showed {
		s := c.sessions[key.session]
		if s == nil || s.ttl == 0 || s.cut && c.saying[key] == nil { // the beginning or the end of the session's trace is missing
			continue
		}
		for _, x := range states {
			if c.ctx.Err() != nil {
				return
			}
			if slices.ContainsFunc(c.saying[key], func(st *driver.MemberState) bool { return hash(*st) == hash(x.state) }) {
				continue
			}
			c.breach(Breach{Rule: "M4", Time: x.at, Nodes: []string{x.node, s.node}, Text: fmt.Sprintf(
				"session %q of node %q was shown with what it had not said under number %d: %+v",
				key.session, s.node, key.update, x.state)})
		}
	}
}

// compareEnded looks for successful claims that a session sent after its eviction (M1). It also
// looks for successful heartbeats that the session sent after the eviction was sent. In a correct
// store, such a heartbeat either arrives first and changes the version, or finds no record (M2).
func (c *checker) compareEnded(e *eviction) {
	s := c.sessions[e.of]
	if s == nil {
		return
	}
	for _, sent := range s.beats {
		if sent.Sub(e.sent) > c.apart(e.by, s.node) {
			c.breach(Breach{Rule: "M2", Time: sent, Nodes: []string{e.by, s.node}, Text: fmt.Sprintf(
				"a heartbeat of session %q succeeded, and so did the eviction of an older version that node %q sent %v before",
				e.of, e.by, sent.Sub(e.sent))})
			break
		}
	}
	for _, sent := range s.claims {
		if sent.Sub(e.done) > c.apart(e.by, s.node) {
			c.breach(Breach{Rule: "M1", Time: sent, Nodes: []string{e.by, s.node}, Text: fmt.Sprintf(
				"a claim of session %q succeeded that was sent %v after node %q had evicted it", e.of, sent.Sub(e.done), e.by)})
			break
		}
	}
}

// compareGift looks for a shard that was transferred to an evicted session (A5).
func (c *checker) compareGift(g *gift) {
	if e, ok := c.evicted[g.fence.Session]; ok && g.sent.Sub(e.done) > c.apart(g.by, e.by) {
		c.breach(Breach{Rule: "A5", Time: g.sent, Shard: string(g.fence.Shard), Nodes: []string{g.by}, Text: fmt.Sprintf(
			"shard %q was given to session %q, with token %d, %v after that was evicted",
			g.fence.Shard, g.fence.Session, g.fence.Token, g.sent.Sub(e.done))})
	}
}

// A gift is a transfer to another session.
type gift struct {
	fence driver.Fence
	sent  time.Time
	by    string
}

// compareBegins compares the head at the start of each lease with the earlier commits (S3, S4, L1).
// Because commits and tokens are numbered, the comparison needs no clock.
func (c *checker) compareBegins(shard driver.ShardID, begins []begin) {
	acks := c.acks[shard] // sorted by number
	byToken := slices.Clone(acks)
	slices.SortStableFunc(byToken, func(a, b ackedSpan) int { return cmp.Compare(a.Fence.Token, b.Fence.Token) })
	slices.SortStableFunc(begins, func(a, b begin) int { return cmp.Compare(a.fence.Token, b.fence.Token) })
	var last *ackedSpan // the largest number among commits under smaller tokens
	for i := range begins {
		if c.ctx.Err() != nil {
			return
		}
		b := &begins[i]
		for len(byToken) > 0 && byToken[0].Fence.Token < b.fence.Token {
			if last == nil || byToken[0].To > last.To {
				last = &byToken[0]
			}
			byToken = byToken[1:]
		}
		at := Breach{Time: b.at, Shard: string(shard)}
		if last != nil && last.To > b.head.Number {
			at.Rule, at.Nodes = "S3", []string{last.node, b.node}
			at.Text = fmt.Sprintf("commit %d of shard %q was acknowledged under token %d, and the lease of token %d began after commit %d",
				last.To, shard, last.Fence.Token, b.fence.Token, b.head.Number)
			c.breach(at)
			return
		}
		c.compareHead(shard, b, acks)
	}
}

// compareHead compares the head at the start of a lease with the acknowledged commits.
func (c *checker) compareHead(shard driver.ShardID, b *begin, acks []ackedSpan) {
	n := b.head.Number
	i, _ := slices.BinarySearchFunc(acks, n, func(a ackedSpan, n driver.WriteNo) int { return cmp.Compare(a.To, n) })
	at := Breach{Time: b.at, Shard: string(shard), Nodes: []string{b.node}}
	switch found := i < len(acks) && acks[i].From <= n; {
	case found && acks[i].To == n && acks[i].Seq != 0 && acks[i].Seq != b.head.Seq:
		at.Rule, at.Nodes = "L1", []string{acks[i].node, b.node}
		at.Text = fmt.Sprintf("commit %d of shard %q ended the log with entry %d, and the lease of token %d found %d",
			n, shard, acks[i].Seq, b.fence.Token, b.head.Seq)
	case !found && c.joinedBy(shard, b.head.Token) && !c.doubted(shard, n):
		at.Rule = "S4"
		at.Text = fmt.Sprintf("the lease of token %d of shard %q found commit %d under token %d, which was not acknowledged, nor in doubt",
			b.fence.Token, shard, n, b.head.Token)
	default:
		return
	}
	c.breach(at)
}

// The result is true if all commits under the token are known.
func (c *checker) joinedBy(shard driver.ShardID, token driver.Token) bool {
	for f := range c.joined {
		if f.Shard == shard && f.Token == token {
			return true
		}
	}
	return false
}

func (c *checker) doubted(shard driver.ShardID, n driver.WriteNo) bool {
	return slices.ContainsFunc(c.doubts[shard], func(a ackedSpan) bool { return a.From <= n && n <= a.To })
}
