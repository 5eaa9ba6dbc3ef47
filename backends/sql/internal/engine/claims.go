package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/grants"
)

// record is a shard's row.
type record struct {
	owner   driver.Owner // zero if damaged
	why     string       // why its owner or its head is damaged
	granted driver.Token // the token before the current grant (A3)
	head    driver.Head
	floor   driver.Token // for a View: the token of a shard without a row (I2)
}

// decision is the outcome of one claim or hand-over, based on the shard's row.
type decision struct {
	err   error
	grant bool             // false with a nil error: granted earlier (A3)
	to    driver.SessionID // the new holder
	from  driver.Token     // the token before the grant; for a lock it may differ from the row's (R2)
	older bool             // a denied claim: the row is older than the record that the claim's caller saw
}

// A node of a cluster that certifies writes can show an older row, even though each transaction
// first waits for all previously acknowledged commits. A claim denied because of an older row is
// decided again after behindPause, for at most behindLimit.
const (
	behindPause = 10 * time.Millisecond
	behindLimit = 3 * time.Second
)

// decideClaim applies rules A1, A3, A4, A5 and R2 to a claim by the session self.
func decideClaim(c driver.Claim, self driver.SessionID, r record, alive map[driver.SessionID]bool) decision {
	seen := c.Seen
	if r.granted == 0 && seen == (driver.Owner{Token: r.floor}) {
		seen = driver.Owner{}
	}
	free := driver.IsLock(c.Shard) && seen.Session == "" && r.owner.Session == ""
	switch {
	case r.owner.Session == self && r.owner.Token > seen.Token && r.granted == seen.Token:
		return decision{to: self}
	case r.owner != seen && !free, alive[r.owner.Session] && !c.Preempt:
		older := r.owner.Session != "" && (r.owner.Token < seen.Token || r.owner.Token == seen.Token && seen.Session == "")
		return decision{err: &driver.HeldError{Shard: c.Shard, Owner: r.owner}, older: older}
	}
	return decision{grant: true, to: self, from: seen.Token}
}

// decideTransfer applies rules A3 and A5 to a transfer.
func decideTransfer(h driver.Transfer, r record, alive map[driver.SessionID]bool) decision {
	switch {
	case r.owner.Session == h.To && r.owner.Token > h.Fence.Token && r.granted == h.Fence.Token:
		return decision{to: h.To}
	case r.owner != (driver.Owner{Session: h.Fence.Session, Token: h.Fence.Token}):
		return decision{err: &driver.FencedError{Fence: h.Fence, Current: r.owner}}
	case !alive[h.To]:
		return decision{err: fmt.Errorf("tenure: shard %q: session %q: %w", h.Fence.Shard, h.To, driver.ErrNoTarget)}
	}
	return decision{grant: true, to: h.To, from: h.Fence.Token}
}

// Acquire claims shards. See driver.Session.
func (s *session) Acquire(ctx context.Context, claims []driver.Claim) ([]driver.AcquireResult, error) {
	if err := s.b.begin(ctx); err != nil {
		return nil, err
	}
	s.b.observing.expect()
	if err := driver.CheckClaims(claims); err != nil {
		return nil, err
	}
	claims = slices.Clone(claims)
	return s.grantAll(ctx, len(claims), func(from, to int) batch {
		part := claims[from:to]
		return batch{
			shard: func(i int) driver.ShardID { return part[i].Shard },
			fresh: func(i int) bool { return part[i].Seen == driver.Owner{} },
			asks:  func(_ int, r record) driver.SessionID { return r.owner.Session },
			decide: func(i int, r record, alive map[driver.SessionID]bool) decision {
				return decideClaim(part[i], s.id, r, alive)
			},
		}
	})
}

// Transfer gives leases to other sessions. See driver.Session.
func (s *session) Transfer(ctx context.Context, to []driver.Transfer) ([]driver.AcquireResult, error) {
	if err := s.b.begin(ctx); err != nil {
		return nil, err
	}
	s.b.observing.expect()
	if err := driver.CheckTransfers(to, s.id); err != nil {
		return nil, err
	}
	to = slices.Clone(to)
	return s.grantAll(ctx, len(to), func(from, end int) batch {
		part := to[from:end]
		return batch{
			keep:  true,
			shard: func(i int) driver.ShardID { return part[i].Fence.Shard },
			fresh: func(int) bool { return false },
			asks:  func(i int, _ record) driver.SessionID { return part[i].To },
			decide: func(i int, r record, alive map[driver.SessionID]bool) decision {
				return decideTransfer(part[i], r, alive)
			},
		}
	})
}

// batch contains the steps in which Acquire and Transfer differ. A fresh item requires that its
// shard has no record. Each item depends on the roster record of one session, which asks returns.
// If keep is true, the transaction prevents that record's removal. A claim need not do so, because
// a session that is gone never returns.
type batch struct {
	keep   bool
	shard  func(i int) driver.ShardID
	fresh  func(i int) bool
	asks   func(i int, r record) driver.SessionID
	decide func(i int, r record, alive map[driver.SessionID]bool) decision
}

func (s *session) grantAll(ctx context.Context, n int, part func(from, to int) batch) ([]driver.AcquireResult, error) {
	return inParts(n, upTo(n, s.b.info.Limits.BatchItems), func(from, to int, results []driver.AcquireResult) error {
		for until := time.Now().Add(behindLimit); ; {
			older, err := s.grantBatch(ctx, part(from, to), results) // repeats no grant (A3)
			if err != nil || !older || !s.b.stmts.certified || ctx.Err() != nil || time.Now().After(until) {
				return err
			}
			time.Sleep(behindPause)
		}
	}, func(err error) driver.AcquireResult { return driver.AcquireResult{Err: err} })
}

// grantKind contains the values that the rows of one granting statement share.
type grantKind struct {
	to   driver.SessionID
	how  Statement
	from driver.Token // -1: the token of each row
	note string       // prepended to each row's history
}

// grantBatch checks and writes one batch in one transaction. It locks and reads the shards' rows,
// then the roster, and then the namespace's row. While the namespace's row is locked, no owner can
// change. Finally, it reads the rows that another transaction had locked, that did not exist, or
// that were expected not to exist. The result older reports whether a claim was denied because a
// row is older than what the caller saw.
func (s *session) grantBatch(ctx context.Context, part batch, results []driver.AcquireResult) (older bool, err error) {
	b := s.b
	seen, seenRoster := b.floor.Load(), b.rosterAt.Load()
	names := make([]string, len(results))
	var known, fresh []string // shards that may have a row to lock, and the others
	for i := range names {
		names[i] = string(part.shard(i))
		if part.fresh(i) {
			fresh = append(fresh, names[i])
		} else {
			known = append(known, names[i])
		}
	}
	var shown sight
	var wrote bool
	err = b.store.WriteOwners(ctx, func(ctx context.Context, data *Tx, roster func() (*Tx, error)) error {
		records, err := b.claimShards(ctx, data, known)
		if err != nil {
			return err
		}
		alive, labels, err := s.readRoster(ctx, roster, seenRoster, part, names, records)
		if err != nil {
			return err
		}
		check := b.askData(ctx, data, namespaceLock, seen)
		// The reads below need no additional round trip. No owner changes while the namespace's row
		// is locked.
		if err := b.lockFree(ctx, data, slices.Clone(fresh), records); err != nil {
			return err
		}
		late, err := b.readRest(ctx, data, names, records)
		if err != nil {
			return err
		}
		ns, err := check()
		if err != nil {
			return err
		}
		var kinds map[grantKind][]string
		kinds, shown = s.decideAll(part, names, ns, records, late, alive, labels, results)
		if wrote = len(kinds) > 0; !wrote {
			return nil
		}
		shown.floor++
		return data.writeGrants(ctx, b.name, kinds, ns)
	})
	if err == nil { // otherwise, the store may still be writing to shown
		older, err = shown.older, b.settle(ctx, wrote, shown)
	}
	return older, b.adopting(ctx, err)
}

// decideAll decides each item of a batch, based on the record that was read under a lock or,
// failing that, on the record that was read later without a lock. It returns the shards to write,
// and the state that the results show.
func (s *session) decideAll(part batch, names []string, ns namespace, locked, late map[driver.ShardID]record,
	alive map[driver.SessionID]bool, labels map[driver.SessionID]string, results []driver.AcquireResult) (map[grantKind][]string, sight) {
	b, now := s.b, time.Now()
	shown := sight{floor: ns.floor()}
	token := driver.Token(ns.floor() + 1)
	kinds := make(map[grantKind][]string)
	for i := range results {
		shard := driver.ShardID(names[i])
		r, held := locked[shard]
		unlocked, exists := late[shard]
		if exists {
			r = unlocked
		}
		r.floor = driver.Token(ns.base)
		if exists || held {
			r.judge(ns.floor())
		}
		d := b.allow(shard, r, part.decide(i, r, alive), exists && !held)
		results[i] = d.result(shard, r, token)
		shown.older = shown.older || d.older
		if d.err == nil {
			shown.heads = append(shown.heads, driver.ShardHead{Shard: shard, Head: r.head})
		}
		if d.grant {
			kind := grantKind{to: d.to, how: shardsInsert, from: min(d.from, token-1)}
			end := driver.End("")
			if held {
				kind.how, end = shardsGrant, part.end(d.to == s.id, alive[r.owner.Session])
			}
			kind.note = grants.Event(now, end, labels[d.to])
			if held && d.from == r.owner.Token {
				kind.from = -1
			}
			kinds[kind] = append(kinds[kind], names[i])
		}
	}
	return kinds, shown
}

// writeGrants raises the namespace's revision by one. All granted shards get the resulting token.
func (t *Tx) writeGrants(ctx context.Context, name string, grants map[grantKind][]string, ns namespace) error {
	if err := t.write(ctx, namespaceRaise, name, ns.revision+1); err != nil {
		return err
	}
	for kind, shards := range grants {
		if err := t.write(ctx, kind.how, name, array(shards), string(kind.to), ns.floor()+1, int64(kind.from), ns.revision+1, kind.note); err != nil {
			return err
		}
	}
	return nil
}

// allow refuses a decision that cannot be carried out because the record is damaged or another
// transaction has locked the row.
func (b *Backend) allow(shard driver.ShardID, r record, d decision, busy bool) decision {
	if err := b.damagedShard(shard, r); err != nil {
		return decision{err: err}
	}
	if d.grant && busy {
		return decision{err: errBusy("shard", string(shard))}
	}
	return d
}

// result returns the answer for one item, which contains the token if the item is granted.
func (d decision) result(shard driver.ShardID, r record, token driver.Token) driver.AcquireResult {
	if d.err != nil {
		return driver.AcquireResult{Err: d.err}
	}
	if !d.grant {
		token = r.owner.Token
	}
	return driver.AcquireResult{Head: r.head, Fence: driver.Fence{Shard: shard, Session: d.to, Token: token}}
}

// readRoster verifies that the session is alive. It returns the live sessions among those on which
// the items depend, and the labels of these sessions and of this session.
func (s *session) readRoster(ctx context.Context, open func() (*Tx, error), seen int64, part batch, names []string,
	records map[driver.ShardID]record) (alive map[driver.SessionID]bool, labels map[driver.SessionID]string, err error) {
	roster, err := open()
	if err != nil {
		return nil, nil, err
	}
	check := s.b.askRoster(ctx, roster, rosterRead, seen)
	asked := make(map[driver.SessionID]bool)
	var ids []driver.SessionID
	for i, name := range names {
		id := part.asks(i, records[driver.ShardID(name)])
		if id != "" && !asked[id] {
			asked[id] = true
			ids = append(ids, id)
		}
	}
	how, kept := membersPresent, []driver.SessionID{s.id}
	if part.keep {
		how, kept = membersHold, append(kept, ids...)
	}
	if s.b.stmts.has(membersChange) { // before a shared lock on the same rows, which two transactions could share
		if err := roster.write(ctx, membersChange, s.b.name, list(kept, same)); err != nil {
			return nil, nil, err
		}
	}
	held, err := roster.ask(ctx, memberHold, []any{s.b.name, string(s.id)}, new(string))
	if err != nil {
		return nil, nil, err
	}
	alive, labels, err = s.b.alive(ctx, roster, how, ids)
	if err != nil {
		return nil, nil, err
	}
	if _, err := check(); err != nil {
		return nil, nil, err
	}
	if !*held {
		return nil, nil, lost(s.id)
	}
	labels[s.id] = s.node
	return alive, labels, nil
}

// Release frees leases. See driver.Session. It reads only the shard's record, so it also works for
// an evicted session (R1).
func (s *session) Release(ctx context.Context, fences []driver.Fence) error {
	if err := s.b.begin(ctx); err != nil {
		return err
	}
	s.b.observing.expect()
	if err := driver.CheckFences(fences); err != nil {
		return err
	}
	fences = slices.Clone(fences)
	var failed error
	err := inBatches(len(fences), upTo(len(fences), s.b.info.Limits.BatchItems), func(from, to int) error {
		return s.b.release(ctx, fences[from:to])
	}, func(_ int, err error) { failed = err })
	if err == nil && failed != nil {
		// Some leases are already released, so the error must not mean that nothing was applied.
		err = fmt.Errorf("tenure: released a part of %d leases: %v", len(fences), failed)
	}
	return err
}

func (b *Backend) release(ctx context.Context, fences []driver.Fence) error {
	seen := b.floor.Load()
	var floor int64
	var wrote bool
	var locks int // locks without a head
	err := b.store.WriteData(ctx, func(ctx context.Context, data *Tx) error {
		records := make(map[driver.ShardID]record, len(fences))
		if err := b.askShards(ctx, data, shardsLock, namesOf(fences, func(f driver.Fence) string { return string(f.Shard) }), records); err != nil {
			return err
		}
		ns, err := b.checkData(ctx, data, namespaceLock, seen)
		if err != nil {
			return err
		}
		var shards []string
		locks = 0
		for _, f := range fences {
			r := records[f.Shard]
			if r.owner != (driver.Owner{Session: f.Session, Token: f.Token}) {
				continue
			}
			shards = append(shards, string(f.Shard))
			if driver.IsLock(f.Shard) && r.head == (driver.Head{}) {
				locks++
			}
		}
		floor = ns.floor()
		if wrote = len(shards) > 0; !wrote {
			return nil
		}
		floor++
		if err := data.write(ctx, namespaceRaise, b.name, ns.revision+1); err != nil {
			return err
		}
		return data.write(ctx, shardsRelease, b.name, array(shards), ns.revision+1, grants.Event(time.Now(), driver.EndReleased, ""))
	})
	if err == nil {
		err = b.settle(ctx, wrote, sight{floor: floor})
	}
	if err == nil && b.freed.add(locks) {
		b.sweepLocks(ctx)
	}
	return b.adopting(ctx, err)
}
