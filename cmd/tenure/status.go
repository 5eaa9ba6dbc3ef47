package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

type statusOut struct {
	Backend   string `json:"backend"`
	Namespace string `json:"namespace"`
	StoreID   string `json:"store_id"`
	Members   int    `json:"members"`
	// Watched is the time for which the status command waited for heartbeats.
	Watched string         `json:"watched"`
	Beats   []heartbeat    `json:"heartbeats"` // heartbeats of the members that are not silent, oldest first
	Silent  []silentMember `json:"silent"`
	Shards  int            `json:"shards"`
	// Owned counts the shards whose owner sent a heartbeat. Ended counts the ownerless shards whose
	// range was merged into another range. Unowned counts the other ownerless shards that are not
	// in quarantine.
	Owned       int                `json:"owned"`
	Unowned     int                `json:"unowned"`
	Reserved    int                `json:"reserved"`
	Ended       int                `json:"ended"`
	Locks       int                `json:"locks"` // number of locks that a member holds
	Quarantined []quarantinedShard `json:"quarantined"`
	Damaged     []string           `json:"damaged"`
	Troubled    []string           `json:"troubled"` // nodes, with the problems that a person must solve
}

// No member may claim a quarantinedShard.
type quarantinedShard struct {
	Shard core.ShardID `json:"shard"`
	Until time.Time    `json:"until"`
	Why   string       `json:"why"`
}

type heartbeat struct {
	Node    string         `json:"node"`
	Session core.SessionID `json:"session"`
	Age     string         `json:"age"` // time since this process saw the heartbeat
	at      time.Time
}

// A silentMember has sent no heartbeat for its TTL.
type silentMember struct {
	Node    string         `json:"node"`
	Session core.SessionID `json:"session"`
	TTL     string         `json:"ttl"`
	Shards  int            `json:"shards"` // number of shards whose record still names this member as the owner
}

// Because the records of stopped and running members look the same, status first waits until each
// member has sent a heartbeat or been silent for its TTL.
func (a *app) status(ctx context.Context, b core.Backend) error {
	began := time.Now()
	seen, err := a.heartbeats(ctx, b, maxTTL)
	if err != nil {
		return err
	}
	v, err := a.state(ctx, b)
	if err != nil {
		return err
	}
	why, failed := a.aside(ctx, b)
	if failed != nil && !damaged(failed) {
		return failed
	}
	now := time.Now()
	info := b.Info()
	o := statusOut{Backend: info.Backend, Namespace: info.Namespace, StoreID: info.StoreID, Members: len(v.Members),
		Watched: now.Sub(began).Round(time.Millisecond).String(), Beats: []heartbeat{}, Silent: []silentMember{},
		Quarantined: []quarantinedShard{}, Damaged: []string{}, Troubled: []string{}}
	live, members := map[core.SessionID]bool{}, sessions(v)
	for _, m := range v.Members {
		at, watched := seen[m.Session]
		switch {
		case !watched: // the member joined in the meantime
			at = began
		case at.IsZero():
			o.Silent = append(o.Silent, silentMember{m.Node, m.Session, m.TTL.String(), 0})
			continue
		}
		live[m.Session] = true
		if why := m.Trouble(); why != "" {
			o.Troubled = append(o.Troubled, m.Node+": "+why)
		}
		o.Beats = append(o.Beats, heartbeat{m.Node, m.Session, now.Sub(at).Round(time.Millisecond).String(), at})
	}
	slices.SortStableFunc(o.Beats, func(x, y heartbeat) int { return x.at.Compare(y.at) })
	for _, s := range v.Shards {
		x := why(string(s.Shard))
		switch {
		case driver.IsLock(s.Shard):
			if members[s.Owner.Session] != nil {
				o.Locks++
			}
			continue
		case driver.Reserved(string(s.Shard)):
			o.Reserved++
			continue
		case live[s.Owner.Session]:
			o.Owned++
		case !x.Until.IsZero():
			o.Quarantined = append(o.Quarantined, quarantinedShard{s.Shard, x.Until, x.Why})
		case x.Why != "":
			o.Ended++
		default:
			o.Unowned++
		}
		if i := slices.IndexFunc(o.Silent, func(m silentMember) bool { return m.Session == s.Owner.Session }); i >= 0 {
			o.Silent[i].Shards++
		}
	}
	o.Shards = o.Owned + o.Unowned + len(o.Quarantined)
	for _, d := range v.Damaged {
		o.Damaged = append(o.Damaged, d.Key)
	}
	if failed != nil { // the error is not about the record of a shard or member, but about a rule, for example
		o.Damaged = append(o.Damaged, failed.Error())
	}
	return errors.Join(a.print(o, o.table()), o.verdict(), failed)
}

func (o *statusOut) table() *table {
	t := &table{}
	t.add("backend", o.Backend)
	t.add("namespace", o.Namespace)
	t.add("store", o.StoreID)
	t.add("members", o.Members)
	beats := fmt.Sprintf("%d of %d seen within %s", len(o.Beats), o.Members, o.Watched)
	if len(o.Beats) > 0 {
		beats += fmt.Sprintf("; the oldest, of %s, %s ago", o.Beats[0].Node, o.Beats[0].Age)
	}
	t.add("heartbeats", beats)
	shards := fmt.Sprintf("%d owned, %d unowned, %d reserved", o.Owned, o.Unowned, o.Reserved)
	if o.Ended > 0 {
		shards += fmt.Sprintf(", %d ended", o.Ended)
	}
	t.add("shards", shards)
	t.add("locks", fmt.Sprintf("%d held", o.Locks))
	t.add("damaged", len(o.Damaged))
	for _, m := range o.Silent {
		t.add("silent", fmt.Sprintf("%s, session %s: no heartbeat for its TTL %s; it had %s", m.Node, m.Session, m.TTL,
			counted(m.Shards, "shard")))
	}
	for _, m := range o.Troubled {
		t.add("trouble", m)
	}
	for _, q := range o.Quarantined {
		t.add("quarantine", fmt.Sprintf("%s: %s", q.Shard, q.Why))
	}
	return t
}

// The verdict is an error if there are no members, a member is silent or in trouble, or a shard is
// in quarantine.
func (o *statusOut) verdict() error {
	switch {
	case o.Members == 0:
		return exit(exitSilent, "nobody runs: the namespace has no member")
	case len(o.Beats) == 0:
		return exit(exitSilent, fmt.Sprintf("nobody runs: of %s none made a heartbeat within its TTL: "+
			"look at the members' processes and logs, and restart those that have halted", counted(o.Members, "member")))
	case len(o.Silent) > 0:
		return exit(exitSilent, fmt.Sprintf("no heartbeat for its TTL from %d of %s: "+
			"the others evict them soon, unless they are cut off from the store themselves", len(o.Silent), counted(o.Members, "member")))
	case len(o.Troubled) > 0:
		return exit(exitSilent, fmt.Sprintf("in trouble: %d of %s, such as %s", len(o.Troubled), counted(o.Members, "member"),
			o.Troubled[0]))
	case len(o.Quarantined) > 0:
		return exit(exitSilent, fmt.Sprintf("in quarantine, because its owners died: %s, such as %q: "+
			"mend what ended those processes, then: tenure release %s", counted(len(o.Quarantined), "shard"), o.Quarantined[0].Shard,
			o.Quarantined[0].Shard))
	}
	return nil
}

// departed reports whether a page of changes shows the end of a session.
func departed(page *driver.View, s core.SessionID) bool {
	return slices.Contains(page.Gone, s) ||
		page.Reset && !slices.ContainsFunc(page.Members, func(m core.Member) bool { return m.Session == s })
}

const maxTTL = 24 * time.Hour

// The wait ends when each member has sent a heartbeat, ended, or been silent for its TTL. The
// result contains the time of each member's heartbeat, or the zero time for a silent member.
// Members with a TTL above the given maximum are ignored.
func (a *app) heartbeats(ctx context.Context, b core.Backend, most time.Duration) (map[core.SessionID]time.Time, error) {
	v, err := a.state(ctx, b)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	known, err := a.versions(ctx, b, v)
	if err != nil {
		return nil, err
	}
	seen := make(map[core.SessionID]time.Time, len(known))
	waiting := map[core.SessionID]time.Duration{} // TTLs of members from which no heartbeat has been seen yet
	for _, m := range v.Members {
		if known[m.Session] == 0 || m.TTL > most { // the member has ended, or its TTL is too long
			continue
		}
		seen[m.Session], waiting[m.Session] = time.Time{}, m.TTL
	}
	heard := func(page *driver.View) {
		for s := range waiting {
			if departed(page, s) {
				delete(waiting, s)
			}
		}
		for _, x := range page.Beats {
			if _, waits := waiting[x.Session]; waits && x.Version > known[x.Session] {
				seen[x.Session] = time.Now()
				delete(waiting, x.Session)
			}
		}
	}
	for cursor := v.Cursor; len(waiting) > 0; {
		limited, cancel := context.WithDeadline(ctx, began.Add(slices.Max(slices.Collect(maps.Values(waiting)))))
		page, err := b.Observe(limited, query(cursor, waiting, known))
		over := limited.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if over {
			break
		}
		switch {
		case err != nil && core.NotApplied(err) && !errors.Is(err, core.ErrRetry):
			return nil, fmt.Errorf("read the heartbeats: %w", err)
		case err != nil:
			if err := pause(ctx, pauseFor); err != nil {
				return nil, err
			}
		default:
			cursor = page.Cursor
			heard(page)
		}
	}
	if len(waiting) == 0 {
		return seen, nil
	}
	// The watch may have missed a heartbeat. A read without a cursor returns immediately.
	page, err := call(ctx, a, func(ctx context.Context) (*driver.View, error) {
		return b.Observe(ctx, query("", waiting, known))
	})
	if err != nil {
		return nil, fmt.Errorf("read the heartbeats: %w", err)
	}
	heard(page)
	return seen, nil
}

// The query covers the sessions' heartbeats that are newer than the known versions.
func query(since driver.Cursor, sessions map[core.SessionID]time.Duration, known map[core.SessionID]core.Version) driver.ObserveQuery {
	q := driver.ObserveQuery{Since: since}
	for s := range sessions {
		q.Beats = append(q.Beats, driver.Beat{Session: s, Version: known[s]})
	}
	return q
}
