package memory_test

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// TestMutants removes one rule at a time from package kv, and expects the suite's named case to
// fail.
func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, time.Minute, false, []mutate.Mutant{
		{Name: "L2: List brings more than was asked for", Killer: "TestConformance/Views/PrefixNoCrossTalk",
			Edits: []mutate.Edit{{
				File: "../kv/read.go", In: "Backend.List", Old: "case limit == 0 || len(items) < limit:", New: "default:"}, {
				File: "../kv/read.go", In: "Backend.List",
				Old: "Limit: budget.Page(limit), Largest", New: "Largest"}}},
		{Name: "List asks the store for everything", Killer: "TestListLimit", Edits: []mutate.Edit{{
			File: "../kv/read.go", In: "Backend.List",
			Old: "Limit: budget.Page(limit), Largest", New: "Largest"}}},
		{Name: "D1: List returns values of any size", Killer: "TestConformance/Views/LongValuesLeftOut", Edits: []mutate.Edit{{
			File: "../kv/read.go", In: "Backend.List", Old: "budget.Take(&it, max(len(p.Value), p.Long), shard, p.Key)", New: ""}}},
		{Name: "List's limit counts records that are no items", Killer: "TestListLimit", Edits: []mutate.Edit{{
			File: "../kv/read.go", In: "Backend.List", Old: "len(items) == limit || n", New: "len(items)+bad >= limit || n"}}},
		{Name: "List gets past records that are no items one by one", Killer: "TestListLimit", Edits: []mutate.Edit{{
			File: "../kv/read.go", In: "Backend.List", Old: "min(bad, maxBad)", New: "min(bad, 1)"}}},
		{Name: "M4: an update is not known again", Killer: "TestConformance/Membership/UpdateLostReply", Edits: []mutate.Edit{{
			File: "../kv/session.go", In: "session.updates", Old: "m.Update > st.Update {", New: "m.Update >= st.Update {"}}},
		{Name: "F1: a guard compares the shard's record only", Killer: "TestConformance/Fence/RaisedFloor", Edits: []mutate.Edit{{
			File: "../kv/lease.go", In: "Guard", Old: "return []Compare{{Key: b.keys.Identity(), Rev: b.idRev}, {Key: key, Rev: rev}}, nil",
			New: "return []Compare{{Key: key, Rev: rev}}, nil"}}},
		{Name: "F1: a guard takes any lease of the session", Killer: "TestConformance/Fence/RefusedAfterNewLease", Edits: []mutate.Edit{{
			File: "../kv/lease.go", In: "Backend.current",
			Old: "ok && l.owner == want {", New: "ok && l.owner.Session == want.Session {"}}},
		{Name: "F1: a guard takes any session's lease", Killer: "TestConformance/Fence/AcceptedWhileCurrent", Edits: []mutate.Edit{{
			File: "../kv/lease.go", In: "Backend.current", Old: "ok && l.owner == want {", New: "ok && l.owner.Token == want.Token {"}}},
		{Name: "E1: what a restored store applied is not applied", Killer: "TestConformance/Chaos/RestoreOlderStore",
			Edits: []mutate.Edit{{File: "../kv/backend.go", In: "Backend.wentBack",
				Old: "if batch.Heartbeat || ", New: "if batch != nil || "}}},
		{Name: "A3: a repeated claim is answered by the session alone", Killer: "TestConformance/Acquire/Idempotent",
			Edits: []mutate.Edit{{
				File: "../kv/acquire.go", In: "session.denied",
				Old: "if owner.Session == s.id && r.From == c.Seen.Token && owner != c.Seen {",
				New: "if owner.Session == s.id && r.From >= 0 && owner != c.Seen {"}}},
		{Name: "A3: a transfer is taken for done, granted by anybody", Killer: "TestConformance/Acquire/Idempotent",
			Edits: []mutate.Edit{{
				File: "../kv/acquire.go", In: "session.refused", Old: "case owner.Session == h.To && r.From == h.Fence.Token && " +
					"owner.Token != h.Fence.Token:",
				New: "case owner.Session == h.To && r.From >= 0 && owner.Token != h.Fence.Token:"}}},
		{Name: "R1: a release compares existence only", Killer: "TestConformance/Release/StaleIsNoop",
			Edits: []mutate.Edit{{
				File: "../kv/release.go", In: "Backend.free", Old: "txns[n] = Txn{If: []Compare{{Key: key, Rev: at.rev}}}",
				New: "txns[n] = Txn{If: []Compare{{Key: key, Rev: Exists}}}"}}},
		{Name: "M4: an update compares existence only", Killer: "TestLateUpdate",
			Edits: []mutate.Edit{{
				File: "../kv/session.go", In: "session.Update", Old: "If:   []Compare{{Key: key, Rev: found[0].Rev}},",
				New: "If:   []Compare{{Key: key, Rev: Exists}},"}}},
		{Name: "M4: a number that is not above the record's is taken", Killer: "TestConformance/Membership/UpdatesInOrder",
			Edits: []mutate.Edit{{
				File: "../kv/session.go", In: "session.updates", Old: "if err == nil && m.Update > st.Update {", New: "if false {"}}},
		{Name: "O1: a head is carried without being compared", Killer: "TestConformance/Views/HeadIsTheGrants",
			Edits: []mutate.Edit{{
				File: "../kv/acquire.go", In: "session.pass", Old: "conds = append(conds, Compare{Key: head, Rev: l.headRev})", New: ""}}},
		{Name: "A5: a transfer does not ask for its target",
			Killer: "TestConformance/Release/TransferToAbsentMemberRefused", Edits: []mutate.Edit{{
				File: "../kv/acquire.go", In: "session.pass", Old: "if h.To != s.id { // the batch's guard has it otherwise",
				New: "if false {"}}},
		{Name: "R2: a release does not look for a head", Killer: "TestConformance/Locks/CommitsStay",
			Edits: []mutate.Edit{{
				File: "../kv/release.go", In: "Backend.free",
				Old: "txns[n].If = append(txns[n].If, Compare{Key: b.keys.Head(f.Shard), Rev: Absent})", New: ""},
				{File: "../kv/release.go", In: "Backend.free", Old: "(!ok || l.headRev == 0)", New: "(ok || !ok || l.headRev == 0)"}}},
		{Name: "R2: a lock with a head that this process does not know is not released", Killer: "TestConformance/Locks/ReleaseRacesCommit",
			Edits: []mutate.Edit{{
				File: "../kv/release.go", In: "session.Release",
				Old: "	_, _ = b.free(ctx, fences, stay, false, failed)\n", New: "	_ = stay\n"}}},
		{Name: "R2: records of locks stay", Killer: "TestConformance/Locks/RecordsAreBounded",
			Edits: []mutate.Edit{{
				File: "../kv/release.go", In: "Backend.free", Old: "remove && driver.IsLock(f.Shard) &&", New: "false &&"}}},
		{Name: "R2: a lock is claimed as it was seen only", Killer: "TestConformance/Locks/TokensIncrease",
			Edits: []mutate.Edit{{
				File: "../kv/acquire.go", In: "sawFree",
				Old: "return driver.IsLock(c.Shard) && c.Seen.Session == \"\"", New: "return false"}}},
		{Name: "R2: what a lock was claimed from counts as damage", Killer: "TestConformance/Locks/FutureToken",
			Edits: []mutate.Edit{{
				File: "../kv/records.go", In: "decodeShard", Old: " && !driver.IsLock(shardOf(p.Key))", New: ""}}},
		{Name: "R2: that a lock's record went is not told", Killer: "TestConformance/Locks/ReleaseIsSeen",
			Edits: []mutate.Edit{{
				File: "../kv/mirror.go", In: "mirror.follow", Old: "				m.free(s, c.Rev)\n", New: "				_ = s\n"}}},
		{Name: "R3: a grant forgets the leases before", Killer: "TestConformance/History/LastLeases",
			Edits: []mutate.Edit{{
				File: "../kv/history.go", In: "Backend.noted", Old: "		if p := b.pastAt(shard, rev); p != (past{}) {", New: "		if p := b.pastAt(shard, rev); false {"}}},
		{Name: "R3: a history that the watch has yet to tell is forgotten", Killer: "TestConformance/History/Unwatched",
			Edits: []mutate.Edit{{
				File: "../kv/history.go", In: "Backend.pastAt", Old: "ok && l.rev == rev {", New: "ok && l.rev < 0 {"}}},
		{Name: "R3: a history that was read before the write is forgotten", Killer: "TestConformance/History/Unwatched",
			Edits: []mutate.Edit{{
				File: "../kv/history.go", In: "Backend.recall", Old: "past: pastOf(record)})", New: "})"}}},
		{Name: "R3: locks have a history", Killer: "TestConformance/History/LastLeases",
			Edits: []mutate.Edit{{
				File: "../kv/history.go", In: "Backend.noted", Old: "if !driver.IsLock(shard) {", New: "if true {"}}},
		{Name: "R3: the label of a successor is not looked for", Killer: "TestConformance/History/LastLeases",
			Edits: []mutate.Edit{{
				File: "../kv/history.go", In: "mirror.node", Old: "		return it.val.Node\n", New: "		_ = it\n"}}},
		{Name: "D1: a damaged history is not reported", Killer: "TestConformance/History/Damaged",
			Edits: []mutate.Edit{{
				File: "../kv/history.go", In: "Backend.History", Old: "if why != \"\" {", New: "if why == \"-\" {"}}},
	})
}
