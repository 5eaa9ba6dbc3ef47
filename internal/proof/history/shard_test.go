package history_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	. "github.com/tenure-go/tenure/internal/proof/history"
)

// TestOneShard checks short histories of one shard, each with the shard's whole log at the end.
// Some order of the operations explains each good history, and no order explains a bad one.
func TestOneShard(t *testing.T) {
	t.Parallel()
	op := func(k Kind, start, end Instant, err error) Operation {
		o := Operation{Kind: k, Shard: "s", Call: start, Return: end, Outcome: OK}
		switch {
		case errors.Is(err, driver.ErrFenced):
			o.Outcome, o.Reason = Refused, ReasonFenced
		case driver.NotApplied(err):
			o.Outcome = Refused
		case err != nil:
			o.Outcome = Unknown
		}
		return o
	}
	grantedTo := func(
		session driver.SessionID, start, end Instant, token driver.Token, number driver.WriteNo,
	) Operation {
		o := op(Acquire, start, end, nil)
		o.Session, o.Granted, o.Head.Number = session, fence(session, token), number
		return o
	}
	granted := func(start, end Instant, token driver.Token, number driver.WriteNo) Operation {
		return grantedTo("a", start, end, token, number)
	}
	// wrote is a commit of one entry, which is entry seq if it was acknowledged.
	wrote := func(start, end Instant, token driver.Token, number driver.WriteNo, payload string, err error) Operation {
		o := op(Commit, start, end, err)
		o.Fence, o.Number, o.Nonce = fence("a", token), number, driver.Nonce(start)
		o.Entries = []Entry{{Token: token, Number: number, Digest: payload}}
		if err == nil {
			o.Entries[0].Seq = driver.Seq(number)
			o.Head = driver.Head{Number: number, Seq: driver.Seq(number), Nonce: o.Nonce, Token: token}
		}
		return o
	}
	entry := func(seq driver.Seq, token driver.Token, number driver.WriteNo, payload string) Entry {
		return Entry{Seq: seq, Token: token, Number: number, Digest: payload}
	}
	released := op(Release, 3, 4, nil)
	released.Fence = fence("a", 1)
	lost := errors.New("connection lost")
	for _, c := range []struct {
		name string
		ops  []Operation
		log  []Entry
		want string // a rule
	}{
		{"a takeover with the former holder's commit before it", []Operation{
			granted(1, 2, 1, 0), granted(3, 6, 2, 1), wrote(4, 5, 1, 1, "x", nil), wrote(7, 8, 2, 2, "y", nil),
			wrote(9, 10, 1, 3, "z", driver.ErrFenced),
		}, []Entry{entry(1, 1, 1, "x"), entry(2, 2, 2, "y")}, ""},
		{"a commit without a reply, applied", []Operation{granted(1, 2, 1, 0), wrote(3, 4, 1, 1, "x", lost)},
			[]Entry{entry(1, 1, 1, "x")}, ""},
		{"a grant repeated after a commit", []Operation{granted(1, 2, 1, 0), granted(5, 6, 1, 1), wrote(3, 4, 1, 1, "x", nil)},
			[]Entry{entry(1, 1, 1, "x")}, ""},
		{"fenced by a takeover without a reply", []Operation{
			granted(1, 2, 1, 0), op(Acquire, 3, 4, lost), wrote(5, 6, 1, 1, "x", driver.ErrFenced),
		}, nil, ""},
		{"one token for two sessions", []Operation{granted(1, 2, 1, 0), grantedTo("b", 3, 4, 1, 0)}, nil, "S2"},
		{"a lower token later", []Operation{granted(1, 2, 5, 0), grantedTo("b", 3, 4, 4, 0)}, nil, "S2"},
		{"a commit sent after a takeover", []Operation{granted(1, 2, 1, 0), granted(3, 4, 2, 0), wrote(5, 6, 1, 1, "x", nil)},
			[]Entry{entry(1, 1, 1, "x")}, "S3"},
		{"a commit beyond the head that its successor was granted", []Operation{
			granted(1, 2, 1, 0), granted(4, 5, 2, 0), wrote(3, 6, 1, 1, "x", nil),
		}, []Entry{entry(1, 1, 1, "x")}, "F1"},
		{"a commit after a release", []Operation{granted(1, 2, 1, 0), released, wrote(5, 6, 1, 1, "x", nil)},
			[]Entry{entry(1, 1, 1, "x")}, "F1"},
		{"fenced for no reason", []Operation{granted(1, 2, 1, 0), wrote(3, 4, 1, 1, "x", driver.ErrFenced)}, nil, "F1"},
		{"an acknowledged commit that is lost", []Operation{granted(1, 2, 1, 0), wrote(3, 4, 1, 1, "x", nil)}, nil, "L2"},
		{"a refused commit that is there", []Operation{granted(1, 2, 1, 0), wrote(3, 4, 1, 1, "x", driver.ErrConflict)},
			[]Entry{entry(1, 1, 1, "x")}, "S16"},
		{"a commit applied twice", []Operation{granted(1, 2, 1, 0), wrote(3, 4, 1, 1, "x", nil)},
			[]Entry{entry(1, 1, 1, "x"), entry(2, 1, 1, "x")}, "S15"},
		{"a commit applied twice, under two numbers", []Operation{granted(1, 2, 1, 0), wrote(3, 4, 1, 1, "x", nil)},
			[]Entry{entry(1, 1, 1, "x"), entry(2, 1, 2, "x")}, "T3"},
		{"a commit without a reply, and the next with its number", []Operation{
			granted(1, 2, 1, 0), wrote(3, 4, 1, 1, "x", lost), wrote(5, 6, 1, 1, "y", nil),
		}, []Entry{entry(1, 1, 1, "x"), entry(2, 1, 1, "y")}, "S15"},
		{"a log that begins later", []Operation{granted(1, 2, 1, 0), wrote(3, 4, 1, 1, "x", nil)},
			[]Entry{entry(3, 1, 1, "x")}, "L2"},
		{"commits numbered against their order", []Operation{
			granted(1, 2, 1, 0), wrote(3, 4, 1, 2, "y", nil), wrote(5, 6, 1, 1, "x", nil),
		}, []Entry{entry(1, 1, 1, "x"), entry(2, 1, 2, "y")}, "S15"},
		{"a gap", []Operation{granted(1, 2, 1, 0), wrote(3, 4, 1, 1, "x", nil), wrote(5, 6, 1, 2, "y", nil)},
			[]Entry{entry(1, 1, 1, "x"), entry(3, 1, 2, "y")}, "L2"},
		{"an entry of nobody", nil, []Entry{entry(1, 1, 1, "x")}, "T3"},
		{"a token that goes down", []Operation{
			granted(1, 8, 1, 0), granted(2, 8, 2, 0), wrote(3, 7, 2, 1, "x", lost), wrote(3, 7, 1, 2, "y", lost),
		}, []Entry{entry(1, 2, 1, "x"), entry(2, 1, 2, "y")}, "T2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			read := op(Read, 20, 21, nil)
			read.Entries = c.log
			if n := len(c.log); n > 0 {
				read.Head = driver.Head{Seq: c.log[n-1].Seq, Number: c.log[n-1].Number}
			}
			found := Check(Merge(&History{Operations: append(slices.Clone(c.ops), read)}), nil)
			if c.want == "" && len(found) > 0 {
				t.Errorf("an order explains it, and the validators say %v", found)
			}
			if c.want != "" && !slices.ContainsFunc(found, func(f Finding) bool { return f.Rule == c.want }) {
				t.Errorf("the validators say %v; want rule %s", found, c.want)
			}
		})
	}
}
