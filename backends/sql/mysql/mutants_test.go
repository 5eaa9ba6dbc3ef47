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
	if !*mutantsFlag {
		t.Skip("needs -mutants: it builds the package once for each mutant")
	}
	for _, m := range []struct {
		name, killer string
		edit         mutate.Edit
	}{
		{"F1: the fence is read without a lock, as by a sub-select under READ COMMITTED", "TestConformance/Commit/RacesTakeover", mutate.Edit{
			File: "statements.sql",
			Old:  "-- name: shards_hold\nSELECT s.shard, s.session, s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token\nFROM JSON_TABLE(:shards, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j\nSTRAIGHT_JOIN tenure_shards AS s FORCE INDEX (PRIMARY) ON s.namespace = :namespace AND s.shard = j.name FOR UPDATE;",
			New:  "-- name: shards_hold\nSELECT s.shard, s.session, s.token, s.granted_from, s.number, s.seq, s.oldest, s.nonce, s.commit_token\nFROM JSON_TABLE(:shards, '$[*]' COLUMNS (name VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS j\nSTRAIGHT_JOIN tenure_shards AS s FORCE INDEX (PRIMARY) ON s.namespace = :namespace AND s.shard = j.name;"}},
		{"I2: the server_id is not compared with the grant", "TestServerID", mutate.Edit{
			File: "../incarnation.go", Old: `return i.current != "" && i.recorded != i.current`, New: "return false"}},
	} {
		t.Run(m.name, func(t *testing.T) {
			if out, failed := mutate.Run(t, mutate.Build(t, m.edit), m.killer, 2*time.Minute); !failed {
				t.Errorf("survived %s:\n%s", m.killer, out)
			}
		})
	}
}
