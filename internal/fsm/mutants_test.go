package fsm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// A mutant is the machine, or the store, without one rule. Either the simulation must find the
// mutant by one of the named rules, or the test that breaks names must fail. Rules in ignore are
// not checked. Such rules look into the machine and would find the mutant too easily, before it
// does any harm.
type mutant struct {
	name   string
	ignore string
	breaks string
	edits  []mutate.Edit
}

var mutants = []mutant{
	{"C1: a token given away is granted again", "", "S6", []mutate.Edit{
		{File: "shards.go", In: "shard.burn", Old: "{ s.burnt = s.burnt || t >= s.owner.Token }", New: "{}"}}},
	{"C1: the same, by its harm", "S6,S2,S15,W1", "S1", []mutate.Edit{
		{File: "shards.go", In: "shard.burn", Old: "{ s.burnt = s.burnt || t >= s.owner.Token }", New: "{}"}}},
	{"C2: a record that names this session is not reconciled", "", "C2 W1", []mutate.Edit{
		{File: "shards.go", In: "Machine.learn",
			Old: "if s.want || s.own != nil || m.mine(s) || driver.IsLock(s.name) {\n\t\tm.schedule(i, m.now)\n\t}", New: "if s.want || s.own != nil {\n\t\tm.schedule(i, m.now)\n\t}"}}},
	{"C2: an unanswered release is taken for done", "", "C2 W1 S1 C1 S4", []mutate.Edit{
		{File: "shards.go", In: "Machine.released",
			Old: "\t\tif in.Err != nil {\n\t\t\tm.retryLater(i)\n\t\t\tcontinue\n\t\t}\n", New: ""}}},
	{"C3: a join that finds its own record is a success", "C3,S8,C5,C12", "S1 S2", []mutate.Edit{
		{File: "session.go", In: "Machine.join",
			Old: "m.sess = m.cfg.NewSession() // fresh for each attempt: C3", New: "if m.sess == \"\" {\n\t\tm.sess = m.cfg.NewSession()\n\t}"},
		{File: "session.go", In: "Machine.backOff", Old: "m.phase, m.sess = waiting, \"\"", New: "m.phase = waiting"},
		{File: "session.go", In: "Machine.drop", Old: "m.former = m.sess\n", New: "m.former, m.sess = m.sess, \"\"\n"},
		{File: "session.go", In: "Machine.joined",
			Old: "\tif err != nil {\n\t\tif errors.Is(err, driver.ErrStoreChanged) {", New: "\tif err != nil && !errors.Is(err, driver.ErrConflict) {\n\t\tif errors.Is(err, driver.ErrStoreChanged) {"}}},
	{"C5: silence during an outage counts", "C5", "outage", []mutate.Edit{
		{File: "peers.go", In: "Machine.covered", Old: "if m.minTTL > 0 && m.now-m.okSentAt > m.minTTL/2 {", New: "if false {"}}},
	{"C5: late replies bridge an outage", "C5", "outage", []mutate.Edit{
		{File: "peers.go", In: "Machine.covered", Old: "m.okSentAt = max(m.okSentAt, sentAt)", New: "m.okSentAt = m.now"}}},
	{"C5: evict without a heartbeat of late", "", "C5", []mutate.Edit{
		{File: "peers.go", In: "Machine.watchSilence", Old: " || p.version == 0 || !dead && !m.proven():", New: " || p.version == 0:"}}},
	{"C6: a deaf member keeps beating", "", "C6", []mutate.Edit{
		{File: "session.go", In: "Machine.mayBeat",
			Old: "\tif !m.lapsed {\n\t\treturn len(m.beats) < maxBeats\n\t}\n", New: "\tif len(m.beats) < maxBeats || m.lapsed {\n\t\treturn len(m.beats) < maxBeats\n\t}\n"}}},
	{"C5: a join is no proof", "", "TestFreshMemberTakesOver", []mutate.Edit{
		{File: "session.go", In: "Machine.joined",
			Old: "m.beatSent, m.okSentAt = m.joinSent, m.joinSent", New: "m.beatSent, m.okSentAt = m.joinSent, -Instant(m.cfg.Member.TTL)"}}},
	{"C5: no more heartbeats while a member is quiet", "", "TestTakeoverOnASlowStore", []mutate.Edit{
		{File: "peers.go", In: "Machine.quiet",
			Old: "\t\tif m.now >= p.quietAt() {\n\t\t\treturn true", New: "\t\tif false && m.now >= p.quietAt() {\n\t\t\treturn true"}}},
	{"C5: a slow store is asked no earlier", "", "TestTakeoverOnASlowStore", []mutate.Edit{
		{File: "session.go", In: "Machine.interval",
			Old: "return min(d, max(ttl/2-ttl/24-time.Duration(m.slow), ttl/12))", New: "return d"},
		{File: "session.go", In: "Machine.late",
			Old: "\t\treturn max(ttl/6, m.pace())\n\t}\n\treturn m.pace()\n", New: "\t}\n\treturn ttl / 3\n"}}},
	{"C4: an unanswered heartbeat is waited for", "", "TestSilentServerCostsNoLease", []mutate.Edit{
		{File: "session.go", In: "Machine.late", Old: "\treturn m.pace()\n}", New: "\treturn ttl\n}"}}},
	{"C6: a read asked for before the lapse counts", "", "TestReadFromBeforeTheLapse", []mutate.Edit{
		{File: "session.go", In: "Machine.mayBeat", Old: "m.heardAt >= m.lapsedAt && ", New: "m.answered >= m.lapsedAt && "}}},
	{"C9: an eviction that a view told of first is nobody's", "", "C9", []mutate.Edit{
		{File: "peers.go", In: "Machine.bury",
			Old: "if in.Err == nil && in.Evictions[k].Evicted {", New: "if in.Err == nil && in.Evictions[k].Evicted && m.alive[members[k].Session] != nil {"}}},
	{"C10: a full pipeline leaves no room for one's own heartbeat", "", "TestLongOutageBesideAShortTTL", []mutate.Edit{
		{File: "session.go", In: "Machine.pace",
			Old: "\tif len(m.beats) >= manyBeats {\n\t\treturn m.cfg.Member.TTL / 12\n\t}\n", New: ""}}},
	{"C6: an outage counts as deafness", "", "TestOutageEvictsNobody", []mutate.Edit{
		{File: "session.go", In: "Machine.beaten", Old: "\t\t\tif b.other {\n", New: "\t\t\tif true {\n"},
		{File: "session.go", In: "Machine.unheard", Old: "case !m.lapsed || m.deaf > 0 && since < ttl/4:", New: "case !m.lapsed:"}}},
	{"C6: a read is fresh from its sending on", "", "TestSlowReadIsFresh", []mutate.Edit{
		{File: "session.go", In: "Machine.mayBeat", Old: "m.now < m.answered.Add", New: "m.now < m.heardAt.Add"}}},
	{"C6: heartbeats that nobody answers are sent for ever", "", "TestUnansweredHeartbeatsGoSilent", []mutate.Edit{
		{File: "session.go", In: "Machine.unheard", Old: "if m.deaf++; m.deaf >= lapsedBeats {", New: "if m.deaf++; m.deaf < 0 {"}}},
	{"C7: the same token after a lapse", "", "S6", []mutate.Edit{
		{File: "shards.go", In: "Machine.revoke",
			Old: "\ts.burn(o.fence.Token)\n", New: "\tif cause != CauseLapsed {\n\t\ts.burn(o.fence.Token)\n\t}\n"},
		{File: "shards.go", In: "Machine.revokeAll",
			Old: "\t\tif m.mine(s) {\n\t\t\ts.burn(s.owner.Token)\n", New: "\t\tif m.mine(s) && cause != CauseLapsed {\n\t\t\ts.burn(s.owner.Token)\n"}}},
	{"C8: a reply after a stall revives", "", "C8", []mutate.Edit{
		{File: "machine.go", In: "Machine.Step",
			Old: "\tm.lapse(late) // before the input is looked at: C8\n\tm.apply(&in)\n", New: "\tm.apply(&in)\n\tm.lapse(late)\n"}}},
	{"C11: a preempted holder does not notice", "W1", "C11 S2 C2", []mutate.Edit{
		{File: "shards.go", In: "Machine.learn",
			Old: "case lease.trusted():\n\t\tm.revoke(i, CausePreempted)", New: "case false:\n\t\tm.revoke(i, CausePreempted)"}}},
	{"C12: an update that failed is taken for stored", "", "C12", []mutate.Edit{
		{File: "update.go", In: "Machine.updated",
			Old: "\t\tm.event(EventCallFailed, err)\n\t\treturn\n", New: "\t\tm.event(EventCallFailed, err)\n"}}},
	{"C12: a join brings no update", "", "C12", []mutate.Edit{
		{File: "session.go", In: "Machine.join",
			Old: "member.MemberState = m.sess, m.Public()", New: "member.MemberState = m.sess, driver.MemberState{Update: member.Update}"}}},
	{"C14: the identity of a lock is not compared", "", "C5 M2", []mutate.Edit{
		{File: "peers.go", In: "Machine.dead", Old: "p.lock == m.cfg.HostLock", New: "p.lock != \"\""}}},
	{"C12: updates of others are not looked at", "", "C12", []mutate.Edit{
		{File: "peers.go", In: "Machine.addPeer", Old: "if member.Update > p.member.Update {", New: "if false {"}}},
	{"M4: the store lets an older update replace a later one", "", "C12", []mutate.Edit{
		{File: "store_test.go", In: "modelStore.update", Old: "case st.Update < m.Update:", New: "case false:"}}},
	{"C13: a releaser claims its own release first", "", "TestReleaseHandsOn", []mutate.Edit{
		{File: "order.go", In: "Machine.turn", Old: "if last != \"\" && last == m.sess {", New: "if false {"}}},
	{"C13: the others wait for the releaser", "", "TestReleaseHandsOn", []mutate.Edit{
		{File: "order.go", In: "Machine.turn", Old: "\t\tif h == last {", New: "\t\tif false {"},
		{File: "order.go", In: "Machine.turn", Old: " || p.member.Session == last ||", New: " ||"}}},
	{"C13: a releaser claims nothing that it released", "", "TestReleaseHandsOn", []mutate.Edit{
		{File: "shards.go", In: "Machine.settle",
			Old: "case s.want && m.free(s):", New: "case s.want && m.free(s) && (s.releaser == \"\" || s.releaser != m.sess):"}}},
	{"C13: a turn outlives the record that it was for", "", "TestTurnEndsWithTheRecord", []mutate.Edit{
		{File: "shards.go", In: "Machine.learn",
			Old: "\t\ts.waiting, s.notBefore = false, m.now\n\t}\n\tif m.phase == live", New: "\t\ts.waiting = false\n\t}\n\tif m.phase == live"}}},
	{"C13: a shard that nobody wants wanders", "", "TestReleaseHandsOn", []mutate.Edit{
		{File: "shards.go", In: "Machine.settleMine",
			Old: "\trunning := o.lease == revoked\n", New: "\trunning := o.lease == revoked\n\tif !s.want && o.to == \"\" {\n\t\to.to, o.chosen = m.standby(s), true\n\t}\n"}}},
	{"C13: what returned by itself goes to a standby, whatever its back-off", "", "TestReleaseHandsOn", []mutate.Edit{
		{File: "shards.go", In: "Machine.drained",
			Old: "\t\to.lease, o.yield = returned, true\n", New: "\t\to.lease, o.yield = returned, true\n\t\to.to, o.chosen, s.want = m.standby(s), true, false\n"}}},
	{"O1: a head that a view tells is believed whatever the record beside it", "", "TestHeadOfAnotherRecord", []mutate.Edit{
		{File: "shards.go", In: "Machine.learnState", Old: "if st.Head == nil || s.owner != st.Owner ||", New: "if st.Head == nil ||"}}},
	{"O1: a view that comes before the reply starts the lease without a head", "", "TestClaimInFlightIsWaitedFor", []mutate.Edit{
		{File: "shards.go", In: "Machine.learn", Old: "time.Duration(len(m.calls[s.flight].shards))*itemTime", New: "time.Duration(0)"}}},
	{"O1: what a view tells of a head is not looked at", "", "TestHeadOfAnotherRecord", []mutate.Edit{
		{File: "shards.go", In: "Machine.learnState", Old: "if s.own.headToken != s.owner.Token {", New: "if false {"}}},
	{"S8: trust from the arrival of the reply", "S8", "S1", []mutate.Edit{
		{File: "session.go", In: "Machine.beaten",
			Old: "until := b.sentAt.Add(m.cfg.Member.TTL - m.cfg.Margin)", New: "until := m.now.Add(m.cfg.Member.TTL - m.cfg.Margin)"}}},
	{"S8: the same, in a join", "", "S8", []mutate.Edit{
		{File: "session.go", In: "Machine.joined",
			Old: "m.until = m.joinSent.Add(m.cfg.Member.TTL - m.cfg.Margin)", New: "m.until = m.now.Add(m.cfg.Member.TTL - m.cfg.Margin)"}}},
	{"S11: a grant while the former handler runs", "", "S11", []mutate.Edit{
		{File: "shards.go", In: "Machine.settleMine",
			Old: "\t\t\tif !running {\n\t\t\t\tm.grant(i)\n\t\t\t}\n", New: "\t\t\tm.grant(i)\n"}}},
	{"S12: release before the work was joined", "", "S12", []mutate.Edit{
		{File: "shards.go", In: "Machine.settleMine", Old: "case running: // not before the work was joined: S12", New: "case false:"}}},
	{"S4: a lease counts as released when its handler returned", "", "S4", []mutate.Edit{
		{File: "shards.go", In: "Machine.drained",
			Old: "\t\tm.revoke(i, cmp.Or(o.why, CauseReleased))\n\t\to.lease = returned\n", New: "\t\tm.revoke(i, cmp.Or(o.why, CauseReleased))\n\t\tm.settled(o, Effect{Outcome: OutcomeReleased, Owner: driver.Owner{Token: token}})\n"}}},
	{"S4: what a view shows of a lease that is given back is not told", "", "W1", []mutate.Edit{
		{File: "shards.go", In: "Machine.learn", Old: "case lease == returned:", New: "case false:"}}},
	{"S4: a lease that is given back is forgotten with its session", "", "W1", []mutate.Edit{
		{File: "session.go", In: "Machine.drop", Old: "if s.lease() == returned {", New: "if false {"}}},
	{"A5: whoever has the shard is the successor", "", "A5", []mutate.Edit{
		{File: "shards.go", In: "own.outcome", Old: "r.Session != \"\" && r.Session == o.sentTo:", New: "r.Session != \"\":"}}},
	{"S14: the store's change is not fatal", "", "S14 M1", []mutate.Edit{
		{File: "machine.go", In: "Machine.fatal",
			Old: "\tcase errors.Is(err, driver.ErrStoreChanged):\n\t\tm.halt(err)\n", New: "\tcase errors.Is(err, driver.ErrStoreChanged):\n"}}},
	{"C15: a member that is not eligible claims", "", "C15", []mutate.Edit{
		{File: "shards.go", In: "Machine.settleFree",
			Old: "\tif m.cfg.Ineligible != \"\" && !driver.IsLock(s.name) {\n\t\tm.takeBack(i)\n\t\treturn\n\t}\n", New: ""}}},
	{"C15: members that are not eligible have their turn", "", "TestIneligibleHaveNoTurn", []mutate.Edit{
		{File: "order.go", In: "Machine.turn", Old: "if p.silent || p.barred || p", New: "if p.silent || p"}}},
	{"C15: a holder that is not eligible keeps its shards", "", "C15", []mutate.Edit{
		{File: "eligible.go", In: "Machine.setEligible",
			Old: "\tm.cfg.Member.Update++\n\tm.yieldAt = m.now\n", New: "\tm.cfg.Member.Update++\n"}}},
	{"C15: nobody is told", "", "C12 C15", []mutate.Edit{
		{File: "eligible.go", In: "Machine.setEligible", Old: "\tm.cfg.Member.Update++\n", New: ""}}},
	{"C15: a shard goes to a member that is not eligible", "", "C15", []mutate.Edit{
		{File: "eligible.go", In: "Machine.precedes", Old: "case p.silent || p.barred || p", New: "case p.silent || p"}}},
	{"C15: what nobody took stays free", "", "TestGiftThatNobodyTakes", []mutate.Edit{
		{File: "eligible.go", In: "Machine.takeBack",
			Old: "if g == nil || m.now > g.at.Add(giftTTLs*ttl)", New: "if g != nil || m.now > g.at.Add(giftTTLs*ttl)"}}},
	{"C15: what nobody took is given again soon", "", "TestGiftThatNobodyTakes", []mutate.Edit{
		{File: "eligible.go", In: "Machine.yieldsTo", Old: "\t\t\twait <<= g.n\n", New: ""}}},
	{"C15: one that is new has to wait like the others", "", "TestGiftThatNobodyTakes", []mutate.Edit{
		{File: "eligible.go", In: "Machine.yieldsTo", Old: "if newest <= g.at {", New: "if newest >= 0 {"}}},
	{"C15: shards move with every change", "", "TestEligibilityAtRandom", []mutate.Edit{
		{File: "eligible.go", In: "Machine.yieldsTo", Old: "\t\tfrom = g.at.Add(wait)\n", New: "\t\tfrom = g.at\n"}}},
	{"C15: a shard is given away although its heir has gone meanwhile", "", "TestSuccessorIsGone", []mutate.Edit{
		{File: "eligible.go", In: "Machine.reconsider",
			Old: "if p == nil || o.why == 0 && m.now < from {", New: "if p == nil && o.why != 0 {\n\t\treturn\n\t}\n\tif p == nil || o.why == 0 && m.now < from {"}}},
	{"C16: at once", "", "C15", []mutate.Edit{
		{File: "eligible.go", In: "Machine.successor", Old: "if !m.precedes(p) || m.now < p.since.Add(wait) {", New: "if !m.precedes(p) {"},
		{File: "eligible.go", In: "Machine.lookForSuccessors", Old: "\t\tcase at > m.now:\n", New: "\t\tcase at > m.now && wait < 0:\n"}}},
	{"C16: the time of a member that was away counts", "", "TestFailbackStartsAnew", []mutate.Edit{
		{File: "peers.go", In: "Machine.beatOf", Old: "\t\tp.since, m.yieldAt = m.now, m.now // C16: it may have been away\n", New: ""}}},
	{"C16: the time of a member that was not eligible counts", "", "C15", []mutate.Edit{
		{File: "eligible.go", In: "Machine.bar",
			Old: "p.since, p.first = m.now, min(p.first, m.now)", New: "p.first = min(p.first, m.now)\n\t\tp.since = p.first"}}},
	{"C16: what an assigner assigned is moved", "", "TestAssignedStays", []mutate.Edit{
		{File: "eligible.go", In: "Machine.yieldsTo", Old: " || m.lapsed || s.heirs != (Heirs{}) ||", New: " || m.lapsed ||"}}},
	{"C1: what a lock that was forgotten had burnt is granted again", "", "S6", []mutate.Edit{
		{File: "shards.go", In: "Machine.learn", Old: "m.lapsed || driver.IsLock(s.name) && o.Token <= m.forgot", New: "m.lapsed"}}},
	{"C17: a lock is forgotten while a call names its place", "", "TestOutstandingCallKeepsTheLock", []mutate.Edit{
		{File: "shards.go", In: "Machine.forget",
			Old: "if c := &m.calls[k]; c.id != 0 && slices.Contains(c.shards, i) {", New: "if false {"}}},
	{"C17: locks are never forgotten", "", "TestLocksAreForgotten", []mutate.Edit{
		{File: "shards.go", In: "Machine.forget", Old: "if !driver.IsLock(s.name) || s.want || s.own", New: "if true || s.own"}}},
	{"C17: places of locks that were forgotten stay empty", "", "TestLocksAreForgotten", []mutate.Edit{
		{File: "shards.go", In: "Machine.shard", Old: "if n := len(m.unused); n > 0 {", New: "if n := len(m.unused); n < 0 {"}}},
	{"C17: the lock of the dead stays theirs", "", "C17", []mutate.Edit{
		{File: "shards.go", In: "Machine.settle",
			Old: "case driver.IsLock(s.name) && s.owner.Session != \"\" && m.free(s):", New: "case false:"}}},
	{"C17: a lock that a full state does not have stays held", "", "TestUnlistedLockIsFree", []mutate.Edit{
		{File: "shards.go", In: "Machine.unlisted", Old: "!listed[s.name] && !m.mine(s) {", New: "false {"}}},
	{"C17: a full state that is older than a grant ends it", "", "TestUnlistedLockIsFree", []mutate.Edit{
		{File: "shards.go", In: "Machine.unlisted", Old: "!listed[s.name] && !m.mine(s) {", New: "!listed[s.name] {"}}},
	{"C17: a lock that was released is left to members that do not want it", "", "TestLockRivals", []mutate.Edit{
		{File: "order.go", In: "Machine.turnOf",
			Old: "case !driver.IsLock(s.name):\n\t\treturn m.turn(", New: "case true:\n\t\treturn m.turn("}}},
	{"C17: no turn is left to the rivals for a lock", "", "TestLockRivals", []mutate.Edit{
		{File: "order.go", In: "Machine.rival", Old: "\t\ts.heirs = Heirs{id, s.heirs[0]}\n", New: ""}}},
	{"C17: a lock is handed to a standby", "", "TestLockGoesToNobody", []mutate.Edit{
		{File: "shards.go", In: "Machine.drained",
			Old: "if o.to == \"\" && !s.want && !driver.IsLock(name) {", New: "if o.to == \"\" && !s.want {"}}},
	{"C17: a member that is not eligible cannot lock", "", "TestLockGoesToNobody", []mutate.Edit{
		{File: "shards.go", In: "Machine.settleFree",
			Old: "\tif m.cfg.Ineligible != \"\" && !driver.IsLock(s.name) {", New: "\tif m.cfg.Ineligible != \"\" {"}}},
	{"S14: a token of two sessions goes unnoticed", "", "TestTokenOfTwoSessionsHalts", []mutate.Edit{
		{File: "shards.go", In: "Machine.learn",
			Old: "if o.Token == s.owner.Token && o.Session != s.owner.Session && o.Session != \"\" && s.owner.Session != \"\" {", New: "if false {"}}},
	{"O3: the few that are watched are all that is watched", "", "TestMassDeath", []mutate.Edit{
		{File: "peers.go", In: "Machine.widen", Old: "if 2*silent <= len(m.watched)", New: "if true || 2*silent <= len(m.watched)"}}},
	{"V4: every loss of a superseding session is the first", "", "TestDuelIsDamped", []mutate.Edit{
		{File: "session.go", In: "Machine.lost",
			Old: "if !m.cfg.Member.Supersede || m.now.Sub(m.joinSent) > duel*m.cfg.Member.TTL {", New: "if true {"}}},
	{"M2: the store evicts whatever the version", "", "M2 S1", []mutate.Edit{
		{File: "store_test.go", In: "modelStore.evict", Old: "case m.version != x.Version:\n\t\t\tout", New: "case false:\n\t\t\tout"}}},
	{"F1: the store ignores the number of a write", "", "S15", []mutate.Edit{
		{File: "store_test.go", In: "modelStore.commit", Old: "if w.Number != sh.head.Number+1 {", New: "if false {"}}},
	{"A1: the store grants what a live member holds", "", "S1", []mutate.Edit{
		{File: "store_test.go", In: "modelStore.acquire",
			Old: "!c.Preempt && sh.owner.Session != \"\" && s.member(sh.owner.Session) != nil:", New: "false:"},
		{File: "shards.go", In: "Machine.free",
			Old: "return id == \"\" || id != m.sess && m.alive[id] == nil", New: "return id != m.sess"}}},
	{"F1: the store does not look at the fence", "", "S3", []mutate.Edit{
		{File: "store_test.go", In: "modelStore.commit",
			Old: "if sh.owner != (driver.Owner{Session: w.Fence.Session, Token: w.Fence.Token}) {\n\t\ts.stats", New: "if false {\n\t\ts.stats"}}},
}

var brokenBy = regexp.MustCompile(`seed (\d+) breaks (\w+): (.*)`)

// TestMutants removes one rule at a time, with a build overlay. TestMutants expects the simulation
// to break within 2,000 seeds, and to break again when that seed is replayed.
func TestMutants(t *testing.T) {
	list := make([]mutate.Mutant, len(mutants))
	for n, m := range mutants {
		list[n].Name, list[n].Killer, list[n].Edits = m.name, m.breaks, m.edits
	}
	mutantsFlag.Each(t, true, list, func(ctx context.Context, t *testing.T, n int, _, b mutate.Built) error {
		m := mutants[n]
		if strings.HasPrefix(m.breaks, "Test") {
			out, err := b.Command(ctx, "-test.run", "^"+m.breaks+"$").CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: "+m.breaks) {
				return fmt.Errorf("survived %s: %v", m.breaks, err)
			}
			return nil
		}
		rule, seed, text, err := simulate(ctx, b, m.ignore, "-seeds", "2000")
		switch {
		case err != nil:
			return err
		case rule == "":
			return errors.New("survived 2,000 seeds")
		case !slices.Contains(strings.Fields(m.breaks), rule):
			return fmt.Errorf("broke %s, want %s", rule, m.breaks)
		}
		if again, _, _, err := simulate(ctx, b, m.ignore, "-seed", seed); err != nil || again != rule {
			return fmt.Errorf("the replay of seed %s broke %q, want %s: %v", seed, again, rule, err)
		}
		t.Logf("seed %s breaks %s: %s", seed, rule, text)
		return nil
	})
}

// simulate runs the simulation of a binary and returns the rule that it broke, if any.
func simulate(ctx context.Context, b mutate.Built, ignore string, args ...string) (rule, seed, text string, err error) {
	args = append([]string{"-test.run", "^TestSimulation$", "-ignore", ignore}, args...)
	out, err := b.Command(ctx, args...).CombinedOutput()
	if err == nil {
		return "", "", "", nil
	}
	found := brokenBy.FindStringSubmatch(string(out))
	if found == nil {
		return "", "", "", fmt.Errorf("%w:\n%s", err, out[max(0, len(out)-2000):])
	}
	return found[2], found[1], found[3], nil
}
