package sqlite

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
	const locked = "TestMembersAreLockedUntilCommit"
	weak := mutate.Edit{File: "files.go", Old: "\"synchronous(full)\"", New: "\"synchronous(normal)\""}
	unasked := mutate.Edit{File: "settings.go", Old: "if got != s.want {", New: "if false {"}
	for _, m := range []struct {
		name, killer string
		edits        []mutate.Edit
	}{
		{"E1: transactions are deferred, and fail when they come to write", "TestWriteWaitsForTheOther", []mutate.Edit{{
			File: "writer.go", Old: "context.Background(), \"BEGIN IMMEDIATE\")", New: "context.Background(), \"BEGIN\")"}}},
		{"synchronous is normal", "TestLiveSettings", []mutate.Edit{weak}},
		{"synchronous is normal, and nobody asks", "TestLiveSettings", []mutate.Edit{weak, unasked}},
		{"nobody asks what connections use", "TestSettingsAreAsserted", []mutate.Edit{unasked}},
		{"A1: the lock of members is let go before the data are committed", locked, []mutate.Edit{{
			File: "lane.go",
			Old:  "\t\terr = l.finish(err)\n\t\tif first.end != nil {\n\t\t\tfirst.end()\n\t\t}\n",
			New:  "\t\tif first.end != nil {\n\t\t\tfirst.end()\n\t\t}\n\t\terr = l.finish(err)\n"}}},
		{"A1: members are read without their lock", locked, []mutate.Edit{{
			File: "store.go", Old: "\t\theld = true\n\t\treturn s.holder.tx, nil\n", New: "\t\ts.holder.rollback()\n\t\treturn sql.NewTx(s.members.prep, nil), nil\n"}}},
		{"A3: a handover is taken for done, whoever granted it", "TestConformance/Acquire/Idempotent", []mutate.Edit{{
			File: "../claims.go", Old: "r.owner.Token > h.Fence.Token && r.granted == h.Fence.Token:", New: "r.owner.Token > h.Fence.Token:"}}},
		{"A3: a claim is answered by the session alone", "TestConformance/Acquire/Idempotent", []mutate.Edit{{
			File: "../claims.go", Old: "r.owner.Token > seen.Token && r.granted == seen.Token:", New: "r.owner.Token > seen.Token:"}}},
		{"I1: a log that was removed is not missed", "TestStoreChanged/removed-wal", []mutate.Edit{{
			File: "database.go", Old: "[]string{logSuffix, indexSuffix}", New: "[]string{indexSuffix}"}}},
		{"I1: an index that was removed is not missed", "TestStoreChanged/removed-shm", []mutate.Edit{{
			File: "database.go", Old: "[]string{logSuffix, indexSuffix}", New: "[]string{logSuffix}"}}},
		{"I1: a database is opened without its log", "TestLogIsRestored", []mutate.Edit{{
			File: "database.go", Old: "if err := checkLog(ctx, path); err != nil {", New: "if err := checkLog(ctx, path); false {"}}},
		{"I1: a damaged database is read again", "TestCutLog", []mutate.Edit{{
			File: "errors.go", Old: "\tif !damaged(err) ||", New: "\tif !false ||"}}},
	} {
		t.Run(m.name, func(t *testing.T) {
			if out, failed := mutate.Run(t, mutate.Build(t, m.edits...), m.killer, 2*time.Minute); !failed {
				t.Errorf("survived %s:\n%s", m.killer, out)
			}
		})
	}
}
