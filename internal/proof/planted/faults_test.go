package planted_test

import "github.com/tenure-go/tenure/internal/proof/mutate"

// A fault is broken code, which is either a mutant of a package's own tests, by its name, or a
// mutant that is defined here.
type fault struct {
	name  string
	edits []mutate.Edit // nil: the mutant of that name
}

const (
	inCore = "../../../core/"
	inKV   = "../../../backends/kv/"
)

// machine are faults of package fsm, all of them mutants of the simulation's tests.
var machine = []fault{
	{name: "C1: a token given away is granted again"},
	{name: "C2: a record that names this session is not reconciled"},
	{name: "C2: an unanswered release is taken for done"},
	{name: "C3: a join that finds its own record is a success"},
	{name: "C5: silence during an outage counts"},
	{name: "C5: late replies bridge an outage"},
	{name: "C5: evict without a heartbeat of late"},
	{name: "C5: a join is no proof"},
	{name: "C5: no more heartbeats while a member is quiet"},
	{name: "C6: a deaf member keeps beating"},
	{name: "C7: the same token after a lapse"},
	{name: "C9: an eviction that a view told of first is nobody's"},
	{name: "C12: an update that failed is taken for stored"},
	{name: "C12: a join brings no update"},
	{name: "C12: updates of others are not looked at"},
	{name: "C13: a releaser claims its own release first"},
	{name: "C13: the others wait for the releaser"},
	{name: "C17: locks are never forgotten"},
	{name: "C17: a lock is handed to a standby"},
}

// runner are faults of package core.
var runner = []fault{
	{name: "S8: trust from the reply's instant"},
	{name: "S9: the lease's context outlives its trust"},
	{name: "S6: a revoked lease is valid again with the next heartbeat"},
	{name: "S4: success assumed on a lost reply of a commit"},
	{name: "S4: failure assumed on a lost reply of a commit"},
	{name: "S4: success assumed on a lost reply of a release"},
	{name: "S4: a fenced commit in doubt is taken for refused"},
	{name: "E1: a call in doubt is taken for refused"},
	{name: "S15: retry without the nonce"},
	{name: "S15: retry under the next number"},
	{name: "S15: another's commit is taken for one's own"},
	{name: "S12: release before the work was joined"},
	{name: "S12: release before a commit in flight is settled"},
	{name: "S13: a member that trusts its watch alone"},
	{"calls go out under a former session", []mutate.Edit{
		{File: inCore + "step.go", In: "Elector.do",
			Old: "\t\ts := e.sessions[c.Session]\n", New: "\t\ts := e.sessions[c.Session]\n\t\tfor id, other := range e.sessions {\n\t\t\tif id != c.Session && s != nil {\n\t\t\t\ts = other\n\t\t\t}\n\t\t}\n"},
		{File: inCore + "step.go", In: "Elector.event", Old: "\t\tdelete(e.sessions, eff.Session)\n", New: ""}}},
	{"the answer to a heartbeat counts for the one before", []mutate.Edit{
		{File: inCore + "calls.go", In: "Elector.call",
			Old: "\te.queue = append(e.queue, in)\n", New: "\tif eff.Kind == fsm.EffBeat {\n\t\tin.Call--\n\t}\n\te.queue = append(e.queue, in)\n"}}},
	{"what failed is not told to the machine", []mutate.Edit{
		{File: inCore + "calls.go", In: "Elector.call",
			Old: "\te.queue = append(e.queue, in)\n", New: "\tif in.Err == nil {\n\t\te.queue = append(e.queue, in)\n\t}\n"}}},
	{"an answer is told twice", []mutate.Edit{
		{File: inCore + "calls.go", In: "Elector.call",
			Old: "\te.queue = append(e.queue, in)\n", New: "\te.queue = append(e.queue, in, in)\n"}}},
	{"every heartbeat succeeds", []mutate.Edit{
		{File: inCore + "calls.go", In: "Elector.call", Old: "in.Err = s.Beat(ctx)", New: "_ = s.Beat(ctx)"}}},
	{"claims preempt", []mutate.Edit{
		{File: inCore + "calls.go", In: "Elector.call", Old: "s.Acquire(ctx, eff.Claims)", New: "s.Acquire(ctx, preempting(eff.Claims))"},
		{File: inCore + "calls.go", Old: "// callOf returns", New: "func preempting(claims []driver.Claim) (all []driver.Claim) {\n\tfor _, c := range claims {\n\t\tc.Preempt = c.Seen.Session != \"\"\n\t\tall = append(all, c)\n\t}\n\treturn all\n}\n\n// callOf returns"}}},
	{"an eviction is not sent", []mutate.Edit{
		{File: inCore + "calls.go", In: "Elector.call",
			Old: "in.Evictions, in.Err = s.Evict(ctx, eff.Suspects)", New: "in.Err = ErrRetry"}}},
	{"a release is not sent", []mutate.Edit{
		{File: inCore + "calls.go", In: "Elector.call", Old: "in.Err = s.Release(ctx, eff.Fences)", New: "in.Err = nil"}}},
	{"an update says something else", []mutate.Edit{
		{File: inCore + "calls.go", In: "Elector.call",
			Old: "in.Err = s.Update(ctx, eff.State)", New: "eff.State.Priority++\n\t\tin.Err = s.Update(ctx, eff.State)"}}},
	{"a member joins with another TTL", []mutate.Edit{
		{File: inCore + "calls.go", In: "Elector.call",
			Old: "s, in.Err = e.b.Join(ctx, eff.Member)", New: "eff.Member.TTL *= 2\n\t\ts, in.Err = e.b.Join(ctx, eff.Member)"}}},
	{"a view counts from its answer", []mutate.Edit{
		{File: inCore + "calls.go", In: "Elector.observe", Old: "View: v, SentAt: sent})", New: "View: v, SentAt: e.clk.now()})"}}},
	{"who left is not told to the machine", []mutate.Edit{
		{File: inCore + "calls.go", In: "Elector.observe",
			Old: "\t\t\te.feed(fsm.Input{Kind: fsm.InObserved,", New: "\t\t\tif len(v.Gone) > 0 {\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\te.feed(fsm.Input{Kind: fsm.InObserved,"}}},
	{"the application is given another token", []mutate.Edit{
		{File: inCore + "run.go", In: "Elector.grant",
			Old: "\tf := eff.Fence\n\tr := &run{\n", New: "\tf := eff.Fence\n\tf.Token++\n\tr := &run{\n"}}},
	{"a lapse is not told to the application", []mutate.Edit{
		{File: inCore + "run.go", In: "Elector.revoke",
			Old: "\tr := e.runs[f.Shard]\n\terr := r.lease.end(cause)\n", New: "\tr := e.runs[f.Shard]\n\tif cause == fsm.CauseLapsed {\n\t\treturn\n\t}\n\terr := r.lease.end(cause)\n"}}},
	{"trust has no margin", []mutate.Edit{
		{File: inCore + "step.go", In: "Elector.extend",
			Old: "e.trust.until.Store(int64(until))", New: "e.trust.until.Store(int64(until.Add(e.o.Margin)))"}}},
	{"a refused commit is acknowledged", []mutate.Edit{
		{File: inCore + "settle.go", In: "Lease.settle",
			Old: "\t\t\treturn l.fencedOut(err)\n", New: "\t\t\t_ = l.fencedOut(err)\n\t\t\treturn outcome{head: driver.Head{Number: w.Number, Seq: base.Seq + 1, Nonce: w.Nonce, Token: w.Fence.Token}}\n"}}},
	{"S9: the clock is slow", []mutate.Edit{
		{File: inCore + "clock.go", In: "clock.read",
			Old: "fsm.Instant(mono + c.away.Load())", New: "fsm.Instant(mono/2 + c.away.Load())"}}},
	{"S9: the clock goes back", []mutate.Edit{
		{File: inCore + "clock.go", In: "clock.read",
			Old: "fsm.Instant(mono + c.away.Load())", New: "fsm.Instant(mono%9_000_000_000 + c.away.Load())"}}},
	{"a session is not closed", []mutate.Edit{
		{File: inCore + "calls.go", In: "closeSession", Old: "\t\terr := s.Close(once)\n", New: "\t\terr := once.Err()\n"}}},
	{"S11: a handler starts beside the former one", []mutate.Edit{
		{File: inCore + "run.go", In: "Elector.serve",
			Old: "\tr.lease.commits.settled() // S12: what is in flight is work, too\n", New: "\tif r.ctx.Err() == nil {\n\t\tr.lease.commits.settled()\n\t}\n"}}},
}

// adapters are faults of backends, of the memory store, and of the wire between a member and its
// store.
var adapters = []fault{
	{name: "R1: a release compares existence only"},
	{"A1: a claim does not ask for the holder", []mutate.Edit{
		{File: inKV + "acquire.go", In: "session.claim", Old: "if c.Seen.Session != \"\" && !c.Preempt {", New: "if false {"}}},
	{"A1: a claim that was refused is answered as granted", []mutate.Edit{
		{File: inKV + "acquire.go", In: "session.claimAll",
			Old: "\t\t\tresults[i] = s.denied(claims[i], r.Reads[0], r.Reads[1])\n\t\t\theld,", New: "\t\t\tresults[i] = b.granted(claims[i].Shard, s.id, r.Reads[0], r.Reads[1])\n\t\t\theld,"}}},
	{"A2: a claim is answered with the token that it saw", []mutate.Edit{
		{File: inKV + "acquire.go", In: "session.claimAll",
			Old: "results[i] = b.granted(claims[i].Shard, s.id, txns[n].record(r.Rev), head)", New: "results[i] = b.granted(claims[i].Shard, s.id, txns[n].record(r.Rev), head)\n\t\t\tresults[i].Fence.Token = max(claims[i].Seen.Token, 1)"}}},
	{"A5: a transfer that was refused is answered as granted", []mutate.Edit{
		{File: inKV + "acquire.go", In: "session.pass",
			Old: "results[i] = s.refused(h, r.Reads[0], r.Reads[1], r.Reads[2].Rev != 0)", New: "results[i] = b.granted(h.Fence.Shard, h.To, r.Reads[0], r.Reads[1])"}}},
	{"O1: a full state is the first one", []mutate.Edit{
		{File: inKV + "observe.go", In: "Backend.full",
			Old: "\tv := m.view(0, true)\n", New: "\tv := m.view(0, true)\n\tif m.first == nil {\n\t\tm.first = v.Shards\n\t}\n\tv.Shards = m.first\n"},
		{File: inKV + "mirror.go", Old: "\tchanged chan struct{}", New: "\tfirst   []driver.ShardState\n\tchanged chan struct{}"}}},
	{"O1: shards are shown as their neighbour's", []mutate.Edit{
		{File: inKV + "mirror.go", In: "mirror.intern", Old: "val.owner.Session; last == s {", New: "val.owner.Session; last != \"\" {"},
		{File: inKV + "mirror.go", In: "mirror.intern",
			Old: "\tif it, ok := m.members.get(s); ok {\n\t\treturn it.key\n\t}\n\tif m.shards", New: "\tif m.shards"}}},
	{"M4: what members say is shown with another priority", []mutate.Edit{
		{File: inKV + "mirror.go", In: "mirror.put",
			Old: "\tm.members.set(v.Session, member{Member: v}, p.Rev, m.seq)", New: "\tv.Priority++\n\tm.members.set(v.Session, member{Member: v}, p.Rev, m.seq)"}}},
	{"F1: a commit does not compare the fence", []mutate.Edit{
		{File: inKV + "commit.go", In: "Backend.judge",
			Old: "if owner.Session != w.Fence.Session || owner.Token != w.Fence.Token {", New: "if false {"}}},
	{"F1: a commit does not compare the head", []mutate.Edit{
		{File: inKV + "commit.go", In: "Backend.commit",
			Old: "{Key: b.keys.Shard(shard), Rev: l.rev}, {Key: b.keys.Head(shard), Rev: l.headRev}}", New: "{Key: b.keys.Shard(shard), Rev: l.rev}}"},
		{File: inKV + "commit.go", In: "Backend.judge", Old: "if head.Number+1 != w.Number {", New: "if false {"}}},
	{"F1: a commit that was refused is answered as done", []mutate.Edit{
		{File: inKV + "commit.go", In: "session.Commit",
			Old: "\t\t\t\tresults[i].Err = err\n\t\t\t} else {\n", New: "\t\t\t\tresults[i] = driver.CommitResult{Head: heads[n]}\n\t\t\t} else {\n"}}},
	{"L1: entries are numbered with gaps", []mutate.Edit{
		{File: inKV + "commit.go", In: "Backend.commit",
			Old: "head.Seq += driver.Seq(len(payloads))", New: "head.Seq += driver.Seq(len(payloads)) + driver.Seq(w.Number%8/7)"}}},
	{"O1: a lease is granted with the head that this process knew", []mutate.Edit{
		{File: inKV + "acquire.go", In: "Backend.granted",
			Old: "\th, err := decodeHead(head)\n\tif err == nil {\n", New: "\th, err := decodeHead(head)\n\tif old, ok := b.leases.get(shard); ok && old.headKnown {\n\t\th = old.head\n\t}\n\tif err == nil {\n"}}},
	{"the wire answers heartbeats", []mutate.Edit{
		{File: "wire_test.go", In: "wire.around",
			Old: "\treturn proceed(ctx)\n", New: "\tif c.Op == intercept.Beat {\n\t\treturn nil\n\t}\n\treturn proceed(ctx)\n"}}},
	{"the wire answers commits", []mutate.Edit{
		{File: "wire_test.go", In: "wire.around",
			Old: "\treturn proceed(ctx)\n", New: "\tif c.Op == intercept.Commit && c.Writes[0].Number%9 == 8 {\n\t\tc.Committed = nil\n\t\tfor _, w := range c.Writes {\n\t\t\tc.Committed = append(c.Committed, driver.CommitResult{Head: driver.Head{Number: w.Number, Nonce: w.Nonce, Token: w.Fence.Token}})\n\t\t}\n\t\treturn nil\n\t}\n\treturn proceed(ctx)\n"}}},
	{"the wire answers evictions", []mutate.Edit{
		{File: "wire_test.go", In: "wire.around",
			Old: "\treturn proceed(ctx)\n", New: "\tif c.Op == intercept.Evict {\n\t\tc.Evicted = make([]driver.EvictResult, len(c.Suspects))\n\t\tfor i := range c.Evicted {\n\t\t\tc.Evicted[i].Evicted = true\n\t\t}\n\t\treturn nil\n\t}\n\treturn proceed(ctx)\n"}}},
	{"the wire swaps answers to claims", []mutate.Edit{
		{File: "wire_test.go", In: "wire.around",
			Old: "\treturn proceed(ctx)\n", New: "\terr := proceed(ctx)\n\tif c.Op == intercept.Acquire {\n\t\tslices.Reverse(c.Granted)\n\t}\n\treturn err\n"}}},
	{"the wire repeats a view", []mutate.Edit{
		{File: "wire_test.go", In: "wire.around",
			Old: "\treturn proceed(ctx)\n", New: "\terr := proceed(ctx)\n\tif c.Op == intercept.Observe && err == nil {\n\t\tw.mu.Lock()\n\t\tdefer w.mu.Unlock()\n\t\tif w.views++; w.views%10 == 0 {\n\t\t\tc.View.Shards = w.shards\n\t\t} else if w.shards == nil || w.views%10 == 5 {\n\t\t\tw.shards = c.View.Shards\n\t\t}\n\t}\n\treturn err\n"}}},
}

// unseen are mutants that the traces of these members do not show, and why. The traces also do not
// show that a heartbeat succeeds without a record, or that a claim does not check the claimer's
// record, because a view ends the session first. On a store where no time passes between an
// adapter's read and its write, comparing only existence has no effect on a claim, a commit or an
// eviction.
var unseen = map[string]string{
	"C8: a reply after a stall revives":                     "no process stalls in virtual time; the simulation's traces show it",
	"S9: a lease is valid until a timer says otherwise":     "what Lease.Err answers is not traced; before a commit it is asked again",
	"S5: no proof after the wait behind another commit":     "it takes a commit behind one that succeeds after the lease ended",
	"S9: a request is served under a lease that has lapsed": "Elector.Lease asks nobody, and is not traced",
	"S12: a request begins while its shard is given back":   "Elector.Lease is not traced",
	"T1: group commit tells its callers one number":         "what each caller of a merged commit is told is not traced",
	"S14: the store's change is not reported":               "what Run returns is not traced; that the machine halts is",
	"V5: hooks are called from the step":                    "hooks are not traced",
	"C15: a function that hangs is waited for":              "only the function knows what it would have said",
	"A3: a repeated claim is answered by the session alone": "no claim is repeated after another one of the same session succeeded",
	"A3: a transfer is taken for done, granted by anybody":  "no transfer is repeated after another one to the same session",
	"M4: an update compares existence only":                 "it takes time between the read and the write",
	"M4: a number that is not above the record's is taken":  "it takes an update that comes late, after a later one",
	"O1: a head is carried without being compared":          "it takes a commit between the read and the write",
	"A5: a transfer does not ask for its target":            "it takes a target that ends before a view shows it",
	"R2: records of locks stay":                             "it costs space only",
}
