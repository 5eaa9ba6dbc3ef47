package history_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	. "github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/proof/history/linearizable"
)

func fence(session driver.SessionID, token driver.Token) driver.Fence {
	return driver.Fence{Shard: "s", Session: session, Token: token}
}

func held(session driver.SessionID, token driver.Token) driver.Owner {
	return driver.Owner{Session: session, Token: token}
}

func head(number driver.WriteNo, seq driver.Seq, nonce driver.Nonce, token driver.Token) driver.Head {
	return driver.Head{Number: number, Seq: seq, Nonce: nonce, Token: token, Oldest: 1}
}

var (
	entry1 = Entry{Seq: 1, Token: 5, Number: 1, Digest: "x"}
	entry2 = Entry{Seq: 2, Token: 5, Number: 2, Digest: "y"}
	entry3 = Entry{Seq: 3, Token: 5, Number: 2, Digest: "z"}
	entry4 = Entry{Seq: 4, Token: 9, Number: 3, Digest: "w"}
)

// Indexes of good's operations.
const (
	joinA = iota
	joinB
	acquireA
	trustA
	commit1
	commit2 // of unknown outcome, and applied
	read1
	distrustA
	evictA
	acquireB
	trustB
	fencedA
	commit3
	apply1
	apply2
	apply3
	apply4
	transferB
	numberB
	releaseB
	acquireC
	heldB
	read2
)

// good returns a history with an unknown outcome, a takeover, a zombie, a hand-over to the same
// session and a race for a free shard, with fixed instants.
func good() *History {
	unnumbered := func(es ...Entry) []Entry {
		for i := range es {
			es[i].Seq = 0
		}
		return es
	}
	ops := []Operation{
		joinA: {Process: "a", Kind: Join, Call: 1, Return: 2, Outcome: OK, Session: "sa", Node: "n1"},
		joinB: {Process: "b", Kind: Join, Call: 3, Return: 4, Outcome: OK, Session: "sb", Node: "n2"},
		acquireA: {Process: "a", Kind: Acquire, Call: 10, Return: 20, Outcome: OK, Session: "sa",
			Granted: fence("sa", 5)},
		trustA: {Process: "a", Kind: Trust, Call: 21, Return: 21, Outcome: OK, Fence: fence("sa", 5), Until: 300},
		commit1: {Process: "a", Kind: Commit, Call: 30, Return: 40, Outcome: OK, Fence: fence("sa", 5), Number: 1,
			Nonce: 11, Entries: []Entry{entry1}, Head: head(1, 1, 11, 5)},
		commit2: {Process: "a", Kind: Commit, Call: 50, Return: 60, Outcome: Unknown, Fence: fence("sa", 5),
			Number: 2, Nonce: 12, Entries: unnumbered(entry2, entry3)},
		read1: {Process: "a", Kind: Read, Call: 70, Return: 80, Outcome: OK,
			Entries: []Entry{entry1, entry2, entry3}, Head: head(2, 3, 12, 5)},
		distrustA: {Process: "a", Kind: Distrust, Call: 100, Return: 100, Outcome: OK, Fence: fence("sa", 5)},
		evictA:    {Process: "b", Kind: Evict, Call: 110, Return: 120, Outcome: OK, Session: "sb", Target: "sa"},
		acquireB: {Process: "b", Kind: Acquire, Call: 130, Return: 140, Outcome: OK, Session: "sb",
			Seen: held("sa", 5), Granted: fence("sb", 9), Head: head(2, 3, 12, 5)},
		trustB: {Process: "b", Kind: Trust, Call: 141, Return: 141, Outcome: OK, Fence: fence("sb", 9), Until: 1000},
		fencedA: {Process: "a", Kind: Commit, Call: 150, Return: 160, Outcome: Refused, Reason: ReasonFenced,
			Current: held("sb", 9), Fence: fence("sa", 5), Number: 3, Nonce: 99},
		commit3: {Process: "b", Kind: Commit, Call: 170, Return: 180, Outcome: OK, Fence: fence("sb", 9), Number: 3,
			Nonce: 13, Entries: []Entry{entry4}, Head: head(3, 4, 13, 9)},
		apply1: {Process: "f", Kind: Apply, Call: 200, Return: 200, Outcome: OK, Entries: []Entry{entry1}},
		apply2: {Process: "f", Kind: Apply, Call: 201, Return: 201, Outcome: OK, Entries: []Entry{entry2}},
		apply3: {Process: "f", Kind: Apply, Call: 202, Return: 202, Outcome: OK, Entries: []Entry{entry3}},
		apply4: {Process: "f", Kind: Apply, Call: 203, Return: 203, Outcome: OK, Entries: []Entry{entry4}},
		transferB: {Process: "b", Kind: Transfer, Call: 210, Return: 220, Outcome: OK, Session: "sb",
			Fence: fence("sb", 9), Target: "sb", Granted: fence("sb", 12), Head: head(3, 4, 13, 9)},
		numberB: {Process: "b", Kind: Commit, Call: 230, Return: 240, Outcome: Refused, Reason: ReasonNumber,
			Fence: fence("sb", 12), Number: 3, Nonce: 14},
		releaseB: {Process: "b", Kind: Release, Call: 250, Return: 260, Outcome: OK, Session: "sb",
			Fence: fence("sb", 12)},
		acquireC: {Process: "a.2", Kind: Acquire, Call: 270, Return: 280, Outcome: OK, Session: "sc",
			Seen: held("", 12), Granted: fence("sc", 15), Head: head(3, 4, 13, 9)},
		heldB: {Process: "b", Kind: Acquire, Call: 275, Return: 285, Outcome: Refused, Reason: ReasonHeld,
			Session: "sb", Seen: held("", 12), Current: held("sc", 15)},
		read2: {Process: "a.2", Kind: Read, Call: 290, Return: 310, Outcome: OK, After: 3, Entries: []Entry{entry4},
			Head: head(3, 4, 13, 9)},
	}
	for i := range ops {
		ops[i].ID = int64(i + 1)
		if k := ops[i].Kind; k != Join && k != Evict {
			ops[i].Shard = "s"
		}
	}
	return &History{Operations: ops}
}

// both returns the findings of the validators and of the models.
func both(h *History, o *Options) []Finding {
	return append(Check(h, o), linearizable.Check(h, 20*time.Second)...)
}

func TestGoodHistory(t *testing.T) {
	t.Parallel()
	for _, f := range both(good(), &Options{MinGrants: 4, MinCommits: 2}) {
		t.Errorf("got %v, want nothing found", f)
	}
}

// wantFinding expects a finding of the check and rule whose message contains the text.
func wantFinding(t *testing.T, found []Finding, check, rule, text string) {
	t.Helper()
	if !slices.ContainsFunc(found, func(f Finding) bool {
		return f.Check == check && f.Rule == rule && strings.Contains(f.Message, text)
	}) {
		t.Errorf("got %v, want a finding %s %s with %q", found, rule, check, text)
	}
}

// TestDamage breaks the good history in one place at a time, and expects a finding that names the
// damage.
func TestDamage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name              string
		check, rule, text string
		damage            func(ops []Operation)
		add               []Operation
		o                 *Options
	}{
		{name: "a token that goes back", check: CheckTokens, rule: "S2", text: "token 4 was granted after token 5",
			damage: func(ops []Operation) { ops[acquireB].Granted.Token = 4 }},
		{name: "a token that is not positive", check: CheckTokens, rule: "S2", text: "not positive",
			damage: func(ops []Operation) { ops[acquireA].Granted.Token = 0 }},
		{name: "a token granted twice", check: CheckTokens, rule: "S2", text: "token 5 was granted to both sa and sb",
			damage: func(ops []Operation) { ops[acquireB].Granted.Token = 5 }},
		{name: "a token that is too low for the namespace", check: CheckTokens, rule: "S2",
			text: `token 8 was granted after token 9 of shard "s"`,
			add: []Operation{{Process: "b", Kind: Acquire, Shard: "other", Call: 400, Return: 410, Outcome: OK,
				Session: "sb",
				Granted: driver.Fence{Shard: "other", Session: "sb", Token: 8}}}},

		{name: "trust beyond the takeover", check: CheckOverlap, rule: "S1",
			text:   "a trusted sa:5 and b trusted sb:9 at the same time for 1 microseconds, the longest of 1 overlaps",
			damage: func(ops []Operation) { ops[distrustA].Call = 150 }},
		{name: "trust beyond a preemption and the notice", check: CheckOverlap, rule: "S1", text: "for 1 microseconds",
			damage: func(ops []Operation) { ops[distrustA].Call, ops[acquireB].Preempt = 150, true },
			o:      &Options{Notice: 8}},

		{name: "an entry that changed", check: CheckPrefix, rule: "T3",
			text:   "entry 1 is token 5, number 1, digest x in one place and token 5, number 1, digest other in another",
			damage: func(ops []Operation) { ops[read1].Entries[0].Digest = "other" }},
		{name: "an entry that nobody wrote", check: CheckPrefix, rule: "T3",
			text: "entry 5 has token 9, number 4, digest q, which no write",
			damage: func(ops []Operation) {
				ops[read2].Entries = []Entry{entry4, {Seq: 5, Token: 9, Number: 4, Digest: "q"}}
				ops[read2].Head = head(4, 5, 14, 9)
			}},
		{name: "an entry of a write that was refused", check: CheckPrefix, rule: "S16",
			text:   "entry 2 has token 5, number 2, digest y, which only a write that was refused had",
			damage: func(ops []Operation) { ops[commit2].Outcome, ops[commit2].Reason = Refused, "retry" }},
		{name: "a gap in a page", check: CheckPrefix, rule: "L2", text: "has entry 3 where entry 2 belongs",
			damage: func(ops []Operation) { ops[read1].Entries = []Entry{entry1, entry3} }},
		{name: "a page beyond its head", check: CheckPrefix, rule: "L2", text: "has entry 3, beyond its own head 2",
			damage: func(ops []Operation) { ops[read1].Head.Seq = 2 }},
		{name: "a skipped application", check: CheckPrefix, rule: "T4", text: "f applied entry 4 after entry 2",
			damage: func(ops []Operation) { ops[apply3].Kind = "skipped" }},
		{name: "an application twice", check: CheckPrefix, rule: "T4", text: "f applied entry 2 after entry 2",
			damage: func(ops []Operation) { ops[apply3].Entries = []Entry{entry2} }},
		{name: "an application that begins in the middle", check: CheckPrefix, rule: "T4", text: "f began with entry 2",
			damage: func(ops []Operation) { ops[apply1].Kind = "skipped" }},
		{name: "tokens that decrease along the log", check: CheckPrefix, rule: "T2", text: "entry 3 has token 4",
			damage: func(ops []Operation) {
				low := entry3
				low.Token = 4
				ops[read1].Entries[2], ops[apply3].Entries = low, []Entry{low}
			}},
		{name: "an acknowledged entry that is missing", check: CheckPrefix, rule: "L2",
			text:   "the head at entry 3, although entry 4 had been acknowledged",
			damage: func(ops []Operation) { ops[read2].Entries, ops[read2].Head = nil, head(2, 3, 12, 5) }},

		{name: "a number under a lower token", check: CheckTokenOrder, rule: "S3",
			text: "write 4 was accepted under token 5 after write 3 under token 9",
			add: []Operation{{Process: "a", Kind: Commit, Shard: "s", Call: 165, Return: 190, Outcome: OK,
				Fence: fence("sa", 5), Number: 4, Nonce: 98, Head: head(4, 4, 98, 5)}}},
		{name: "a later write under a lower token", check: CheckTokenOrder, rule: "S3",
			text: "a write under token 5 was accepted, although one under token 9",
			damage: func(ops []Operation) {
				ops[numberB].Outcome, ops[numberB].Fence, ops[numberB].Number = OK, fence("sa", 5), 0
			}},

		{name: "a zombie's write accepted", check: CheckSuperseded, rule: "S3",
			text:   "write 3 was accepted under token 5, sent when token 9 was known to be granted",
			damage: func(ops []Operation) { ops[fencedA].Outcome = OK }},
		{name: "a zombie's write accepted after a refusal that showed the token", check: CheckSuperseded, rule: "S3",
			text: "sent when token 9 was known",
			damage: func(ops []Operation) {
				ops[acquireB].Outcome = Unknown
				ops[acquireB].Granted = driver.Fence{}
				ops[numberB].Outcome, ops[numberB].Fence = OK, fence("sa", 5)
				ops[transferB].Outcome = Unknown
				ops[transferB].Granted = driver.Fence{}
			}},
		{name: "a write accepted after its release", check: CheckSuperseded, rule: "F1",
			text: "under token 12, sent when that lease had been released",
			add: []Operation{{Process: "b", Kind: Commit, Shard: "s", Call: 262, Return: 265, Outcome: OK,
				Fence: fence("sb", 12), Number: 4, Nonce: 97, Head: head(4, 4, 97, 12)}}},

		{name: "a number twice", check: CheckNumbers, rule: "S15", text: "two writes were accepted as number 3",
			damage: func(ops []Operation) { ops[numberB].Outcome = OK }},
		{name: "a number that nobody had", check: CheckNumbers, rule: "S15", text: "number 2 was skipped",
			damage: func(ops []Operation) { ops[commit2].Outcome, ops[commit2].Reason = Refused, "retry" }},
		{name: "an acknowledgement with another's head", check: CheckNumbers, rule: "S15",
			text:   "acknowledged with the head of write 3, nonce 77",
			damage: func(ops []Operation) { ops[commit3].Head.Nonce = 77 }},
		{name: "entries that are not numbered on", check: CheckNumbers, rule: "L1",
			text:   "write 2 appended 2 entries after entry 1, and left the head at 4",
			damage: func(ops []Operation) { ops[commit2].Outcome, ops[commit2].Head = OK, head(2, 4, 12, 5) }},

		{name: "a takeover from the living", check: CheckTakeover, rule: "A1",
			text:   "sb took the shard from sa, which lived",
			damage: func(ops []Operation) { ops[evictA].Outcome = Refused }},
		{name: "a takeover from the living, whose label was superseded before it joined", check: CheckTakeover,
			rule: "A1", text: "sb took the shard from sa, which lived",
			damage: func(ops []Operation) {
				ops[evictA].Outcome = Refused
				ops[joinA].Call, ops[joinA].Return = 7, 8
			},
			add: []Operation{{Process: "a.0", Kind: Join, Call: 5, Return: 6, Outcome: OK, Session: "s0", Node: "n1",
				Supersede: true}}},

		{name: "an id that joins again", check: CheckLife, rule: "M3", text: "session sa joined twice",
			add: []Operation{{Process: "a", Kind: Join, Call: 400, Return: 410, Outcome: OK, Session: "sa",
				Node: "n1"}}},
		{name: "two evictions of one session", check: CheckLife, rule: "M2", text: "session sa was evicted twice",
			add: []Operation{{Process: "c", Kind: Evict, Call: 115, Return: 125, Outcome: OK, Session: "sc",
				Target: "sa"}}},
		{name: "an eviction of a session that left", check: CheckLife, rule: "M2",
			text: "session sa was evicted although it had left",
			add:  []Operation{{Process: "a", Kind: Leave, Call: 102, Return: 104, Outcome: OK, Session: "sa"}}},
		{name: "a claim of the evicted", check: CheckLife, rule: "M1", text: "session sa took token 20 after its end",
			add: []Operation{{Process: "a", Kind: Acquire, Shard: "other", Call: 121, Return: 125, Outcome: OK,
				Session: "sa",
				Granted: driver.Fence{Shard: "other", Session: "sa", Token: 20}}}},
		{name: "a claim of one that left", check: CheckLife, rule: "M1", text: "session sb took token 20 after its end",
			add: []Operation{
				{Process: "b", Kind: Leave, Call: 400, Return: 410, Outcome: OK, Session: "sb"},
				{Process: "b", Kind: Acquire, Shard: "other", Call: 420, Return: 430, Outcome: OK, Session: "sb",
					Granted: driver.Fence{Shard: "other", Session: "sb", Token: 20}},
			}},
		{name: "an eviction by the evicted", check: CheckLife, rule: "M1",
			text: "session sa evicted sd after its own end",
			add: []Operation{{Process: "a", Kind: Evict, Call: 121, Return: 125, Outcome: OK, Session: "sa",
				Target: "sd"}}},
		{name: "a hand-over to the evicted", check: CheckLife, rule: "A5",
			text: "session sa was given token 12 after its end",
			damage: func(ops []Operation) {
				ops[transferB].Target, ops[transferB].Granted = "sa", fence("sa", 12)
			}},
		{name: "a hand-over by the evicted", check: CheckLife, rule: "M1",
			text: "session sb handed token 9 over after its own end",
			damage: func(ops []Operation) {
				ops[transferB].Target, ops[transferB].Granted = "sc", fence("sc", 12)
			},
			add: []Operation{{Process: "c", Kind: Evict, Call: 204, Return: 205, Outcome: OK, Session: "sc",
				Target: "sb"}}},

		{name: "two holders", check: linearizable.Lease, rule: "A1", text: "no order of its 10 operations (leases)",
			damage: func(ops []Operation) { ops[heldB].Outcome, ops[heldB].Granted = OK, fence("sb", 16) }},
		{name: "denied although free as seen", check: linearizable.Lease, rule: "A1", text: "no order",
			damage: func(ops []Operation) { ops[heldB].Current = held("", 12) }},
		{name: "denied by a record that never was", check: linearizable.Lease, rule: "A1", text: "no order",
			damage: func(ops []Operation) { ops[heldB].Current = held("sx", 14) }},
		{name: "fenced although current", check: linearizable.Lease, rule: "A1", text: "no order",
			damage: func(ops []Operation) { ops[commit3].Outcome, ops[commit3].Reason = Refused, ReasonFenced }},
		{name: "conflict although fenced", check: linearizable.Lease, rule: "A1", text: "no order",
			damage: func(ops []Operation) { ops[fencedA].Reason = ReasonConflict }},
		{name: "accepted although fenced", check: linearizable.Lease, rule: "A1", text: "no order",
			damage: func(ops []Operation) { ops[fencedA].Outcome = OK }},
		{name: "a lease for somebody else", check: linearizable.Lease, rule: "A1", text: "no order",
			damage: func(ops []Operation) { ops[acquireC].Granted.Session = "sx" }},
		{name: "a hand-over without effect", check: linearizable.Lease, rule: "A1", text: "no order",
			damage: func(ops []Operation) { ops[releaseB].Fence, ops[numberB].Fence = fence("sb", 9), fence("sb", 9) }},

		{name: "a stale head at a grant", check: linearizable.Log, rule: "F1", text: "no order",
			damage: func(ops []Operation) { ops[acquireC].Head = head(2, 3, 12, 5) }},
		{name: "a stale read", check: linearizable.Log, rule: "F1", text: "no order",
			damage: func(ops []Operation) { ops[read2].Entries, ops[read2].Head = nil, head(2, 3, 12, 5) }},
		{name: "a write that skips a number", check: linearizable.Log, rule: "F1", text: "no order",
			damage: func(ops []Operation) { ops[commit3].Number, ops[commit3].Head.Number = 4, 4 }},
		{name: "a number refused although the next", check: linearizable.Log, rule: "F1", text: "no order",
			damage: func(ops []Operation) { ops[numberB].Number = 4 }},
		{name: "an acknowledged write that is lost", check: linearizable.Log, rule: "F1", text: "no order",
			damage: func(ops []Operation) {
				ops[transferB].Head, ops[acquireC].Head, ops[read2].Head = head(2, 3, 12, 5), head(2, 3, 12, 5),
					head(2, 3, 12, 5)
			}},
		{name: "a refused write that took effect", check: linearizable.Log, rule: "F1", text: "no order",
			damage: func(ops []Operation) { ops[commit2].Outcome, ops[commit2].Reason = Refused, "retry" }},

		{name: "a write beyond the head of a later grant", check: CheckHeads, rule: "F1",
			text:   "write 3 was accepted under token 9, although token 15 was granted at a head of 2 writes",
			damage: func(ops []Operation) { ops[acquireC].Head = head(2, 3, 12, 5) }},
		{name: "a write below the head of an earlier grant", check: CheckHeads, rule: "F1",
			text:   "write 3 under token 9 lies below the head of 3 writes that the grant of token 5 reported",
			damage: func(ops []Operation) { ops[acquireA].Head = head(3, 4, 13, 5) }},
		{name: "fenced for no reason", check: CheckFenced, rule: "F1",
			text:   "a write under token 9 was fenced, although nothing had ended",
			damage: func(ops []Operation) { ops[commit3].Outcome, ops[commit3].Reason = Refused, ReasonFenced }},
		{name: "an entry that is there twice", check: CheckPrefix, rule: "S15",
			text: "entries 4 to 5 have token 9 and number 3, and no one write",
			damage: func(ops []Operation) {
				again := entry4
				again.Seq = 5
				ops[read2].Entries, ops[read2].Head = []Entry{entry4, again}, head(3, 5, 13, 9)
			}},
		{name: "a number sent after a higher one", check: CheckNumbers, rule: "S15",
			text: "write 2 was accepted, and sent when write 3 had been acknowledged",
			damage: func(ops []Operation) {
				ops[commit2].Outcome, ops[commit2].Head = OK, head(2, 3, 12, 5)
				ops[commit2].Call, ops[commit2].Return = 181, 182
			}},

		{name: "too few grants", check: CheckTraffic, rule: "traffic", text: "4 grants", o: &Options{MinGrants: 5}},
		{name: "too few commits", check: CheckTraffic, rule: "traffic", text: "2 commits", o: &Options{MinCommits: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := good()
			if c.damage != nil {
				c.damage(h.Operations)
			}
			h = Merge(h, &History{Operations: c.add})
			wantFinding(t, both(h, c.o), c.check, c.rule, c.text)
		})
	}
}

// TestAllowed changes the good history into others that are also good.
func TestAllowed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		damage func(ops []Operation)
		o      *Options
	}{
		{name: "an unknown write that never was", damage: func(ops []Operation) {
			ops[read1].Entries, ops[read1].Head = []Entry{entry1}, head(1, 1, 11, 5)
			ops[acquireB].Head = head(1, 1, 11, 5)
			w := Entry{Seq: 2, Token: 9, Number: 2, Digest: "w"}
			h := head(2, 2, 13, 9)
			ops[commit3].Number, ops[commit3].Entries, ops[commit3].Head = 2, []Entry{w}, h
			ops[apply2].Entries = []Entry{w}
			ops[apply3].Kind, ops[apply4].Kind = "none", "none"
			ops[transferB].Head, ops[acquireC].Head, ops[read2].Head = h, h, h
			ops[numberB].Number = 2
			ops[read2].After, ops[read2].Entries = 2, nil
		}},
		{name: "a grant that was not answered", damage: func(ops []Operation) {
			ops[acquireB].Outcome, ops[acquireB].Granted, ops[acquireB].Head = Unknown, driver.Fence{}, driver.Head{}
		}},
		{name: "grants that were not answered in a row", damage: func(ops []Operation) {
			for _, i := range []int{acquireB, transferB} {
				ops[i].Outcome, ops[i].Granted, ops[i].Head = Unknown, driver.Fence{}, driver.Head{}
			}
		}},
		{name: "a claim that finds its own success", damage: func(ops []Operation) {
			ops[evictA] = ops[acquireB]
			ops[evictA].ID, ops[evictA].Call, ops[evictA].Return, ops[evictA].Outcome = 9, 110, 120, Unknown
			ops[evictA].Granted = driver.Fence{}
			ops[joinA].Kind = "none"
		}},
		{name: "trust beyond a preemption, within the notice", o: &Options{Notice: 9}, damage: func(ops []Operation) {
			ops[distrustA].Call, ops[acquireB].Preempt = 150, true
		}},
		{name: "trust beyond being superseded, within the notice", o: &Options{Notice: 9},
			damage: func(ops []Operation) {
				ops[distrustA].Call = 150
				ops[evictA] = Operation{Process: "a.2", ID: 9, Kind: Join, Call: 110, Return: 120, Outcome: OK,
					Session: "sc", Node: "n1", Supersede: true}
			}},
		{name: "a repeated hand-over that finds its success after the successor's end", damage: func(ops []Operation) {
			ops[releaseB] = ops[transferB]
			ops[releaseB].ID, ops[releaseB].Call, ops[releaseB].Return = 20, 250, 260
			ops[transferB].Target, ops[releaseB].Target = "sd", "sd"
			ops[transferB].Granted, ops[releaseB].Granted = fence("sd", 12), fence("sd", 12)
			ops[evictA].Target = "none"
			ops[joinA].Kind = "none"
			ops[apply4] = Operation{Process: "b", ID: 17, Kind: Evict, Call: 222, Return: 225, Outcome: OK,
				Session: "sb", Target: "sd"}
			ops[numberB].Kind, ops[heldB].Kind = "none", "none"
			ops[acquireC].Seen = held("sd", 12)
		}},
		{name: "trust that ends with the process", damage: func(ops []Operation) {
			ops[distrustA] = Operation{Process: "test", ID: 8, Kind: Exit, Call: 100, Return: 100, Outcome: OK,
				Ended: "a"}
		}},
		{name: "a follower that begins from a snapshot", damage: func(ops []Operation) {
			ops[apply1].Kind, ops[apply1].Entries, ops[apply1].After = Restore, nil, 1
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := good()
			c.damage(h.Operations)
			for _, f := range both(h, c.o) {
				t.Errorf("got %v, want nothing found", f)
			}
		})
	}
}

// TestOverlapIsMeasured expects exactly the longest of several overlaps.
func TestOverlapIsMeasured(t *testing.T) {
	t.Parallel()
	ms := Instant(time.Millisecond)
	trust := func(process string, token driver.Token, from, until Instant) Operation {
		return Operation{Process: process, Kind: Trust, Shard: "s", Call: from, Return: from, Outcome: OK,
			Fence: fence(driver.SessionID(process), token), Until: until}
	}
	h := Merge(&History{Operations: []Operation{
		trust("a", 1, 10*ms, 20*ms),
		trust("a", 1, 15*ms, 40*ms), // extended
		trust("b", 2, 39*ms, 60*ms),
		trust("c", 3, 57*ms-345678, 80*ms),
		trust("c", 4, 70*ms, 90*ms), // the same process
	}})
	found := Check(h, nil)
	if len(found) != 1 {
		t.Fatalf("got %v, want one finding", found)
	}
	wantFinding(t, found, CheckOverlap, "S1",
		"b trusted b:2 and c trusted c:3 at the same time for 3346 microseconds, the longest of 2 overlaps")
	if want := 3*time.Millisecond + 345678; found[0].Overlap != want {
		t.Errorf("the overlap is %v, want %v", found[0].Overlap, want)
	}
}
