package conformance_test

import (
	"strings"
	"testing"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/internal/proof/suite"
)

// bug is the rule that a model breaks. The bug lying can be combined with any other bug.
type bug int

const (
	none bug = iota
	tokenResetOnRelease
	tokenResetOnDelete
	releaseByOwner
	evictIgnoresVersion
	claimTrustsView
	claimNotIdempotent
	batchStopsAtDenied
	refusalSpreads
	refusesWhatItApplied
	oneCallPerItem
	fenceCheckedApart
	numberNotChecked
	conflictBeforeFence
	logByCounter
	seqRestarts
	tailBySequence
	lateJoinRevives
	joinRevives
	revivedOnReconnect
	beatKeepsVersion
	beatByLabel
	olderBeats
	labelsStay
	livingRemoved
	removalForgets
	removalNotCompared
	beatPerShard
	updateUnseen
	updateForgetsRest
	updateIsBeat
	updateRevives
	olderUpdates
	updateSentLate
	repeatedUpdateRefused
	uncheckedUpdate
	watchDropsDepartures
	cachesFullState
	headOfBefore
	beatsWakeAll
	transferToAbsent
	successOnLostReply
	unknownAsNotApplied
	causeIsAnswer
	retriesWrites
	noIdentityCheck
	noForkCheck
	forkKeepsTokens
	forkKeepsLeases
	trustsItself
	readsEarly
	noProbe
	leaks
	beatsBehindWrites
	ignoresContext
	hidesContext
	pageFromEnd
	readsPastTrim
	corruptIsFree
	damageIsHidden
	damageIsRetry
	badHeadUsed
	badEntrySkipped
	oddItemFails
	oddItemListed
	remembersLastJoin
	tooLargeSent
	tailIgnoresMax
	readsWhileBlocked
	oneCallPerTransfer
	resendsPerDenied
	buffersForReader
	claimBySession
	transferByTarget
	releaseUnseen
	livesCheckedApart
	forkLiftsAlike
	guardIgnoresSession
	guardIgnoresToken
	guardCheckedBefore
	guardCheckedApart
	guardOfAnyHistory
	lockSeenFree
	lockSeenExactly
	lockDropsHead
	lockVanishes
	locksStay
	denialIsRetry
	listsAnySize
	listsAnyNumber
	historyOfGrants
	historyTimeless
	historyShort
	historyReadFirst
	badHistoryBars
	badHistoryHidden

	lying bug = 1 << 16
)

// mutant is a broken backend, and the case that must find it.
type mutant struct {
	bug    bug
	does   string
	killer string
	rule   suite.Rule
}

func mutants() []mutant {
	return []mutant{
		{tokenResetOnRelease, "numbers tokens by a record that a release deletes", "Acquire/TokensIncreaseAcrossRelease", "A2"},
		{tokenResetOnDelete, "numbers tokens by a record that goes with the shard's data",
			"Acquire/TokensIncreaseAcrossDeleteData", "A2"},
		{releaseByOwner, "releases the session's lease, of any token", "Release/StaleIsNoop", "R1"},
		{releaseUnseen, "releases the lease that its process believes to hold", "Release/StaleIsNoop", "R1"},
		{lockSeenFree, "takes the claim's word that a lock is free", "Locks/HeldIsRefused", "A1"},
		{lockSeenFree, "takes the claim's word that a lock is free", "Locks/RepeatedClaim", "R2"},
		{lockSeenExactly, "grants a lock only from the token that the claim saw", "Locks/TokensIncrease", "R2"},
		{claimNotIdempotent, "does not know its own grant of a lock again", "Locks/RepeatedClaim", "A3"},
		{lockDropsHead, "removes what was committed under a lock", "Locks/CommitsStay", "R2"},
		{lockVanishes, "does not report that a lock was released", "Locks/ReleaseIsSeen", "R2"},
		{locksStay, "keeps a record of every lock for ever", "Locks/RecordsAreBounded", "R2"},
		{historyOfGrants, "does not remember that leases were released", "History/LastLeases", "R3"},
		{historyTimeless, "does not remember when leases began", "History/LastLeases", "R3"},
		{historyShort, "remembers two leases of long labels", "History/LastLeases", "R3"},
		{historyReadFirst, "reads the former leases before it writes", "History/CostsNoCall", "R3"},
		{badHistoryBars, "grants no shard whose history is damaged", "History/Damaged", "D1"},
		{badHistoryHidden, "does not say that a history is damaged", "History/Damaged", "D1"},
		{denialIsRetry, "does not tell a missing right from what may be tried again", "Errors/RightTakenAway", "E5"},
		{livesCheckedApart, "looks whether the claimer lives, and writes after", "Acquire/ClaimRacesEvict", "M1"},
		{livesCheckedApart, "looks whether the target lives, and writes after", "Release/TransferRacesEvict", "A5"},
		{evictIgnoresVersion, "evicts a record of any version", "Membership/EvictExactVersionOnly", "M2"},
		{evictIgnoresVersion, "evicts a record of any version", "Membership/EvictLosesToBeat", "M2"},
		{claimTrustsView, "takes the claim's word that the holder is dead", "Acquire/ClaimOnLiveHolderRefused", "A1"},
		{claimNotIdempotent, "does not know its own grant again", "Acquire/Idempotent", "A3"},
		{claimBySession, "takes any lease of the claimer for its claim's success", "Acquire/Idempotent", "A3"},
		{transferByTarget, "takes any lease of the target for the transfer's success", "Acquire/Idempotent", "A3"},
		{batchStopsAtDenied, "denies the items after a denied one", "Acquire/PartialBatch", "A4"},
		{refusesWhatItApplied, "applies a call that it refuses as too large", "Commit/RefusedAsOne", "A4"},
		{refusalSpreads, "refuses the write after a refused one", "Commit/ManyKindsInOneCall", "A4"},
		{oneCallPerItem, "sends a batch item by item", "Acquire/BatchCost", "A6"},
		{oneCallPerTransfer, "sends hand-overs item by item", "Acquire/BatchCost", "A6"},
		{resendsPerDenied, "sends a batch again for each denied item", "Acquire/BatchCost", "A6"},
		{fenceCheckedApart, "checks the fence, and writes after", "Commit/RacesTakeover", "F1"},
		{fenceCheckedApart, "checks the fence, and writes after", "Chaos/RandomOpsLinearizable", "F1"},
		{numberNotChecked, "applies a write that was sent again", "Commit/RepeatedWriteRefused", "F1"},
		{numberNotChecked, "applies a write that was delivered twice", "Commit/DuplicateRequestHarmless", "F1"},
		{numberNotChecked, "applies a late write of the same lease", "Commit/LateWriteOfSameLeaseRefused", "F1"},
		{conflictBeforeFence, "reports a conflict to a zombie", "Commit/FencedBeatsConflict", "F2"},
		{logByCounter, "numbers entries by a counter that refused appends advance", "Log/WrongNumberConflicts", "L1"},
		{seqRestarts, "numbers entries from 1 after a full trim", "Log/SeqSurvivesFullTrim", "L3"},
		{tailBySequence, "numbers the tail before the entry can be seen", "Log/FirstStartedLastCommitted", "L4"},
		{lateJoinRevives, "joins without comparing the label's record", "Membership/LateJoinFails", "M3"},
		{joinRevives, "joins again under a used id", "Membership/RepeatedJoinFails", "M3"},
		{revivedOnReconnect, "writes its sessions again when the connection is back",
			"Membership/IdNeverRevivedOnReconnect", "M1"},
		{remembersLastJoin, "knows only the latest id of a label", "Membership/RepeatedJoinFails", "M3"},
		{beatKeepsVersion, "answers heartbeats without a change", "Membership/BeatChangesVersion", "M1"},
		{labelsStay, "keeps a record of every label for ever", "Labels/Bounded", "M3"},
		{livingRemoved, "removes labels whose session lives", "Labels/OfTheLivingStay", "M3"},
		{removalForgets, "forgets an id with its label", "Labels/IdNeverRevived", "M3"},
		{removalNotCompared, "joins without comparing that labels were removed", "Labels/LateJoinFails", "M3"},
		{olderBeats, "reports any version that is not the one asked with", "Views/OlderBeatIsNoNews", "O1"},
		{beatByLabel, "heartbeats by the owner's name", "Membership/SupersedeEndsFormer", "M3"},
		{beatPerShard, "writes once per shard for a heartbeat", "Membership/BeatCostConstant", "M1"},
		{updateUnseen, "does not report updates", "Membership/UpdateTellsAll", "O1"},
		{updateForgetsRest, "writes the whole record with an update", "Membership/UpdateTellsAll", "M4"},
		{updateIsBeat, "counts an update as a heartbeat", "Membership/UpdateIsNoBeat", "M4"},
		{updateIsBeat, "counts an update as a heartbeat", "Membership/UpdateRevivesNothing", "M4"},
		{updateRevives, "makes a record for an update that finds none", "Membership/UpdateRevivesNothing", "M4"},
		{updateRevives, "makes a record for an update that finds none", "Membership/BeatAfterCloseIsLost", "M1"},
		{olderUpdates, "lets an older update replace a later one", "Membership/UpdatesInOrder", "M4"},
		{updateSentLate, "writes an update that was given up after a later one", "Membership/LateUpdateHasNoEffect", "M4"},
		{repeatedUpdateRefused, "does not know its own update again", "Membership/UpdateLostReply", "M4"},
		{uncheckedUpdate, "writes updates of any size", "Membership/UpdateRefusedBeforeSend", "M4"},
		{tailIgnoresMax, "answers a tail with all that there is", "Log/TailAllShards", "L4"},
		{watchDropsDepartures, "does not report departures", "Views/NoLostFinalState", "O1"},
		{cachesFullState, "answers a full state from memory", "Views/FullIsFresh", "O1"},
		{headOfBefore, "tells a head that a commit has moved", "Views/HeadIsTheGrants", "O1"},
		{beatsWakeAll, "wakes every reader for every heartbeat", "Views/BeatsOnlyAsAsked", "O3"},
		{readsWhileBlocked, "reads over and over while a call is blocked", "Views/IdleIsQuiet", "O3"},
		{transferToAbsent, "transfers to a session without a record", "Release/TransferToAbsentMemberRefused", "A5"},
		{successOnLostReply, "takes a lost reply for success", "Errors/LostReplyIsUnknown", "E1"},
		{unknownAsNotApplied, "takes a lost reply for a refusal", "Errors/LostReplyIsUnknown", "E1"},
		{listsAnySize, "returns values of any size in a list", "Views/LongValuesLeftOut", "D1"},
		{listsAnyNumber, "returns any number of values in a list", "Views/LongValuesLeftOut", "D1"},
		{causeIsAnswer, "takes why the caller gave up for the answer", "Errors/LostReplyIsUnknown", "E1"},
		{retriesWrites, "sends a write again that was not answered", "Errors/WriteSentOnce", "E2"},
		{noIdentityCheck, "goes on with a store that was wiped", "Chaos/WipeStore", "I1"},
		{noIdentityCheck, "goes on with a store that went back", "Chaos/RestoreOlderStore", "I1"},
		{noForkCheck, "does not ask for the store's history", "Chaos/ForkedStore", "I2"},
		{forkKeepsTokens, "goes on with the tokens of before", "Chaos/ForkedStore", "I2"},
		{forkKeepsTokens, "goes on with the tokens of before", "Chaos/ForkedStoreAgain", "I2"},
		{forkKeepsLeases, "leaves the leases of before as they are", "Chaos/ForkedStore", "I2"},
		{forkKeepsLeases, "leaves the leases of before as they are", "Chaos/ForkedStoreCommit", "I2"},
		{trustsItself, "acknowledges what would be lost with a takeover", "Chaos/IsolatedMaster", "I2"},
		{readsEarly, "shows what would be lost with a takeover", "Chaos/IsolatedReads", "I2"},
		{forkLiftsAlike, "raises tokens alike in two failovers from one state", "Chaos/ForkedStoreOldest", "A2"},
		{guardIgnoresSession, "guards writes by the token alone", "Fence/AcceptedWhileCurrent", "F1"},
		{guardIgnoresSession, "guards writes by the token alone", "Fence/RefusedAfterRelease", "F1"},
		{guardIgnoresToken, "guards writes by the session alone", "Fence/AcceptedWhileCurrent", "F1"},
		{guardIgnoresToken, "guards writes by the session alone", "Fence/RefusedAfterNewLease", "F1"},
		{guardCheckedBefore, "checks the fence when a guarded write begins", "Fence/BegunBeforeTakeover", "F1"},
		{guardCheckedApart, "checks the fence of a guarded write, and writes after", "Fence/RacesTakeover", "F1"},
		{guardOfAnyHistory, "guards writes without asking for the store's history", "Fence/ForkedStore", "F1"},
		{guardOfAnyHistory, "guards writes in a store that went back", "Fence/RestoreOlderStore", "I1"},
		{corruptIsFree, "takes a corrupt record for a free shard", "Errors/CorruptRecordsQuarantined", "A4"},
		{corruptIsFree, "takes an oversized record for a free shard", "Errors/OversizedRecordInStore", "A4"},
		{corruptIsFree, "takes an impossible record for a free shard", "Errors/ImpossibleRecordInStore", "A4"},
		{damageIsHidden, "names no damaged record", "Errors/CorruptRecordsQuarantined", "D1"},
		{damageIsRetry, "asks to repeat calls that a damaged record refuses", "Errors/CorruptRecordsQuarantined", "D1"},
		{badHeadUsed, "goes on under a head that cannot be read", "Errors/DamagedHead", "D1"},
		{badEntrySkipped, "skips an entry that cannot be read", "Errors/DamagedEntry", "D1"},
		{oddItemFails, "lists nothing beside an item that has no valid key", "Errors/OddItem", "D1"},
		{oddItemListed, "lists an item that has no valid key", "Errors/OddItem", "L2"},
		{damageIsHidden, "names no item that has no valid key", "Errors/OddItem", "D1"},
		{tooLargeSent, "asks the store before it looks at a write's size", "Commit/TooLargeBeforeSend", "E1"},
		{noProbe, "opens a store that ignores conditions", "Errors/ProbeRefusesLyingStore", "P1"},
		{beatsBehindWrites, "queues heartbeats behind commits", "Membership/BeatsNotBehindWrites", "E4"},
		{ignoresContext, "blocks on after its context ended", "Views/ContextPrompt", "O2"},
		{hidesContext, "answers an ended context with its own error", "Views/ContextPrompt", "X1"},
		{pageFromEnd, "reads the newest entries first", "Log/Contiguous", "L2"},
		{readsPastTrim, "goes on behind trimmed entries in silence", "Log/TrimmedIsReported", "L3"},
		{leaks, "leaves a goroutine behind", "Errors/NoGoroutineLeak", "E3"},
	}
}

func modelHarness(b bug) conformance.Harness {
	return conformance.Harness{
		Name: "model",
		New:  func(conformance.T) *conformance.Store { return newModel(b).fixture() },
	}
}

// TestModel shows that the model passes if it keeps the rules. Therefore, only its bug makes a
// mutant fail.
//
// It is not parallel, because cases that measure run alone.
func TestModel(t *testing.T) {
	conformance.Test(t, modelHarness(none))
}

// TestMutantsAreKilled runs each mutant only through the case that must find it. Every case has a
// separate store, so a case that finds a bug alone also finds it in the whole suite.
func TestMutantsAreKilled(t *testing.T) {
	t.Parallel()
	for _, m := range mutants() {
		t.Run(m.killer+"/"+strings.ReplaceAll(m.does, " ", "-"), func(t *testing.T) {
			t.Parallel()
			m.mustDie(t, modelHarness(m.bug))
		})
	}
}

// TestSlowReaderIsMeasured: the case measures the memory that a backend keeps for a reader. It does
// not measure the store's memory, although both are in this process.
//
// It is not parallel, because the case measures the heap.
func TestSlowReaderIsMeasured(t *testing.T) {
	const slow = "Views/SlowReaderBounded"
	hoards := func(b bug) conformance.Harness {
		h := modelHarness(b)
		h.New = func(conformance.T) *conformance.Store {
			m := newModel(b)
			m.hoard = true
			return m.fixture()
		}
		return h
	}
	report, err := conformance.Check(t.Context(), hoards(none), slow)
	if err != nil || len(report.Of().With(suite.Passed)) != 1 {
		t.Errorf("a store that keeps every entry fails %s: %v\n%v", slow, err, report)
	}
	m := mutant{buffersForReader, "keeps entries for a reader that sleeps", slow, "O2"}
	for name, h := range map[string]conformance.Harness{"small store": modelHarness(m.bug),
		"store that keeps all": hoards(m.bug)} {
		t.Run(name, func(t *testing.T) { m.mustDie(t, h) })
	}
}

// mustDie runs only the case that must find the mutant.
func (m mutant) mustDie(t *testing.T, h conformance.Harness) {
	t.Helper()
	report, err := conformance.Check(t.Context(), h, m.killer)
	if err != nil {
		t.Fatal(err)
	}
	for _, res := range report.Of().With(suite.Skipped) {
		if strings.HasPrefix(strings.Join(res.Messages, ""), "machine too slow to tell") {
			t.Skip(res.Messages)
		}
	}
	failed := report.Of().With(suite.Failed)
	if len(report.Of().Results) != 1 {
		t.Fatalf("%s was not run alone:\n%v", m.killer, report)
	}
	if len(failed) != 1 {
		t.Fatalf("a backend that %s passes %s:\n%v", m.does, m.killer, report)
	}
	for _, message := range failed[0].Messages {
		if strings.HasPrefix(message, string(m.rule)+" "+m.rule.Title()+": ") &&
			strings.HasSuffix(message, m.rule.Explain()) {
			return
		}
	}
	t.Errorf("a backend that %s fails %s without naming %s:\n%v", m.does, m.killer, m.rule, report)
}
