package redis

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

// TestMutants removes one rule at a time from the backend, and expects the named test to fail.
func TestMutants(t *testing.T) {
	const apply = "scripts/apply.lua"
	mutate.All(t, mutantsFlag, 2*time.Minute, false, []mutate.Mutant{
		{Name: "E5: a right that is missing may be tried again", Killer: "TestConformanceDenied", Edits: []mutate.Edit{{
			File: "errors.go", In: "classified", Old: "if denied(err) || ", New: "if "}}},
		{Name: "A1: the script compares no revision", Killer: "TestFlushed", Edits: []mutate.Edit{{
			File: apply, Old: "string.sub(read[i], 1, #want + 1) == want .. ' '", New: "true"}}},
		{Name: "A2: a revision is given twice", Killer: "TestFlushed", Edits: []mutate.Edit{{
			File: apply, Old: "redis.call('HSET', records, 'rev', rev)", New: ""}}},
		{Name: "A2: large revisions are rounded", Killer: "TestLargeRevisions", Edits: []mutate.Edit{{
			File: apply, Old: "string.format('%.0f', tonumber(rev) + applied)",
			New: "tostring(tonumber(rev) + applied)"}}},
		{Name: "A2: a namespace begins with the same revision again", Killer: "TestFlushed", Edits: []mutate.Edit{{
			File: "server.go", In: "store.attach", Old: "1 + mathrand.Int64N(1<<40)", New: "1 + 0*mathrand.Int64N(1<<40)"}}},
		{Name: "I2: writes are made under any history", Killer: "TestPromotedBehind", Edits: []mutate.Edit{{
			File: apply, Old: "'master_replid:' .. ARGV[1]", New: "'master_replid:'"}}},
		{Name: "I2: a promoted replica passes for a restart", Killer: "TestPromotedBehind", Edits: []mutate.Edit{{
			File: "server.go", In: "store.follows", Old: `v.info["second_repl_offset"] != "-1" || now.received != "0"`, New: "false"}}},
		{Name: "I2: one that was without replicas for long passes for a restart", Killer: "TestBackloglessPromotion",
			Edits: []mutate.Edit{{File: "server.go", In: "store.follows", Old: `|| now.received != "0"`, New: ""}}},
		{Name: "I1: a process goes on where its writes are lost", Killer: "TestLostStops", Edits: []mutate.Edit{{
			File: "server.go", In: "store.goesOn", Old: "seen > int64(shared)", New: "false"}}},
		{Name: "A2: a promoted server gives revisions again", Killer: "TestGoesOn", Edits: []mutate.Edit{{
			File: "server.go", Old: "revisionLift = 1 << 26", New: "revisionLift = 0"}}},
		{Name: "I2: a restart that can lose writes goes on", Killer: "TestRestart/AllowLoss-true",
			Edits: []mutate.Edit{{File: "server.go", In: "store.follows", Old: "!s.replaceable && !promoted && !s.opts.AllowLoss",
				New: "!s.replaceable && !promoted"}}},
		{Name: "I2: another lineage is used", Killer: "TestPromotedBehind", Edits: []mutate.Edit{{
			File: "server.go", In: "store.goesOn", Old: "was.lineage != want.lineage && ok:", New: "false:"}, {
			File: "server.go", In: "store.goesOn", Old: "case was.lineage != want.lineage:", New: "case false:"}}},
		{Name: "I2: two promotions from one state raise tokens alike", Killer: "TestSecondPromotedFromOldest", Edits: []mutate.Edit{{
			File: "../kv/incarnation.go", In: "adopt", Old: "next := driver.Token(now.UnixMicro())",
			New: "next := newest + 1<<40 + driver.Token(0*now.UnixMicro())"}}},
		{Name: "F1: GuardScript asks for no history", Killer: "TestPromotedBehind", Edits: []mutate.Edit{{
			File: "scripts/guard.lua", Old: "'master_replid:' .. ARGV[n - 5]", New: "'master_replid:'"}}},
		{Name: "F1: GuardScript compares no identity", Killer: "TestConformance/Fence/RaisedFloor", Edits: []mutate.Edit{{
			File: "scripts/guard.lua", Old: "begins(now[2], ARGV[n - 2])", New: "now[2]"}}},
		{Name: "F1: GuardScript asks for no later revision", Killer: "TestGuardScript", Edits: []mutate.Edit{{
			File: "scripts/guard.lua", Old: "tonumber(now[1]) >= tonumber(ARGV[n - 4])", New: "true"}}},
		{Name: "F1: GuardScript asks for no token", Killer: "TestConformance/Fence/RefusedAfterNewLease", Edits: []mutate.Edit{{
			File: "scripts/guard.lua", Old: "begins(now[3], ARGV[n])",
			New: "now[3] and string.find(now[3], string.match(ARGV[n], ' .*'), 1, true)"}}},
		{Name: "F1: GuardScript asks for no session", Killer: "TestConformance/Fence/AcceptedWhileCurrent", Edits: []mutate.Edit{{
			File: "scripts/guard.lua", Old: "begins(now[3], ARGV[n])", New: "begins(now[3], string.match(ARGV[n], '^%d+ '))"}}},
		{Name: "appendfsync no is accepted", Killer: "TestOpenRefusesLoss", Edits: []mutate.Edit{{
			File: "server.go", In: "server.check", Old: `fsync != "always"`, New: `fsync == ""`}}},
		{Name: "a log that is not synchronized while it is rewritten is accepted", Killer: "TestOpenRefusesLoss",
			Edits: []mutate.Edit{{File: "server.go", In: "server.check", Old: `skipped != "no"`, New: "false"}}},
		{Name: "I1: a new master without replicas passes for the former one", Killer: "TestPromotedAlone",
			Edits: []mutate.Edit{{File: "errors.go", In: "replaced", Old: `|| goredis.HasErrorPrefix(err, "NOREPLICAS")`, New: ""}}},
		{Name: "keys may be evicted", Killer: "TestOpenRefusesLoss", Edits: []mutate.Edit{{
			File: "server.go", In: "server.check", Old: `strings.HasPrefix(policy, "allkeys-")`, New: `policy == ""`}}},
		{Name: "replicas are not counted", Killer: "TestReplicas", Edits: []mutate.Edit{{
			File: "store.go", In: "store.replicated", Old: "n < s.opts.Replicas", New: "n < 0"}}},
		{Name: "no replica is waited for", Killer: "TestReplicas", Edits: []mutate.Edit{{
			File: "store.go", In: "store.run", Old: "if wait && s.opts.Replicas > 0 {", New: "if wait && s.opts.Replicas < 0 {"}}},
		{Name: "heartbeats wait for no replica", Killer: "TestReplicas", Edits: []mutate.Edit{{
			File: "apply.go", In: "store.Apply", Old: "r.keys, r.args, true,", New: "r.keys, r.args, !b.Heartbeat,"}}},
		{Name: "reads wait for no replica", Killer: "TestReadsWait", Edits: []mutate.Edit{{
			File: "store.go", In: "store.shown", Old: "case int64(rev) > a.history.replicated.Load():", New: "case rev < 0:"}}},
		{Name: "reads wait for what the replicas have", Killer: "TestReadsWait", Edits: []mutate.Edit{{
			File: "store.go", In: "store.shown", Old: "case int64(rev) > a.history.replicated.Load():", New: "case rev > 0:"}}},
		{Name: "min-replicas-max-lag 0 is accepted", Killer: "TestCheckReplaceable", Edits: []mutate.Edit{{
			File: "server.go", In: "server.check", Old: "err != nil || lag <= 0", New: "err != nil || lag < 0"}}},
		{Name: "min-replicas-max-lag above the TTL is accepted", Killer: "TestLagAboveTTL", Edits: []mutate.Edit{{
			File: "redis.go", In: "Backend.Join", Old: "lag >= m.TTL", New: "lag < 0"}}},
		{Name: "I1: records without a name go unnoticed", Killer: "TestNamesLost", Edits: []mutate.Edit{{
			File: apply, Old: "redis.call('HLEN', records) ~= redis.call('ZCARD', names) + 5", New: "false"}}},
		{Name: "E1: a lost reply passes for refused", Killer: "TestConformanceNetwork/Errors/LostReplyIsUnknown",
			Edits: []mutate.Edit{{File: "errors.go", In: "classified", Old: "case refused(err):", New: "default:"}}},
		{Name: "E1: an error in the middle of a script passes for refused", Killer: "TestRefused",
			Edits: []mutate.Edit{{File: "errors.go", In: "refused", Old: `|| strings.Contains(text, "script: ")`, New: ""}}},
		{Name: "E4: a silent Sentinel is waited for", Killer: "TestStartAtSilentSentinel", Edits: []mutate.Edit{{
			File: "clients.go", In: "newClient", Old: "o.Dialer = d.sentinels.impatiently(o.Dialer)", New: ""}}},
		{Name: "E4: a Sentinel that falls silent is waited for", Killer: "TestSentinelFallsSilent/StandsStill", Edits: []mutate.Edit{{
			File: "clients.go", In: "newClient", Old: "o.Dialer = d.sentinels.impatiently(o.Dialer)", New: ""}}},
		{Name: "slow Sentinels are never waited for", Killer: "TestSlowSentinels", Edits: []mutate.Edit{{
			File: "sentinel.go", In: "sentinels.ask", Old: "2*patience)", New: "patience)"}}},
		{Name: "E4: Sentinels that were slow are waited for longer for ever", Killer: "TestSlowSentinels",
			Edits: []mutate.Edit{{File: "sentinel.go", In: "sentinels.ask",
				Old: "time.Since(began) < sentinelPatience", New: "began.IsZero()"}}},
		{Name: "E4: a silent address of a cluster is waited for", Killer: "TestStartAtSilentNode", Edits: []mutate.Edit{{
			File: "seeds.go", In: "dialer.first", Old: "time.After(seedPatience)", New: "nil"}}},
		{Name: "E4: nodes that fall silent are waited for", Killer: "TestNodesFallSilent", Edits: []mutate.Edit{{
			File: "clients.go", In: "dialer.lost", Old: "d.seeds[d.turn], false", New: "d.seeds[d.turn], true"}}},
		{Name: "a node that has lost its cluster is kept to", Killer: "TestNodeOutsideItsCluster", Edits: []mutate.Edit{{
			File: "clients.go", In: "dialer.outside", Old: `!goredis.HasErrorPrefix(err, "CLUSTERDOWN")`, New: "true"}}},
		{Name: "E4: a host that is gone is waited for", Killer: "TestNodeIsGone", Edits: []mutate.Edit{{
			File: "seeds.go", In: "hasty", Old: "connectPatience)\n\t\tdefer", New: "searchTime)\n\t\tdefer"}}},
		{Name: "E4: a Sentinel whose host is gone is waited for", Killer: "TestSentinelFallsSilent/Gone", Edits: []mutate.Edit{{
			File: "clients.go", In: "newClient", Old: "hasty(c), searchTime", New: "c.Dialer, searchTime"}}},
		{Name: "slow nodes of a cluster are given up", Killer: "TestSlowNodes/Each", Edits: []mutate.Edit{{
			File: "seeds.go", In: "ping", Old: "connectPatience)\n\tdefer", New: "seedPatience)\n\tdefer"}}},
		{Name: "a slow node that has the namespace is given up", Killer: "TestSlowNodes/Owner", Edits: []mutate.Edit{{
			File: "seeds.go", In: "dialer.reach", Old: "if known {", New: "if known && ctx == nil {"}}},
		{Name: "E4: pings wait for other calls", Killer: "TestHeartbeatsDoNotQueue",
			Edits: []mutate.Edit{{File: "store.go", In: "store.Get", Old: "keys[0] == s.ping", New: `keys[0] == ""`}}},
		{Name: "O1: a gap of a feed goes unnoticed", Killer: "TestGap", Edits: []mutate.Edit{{
			File: "watch.go", In: "watch.read", Old: "w.whole && !reached(before, last)", New: `before == "none"`}}},
		{Name: "O1: a feed that ends with a gap is waited for", Killer: "TestGap", Edits: []mutate.Edit{{
			File: "watch.go", In: "watch.next", Old: "w.whole && told > w.after && len(read) == 0", New: "told < 0"}}},
		{Name: "O1: a message of another history goes unnoticed", Killer: "TestOtherHistory", Edits: []mutate.Edit{{
			File: "watch.go", In: "watch.read", Old: `w.last != "" && before != w.last`, New: `before == "none"`}}},
		{Name: "O1: a store that went back is waited for", Killer: "TestWentBack", Edits: []mutate.Edit{{
			File: "watch.go", In: "watch.next", Old: "w.sure = len(read) > 0", New: "w.sure = true"}}},
		{Name: "a short TTL does not shorten the patience of watches", Killer: "TestWentBack", Edits: []mutate.Edit{{
			File: "watch.go", In: "store.joined", Old: "old != 0 && old <= wait ||", New: "old != 0 ||"}}},
		{Name: "a right that was lost leaves a part of a write", Killer: "TestRightLost", Edits: []mutate.Edit{{
			File: "scripts/apply.lua", Old: "if not redis.acl_check_cmd(unpack(c)) then", New: "if false then"}}},
		{Name: "a missing right is found after the opening", Killer: "TestRights", Edits: []mutate.Edit{{
			File: "scripts/attach.lua", Old: "redis.call('XREAD', 'COUNT', '1', 'STREAMS', KEYS[6], '0')"}}},
		{Name: "E4: each connection that was lost costs a call", Killer: "TestLostConnection/busyAll", Edits: []mutate.Edit{{
			File: "clients.go", In: "line.Read", Old: "l.d.doubt(l.asked)", New: "_ = l.asked"}}},
		{Name: "E4: a watch waits for records on a connection that was lost", Killer: "TestLostConnection", Edits: []mutate.Edit{{
			File: "watch.go", In: "watch.page", Old: "context.WithTimeout(ctx, noticed)", New: "context.WithTimeout(ctx, time.Hour)"}}},
		{Name: "E4: all connections of heartbeats that overlapped stay open", Killer: "TestLostConnection/slowedAll", Edits: []mutate.Edit{{
			File: "clients.go", In: "newClients", Old: "few.MaxIdleConns = beatsIdle", New: "few.MaxIdleConns = poolSize"}}},
	})
}
