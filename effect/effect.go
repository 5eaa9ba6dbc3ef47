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

// Prefix begins the keys of all items that this package writes into a shard. An application must
// not write keys with it.
const Prefix = "effect/"

// The prefixes of the items' keys. Every effect has a record. An open effect also has a copy of it
// in the index of open effects. An ended effect is also in the index of ends, oldest first.
const (
	recordPrefix = Prefix + "e/"
	openPrefix   = Prefix + "o/"
	endPrefix    = Prefix + "t/"
)

// maxRecord is larger than any record, in bytes.
const maxRecord = 2*MaxMaxResult + 16<<10

// maxOpen is larger than the record of any open effect, in bytes; it has no result.
const maxOpen = 8 << 10

// State is the progress of an effect. Begun, InDoubt and Repeat are open.
type State string

// The states of an effect.
const (
	// Begun: the intent is written. An attempt may be in progress, or may have had any outcome.
	Begun State = "begun"
	// InDoubt: it is unknown whether it happened. Resolve, of this or a new leader, or a person
	// decides.
	InDoubt State = "in doubt"
	// Repeat: the next Do attempts it, by a decision, with the same idempotency key.
	Repeat State = "repeat"
	// Done: it happened, once.
	Done State = "done"
	// Failed: it did not happen, or was compensated. It is not attempted again.
	Failed State = "failed"
)

// Open reports whether the effect has not ended.
func (s State) Open() bool { return s == Begun || s == InDoubt || s == Repeat }

// Effect is the store's record of an effect.
type Effect struct {
	Key   string `json:"key"`
	ID    string `json:"id"` // the idempotency key, the same in every attempt
	State State  `json:"state"`
	// Token of the lease that wrote this state.
	Token core.Token `json:"token"`
	// Began is when the intent was first written, and Ended when the outcome was written, both by
	// the leader's clock. Ended is zero while the effect is open.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	// Attempts is the number of recorded calls of fn that returned.
	Attempts int `json:"attempts,omitempty"`
	// Repeats is the number of decisions to repeat it.
	Repeats int    `json:"repeats,omitempty"`
	Result  []byte `json:"result,omitempty"` // returned by fn, or given by a decision
	// NotKept is the size of a result that was not kept because it was above Options.MaxResult or
	// above the store's limit. The sidecar cuts larger results to MaxMaxResult+1 bytes first.
	NotKept int    `json:"not_kept,omitempty"`
	Reason  string `json:"reason,omitempty"` // why it is in doubt, to be repeated, or failed
	Author  string `json:"author,omitempty"` // who last decided by hand; empty: no person did

	undone bool // in Repeat: certainly no attempt did anything
}

// Func makes an effect. It passes id, the idempotency key, to the other side, and returns when ctx
// ends. The error tells the ledger what is known:
//
//   - nil: the effect happened, and the result is kept.
//   - [NotDone]: the effect certainly did not happen, and another attempt may succeed. See also
//     [NotSent].
//   - [Refused]: the effect certainly did not happen, and no attempt will succeed.
//   - any other error: it is unknown whether it happened.
type Func func(ctx context.Context, id string) (result []byte, err error)

// Decision is the decision about an effect in doubt. The zero Decision leaves it in doubt.
type Decision struct {
	// State is Done, with Result, or Failed if the effect did not happen or was compensated. It is
	// Repeat if another attempt does no harm, or InDoubt to leave the effect for a person. An
	// attempt does no harm if the other side honours the idempotency key, or if the effect did not
	// happen and no longer can.
	State  State
	Result []byte
	Reason string // at most 500 bytes are kept
}

// Errors of Do. See the types of the same names.
var (
	// ErrInDoubt: it is unknown whether the effect happened. It is not attempted again until
	// Resolve, the next leader or a person decides. See InDoubtError.
	ErrInDoubt = errors.New("in doubt")
	// ErrFailed: the effect did not happen, or was compensated, and is not attempted again. See
	// FailedError.
	ErrFailed = errors.New("failed")
	// ErrFull: Options.MaxInDoubt effects are in doubt, so no new one begins. Nothing happened.
	ErrFull error = errtext.NotApplied("too many effects in doubt")
	// ErrNotKept: the effect happened, and its result was above Options.MaxResult or above the
	// store's limit, so that it is not kept. The first Do returns it beside the error.
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

// FailedError names an effect that did not happen, or was compensated. It matches ErrFailed,
// and, in the call of Do that made the attempt, the error of fn.
type FailedError struct {
	Shard  string
	Effect Effect
	Err    error // the error of fn; nil if the failure was recorded earlier
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

// NotDone marks an error of a [Func] after which the effect certainly did not happen, and will not.
// For example, the connection was refused, or the other side answered that it did nothing. The
// ledger attempts the effect again after a back-off. If err is nil, NotDone returns nil.
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

// NotSent returns [NotDone] of an HTTP client's error if the client had no connection: it could not
// look up the name, or could not dial. It returns any other error unchanged, because a request may
// have been sent. If a client had a connection earlier in the same call of the [Func], under its
// context, the outcome is unknown. A request may have been redirected, or repeated by
// http.Transport.
func NotSent(err error) error {
	for at := err; at != nil; at = errors.Unwrap(at) { // a join of errors is not unwrapped: one of them says nothing about the others
		_, lookup := at.(*net.DNSError)                                   //nolint:errorlint // as is the next line
		if op, ok := at.(*net.OpError); lookup || ok && op.Op == "dial" { //nolint:errorlint // the loop unwraps
			return &certain{err: err, unsent: true}
		}
	}
	return err
}

// ID returns the idempotency key of an effect: the same in every attempt, process and lease. It has
// the form of a UUID (version 8, RFC 9562), and 122 bits of the SHA-256 of scope and key. See
// Options.Scope.
func ID(scope, key string) string {
	h := sha256.Sum256([]byte("tenure effect\x00" + scope + "\x00" + key)) // neither has a zero byte
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// CheckKey validates the key of an effect: parts of letters, digits, "_", "-" and ".", joined
// by "/", at most 256 bytes in all. The error matches core.ErrInvalid.
func CheckKey(key string) error {
	if len(key) > maxKey {
		return fmt.Errorf("tenure: %w: the key %.40q... of an effect has %d bytes: the limit is %d: use a hash of it",
			core.ErrInvalid, key, len(key), maxKey)
	}
	return driver.CheckKey(key)
}

// clean makes text from outside safe for a record and a log line.
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
		panic("tenure: effect: a record cannot be encoded: " + err.Error()) // it has only texts and numbers
	}
	return value
}

// stored is an Effect without its key, because the item's key has it. The ID stays the same in
// another shard.
type stored struct {
	Effect
	NoKey  string `json:"key,omitempty"` // always empty: it hides Effect.Key
	Undone bool   `json:"undone,omitempty"`
}

// decode reads a record. It trusts nothing in it, because any writer of the store may have written
// it.
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
