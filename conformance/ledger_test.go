package conformance

import (
	"errors"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
)

// TestLedger checks the validator itself: histories that an order of the store
// explains, and others that none does.
func TestLedger(t *testing.T) {
	t.Parallel()
	fence := func(token driver.Token) driver.Fence {
		return driver.Fence{Shard: "s", Session: "a", Token: token}
	}
	granted := func(start, end int64, token driver.Token, number driver.WriteNo) granting {
		return granting{start, end, driver.AcquireResult{Fence: fence(token), Head: driver.Head{Number: number}}}
	}
	wrote := func(start, end int64, token driver.Token, number driver.WriteNo, payload string, err error) committing {
		return committing{start, end, fence(token), number, payload, driver.CommitResult{Err: err}}
	}
	entry := func(seq driver.Seq, token driver.Token, number driver.WriteNo, payload string) driver.Entry {
		return driver.Entry{Shard: "s", Seq: seq, Token: token, Number: number, Payload: []byte(payload)}
	}
	lost := errors.New("connection lost")
	for _, c := range []struct {
		name string
		l    *ledger
		log  []driver.Entry
		want Rule
	}{
		{"a takeover with the former holder's commit before it", &ledger{
			grants:  []granting{granted(1, 2, 1, 0), granted(3, 6, 2, 1)},
			commits: []committing{wrote(4, 5, 1, 1, "x", nil), wrote(7, 8, 2, 2, "y", nil), wrote(9, 10, 1, 3, "z", driver.ErrFenced)},
		}, []driver.Entry{entry(1, 1, 1, "x"), entry(2, 2, 2, "y")}, ""},
		{"a commit without a reply, applied", &ledger{
			grants:  []granting{granted(1, 2, 1, 0)},
			commits: []committing{wrote(3, 4, 1, 1, "x", lost)},
		}, []driver.Entry{entry(1, 1, 1, "x")}, ""},
		{"a grant repeated after a commit", &ledger{
			grants:  []granting{granted(1, 2, 1, 0), granted(5, 6, 1, 1)},
			commits: []committing{wrote(3, 4, 1, 1, "x", nil)},
		}, []driver.Entry{entry(1, 1, 1, "x")}, ""},
		{"fenced by a takeover without a reply", &ledger{
			grants:  []granting{granted(1, 2, 1, 0), {3, 4, driver.AcquireResult{Err: lost}}},
			commits: []committing{wrote(5, 6, 1, 1, "x", driver.ErrFenced)},
		}, nil, ""},
		{"one token for two sessions", &ledger{
			grants: []granting{granted(1, 2, 1, 0), {3, 4, driver.AcquireResult{Fence: driver.Fence{Shard: "s", Session: "b", Token: 1}}}},
		}, nil, A1},
		{"a lower token later", &ledger{grants: []granting{granted(1, 2, 5, 0), granted(3, 4, 4, 0)}}, nil, A2},
		{"a commit sent after a takeover", &ledger{
			grants:  []granting{granted(1, 2, 1, 0), granted(3, 4, 2, 0)},
			commits: []committing{wrote(5, 6, 1, 1, "x", nil)},
		}, []driver.Entry{entry(1, 1, 1, "x")}, F1},
		{"a commit beyond the head that its successor was granted", &ledger{
			grants:  []granting{granted(1, 2, 1, 0), granted(4, 5, 2, 0)},
			commits: []committing{wrote(3, 6, 1, 1, "x", nil)},
		}, []driver.Entry{entry(1, 1, 1, "x")}, F1},
		{"a commit after a release", &ledger{
			grants:  []granting{granted(1, 2, 1, 0)},
			ends:    []ending{{3, 4, fence(1), nil}},
			commits: []committing{wrote(5, 6, 1, 1, "x", nil)},
		}, []driver.Entry{entry(1, 1, 1, "x")}, F1},
		{"fenced for no reason", &ledger{
			grants:  []granting{granted(1, 2, 1, 0)},
			commits: []committing{wrote(3, 4, 1, 1, "x", driver.ErrFenced)},
		}, nil, F1},
		{"an acknowledged commit that is lost", &ledger{
			grants:  []granting{granted(1, 2, 1, 0)},
			commits: []committing{wrote(3, 4, 1, 1, "x", nil)},
		}, nil, F1},
		{"a refused commit that is there", &ledger{
			grants:  []granting{granted(1, 2, 1, 0)},
			commits: []committing{wrote(3, 4, 1, 1, "x", driver.ErrConflict)},
		}, []driver.Entry{entry(1, 1, 1, "x")}, E1},
		{"a commit applied twice", &ledger{
			grants:  []granting{granted(1, 2, 1, 0)},
			commits: []committing{wrote(3, 4, 1, 1, "x", nil)},
		}, []driver.Entry{entry(1, 1, 1, "x"), entry(2, 1, 2, "x")}, F1},
		{"a commit without a reply, and the next with its number", &ledger{
			grants:  []granting{granted(1, 2, 1, 0)},
			commits: []committing{wrote(3, 4, 1, 1, "x", lost), wrote(5, 6, 1, 1, "y", nil)},
		}, []driver.Entry{entry(1, 1, 1, "x"), entry(2, 1, 1, "y")}, F1},
		{"a log that begins later", &ledger{
			grants:  []granting{granted(1, 2, 1, 0)},
			commits: []committing{wrote(3, 4, 1, 1, "x", nil)},
		}, []driver.Entry{entry(3, 1, 1, "x")}, L1},
		{"commits numbered against their order", &ledger{
			grants:  []granting{granted(1, 2, 1, 0)},
			commits: []committing{wrote(3, 4, 1, 2, "y", nil), wrote(5, 6, 1, 1, "x", nil)},
		}, []driver.Entry{entry(1, 1, 1, "x"), entry(2, 1, 2, "y")}, F1},
		{"a gap", &ledger{
			grants:  []granting{granted(1, 2, 1, 0)},
			commits: []committing{wrote(3, 4, 1, 1, "x", nil), wrote(5, 6, 1, 2, "y", nil)},
		}, []driver.Entry{entry(1, 1, 1, "x"), entry(3, 1, 2, "y")}, L1},
		{"an entry of nobody", &ledger{}, []driver.Entry{entry(1, 1, 1, "x")}, L1},
		{"a token that goes down", &ledger{
			grants:  []granting{granted(1, 8, 1, 0), granted(2, 8, 2, 0)},
			commits: []committing{wrote(3, 7, 2, 1, "x", lost), wrote(3, 7, 1, 2, "y", lost)},
		}, []driver.Entry{entry(1, 2, 1, "x"), entry(2, 1, 2, "y")}, L1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			found := c.l.check(c.log)
			if c.want == "" && len(found) > 0 {
				t.Errorf("an order explains it, and the validator says %v", found)
			}
			for _, d := range found {
				if d.rule == c.want {
					return
				}
			}
			if c.want != "" {
				t.Errorf("the validator says %v; want rule %s", found, c.want)
			}
		})
	}
}
