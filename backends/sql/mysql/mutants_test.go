package mysql

import (
	"flag"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/mutate"
)

var mutantsFlag = flag.Bool("mutants", false, "take each rule out of the backend, and see the suite fail")

// TestMutants takes one rule out of the backend at a time, and expects the case of
// the suite that is named to fail.
func TestMutants(t *testing.T) {
	mutate.All(t, *mutantsFlag, 2*time.Minute, false, []mutate.Mutant{
		{Name: "F1: the fence is read without a lock, as by a sub-select under READ COMMITTED", Killer: "TestConformance/Commit/RacesTakeover", Edits: []mutate.Edit{{
			File: "statements.sql",
			Old:  "-- name: shards_hold\nSELECT s.shard, bounded(s.session), s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token\nFROM JSON_TABLE(:shards, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j\nSTRAIGHT_JOIN tenure_shards AS s FORCE INDEX (PRIMARY) ON s.namespace = :namespace AND s.shard = j.name FOR UPDATE;",
			New:  "-- name: shards_hold\nSELECT s.shard, bounded(s.session), s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token\nFROM JSON_TABLE(:shards, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j\nSTRAIGHT_JOIN tenure_shards AS s FORCE INDEX (PRIMARY) ON s.namespace = :namespace AND s.shard = j.name;"}}},
		{Name: "A4: a locked row blocks a batch", Killer: "TestLockedRow", Edits: []mutate.Edit{{
			File: "statements.sql",
			Old:  "-- name: shards_try\nSELECT s.shard, bounded(s.session), s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token\nFROM JSON_TABLE(:shards, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j\nSTRAIGHT_JOIN tenure_shards AS s FORCE INDEX (PRIMARY) ON s.namespace = :namespace AND s.shard = j.name FOR UPDATE SKIP LOCKED;",
			New:  "-- name: shards_try\nSELECT s.shard, bounded(s.session), s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token\nFROM JSON_TABLE(:shards, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j\nSTRAIGHT_JOIN tenure_shards AS s FORCE INDEX (PRIMARY) ON s.namespace = :namespace AND s.shard = j.name FOR UPDATE;"}}},
		{Name: "F1: a locked row is taken for none", Killer: "TestLockedRow", Edits: []mutate.Edit{{
			File: "../commit.go", Old: "if _, is := busy[shard]; is {", New: "if _, is := busy[shard]; is && shard == \"\" {"}}},
		{Name: "I2: the server_id is not compared with the grant", Killer: "TestServerID", Edits: []mutate.Edit{{
			File: "../incarnation.go", Old: `return i.current != "" && i.recorded != i.current`, New: "return false"}}},
		{Name: "O1: a read is handed out before it is durable", Killer: "TestReadIsDurable", Edits: []mutate.Edit{{
			File: "../durable.go", Old: "return b.stmts.has(barrierWrite)", New: "return false"}}},
		{Name: "O1: a barrier after every read", Killer: "TestBarriers", Edits: []mutate.Edit{{
			File: "../durable.go", Old: "if !wrote && (s.floor", New: "if !wrote || (s.floor"}}},
		{Name: "M2: the version of a heartbeat that was taken back comes again", Killer: "TestHeartbeatTakenBack", Edits: []mutate.Edit{{
			File: "../members.go", Old: "version = max(version, s.tried.Load()) + 1", New: "version++"}}},
	})
}
