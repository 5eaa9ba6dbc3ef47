package conformance

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
)

// ledger is what the clients of one shard did and were told, on one clock that
// orders what did not overlap. check looks for what no order of the store could
// explain. Every commit in a ledger appends exactly one entry, with a payload of
// its own.
type ledger struct {
	mu      sync.Mutex
	clock   int64
	grants  []granting
	ends    []ending
	commits []committing
}

// granting is an attempt to get a lease, by claim or transfer.
type granting struct {
	start, end int64
	res        driver.AcquireResult
}

// ending is an attempt to give a lease up, by release or transfer.
type ending struct {
	start, end int64
	fence      driver.Fence
	err        error
}

// committing is an attempt to append one entry.
type committing struct {
	start, end int64
	fence      driver.Fence
	number     driver.WriteNo
	payload    string
	res        driver.CommitResult
}

// damage is a broken rule that a ledger shows.
type damage struct {
	rule Rule
	text string
}

func (l *ledger) now() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clock++
	return l.clock
}

// claim records a claim.
func (l *ledger) claim(m *member, c driver.Claim) driver.AcquireResult {
	return l.granting(func() driver.AcquireResult { return m.claim(c) })
}

func (l *ledger) granting(call func() driver.AcquireResult) driver.AcquireResult {
	start := l.now()
	res := call()
	end := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grants = append(l.grants, granting{start, end, res})
	return res
}

// transfer records a handover: the end of one lease and the start of another.
func (l *ledger) transfer(m *member, fence driver.Fence, to driver.SessionID) driver.AcquireResult {
	return l.transferring(fence, func() driver.AcquireResult { return m.transfer(fence, to) })
}

func (l *ledger) transferring(fence driver.Fence, call func() driver.AcquireResult) driver.AcquireResult {
	start := l.now()
	res := l.granting(call)
	l.ending(start, fence, res.Err)
	return res
}

// release records a release.
func (l *ledger) release(m *member, fence driver.Fence) error {
	start := l.now()
	err := m.tryRelease(fence)
	l.ending(start, fence, err)
	return err
}

func (l *ledger) ending(start int64, fence driver.Fence, err error) {
	end := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends = append(l.ends, ending{start, end, fence, err})
}

// append records a commit of one entry.
func (l *ledger) append(m *member, fence driver.Fence, number driver.WriteNo) driver.CommitResult {
	return l.appending(fence, number, func(w driver.Write) driver.CommitResult {
		return m.write(w.Fence, w.Number, w.Ops...)
	})
}

func (l *ledger) appending(fence driver.Fence, number driver.WriteNo, call func(driver.Write) driver.CommitResult) driver.CommitResult {
	start := l.now()
	payload := fmt.Sprintf("%d by token %d", start, fence.Token)
	res := call(newWrite(fence, number, appendOp(payload)))
	end := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.commits = append(l.commits, committing{start, end, fence, number, payload, res})
	return res
}

// accepted counts the commits that were acknowledged.
func (l *ledger) accepted() int {
	n := 0
	for _, c := range l.commits {
		if c.res.Err == nil {
			n++
		}
	}
	return n
}

// check compares the ledger with the shard's whole log, once no call is in
// flight any more.
func (l *ledger) check(log []driver.Entry) []damage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Concat(l.checkGrants(), l.checkFence(), l.checkRefusals(), l.checkLog(log))
}

// checkGrants: tokens are granted once, and in the order of real time.
func (l *ledger) checkGrants() (found []damage) {
	granted := map[driver.Token]driver.Fence{}
	for _, g := range l.grants {
		if g.res.Err != nil {
			continue
		}
		if f, dup := granted[g.res.Fence.Token]; dup && f != g.res.Fence {
			found = append(found, damage{A1, fmt.Sprintf("token %d was granted to session %s and to session %s", f.Token, f.Session, g.res.Fence.Session)})
		}
		granted[g.res.Fence.Token] = g.res.Fence
	}
	var acknowledged []spanning
	for _, g := range l.grants {
		if g.res.Err == nil {
			acknowledged = append(acknowledged, spanning{g.start, g.end, int64(g.res.Fence.Token)})
		}
	}
	for earlier, later := range backwards(acknowledged) {
		found = append(found, damage{A2, fmt.Sprintf("token %d was granted after token %d was acknowledged", later, earlier)})
	}
	return found
}

// checkFence: no commit was accepted under a lease that was over.
func (l *ledger) checkFence() (found []damage) {
	numbers := map[driver.WriteNo]string{}
	for _, c := range l.commits {
		if c.res.Err != nil {
			continue
		}
		if other, dup := numbers[c.number]; dup {
			found = append(found, damage{F1, fmt.Sprintf("two commits with number %d were accepted: %q and %q", c.number, other, c.payload)})
		}
		numbers[c.number] = c.payload
		for _, g := range l.grants {
			if g.res.Err != nil {
				continue
			}
			switch newer := g.res.Fence.Token; {
			case newer > c.fence.Token && g.end < c.start:
				found = append(found, damage{F1, fmt.Sprintf("a commit under token %d was accepted although token %d had been granted before it was sent", c.fence.Token, newer)})
			case newer > c.fence.Token && c.number > g.res.Head.Number:
				found = append(found, damage{F1, fmt.Sprintf("commit %d under token %d was accepted although token %d was granted at a head of %d commits", c.number, c.fence.Token, newer, g.res.Head.Number)})
			case newer < c.fence.Token && c.number <= g.res.Head.Number:
				found = append(found, damage{F1, fmt.Sprintf("commit %d under token %d lies below the head of %d commits that the grant of token %d reported", c.number, c.fence.Token, g.res.Head.Number, newer)})
			}
		}
		for _, e := range l.ends {
			if e.fence == c.fence && e.err == nil && e.end < c.start {
				found = append(found, damage{F1, fmt.Sprintf("a commit under token %d was accepted after that lease had been given up", c.fence.Token)})
			}
		}
	}
	return found
}

// checkRefusals: no commit was fenced while its lease was the current one.
func (l *ledger) checkRefusals() (found []damage) {
	for _, c := range l.commits {
		if !errors.Is(c.res.Err, driver.ErrFenced) {
			continue
		}
		over := false
		for _, g := range l.grants {
			if g.start < c.end && !driver.NotApplied(g.res.Err) && (g.res.Err != nil || g.res.Fence.Token > c.fence.Token) {
				over = true
			}
		}
		for _, e := range l.ends {
			if e.fence == c.fence && e.start < c.end && !driver.NotApplied(e.err) {
				over = true
			}
		}
		if !over {
			found = append(found, damage{F1, fmt.Sprintf("a commit under token %d was fenced although nothing had ended that lease", c.fence.Token)})
		}
	}
	return found
}

// checkLog: the log, which nobody trimmed, has the accepted commits, no refused
// one, and its order. Numbers are the shard's, over all leases.
func (l *ledger) checkLog(log []driver.Entry) (found []damage) {
	at := map[string]driver.Entry{}
	for i, e := range log {
		if dup, ok := at[string(e.Payload)]; ok {
			found = append(found, damage{F1, fmt.Sprintf("one commit was applied twice, as entries %d and %d", dup.Seq, e.Seq)})
		}
		at[string(e.Payload)] = e
		if i == 0 && e.Seq != 1 {
			found = append(found, damage{L1, fmt.Sprintf("the log begins with entry %d", e.Seq)})
		}
		if i > 0 && e.Number <= log[i-1].Number {
			found = append(found, damage{F1, fmt.Sprintf("entry %d is of commit %d, and the entry before it of commit %d", e.Seq, e.Number, log[i-1].Number)})
		}
		if i > 0 && e.Seq != log[i-1].Seq+1 {
			found = append(found, damage{L1, fmt.Sprintf("entry %d follows entry %d", e.Seq, log[i-1].Seq)})
		}
		if i > 0 && e.Token < log[i-1].Token {
			found = append(found, damage{L1, fmt.Sprintf("entry %d has token %d, and the entry before it token %d", e.Seq, e.Token, log[i-1].Token)})
		}
	}
	known := 0
	for _, c := range l.commits {
		e, applied := at[c.payload]
		if applied {
			known++
		}
		switch {
		case c.res.Err == nil && !applied:
			found = append(found, damage{F1, fmt.Sprintf("commit %d under token %d was acknowledged and is not in the log", c.number, c.fence.Token)})
		case driver.NotApplied(c.res.Err) && applied:
			found = append(found, damage{E1, fmt.Sprintf("commit %d under token %d was answered %q and is entry %d of the log", c.number, c.fence.Token, c.res.Err, e.Seq)})
		case applied && (e.Token != c.fence.Token || e.Number != c.number):
			found = append(found, damage{L1, fmt.Sprintf("entry %d has token %d and number %d; its commit had %d and %d", e.Seq, e.Token, e.Number, c.fence.Token, c.number)})
		}
	}
	if known != len(at) {
		found = append(found, damage{L1, fmt.Sprintf("the log has %d entries that nobody wrote", len(at)-known)})
	}
	var acknowledged []spanning
	for _, c := range l.commits {
		if c.res.Err == nil {
			acknowledged = append(acknowledged, spanning{c.start, c.end, int64(c.number)})
		}
	}
	for earlier, later := range backwards(acknowledged) {
		found = append(found, damage{F1, fmt.Sprintf("commit %d was accepted after commit %d had been acknowledged", later, earlier)})
	}
	return found
}

// spanning is a call that was acknowledged, and the number that it was given.
type spanning struct{ start, end, number int64 }

// backwards yields the numbers of calls that began after a call with a higher
// number had ended, after the highest such number.
func backwards(calls []spanning) iter.Seq2[int64, int64] {
	return func(yield func(earlier, later int64) bool) {
		begun := slices.SortedFunc(slices.Values(calls), func(a, b spanning) int { return cmp.Compare(a.start, b.start) })
		ended := slices.SortedFunc(slices.Values(calls), func(a, b spanning) int { return cmp.Compare(a.end, b.end) })
		var highest int64
		for _, call := range begun {
			for len(ended) > 0 && ended[0].end < call.start {
				highest = max(highest, ended[0].number)
				ended = ended[1:]
			}
			if highest > call.number && !yield(highest, call.number) {
				return
			}
		}
	}
}

// judge fails the case for what a ledger shows, at most five of each.
func (f *fixture) judge(l *ledger, shard driver.ShardID) {
	f.t.Helper()
	said := map[Rule]int{}
	for _, d := range l.check(f.log(shard, 0)) {
		if said[d.rule]++; said[d.rule] <= 5 {
			f.broken(d.rule, "shard %q: %s", shard, d.text)
		}
	}
}
