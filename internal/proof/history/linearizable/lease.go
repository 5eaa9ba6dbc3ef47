package linearizable

import (
	"cmp"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
)

// record is a shard's record in the models: its owner, the former owner (rule A3), and the highest
// token granted. After a grant with an unknown outcome, open is set, and the token is unknown but
// greater than the floor.
type record struct {
	owner, from driver.Owner
	open        bool
	floor       driver.Token
}

// holds reports whether the record can equal o. If so, holds also returns the record with a known
// token.
func (r record) holds(o driver.Owner) (record, bool) {
	if !r.open {
		return r, r.owner == o
	}
	if o.Session != r.owner.Session || o.Token <= r.floor {
		return r, false
	}
	r.owner, r.floor, r.open = o, o.Token, false
	return r, true
}

// current reports whether the fence can be the shard's current grant.
func (r record) current(f driver.Fence) (record, bool) {
	return r.holds(driver.Owner{Session: f.Session, Token: f.Token})
}

// grant makes session the owner. Token 0 means an unknown token. If a known token is not greater
// than all earlier tokens, grant returns false (rule A2).
func (r record) grant(session driver.SessionID, token driver.Token) (record, bool) {
	floor := r.floor
	if r.open {
		floor++
	}
	next := record{owner: driver.Owner{Session: session, Token: token}, from: r.owner, floor: token}
	if token == 0 {
		next.open, next.floor = true, floor
		return next, true
	}
	return next, token > floor
}

// take is the step function for an acquire or a transfer. It gives the record a new owner and the
// token from the reply, or token 0 if there is no reply. It also reports whether the operation
// found that an earlier attempt had succeeded.
func (r record) take(op *history.Operation) (next record, repeated, ok bool) {
	receiver, from := op.Session, op.Seen
	if op.Kind == history.Transfer {
		receiver, from = op.Target, driver.Owner{Session: op.Fence.Session, Token: op.Fence.Token}
	}
	if op.Outcome == history.OK {
		if op.Granted.Session != receiver {
			return r, false, false
		}
		if n, ok := r.current(op.Granted); ok && n.from == from {
			return n, true, true
		}
	}
	n, ok := r.holds(from)
	if !ok {
		return r, false, false
	}
	next, ok = n.grant(receiver, op.Granted.Token)
	return next, false, ok
}

// step is the step function of the fenced-lease model. It returns the record after an operation,
// and reports whether the operation's outcome was possible.
//
// In the model, an operation with an unknown outcome takes effect whenever it can. An operation
// that never took effect is covered too, because the order may put it last.
func (r record) step(op *history.Operation) (record, bool) {
	switch {
	case open(op):
		return r.attempt(op), true
	case op.Outcome == history.OK:
		return r.succeed(op)
	}
	return r.refuse(op)
}

func (r record) attempt(op *history.Operation) record {
	switch op.Kind {
	case history.Acquire, history.Transfer:
		if next, _, ok := r.take(op); ok {
			return next
		}
	case history.Release:
		return r.release(op.Fence)
	default: // the others change no lease
	}
	return r
}

func (r record) succeed(op *history.Operation) (record, bool) {
	switch op.Kind {
	case history.Acquire, history.Transfer:
		next, _, ok := r.take(op)
		return next, ok
	case history.Release:
		return r.release(op.Fence), true
	case history.Commit:
		return r.current(op.Fence)
	default:
		return r, true
	}
}

// refuse checks the refusal reasons that depend on the record. The reason "fenced" is possible only
// if the fence is dead, "conflict" only if the fence is not dead (rule F2), and "held" only if the
// record does not match.
func (r record) refuse(op *history.Operation) (record, bool) {
	switch op.Reason {
	case history.ReasonHeld:
		free := op.Current == op.Seen && op.Current.Session == ""
		next, ok := r.holds(op.Current)
		return next, ok && !free
	case history.ReasonFenced:
		if _, alive := r.current(op.Fence); alive {
			return r, false
		}
		if op.Current != (driver.Owner{}) {
			return r.holds(op.Current)
		}
	case history.ReasonNumber, history.ReasonConflict:
		return r.current(op.Fence)
	}
	return r, true
}

// release frees the shard only if f is its current lease, and keeps the token (rule R1).
func (r record) release(f driver.Fence) record {
	if n, ok := r.current(f); ok {
		n.owner.Session = ""
		n.from = driver.Owner{}
		return n
	}
	return r
}

// String returns the record's text for Draw's page.
func (r record) String() string {
	if r.open {
		return fmt.Sprintf("%s: above %d", r.owner.Session, r.floor)
	}
	return fmt.Sprintf("%s:%d", cmp.Or(r.owner.Session, "nobody"), r.owner.Token)
}
