package suite

// Rule is the permanent id of a rule in package driver.
type Rule string

// Rules returns every rule in the order of the contract.
func Rules() []Rule {
	all := make([]Rule, len(contract))
	for i, r := range contract {
		all[i] = r.rule
	}
	return all
}

// Title returns the short name of a rule, such as "fenced commit" for F1.
func (r Rule) Title() string { title, _ := r.text(); return title }

// Explain returns a rule's title and its content on one line.
func (r Rule) Explain() string { _, line := r.text(); return line }

func (r Rule) text() (title, line string) {
	for _, c := range contract {
		if c.rule == r {
			return c.title, c.line
		}
	}
	return "unknown rule", "package driver does not state it"
}

// contract lists the rules in the same order as package driver.
var contract = []struct {
	rule        Rule
	title, line string
}{
	{"M1", "beat", "a heartbeat succeeds exactly while the session's record exists, raises its version, and costs the same for any number of shards"},
	{"M2", "evict", "removes exactly the version named; a record that has changed since is untouched"},
	{"M3", "join", "one compare-and-set on the label's record; late or repeated joins fail, nothing revives an id, and records of idle labels are bounded"},
	{"M4", "update", "replaces the mutable part of the session's own record if it exists; late and repeated updates undo nothing, and none is a heartbeat"},
	{"I1", "identity", "a wiped, restored or replaced store is noticed and refused until an operator decides"},
	{"I2", "incarnation", "a failover or restore that lost grants is noticed where the store can say so, no token is granted twice, and a later failover's tokens are greater; one that is not noticed takes back nothing that was answered"},
	{"A1", "mutual exclusion", "at every point of the store's order a shard has at most one current session and token"},
	{"A2", "monotonic tokens", "a new lease's token is greater than every token granted before it in the namespace"},
	{"A3", "idempotent", "a repeated claim or transfer finds its own earlier success and returns the same fence"},
	{"A4", "independent", "results are per item, in order; a denied item affects no other and carries the record as it is"},
	{"A5", "transfer and preemption", "take effect only from exactly the token named, and only to a session that has a record"},
	{"A6", "batch", "n items take a number of round trips proportional to n / BatchItems"},
	{"R1", "exact release", "affects exactly the lease named; anything older is a successful no-op"},
	{"R2", "locks", "a lock's record goes when it is free and nothing was committed under it, unless nothing can remove records there (`Limits.RecordsStay`); a claim that saw it free matches while it is free, and tokens grow nevertheless"},
	{"R3", "history", "each change of a shard's owner also stores the last four leases, for people: the node, since when, and why it ended; it costs no request, and no view has them"},
	{"F1", "fenced commit", "a write takes effect only under the shard's latest grant and with the next number; one of the application's own, behind a fence beside Commit, only under that grant"},
	{"F2", "two failures", "a dead fence is ErrFenced, a failed precondition or number is *ConflictError, and neither has any effect"},
	{"L1", "log order", "entries are 1, 2, 3 ... without gaps, their tokens never decrease, and none ever changes"},
	{"L2", "log pages", "a page is contiguous from the entry after the one named, and readers see prefixes only; a list has the first items by key, up to its limit"},
	{"L3", "trim", "reading below the oldest entry is *TrimmedError, and numbers never restart"},
	{"L4", "tail", "every entry at least once, each shard's in order and contiguous, or a reset with all heads; never a silent skip"},
	{"O1", "state", "a page has all that differs from the cursor, departures included; time never goes backwards; a head is what the lease named beside it found"},
	{"O2", "prompt", "changes are reported immediately or within the poll period, calls end with their context, slow readers cost bounded memory"},
	{"O3", "quiet", "without a change the store gets only calls that block or poll; a heartbeat wakes only those that asked for it"},
	{"D1", "damaged records",
		"a record that cannot be read is named, never granted, fails calls that need it with ErrDamaged immediately, and disturbs nothing else"},
	{"E1", "closed error world", "an error of the closed set means certainly not applied; everything else is unknown"},
	{"E2", "no hidden retry", "a backend sends a write once"},
	{"E3", "no leak", "close unblocks everything and leaves no goroutine, connection or timer; a cancelled call blocks no other"},
	{"E4", "own connection", "heartbeats, and reads of driver.PingShard, do not queue behind other calls; beside a silent server heartbeats go to another"},
	{"E5", "denied",
		"a call that the store refuses for a right or a setting fails with ErrDenied, changes nothing, and succeeds once that is mended"},
	{"X1", "context", "the caller's context is the only time-out, and the one given to open is not used afterwards"},
	{"P1", "probe", "opening refuses a store that does not honour its conditions"},
}
