package mysql

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// TestMutants removes one rule at a time from the backend, and expects the suite's named case to
// fail.
func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, 2*time.Minute, false, []mutate.Mutant{
		{Name: "E5: a right that is missing may be tried again", Killer: "TestConformance/Errors/RightTakenAway", Edits: []mutate.Edit{{
			File: "errors.go", In: "denied", Old: "1044, 1045, 1142,", New: "1044, 1045,"}}},
		{Name: "F1: the fence is read without a lock, as by a sub-select under READ COMMITTED", Killer: "TestConformance/Commit/RacesTakeover", Edits: []mutate.Edit{{
			File: "statements.sql",
			Old:  "-- name: shards_lock shards_hold\n",
			New:  "-- name: shards_hold\nSELECT s.shard, bounded(s.session), s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token\nFROM JSON_TABLE(:shards, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j\nSTRAIGHT_JOIN tenure_shards AS s FORCE INDEX (PRIMARY) ON s.namespace = :namespace AND s.shard = j.name;\n\n-- name: shards_lock\n"}}},
		{Name: "A4: a locked row blocks a batch", Killer: "TestLockedRow", Edits: []mutate.Edit{{
			File: "statements.sql",
			Old:  "-- name: shards_claim shards_try\n",
			New:  "-- name: shards_try\nSELECT s.shard, bounded(s.session), s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token\nFROM JSON_TABLE(:shards, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j\nSTRAIGHT_JOIN tenure_shards AS s FORCE INDEX (PRIMARY) ON s.namespace = :namespace AND s.shard = j.name FOR UPDATE;\n\n-- name: shards_claim\n"}}},
		{Name: "F1: a locked row is taken for none", Killer: "TestLockedRow", Edits: []mutate.Edit{{
			File: "../internal/engine/commit.go", In: "Backend.commitBatch",
			Old: "if _, is := busy[shard]; is {", New: "if _, is := busy[shard]; is && shard == \"\" {"}}},
		{Name: "A3: a claim of a lock is not found again if it saw another token", Killer: "TestLocks", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "CASE WHEN :from < 0 THEN s.token ELSE :from END", New: "s.token + 0 * :from"}}},
		{Name: "R2: a lock goes with its head", Killer: "TestLocks", Edits: []mutate.Edit{
			{File: "statements.sql", Old: "AND session = '' AND number = 0\n", New: "AND session = ''\n"},
			{File: "../internal/engine/locks.go", In: "removable", Old: " && r.head == (driver.Head{}) {", New: " {"}}},
		{Name: "I2: the server_id is not compared with the grant", Killer: "TestServerID", Edits: []mutate.Edit{{
			File: "../internal/engine/incarnation.go", In: "incarnations.forked",
			Old: `return i.current != "" && i.recorded != i.current`, New: "return false"}}},
		{Name: "I2: two failovers from one state raise tokens alike", Killer: "TestPromotions", Edits: []mutate.Edit{{
			File: "../internal/engine/incarnation.go", In: "Backend.raised", Old: "return now, nil", New: "return ns.floor() + 1<<40, nil"}}},
		{Name: "I2: a clock that is behind is believed", Killer: "TestClockBehind", Edits: []mutate.Edit{{
			File: "../internal/engine/incarnation.go", In: "Backend.raised", Old: "now <= known ||", New: ""}}},
		{Name: "I2: an operator's floor ends no halt", Killer: "TestClockBehind", Edits: []mutate.Edit{{
			File: "../internal/engine/identity.go", In: "Backend.RaiseFloor", Old: "if err == nil && forked {", New: "if err == nil && false {"}}},
		{Name: "F1: FenceTx asks for no incarnation", Killer: "TestConformance/Fence/ForkedStore", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "AND n.incarnation = CAST(@@global.server_id AS CHAR CHARACTER SET ascii) AND n.base", New: "AND n.base"}}},
		{Name: "F1: FenceTx asks for no session", Killer: "TestConformance/Fence/AcceptedWhileCurrent", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "s.session = :session AND s.token = :token\n  AND EXISTS",
			New: "s.session >= left(:session, 0) AND s.token = :token\n  AND EXISTS"}}},
		{Name: "F1: FenceTx asks for no token", Killer: "TestConformance/Fence/RefusedAfterNewLease", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "s.session = :session AND s.token = :token\n  AND EXISTS",
			New: "s.session = :session AND s.token >= 0 * :token\n  AND EXISTS"}}},
		{Name: "F1: FenceTx does not compare the floor", Killer: "TestConformance/Fence/RestoreOlderStore", Edits: []mutate.Edit{{
			File: "statements.sql", Old: "n.base + n.revision >= :seen)\nLOCK", New: "n.base >= 0 * :seen)\nLOCK"}}},
		{Name: "F1: FenceTx locks nothing", Killer: "TestConformance/Fence/BegunBeforeTakeover", Edits: []mutate.Edit{{
			File: "statements.sql", Old: ">= :seen)\nLOCK IN SHARE MODE;", New: ">= :seen);"}}},
		{Name: "A4: a claim on Galera is denied because of an older row", Killer: "TestOlderRecord", Edits: []mutate.Edit{{
			File: "../internal/engine/claims.go", In: "decideClaim", Old: "older: older}", New: "older: older && false}"}}},
		{Name: "F1: a fence on Galera is a lock of one node", Killer: "TestStaleWrites", Edits: []mutate.Edit{{
			File: "../internal/engine/statements.go", In: "Statements.has", Old: "(s.certified || of != fenceChange && of != membersChange)",
			New: "of != fenceChange && (s.certified || of != membersChange)"}}},
		{Name: "A2: a grant on Galera is held by a lock of one node", Killer: "TestStaleWrites", Edits: []mutate.Edit{{
			File: "../internal/engine/statements.go", In: "Statements.has", Old: "(s.certified || of != fenceChange && of != membersChange)",
			New: "of != membersChange && (s.certified || of != fenceChange)"}}},
		{Name: "I2: each node of Galera has a history of its own", Killer: "TestStaleWrites", Edits: []mutate.Edit{{
			File: "store.go", In: "openStore", Old: "stmts.Certify(serverID, clusterID)", New: "stmts.Certify(serverID, serverID)"}}},
		{Name: "O1: a read is handed out before it is durable", Killer: "TestReadIsDurable", Edits: []mutate.Edit{{
			File: "../internal/engine/durable.go", In: "Backend.showsEarly", Old: "return b.stmts.has(barrierWrite)", New: "return false"}}},
		{Name: "I2: a read shows what no replica has", Killer: "TestConformanceIsolated/AFTER_COMMIT/Chaos/IsolatedReads", Edits: []mutate.Edit{{
			File: "../internal/engine/durable.go", In: "Backend.showsEarly", Old: "return b.stmts.has(barrierWrite)", New: "return false"}}},
		{Name: "O1: a barrier after every read", Killer: "TestBarriers", Edits: []mutate.Edit{{
			File: "../internal/engine/durable.go", In: "Backend.settle", Old: "if !wrote && (s.floor", New: "if !wrote || (s.floor"}}},
		{Name: "E4: heartbeats wait for statistics that are written to disk", Killer: "TestStatistics", Edits: []mutate.Edit{{
			File: "schema/0001_tables.sql", Old: "session) <= 64 AND version > 0)\n) ENGINE = InnoDB ROW_FORMAT = DYNAMIC STATS_PERSISTENT = 0;",
			New: "session) <= 64 AND version > 0)\n) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;"}}},
		{Name: "M2: the version of a heartbeat that was taken back comes again", Killer: "TestHeartbeatTakenBack", Edits: []mutate.Edit{{
			File: "../internal/engine/beat.go", In: "session.beat", Old: "version = max(version, s.tried.Load()) + 1", New: "version++"}}},
		{Name: "E4: each connection that was lost costs a call", Killer: "TestLostConnection/followedAll", Edits: []mutate.Edit{{
			File: "connections.go", In: "connections.with",
			Old: "if ctx.Err() != nil {\n\t\t\tp.doubt()", New: "if ctx == nil {\n\t\t\tp.doubt()"}}},
		{Name: "E4: all connections of heartbeats that overlapped stay open", Killer: "TestLostConnection/slowedAll", Edits: []mutate.Edit{{
			File: "store.go", In: "openStore", Old: "s.roster.keep = rosterIdle", New: "s.roster.keep = rosterConns"}}},
	})
}
