package conformance_test

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/grants"
)

// model is a second, simple implementation of the contract: one mutex and a few maps. It shares
// nothing with the shipped backends, so it shows that the suite is not fitted to them. For the
// mutants, the model breaks one rule at a time (see bug).
type model struct {
	bug   bug
	takes int  // items in one call; 0: any number
	hoard bool // the store keeps every entry, like one without compaction
	deny  atomic.Bool

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	calls   conformance.Calls
	store   state
	replica *state          // state of the other servers while the store is isolated
	ahead   bool            // and the isolated store has more
	all     []driver.Entry  // with hoard
	texts   []string        // the application's; a restore does not change them
	tailers []*modelBackend // for the mutant that keeps entries for them
}

// state is the durable state, which snapshots contain.
type state struct {
	id        string
	rev       int64 // counts changes of members and owners; tokens come from it
	forked    bool  // its history differs from the earlier one
	floor     driver.Token
	compacted int64
	labels    map[string]driver.SessionID
	removals  int                       // number of removals of labels
	used      map[driver.SessionID]bool // ids that have joined
	members   map[driver.SessionID]*record
	gone      map[driver.SessionID]int64
	shards    map[driver.ShardID]*shard
	freed     map[driver.ShardID]*shard // removed locks, whose release views report
	tail      []driver.Entry
	tailed    int64 // entries that left tail
}

type record struct {
	driver.Member
	version driver.Version
	rev     int64
	corrupt bool
}

type shard struct {
	owner   driver.Owner
	from    driver.Token // the token before the owner's lease
	rev     int64
	head    driver.Head
	before  driver.Head // before the last commit
	entries []driver.Entry
	items   map[string]driver.Item
	corrupt bool
	badHead bool
	badLog  bool  // entry 1
	oddItem bool  // beside the items
	counter int64 // for mutants that number differently
	past    string
}

const modelTail = 100 // number of entries that the tail keeps

func newModel(b bug) *model { return &model{bug: b, changed: make(chan struct{})} }

func (s *state) clone() state {
	c := *s
	c.labels, c.used, c.gone = maps.Clone(s.labels), maps.Clone(s.used), maps.Clone(s.gone)
	c.members, c.shards = map[driver.SessionID]*record{}, map[driver.ShardID]*shard{}
	for id, r := range s.members {
		r := *r
		c.members[id] = &r
	}
	for id, sh := range s.shards {
		sh := *sh
		sh.entries, sh.items = slices.Clone(sh.entries), maps.Clone(sh.items)
		c.shards[id] = &sh
	}
	c.freed = maps.Clone(s.freed)
	c.tail = slices.Clone(s.tail)
	return c
}

func (m *model) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *model) shard(id driver.ShardID) *shard {
	s := m.store.shards[id]
	if s == nil {
		s = &shard{items: map[string]driver.Item{}}
	}
	return s
}

// grant writes a shard's record.
func (m *model) grant(id driver.ShardID, to driver.SessionID, end driver.End) driver.AcquireResult {
	s := m.shard(id)
	m.store.rev++
	token := driver.Token(m.store.rev)
	if m.bug == tokenResetOnRelease || m.bug == tokenResetOnDelete {
		s.counter++
		token = driver.Token(s.counter)
	}
	m.note(id, s, end, to)
	s.from, s.owner, s.rev = s.owner.Token, driver.Owner{Session: to, Token: token}, m.store.rev
	m.store.shards[id] = s
	delete(m.store.freed, id)
	m.wake()
	return driver.AcquireResult{Fence: driver.Fence{Shard: id, Session: to, Token: token}, Head: s.head}
}

// note records a change of owner.
func (m *model) note(id driver.ShardID, s *shard, end driver.End, to driver.SessionID) {
	at, node := time.Now(), ""
	if driver.IsLock(id) || m.bug == historyOfGrants && to == "" {
		return
	}
	if m.bug == historyTimeless {
		at = time.Time{}
	}
	if r := m.store.members[to]; r != nil {
		node = r.Node
	}
	if s.owner == (driver.Owner{}) {
		end = ""
	}
	s.past = grants.Add(grants.Event(at, end, node), s.past)
	if m.bug == historyShort {
		s.past = grants.Event(at, end, node)
	}
}

// lift lets a store continue after its history has forked. It raises each counter to the clock's
// value, which is above every value that may have been lost.
func (m *model) lift(seen int64) {
	if !m.store.forked || m.bug == noForkCheck {
		return
	}
	m.store.forked = false
	if m.bug == forkKeepsTokens {
		return
	}
	by := max(0, seen-m.store.rev) + 1<<40
	if m.bug != forkLiftsAlike {
		by = time.Now().UnixMicro() - m.store.rev
	}
	m.store.rev += by
	m.store.floor, m.store.compacted = driver.Token(m.store.rev), m.store.rev
	clear(m.store.gone)
	m.store.rev++
	for _, r := range m.store.members {
		r.version += driver.Version(by)
	}
	for _, s := range m.store.shards {
		if m.bug != forkKeepsLeases {
			s.from, s.owner.Token = s.owner.Token, driver.Token(m.store.rev)
		}
	}
	m.wake()
}

// damaged returns the error of calls that need an unreadable record.
func (m *model) damaged(key string, id driver.ShardID) error {
	err := error(driver.Damaged(key, id, "it does not decode"))
	if m.bug == damageIsRetry {
		err = fmt.Errorf("%w: %w", err, driver.ErrRetry)
	}
	return err
}

func (m *model) claim(self driver.SessionID, c driver.Claim) driver.AcquireResult {
	s := m.shard(c.Shard)
	if s.corrupt && m.bug == corruptIsFree {
		s = &shard{items: s.items}
		m.store.shards[c.Shard] = s
	}
	_, lives := m.store.members[s.owner.Session]
	if s.from == 0 && c.Seen == (driver.Owner{Token: m.store.floor}) {
		c.Seen = driver.Owner{}
	}
	free := driver.IsLock(c.Shard) && c.Seen.Session == "" && (s.owner.Session == "" || m.bug == lockSeenFree)
	if m.bug == lockSeenExactly {
		free = false
	}
	switch {
	case s.corrupt, s.badHead && m.bug != badHeadUsed:
		return driver.AcquireResult{Err: m.damaged("shard/"+string(c.Shard), c.Shard)}
	case s.owner.Session == self && (s.from == c.Seen.Token || m.bug == claimBySession) && s.owner != c.Seen &&
		m.bug != claimNotIdempotent:
		return driver.AcquireResult{Fence: driver.Fence{Shard: c.Shard, Session: self, Token: s.owner.Token},
			Head: s.head}
	case s.owner != c.Seen && !free, lives && !c.Preempt && !free && m.bug != claimTrustsView:
		return driver.AcquireResult{Err: &driver.HeldError{Shard: c.Shard, Owner: s.owner}}
	}
	if m.bug == livesCheckedApart {
		if m.pause(); s.owner != c.Seen && !free {
			return driver.AcquireResult{Err: &driver.HeldError{Shard: c.Shard, Owner: s.owner}}
		}
	}
	end := driver.EndGone
	if c.Preempt {
		end = driver.EndPreempted
	}
	return m.grant(c.Shard, self, end)
}

func (m *model) transfer(h driver.Transfer) driver.AcquireResult {
	s := m.shard(h.Fence.Shard)
	_, lives := m.store.members[h.To]
	switch {
	case s.corrupt:
		return driver.AcquireResult{Err: m.damaged("shard/"+string(h.Fence.Shard), h.Fence.Shard)}
	case s.owner == (driver.Owner{Session: h.Fence.Session, Token: h.Fence.Token}) && s.owner.Session != "":
		if !lives && m.bug != transferToAbsent {
			return driver.AcquireResult{Err: fmt.Errorf("tenure: %w", driver.ErrNoTarget)}
		}
		if m.bug == livesCheckedApart {
			if m.pause(); s.owner.Token != h.Fence.Token {
				return driver.AcquireResult{Err: &driver.FencedError{Fence: h.Fence, Current: s.owner}}
			}
		}
		end := driver.EndPassed
		if h.To == h.Fence.Session {
			end = driver.EndRenewed
		}
		return m.grant(h.Fence.Shard, h.To, end)
	case s.owner.Session == h.To && (s.from == h.Fence.Token || m.bug == transferByTarget):
		return driver.AcquireResult{Fence: driver.Fence{Shard: h.Fence.Shard, Session: h.To, Token: s.owner.Token},
			Head: s.head}
	}
	return driver.AcquireResult{Err: &driver.FencedError{Fence: h.Fence, Current: s.owner}}
}

func (m *model) release(f driver.Fence, believed bool) {
	s := m.shard(f.Shard)
	if believed && m.bug == releaseUnseen {
		f.Session, f.Token = s.owner.Session, s.owner.Token
	}
	if s.owner.Session != f.Session || s.corrupt || (s.owner.Token != f.Token && m.bug != releaseByOwner) {
		return
	}
	m.store.rev++
	m.note(f.Shard, s, driver.EndReleased, "")
	s.owner, s.rev = driver.Owner{Token: s.owner.Token}, m.store.rev
	if m.bug == tokenResetOnRelease {
		s.owner, s.counter = driver.Owner{}, 0
	}
	if driver.IsLock(f.Shard) && (s.head == driver.Head{} || m.bug == lockDropsHead) && m.bug != locksStay {
		delete(m.store.shards, f.Shard)
		if m.bug != lockVanishes {
			m.store.freed[f.Shard] = s
		}
	}
	m.wake()
}

func (m *model) commit(w driver.Write) driver.CommitResult {
	s := m.shard(w.Fence.Shard)
	fenced := s.owner != (driver.Owner{Session: w.Fence.Session, Token: w.Fence.Token})
	conflict := m.conflict(s, w)
	switch {
	case m.deny.Load() && m.bug == denialIsRetry:
		return driver.CommitResult{Err: fmt.Errorf("tenure: %w: a right is missing", driver.ErrRetry)}
	case m.deny.Load():
		return driver.CommitResult{Err: fmt.Errorf("tenure: %w: %w", driver.ErrRetry, driver.ErrDenied)}
	case s.corrupt, s.badHead && !fenced && m.bug != badHeadUsed:
		return driver.CommitResult{Err: m.damaged("shard/"+string(w.Fence.Shard), w.Fence.Shard)}
	case fenced && conflict != nil && m.bug == conflictBeforeFence:
		return driver.CommitResult{Err: conflict}
	case fenced:
		return driver.CommitResult{Err: &driver.FencedError{Fence: w.Fence, Current: s.owner}}
	case conflict != nil:
		s.counter++
		return driver.CommitResult{Err: conflict}
	case m.bug == fenceCheckedApart:
		m.yield()
	}
	return m.apply(s, w)
}

// yield lets other goroutines use the store in the middle of an operation.
func (m *model) yield() {
	m.mu.Unlock()
	for range 3 {
		runtime.Gosched()
	}
	m.mu.Lock()
}

// pause is a longer yield, during which other goroutines can make several calls.
func (m *model) pause() {
	m.mu.Unlock()
	<-time.After(time.Millisecond)
	m.mu.Lock()
}

func (m *model) conflict(s *shard, w driver.Write) error {
	if w.Number != s.head.Number+1 && m.bug != numberNotChecked {
		return &driver.ConflictError{Shard: w.Fence.Shard, Op: driver.NumberConflict, Head: s.head}
	}
	for i, op := range w.Ops {
		it, there := s.items[op.Key]
		wrong := op.IfVersion == driver.Absent && there || op.IfVersion > 0 && it.Version != op.IfVersion
		if op.Kind == driver.OpTrim && op.Through > s.head.Seq || op.Kind <= driver.OpDelete && wrong {
			return &driver.ConflictError{Shard: w.Fence.Shard, Op: i, Head: s.head}
		}
	}
	return nil
}

func (m *model) apply(s *shard, w driver.Write) driver.CommitResult {
	number := s.head.Number + 1
	versions := make([]driver.Version, len(w.Ops))
	puts := false
	head := s.head
	if s.head.Oldest == 0 {
		s.head.Oldest = 1
	}
	for i, op := range w.Ops {
		switch op.Kind {
		case driver.OpPut:
			puts, versions[i] = true, driver.Version(number)
			s.items[op.Key] = driver.Item{Key: op.Key, Value: slices.Clone(op.Value), Version: versions[i]}
		case driver.OpDelete:
			delete(s.items, op.Key)
		case driver.OpAppend:
			s.head.Seq++
			if m.bug == logByCounter {
				s.head.Seq = max(s.head.Seq, driver.Seq(s.counter))
			}
			e := driver.Entry{Shard: w.Fence.Shard, Seq: s.head.Seq, Token: w.Fence.Token, Number: number,
				Payload: slices.Clone(op.Value)}
			s.entries = append(s.entries, e)
			m.publish(e)
		case driver.OpTrim:
			s.head.Oldest = max(s.head.Oldest, op.Through+1)
			s.entries = slices.DeleteFunc(s.entries, func(e driver.Entry) bool { return e.Seq < s.head.Oldest })
		}
	}
	if len(s.entries) == 0 && m.bug == seqRestarts && s.head.Seq > 0 {
		s.head.Seq, s.head.Oldest = 0, 1
	}
	if len(s.entries)+len(s.items) == 0 && m.bug == tokenResetOnDelete {
		s.counter = 0
	}
	s.before = head
	s.head.Number, s.head.Nonce, s.head.Token = number, w.Nonce, w.Fence.Token
	if s.head.Seq == 0 && len(s.entries) == 0 {
		s.head.Oldest = 1
	}
	m.wake()
	if !puts {
		versions = nil
	}
	return driver.CommitResult{Head: s.head, Versions: versions}
}

// publish puts an entry at the end of the tail.
func (m *model) publish(e driver.Entry) {
	at := len(m.store.tail)
	m.store.tail = append(m.store.tail, e)
	if m.hoard {
		m.all = append(m.all, e)
	}
	for _, b := range m.tailers {
		b.buffer = append(b.buffer, slices.Clone(e.Payload))
	}
	if m.bug == tailBySequence && len(e.Payload) > 1000 {
		// The number is assigned now, and the entry is visible only later.
		m.store.tail[at].Seq = 0
		at64 := m.store.tailed + int64(at)
		m.yield()
		if i := at64 - m.store.tailed; i >= 0 {
			m.store.tail[i] = e
		}
	}
	if extra := len(m.store.tail) - modelTail; extra > 0 {
		m.store.tail = slices.Clone(m.store.tail[extra:])
		m.store.tailed += int64(extra)
	}
}

func (m *model) remove(id driver.SessionID) {
	if _, there := m.store.members[id]; !there {
		return
	}
	delete(m.store.members, id)
	m.store.rev++
	m.store.gone[id] = m.store.rev
	m.wake()
}

// join is the compare-and-set on the label's record. The argument last is the last session that was
// read.
func (m *model) join(j driver.Member, last driver.SessionID, removals int) error {
	now, known := m.store.labels[j.Node]
	used := m.store.used[j.Session]
	if m.bug == remembersLastJoin {
		used = now == j.Session
	}
	switch {
	case used && m.bug != joinRevives:
		return fmt.Errorf("tenure: session %s has joined before: %w", j.Session, driver.ErrConflict)
	case now != last && m.bug != lateJoinRevives, removals != m.store.removals && m.bug != removalNotCompared:
		return fmt.Errorf("tenure: another session joined as %s: %w", j.Node, driver.ErrRetry)
	}
	if j.Supersede {
		m.remove(last)
	}
	m.store.rev++
	m.store.labels[j.Node], m.store.used[j.Session] = j.Session, true
	j.Meta = maps.Clone(j.Meta)
	m.store.members[j.Session] = &record{Member: j, version: driver.Version(m.store.rev), rev: m.store.rev}
	m.wake()
	if !known && m.bug != labelsStay {
		m.sweep()
	}
	return nil
}

// update replaces the mutable part of a session's record.
func (m *model) update(id driver.SessionID, st driver.MemberState) error {
	r := m.store.members[id]
	switch {
	case r == nil && m.bug == updateRevives:
		r = &record{Member: driver.Member{Session: id, Node: "n", TTL: time.Second}, version: 1}
		m.store.members[id] = r
	case r == nil:
		return fmt.Errorf("tenure: %w", driver.ErrSessionLost)
	case st.Update == r.Update && m.bug != repeatedUpdateRefused:
		return nil
	case st.Update <= r.Update && m.bug != olderUpdates:
		return fmt.Errorf("tenure: update %d is not above %d: %w", st.Update, r.Update, driver.ErrConflict)
	}
	if m.bug == updateForgetsRest {
		r.Member = driver.Member{Session: id, Node: r.Node, TTL: time.Second}
	}
	r.MemberState = st
	r.Meta = maps.Clone(st.Meta)
	if m.bug == updateIsBeat {
		r.version++
	}
	if m.bug != updateUnseen {
		m.store.rev++
		r.rev = m.store.rev
	}
	m.wake()
	return nil
}

// sweep removes labels without a member, if there are many of them.
func (m *model) sweep() {
	idle := map[string]driver.SessionID{}
	for label, id := range m.store.labels {
		if m.store.members[id] == nil || m.bug == livingRemoved {
			idle[label] = id
		}
	}
	if len(idle) <= driver.MaxIdleLabels {
		return
	}
	for label, id := range idle {
		delete(m.store.labels, label)
		if m.bug == removalForgets {
			delete(m.store.used, id)
		}
	}
	m.store.removals++
}

func (m *model) evict(s driver.Suspect) driver.EvictResult {
	r := m.store.members[s.Session]
	switch {
	case r == nil:
		return driver.EvictResult{}
	case r.version != s.Version && m.bug != evictIgnoresVersion:
		return driver.EvictResult{Current: r.version}
	}
	m.remove(s.Session)
	return driver.EvictResult{Evicted: true}
}

// view returns the changes since a revision or, with reset, everything.
func (m *model) view(since int64, reset bool, beats []driver.Beat) *driver.View {
	v := &driver.View{Reset: reset, Cursor: m.cursor("view", m.store.rev)}
	if reset {
		v.Floor = m.store.floor
	}
	for id, r := range m.store.members {
		if r.rev > since && r.corrupt && m.bug != damageIsHidden {
			v.Damaged = append(v.Damaged, driver.Damaged("member/"+string(id), "", "it does not decode"))
		}
		if r.rev > since && !r.corrupt {
			member := r.Member
			member.Meta = maps.Clone(r.Meta)
			v.Members = append(v.Members, member)
		}
		for _, b := range beats {
			if b.Session == id && (b.Version < r.version || b.Version != r.version && m.bug == olderBeats) ||
				m.bug == beatsWakeAll && b.Version == 0 {
				v.Beats = append(v.Beats, driver.Beat{Session: id, Version: r.version})
			}
		}
	}
	for id, rev := range m.store.gone {
		if rev > since && !reset && m.bug != watchDropsDepartures {
			v.Gone = append(v.Gone, id)
		}
	}
	for id, s := range m.store.freed {
		if s.rev > since && !reset {
			v.Shards = append(v.Shards, driver.ShardState{Shard: id, Owner: s.owner})
		}
	}
	for id, s := range m.store.shards {
		if reset && s.oddItem && m.bug != damageIsHidden {
			v.Damaged = append(v.Damaged, driver.Damaged("item/"+string(id)+"/k2#x", id, "its key is not valid"))
		}
		if s.rev > since && s.corrupt && m.bug != damageIsHidden {
			v.Damaged = append(v.Damaged, driver.Damaged("shard/"+string(id), id, "it does not decode"))
		}
		if s.rev > since && !s.corrupt {
			state := driver.ShardState{Shard: id, Owner: s.owner}
			if s.owner.Session != "" && !s.badHead {
				state.Head = new(s.head)
				if m.bug == headOfBefore {
					state.Head = new(s.before)
				}
			}
			v.Shards = append(v.Shards, state)
		}
	}
	return v
}

func (m *model) cursor(kind string, at int64) driver.Cursor {
	return driver.Cursor(fmt.Sprintf("%s %s %d", kind, m.store.id, at))
}

// position reads a cursor, and reports whether the model can continue from it.
func (m *model) position(kind string, c driver.Cursor, first, last int64) (int64, bool) {
	var at int64
	rest, found := strings.CutPrefix(string(c), fmt.Sprintf("%s %s ", kind, m.store.id))
	if n, err := fmt.Sscanf(rest, "%d", &at); !found || err != nil || n != 1 {
		return 0, false
	}
	return at, at >= first && at <= last
}

// page returns the tail after a position, or nil if the tail is empty.
func (m *model) page(since driver.Cursor, most int) *driver.TailPage {
	end := m.store.tailed + int64(len(m.store.tail))
	at, ok := m.position("tail", since, m.store.tailed, end)
	if ok && at == end {
		return nil
	}
	p := &driver.TailPage{}
	if m.bug == tailIgnoresMax {
		most = modelTail
	}
	if ok {
		p.Entries = slices.Clone(m.store.tail[at-m.store.tailed:][:min(int64(max(most, 1)), end-at)])
		p.Cursor = m.cursor("tail", at+int64(len(p.Entries)))
		p.Entries = slices.DeleteFunc(p.Entries, func(e driver.Entry) bool { return e.Seq == 0 })
		if !slices.ContainsFunc(p.Entries, func(e driver.Entry) bool { return e.Seq < m.shard(e.Shard).head.Oldest }) {
			return p
		}
	}
	p = &driver.TailPage{Reset: true, Cursor: m.cursor("tail", end)}
	for id, s := range m.store.shards {
		if s.head.Number > 0 && !s.badHead {
			p.Heads = append(p.Heads, driver.ShardHead{Shard: id, Head: s.head})
		}
	}
	return p
}

// create gives the namespace an identity if it has none.
func (m *model) create() {
	if m.store.id != "" {
		return
	}
	m.store = state{
		id:      crand.Text(),
		labels:  map[string]driver.SessionID{},
		used:    map[driver.SessionID]bool{},
		members: map[driver.SessionID]*record{},
		gone:    map[driver.SessionID]int64{},
		shards:  map[driver.ShardID]*shard{},
		freed:   map[driver.ShardID]*shard{},
	}
}

func (m *model) tamper(what conformance.Tampering, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.store.shards[driver.ShardID(name)]
	switch what {
	case conformance.CorruptShard, conformance.OversizeShard, conformance.ImpossibleShard:
		m.store.rev++
		s.corrupt, s.rev = true, m.store.rev
	case conformance.CorruptMember:
		m.store.rev++
		m.store.members[driver.SessionID(name)].corrupt = true
		m.store.members[driver.SessionID(name)].rev = m.store.rev
	case conformance.CorruptHistory:
		m.store.rev++
		s.owner.Session, s.rev, s.past = "", m.store.rev, "\x1b[31m/"
		s.corrupt = m.bug == badHistoryBars
	case conformance.CorruptHead:
		s.badHead = true
	case conformance.OddItem:
		s.oddItem = true
	case conformance.CorruptEntry, conformance.RemoveEntry:
		s.badLog = true
	case conformance.RemoveShard:
		m.store.rev++
		s.owner, s.from, s.rev = driver.Owner{}, 0, m.store.rev
	case conformance.RewriteShard:
	default:
		return errors.ErrUnsupported
	}
	m.wake()
	return nil
}

// guard returns a fence for texts of the application.
func (m *model) guard() conformance.Guard {
	return conformance.Guard{
		Name: "guard",
		Begin: func(ctx context.Context, b driver.Backend, fence driver.Fence) (func(context.Context, string) error, error) {
			check := func() (struct{}, error) {
				held := m.shard(fence.Shard).owner
				want := driver.Owner{Session: fence.Session, Token: fence.Token}
				switch {
				case held == want, held.Token == want.Token && m.bug == guardIgnoresSession,
					held.Session == want.Session && held.Session != "" && m.bug == guardIgnoresToken:
					return struct{}{}, nil
				}
				return struct{}{}, &driver.FencedError{Fence: fence, Current: held}
			}
			mb := b.(*modelBackend)
			if m.bug == guardCheckedBefore {
				if _, err := send(ctx, mb, read, check); err != nil {
					return nil, err
				}
			}
			return func(ctx context.Context, text string) error {
				add := func() (struct{}, error) {
					if m.bug != guardCheckedBefore {
						if _, err := check(); err != nil {
							return struct{}{}, err
						}
					}
					if m.bug == guardCheckedApart {
						m.pause()
					}
					m.texts = append(m.texts, text)
					return struct{}{}, nil
				}
				if m.bug == guardOfAnyHistory {
					m.mu.Lock()
					defer m.mu.Unlock()
					_, err := add()
					return err
				}
				_, err := send(ctx, mb, write, add)
				return err
			}, nil
		},
		Texts: func(context.Context) ([]string, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return slices.Clone(m.texts), nil
		},
	}
}

// fixture returns a store with every fault.
func (m *model) fixture() *conformance.Store {
	open := func(ctx context.Context, m *model, create bool) (*modelBackend, error) {
		return m.open(ctx, "model/ns", create)
	}
	opened := func(b *modelBackend, err error) (driver.Backend, error) {
		if err != nil {
			return nil, err
		}
		return b, nil
	}
	others := map[string]*model{}
	return &conformance.Store{
		Open:         func(ctx context.Context) (driver.Backend, error) { return opened(open(ctx, m, true)) },
		OpenExisting: func(ctx context.Context) (driver.Backend, error) { return opened(open(ctx, m, false)) },
		OpenNamespace: func(ctx context.Context, suffix string) (driver.Backend, error) {
			if others[suffix] == nil {
				others[suffix] = newModel(m.bug)
			}
			return opened(others[suffix].open(ctx, "model/ns"+suffix, true))
		},
		OpenLying: func(ctx context.Context) (driver.Backend, error) {
			return opened(open(ctx, newModel(m.bug|lying), true))
		},
		OpenFaulty: func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
			b, err := open(ctx, m, true)
			if err != nil {
				return nil, nil, err
			}
			return b, b.wire(), nil
		},
		Calls: func() conformance.Calls {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.calls
		},
		Compact: func(context.Context) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.store.compacted = m.store.rev
			clear(m.store.gone)
			m.store.tailed += int64(len(m.store.tail))
			m.store.tail = nil
			return nil
		},
		Deny: func(context.Context) (func(context.Context) error, error) {
			m.deny.Store(true)
			return func(context.Context) error { m.deny.Store(false); return nil }, nil
		},
		Tamper: func(_ context.Context, what conformance.Tampering, name string) error { return m.tamper(what, name) },
		Wipe: func(context.Context) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.store = state{}
			m.wake()
			return nil
		},
		Snapshot: func(context.Context) (func(context.Context) error, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			backup := m.store.clone()
			return func(context.Context) error {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.store = backup.clone()
				m.wake()
				return nil
			}, nil
		},
		Fork: func(context.Context) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.store.forked = true
			return nil
		},
		Isolate: func(context.Context) (func(context.Context) error, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			replica := m.store.clone()
			m.replica = &replica
			return func(context.Context) error {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.store, m.replica, m.ahead = *m.replica, nil, false
				m.store.rev += 1 << 20
				m.wake()
				return nil
			}, nil
		},
		Narrow: func(context.Context) (func(context.Context) error, error) {
			takes := func(n int) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.takes = n
			}
			takes(3)
			return func(context.Context) error { takes(0); return nil }, nil
		},
		RaiseFloor: func(_ context.Context, above driver.Token) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.store.rev = max(m.store.rev, int64(above))
			return nil
		},
		Guards: []conformance.Guard{m.guard()},
		Restart: func(context.Context) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.store = m.store.clone()
			m.wake()
			return nil
		},
	}
}
