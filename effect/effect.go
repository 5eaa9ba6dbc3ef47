package effect

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
	"unicode"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/boundjson"
	"github.com/tenure-go/tenure/internal/errtext"
)

// maxKey is the largest size of an effect's key, in bytes.
const maxKey = 256

// maxReason is the largest size of Effect.Reason and Effect.Author, in bytes. Longer text is cut.
const maxReason = 500

// Prefix begins the keys of all items that this package writes to a shard. An application must not
// write keys that begin with it.
const Prefix = "effect/"

// The prefixes of the items' keys. Every effect has a record. A copy of an open effect's record is
// in the index of open effects. An ended effect is also in the index of ends, oldest first.
const (
	recordPrefix = Prefix + "e/"
	openPrefix   = Prefix + "o/"
	endPrefix    = Prefix + "t/"
)

// maxRecord is larger than any record, in bytes.
const maxRecord = 2*MaxMaxResult + 16<<10

// maxOpen is larger than the record of any open effect, in bytes. Such a record has no result.
const maxOpen = 8 << 10

// State is the progress of an effect. Begun, InDoubt and Repeat are open.
type State string

// The states of an effect.
const (
	// Begun means the intent is written. An attempt may be in progress, or may have had any
	// outcome.
	Begun State = "begun"
	// InDoubt means it is unknown whether the effect happened. This or a new leader's Resolve, or a
	// person, decides.
	InDoubt State = "in doubt"
	// Repeat means a decision lets the next Do attempt the effect again, with the same idempotency
	// key.
	Repeat State = "repeat"
	// Done means the effect happened, once.
	Done State = "done"
	// Failed means the effect did not happen, or was compensated. It is not attempted again.
	Failed State = "failed"
)

// Open reports whether an effect in this state is still open.
func (s State) Open() bool { return s == Begun || s == InDoubt || s == Repeat }

// Effect is the store's record of an effect.
type Effect struct {
	Key   string `json:"key"`
	ID    string `json:"id"` // the idempotency key, the same in every attempt
	State State  `json:"state"`
	// Token of the lease that wrote this state.
	Token core.Token `json:"token"`
	// Began is when the intent was first written. Ended is when the outcome was written. Both are
	// times of the leader's clock. Ended is zero while the effect is open.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	// Attempts is the number of recorded calls of fn that returned.
	Attempts int `json:"attempts,omitempty"`
	// Repeats is the number of decisions to repeat the effect.
	Repeats int    `json:"repeats,omitempty"`
	Result  []byte `json:"result,omitempty"` // returned by fn, or given by a decision
	// NotKept is the size of a result that was not kept because it exceeded Options.MaxResult or
	// the store's limit. The sidecar cuts larger results to MaxMaxResult+1 bytes first.
	NotKept int    `json:"not_kept,omitempty"`
	Reason  string `json:"reason,omitempty"` // why it is in doubt, to be repeated, or failed
	Author  string `json:"author,omitempty"` // the person who last decided; empty if no person did

	undone bool // in state Repeat: certainly no attempt did anything
}

// Func makes an effect. It passes id, the idempotency key, to the other side, and returns when ctx
// ends. The error tells the ledger what is known about the effect:
//
//   - nil: the effect happened, and the ledger keeps the result.
//   - [NotDone]: the effect certainly did not happen, and another attempt may succeed. See also
//     [NotSent].
//   - [Refused]: the effect certainly did not happen, and no attempt will succeed.
//   - any other error: it is unknown whether it happened.
type Func func(ctx context.Context, id string) (result []byte, err error)

// Decision is the decision about an effect in doubt. The zero Decision leaves the effect in doubt.
type Decision struct {
	// State is Done, with Result, or Failed if the effect did not happen or was compensated. It is
	// Repeat if another attempt is harmless, or InDoubt to leave the effect for a person. An
	// attempt is harmless if the other side honours the idempotency key, or if the effect did not
	// happen and no longer can.
	State  State
	Result []byte
	Reason string // at most 500 bytes are kept
}

// The errors that Do's errors match.
var (
	// ErrInDoubt means it is unknown whether the effect happened. The effect is not attempted again
	// until Resolve, the next leader or a person decides. See InDoubtError.
	ErrInDoubt = errors.New("in doubt")
	// ErrFailed means the effect did not happen, or was compensated, and is not attempted again.
	// See FailedError.
	ErrFailed = errors.New("failed")
	// ErrFull means Options.MaxInDoubt effects are in doubt, so no new effect begins. Nothing
	// happened.
	ErrFull error = errtext.NotApplied("too many effects in doubt")
	// ErrNotKept means the effect happened, but its result exceeded Options.MaxResult or the
	// store's limit and was not kept. The first Do returns the result with the error.
	ErrNotKept = errors.New("result not kept")
)

// InDoubtError names an effect whose outcome is unknown. It matches ErrInDoubt and core.ErrUnknown.
// If the lease ended during the call, it also matches core.ErrLost.
type InDoubtError struct {
	Shard  string
	Effect Effect
	lost   bool
}

func (e *InDoubtError) Error() string {
	return fmt.Sprintf("tenure: effect %q of shard %q: %v since %s: %q: it is not attempted again before it is decided", e.Effect.Key, e.Shard,
		ErrInDoubt, e.Effect.Began.Format(time.RFC3339), e.Effect.Reason)
}

// Is reports whether target is ErrInDoubt, core.ErrUnknown or, if the lease ended, core.ErrLost.
func (e *InDoubtError) Is(target error) bool {
	return target == ErrInDoubt || target == core.ErrUnknown || e.lost && target == core.ErrLost
}

// FailedError names an effect that did not happen, or was compensated. It matches ErrFailed. In the
// call of Do that made the attempt, it also matches fn's error.
type FailedError struct {
	Shard  string
	Effect Effect
	Err    error // fn's error; nil if the failure was recorded earlier
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("tenure: effect %q of shard %q: %v: %q", e.Effect.Key, e.Shard, ErrFailed, e.Effect.Reason)
}

// Is reports whether target is ErrFailed.
func (e *FailedError) Is(target error) bool { return target == ErrFailed }

func (e *FailedError) Unwrap() error { return e.Err }

// certain wraps an error of a Func after which the effect certainly did not happen.
type certain struct {
	err    error
	final  bool
	unsent bool // certain only if no HTTP client had a connection
}

func (c *certain) Error() string { return c.err.Error() }
func (c *certain) Unwrap() error { return c.err }

// NotDone marks an error of a [Func] after which the effect certainly has not happened, and will
// not happen. For example, the connection was refused, or the other side answered that it did
// nothing. The ledger attempts the effect again after a back-off. If err is nil, NotDone returns
// nil.
func NotDone(err error) error { return certainly(err, false) }

// Refused marks an error of a [Func] after which the effect certainly did not happen, and must not
// be attempted again. For example, a card was declined, or an address does not exist. If err is
// nil, Refused returns nil.
func Refused(err error) error { return certainly(err, true) }

func certainly(err error, final bool) error {
	if err == nil {
		return nil
	}
	return &certain{err: err, final: final}
}

// NotSent marks an HTTP client's error with [NotDone] if the client had no connection: it could not
// look up the name, or could not dial. It returns any other error unchanged, because a request may
// have been sent. If a client had a connection earlier in the same call of the [Func], under its
// context, the outcome is unknown. A request may have been redirected, or http.Transport may have
// repeated it.
func NotSent(err error) error {
	for at := err; at != nil; at = errors.Unwrap(at) { // not joined errors: one says nothing about the others
		_, lookup := at.(*net.DNSError)                                   //nolint:errorlint // as on the next line
		if op, ok := at.(*net.OpError); lookup || ok && op.Op == "dial" { //nolint:errorlint // the loop unwraps
			return &certain{err: err, unsent: true}
		}
	}
	return err
}

// ID returns the idempotency key of an effect, which is the same in every attempt, process and
// lease. It has the form of a UUID (version 8, RFC 9562), with 122 bits of the SHA-256 of scope and
// key. See Options.Scope.
func ID(scope, key string) string {
	h := sha256.Sum256([]byte("tenure effect\x00" + scope + "\x00" + key)) // neither has a zero byte
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// CheckKey validates the key of an effect: parts of letters, digits, "_", "-" and ".", joined by
// "/", at most 256 bytes in total. The error matches core.ErrInvalid.
func CheckKey(key string) error {
	if len(key) > maxKey {
		return fmt.Errorf("tenure: %w: the key %.40q... of an effect has %d bytes: the limit is %d: use a hash of it",
			core.ErrInvalid, key, len(key), maxKey)
	}
	return driver.CheckKey(key)
}

// clean makes external text safe for a record and a log line.
func clean(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxReason)], "?")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// encode returns the value of a record.
func encode(e Effect) []byte {
	value, err := json.Marshal(stored{Effect: e, Undone: e.undone})
	if err != nil {
		panic("tenure: effect: a record cannot be encoded: " + err.Error()) // only texts and numbers
	}
	return value
}

// stored is an Effect without its key, which is part of the item's key. The ID stays the same in
// another shard.
type stored struct {
	Effect
	NoKey  string `json:"key,omitempty"` // always empty: it hides Effect.Key
	Undone bool   `json:"undone,omitempty"`
}

// decode reads a record. It trusts nothing in the record, because anyone who can write to the store
// may have written it.
func decode(item *core.Item, prefix, scope string) (Effect, error) {
	key := strings.TrimPrefix(item.Key, prefix)
	damaged := func(format string, args ...any) error {
		return fmt.Errorf("tenure: the record %.300q of an effect: %w: %s", item.Key, core.ErrDamaged, fmt.Sprintf(format, args...))
	}
	var s stored
	switch err := CheckKey(key); {
	case err != nil:
		return Effect{}, damaged("its key is not one of an effect")
	case item.Damaged != nil:
		return Effect{}, damaged("%s", item.Damaged.Why)
	}
	if err := boundjson.Unmarshal(item.Value, maxRecord, 64, &s); err != nil {
		return Effect{}, damaged("%.200q", err.Error())
	}
	if n := min(s.Attempts, s.Repeats, s.NotKept); n < 0 {
		return Effect{}, damaged("it counts %d of something", n)
	}
	if !s.State.Open() && s.State != Done && s.State != Failed {
		return Effect{}, damaged("its state %.40q is not known", s.State)
	}
	if len(s.ID) > maxKey || clean(s.ID) != s.ID {
		return Effect{}, damaged("its idempotency key %.40q is not valid", s.ID)
	}
	s.Reason, s.Author = clean(s.Reason), clean(s.Author)
	s.Key, s.ID, s.undone = key, cmp.Or(s.ID, ID(scope, key)), s.Undone && s.State == Repeat
	return s.Effect, nil
}
