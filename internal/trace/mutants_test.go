package trace_test

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// TestMutants removes one comparison of the checker at a time, or makes a member trace less.
func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, time.Minute, true, []mutate.Mutant{
		{Name: "steps are not compared", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "tracer.replay", Old: "if did == does {", New: "if did == does || true {"}}},
		{Name: "what a step lacks is not seen", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "tracer.replay",
			Old: "for i := range max(len(want), len(rec.Out)) {", New: "for i := range min(len(want), len(rec.Out)) {"}}},
		{Name: "S1: leases are not compared", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.compareGrants", Old: "over.to.Sub(g.from) > c.apart(over.node, g.node) &&", New: "false &&"}}},
		{Name: "S1: leases that were revoked do not count", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "tracer.revoked",
			Old: "g.to, g.why = earlier(t.now, s.until), e.Cause", New: "g.to, g.why = g.from, e.Cause"}}},
		{Name: "S2: tokens may go back", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.compareGrants",
			Old: "greatest != nil && g.fence.Token < greatest.fence.Token &&", New: "greatest != nil && false &&"}}},
		{Name: "S2: tokens may come again", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.compareGrants",
			Old: "was := byToken[g.fence.Token]; was != nil {", New: "was := byToken[g.fence.Token]; false {"}}},
		{Name: "S3: commits may be acknowledged twice", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.compareAcks", Old: "case b.From <= a.To:", New: "case false:"}}},
		{Name: "S3: tokens of commits are not compared", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.compareAcks", Old: "case b.Fence.Token < a.Fence.Token:", New: "case false:"}}},
		{Name: "C3: session ids may come again", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "tracer.effect", Old: "} else if e.Member != nil {", New: "} else if false {"}}},
		{Name: "A2: the answer to a claim is not compared", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "tracer.granted", Old: "if f.Token > c.Seen.Token &&", New: "if true || f.Token > c.Seen.Token &&"}}},
		{Name: "C5: evictions are not compared", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.compareEviction",
			Old: "if last.IsZero() || silent >=", New: "if true {\n\t\treturn\n\t}\n\tif last.IsZero() || silent >="}}},
		{Name: "C5: every eviction is a breach", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.compareEviction",
			Old: "if last.IsZero() || silent >= s.ttl", New: "if last.IsZero() || silent >= 1000*s.ttl"}}},
		{Name: "S7: what a call asks for is not compared", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.called", Old: "case c.Asked != out.hash():", New: "case false:"}}},
		{Name: "S7: sessions of calls are not compared", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.called",
			Old: "|| c.Kind != effects[fsm.EffRead] && c.Session != out.Session:", New: "|| false:"}}},
		{Name: "S7: kinds of calls are not compared", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.called", Old: "case c.Kind != out.Kind || ", New: "case "}}},
		{Name: "S7: calls that nobody asked for may be made", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.called",
			Old: "t.differs(\"S7\", \"\", \"call %d, of %q, was not asked for\", c.Call, c.Kind)", New: "_ = c"}}},
		{Name: "S7: calls need not be made", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.ends", Old: "\t\tif m.call == nil {\n", New: "\t\tif m.call == nil && false {\n"}}},
		{Name: "E2: calls may be made twice", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.called", Old: "case m.call != nil && c.Kind != effects[fsm.EffClose]:", New: "case false:"}}},
		{Name: "S4: answers are not compared", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.replied", Old: "|| m.call.Answer != in.hash():", New: "|| false:"}}},
		{Name: "S4: an answer needs no call", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.replied", Old: "case m.call == nil:\n", New: "case m.call == nil && false:\n"}}},
		{Name: "S4: answers may be lost", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.ends",
			Old: "t.differs(\"S4\", \"\", \"the machine was not given the answer to call %d, of %q\", id, m.out.Kind)", New: "_ = id"}}},
		{Name: "S13: views are not compared", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.viewed", Old: "case c.Answer != in.hash():", New: "case false:"}}},
		{Name: "S13: views may count from later", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.viewed", Old: "case in.SentAt > c.Sent:", New: "case false:"}}},
		{Name: "S13: a view needs no read", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.viewed",
			Old: "\tif len(r.views) == 0 {\n\t\tt.differs(", New: "\tif len(r.views) == 0 {\n\t\treturn\n\t\tt.differs("}}},
		{Name: "S13: views may be lost", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.called",
			Old: "\t\tif len(r.views) > 0 {\n\t\t\tt.differs", New: "\t\tif len(r.views) > 9 {\n\t\t\tt.differs"}}},
		{Name: "S13: the last view may be lost", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.ends", Old: "\tif len(t.runner.views) > 0 {", New: "\tif len(t.runner.views) > 9 {"}}},
		{Name: "S13: a full read is not waited for", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.viewed", Old: "in.SentAt > r.resync && !c.Full:", New: "in.SentAt > r.resync && false:"}}},
		{Name: "S13: every read has to be full", Killer: "TestPlantedNothing", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.viewed", Old: "case r.resync != 0 && in.SentAt > r.resync && !c.Full:", New: "case !c.Full:"}}},
		{Name: "S13: a read has to be full that was sent before", Killer: "TestPlantedNothing", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.viewed", Old: "in.SentAt > r.resync &&", New: "c.Sent > r.resync &&"}}},
		{Name: "S4: leases that nobody granted", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.told",
			Old: "\tif l == nil {\n\t\tt.differs(\"S4\"", New: "\tif l == nil {\n\t\treturn\n\t\tt.differs(\"S4\""}}},
		{Name: "S5: handlers of leases that have ended", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.told", Old: "\t\tif !l.open {", New: "\t\tif false {"}}},
		{Name: "S11: handlers beside each other", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.told", Old: "; ok {\n\t\t\tt.differs(\"S11\"", New: "; ok && false {\n\t\t\tt.differs(\"S11\""}}},
		{Name: "S8: trust is not compared", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.told", Old: "x.Until > until {", New: "false {"}}},
		{Name: "S9: ends may go untold", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.given", Old: "\tfor _, f := range r.ending {\n", New: "\tfor _, f := range r.ending[:0] {\n"}}},
		{Name: "S9: ends may be told that are none", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.told",
			Old: "if len(r.ending) == 0 || r.ending[0] != f {\n", New: "if len(r.ending) == 0 || r.ending[0] != f {\n\t\t\treturn\n"}}},
		{Name: "S9: the clock may go back", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.given", Old: "if at < r.last {", New: "if false {"}}},
		{Name: "grants are compared after the end of the context", Killer: "TestCompareEnds", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.compareGrants", Old: "if c.ctx.Err() != nil {", New: "if false {"}}},
		{Name: "S6: leases may be valid after their end", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.told", Old: "if x.Valid {", New: "if false {"}}},
		{Name: "S12: work need not be joined", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.drained", Old: "&& f.Token == in.Token && l.returned", New: "&& f.Token == in.Token"}}},
		{Name: "S4: commits under a lease that nobody was told of", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.outcome", Old: "case !l.begun:", New: "case false:"}}},
		{Name: "S12: commits may follow", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.outcome", Old: "case l.drained:", New: "case false:"}}},
		{Name: "S3: commits under any lease", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.outcome",
			Old: "\t\tt.differs(\"S3\", f.Shard, \"commit", New: "\t\treturn\n\t\tt.differs(\"S3\", f.Shard, \"commit"}}},
		{Name: "S5: commits may be sent after trust", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.outcome", Old: "case a.Sent > r.until[f.Session] || l.ended", New: "case l.ended"}}},
		{Name: "S4: commits may go untold", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.outcome", Old: "case a.From > l.last+1:", New: "case false:"}}},
		{Name: "S15: commits may come again", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.outcome", Old: "case a.From <= l.last && !a.Doubt && l.seqKnown:", New: "case false:"}}},
		{Name: "L1: entries are not counted", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "told.go", In: "tracer.outcome", Old: "case l.seqKnown && !a.Doubt && a.Seq != l.seq+a.Entries:", New: "case false:"}}},
		{Name: "a file that ends in the middle lacks nothing", Killer: "TestMissing", Edits: []mutate.Edit{{
			File: "check.go", In: "tracer.records", Old: "t.gap(\"the file ends in", New: "t.note(\"the file ends in"}}},
		{Name: "what the runner did is compared over a gap", Killer: "TestMissing", Edits: []mutate.Edit{{
			File: "check.go", In: "tracer.gap", Old: "newRunner(false), nil, 0", New: "t.runner, nil, 0"}}},
		{Name: "Header.Steps is not compared", Killer: "TestMissing", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.run", Old: "case t.exact && f.head.Steps != t.pos:", New: "case false:"}}},
		{Name: "a first file may begin later", Killer: "TestMissing", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.run", Old: "head.Part == 0 && head.Steps == 0", New: "head.Part == 0"}}},
		{Name: "a last file that is missing is not missed", Killer: "TestMissing", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.run", Old: "	if t.open {\n", New: "	if t.open && false {\n"}}},
		{Name: "the end is not marked", Killer: "TestMembers", Edits: []mutate.Edit{{
			File: "log.go", In: "Log.take", Old: ", End: ended}", New: "}"}}},
		{Name: "a file that does not fit its checksum counts", Killer: "TestCorrupt", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.byRun", Old: "for c.ctx.Err() == nil && err == nil {", New: "for err = io.EOF; false; {"}}},
		{Name: "lines that no checksum covers count", Killer: "TestCorrupt", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.byRun", Old: "f.most = max(r.good, 1)", New: "f.most = 0"}}},
		{Name: "lines that do not fit their checksum count", Killer: "TestCorrupt", Edits: []mutate.Edit{{
			File: "read.go", In: "Reader.scan", Old: " || c.Sum != r.sum", New: ""}}},
		{Name: "one bad file refuses the others", Killer: "TestBadFile", Edits: []mutate.Edit{{
			File: "check.go", In: "Check", Old: "if c.read == 0 && c.bad != nil &&", New: "if c.bad != nil &&"}}},
		{Name: "a bad file goes unnoticed", Killer: "TestBadFile", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.unread", Old: "append(c.report.Unread, err.Error())", New: "c.report.Unread"}}},
		{Name: "a file counts twice", Killer: "TestDamagedFiles", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.byRun",
			Old: "files[i].head.Part == files[i-1].head.Part {", New: "files[i].head.Part == files[i-1].head.Part && false {"}}},
		{Name: "a clock that was set widens nothing", Killer: "TestClockSet", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.apart", Old: "c.clockError + c.set[a] + c.set[b]", New: "c.clockError"}}},
		{Name: "a clock that was set breaks a proof", Killer: "TestClockSet", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.compareProof", Old: "set := c.set[e.by]", New: "set := time.Duration(0)"}}},
		{Name: "a clock that was set hides others' leases", Killer: "TestClockSet", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.compareGrants", Old: "g.to.Add(-c.set[g.node]).After(longest.to.Add(-c.set[longest.node]))",
			New: "g.to.After(longest.to)"}}},
		{Name: "S1: a lost reply hides a lease", Killer: "TestLostReply", Edits: []mutate.Edit{{
			File: "check.go", In: "tracer.became", Old: "if o.Session == was.Session {", New: "if false {"}}},
		{Name: "S1: what another program gave counts", Killer: "TestLostReply", Edits: []mutate.Edit{{
			File: "check.go", In: "tracer.became", Old: "		delete(t.tried, shard)\n", New: ""}}},
		{Name: "a trace without calls has to have them", Killer: "TestPlantedNothing", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.run", Old: "newRunner(head.Runner && whole)", New: "newRunner(whole)"}}},
		{Name: "S3: heads of leases are not compared", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "seen.go", In: "checker.compareBegins", Old: "last.To > b.head.Number {", New: "false {"}}},
		{Name: "L1: logs of leases are not compared", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "seen.go", In: "checker.compareHead", Old: "acks[i].Seq != b.head.Seq:", New: "false:"}}},
		{Name: "S4: commits that were told to nobody", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "seen.go", In: "checker.compareHead", Old: "case !found && c.joinedBy(", New: "case !found && false && c.joinedBy("}}},
		{Name: "S4: what nobody is known to have committed", Killer: "TestPlantedNothing", Edits: []mutate.Edit{{
			File: "seen.go", In: "checker.compareHead", Old: "c.joinedBy(shard, b.head.Token) && ", New: ""}}},
		{Name: "S4: commits in doubt count as untold", Killer: "TestPlantedNothing", Edits: []mutate.Edit{{
			File: "seen.go", In: "checker.compareHead", Old: " && !c.doubted(shard, n):", New: ":"}}},
		{Name: "L1: entries are not counted over leases", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.compareAcks", Old: "case b.From == a.To+1 && a.Seq != 0 &&", New: "case false &&"}}},
		{Name: "A2: tokens may have two sessions", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "seen.go", In: "tracer.holder", Old: "!ok || was == o.Session {", New: "true || !ok || was == o.Session {"}}},
		{Name: "O1: tokens may go back in views", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "seen.go", In: "tracer.look", Old: "s.Owner.Token < was && s.Owner.Token != 0 {", New: "false {"}}},
		{Name: "O1: heartbeats may go back", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "seen.go", In: "tracer.look", Old: "b.Version < was && b.Version != 0 {", New: "false {"}}},
		{Name: "M3: sessions may come back", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "seen.go", In: "tracer.look", Old: "if t.seen.gone[m.Session] {", New: "if false {"}}},
		{Name: "M4: updates may go back", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "seen.go", In: "tracer.look", Old: "m.Update < was {", New: "false {"}}},
		{Name: "M4: what members say is not compared", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "seen.go", In: "checker.compareShown", Old: "return hash(*st) == hash(x.state) }", New: "return true }"}}},
		{Name: "M2: the dead may beat", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "seen.go", In: "checker.compareEnded", Old: "if sent.Sub(e.sent) > c.apart(e.by, s.node) {", New: "if false {"}}},
		{Name: "M2: the living may not", Killer: "TestPlantedNothing", Edits: []mutate.Edit{{
			File: "seen.go", In: "checker.compareEnded", Old: "if sent.Sub(e.sent) > c.apart(e.by, s.node) {", New: "if true {"}}},
		{Name: "M1: the dead may claim", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "seen.go", In: "checker.compareEnded", Old: "if sent.Sub(e.done) > c.apart(e.by, s.node) {", New: "if false {"}}},
		{Name: "M1: the living may not", Killer: "TestPlantedNothing", Edits: []mutate.Edit{{
			File: "seen.go", In: "checker.compareEnded", Old: "if sent.Sub(e.done) > c.apart(e.by, s.node) {", New: "if true {"}}},
		{Name: "A5: gifts to the dead", Killer: "TestPlantedRunner", Edits: []mutate.Edit{{
			File: "seen.go", In: "checker.compareGift",
			Old: "ok && g.sent.Sub(e.done) >", New: "ok && false && g.sent.Sub(e.done) >"}}},
		{Name: "C5: a member that has just joined may evict", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.compareProof", Old: "if e.sent.Sub(since) >= s.ttl-s.ttl/100-set &&", New: "if true &&"}}},
		{Name: "C5: what an eviction rests on is what its answer finds", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "tracer.noteEvictions", Old: "proof: c.proof}", New: "proof: t.links}"}}},
		{Name: "C5: the answer of a join that was given up begins all anew", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "tracer.noteJoin", Old: "in.Call == t.joining {", New: "true {"}}},
		{Name: "C5: an eviction needs no newer answer", Killer: "TestPlanted", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.compareProof", Old: "&& e.sent.Sub(newest) <= s.ttl/2+s.ttl/100+set {", New: "{"}}},
		{Name: "a gap goes unnoticed", Killer: "TestLost", Edits: []mutate.Edit{{
			File: "check.go", In: "tracer.records", Old: "if rec.Lost != 0 {", New: "if rec.Lost < 0 {"}}},
		{Name: "a lease counts as trusted over a gap", Killer: "TestGap", Edits: []mutate.Edit{{
			File: "check.go", In: "tracer.gap", Old: "	t.cut()\n	t.endLeases()\n", New: "	t.cut()\n"}}},
		{Name: "a beginning that is missing goes unnoticed", Killer: "TestRotation", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.run", Old: "	if whole {\n", New: "	if whole || true {\n"}}},
		{Name: "a file that a member removes meanwhile fails the check", Killer: "TestRemovedBeside", Edits: []mutate.Edit{{
			File: "check.go", In: "Source.gone", Old: "return s.MayGo && errors.Is", New: "return false && errors.Is"}}},
		{Name: "a file that was named may be missing", Killer: "TestRemovedBeside", Edits: []mutate.Edit{{
			File: "check.go", In: "Source.gone", Old: "return s.MayGo && errors.Is", New: "return errors.Is"}}},
		{Name: "all files may be missing", Killer: "TestRemovedBeside", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.byRun", Old: "			c.bad = cmp.Or(c.bad, err)\n", New: ""}}},
		{Name: "records of a file that was removed are not missed", Killer: "TestRemovedBeside", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.run", Old: "t.gap(\"%s was removed before it was read\", f.Name)", New: "_ = 0"}}},
		{Name: "namespaces are mixed", Killer: "TestHostile", Edits: []mutate.Edit{{
			File: "check.go", In: "checker.byRun", Old: "if f.head.Namespace != first.Namespace ||", New: "if"}}},
		{Name: "memory has no bound", Killer: "TestLost", Edits: []mutate.Edit{{
			File: "log.go", In: "Log.put", Old: "if l.weight > maxWaiting {", New: "if l.weight < 0 {"}}},
		{Name: "files have no bound", Killer: "TestRotation", Edits: []mutate.Edit{{
			File: "log.go", In: "Log.makeRoom", Old: "if room >= 0 {", New: "if true {"}}},
		{Name: "small files have no bound", Killer: "TestLabelBytes", Edits: []mutate.Edit{{
			File: "log.go", In: "Log.makeRoom", Old: "max(f.Size(), l.o.MaxBytes/256)", New: "f.Size()"}}},
		{Name: "each process has a bound of its own", Killer: "TestLabelBytes", Edits: []mutate.Edit{{
			File: "log.go", In: "Log.makeRoom", Old: "strings.HasPrefix(e.Name(), l.label)", New: "strings.HasPrefix(e.Name(), l.prefix)"}}},
		{Name: "labels that are alike share a bound", Killer: "TestLabelBytes", Edits: []mutate.Edit{{
			File: "log.go", In: "fileName", Old: "if b.String() != node {", New: "if false {"}}},
		{Name: "other files are removed", Killer: "TestLabelBytes", Edits: []mutate.Edit{{
			File: "log.go", In: "Log.makeRoom", Old: "strings.Contains(e.Name(), Suffix) &&", New: ""}}},
		{Name: "a disk that failed is not tried again", Killer: "TestDiskFails", Edits: []mutate.Edit{{
			File: "log.go", In: "Log.failed", Old: "time.Now().Add(retryAfter)", New: "time.Now().Add(1000 * retryAfter)"}}},
		{Name: "each failure of a disk warns", Killer: "TestDiskFails", Edits: []mutate.Edit{{
			File: "log.go", In: "Log.failed", Old: "if l.retry.IsZero() {", New: "if true {"}}},
		{Name: "a full disk ends the member", Killer: "TestFullDisk", Edits: []mutate.Edit{{
			File: "log.go", In: "Log.Start", Old: "errors.Is(err, syscall.EROFS):", New: "err != nil:"}}},
		{Name: "a gap of a full disk goes unnoticed", Killer: "TestFullDisk", Edits: []mutate.Edit{{
			File: "log.go", In: "Log.failed", Old: "	l.head.Part++ // a reader misses a file\n", New: ""}}},
		{Name: "files are for everybody", Killer: "TestRotation", Edits: []mutate.Edit{{
			File: "log.go", In: "Log.open", Old: "0o600)", New: "0o644)"}}},
		{Name: "commits are not traced", Killer: "TestMembers", Edits: []mutate.Edit{{
			File: "../../core/commit.go", In: "delivery.finish",
			Old: "if d.l.e.traced != nil {", New: "if d.l.e.traced != nil && false {"}}},
		{Name: "calls are not traced", Killer: "TestMembers", Edits: []mutate.Edit{{
			File: "../../core/trace.go", In: "Elector.newTrace",
			Old: "	e.b = &wire{Backend: e.b, clk: e.clk, log: e.traced}\n", New: "	_ = wire{}\n"}}},
		{Name: "a lease's begin is not traced", Killer: "TestMembers", Edits: []mutate.Edit{{
			File: "../../core/run.go", In: "Elector.begin", Old: "	r.lease.traceBegun()\n", New: ""}}},
		{Name: "a lease's end is not traced", Killer: "TestMembers", Edits: []mutate.Edit{{
			File: "../../core/step.go", In: "Elector.do", Old: "		r.lease.traceEnded()\n", New: "		_ = r\n"}}},
		{Name: "that the work was joined is not traced", Killer: "TestMembers", Edits: []mutate.Edit{{
			File: "../../core/run.go", In: "Elector.join", Old: "	r.lease.traceJoined()\n", New: ""}}},
		{Name: "a step is not traced", Killer: "TestMembers", Edits: []mutate.Edit{{
			File: "../../core/step.go", In: "Elector.drainQueue",
			Old: "if e.traced != nil {", New: "if e.traced != nil && in.Kind != fsm.InBeaten {"}}},
		{Name: "steps before Run are not traced", Killer: "TestMembers", Edits: []mutate.Edit{{
			File: "../../core/step.go", In: "Elector.drainQueue",
			Old: "if e.traced != nil {", New: "if e.traced != nil && e.phase != fresh {"}}},
		{Name: "a file has its name before its header", Killer: "TestKilledAtBirth", Edits: []mutate.Edit{
			{File: "log.go", In: "Log.open", Old: "os.OpenFile(name+newSuffix, ", New: "os.OpenFile(name, "},
			{File: "log.go", In: "Log.open", Old: "err = os.Rename(file.Name(), name)", New: "err = nil"}}},
		{Name: "a line that was cut counts", Killer: "TestHostile", Edits: []mutate.Edit{{
			File: "read.go", In: "NewReader", Old: "	r.lines.Split(wholeLines)\n", New: ""}}},
		{Name: "the end is not written", Killer: "TestMembers", Edits: []mutate.Edit{{
			File: "../../core/elector.go", In: "Elector.Run", Old: "\te.endTrace()\n", New: ""}}},
	})
}
