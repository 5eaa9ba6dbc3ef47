package postgres

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
	const (
		forked      = "TestConformanceSimpleProtocol/Chaos/ForkedStore"
		forkedAgain = "TestConformanceSimpleProtocol/Chaos/ForkedStoreAgain"
	)
	const races = "TestConformanceSimpleProtocol/Commit/RacesTakeover"
	for _, m := range []struct {
		name, killer string
		edits        []mutate.Edit
	}{
		{"F1: the fence of an append is a sub-select under READ COMMITTED", races, []mutate.Edit{{
			File: "statements.sql",
			Old:  "WHERE namespace = :namespace AND shard = :shard AND session = :session AND token = :token::bigint\n    AND number = :number::bigint - 1 AND",
			New: "WHERE namespace = :namespace AND shard = :shard AND EXISTS (SELECT FROM tenure_shards AS r WHERE r.namespace = :namespace AND r.shard = :shard\n" +
				"    AND r.session = :session AND r.token = :token::bigint AND r.number = :number::bigint - 1) AND"}}},
		{"F1: the fence is read without a lock", races, []mutate.Edit{
			{File: "statements.sql", Old: "r.shard = j FOR NO KEY UPDATE) AS s;", New: "r.shard = j OFFSET 0) AS s;"},
			{File: "statements.sql", Old: "AND (SELECT floor FROM ns) >= :seen::bigint", New: "AND :seen::bigint < 0"}}}, // as every other commit
		{"M1: a claim does not hold its own session's row", "TestEvictedWhileGranted/claimer", []mutate.Edit{{
			File: "statements.sql", Old: "WHERE namespace = :namespace AND session = :session FOR KEY SHARE;",
			New: "WHERE namespace = :namespace AND session = :session;"}}},
		{"M1: a transfer does not either", "TestEvictedWhileGranted/giver", []mutate.Edit{{
			File: "statements.sql", Old: "WHERE namespace = :namespace AND session = :session FOR KEY SHARE;",
			New: "WHERE namespace = :namespace AND session = :session;"}}},
		{"A5: a transfer does not hold its target's row", "TestEvictedWhileGranted/target", []mutate.Edit{{
			File: "statements.sql", Old: "r.session = j FOR KEY SHARE) AS s;", New: "r.session = j OFFSET 0) AS s;"}}},
		{"F1: a release does not wait for FenceTx", "TestOwnerChangesWaitForFences/release", []mutate.Edit{{
			File: "statements.sql", Old: "r.shard = j FOR UPDATE) AS s;", New: "r.shard = j FOR NO KEY UPDATE) AS s;"}}},
		{"F1: a claim does not either", "TestOwnerChangesWaitForFences/claim", []mutate.Edit{{
			File: "statements.sql", Old: "FOR UPDATE SKIP LOCKED) AS s;", New: "FOR NO KEY UPDATE SKIP LOCKED) AS s;"}}},
		{"I2: the incarnation is not compared", forked, []mutate.Edit{{
			File: "../incarnation.go", Old: `return i.current != "" && i.recorded != i.current`, New: "return false"}}},
		{"I2: it is compared before a grant, and not in the same step", forkedAgain, []mutate.Edit{
			{File: "statements.sql", Old: "incarnation, {incarnation} FROM tenure_namespaces WHERE namespace = :namespace FOR NO KEY",
				New: "incarnation, incarnation FROM tenure_namespaces WHERE namespace = :namespace FOR NO KEY"},
			{File: "statements.sql", Old: "''), {incarnation}\nFROM tenure_rosters WHERE namespace = :namespace;",
				New: "''), ''\nFROM tenure_rosters WHERE namespace = :namespace;"},
			{File: "../incarnation.go", Old: "if !found || locked != ns {", New: "if !found || locked.id != ns.id {"}}},
		{"I2: the base is not raised", forked, []mutate.Edit{{
			File: "../incarnation.go", Old: "next.base, next.revision = ns.base+by, ns.revision+1", New: "next.revision = ns.revision + 1"}}},
		{"I2: two failovers from one state raise it alike", forkedAgain, []mutate.Edit{
			{File: "../incarnation.go", Old: "max(0, b.floor.Load()-ns.base) + leastLift + rand.Int64N(randomLift)", New: "leastLift + 0*rand.Int64N(randomLift)"}}},
		{"I2: records keep their tokens", forked, []mutate.Edit{{
			File: "../incarnation.go", Old: "err := data.write(ctx, shardsLift, b.name, to.floor(), to.revision); err != nil", New: "to.id == b.name"}}},
		{"I2: an append does not ask", forked + "Commit", []mutate.Edit{{
			File: "statements.sql", Old: " AND {incarnation} IN (incarnation, '')\n", New: "\n"}}},
		{"I2: heartbeats step back", forked, []mutate.Edit{{
			File: "../incarnation.go", Old: "return roster.write(ctx, beatsLift, b.name, by)", New: "return nil"}}},
		{"I2: the roster steps back", forked, []mutate.Edit{{
			File: "../incarnation.go", Old: "rosterRaise, b.name, revision+by)", New: "rosterRaise, b.name, revision+0*by)"}}},
	} {
		t.Run(m.name, func(t *testing.T) {
			if out, failed := mutate.Run(t, mutate.Build(t, m.edits...), m.killer, 2*time.Minute); !failed {
				t.Errorf("survived %s:\n%s", m.killer, out)
			}
		})
	}
}
