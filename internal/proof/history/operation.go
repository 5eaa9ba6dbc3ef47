package history

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// Kind is an Operation's kind.
type Kind string

// These are the kinds of operations. The first group contains calls to a driver.Session or Backend,
// with one Operation for each item of a batch. The second group contains events that a process
// records about itself, or that a test records about a process.
const (
	Join     Kind = "join"     // Session, Node, Supersede
	Acquire  Kind = "acquire"  // Session, Seen, Preempt -> Granted, Head; refused: Current
	Transfer Kind = "transfer" // Session, Fence, Target -> Granted, Head; refused: Current
	Release  Kind = "release"  // Session, Fence
	Commit   Kind = "commit"   // Session, Fence, Number, Nonce, Entries -> Head; refused: Current
	Evict    Kind = "evict"    // Session, Target; refused also when the record had changed or was gone
	Leave    Kind = "leave"    // Session
	Read     Kind = "read"     // After -> Entries, Head

	Trust    Kind = "trust"    // Fence, Until: the process trusts the lease from Call to Until
	Distrust Kind = "distrust" // Fence: the process stopped trusting the lease at Call
	Exit     Kind = "exit"     // Ended: the named process had ended at Call
	Apply    Kind = "apply"    // Entries: a follower applied one entry
	Restore  Kind = "restore"  // After: a follower continues after that entry, from a snapshot
)

// Outcome is what is known about how an Operation ended.
type Outcome string

// These are the outcomes. An Operation without an outcome did not return.
const (
	OK      Outcome = "ok"      // took effect
	Refused Outcome = "refused" // certainly had no effect; see Operation.Reason
	Unknown Outcome = "unknown" // took effect at some time after its call, or never
)

// These are the reasons that Check examines. Any other reason is plain text.
const (
	ReasonHeld     = "held"     // an acquire: ErrHeld
	ReasonFenced   = "fenced"   // a commit or transfer: ErrFenced
	ReasonNumber   = "number"   // a commit: a ConflictError of the number
	ReasonConflict = "conflict" // a commit: a ConflictError of an operation
)

// Operation is one action of a process, with the interval in which it happened. An Operation is a
// plain value. Each Kind's comment lists the fields that the kind uses.
type Operation struct {
	Process string         `json:"process"` // one run of a process, such as "b.2"
	ID      int64          `json:"id"`      // number of the process's call, from 1
	Kind    Kind           `json:"kind"`
	Shard   driver.ShardID `json:"shard,omitempty"`
	Call    Instant        `json:"call"`
	Return  Instant        `json:"return,omitempty"` // 0 if it did not return
	Outcome Outcome        `json:"outcome,omitempty"`
	Reason  string         `json:"reason,omitempty"` // for a refusal or an unknown outcome

	Session   driver.SessionID `json:"session,omitempty"` // the caller's
	Target    driver.SessionID `json:"target,omitempty"`  // the successor, or the evicted session
	Node      string           `json:"node,omitempty"`
	Supersede bool             `json:"supersede,omitempty"`
	Seen      driver.Owner     `json:"seen,omitzero"`
	Preempt   bool             `json:"preempt,omitempty"`
	Fence     driver.Fence     `json:"fence,omitzero"`
	Number    driver.WriteNo   `json:"number,omitempty"`
	Nonce     driver.Nonce     `json:"nonce,omitempty"`
	After     driver.Seq       `json:"after,omitempty"`
	// Entries are the entries that a commit appends. The entries are numbered only if the commit is
	// ok.
	Entries []Entry `json:"entries,omitempty"`
	Until   Instant `json:"until,omitempty"`
	Ended   string  `json:"ended,omitempty"`

	Granted driver.Fence `json:"granted,omitzero"`
	Head    driver.Head  `json:"head,omitzero"`
	Current driver.Owner `json:"current,omitzero"` // the record that caused a refusal, if the store returned one
}

// Entry is one entry in a shard's log. A digest replaces the payload.
type Entry struct {
	Seq    driver.Seq     `json:"seq,omitempty"`
	Token  driver.Token   `json:"token"`
	Number driver.WriteNo `json:"number"`
	Digest string         `json:"digest"`
}

// Digest returns the digest that represents a payload in a history.
func Digest(payload []byte) string {
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:8])
}

// open reports whether the outcome is unknown.
func (o *Operation) open() bool { return o.Outcome != OK && o.Outcome != Refused }

func (o *Operation) by(at Instant) bool { return o.Return != 0 && o.Return < at }

// String describes the operation in one line, without its times.
func (o Operation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s#%d %s", o.Process, o.ID, o.Kind)
	switch o.Kind {
	case Join:
		fmt.Fprintf(&b, " %s at %q", o.Session, o.Node)
	case Acquire:
		fmt.Fprintf(&b, " by %s, seen %s", o.Session, owner(o.Seen))
		if o.Preempt {
			b.WriteString(", preempting")
		}
	case Transfer:
		fmt.Fprintf(&b, " of %s to %s", lease(o.Fence), o.Target)
	case Release, Distrust:
		fmt.Fprintf(&b, " of %s", lease(o.Fence))
	case Trust:
		fmt.Fprintf(&b, " in %s until %d", lease(o.Fence), o.Until)
	case Commit:
		fmt.Fprintf(&b, " number %d under %s, %d entries", o.Number, lease(o.Fence), len(o.Entries))
	case Evict:
		fmt.Fprintf(&b, " of %s", o.Target)
	case Leave:
		fmt.Fprintf(&b, " of %s", o.Session)
	case Read:
		fmt.Fprintf(&b, " after %d", o.After)
	case Apply:
		for _, e := range o.Entries {
			fmt.Fprintf(&b, " entry %d", e.Seq)
		}
	case Restore:
		fmt.Fprintf(&b, " at %d", o.After)
	case Exit:
		fmt.Fprintf(&b, " of %s", o.Ended)
	}
	b.WriteString(" -> ")
	switch {
	case o.Outcome == OK:
		b.WriteString("ok")
		switch o.Kind {
		case Acquire, Transfer:
			fmt.Fprintf(&b, ", %s", lease(o.Granted))
		case Read:
			fmt.Fprintf(&b, ", %d entries, head number %d seq %d", len(o.Entries), o.Head.Number, o.Head.Seq)
		case Commit:
			fmt.Fprintf(&b, ", head number %d seq %d", o.Head.Number, o.Head.Seq)
		default: // the others return nothing
		}
	case o.Outcome == Refused:
		fmt.Fprintf(&b, "refused: %s", o.Reason)
		if o.Current != (driver.Owner{}) {
			fmt.Fprintf(&b, " by %s", owner(o.Current))
		}
	default:
		b.WriteString("unknown")
	}
	return b.String()
}

func lease(f driver.Fence) string { return fmt.Sprintf("%s:%d", f.Session, f.Token) }

func owner(o driver.Owner) string {
	if o.Session == "" {
		return fmt.Sprintf("nobody:%d", o.Token)
	}
	return fmt.Sprintf("%s:%d", o.Session, o.Token)
}
