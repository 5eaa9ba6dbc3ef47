package effect

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// MaxKey bounds the key of an effect, in bytes.
const MaxKey = 256

// MaxReason bounds Effect.Reason and Effect.Author, in bytes. What is longer is cut.
const MaxReason = 500

// Prefix begins the keys of all items that this package writes into a shard. An application
// writes none with it.
const Prefix = "effect/"

// The kinds of items: every effect has a record, one that is open has a copy of it in the
// index of open effects, and one that has ended is in the index of ends, oldest first.
const (
	recordPrefix = Prefix + "e/"
	openPrefix   = Prefix + "o/"
	endPrefix    = Prefix + "t/"
)

// maxRecord is more than any record has, in bytes.
const maxRecord = 2*MaxMaxResult + 16<<10

// State says how far an effect is. Begun, InDoubt and Repeat are open.
type State string

// The states of an effect.
const (
	// Begun: the intent is written. An attempt may be under way, or may have had any outcome.
	Begun State = "begun"
	// InDoubt: nobody knows whether it happened. Resolve, a new leader's or a person decides.
	InDoubt State = "in doubt"
	// Repeat: it was decided that the next Do attempts it, with the same idempotency key.
	Repeat State = "repeat"
	// Done: it happened, once.
	Done State = "done"
	// Failed: it did not happen, or was compensated. It is not attempted again.
	Failed State = "failed"
)

// Open reports whether the effect has not ended.
func (s State) Open() bool { return s == Begun || s == InDoubt || s == Repeat }

// Effect is what the store knows of an effect.
type Effect struct {
	Key   string `json:"key"`
	ID    string `json:"id"` // the idempotency key, the same in every attempt
	State State  `json:"state"`
	// Token of the lease that wrote this state.
	Token core.Token `json:"token"`
	// Began is when the intent was written first, and Ended when the outcome was, by the
	// leader's clock. Ended is zero while the effect is open.
	Began time.Time `json:"began"`
	Ended time.Time `json:"ended,omitzero"`
	// Attempts counts the calls of fn that returned, as far as they were recorded.
	Attempts int `json:"attempts,omitempty"`
	// Repeats counts the decisions that it is to be repeated.
	Repeats int    `json:"repeats,omitempty"`
	Result  []byte `json:"result,omitempty"` // what fn returned, or a decision has
	// NotKept is the size of a result that was not kept, as it was above Options.MaxResult or
	// above what the store takes. The sidecar cuts larger results to MaxMaxResult+1 bytes first.
	NotKept int    `json:"not_kept,omitempty"`
	Reason  string `json:"reason,omitempty"` // why it is in doubt, to be repeated, or failed
	Author  string `json:"author,omitempty"` // who decided by hand last; empty: nobody did
}

// Func makes an effect. It passes id, the idempotency key, to the other side. It returns
// when ctx ends. The error says what is known:
//
//   - nil: the effect happened, and the result is kept.
//   - [NotDone]: certainly nothing happened, and another attempt may succeed.
//   - [Refused]: certainly nothing happened, and no attempt will succeed.
//   - any other error: nobody knows whether it happened.
type Func func(ctx context.Context, id string) (result []byte, err error)

// Decision says what became of an effect in doubt. The zero Decision leaves it in doubt.
type Decision struct {
	// State is Done, with Result; Failed if it did not happen or was compensated; Repeat if
	// the next attempt does no harm, as the other side honours the idempotency key, or as the
	// effect did not happen and cannot any more; or InDoubt, which is for a person to decide.
	State  State
	Result []byte
	Reason string // at most MaxReason bytes are kept
}

// Errors of Do. See the types of the same names.
var (
	// ErrInDoubt: nobody knows whether the effect happened, and it is not attempted again until
	// Resolve, the next leader or a person decides. See InDoubtError.
	ErrInDoubt = errors.New("in doubt")
	// ErrFailed: the effect did not happen, or was compensated, and is not attempted again. See
	// FailedError.
	ErrFailed = errors.New("failed")
	// ErrFull: Options.MaxInDoubt effects are in doubt, so no new one begins. Nothing happened.
	ErrFull = errors.New("too many effects in doubt")
	// ErrNotKept: the effect happened, and its result was above Options.MaxResult or above what
	// the store takes, so that it is not kept. The first Do returns it beside the error.
	ErrNotKept = errors.New("result not kept")
)

// InDoubtError names an effect whose outcome nobody knows. It matches ErrInDoubt and
// core.ErrUnknown, and core.ErrLost where the lease ended meanwhile.
type InDoubtError struct {
	Shard  string
	Effect Effect
	lost   bool
}

func (e *InDoubtError) Error() string {
	return fmt.Sprintf("tenure: effect %q of shard %q: %v since %s: %q: it is not attempted again before it is decided", e.Effect.Key, e.Shard,
		ErrInDoubt, e.Effect.Began.Format(time.RFC3339), e.Effect.Reason)
}

// Is makes an InDoubtError match as its type's comment says.
func (e *InDoubtError) Is(target error) bool {
	return target == ErrInDoubt || target == core.ErrUnknown || e.lost && target == core.ErrLost
}

// FailedError names an effect that did not happen, or was compensated. It matches ErrFailed,
// and, in the call of Do that made the attempt, the error of fn.
type FailedError struct {
	Shard  string
	Effect Effect
	Err    error // what fn returned; nil where it was recorded earlier
}

func (e *FailedError) Error() string {
	return fmt.Sprintf("tenure: effect %q of shard %q: %v: %q", e.Effect.Key, e.Shard, ErrFailed, e.Effect.Reason)
}

// Is makes a FailedError match ErrFailed.
func (e *FailedError) Is(target error) bool { return target == ErrFailed }

func (e *FailedError) Unwrap() error { return e.Err }

// certain is an error of a Func which knows that nothing happened.
type certain struct {
	err   error
	final bool
}

func (c *certain) Error() string { return c.err.Error() }
func (c *certain) Unwrap() error { return c.err }

// NotDone says of an error of a [Func] that certainly nothing happened, and nothing will: the
// connection was refused, or the other side said that it did not do it. The effect is
// attempted again after a back-off. It is nil for nil.
func NotDone(err error) error { return certainly(err, false) }

// Refused says of an error of a [Func] that certainly nothing happened, and that no further
// attempt is to be made: a card was declined, an address does not exist. It is nil for nil.
func Refused(err error) error { return certainly(err, true) }

func certainly(err error, final bool) error {
	if err == nil {
		return nil
	}
	return &certain{err, final}
}

// ID is the idempotency key of an effect: the same in every attempt, process and lease. It
// has the form of a UUID (version 8, RFC 9562), and 122 bits of the SHA-256 of scope and key.
// See Options.Scope.
func ID(scope, key string) string {
	h := sha256.Sum256([]byte("tenure effect\x00" + scope + "\x00" + key)) // neither has a zero byte
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// CheckKey validates the key of an effect: parts of letters, digits, "_", "-" and ".", joined
// by "/", at most MaxKey bytes in all. The error matches core.ErrInvalid.
func CheckKey(key string) error {
	if len(key) > MaxKey {
		return fmt.Errorf("tenure: %w: the key %.40q... of an effect has %d bytes: the limit is %d: use a hash of it",
			core.ErrInvalid, key, len(key), MaxKey)
	}
	return driver.CheckKey(key)
}

// clean makes a text from outside fit for a record and a log line.
func clean(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), MaxReason)], "?")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// encode returns the value of a record.
func encode(e Effect) []byte {
	e.Key = "" // the item's key has it
	value, err := json.Marshal(stored(e))
	if err != nil {
		panic("tenure: effect: a record cannot be encoded: " + err.Error()) // it has texts and numbers
	}
	return value
}

// stored is an Effect without what its item's key says. It has the ID, since that stays the same in another shard.
type stored struct {
	Key      string     `json:"-"`
	ID       string     `json:"id,omitempty"`
	State    State      `json:"state"`
	Token    core.Token `json:"token"`
	Began    time.Time  `json:"began"`
	Ended    time.Time  `json:"ended,omitzero"`
	Attempts int        `json:"attempts,omitempty"`
	Repeats  int        `json:"repeats,omitempty"`
	Result   []byte     `json:"result,omitempty"`
	NotKept  int        `json:"not_kept,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Author   string     `json:"author,omitempty"`
}

// decode reads a record. Whoever may write to the store may have written anything.
func decode(item *core.Item, prefix, scope string) (Effect, error) {
	key := strings.TrimPrefix(item.Key, prefix)
	damaged := func(format string, args ...any) error {
		return fmt.Errorf("tenure: the record %.300q of an effect: %w: %s", item.Key, core.ErrDamaged, fmt.Sprintf(format, args...))
	}
	var s stored
	switch err := CheckKey(key); {
	case err != nil:
		return Effect{}, damaged("its key is not one of an effect")
	case len(item.Value) > maxRecord:
		return Effect{}, damaged("it has %d bytes", len(item.Value))
	}
	if err := json.Unmarshal(item.Value, &s); err != nil {
		return Effect{}, damaged("%.200q", err.Error())
	}
	if !s.State.Open() && s.State != Done && s.State != Failed {
		return Effect{}, damaged("its state %.40q is not known", s.State)
	}
	if len(s.ID) > MaxKey || clean(s.ID) != s.ID {
		return Effect{}, damaged("its idempotency key %.40q is not valid", s.ID)
	}
	s.Reason, s.Author = clean(s.Reason), clean(s.Author)
	e := Effect(s)
	e.Key, e.ID = key, cmp.Or(s.ID, ID(scope, key))
	return e, nil
}
