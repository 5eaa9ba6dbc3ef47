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
	const locked = "TestMembersAreLockedUntilCommit"
	weak := mutate.Edit{File: "files.go", Old: "\"synchronous(full)\"", New: "\"synchronous(normal)\""}
	unasked := mutate.Edit{File: "settings.go", Old: "if got != s.want {", New: "if false {"}
	mutate.All(t, *mutantsFlag, 2*time.Minute, false, []mutate.Mutant{
		{Name: "E1: transactions are deferred, and fail when they come to write", Killer: "TestWriteWaitsForTheOther", Edits: []mutate.Edit{{
			File: "writer.go", Old: "context.Background(), \"BEGIN IMMEDIATE\")", New: "context.Background(), \"BEGIN\")"}}},
		{Name: "O2: nobody looks for what the file system did not tell of", Killer: "TestUntold", Edits: []mutate.Edit{{
			File: "../pace.go", Old: "return p.between(ttl * 2 / 5)", New: "return time.Hour"}}},
		{Name: "O2: a file of hints that was removed is kept", Killer: "TestHintsFile", Edits: []mutate.Edit{{
			File: "hints.go", Old: "!event.Has(fsnotify.Write) && l.replaced()", New: "event.Has(fsnotify.Remove) && l.replaced()"}}},
		{Name: "synchronous is normal", Killer: "TestLiveSettings", Edits: []mutate.Edit{weak}},
		{Name: "synchronous is normal, and nobody asks", Killer: "TestLiveSettings", Edits: []mutate.Edit{weak, unasked}},
		{Name: "nobody asks what connections use", Killer: "TestSettingsAreAsserted", Edits: []mutate.Edit{unasked}},
		{Name: "A1: the lock of members is let go before the data are committed", Killer: locked, Edits: []mutate.Edit{{
			File: "committer.go",
			Old:  "\t\terr = l.finish(err)\n\t\tif first.end != nil {\n\t\t\tfirst.end()\n\t\t}\n",
			New:  "\t\tif first.end != nil {\n\t\t\tfirst.end()\n\t\t}\n\t\terr = l.finish(err)\n"}}},
		{Name: "A1: members are read without their lock", Killer: locked, Edits: []mutate.Edit{{
			File: "store.go", Old: "\t\theld = true\n\t\treturn s.holder.tx, nil\n", New: "\t\ts.holder.rollback()\n\t\treturn sql.NewTx(s.members.prep, nil), nil\n"}}},
		{Name: "A3: a hand-over is taken for done, whoever granted it", Killer: "TestConformance/Acquire/Idempotent", Edits: []mutate.Edit{{
			File: "../claims.go", Old: "r.owner.Token > h.Fence.Token && r.granted == h.Fence.Token:", New: "r.owner.Token > h.Fence.Token:"}}},
		{Name: "A3: a claim is answered by the session alone", Killer: "TestConformance/Acquire/Idempotent", Edits: []mutate.Edit{{
			File: "../claims.go", Old: "r.owner.Token > seen.Token && r.granted == seen.Token:", New: "r.owner.Token > seen.Token:"}}},
		{Name: "A4: a refusal spreads to a neighbour", Killer: "TestConformance/Commit/ManyKindsInOneCall", Edits: []mutate.Edit{{
			File: "../commit.go", Old: "\t\t\tif results[i].Err != nil {\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\tbefore :=",
			New: "\t\t\tif results[i].Err != nil {\n\t\t\t\tbreak\n\t\t\t}\n\t\t\tbefore :="}}},
		{Name: "L4: entries of a batch take each other's positions", Killer: "TestConformance/Commit/ManyKindsInOneCall", Edits: []mutate.Edit{{
			File: "../commit.go", Old: "\t\tback -= n\n", New: "\t\tback -= 1\n"}}},
		{Name: "I1: a log that was removed is not missed", Killer: "TestStoreChanged/removed-wal", Edits: []mutate.Edit{{
			File: "database.go", Old: "[]string{logSuffix, indexSuffix}", New: "[]string{indexSuffix}"}}},
		{Name: "I1: an index that was removed is not missed", Killer: "TestStoreChanged/removed-shm", Edits: []mutate.Edit{{
			File: "database.go", Old: "[]string{logSuffix, indexSuffix}", New: "[]string{logSuffix}"}}},
		{Name: "I1: a database is opened without its log", Killer: "TestLogIsRestored", Edits: []mutate.Edit{{
			File: "database.go", Old: "if err := checkLog(ctx, path); err != nil {", New: "if err := checkLog(ctx, path); false {"}}},
		{Name: "D1: rows are read however wide they are", Killer: "TestWideRows", Edits: []mutate.Edit{{
			File: "../statements.go", Old: "\t\treturn fmt.Sprintf(\"CASE WHEN octet_length", New: "\t\tif true {\n\t\t\treturn m[1]\n\t\t}\n\t\treturn fmt.Sprintf(\"CASE WHEN octet_length"}}},
		{Name: "D1: damaged records are told whenever they are met", Killer: "TestGarbage", Edits: []mutate.Edit{{
			File: "../../../core/damage.go", Old: "if k := s.known[d.Key]; k != nil {", New: "if k := s.known[d.Key]; k != nil && false {"}}},
		{Name: "D1: a token that was never granted is believed", Killer: "TestConformance/Errors/ImpossibleRecordInStore", Edits: []mutate.Edit{{
			File: "../damaged.go", Old: "case int64(o.Token) > floor || ", New: "case "}}},
		{Name: "D1: any head is believed", Killer: "TestConformance/Errors/DamagedHead", Edits: []mutate.Edit{{
			File: "../rows.go", Old: "\t\tr.why = driver.CheckHead(r.head)\n", New: ""}}},
		{Name: "D1: the schema takes any metadata", Killer: "TestBounds", Edits: []mutate.Edit{{
			File: "schema/members/0002_bounds.sql", Old: " AND length(CAST(meta AS BLOB)) <= 16384", New: ""}}},
		{Name: "I1: a damaged database is read again", Killer: "TestCutLog", Edits: []mutate.Edit{{
			File: "errors.go", Old: "\tif !damaged(err) ||", New: "\tif !false ||"}}},
	})
}
