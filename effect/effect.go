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

const maxKey = 256

// maxReason limits Effect.Reason and Effect.Author, in bytes. Longer text is truncated.
const maxReason = 500

// Prefix begins the keys of all items that this package writes to a shard. An application must not
// write keys that begin with Prefix.
const Prefix = "effect/"

// Every effect has a record. The index of open effects contains a copy of each open effect's
// record. The index of ends lists each ended effect, oldest first.
const (
	recordPrefix = Prefix + "e/"
	openPrefix   = Prefix + "o/"
	endPrefix    = Prefix + "t/"
)

// Every record is smaller than maxRecord, in bytes.
const maxRecord = 2*MaxMaxResult + 16<<10

// Every open effect's record is smaller than maxOpen, because it has no result.
const maxOpen = 8 << 10

// State is an effect's progress. Begun, InDoubt and Repeat are open.
type State string

// The states of an effect.
const (
	// Begun means that the intent has been written. An attempt may be in progress, or may have
	// ended with any outcome.
	Begun State = "begun"
	// InDoubt means that it is unknown whether the effect happened. A person, or Resolve under this
	// or a later leader, then decides the effect.
	InDoubt State = "in doubt"
	// Repeat means that a decision allows the next Do to attempt the effect again with the same
	// idempotency key.
	Repeat State = "repeat"
	// Done means that the effect happened once.
	Done State = "done"
	// Failed means that the effect did not happen, or was compensated. The effect is not attempted
	// again.
	Failed State = "failed"
)

// Open reports whether an effect in this state is still open.
func (s State) Open() bool { return s == Begun || s == InDoubt || s == Repeat }

// Effect is the store's record of an effect.
type Effect struct {
	Key   string `json:"key"`
	ID    string `json:"id"` // the idempotency key, the same in every attempt
	State State  `json:"state"`
	// Token is the token of the lease that wrote this state.
	Token core.Token `json:"token"`
	// Began is the time when the intent was first written. Ended is the time when the outcome was
	// written; it is zero while the effect is open. Both come from the leader's clock.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	// Attempts is the number of recorded calls to fn that returned.
	Attempts int `json:"attempts,omitempty"`
	// Repeats is the number of decisions to repeat the effect.
	Repeats int    `json:"repeats,omitempty"`
	Result  []byte `json:"result,omitempty"` // returned by fn, or given by a decision
	// NotKept is the size of a result that was not kept because it exceeded Options.MaxResult or
	// the store's limit. The sidecar first truncates larger results to MaxMaxResult+1 bytes.
	NotKept int    `json:"not_kept,omitempty"`
	Reason  string `json:"reason,omitempty"` // why the effect is in doubt, should be repeated, or failed
	Author  string `json:"author,omitempty"` // the person who last decided; empty if no person did

	undone bool // in state Repeat: no attempt can have had an effect
}

// Func performs an effect. A Func passes id, which is the idempotency key, to the receiver, and
// must return soon after ctx ends. The error states what is known about the effect:
//
//   - nil: the effect happened, and the ledger keeps the result.
//   - [NotDone]: the effect certainly did not happen, and another attempt may succeed. See also
//     [NotSent].
//   - [Refused]: the effect certainly did not happen, and no attempt will succeed.
//   - any other error: it is unknown whether the effect happened.
type Func func(ctx context.Context, id string) (result []byte, err error)

// Decision is the outcome of deciding an effect in doubt. The zero Decision leaves the effect in
// doubt.
type Decision struct {
	// State is Done if the effect happened. In this case, Result is the effect's result. State is
	// Failed if the effect did not happen or was compensated, Repeat if another attempt is
	// harmless, and InDoubt if a person should decide. Another attempt is harmless if the receiver
	// honors the idempotency key, or if the effect did not happen and can no longer happen.
	State  State
	Result []byte
	Reason string // at most 500 bytes are kept
}

// Do's errors match these errors.
var (
	// ErrInDoubt means that it is unknown whether the effect happened. The effect is not attempted
	// again until Resolve, the next leader or a person decides. See InDoubtError.
	ErrInDoubt = errors.New("in doubt")
	// ErrFailed means that the effect did not happen, or was compensated, and is not attempted
	// again. See FailedError.
	ErrFailed = errors.New("failed")
	// ErrFull means that no new effect can begin, because Options.MaxInDoubt effects are in doubt.
	// Nothing happened.
	ErrFull error = errtext.NotApplied("too many effects in doubt")
	// ErrNotKept means that the effect happened, but its result exceeded Options.MaxResult or the
	// store's limit and was not kept. The first Do returns the result with the error.
	ErrNotKept = errors.New("result not kept")
)

// InDoubtError identifies an effect whose outcome is unknown. The error matches ErrInDoubt and
// core.ErrUnknown. If the lease ended during the call, the error also matches core.ErrLost.
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

// FailedError identifies an effect that did not happen, or was compensated. The error matches
// ErrFailed. If this Do made the attempt, the error also matches fn's error.
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

// certain wraps a Func's error if the effect certainly did not happen.
type certain struct {
	err    error
	final  bool
	unsent bool // holds only if no HTTP client had a connection
}

func (c *certain) Error() string { return c.err.Error() }
func (c *certain) Unwrap() error { return c.err }

// NotDone marks an error from a [Func]. The attempt certainly had no effect and will have none, for
// example because the connection was refused, or because the receiver answered that it did nothing.
// The ledger attempts the effect again after a back-off. If err is nil, NotDone returns nil.
func NotDone(err error) error { return certainly(err, false) }

// Refused marks an error from a [Func]. The effect certainly did not happen and must not be
// attempted again, for example because a card was declined, or because an address does not exist.
// If err is nil, Refused returns nil.
func Refused(err error) error { return certainly(err, true) }

func certainly(err error, final bool) error {
	if err == nil {
		return nil
	}
	return &certain{err: err, final: final}
}

// NotSent marks an HTTP client's error with [NotDone] if the client had no connection, because it
// could not look up the name or could not dial. NotSent returns any other error unchanged, because
// a request may have been sent. If a client had a connection earlier in the same [Func] call, under
// that call's context, the outcome is unknown. The request may have been redirected, or
// http.Transport may have repeated the request.
func NotSent(err error) error {
	for at := err; at != nil; at = errors.Unwrap(at) { // without joined errors, because one says nothing about the others
		_, lookup := at.(*net.DNSError)                                   //nolint:errorlint // as on the next line
		if op, ok := at.(*net.OpError); lookup || ok && op.Op == "dial" { //nolint:errorlint // the loop unwraps
			return &certain{err: err, unsent: true}
		}
	}
	return err
}

// ID returns an effect's idempotency key, which is the same in every attempt, process and lease. It
// has the form of a UUID (version 8, RFC 9562), with 122 bits of the SHA-256 hash of scope and key.
// See Options.Scope.
func ID(scope, key string) string {
	h := sha256.Sum256([]byte("tenure effect\x00" + scope + "\x00" + key)) // neither has a zero byte
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// CheckKey validates an effect's key: at most 256 bytes, in parts that are joined by "/" and
// contain letters, digits, "_", "-" and ".". The error matches core.ErrInvalid.
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

func encode(e Effect) []byte {
	value, err := json.Marshal(stored{Effect: e, Undone: e.undone})
	if err != nil {
		panic("tenure: effect: a record cannot be encoded: " + err.Error()) // only text and numbers
	}
	return value
}

// The effect's key is part of the item's key. The ID stays the same if the effect moves to another
// shard.
type stored struct {
	Effect
	NoKey  string `json:"key,omitempty"` // always empty: it hides Effect.Key
	Undone bool   `json:"undone,omitempty"`
}

// The record is untrusted, because any writer to the store may have written it.
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
