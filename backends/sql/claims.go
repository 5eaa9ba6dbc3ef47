package sql

import (
	"context"
	"fmt"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
)

// record is a shard's row.
type record struct {
	owner   driver.Owner // zero if it is damaged
	why     string       // it is damaged: in its owner or its head
	granted driver.Token // the token that the current one was granted from (A3)
	head    driver.Head
	floor   driver.Token // of View: what a shard without a row counts as (I2)
}

// decision says what becomes of one claim or hand-over, given the shard's row.
type decision struct {
	err   error
	grant bool             // else, with a nil error, it was granted before (A3)
	to    driver.SessionID // the new holder
	from  driver.Token     // that it is granted from: a lock's may be another than the row's (R2)
}

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
		return decision{err: &driver.HeldError{Shard: c.Shard, Owner: r.owner}}
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

// Transfer passes leases on. See driver.Session.
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

// batch is what Acquire and Transfer differ in: the shard of an item, whether it
// can be granted only if that has no record, the session whose being alive it
// depends on, whether that is to stay so (a session that is gone never comes back),
// and the decision.
type batch struct {
	keep   bool
	shard  func(i int) driver.ShardID
	fresh  func(i int) bool
	asks   func(i int, r record) driver.SessionID
	decide func(i int, r record, alive map[driver.SessionID]bool) decision
}

func (s *session) grantAll(ctx context.Context, n int, part func(from, to int) batch) ([]driver.AcquireResult, error) {
	return inParts(n, upTo(n, s.b.info.Limits.BatchItems), func(from, to int, results []driver.AcquireResult) error {
		return s.grantBatch(ctx, part(from, to), results)
	}, func(err error) driver.AcquireResult { return driver.AcquireResult{Err: err} })
}

// grantKind is what one statement can grant.
type grantKind struct {
	to   driver.SessionID
	how  Statement
	from driver.Token // -1: that of each row
}

// grantBatch decides and writes one batch in one transaction: the shards' rows
// are locked and read, then the roster, then the namespace's row is locked, and
// with it every owner: a row that another transaction had locked, that did not
// exist or was not expected to, is read then.
func (s *session) grantBatch(ctx context.Context, part batch, results []driver.AcquireResult) error {
	b := s.b
	seen, seenRoster := b.floor.Load(), b.rosterAt.Load()
	names := make([]string, len(results))
	var known, fresh []string // shards that may have a row to be locked, and the others
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
	err := b.store.WriteOwners(ctx, func(ctx context.Context, data *Tx, roster func() (*Tx, error)) error {
		records, err := b.claimShards(ctx, data, known)
		if err != nil {
			return err
		}
		alive, err := s.readRoster(ctx, roster, seenRoster, part, names, records)
		if err != nil {
			return err
		}
		check := b.askData(ctx, data, namespaceLock, seen)
		// In the same round trip, with every owner as it stays while that row is locked.
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
		var grants map[grantKind][]string
		grants, shown = b.decideAll(part, names, ns, records, late, alive, results)
		if wrote = len(grants) > 0; !wrote {
			return nil
		}
		shown.floor++
		return data.writeGrants(ctx, b.name, grants, ns)
	})
	if err == nil {
		err = b.settle(ctx, wrote, shown)
	}
	return b.adopting(ctx, err)
}

// decideAll decides on each item of a batch: from its record as it was locked, or else
// as it was read late. It returns the shards to write, and what the results show.
func (b *Backend) decideAll(part batch, names []string, ns namespace, locked, late map[driver.ShardID]record,
	alive map[driver.SessionID]bool, results []driver.AcquireResult) (map[grantKind][]string, sight) {
	shown := sight{floor: ns.floor()}
	token := driver.Token(ns.floor() + 1)
	grants := make(map[grantKind][]string)
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
		if d.err == nil {
			shown.heads = append(shown.heads, driver.ShardHead{Shard: shard, Head: r.head})
		}
		if d.grant {
			kind := grantKind{d.to, shardsInsert, min(d.from, token-1)}
			if held {
				kind.how = shardsGrant
			}
			if held && d.from == r.owner.Token {
				kind.from = -1
			}
			grants[kind] = append(grants[kind], names[i])
		}
	}
	return grants, shown
}

// writeGrants raises the namespace's revision by one, whose token all shards get.
func (t *Tx) writeGrants(ctx context.Context, name string, grants map[grantKind][]string, ns namespace) error {
	if err := t.write(ctx, namespaceRaise, name, ns.revision+1); err != nil {
		return err
	}
	for kind, shards := range grants {
		if err := t.write(ctx, kind.how, name, array(shards), string(kind.to), ns.floor()+1, int64(kind.from), ns.revision+1); err != nil {
			return err
		}
	}
	return nil
}

// allow refuses what a decision cannot bring about: a damaged record, or a grant of a
// row that another transaction holds.
func (b *Backend) allow(shard driver.ShardID, r record, d decision, busy bool) decision {
	if err := b.damagedShard(shard, r); err != nil {
		return decision{err: err}
	}
	if d.grant && busy {
		return decision{err: errBusy("shard", string(shard))}
	}
	return d
}

// result is the answer for one item, which gets the token if it is granted.
func (d decision) result(shard driver.ShardID, r record, token driver.Token) driver.AcquireResult {
	if d.err != nil {
		return driver.AcquireResult{Err: d.err}
	}
	if !d.grant {
		token = r.owner.Token
	}
	return driver.AcquireResult{Head: r.head, Fence: driver.Fence{Shard: shard, Session: d.to, Token: token}}
}

// readRoster proves that the session lives, and returns which of the sessions
// that the items depend on do.
func (s *session) readRoster(ctx context.Context, open func() (*Tx, error), seen int64, part batch, names []string, records map[driver.ShardID]record) (map[driver.SessionID]bool, error) {
	roster, err := open()
	if err != nil {
		return nil, err
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
	if s.b.stmts.has(membersChange) { // before a shared lock on the same rows, which two could have
		if err := roster.write(ctx, membersChange, s.b.name, list(kept, same)); err != nil {
			return nil, err
		}
	}
	held, err := roster.ask(ctx, memberHold, []any{s.b.name, string(s.id)}, new(string))
	if err != nil {
		return nil, err
	}
	alive, err := s.b.alive(ctx, roster, how, ids)
	if err != nil {
		return nil, err
	}
	if _, err := check(); err != nil {
		return nil, err
	}
	if !*held {
		return nil, lost(s.id)
	}
	return alive, nil
}

// Release frees leases. See driver.Session. It asks the shard's record only, so
// that it also means what it says for a session that was evicted (R1).
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
		// Some of the fences were released already: no sentinel may say otherwise.
		err = fmt.Errorf("tenure: released a part of %d leases: %v", len(fences), failed)
	}
	return err
}

func (b *Backend) release(ctx context.Context, fences []driver.Fence) error {
	seen := b.floor.Load()
	var floor int64
	var wrote bool
	var locks int // that have no head
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
		return data.write(ctx, shardsRelease, b.name, array(shards), ns.revision+1)
	})
	if err == nil {
		err = b.settle(ctx, wrote, sight{floor: floor})
	}
	if err == nil && b.freed.add(locks) {
		b.sweepLocks(ctx)
	}
	return b.adopting(ctx, err)
}
