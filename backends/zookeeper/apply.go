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

// maxRounds limits how many times a batch is sent again after a refusal. Each refusal means
// that another process changed a record.
const maxRounds = 8

// Apply applies as much as possible of a batch in one Multi. See changelog.Store.
//
// A Multi is all or nothing, and its error names the refused operation. Apply then reads the
// compared records on the same connection. Its server has applied every write on which the
// refusal depends. From that read, Apply answers the transactions that cannot be applied, and
// sends the others again (rule A6). It never sends a Multi again whose reply was lost.
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

// application is the state of one Apply.
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
	synced    bool // the link's server has everything acknowledged before
	dirs      bool // a directory of a shard is missing
}

// beat applies a heartbeat at the chosen server. If that server cannot be reached, nothing was
// sent, and beat asks the next one. If a new link is answered while an older one is silent, the
// other silent links are left too, because they cost calls otherwise.
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

// outcomeOf returns what the end of a call shows about its server.
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
			continue // the new records may name more records to learn
		}
		if len(a.left) == 0 {
			break
		}
		done, err := a.send(ctx)
		if err != nil {
			if len(a.left) == len(a.txns) {
				return err
			}
			a.answer(err) // and the other transactions as before
		}
		if done || err != nil {
			break
		}
	}
	a.answer(fmt.Errorf("tenure: zookeeper: %w: the records change faster than they can be read", driver.ErrRetry))
	a.explain(ctx)
	return nil
}

// answer answers all remaining transactions with an error.
func (a *application) answer(err error) {
	for _, i := range a.left {
		a.out.Results[i].Err = err
	}
	a.left = nil
}

// compared returns the conditions of all remaining transactions.
func (a *application) compared() []cond {
	conds := slices.Clone(a.guard.conds)
	conds = append(conds, a.piggyback.conds...)
	for _, i := range a.left {
		conds = append(conds, a.txns[i].conds...)
	}
	return conds
}

// learn reads the records needed before the rest can be sent. With all, after a refusal, it reads
// every record again. It reports whether it read anything.
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
	// Every answer from a read must rest on one state of the guard.
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

// ops returns the operations of all remaining transactions.
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

// sift removes transactions whose conditions are known not to hold. It reports whether the guard or
// the piggybacked transaction is refused, and records that in the outcome.
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

// refuse answers with the guard's records.
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

// send sends the remaining transactions. It reports whether they were applied. If not, it has
// learned the reason.
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

// refused finds out why the store refused a Multi.
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
			a.known.fresh[e.key] = found{} // another node than its version shows, or a remainder of one
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

// removed answers a transaction that would create a permanent record again after it was deleted.
// The record's versions would start again (rule A2).
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

// applied takes the answer to an applied Multi. former holds the records as they were before it
// was sent.
func (a *application) applied(m *multi, parts []zk.MultiResponse, former []stat) {
	rev := kv.Rev(a.link.wire.zxid.Load()) // of this write or a later one
	for _, p := range parts {
		if p.Stat != nil {
			rev = kv.Rev(p.Stat.Mzxid) // the same for all of them
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

// previous returns the revision that a record had before a write, by its versions. It returns 0
// if there were other writes in between. If the record was a different one or had an older
// state, the store must have gone back. Then it returns 1, which no record has.
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

// explain reads the records that the transactions ask for, which are Then of applied
// transactions and Else of the others. If that fails, the outcome of the applied ones is
// unknown.
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

// writeError returns the error of a failed Multi. Its outcome is unknown, unless the server reports
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

// notApplied returns the error of a read before anything was applied.
func notApplied(err error) error {
	if driver.NotApplied(err) {
		return err
	}
	return fmt.Errorf("tenure: zookeeper: %w: reading before the write: %w", driver.ErrRetry, denied(err))
}

// denied wraps the server's error about the user's rights (E5).
func denied(err error) error {
	if errors.Is(err, zk.ErrNoAuth) || errors.Is(err, zk.ErrAuthFailed) {
		return fmt.Errorf("%w: compare the nodes' ACLs with docs/backends/zookeeper.md: %w", driver.ErrDenied, err)
	}
	return err
}
