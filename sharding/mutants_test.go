package sharding

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, time.Minute, false, []mutate.Mutant{
		{Name: "Prepare that ends its goroutine is the member's last", Killer: "TestGoexit", Edits: []mutate.Edit{{
			File: "prepare.go", In: "preparer.run", Old: "err := goexit.Call(func() error { return p.m.o.Prepare(x.ctx, x.shard) })",
			New: "err := p.m.o.Prepare(x.ctx, x.shard)"}}},
		{Name: "Take that ends its goroutine leaves a range with nobody", Killer: "TestGoexit", Edits: []mutate.Edit{{
			File: "slice.go", In: "Slice.fetch", Old: "err := goexit.Call(func() (err error) { ops, err = s.take(s.ctx, c.From, g.Range); return err })",
			New: "var err error\n\tops, err = s.take(s.ctx, c.From, g.Range)"}}},
		{Name: "W1: a plan that does not follow its predecessor is applied", Killer: "TestPlanFollowsItsPredecessor", Edits: []mutate.Edit{{
			File: "table.go", In: "assignments.begin", Old: "if c.Number != t.number+1 || t.names == nil {", New: "if t.names == nil {"}}},
		{Name: "W5: a range is given while a call for it goes on", Killer: "TestKeysInBetween", Edits: []mutate.Edit{{
			File: "slice.go", In: "Slice.drain", Old: "if v.in.Load() == 0 {", New: "if true {"}}},
		{Name: "W5: calls that began before a merge are not waited for", Killer: "TestCallBeforeAMerge", Edits: []mutate.Edit{{
			File: "slice.go", In: "Slice.serve",
			Old: "func(v *serving) bool { return v.in.Load() == 0 })", New: "func(*serving) bool { return true })"}}},
		{Name: "W5: a range is taken before it is given", Killer: "TestDivideUnderLoad", Edits: []mutate.Edit{{
			File: "slice.go", In: "Slice.receive",
			Old: "	if err := s.m.awaitGift(s.ctx, c, *g); err != nil {", New: "	if err := error(nil); err != nil {"}}},
		{Name: "W5: a range is given, and served all the same", Killer: "TestDivideUnderLoad", Edits: []mutate.Edit{{
			File: "slice.go", In: "Slice.give", Old: "	s.serve(c.Rest)\n	if !s.drain", New: "	if !s.drain"}}},
		{Name: "a slice is closed while a call goes on in it", Killer: "TestSlices", Edits: []mutate.Edit{{
			File: "slice.go", In: "Slice.Close", Old: "for v.in.Load() > 0 {", New: "for false {"}}},
		{Name: "a range that cannot be taken stays", Killer: "TestRangeGoesBack", Edits: []mutate.Edit{{
			File: "slice.go", In: "Slice.receive", Old: "if time.Since(f.since) < takeBudget", New: "if time.Since(f.since) >= 0"}}},
		{Name: "a shard takes a range whose neighbour goes back", Killer: "TestRangeGoesBack", Edits: []mutate.Edit{{
			File: "slice.go", In: "Slice.turn", Old: "			return n.Refused, err", New: "			return \"\", err"}}},
		{Name: "a range that went back is split again in the next plan", Killer: "TestRangeGoesBack", Edits: []mutate.Edit{{
			File: "planner.go", In: "planner.divide", Old: "			used[int32(i)] = true\n		}\n	}\n", New: "			used[int32(i)] = false\n		}\n	}\n"}}},
		{Name: "effects of a keyspace have the scope of a shard", Killer: "TestHandlerKnowsItsKeyspace", Edits: []mutate.Edit{{
			File: "manager.go", In: "NewManager", Old: "name = c.Keyspace.Name", New: "_ = c.Keyspace.Name"}}},
		{Name: "a large range is committed as one", Killer: "TestLargeRange", Edits: []mutate.Edit{{
			File: "slice.go", In: "Slice.pieces", Old: "half > 0 &&", New: "half < 0 &&"}}},
		{Name: "W5: a shard that was split off begins with its range", Killer: "TestKeysInBetween", Edits: []mutate.Edit{{
			File: "slice.go", In: "assignments.first", Old: "return c.before(shard, t.ranges[i]), nil", New: "return t.ranges[i], nil"}}},
		{Name: "W5: a note that was not taken is forgotten", Killer: "TestNoteIsNotForgotten", Edits: []mutate.Edit{{
			File: "slice.go", In: "Slice.step", Old: "for len(s.note.Gave) > 0 {", New: "for false {"}}},
		{Name: "W5: a shard of which the note is gone begins again", Killer: "TestLostNote", Edits: []mutate.Edit{{
			File: "slice.go", In: "assignments.first",
			Old: "if k, err := t.keys.index(shard); err != nil || k >= t.keys.Shards {", New: "if false {"}}},
		{Name: "a range that an operator split is merged", Killer: "TestRangesByRule", Edits: []mutate.Edit{{
			File: "operators.go", In: "planner.bound", Old: "if !p.bounds[at] && !used", New: "if at >= 0 && !used"}}},
		{Name: "an operator's merge is not carried out", Killer: "TestRangesByRule", Edits: []mutate.Edit{{
			File: "operators.go", In: "planner.bound", Old: "case !p.bounds[h] && begins:", New: "case false:"}}},
		{Name: "a process without a Manager is planned shards", Killer: "TestGuest", Edits: []mutate.Edit{{
			File: "options.go", In: "Options.resolve", Old: `yes = m.Meta[mark.Key] != "";`, New: `yes = true;`}}},
		{Name: "an application removes the mark of its Manager", Killer: "TestMark", Edits: []mutate.Edit{{
			File: "../core/elector.go", In: "Elector.changeState", Old: "			st.Meta[mark.Key] = value\n", New: "			_ = value\n"}}},
		{Name: "an application sets the mark of a Manager", Killer: "TestMark", Edits: []mutate.Edit{{
			File: "../core/elector.go", In: "Elector.changeState", Old: "if err := checkMeta(st.Meta); err != nil {",
			New: "if err := checkMeta(nil); err != nil {"}}},
		{Name: "a shard that fells its owners is not held back", Killer: "TestQuarantine", Edits: []mutate.Edit{{
			File: "quarantine.go", In: "planner.due", Old: "len(s.Deaths) >= p.Quarantine.Deaths && !p.release[name]", New: "false"}}},
		{Name: "an heir claims a shard that fells its owners", Killer: "TestQuarantine", Edits: []mutate.Edit{{
			File: "reconcile.go", In: "Manager.waits", Old: "m.cautious && m.o", New: "false && m.o"}}},
		{Name: "the last of what works is held back", Killer: "TestBoundOfQuarantine", Edits: []mutate.Edit{{
			File: "quarantine.go", In: "planner.isolate", Old: "min(few(len(t.names)), len(t.names)/2)", New: "len(t.names)"}}},
		{Name: "the death of a process that goes on counts", Killer: "TestDeathIsTakenBack", Edits: []mutate.Edit{{
			File: "table.go", In: "assignments.apply", Old: "		next.revive()\n", New: ""}, {
			File: "quarantine.go", In: "planner.isolate", Old: "	after.revive()\n", New: ""}, {
			File: "quarantine.go", In: "planner.deaths", Old: "if living[mark.Process", New: "if false && living[mark.Process"}}},
		{Name: "nobody waits whether a process joins again", Killer: "TestDeathIsTakenBack", Edits: []mutate.Edit{{
			File: "quarantine.go", In: "planner.isolate", Old: "if ttl > 0 &&", New: "if false &&"}}},
		{Name: "a quarantine goes on though the deaths were none", Killer: "TestDeathIsTakenBack", Edits: []mutate.Edit{{
			File: "quarantine.go", In: "planner.isolate", Old: "len(s.Deaths) < len(was.Deaths) &&", New: "false &&"}}},
		{Name: "an owner without a lease dies of the shard", Killer: "TestDeathWithoutALease", Edits: []mutate.Edit{{
			File: "planner.go", In: "planner.orphan", Old: "		slots[x.ID] = int32(slot)\n",
			New: "		slots[x.ID] = int32(slot)\n		for i := range records {\n			if t.owner[i] == int32(slot) {\n" +
				"				p.lost[int32(slot)] = append(p.lost[int32(slot)], t.names[i])\n			}\n		}\n"}}},
		{Name: "the death of the assigner does not count", Killer: "TestDeathOfTheAssigner", Edits: []mutate.Edit{{
			File: "assigner.go", In: "Manager.assign", Old: "calm: m.calm.Load,", New: ""}}},
		{Name: "a clock that is ahead prolongs a quarantine", Killer: "TestClockAhead", Edits: []mutate.Edit{{
			File: "quarantine.go", In: "assignments.die", Old: "min(s.Until, c.Isolation.Until)", New: "s.Until"}}},
		{Name: "deaths of a clock that is ahead stay", Killer: "TestClockAhead", Edits: []mutate.Edit{{
			File: "quarantine.go", In: "assignments.die", Old: "list[i].at -= ahead", New: "list[i].at -= 0 * ahead"}}},
		{Name: "an operator's release does not count", Killer: "TestRelease", Edits: []mutate.Edit{{
			File: "operators.go", In: "planner.obey", Old: "			p.release[r.Shards] = true", New: "			_ = r"}}},
		{Name: "an owner does not wait until its shard is prepared", Killer: "TestPrepare", Edits: []mutate.Edit{{
			File: "reconcile.go", In: "Manager.successor", Old: "if m.unready(v, int(k), to) {", New: "if false {"}}},
		{Name: "an owner waits for a preparation for ever", Killer: "TestPrepareHangs", Edits: []mutate.Edit{{
			File: "prepare.go", In: "Manager.unready", Old: "waited >= m.o.PrepareBudget {", New: "waited < 0 {"}}},
		{Name: "a plan that is written again prolongs the wait", Killer: "TestPrepareHangsBesideAJoin", Edits: []mutate.Edit{{
			File: "planner.go", In: "planner.refused", Old: "limit += p.PrepareBudget", New: "limit += 0"}}},
		{Name: "nobody looks whether a move happens", Killer: "TestMovesAreWrittenAgain", Edits: []mutate.Edit{{
			File: "planner.go", In: "planner.change", Old: "out.again = true // no view", New: "// no view"}}},
		{Name: "a shard that was not prepared comes all the same", Killer: "TestPrepareRequired", Edits: []mutate.Edit{{
			File: "prepare.go", In: "Manager.unready", Old: "return ready.lacks(m.known.names[k], plan)", New: "return false"}}},
		{Name: "the assigner does not hear of failed preparations", Killer: "TestPrepareRequired", Edits: []mutate.Edit{{
			File: "planner.go", In: "planner.refused", Old: "case ready.lacks(name, plan), late", New: "case late"}}},
		{Name: "three deaths of few members are enough", Killer: "TestStandsOut", Edits: []mutate.Edit{{
			File: "quarantine.go", In: "planner.isolate", Old: "n >= q.Deaths+2*all/max(members, 3) }", New: "n >= q.Deaths+0*all }"}}},
		{Name: "a shard is held back though another was there each time", Killer: "TestStandsOut", Edits: []mutate.Edit{{
			File: "quarantine.go", In: "planner.due", Old: "if i, _ := indexOf(t, name); alone {",
			New: "if i, _ := indexOf(t, name); alone || true {"}}},
		{Name: "a machine that crashes again and again condemns its shard", Killer: "TestStandsOut", Edits: []mutate.Edit{{
			File: "quarantine.go", In: "planner.due", Old: "|| machines(own) < min(2, len(own)) {", New: "|| machines(own) < 0 {"}}},
		{Name: "shards that died with all others are not balanced", Killer: "TestBalanceAfterDeathsOfAll", Edits: []mutate.Edit{{
			File: "planner.go", In: "planner.shards", Old: "if len(near) <= max(few(len(t.names)), len(t.names)/2) {", New: "if true {"}}},
		{Name: "the heirs are not prepared", Killer: "TestStandby", Edits: []mutate.Edit{{
			File: "prepare.go", In: "Manager.prepare", Old: "m.o.Standby > 0 &&", New: "false &&"}}},
		{Name: "load is not told again when it changed", Killer: "TestLoadIsFollowed", Edits: []mutate.Edit{{
			File: "loads.go", In: "Manager.tellLoad", Old: "if !r.differs(last) && (last", New: "if last != nil && (last"}}},
		{Name: "reports are read though nobody watches", Killer: "TestPicture", Edits: []mutate.Edit{{
			File: "picture.go", In: "Manager.watchLoad", Old: "case <-m.watched:", New: "case <-time.After(m.o.Interval):"}}},
		{Name: "an operator's split is said to be the assigner's", Killer: "TestOnRange", Edits: []mutate.Edit{{
			File: "picture.go", In: "ruleOf", Old: "r.Kind == kind && at[h]", New: "r.Kind == kind && h == 0"}}},
		{Name: "a death before the hand-over does not count", Killer: "TestDeathBeforeTheHandOver", Edits: []mutate.Edit{{
			File: "planner.go", In: "planner.orphan", Old: "[][]record{p.before, records}", New: "[][]record{records}"}}},
		{Name: "a shard near quarantine is moved for balance's sake", Killer: "TestNoMoveNearQuarantine", Edits: []mutate.Edit{{
			File: "planner.go", In: "planner.shards",
			Old: "if p.near(t.suspects[name], died, top) {", New: "if p.near(t.suspects[name], died, top) && false {"}}},
		{Name: "a shard that comes free is held back at once", Killer: "TestFreeAfterManyDeaths", Edits: []mutate.Edit{{
			File: "quarantine.go", In: "assignments.isolate", Old: "min(len(list)-1, c.Isolation.Left)", New: "len(list)-1"}}},
		{Name: "ranges that are split off begin without deaths", Killer: "TestDeathsFollowTheRange", Edits: []mutate.Edit{{
			File: "table.go", In: "assignments.split", Old: "		t.suspect(t.names[s.Shard], g.Shard)\n", New: ""}}},
		{Name: "in a day: a shard that was split off begins with its range", Killer: "TestLoadedDay", Edits: []mutate.Edit{{
			File: "slice.go", In: "assignments.first", Old: "return c.before(shard, t.ranges[i]), nil", New: "return t.ranges[i], nil"}}},
		{Name: "in a day: a range is taken before it is given", Killer: "TestLoadedDay", Edits: []mutate.Edit{{
			File: "slice.go", Old: "	return false, nil\n}\n\n// If calls remain", New: "	return true, nil\n}\n\n// If calls remain"}}},
		{Name: "in a day: a giver keeps what it gave", Killer: "TestLoadedDay", Edits: []mutate.Edit{{
			File: "slice.go", In: "rangeChange.given",
			Old: "	if !c.Rest.Empty() {\n		n.Range = &c.Rest\n	}\n", New: "	all := c.before(c.From, c.Rest)\n	n.Range = &all\n"}}},
		{Name: "in a day: a base has no splits and merges", Killer: "TestLoadedDay", Edits: []mutate.Edit{{
			File: "table.go", In: "assignments.base",
			Old: "Changes: t.changes, Suspects: t.suspects}\n	for i, m", New: "Suspects: t.suspects}\n	for i, m"}}},
		{Name: "in a day: a base has no suspects", Killer: "TestLoadedDay", Edits: []mutate.Edit{{
			File: "table.go", In: "assignments.base",
			Old: "Changes: t.changes, Suspects: t.suspects}\n	for i, m", New: "Changes: t.changes}\n	for i, m"}}},
		{Name: "in a day: a quarantine does not end by time", Killer: "TestLoadedDay", Edits: []mutate.Edit{{
			File: "quarantine.go", In: "planner.isolate", Old: "case s.Until <= is.Time, p", New: "case p"}}},
		{Name: "in a day: members' capacities are not planned with", Killer: "TestLoadedDay", Edits: []mutate.Edit{{
			File: "planner.go", In: "planner.members", Old: "Capacity: capacityOf(m)}", New: "Capacity: 0}"}}},
		{Name: "in a day: reports are written though nothing changed", Killer: "TestLoadedDay", Edits: []mutate.Edit{{
			File: "report.go", In: "report.differs",
			Old: "	if total == 0 && before == 0 {\n		return false\n	}", New: "	if total > 0 {\n		return true\n	}"}}},
		{Name: "in a day: a dead member is evicted after two TTLs", Killer: "TestLoadedDay", Edits: []mutate.Edit{{
			File: "../internal/fsm/peers.go", In: "peer.silentAt",
			Old: "return p.seenAt.Add(p.member.TTL) }", New: "return p.seenAt.Add(2 * p.member.TTL) }"}}},
		{Name: "W5: a shard is in two changes", Killer: "TestRangesNeverOverlap", Edits: []mutate.Edit{{
			File: "table.go", In: "assignments.splits",
			Old: "len(s.At) > keyspace.MaxCuts || t.change(t.names[s.Shard]) != nil {", New: "len(s.At) > keyspace.MaxCuts {"}}},
		{Name: "W1: the plans after a gap are applied", Killer: "TestGapsWaitForABase", Edits: []mutate.Edit{{
			File: "log.go", In: "journal.add", Old: "if !c.Base && j.gap != nil {", New: "if false {"}}},
		{Name: "C12: a member that drains is planned like any other", Killer: "TestManyDrainAtOnce", Edits: []mutate.Edit{{
			File: "planner.go", In: "planner.members", Old: "Drain: m.Draining,", New: "Drain: false,"}}},
		{Name: "C15: a member that is not eligible is planned like any other", Killer: "TestPlanWithoutTheIneligible", Edits: []mutate.Edit{{
			File: "planner.go", In: "planner.bar", Old: "m.Drain = m.Drain || some", New: "_ = m"}}},
		{Name: "C15: shards are moved among members that are not eligible", Killer: "TestPlanWithoutTheIneligible", Edits: []mutate.Edit{{
			File: "planner.go", In: "planner.bar", Old: "c.Frozen = c.Frozen || len(barred) > 0 && !some", New: ""}}},
		{Name: "C15: shards follow a member's eligibility to and fro", Killer: "TestEligibilityMovesFew", Edits: []mutate.Edit{{
			File: "planner.go", In: "planner.bar",
			Old: "\t\t\tp.strike(now, m.ID)\n\t\t}\n\t\tif p.barred", New: "\t\t}\n\t\tif p.barred"}}},
		{Name: "C12: a Manager leaves the member drained", Killer: "TestManagerAgain", Edits: []mutate.Edit{{
			File: "manager.go", In: "Manager.show", Old: "st.Draining = draining", New: "st.Draining = st.Draining || draining"}}},
		{Name: "the operators' rules are not planned with", Killer: "TestOperators", Edits: []mutate.Edit{{
			File: "planner.go", In: "planner.next", Old: "Rules: p.Rules,", New: "Rules: assign.Rules{},"}}},
		{Name: "an operator's rule does not end", Killer: "TestOperators", Edits: []mutate.Edit{{
			File: "operators.go", In: "planner.obey", Old: "if !r.Active(now) {", New: "if false {"}}},
		{Name: "a move or resignation is never spent", Killer: "TestMoveOnce", Edits: []mutate.Edit{{
			File: "operators.go", In: "planner.obey", Old: "r.Spent(at.Token) {", New: "false && r.Spent(at.Token) {"}}},
		{Name: "a resignation lifts an exclusion", Killer: "TestMoveOnce", Edits: []mutate.Edit{{
			File: "operators.go", In: "planner.obey",
			Old: "slices.Concat(nodes, []string{at.Node})...", New: "slices.Concat(nodes[:0], []string{at.Node})..."}}},
		{Name: "an Elector moves what is assigned", Killer: "TestMoveOnce", Edits: []mutate.Edit{{
			File: "../internal/fsm/machine.go", In: "Machine.Preferred",
			Old: "return ok && !driver.IsLock(name) &&", New: "return false && ok &&"}}},
		{Name: "an application's plan is followed whatever it names", Killer: "TestImpossiblePlan", Edits: []mutate.Edit{{
			File: "planner.go", In: "planner.next", Old: "if _, ours := p.Assigner.(assign.Balance); !ours {", New: "if false {"}}},
		{Name: "a frozen namespace is balanced", Killer: "TestFreeze", Edits: []mutate.Edit{{
			File: "assign/draft.go", In: "draft.owned", Old: " && !d.c.Frozen {", New: " {"}}},
		{Name: "a frozen namespace is drained", Killer: "TestFreeze", Edits: []mutate.Edit{{
			File: "assign/draft.go", In: "newDraft", Old: " && (!c.Frozen || c.Members[o].Drain) {", New: " {"}}},
		{Name: "an assigner that does not understand the plans begins the keyspace again", Killer: "TestPlansNotUnderstood",
			Edits: []mutate.Edit{{
				File: "assigner.go", In: "Manager.assign", Old: "j.blind(m.o.Keyspace); err != nil {",
				New: "j.blind(m.o.Keyspace); err != nil && false {"}, {
				File: "reconcile.go", In: "Manager.carryOut", Old: "!leave && !m.blind.Load() && time", New: "!leave && time"}}},
		{Name: "a log without a base counts as an empty one", Killer: "TestPlansNotUnderstood/Trimmed", Edits: []mutate.Edit{{
			File: "log.go", In: "journal.catchUp", Old: "j.gap = fmt", New: "_ = fmt"}}},
		{Name: "a member that does not understand the plans holds the assigner's shard", Killer: "TestPlansNotUnderstood", Edits: []mutate.Edit{{
			File: "reconcile.go", In: "Manager.carryOut", Old: "!leave && !m.blind.Load() && time", New: "!leave && time"}}},
		{Name: "plans are written in a form that not every member reads", Killer: "TestRollingForm", Edits: []mutate.Edit{{
			File: "assigner.go", In: "Manager.formFor", Old: "form = max(min(form, n), formVersion)", New: "_ = n"}}},
		{Name: "plans of a newer form stay when an older version joins", Killer: "TestRollingForm", Edits: []mutate.Edit{{
			File: "log.go", In: "journal.write", Old: "j.highest > j.form ||", New: "false ||"}}},
		{Name: "an assigner forgets the form of what it wrote", Killer: "TestRollingForm", Edits: []mutate.Edit{{
			File: "log.go", In: "journal.write", Old: "j.highest = max(j.highest, j.form)", New: "_ = j.form"}}},
		{Name: "what was given and not taken is lost by a repair", Killer: "TestGather", Edits: []mutate.Edit{{
			File: "repair.go", In: "planChange.gather", Old: "c.Changes = append(c.Changes, rangeChange{",
			New: "_ = append(c.Changes, rangeChange{"}}},
		{Name: "the reason why a range went back is lost", Killer: "TestRangeGoesBack", Edits: []mutate.Edit{{
			File: "table.go", In: "assignments.takeBack", Old: "join(c.Rest, c.gift(shard).Range), why",
			New: "join(c.Rest, c.gift(shard).Range), \"\""}}},
		{Name: "a repair counts a refused range as taken", Killer: "TestRepairOfARefusal", Edits: []mutate.Edit{{
			File: "repair.go", In: "planChange.reopen", Old: "&& x.Refused == \"\"", New: ""}}},
		{Name: "a repair takes notes that leave a hole", Killer: "TestRepairDamagedNote", Edits: []mutate.Edit{{
			File: "repair.go", In: "planChange.divides", Old: "if p.Range.From != at || n", New: "if p.Range.From < at || n"}}},
		{Name: "a repair takes notes that overlap", Killer: "TestRepairDamagedNote", Edits: []mutate.Edit{{
			File: "repair.go", In: "planChange.divides", Old: "if p.Range.From != at || n", New: "if p.Range.From > at || n"}}},
		{Name: "plans that are understood are repaired", Killer: "TestRepair", Edits: []mutate.Edit{{
			File: "repair.go", In: "rebuild", Old: "newer || j.blind(k) == nil:", New: "newer:"}}},
		{Name: "every failure in an outage is logged", Killer: "TestOutageLines/AllRefused", Edits: []mutate.Edit{{
			File: "manager.go", In: "Manager.tried", Old: "m.lines.Failed(call, now); say {", New: "m.lines.Failed(call, now); say || true {"}}},
		{Name: "failures that alternate with successes are logged each", Killer: "TestOutageLines/ReadsInTurn", Edits: []mutate.Edit{{
			File: "../internal/rhythm/rhythm.go", In: "Rhythm.spell", Old: "s.works && now.Sub(s.ended) >= calm {", New: "s.works {"}}},
		{Name: "a halted member goes on following the plans", Killer: "TestOutageLines/StoreChanged", Edits: []mutate.Edit{{
			File: "manager.go", In: "Manager.tail",
			Old: "case errors.Is(err, core.ErrStoreChanged) || ctx", New: "case ctx"}, {
			File: "manager.go", In: "Manager.follow", Old: "if errors.Is(err, core.ErrStoreChanged) {", New: "if false {"}}},
		{Name: "a lock that is free stays owned for a subscription", Killer: "TestChangesOfLocks", Edits: []mutate.Edit{{
			File: "router.go", In: "Changes.Next", Old: "if old[0].Session != \"\" {", New: "if old[0].Session == \"\" {"}}},
	})
}
