package redis

import (
	"flag"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/mutate"
)

var mutantsFlag = flag.Bool("mutants", false, "take each rule out of the backend, and see a test fail")

// TestMutants takes one rule out of the backend at a time, and expects the test that
// is named to fail.
func TestMutants(t *testing.T) {
	const apply = "scripts/apply.lua"
	mutate.All(t, *mutantsFlag, 2*time.Minute, false, []mutate.Mutant{
		{Name: "A1: the script compares no revision", Killer: "TestFlushed", Edits: []mutate.Edit{{
			File: apply, Old: "string.sub(read[i], 1, #want + 1) == want .. ' '", New: "true"}}},
		{Name: "A2: a revision is given twice", Killer: "TestFlushed", Edits: []mutate.Edit{{
			File: apply, Old: "redis.call('HSET', records, 'rev', rev)", New: ""}}},
		{Name: "A2: large revisions are rounded", Killer: "TestLargeRevisions", Edits: []mutate.Edit{{
			File: apply, Old: "string.format('%.0f', tonumber(rev) + applied)",
			New: "tostring(tonumber(rev) + applied)"}}},
		{Name: "A2: a namespace begins with the same revision again", Killer: "TestFlushed", Edits: []mutate.Edit{{
			File: "server.go", Old: "1 + mathrand.Int64N(1<<40)", New: "1 + 0*mathrand.Int64N(1<<40)"}}},
		{Name: "I2: writes are made under any history", Killer: "TestPromotedBehind", Edits: []mutate.Edit{{
			File: apply, Old: "'master_replid:' .. ARGV[1]", New: "'master_replid:'"}}},
		{Name: "I2: a promoted replica passes for a restart", Killer: "TestPromotedBehind", Edits: []mutate.Edit{{
			File: "server.go", Old: `v.info["second_repl_offset"] != "-1"`, New: "false"}}},
		{Name: "I2: a restart that can lose writes goes on", Killer: "TestRestart/AllowLoss-true",
			Edits: []mutate.Edit{{File: "server.go", Old: "!s.replaceable && !promoted && !s.opts.AllowLoss",
				New: "!s.replaceable && !promoted"}}},
		{Name: "I2: another lineage is used", Killer: "TestPromotedBehind", Edits: []mutate.Edit{{
			File: "server.go", Old: `was != "" && was != want.lineage`, New: `was != "" && false`}}},
		{Name: "appendfsync no is accepted", Killer: "TestOpenRefusesLoss", Edits: []mutate.Edit{{
			File: "server.go", Old: `v.settings["appendfsync"] != "always"`, New: `v.settings["appendfsync"] == ""`}}},
		{Name: "a log that is not synchronized while it is rewritten is accepted", Killer: "TestOpenRefusesLoss",
			Edits: []mutate.Edit{{File: "server.go", Old: `v.settings["no-appendfsync-on-rewrite"] != "no"`, New: "false"}}},
		{Name: "I1: a new master without replicas passes for the former one", Killer: "TestPromotedAlone",
			Edits: []mutate.Edit{{File: "errors.go", Old: `|| goredis.HasErrorPrefix(err, "NOREPLICAS")`, New: ""}}},
		{Name: "keys may be evicted", Killer: "TestOpenRefusesLoss", Edits: []mutate.Edit{{
			File: "server.go", Old: `strings.HasPrefix(policy, "allkeys-")`, New: `policy == ""`}}},
		{Name: "replicas are not counted", Killer: "TestReplicas", Edits: []mutate.Edit{{
			File: "store.go", Old: "n < s.opts.Replicas", New: "n < 0"}}},
		{Name: "E1: a lost reply passes for refused", Killer: "TestConformanceNetwork/Errors/LostReplyIsUnknown",
			Edits: []mutate.Edit{{File: "errors.go", Old: "case refused(err):", New: "default:"}}},
		{Name: "E1: an error in the middle of a script passes for refused", Killer: "TestRefused",
			Edits: []mutate.Edit{{File: "errors.go", Old: `|| strings.Contains(text, "script: ")`, New: ""}}},
		{Name: "E4: pings wait for other calls", Killer: "TestHeartbeatsDoNotQueue",
			Edits: []mutate.Edit{{File: "store.go", Old: "keys[0] == s.ping", New: `keys[0] == ""`}}},
		{Name: "O1: a gap of a feed goes unnoticed", Killer: "TestGap", Edits: []mutate.Edit{{
			File: "watch.go", Old: "w.whole && !reached(before, last)", New: `before == "none"`}}},
		{Name: "O1: a feed that ends with a gap is waited for", Killer: "TestGap", Edits: []mutate.Edit{{
			File: "watch.go", Old: "w.whole && told > w.after && len(got.read) == 0", New: "told < 0"}}},
		{Name: "a right that was lost leaves a part of a write", Killer: "TestRightLost", Edits: []mutate.Edit{{
			File: "scripts/apply.lua", Old: "if not redis.acl_check_cmd(unpack(c)) then", New: "if false then"}}},
		{Name: "a missing right is found after the opening", Killer: "TestRights", Edits: []mutate.Edit{{
			File: "scripts/attach.lua", Old: "redis.call('XREAD', 'COUNT', '1', 'STREAMS', KEYS[6], '0')"}}},
	})
}
