package postgres

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// TestMutants removes one rule at a time from the backend, and expects the named case of the suite
// to fail.
func TestMutants(t *testing.T) {
	const (
		forked      = "TestConformanceSimpleProtocol/Chaos/ForkedStore"
		forkedAgain = "TestConformanceSimpleProtocol/Chaos/ForkedStoreAgain"
		fences      = "TestConformanceSimpleProtocol/Fence/"
	)
	const races = "TestConformanceSimpleProtocol/Commit/RacesTakeover"
	mutate.All(t, mutantsFlag, 2*time.Minute, false, []mutate.Mutant{
		{Name: "E5: a right that is missing may be tried again", Killer: "TestConformance/Errors/RightTakenAway", Edits: []mutate.Edit{{
			File: "errors.go", In: "denied", Old: `e.Code == "42501"`, New: `e.Code == "42502"`}}},
		{Name: "F1: the fence of an append is a sub-select under READ COMMITTED", Killer: races, Edits: []mutate.Edit{{
			File: "statements.sql",
			Old:  "WHERE namespace = :namespace AND shard = :shard AND session = :session AND token = :token::bigint\n    AND number = :number::bigint - 1 AND",
			New: "WHERE namespace = :namespace AND shard = :shard AND EXISTS (SELECT FROM tenure_shards AS r WHERE r.namespace = :namespace AND r.shard = :shard\n" +
				"    AND r.session = :session AND r.token = :token::bigint AND r.number = :number::bigint - 1) AND"}}},
		{Name: "F1: the fences of a batch of appends are", Killer: "TestBatchAfterWait", Edits: []mutate.Edit{
			{File: "statements.sql",
				Old: "WHERE s.session = excluded.session AND s.token = excluded.token AND s.number = excluded.number - 1\n    AND (",
				New: "WHERE ("},
			{File: "statements.sql", Old: "number, nonce, count)\n  ON CONFLICT", New: "number, nonce, count)\n" +
				"  WHERE EXISTS (SELECT FROM tenure_shards AS r WHERE r.namespace = :namespace AND r.shard = u.shard\n" +
				"    AND r.session = u.session AND r.token = u.token AND r.number = u.number - 1)\n  ON CONFLICT"}}},
		{Name: "F1: an append makes the row of its shard", Killer: "TestAppendWithoutRow", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "CASE WHEN h.revision > 0 THEN t.position - u.back END", New: "t.position - u.back"}}},
		{Name: "A4: appends wait for a locked row as long as it takes", Killer: "TestLockedRow/UPDATE", Edits: []mutate.Edit{{
			File: "../internal/engine/append.go", Old: "lockPatience = 10 * time.Millisecond", New: "lockPatience = 0 * time.Millisecond"}}},
		{Name: "F1: the fence is read without a lock", Killer: races, Edits: []mutate.Edit{
			{File: "statements.sql", Old: "r.shard = j FOR NO KEY UPDATE) AS s;", New: "r.shard = j OFFSET 0) AS s;"},
			{File: "statements.sql", Old: "AND (SELECT floor FROM ns) >= :seen::bigint", New: "AND :seen::bigint < 0"}}}, // as every other commit
		{Name: "A4: a locked row blocks a batch", Killer: "TestLockedRow/UPDATE", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "r.shard = j FOR NO KEY UPDATE SKIP LOCKED) AS s;", New: "r.shard = j FOR NO KEY UPDATE) AS s;"}}},
		{Name: "F1: a locked row is taken for none", Killer: "TestLockedRow/SHARE", Edits: []mutate.Edit{{
			File: "../internal/engine/commit.go", In: "Backend.commitBatch",
			Old: "if _, is := busy[shard]; is {", New: "if _, is := busy[shard]; is && shard == \"\" {"}}},
		{Name: "F1: the fences of a batch are read without a lock", Killer: "TestLockedRow/UPDATE", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "r.shard = j FOR NO KEY UPDATE SKIP LOCKED) AS s;", New: "r.shard = j OFFSET 0) AS s;"}}},
		{Name: "A3: a claim of a lock is not found again if it saw another token", Killer: "TestLocks", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "CASE WHEN :from::bigint < 0 THEN token ELSE :from::bigint END", New: "token + 0 * :from::bigint"}}},
		{Name: "R2: the role removes a shard with its head", Killer: "TestRunTimeRole", Edits: []mutate.Edit{{
			File: "schema/0001_tables.sql", Old: "OLD.number <> 0 OR NOT", New: "NOT"}}},
		{Name: "R2: the role removes a shard that is no lock", Killer: "TestRunTimeRole", Edits: []mutate.Edit{{
			File: "schema/0001_tables.sql", Old: " OR NOT starts_with(OLD.shard, '_lock.'))", New: ")"}}},
		{Name: "M1: a claim does not hold its own session's row", Killer: "TestEvictedWhileGranted/claimer", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "WHERE namespace = :namespace AND session = :session FOR KEY SHARE;",
			New: "WHERE namespace = :namespace AND session = :session;"}}},
		{Name: "M1: a transfer does not either", Killer: "TestEvictedWhileGranted/giver", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "WHERE namespace = :namespace AND session = :session FOR KEY SHARE;",
			New: "WHERE namespace = :namespace AND session = :session;"}}},
		{Name: "A5: a transfer does not hold its target's row", Killer: "TestEvictedWhileGranted/target", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "r.session = j FOR KEY SHARE) AS s;", New: "r.session = j OFFSET 0) AS s;"}}},
		{Name: "F1: a release does not wait for FenceTx", Killer: "TestOwnerChangesWaitForFences/release", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "r.shard = j FOR UPDATE) AS s;", New: "r.shard = j FOR NO KEY UPDATE) AS s;"}}},
		{Name: "F1: a claim does not either", Killer: "TestOwnerChangesWaitForFences/claim", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "FOR UPDATE SKIP LOCKED) AS s;", New: "FOR NO KEY UPDATE SKIP LOCKED) AS s;"}}},
		{Name: "E4: heartbeats that overlap wait for a flush each", Killer: "TestSlowDisk", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "session = :session FOR NO KEY UPDATE SKIP LOCKED;\n\n-- name: beat_lock",
			New: "session = :session FOR NO KEY UPDATE;\n\n-- name: beat_lock"}}},
		{Name: "E4: a heartbeat waits for one that hangs", Killer: "TestBeats", Edits: []mutate.Edit{{
			File: "../internal/engine/beat.go", Old: "beatCalls = 6", New: "beatCalls = 1"}}},
		{Name: "M1: a heartbeat takes the version that it finds for its own", Killer: "TestBeats", Edits: []mutate.Edit{{
			File: "../internal/engine/beat.go", In: "session.Beat", Old: "for s.acked.Load() <= since {", New: "for s.acked.Load() < since {"}}},
		{Name: "E4: pings wait for the connections of other reads", Killer: "TestPings", Edits: []mutate.Edit{{
			File: "../internal/engine/items.go", In: "Backend.Get", Old: "if shard == driver.PingShard {", New: "if shard == \"\" {"}}},
		{Name: "I2: the incarnation is not compared", Killer: forked, Edits: []mutate.Edit{{
			File: "../internal/engine/incarnation.go", In: "incarnations.forked",
			Old: `return i.current != "" && i.recorded != i.current`, New: "return false"}}},
		{Name: "I2: it is compared before a grant, and not in the same step", Killer: forkedAgain, Edits: []mutate.Edit{
			{File: "statements.sql", Old: "bounded(incarnation), {incarnation} FROM tenure_namespaces WHERE namespace = :namespace FOR NO KEY",
				New: "bounded(incarnation), bounded(incarnation) FROM tenure_namespaces WHERE namespace = :namespace FOR NO KEY"},
			{File: "statements.sql", Old: "''), {incarnation}\nFROM tenure_rosters WHERE namespace = :namespace;",
				New: "''), ''\nFROM tenure_rosters WHERE namespace = :namespace;"},
			{File: "../internal/engine/incarnation.go", In: "Backend.adoptAt",
				Old: "if !found || locked != ns {", New: "if !found || locked.id != ns.id {"}}},
		{Name: "I2: the base is not raised", Killer: forked, Edits: []mutate.Edit{{
			File: "../internal/engine/incarnation.go", In: "Backend.adoptAt", Old: "next.base = to - next.revision", New: "next.base += 0 * to"}}},
		{Name: "I2: two failovers from one state raise it alike", Killer: forked + "Oldest", Edits: []mutate.Edit{
			{File: "../internal/engine/incarnation.go", In: "Backend.raised", Old: "return now, nil", New: "return ns.floor() + 1<<40, nil"}}},
		{Name: "F1: FenceTx asks for no incarnation", Killer: fences + "ForkedStore", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "AND {incarnation} IN (n.incarnation, '') AND n.base", New: "AND n.base"}}},
		{Name: "F1: FenceTx asks for no session", Killer: fences + "AcceptedWhileCurrent", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "s.session = :session AND s.token = :token::bigint\n  AND EXISTS",
			New: "s.session >= left(:session, 0) AND s.token = :token::bigint\n  AND EXISTS"}}},
		{Name: "F1: FenceTx asks for no token", Killer: fences + "RefusedAfterNewLease", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "s.session = :session AND s.token = :token::bigint\n  AND EXISTS",
			New: "s.session = :session AND s.token >= 0 * :token::bigint\n  AND EXISTS"}}},
		{Name: "F1: FenceTx does not compare the floor", Killer: fences + "RestoreOlderStore", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "n.base + n.revision >= :seen::bigint)\nFOR", New: "n.base >= 0 * :seen::bigint)\nFOR"}}},
		{Name: "F1: FenceTx locks nothing", Killer: fences + "BegunBeforeTakeover", Edits: []mutate.Edit{{
			File: "statements.sql", Old: ":seen::bigint)\nFOR KEY SHARE OF s;", New: ":seen::bigint);"}}},
		{Name: "E4: the host that gave the last connection is not asked first", Killer: "TestSilentHostIsLeft", Edits: []mutate.Edit{{
			File: "hosts.go", In: "hosts.connecting", Old: "\th.first(c)\n", New: ""}}},
		{Name: "E4: a host that is slow for all has no more time", Killer: "TestPatience", Edits: []mutate.Edit{{
			File: "hosts.go", In: "hosts.connecting", Old: "\th.tried++\n", New: ""}}},
		{Name: "I2: a read shows what no standby has", Killer: "TestConformanceIsolated/Chaos/IsolatedReads", Edits: []mutate.Edit{{
			File: "waiting.go", In: "waiting.step", Old: "w.forStandbys.Store(waits)", New: "w.forStandbys.Store(waits && false)"}}},
		{Name: "I2: a commit whose wait for the standby was cancelled counts", Killer: "TestWaitCancelled/direct", Edits: []mutate.Edit{{
			File: "waiting.go", In: "noticed", Old: "if n.Code == \"01000\" &&", New: "if n.Code == \"\" &&"}}},
		{Name: "I2: records keep their tokens", Killer: forked, Edits: []mutate.Edit{{
			File: "../internal/engine/incarnation.go", In: "Backend.liftRecords",
			Old: "err := data.write(ctx, shardsLift, b.name, to.floor(), to.revision); err != nil", New: "to.id == b.name"}}},
		{Name: "I2: an append does not ask", Killer: forked + "Commit", Edits: []mutate.Edit{{
			File: "statements.sql", Old: " AND {incarnation} IN (incarnation, '')\n", New: "\n"}}},
		{Name: "I2: heartbeats step back", Killer: forked, Edits: []mutate.Edit{{
			File: "../internal/engine/incarnation.go", In: "Backend.liftRecords",
			Old: "return roster.write(ctx, beatsLift, b.name, by)", New: "return nil"}}},
		{Name: "I2: the roster steps back", Killer: forked, Edits: []mutate.Edit{{
			File: "../internal/engine/incarnation.go", In: "Backend.liftRecords",
			Old: "rosterRaise, b.name, revision+by)", New: "rosterRaise, b.name, revision+0*by)"}}},
		{Name: "I1: another identity goes unnoticed", Killer: "TestIdentityTampered/replaced", Edits: []mutate.Edit{{
			File: "../internal/engine/identity.go", In: "Backend.compareData",
			Old: "	case ns.id != b.id:\n		return storeChanged(\"namespace %q has identity %.64q and had %.64q\", b.name, ns.id, b.id)\n", New: ""}}},
		{Name: "O3: hints without a change count like any other", Killer: "TestNotifyFlood", Edits: []mutate.Edit{{
			File: "../internal/engine/pace.go", In: "reader.wait", Old: "*pause = min(2*last, r.fast)", New: "*pause = last"}}},
		{Name: "O2: a connection that went deaf is not noticed", Killer: "TestDeaf", Edits: []mutate.Edit{{
			File: "../internal/dialect/hints.go", In: "Hints.prove",
			Old: "if !h.proven(ctx) {", New: "if !h.proven(ctx) && ctx.Err() != nil {"}}},
		{Name: "O2: nobody looks for what no notification told of", Killer: "TestDeaf", Edits: []mutate.Edit{{
			File: "../internal/engine/pace.go", In: "pace.net", Old: "return p.between(ttl * 2 / 5)", New: "return time.Hour"}}},
		{Name: "A2: the role may lower a token", Killer: "TestRunTimeRole", Edits: []mutate.Edit{{
			File: "schema/0001_tables.sql", Old: "WHEN (NEW.token < OLD.token)", New: "WHEN (NEW.token < 0)"}}},
		{Name: "A2: the role may lower a revision where it raises the base", Killer: "TestRunTimeRole", Edits: []mutate.Edit{{
			File: "schema/0001_tables.sql", Old: "NEW.base < OLD.base OR NEW.revision < OLD.revision", New: "NEW.base + NEW.revision < OLD.base + OLD.revision"}}},
		{Name: "E4: a poll waits on a connection that was lost", Killer: "TestLostConnection/followedAll", Edits: []mutate.Edit{{
			File: "../internal/engine/pace.go", In: "reader.poll", Old: "context.WithTimeout(ctx, patience)", New: "context.WithTimeout(ctx, time.Hour)"}}},
		{Name: "E4: a pool waits for connections that were lost", Killer: "TestLostConnection/followedAll", Edits: []mutate.Edit{{
			File: "store.go", In: "hangUp", Old: "_ = conn.PgConn().Conn().Close()", New: "_ = conn.PgConn().Conn()"}}},
		{Name: "E4: all connections of heartbeats that overlapped stay open", Killer: "TestLostConnection/slowedAll", Edits: []mutate.Edit{{
			File: "store.go", In: "store.transaction",
			Old: "pool.Stat().IdleConns() >= rosterIdle", New: "pool.Stat().IdleConns() >= rosterConns"}}},
	})
}
