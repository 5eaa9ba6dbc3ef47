package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/changelog"
	"github.com/tenure-go/tenure/internal/route"
)

// maxRounds limits the number of times that a batch is sent again after other processes have
// changed records.
const maxRounds = 8

// Apply applies as much of a batch as possible in one Multi. See changelog.Store.
//
// ZooKeeper applies a Multi entirely or not at all, and the error identifies the refused operation.
// Apply then reads the compared records on the same connection, whose server has applied every
// write that led to the refusal. Transactions that cannot be applied get their results, and the
// rest are sent again (rule A6). If the reply to a Multi is lost, the Multi is never repeated.
func (s *store) Apply(ctx context.Context, b *changelog.Batch) (*changelog.Outcome, error) {
	a := &application{store: s, batch: b, known: knowledge{make(map[string]found), &s.stats}}
	var err error
	if a.guard, err = s.txn(&kv.Txn{If: b.Guard}); err != nil {
		return nil, err
	}
	if b.Piggyback != nil {
		if a.piggyback, err = s.txn(b.Piggyback); err != nil {
			return nil, err
		}
	}
	a.txns = make([]txn, len(b.Txns))
	a.left = make([]int, len(b.Txns))
	for i := range b.Txns {
		if a.txns[i], err = s.txn(&b.Txns[i]); err != nil {
			return nil, err
		}
		a.left[i] = i
	}
	a.out.Results = make([]kv.Result, len(b.Txns))
	if b.Heartbeat {
		err = a.beat(ctx)
	} else if a.link, err = s.writes.link(ctx); err == nil {
		err = a.run(ctx)
	}
	if err != nil {
		return nil, err
	}
	if a.out.Refused || a.out.PiggybackRefused {
		a.out.Results = nil
	}
	return &a.out, nil
}

type application struct {
	*store
	batch     *changelog.Batch
	link      *link
	guard     txn
	piggyback txn
	txns      []txn
	left      []int // transactions without an answer so far
	known     knowledge
	out       changelog.Outcome
	synced    bool // the link's server has all acknowledged writes
	dirs      bool // a directory of a shard is missing
}

// beat sends a heartbeat to the chosen server or, if that server cannot be reached and nothing was
// sent, to the next one. If a new link gets an answer while an older one is silent, beat abandons
// all silent links, because calls on them would fail.
func (a *application) beat(ctx context.Context) error {
	var errs []error
	for range a.beats {
		trip := a.routes.Beat(ctx)
		if trip.Stale {
			a.beats[trip.Server].renew()
		}
		lk, err := a.beats[trip.Server].link(trip.Context)
		if err == nil {
			a.link = lk
			err = a.run(trip.Context)
			if err == nil && !trip.Since.IsZero() && lk.began.After(trip.Since) {
				a.doubt(trip.Since)
			}
			trip.Done(outcomeOf(trip.Context, err))
			return err
		}
		trip.Done(outcomeOf(trip.Context, err))
		if errs = append(errs, err); ctx.Err() != nil || a.life.Err() != nil {
			break
		}
	}
	return joined(errs...)
}

func outcomeOf(ctx context.Context, err error) route.Outcome {
	switch {
	case err == nil, errors.Is(err, driver.ErrDenied), driver.NotApplied(err) && !errors.Is(err, driver.ErrRetry):
		return route.Answered
	case errors.Is(ctx.Err(), context.Canceled):
		return route.Ended
	}
	return route.Failed
}

func (a *application) run(ctx context.Context) error {
	for range maxRounds {
		again, err := a.learn(ctx, false)
		if err != nil {
			return notApplied(err)
		}
		if a.sift() {
			return a.refuse(ctx)
		}
		if again {
			continue // the new records may name further records to learn
		}
		if len(a.left) == 0 {
			break
		}
		done, err := a.send(ctx)
		if err != nil {
			if len(a.left) == len(a.txns) {
				return err
			}
			a.answer(err) // answer the other transactions as before
		}
		if done || err != nil {
			break
		}
	}
	a.answer(fmt.Errorf("tenure: zookeeper: %w: the records change faster than they can be read", driver.ErrRetry))
	a.explain(ctx)
	return nil
}

func (a *application) answer(err error) {
	for _, i := range a.left {
		a.out.Results[i].Err = err
	}
	a.left = nil
}

func (a *application) compared() []cond {
	conds := slices.Clone(a.guard.conds)
	conds = append(conds, a.piggyback.conds...)
	for _, i := range a.left {
		conds = append(conds, a.txns[i].conds...)
	}
	return conds
}

// learn reads the records needed to send the remaining transactions, and reports whether there were
// any. If all is set, as after a refusal, every record is read again.
func (a *application) learn(ctx context.Context, all bool) (bool, error) {
	var keys []string
	want := make(map[string]bool)
	add := func(key string) {
		if !want[key] {
			want[key] = true
			keys = append(keys, key)
		}
	}
	for _, c := range a.compared() {
		if v, _ := a.known.judge(c); all || v == unsure {
			add(c.key)
		}
	}
	if c := a.identityCond(); c != nil && a.identity.Load() == nil {
		add(c.key)
	}
	if all {
		for _, ops := range a.ops() {
			for _, op := range ops {
				add(op.key)
			}
		}
	}
	if len(keys) == 0 {
		return false, nil
	}
	// All answers based on reads must reflect the same state of the guard.
	for _, c := range a.guard.conds {
		add(c.key)
	}
	if !a.synced {
		if err := a.link.caughtUp(ctx, a.paths.root); err != nil {
			return false, err
		}
		a.synced = true
	}
	read, err := a.read(ctx, a.link, keys, &kv.Range{})
	if err != nil {
		return false, err
	}
	for i, key := range keys {
		a.known.fresh[key] = read[i]
	}
	return true, nil
}

func (a *application) ops() [][]write {
	all := [][]write{a.piggyback.ops}
	for _, i := range a.left {
		all = append(all, a.txns[i].ops)
	}
	return all
}

// identityCond returns the condition on the namespace's identity, or nil if the guard has none.
func (a *application) identityCond() *cond {
	for i, c := range a.guard.conds {
		if _, part := partOf(c.key); part == "!id" {
			return &a.guard.conds[i]
		}
	}
	return nil
}

// sift removes transactions whose conditions certainly do not hold. If the guard or the piggybacked
// transaction is refused, sift returns true and records the refusal in the outcome.
func (a *application) sift() (refused bool) {
	failing := func(t *txn) bool {
		return slices.ContainsFunc(t.conds, func(c cond) bool {
			v, _ := a.known.judge(c)
			return v == fails
		})
	}
	if failing(&a.guard) {
		a.out.Refused = true
		return true
	}
	a.left = slices.DeleteFunc(a.left, func(i int) bool { return failing(&a.txns[i]) })
	if len(a.left) > 0 && failing(&a.piggyback) {
		a.out.PiggybackRefused = true
		return true
	}
	return false
}

// If the guard was refused, refuse puts the guard's records into the outcome.
func (a *application) refuse(ctx context.Context) error {
	if !a.out.Refused {
		return nil
	}
	var missing []string
	for _, c := range a.guard.conds {
		if _, ok := a.known.fresh[c.key]; !ok {
			missing = append(missing, c.key)
		}
	}
	read, err := a.read(ctx, a.link, missing, &kv.Range{})
	if err != nil {
		return notApplied(err)
	}
	for i, key := range missing {
		a.known.fresh[key] = read[i]
	}
	for _, c := range a.guard.conds {
		a.out.Guard = append(a.out.Guard, a.known.fresh[c.key].pair(c.key))
	}
	return nil
}

// send sends the remaining transactions, and reports whether they were applied. After a refusal,
// their records have been read again.
func (a *application) send(ctx context.Context) (done bool, err error) {
	m := &multi{absent: make(map[string]bool), rights: a.rights}
	m.txn(&a.guard, &a.known)
	if c := a.identityCond(); c != nil {
		id := a.identity.Load()
		if id == nil || id.marker == "" {
			return false, fmt.Errorf("tenure: zookeeper: %w: the record %s is not one that this package wrote",
				driver.ErrStoreChanged, c.key)
		}
		dir, _ := split(c.node)
		m.check(dir+"/"+id.marker, anyVersion, effect{key: c.key, kind: marked})
	}
	piggyback := a.withStats()
	m.txn(&piggyback, &a.known)
	for _, i := range a.left {
		m.txn(&a.txns[i], &a.known)
	}
	m.finish()
	if m.bytes > maxPacket {
		return false, fmt.Errorf("tenure: zookeeper: %w: %s", driver.ErrTooLarge, tooMuch(m.bytes))
	}
	if err := a.makeDirs(ctx, a.link, a.missingDirs()); err != nil {
		return false, notApplied(err)
	}
	former := make([]stat, len(m.effect))
	for i, e := range m.effect {
		if e.kind == changed {
			former[i], _ = a.stats.get(e.key)
		}
	}
	type reply struct {
		parts []zk.MultiResponse
		err   error
	}
	r, err := call(ctx, a.link, func(c *zk.Conn) (reply, error) {
		parts, err := c.Multi(m.ops...)
		if len(parts) == len(m.ops) { // an error in the parts is the store's own answer
			return reply{parts, err}, nil
		}
		return reply{}, err
	})
	if err != nil {
		return false, writeError(err)
	}
	if r.err == nil {
		a.applied(m, r.parts, former)
		return true, nil
	}
	at := slices.IndexFunc(r.parts, func(p zk.MultiResponse) bool { return p.Error != nil })
	a.link.refused(r.parts[at].Error)
	return false, a.refused(ctx, m, at, r.parts[at].Error)
}

// refused determines why a Multi was refused.
func (a *application) refused(ctx context.Context, m *multi, at int, cause error) error {
	e := m.effect[at]
	if !errors.Is(cause, zk.ErrBadVersion) && !errors.Is(cause, zk.ErrNoNode) && !errors.Is(cause, zk.ErrNodeExists) {
		return writeError(fmt.Errorf("%s: %w", nodeOf(m.ops[at]), cause))
	}
	a.synced = true // the server has refused it at a later point than this process knows
	if _, err := a.learn(ctx, true); err != nil {
		return notApplied(err)
	}
	switch {
	case e.kind == marked:
		if v, _ := a.known.judge(*a.identityCond()); v == holds {
			a.known.fresh[e.key] = found{} // a different node, or its remainder
		}
	case e.kind == born && errors.Is(cause, zk.ErrNodeExists) && !a.known.fresh[e.key].exists:
		a.removed(e.key, nodeOf(m.ops[at]))
	case errors.Is(cause, zk.ErrNoNode):
		if c, ok := m.ops[at].(*zk.CreateRequest); ok {
			a.dirs = true
			a.forgetDir(c.Path)
		}
	}
	return nil
}

// removed ends each transaction that would recreate a deleted permanent record, whose versions
// would start from 0 again (rule A2).
func (a *application) removed(key, twin string) {
	a.left = slices.DeleteFunc(a.left, func(i int) bool {
		if !slices.ContainsFunc(a.txns[i].ops, func(w write) bool { return w.key == key }) {
			return false
		}
		a.out.Results[i].Err = fmt.Errorf("tenure: zookeeper: %w: the record %s was deleted, %s shows that it existed",
			driver.ErrStoreChanged, key, twin)
		return true
	})
}

func nodeOf(op any) string {
	switch op := op.(type) {
	case *zk.CreateRequest:
		return op.Path
	case *zk.SetDataRequest:
		return op.Path
	case *zk.DeleteRequest:
		return op.Path
	case *zk.CheckVersionRequest:
		return op.Path
	}
	return ""
}

// applied processes the answer to an applied Multi. The argument former contains the records' stats
// from before the Multi was sent.
func (a *application) applied(m *multi, parts []zk.MultiResponse, former []stat) {
	rev := kv.Rev(a.link.wire.zxid.Load()) // revision of this write or a later one
	for _, p := range parts {
		if p.Stat != nil {
			rev = kv.Rev(p.Stat.Mzxid) // the same for all results
		}
	}
	var strange error
	before := make(map[string]kv.Rev)
	for i, e := range m.effect {
		switch e.kind {
		case deleted:
			a.stats.drop(e.key)
		case created:
			a.stats.put(e.key, stat{rev, int64(rev), 0})
		case changed:
			now := statOf(parts[i].Stat)
			if e.former.created != 0 && e.former.created != now.created {
				strange = fmt.Errorf("tenure: zookeeper: %w: the record %s was deleted and made again",
					driver.ErrStoreChanged, e.key)
			}
			before[e.key] = previous(former[i], now)
			a.stats.put(e.key, now)
		default:
			continue
		}
		if _, part := partOf(e.key); part == "!id" {
			a.identity.Store(nil)
		}
	}
	for _, i := range a.left {
		r := &a.out.Results[i]
		r.OK, r.Rev, r.Err = true, rev, strange
		if a.batch.Txns[i].Prev {
			r.Prev = before[a.txns[i].ops[0].key]
		}
	}
	a.out.Piggyback.OK, a.out.Piggyback.Rev = a.batch.Piggyback != nil, rev
	a.left = nil
}

// previous derives a record's revision before a write from its versions, or returns 0 if there were
// other writes in between. If the record was recreated, or its version did not increase, the store
// must have returned to an earlier state. The result is then 1, which is no record's revision.
func previous(former, now stat) kv.Rev {
	switch {
	case former.rev == 0:
		return 0
	case former.created != now.created || now.version <= former.version:
		return 1
	case now.version == former.version+1:
		return former.rev
	}
	return 0
}

// explain reads the records listed in Then for applied transactions, and in Else for refused ones.
// If the read fails, the outcome of the applied transactions is unknown.
func (a *application) explain(ctx context.Context) {
	var keys []string
	index := make(map[string]int)
	wanted := func(i int) []string {
		switch r := &a.out.Results[i]; {
		case r.Err != nil:
			return nil
		case r.OK:
			return a.batch.Txns[i].Then
		default:
			return a.batch.Txns[i].Else
		}
	}
	for i := range a.txns {
		for _, key := range wanted(i) {
			if _, ok := index[key]; !ok {
				index[key] = len(keys)
				keys = append(keys, key)
			}
		}
	}
	if len(keys) == 0 {
		return
	}
	read, err := a.read(ctx, a.link, keys, &kv.Range{})
	for i := range a.txns {
		want := wanted(i)
		if len(want) == 0 {
			continue
		}
		r := &a.out.Results[i]
		if err != nil {
			if r.Err = notApplied(err); r.OK {
				r.Err = fmt.Errorf("tenure: zookeeper: reading after the write: %s", err.Error())
			}
			continue
		}
		r.Reads = make([]kv.Pair, len(want))
		for n, key := range want {
			r.Reads[n] = read[index[key]].pair(key)
		}
	}
}

// writeError returns the error of a failed Multi. The outcome is unknown unless the server reports
// that it did not process the Multi, or the Multi never left this process.
func writeError(err error) error {
	if err = denied(err); driver.NotApplied(err) {
		return err
	}
	if errors.Is(err, driver.ErrDenied) || errors.Is(err, zk.ErrSessionExpired) || errors.Is(err, zk.ErrSessionMoved) ||
		errors.Is(err, zk.ErrNoServer) {
		return fmt.Errorf("tenure: zookeeper: %w: %w", driver.ErrRetry, err)
	}
	return fmt.Errorf("tenure: zookeeper: writing: %w", err)
}

// notApplied returns the error of a read that failed before anything was applied.
func notApplied(err error) error {
	if driver.NotApplied(err) {
		return err
	}
	return fmt.Errorf("tenure: zookeeper: %w: reading before the write: %w", driver.ErrRetry, denied(err))
}

// denied marks permission errors with driver.ErrDenied (E5).
func denied(err error) error {
	if errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrAuthFailed) {
		return fmt.Errorf("%w: compare the nodes' ACLs with docs/backends/zookeeper.md: %w", driver.ErrDenied, err)
	}
	return err
}
