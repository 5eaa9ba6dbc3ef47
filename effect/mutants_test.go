package effect

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

var mutantsFlag = mutate.Flag()

func TestMutants(t *testing.T) {
	mutate.All(t, mutantsFlag, time.Minute, true, []mutate.Mutant{
		{Name: "a resolver that ends its goroutine holds back the effects after it", Killer: "TestResolveGoexit", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.decide", Old: "err := goexit.Call(func() (err error) { d, err = l.o.Resolve(ctx, e); return err })",
			New: "var err error\n\t\td, err = l.o.Resolve(ctx, e)"}}},
		{Name: "an effect begins without its intent", Killer: "TestIntentNotWritten", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.make", Old: "	case err != nil:\n		return outcome{err: fmt.Errorf(\"tenure: effect %q: its",
			New: "	case false:\n		return outcome{err: fmt.Errorf(\"tenure: effect %q: its"}}},
		{Name: "a shard that may be one of a keyspace has its own scope", Killer: "TestScopeOfAKeyspace", Edits: []mutate.Edit{{
			File: "options.go", In: "Options.resolve", Old: "number.ReplaceAllString(shard, \"\"), ", New: ""},
			{File: "options.go", Old: "var number", New: "var _"}}},
		{Name: "a scope may name a shard of a keyspace", Killer: "TestScopeOfAKeyspace", Edits: []mutate.Edit{{
			File: "options.go", In: "Options.resolve", Old: "if keyspace != \"\" && keyspace != shard &&", New: "if false &&"}}},
		{Name: "an effect has another idempotency key in another shard", Killer: "TestTake", Edits: []mutate.Edit{{
			File: "effect.go", In: "decode", Old: "cmp.Or(s.ID, ID(scope, key))", New: "ID(scope, key)"},
			{File: "effect.go", Old: "	\"cmp\"\n", New: ""}}},
		{Name: "what the giver of a range does not have stays", Killer: "TestTake", Edits: []mutate.Edit{{
			File: "take.go", In: "Take", Old: "if err == nil && !taken[op.Key] {", New: "if false && !taken[op.Key] {"}}},
		{Name: "effects that ended come along and are never removed", Killer: "TestTake", Edits: []mutate.Edit{{
			File: "take.go", In: "whole", Old: "return record, core.Put(endKey(e), nil)", New: "return record, core.Put(endPrefix+e.Key, nil)"}}},
		{Name: "an intent replaces the record that there is", Killer: "TestDoOnce", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.make",
			Old: "core.PutIf(recordPrefix+f.key, value, core.Absent)", New: "core.Put(recordPrefix+f.key, value)"}}},
		{Name: "callers with the same key have an execution each", Killer: "TestDoOnce", Edits: []mutate.Edit{{
			File: "ledger.go", In: "Ledger.board", Old: "	if f == nil {", New: "	if true {"}}},
		{Name: "what a former leader began is attempted again", Killer: "TestTakeover", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.meet", Old: "	if hand != nil || e.State != Repeat {", New: "	if false {"}}},
		{Name: "an attempt goes on after the lease", Killer: "TestTakeover", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.bounded", Old: "func() { cancel(context.Cause(l.lease.Context())) }", New: "func() {}"}}},
		{Name: "an attempt without an answer is repeated", Killer: "TestUnknownOutcome", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.pursue", Old: "!known && l.o.Repeatable)", New: "!known)"}}},
		{Name: "a refusal undoes an attempt without an answer", Killer: "TestKnownOutcome", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.pursue", Old: "unsure = unsure || !known", New: "unsure = !known"}}},
		{Name: "what certainly did not happen is not attempted again", Killer: "TestKnownOutcome", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.pursue", Old: "(known && !sure.final || ", New: "("}}},
		{Name: "an effect fails because its leader stops", Killer: "TestDeadline", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.pursue", Old: "if known && !sure.final && l.stopped() {", New: "if false {"}}},
		{Name: "the end of a caller ends the effect", Killer: "TestCallerGoes", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.bounded",
			Old: "context.WithoutCancel(ctx)", New: "ctx"}}},
		{Name: "an effect begins for a caller that went", Killer: "TestCallerGoes", Edits: []mutate.Edit{{
			File: "ledger.go", In: "Ledger.await", Old: "f.waiters == 0 && !f.begun", New: "false && !f.begun"}}},
		{Name: "Close does not wait", Killer: "TestCallerGoes", Edits: []mutate.Edit{{
			File: "ledger.go", In: "Ledger.Close", Old: "	l.flown.Wait()\n", New: ""}}},
		{Name: "a result that is not kept hides the effect", Killer: "TestNotKept", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.settle", Old: "e.Result, e.NotKept = nil, len(d.Result)", New: "e.Result = nil"}}},
		{Name: "effects begin however many are in doubt", Killer: "TestFull", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.make", Old: "full := len(l.idle) >= l.o.MaxInDoubt", New: "full := len(l.idle) < 0"}}},
		{Name: "an effect of which the resolver failed is never asked about again", Killer: "TestResolveLater", Edits: []mutate.Edit{{
			File: "keep.go", In: "Ledger.keep", Old: "			l.again()\n", New: ""}}},
		{Name: "a resolver is asked once", Killer: "TestResolve", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.decide", Old: "if n >= l.o.Attempts || !l.pause(ctx, n) {\n			return Decision{}, err",
			New: "if true {\n			return Decision{}, err"}}},
		{Name: "an operator's decision counts again and again", Killer: "TestByHand/repeat", Edits: []mutate.Edit{{
			File: "keep.go", In: "Ledger.byHand", Old: " && r.Repeats == e.Repeats {", New: " {"}}},
		{Name: "an operator's decision is not carried out", Killer: "TestByHand", Edits: []mutate.Edit{{
			File: "keep.go", In: "Ledger.keep", Old: "		l.obey()\n", New: ""}}},
		{Name: "effects are not kept", Killer: "TestTrim", Edits: []mutate.Edit{{
			File: "keep.go", In: "Ledger.trim", Old: "time.Unix(s, 0).Add(l.o.Keep)", New: "time.Unix(s, 0).Add(l.o.Keep / 4)"}}},
		{Name: "records stay for ever", Killer: "TestTrim", Edits: []mutate.Edit{{
			File: "keep.go", In: "Ledger.trim", Old: "ops = append(ops, core.Delete(recordPrefix+key))", New: "_ = key"}}},
		{Name: "each effect has its own commits", Killer: "TestGroupCommit", Edits: []mutate.Edit{{
			File: "write.go", In: "outbox.next", Old: "		if n > 0 && (dup", New: "		if n > 0 && (true || dup"}}},
		{Name: "a text from outside reaches records as it is", Killer: "TestResolve", Edits: []mutate.Edit{{
			File: "effect.go", In: "clean", Old: "		if unicode.IsPrint(r) {", New: "		if unicode.IsPrint(r) || r == 0x1b {"}}},
		{Name: "an effect that has ended stays in doubt for the metrics", Killer: "TestStatsResolve", Edits: []mutate.Edit{{
			File: "stats.go", In: "Ledger.ended", Old: "	l.take(e.Key)\n", New: ""}}},
		{Name: "a lost lease leaves its effects in the metrics", Killer: "TestStatsTakeover", Edits: []mutate.Edit{{
			File: "stats.go", In: "Stats.Counts", Old: "		if l.lease.Err() == nil {", New: "		if true {"}}},
		{Name: "what Resolve is asked about again waits for a person", Killer: "TestStatsResolve", Edits: []mutate.Edit{{
			File: "stats.go", In: "Ledger.leave", Old: "!later && (alone", New: "(later || true) && (alone"}}},
		{Name: "a trim removes a record in one write and its entry in the next", Killer: "TestTrimWhole", Edits: []mutate.Edit{{
			File: "keep.go", In: "Ledger.trim", Old: "ops = append(ops, core.Delete(recordPrefix+key))",
			New: "_, _ = l.w.put(\"\", core.Delete(recordPrefix+key))"}}},
		{Name: "an outcome that the store refused is never written", Killer: "TestOutcomeUnwritten", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.write", Old: "		l.postpone(e, cause)\n", New: ""}}},
		{Name: "an outcome that the store refused is forgotten", Killer: "TestOutcomeUnwritten", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.postpone", Old: "l.later[e.Key] = late{e, cause}", New: "_ = cause"}}},
		{Name: "Do decides anew what was to be repeated", Killer: "TestOutcomeWrittenByDo", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.meet", Old: "case later.e.State == Repeat && f.fn != nil:", New: "case false:"}}},
		{Name: "what a ledger left begun is under way until the lease ends", Killer: "TestOutcomeOfClosedLedger", Edits: []mutate.Edit{{
			File: "keep.go", In: "Ledger.revisit", Old: "!later && !lapsed &&", New: "!later && (lapsed || true) &&"}}},
		{Name: "a request that was repeated was not sent", Killer: "TestNotSent", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.pursue", Old: "sure.unsent && connected.Load()", New: "sure.unsent && connected.Load() && false"}}},
		{Name: "a result that the store does not take hides the effect", Killer: "TestStoreTakesLess", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.write", Old: "errors.Is(err, core.ErrTooLarge) && ", New: "false && "}}},
		{Name: "an effect whose goroutine ended counts nowhere", Killer: "TestGoexit", Edits: []mutate.Edit{{
			File: "ledger.go", In: "Ledger.carry", Old: "		if returned {", New: "		if returned || true {"}}},
		{Name: "what has no record is in doubt for good", Killer: "TestOrphan", Edits: []mutate.Edit{{
			File: "keep.go", In: "Ledger.strike", Old: "	if !listed {", New: "	if listed || true {"}}},
		{Name: "Lookup judges what it read before the effect ended", Killer: "TestDoubtIsLookedAtAgain", Edits: []mutate.Edit{{
			File: "ledger.go", In: "Ledger.Lookup", Old: "if e, err = l.record(ctx, key); err", New: "if err"}}},
		{Name: "InDoubt judges what it read before the effect ended", Killer: "TestDoubtIsLookedAtAgain", Edits: []mutate.Edit{{
			File: "ledger.go", In: "Ledger.InDoubt", Old: "		all, err = l.open(ctx)\n", New: ""}}},
		{Name: "a refusal after a former leader's attempts is a doubt", Killer: "TestRefusedAfterNotDone", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.meet", Old: "l.pursue(f, e, !undone)", New: "l.pursue(f, e, !undone || true)"}}},
		{Name: "what was begun again counts as not attempted", Killer: "TestRefusedAfterNotDone", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.meet", Old: "Begun, l.lease.Token(), false", New: "Begun, l.lease.Token(), undone"},
			{File: "effect.go", In: "decode", Old: "s.Undone && s.State == Repeat", New: "s.Undone"}}},
		{Name: "an effect of a clock that was ahead keeps all others", Killer: "TestTrimsGoOn", Edits: []mutate.Edit{{
			File: "keep.go", In: "Ledger.trim", Old: "min(until.Sub(at)+time.Second, l.o.Keep)", New: "until.Sub(at) + time.Second"}}},
		{Name: "a trim is one write, whatever the server takes", Killer: "TestTrimsGoOn", Edits: []mutate.Edit{{
			File: "keep.go", In: "Ledger.trim", Old: "			ended = append(ended, &entry{ops: ops, done: make(chan struct{})})",
			New: "			if len(ended) == 0 {\n				ended = append(ended, &entry{done: make(chan struct{})})\n			}\n" +
				"			ended[0].ops = append(ended[0].ops, ops...)"}}},
		{Name: "a nested effect waits for a turn", Killer: "TestNested", Edits: []mutate.Edit{{
			File: "ledger.go", In: "Ledger.board", Old: "l.fly(f, nested)", New: "l.fly(f, false)"}}},
		{Name: "a nested effect waits for one that waits for a turn", Killer: "TestNested", Edits: []mutate.Edit{{
			File: "ledger.go", In: "Ledger.board", Old: "(f.begun || !nested)", New: "(f.begun || true)"}}},
		{Name: "an effect waits for itself", Killer: "TestNestedInItself", Edits: []mutate.Edit{{
			File: "ledger.go", In: "Ledger.board", Old: "f != nil && f.waits(within)", New: "f != nil && false"}}},
		{Name: "an effect waits for itself by way of others", Killer: "TestNestedInItself", Edits: []mutate.Edit{{
			File: "ledger.go", In: "flight.waits", Old: "!f.landed() &&", New: "false &&"}}},
		{Name: "Close refuses what an effect under way begins", Killer: "TestNestedAtTheEnd", Edits: []mutate.Edit{{
			File: "ledger.go", In: "Ledger.board", Old: "case l.closed && !ours:", New: "case l.closed:"}}},
		{Name: "an effect that ended still gives room", Killer: "TestNestedAtTheEnd", Edits: []mutate.Edit{{
			File: "ledger.go", In: "Ledger.board", Old: "within != nil && !within.landed()", New: "within != nil"}}},
		{Name: "nested effects have no bound", Killer: "TestNestedAtTheEnd", Edits: []mutate.Edit{{
			File: "ledger.go", In: "Ledger.board", Old: "l.nested >= maxConcurrent", New: "l.nested < 0"}}},
		{Name: "Take has no bound", Killer: "TestTakeIsBounded", Edits: []mutate.Edit{{
			File: "take.go", In: "Take", Old: "if size > maxTake {", New: "if size < 0 {"}}},
		{Name: "a ledger does not know the rules of its lease", Killer: "TestRulesOfTheLease", Edits: []mutate.Edit{{
			File: "options.go", In: "Options.resolve", Old: "c.Rules = lease.Rules", New: "c.Rules = func() []control.Rule { return nil }"}}},
		{Name: "a ledger decides before the rules are known", Killer: "TestRulesOfTheLease", Edits: []mutate.Edit{{
			File: "ledger.go", In: "Open", Old: "		awaitRules(ctx, lease)\n", New: ""}}},
		{Name: "a decision by hand is not logged", Killer: "TestRulesOfTheLease", Edits: []mutate.Edit{{
			File: "run.go", In: "Ledger.meet", Old: "if hand.Author+hand.Writer != \"\" {", New: "if hand.Author+hand.Writer == \"\" {"}}},
	})
}
