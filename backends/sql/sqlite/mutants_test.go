package sqlite

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// TestMutants removes one rule at a time from the backend, and expects the named case of the suite
// to fail.
func TestMutants(t *testing.T) {
	const locked = "TestMembersAreLockedUntilCommit"
	mutate.All(t, mutantsFlag, 2*time.Minute, false, []mutate.Mutant{
		{Name: "E5: a file that is read-only may be tried again", Killer: "TestConformance/Errors/RightTakenAway", Edits: []mutate.Edit{{
			File: "errors.go", In: "notApplied", Old: "\t\terr = fmt.Errorf(\"%w: %w\", driver.ErrDenied, err)\n", New: ""}}},
		{Name: "L2: List brings more than was asked for", Killer: "TestConformance/Views/PrefixNoCrossTalk", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "ORDER BY key LIMIT :limit;", New: "ORDER BY key LIMIT :limit + 1;"}}},
		{Name: "F1: FenceTx asks for no session", Killer: "TestConformance/Fence/AcceptedWhileCurrent", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "session = :session AND token = :token\n  AND EXISTS", New: "session >= substr(:session, 1, 0) AND token = :token\n  AND EXISTS"}}},
		{Name: "F1: FenceTx asks for no token", Killer: "TestConformance/Fence/RefusedAfterNewLease", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "session = :session AND token = :token\n  AND EXISTS", New: "session = :session AND token >= 0 * :token\n  AND EXISTS"}}},
		{Name: "F1: FenceTx does not compare the floor", Killer: "TestConformance/Fence/RestoreOlderStore", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "AND base + revision >= :seen)", New: "AND base >= 0 * :seen)"}}},
		{Name: "M3: a join does not compare that labels were removed", Killer: "TestConformance/Labels/LateJoinFails", Edits: []mutate.Edit{{
			File: "../internal/engine/members.go", In: "Backend.checkLabel", Old: " || removed != before.removals {", New: " {"}}},
		{Name: "M3: a join does not compare who joined last", Killer: "TestConformance/Membership/LateJoinFails", Edits: []mutate.Edit{{
			File: "../internal/engine/members.go", In: "Backend.checkLabel", Old: "if last != before.session || ", New: "if "}}},
		{Name: "E1: transactions are deferred, and fail when they come to write", Killer: "TestWriteWaitsForTheOther", Edits: []mutate.Edit{{
			File: "writer.go", In: "writer.connect",
			Old: "context.Background(), \"BEGIN IMMEDIATE\")", New: "context.Background(), \"BEGIN\")"}}},
		{Name: "O2: nobody looks for what the file system did not tell of", Killer: "TestUntold", Edits: []mutate.Edit{{
			File: "../internal/engine/pace.go", In: "pace.net", Old: "return p.between(ttl * 2 / 5)", New: "return time.Hour"}}},
		{Name: "O2: a file of hints that was removed is kept", Killer: "TestHintsFile", Edits: []mutate.Edit{{
			File: "hints.go", In: "link.Listen",
			Old: "!event.Has(fsnotify.Write) && l.replaced()", New: "event.Has(fsnotify.Remove) && l.replaced()"}}},
		{Name: "D1: a grant keeps a history that is no text of Tenure's", Killer: "TestConformance/History/Damaged", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "excluded.grants || CASE WHEN grants NOT GLOB '*[^!-~]*' THEN grants ELSE '' END, 1, 200)",
			New: "excluded.grants || grants, 1, 300)"}}},
		{Name: "R3: a release is not noted", Killer: "TestConformance/History/LastLeases", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "grants = substr(:note || CASE", New: "grants = substr(substr(:note, 1, 0) || CASE"}}},
		{Name: "R3: who holds a shard alive counts as gone", Killer: "TestConformance/History/LastLeases", Edits: []mutate.Edit{{
			File: "../internal/engine/claims.go", In: "session.decideAll", Old: "part.end(d.to == s.id, alive[r.owner.Session])", New: "part.end(d.to == s.id, false)"}}},
		{Name: "synchronous is normal", Killer: "TestLiveSettings", Edits: []mutate.Edit{
			{File: "files.go", In: "dsn", Old: "fmt.Sprintf(\"synchronous(%d)\", d)", New: "fmt.Sprintf(\"synchronous(%d)\", d*0+1)"}}},
		{Name: "synchronous is normal, and nobody asks", Killer: "TestLiveSettings", Edits: []mutate.Edit{
			{File: "files.go", In: "dsn", Old: "fmt.Sprintf(\"synchronous(%d)\", d)", New: "fmt.Sprintf(\"synchronous(%d)\", d*0+1)"},
			{File: "settings.go", In: "asserted.check", Old: "if got != s.want {", New: "if false {"}}},
		{Name: "nobody asks what connections use", Killer: "TestSettingsAreAsserted", Edits: []mutate.Edit{
			{File: "settings.go", In: "asserted.check", Old: "if got != s.want {", New: "if false {"}}},
		{Name: "A1: the lock of members is let go before the data are committed", Killer: locked, Edits: []mutate.Edit{{
			File: "committer.go",
			In:   "committer.run",
			Old:  "\t\terr = l.finish(err)\n\t\tif first.end != nil {\n\t\t\tfirst.end()\n\t\t}\n",
			New:  "\t\tif first.end != nil {\n\t\t\tfirst.end()\n\t\t}\n\t\terr = l.finish(err)\n"}}},
		{Name: "A1: members are read without their lock", Killer: locked, Edits: []mutate.Edit{{
			File: "store.go", In: "store.WriteOwners",
			Old: "\t\theld = true\n\t\treturn s.holder.tx, nil\n", New: "\t\ts.holder.rollback()\n\t\treturn engine.NewTx(s.members.prep, nil), nil\n"}}},
		{Name: "A3: a hand-over is taken for done, whoever granted it", Killer: "TestConformance/Acquire/Idempotent", Edits: []mutate.Edit{{
			File: "../internal/engine/claims.go", In: "decideTransfer",
			Old: "r.owner.Token > h.Fence.Token && r.granted == h.Fence.Token:", New: "r.owner.Token > h.Fence.Token:"}}},
		{Name: "A3: a claim is answered by the session alone", Killer: "TestConformance/Acquire/Idempotent", Edits: []mutate.Edit{{
			File: "../internal/engine/claims.go", In: "decideClaim",
			Old: "r.owner.Token > seen.Token && r.granted == seen.Token:", New: "r.owner.Token > seen.Token:"}}},
		{Name: "A3: a claim of a lock is not found again if it saw another token", Killer: "TestLocks", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "CASE WHEN :from < 0 THEN token ELSE :from END", New: "token + 0 * :from"}}},
		{Name: "R2: a claim that saw no lock does not get one that is free", Killer: "TestLocks", Edits: []mutate.Edit{{
			File: "../internal/engine/locks.go", In: "Backend.lockFree",
			Old: "return b.askShards(ctx, data, shardsClaim, locks, locked)", New: "return nil"}}},
		{Name: "R2: the token of a free lock is compared", Killer: "TestLocks", Edits: []mutate.Edit{{
			File: "../internal/engine/claims.go", In: "decideClaim",
			Old: "case r.owner != seen && !free,", New: "case r.owner != seen && !(free && seen.Token == 0),"}}},
		{Name: "R2: releases are counted, and nothing is removed", Killer: "TestLocks", Edits: []mutate.Edit{{
			File: "../internal/engine/locks.go", In: "Backend.sweepLocks", Old: "data.write(ctx, shardsDelete, b.name, array(names))", New: "err"}}},
		{Name: "R2: a lock goes with its head", Killer: "TestLocks", Edits: []mutate.Edit{
			{File: "../internal/engine/statements.sql", Old: "AND session = '' AND number = 0\n", New: "AND session = ''\n"},
			{File: "../internal/engine/locks.go", In: "removable", Old: " && r.head == (driver.Head{}) {", New: " {"}}},
		{Name: "R2: an observer is not asked whether it saw what was removed", Killer: "TestLocks", Edits: []mutate.Edit{{
			File: "../internal/engine/identity.go", In: "namespace.forgot", Old: "return revision < min(n.trimmed, n.revision)", New: "return false"}}},
		{Name: "R2: nobody notes what was removed", Killer: "TestLocks", Edits: []mutate.Edit{{
			File: "../internal/engine/locks.go", In: "Backend.sweepLocks", Old: "max(ns.trimmed, trimmed))", New: "max(ns.trimmed, 0*trimmed))"}}},
		{Name: "R2: every observer gets the full state after a removal", Killer: "TestLocks", Edits: []mutate.Edit{{
			File: "../internal/engine/identity.go", In: "namespace.forgot",
			Old: "return revision < min(n.trimmed, n.revision)", New: "return n.trimmed > 0 && revision < n.revision"}}},
		{Name: "A4: a refusal spreads to a neighbour", Killer: "TestConformance/Commit/ManyKindsInOneCall", Edits: []mutate.Edit{{
			File: "../internal/engine/commit.go", In: "Backend.commitBatch",
			Old: "\t\t\tif results[i].Err != nil {\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\tbefore :=",
			New: "\t\t\tif results[i].Err != nil {\n\t\t\t\tbreak\n\t\t\t}\n\t\t\tbefore :="}}},
		{Name: "L4: entries of a batch take each other's positions", Killer: "TestConformance/Commit/ManyKindsInOneCall", Edits: []mutate.Edit{{
			File: "../internal/engine/commit.go", In: "inBucket", Old: "\t\tback -= n\n", New: "\t\tback -= 1\n"}}},
		{Name: "I1: a log that was removed is not missed", Killer: "TestStoreChanged/removed-wal", Edits: []mutate.Edit{{
			File: "database.go", In: "database.settle", Old: "[]string{logSuffix, indexSuffix}", New: "[]string{indexSuffix}"}}},
		{Name: "I1: an index that was removed is not missed", Killer: "TestStoreChanged/removed-shm", Edits: []mutate.Edit{{
			File: "database.go", In: "database.settle", Old: "[]string{logSuffix, indexSuffix}", New: "[]string{logSuffix}"}}},
		{Name: "I1: a database is opened without its log", Killer: "TestLogIsRestored", Edits: []mutate.Edit{{
			File: "database.go", In: "openDatabase",
			Old: "if err := checkLog(ctx, path, o.TablePrefix); err != nil {", New: "if err := checkLog(ctx, path, o.TablePrefix); false {"}}},
		{Name: "I1: a lost log is forgotten", Killer: "TestLostLogIsNotForgotten", Edits: []mutate.Edit{{
			File: "transactions.go", In: "transactions.check", Old: "if number >= last {", New: "if number >= last || !accepted {"}}},
		{Name: "I1: nobody notes what was committed", Killer: "TestCopyWithoutLog", Edits: []mutate.Edit{{
			File: "writer.go", In: "writer.commit", Old: "if number > 0 {", New: "if number < 0 {"}}},
		{Name: "I1: the last to close loses it", Killer: "TestLogIsRestoredPastANewConnection", Edits: []mutate.Edit{{
			File: "database.go", In: "database.close", Old: "errs = append(errs, d.writeBack())", New: ""}}},
		{Name: "I1: a log that nobody has any more is awaited", Killer: "TestWrittenBackLogOpens", Edits: []mutate.Edit{{
			File: "files.go", In: "alone", Old: "case busy(err) || ctx.Err() != nil:", New: "case true:"}}},
		{Name: "I1: processes that have a lost log are not seen", Killer: "TestLogIsRestored", Edits: []mutate.Edit{{
			File: "files.go", In: "alone", Old: "locking_mode(exclusive)", New: "locking_mode(normal)"}}},
		{Name: "I1: a process that opens as well is taken for one that has a lost log", Killer: "TestOpeningWaitsForTheOther", Edits: []mutate.Edit{{
			File: "files.go", In: "checkLog", Old: "deadline := time.Now().Add(writeBackTime)", New: "deadline := time.Now()"}}},
		{Name: "I1: no mark is left of a lost log", Killer: "TestLostLogOneByOne", Edits: []mutate.Edit{{
			File: "transactions.go", In: "transactions.mark", Old: "[]byte{byte(which)}", New: "[]byte{byte(which) * 0}"}}},
		{Name: "I1: a new connection makes a lost log anew", Killer: "TestLogIsNotMadeAnew", Edits: []mutate.Edit{{
			File: "settings.go", In: "asserted.Connect", Old: "if a.intact != nil {", New: "if false {"}}},
		{Name: "I1: Close does not say that a log could not be written back", Killer: "TestCloseSaysThatTheDiskIsFull", Edits: []mutate.Edit{{
			File: "database.go", In: "database.writeBack",
			Old: "return fmt.Errorf(\"%w; it could not be written back: %w\", lost, err)", New: "return nil"}}},
		{Name: "I1: Close does not say how much could not be written back", Killer: "TestCloseSaysWhatIsLost", Edits: []mutate.Edit{{
			File: "database.go", In: "database.writeBack",
			Old: "case time.Now().After(deadline):\n", New: "case time.Now().After(deadline):\n\t\t\treturn nil\n"}}},
		{Name: "I1: transactions of BeginTx are not counted", Killer: "TestUserTransactionsAreCounted", Edits: []mutate.Edit{{
			File: "transactions.go", In: "counted.BeginTx", Old: "return countedTx{tx, c}, nil", New: "return tx, nil"}}},
		{Name: "I1: a commit that failed is counted", Killer: "TestFailedCommitIsNotCounted", Edits: []mutate.Edit{{
			File: "transactions.go", In: "countedTx.Commit",
			Old: "\tif err := t.Tx.Commit(); err != nil {", New: "\tt.conn.count.committed(number)\n\tif err := t.Tx.Commit(); err != nil {"}}},
		{Name: "I1: a late number overwrites a greater one", Killer: "TestLateNumbers", Edits: []mutate.Edit{{
			File: "transactions.go", In: "transactions.committed", Old: "number%numberSlots*numberBytes", New: "number%1*numberBytes"}}},
		{Name: "I1: two sets of tables in a file share a count", Killer: "TestTablePrefixes", Edits: []mutate.Edit{{
			File: "transactions.go", In: "transactionsFile",
			Old: "path + \"-\" + prefix + \"transactions\"", New: "path + \"-\" + prefix[:0] + \"transactions\""}}},
		{Name: "E4: heartbeats are flushed", Killer: "TestSlowDisk", Edits: []mutate.Edit{{
			File: "store.go", In: "openStore",
			Old: "{s.members, unflushed, nil, &s.members.beats}", New: "{s.members, flushed, nil, &s.members.beats}"}}},
		{Name: "D1: rows are read however wide they are", Killer: "TestWideRows", Edits: []mutate.Edit{{
			File: "../internal/engine/statements.go", In: "bound",
			Old: "\t\treturn fmt.Sprintf(\"CASE WHEN octet_length", New: "\t\tif true {\n\t\t\treturn m[1]\n\t\t}\n\t\treturn fmt.Sprintf(\"CASE WHEN octet_length"}}},
		{Name: "D1: damaged records are told whenever they are met", Killer: "TestGarbage", Edits: []mutate.Edit{{
			File: "../../../core/damage.go", In: "Elector.noteDamage",
			Old: "if k := s.known[d.Key]; k != nil {", New: "if k := s.known[d.Key]; k != nil && false {"}}},
		{Name: "D1: a token that was never granted is believed", Killer: "TestConformance/Errors/ImpossibleRecordInStore", Edits: []mutate.Edit{{
			File: "../internal/engine/damaged.go", In: "checkOwner", Old: "case int64(o.Token) > floor || ", New: "case "}}},
		{Name: "D1: any head is believed", Killer: "TestConformance/Errors/DamagedHead", Edits: []mutate.Edit{{
			File: "../internal/engine/rows.go", In: "record.judge", Old: "\t\tr.why = driver.CheckHead(r.head)\n", New: ""}}},
		{Name: "D1: the schema takes any metadata", Killer: "TestBounds", Edits: []mutate.Edit{{
			File: "schema/members/0001_roster.sql", Old: " AND length(CAST(meta AS BLOB)) <= 16384", New: ""}}},
		{Name: "I1: a damaged database is read again", Killer: "TestCutLog", Edits: []mutate.Edit{{
			File: "errors.go", In: "readFailed", Old: "\tif !damaged(err) ||", New: "\tif !false ||"}}},
	})
}
