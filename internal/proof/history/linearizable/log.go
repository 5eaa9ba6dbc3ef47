package linearizable

import (
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
)

// fencedLog is a shard's record and head in the log's model. The model omits the entries, which the
// check log-is-a-prefix compares. An entry's number and nonce identify its commit.
type fencedLog struct {
	record
	head driver.Head // without Oldest, which separate cases check (rule L3)
}

// step is the step function of the fenced-log model. A commit takes effect if and only if its fence
// is current and its number is the next number (rule F1). Grants and reads show the head.
func (l fencedLog) step(op *history.Operation) (fencedLog, bool) {
	before := l.record
	r, ok := l.record.step(op)
	if !ok {
		return l, false
	}
	l.record = r
	switch op.Kind {
	case history.Acquire, history.Transfer:
		// A repeated claim may read the head in a separate step, after the next owner has changed
		// it.
		known := op.Outcome == history.OK && op.Head.Token <= op.Granted.Token
		return l, !known || l.at(op.Head)
	case history.Read:
		return l, l.at(op.Head)
	case history.Commit:
		next := op.Number == l.head.Number+1
		switch {
		case op.Outcome == history.OK:
			l.head = l.after(op)
			return l, next && l.at(op.Head)
		case open(op):
			if n, current := before.current(op.Fence); current && next {
				l.record, l.head = n, l.after(op)
			}
		case op.Reason == history.ReasonNumber:
			return l, !next
		}
	default: // the others do not affect the log
	}
	return l, true
}

func (l fencedLog) at(h driver.Head) bool {
	h.Oldest = 0
	return l.head == h
}

func (l fencedLog) after(op *history.Operation) driver.Head {
	return driver.Head{Number: op.Number, Seq: l.head.Seq + driver.Seq(len(op.Entries)), Nonce: op.Nonce,
		Token: op.Fence.Token}
}

// String returns the log's text for Draw's page.
func (l fencedLog) String() string {
	return fmt.Sprintf("%v, number %d, seq %d", l.record, l.head.Number, l.head.Seq)
}
