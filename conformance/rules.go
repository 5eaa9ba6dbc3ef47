package conformance

// Rule is the permanent id of a rule that package driver states.
type Rule string

// The rules of package driver.
const (
	M1 Rule = "M1"
	M2 Rule = "M2"
	M3 Rule = "M3"
	M4 Rule = "M4"
	I1 Rule = "I1"
	I2 Rule = "I2"
	A1 Rule = "A1"
	A2 Rule = "A2"
	A3 Rule = "A3"
	A4 Rule = "A4"
	A5 Rule = "A5"
	A6 Rule = "A6"
	R1 Rule = "R1"
	F1 Rule = "F1"
	F2 Rule = "F2"
	L1 Rule = "L1"
	L2 Rule = "L2"
	L3 Rule = "L3"
	L4 Rule = "L4"
	O1 Rule = "O1"
	O2 Rule = "O2"
	O3 Rule = "O3"
	D1 Rule = "D1"
	E1 Rule = "E1"
	E2 Rule = "E2"
	E3 Rule = "E3"
	E4 Rule = "E4"
	X1 Rule = "X1"
	P1 Rule = "P1"
)

// Rules returns every rule in the order of the contract.
func Rules() []Rule {
	return []Rule{M1, M2, M3, M4, I1, I2, A1, A2, A3, A4, A5, A6, R1, F1, F2, L1, L2, L3, L4, O1, O2, O3, D1, E1, E2,
		E3, E4, X1, P1}
}

// Title is the short name of a rule, such as "fenced commit" for F1.
func (r Rule) Title() string { title, _ := r.text(); return title }

// Explain returns a rule's title and its content in one line.
func (r Rule) Explain() string { _, line := r.text(); return line }

func (r Rule) text() (title, line string) {
	switch r {
	case M1:
		return "beat", "a heartbeat succeeds exactly while the session's record exists, raises its version, and costs " +
			"the same for any number of shards"
	case M2:
		return "evict", "removes exactly the version named; a record that has changed since is untouched"
	case M3:
		return "join", "one compare-and-set on the label's record; late or repeated joins fail, nothing revives an " +
			"id, and records of idle labels are bounded"
	case M4:
		return "update", "replaces the mutable part of the session's own record if it exists; late and repeated " +
			"updates undo nothing, and none is a heartbeat"
	case I1:
		return "identity", "a wiped, restored or replaced store is noticed and refused until an operator decides"
	case I2:
		return "incarnation", "a failover or restore that lost grants is noticed where the store can say so, no token is " +
			"granted twice, and a later failover's tokens are greater; one that is not noticed takes back nothing that was answered"
	case A1:
		return "mutual exclusion", "at every point of the store's order a shard has at most one current session and token"
	case A2:
		return "monotonic tokens", "a new lease's token is greater than every token granted before it in the namespace"
	case A3:
		return "idempotent", "a repeated claim or transfer finds its own earlier success and returns the same fence"
	case A4:
		return "independent", "results are per item, in order; a denied item affects no other and carries the record " +
			"as it is"
	case A5:
		return "transfer and preemption", "take effect only from exactly the token named, and only to a session that " +
			"has a record"
	case A6:
		return "batch", "n items take a number of round trips proportional to n / BatchItems"
	case R1:
		return "exact release", "affects exactly the lease named; anything older is a successful no-op"
	case F1:
		return "fenced commit", "a write takes effect only under the shard's latest grant and with the next number; one of the " +
			"application's own, behind a fence beside Commit, only under that grant"
	case F2:
		return "two failures", "a dead fence is ErrFenced, a failed precondition or number is *ConflictError, and " +
			"neither has any effect"
	case L1:
		return "log order", "entries are 1, 2, 3 ... without gaps, their tokens never decrease, and none ever changes"
	case L2:
		return "log pages", "a page is contiguous from the entry after the one named, and readers see prefixes only; " +
			"a list has the first items by key, up to its limit"
	case L3:
		return "trim", "reading below the oldest entry is *TrimmedError, and numbers never restart"
	case L4:
		return "tail", "every entry at least once, each shard's in order and contiguous, or a reset with all heads; " +
			"never a silent skip"
	case O1:
		return "state", "a page has all that differs from the cursor, departures included; time never goes backwards; " +
			"a head is what the lease named beside it found"
	case O2:
		return "prompt", "changes are reported at once or within the poll period, calls end with their context, slow " +
			"readers cost bounded memory"
	case O3:
		return "quiet", "without a change the store gets only calls that block or poll; a heartbeat wakes only those " +
			"that asked for it"
	case D1:
		return "damaged records", "a record that cannot be read is named, never granted, fails calls that need it with " +
			"ErrDamaged at once, and disturbs nothing else"
	case E1:
		return "closed error world", "an error of the closed set means certainly not applied; everything else is " +
			"unknown"
	case E2:
		return "no hidden retry", "a backend sends a write once"
	case E3:
		return "no leak", "close unblocks everything and leaves no goroutine, connection or timer; a cancelled call " +
			"blocks nobody"
	case E4:
		return "own connection", "heartbeats, and reads of driver.PingShard, do not queue behind other calls; beside a " +
			"silent server heartbeats go to another"
	case X1:
		return "context", "the caller's context is the only time-out, and the one given to open is not used afterwards"
	case P1:
		return "probe", "opening refuses a store that does not honour its conditions"
	}
	return "unknown rule", "package driver does not state it"
}
