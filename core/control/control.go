// Package control has operators' rules: small records that say which nodes are to own
// nothing, where a shard is to be, that nothing is to be moved, which nodes may be stopped at
// present, and what became of an effect in doubt. The command tenure writes them. Package
// sharding obeys them in its plans; a core.Elector obeys drains, moves and resignations for the
// shards that no plan assigns. Neither obeys a Stop, which is read by those who ask for
// another one, nor a Resolve, which package effect carries out.
//
// A rule is an item of the reserved shard Shard, written under a lease of that shard like
// any other commit: it is there or it is not, it survives restarts, and the members see in
// their views that the shard's record changed. The command takes a lease for each change.
//
// Rules are advice to those who plan. They never grant or fence anything. A rule that has
// an end ends by the wall clock of the member that obeys it. A move or resignation names the
// token of one lease: it is spent as soon as the shard has another token, for ever.
package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tenure-go/tenure/core/driver"
)

// Shard is the reserved shard whose items are the rules.
const Shard = "_control"

// prefix begins the keys of rules.
const prefix = "rule/"

// Kind says what a rule does.
type Kind string

// The kinds of rules.
const (
	Drain   Kind = "drain"   // Node is to own nothing
	Pin     Kind = "pin"     // Node is to own Shards, while it lives
	Exclude Kind = "exclude" // Node is not to own Shards
	Freeze  Kind = "freeze"  // nothing is moved but what has no living owner, or an owner that leaves
	Move    Kind = "move"    // the shard Shards goes to Node, once
	Resign  Kind = "resign"  // the owner of the shard Shards gives it to another member, once
	Split   Kind = "split"   // a range of the keyspace begins at Hash
	Merge   Kind = "merge"   // no range of the keyspace begins at Hash
	Release Kind = "release" // the shard Shards is not kept in quarantine
	Resolve Kind = "resolve" // the effect Effect of the shard Shards has Outcome (package effect)
	Stop    Kind = "stop"    // Node may be stopped until Expires: it holds one of Away places
)

// MaxText bounds Author, Writer, Reason and Result, in bytes.
const MaxText = 500

// MaxEffect bounds Effect, in bytes.
const MaxEffect = 256

// The outcomes of a Resolve.
const (
	OutcomeDone   = "done"   // the effect happened
	OutcomeFailed = "failed" // it did not happen, or was compensated
	OutcomeRepeat = "repeat" // it is to be attempted once more, with the same idempotency key
)

// MaxRules is how many rules are obeyed: the first by key. A namespace needs few, as a
// prefix stands for many shards.
const MaxRules = 1000

// maxRecords is how many records are read, whatever they hold. Where there are more, MaxRules of
// each kind are read.
const maxRecords = 4 * MaxRules

// maxRecord is more than the record of any rule has, in bytes.
const maxRecord = 32 << 10

// maxSessions bounds Sessions.
const maxSessions = 100

// Rule is one rule. Which fields count depends on its Kind.
type Rule struct {
	Kind   Kind   `json:"kind"`
	Node   string `json:"node,omitempty"`   // a node label
	Shards string `json:"shards,omitempty"` // a shard's name, or a prefix that ends in "*"

	// Hash of a Split or Merge, in the form 0x8000000000000000; not the first of all.
	Hash string `json:"hash,omitempty"`

	// Token of the lease that a Move or Resign acts on, and no other.
	Token driver.Token `json:"token,omitempty"`

	// Away is how many nodes may be away at a time, as the one that asked for a Stop says:
	// 1 or more, Node among them.
	Away int `json:"away,omitempty"`
	// Sessions of Node when a Stop was written, at most 100. Another session of Node, which
	// joined since, ends the Stop: the node is back.
	Sessions []driver.SessionID `json:"sessions,omitempty"`

	// Effect is the key of the effect in doubt that a Resolve decides about, and Outcome what
	// became of it. Began and Repeats name the state that the author saw: where the effect
	// has others, the rule is spent. Result is kept with an effect that is done.
	Effect  string    `json:"effect,omitempty"`
	Outcome string    `json:"outcome,omitempty"`
	Result  string    `json:"result,omitempty"`
	Began   time.Time `json:"began,omitzero"`
	Repeats int       `json:"repeats,omitempty"`

	Author  string    `json:"author"` // who asks for it, as its writer says
	Writer  string    `json:"writer"` // user and host of the process that wrote it; of the command tenure
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`               // when it was written, by the author's clock
	Expires time.Time `json:"expires,omitzero"` // when it ends; zero: never
}

// Validate checks a rule. The error matches core.ErrInvalid and says what to change.
func (r *Rule) Validate() error {
	node, shards, one, once, hash := false, false, false, false, false
	switch r.Kind {
	case Drain, Stop:
		node = true
	case Pin, Exclude:
		node, shards = true, true
	case Freeze:
	case Move:
		node, shards, once = true, true, true
	case Resign:
		shards, once = true, true
	case Split, Merge:
		hash = true
	case Release, Resolve:
		shards, one = true, true
	default:
		return invalid("the kind %.40q is not known: use drain, pin, exclude, freeze, move, resign, split, merge, release, resolve or stop",
			r.Kind)
	}
	switch {
	case hash && (!hashes.MatchString(r.Hash) || r.Hash == "0x0000000000000000"):
		return invalid("the hash %.40q is not of the form 0x8000000000000000, or is the first of all", r.Hash)
	case !hash && r.Hash != "":
		return invalid("a rule %q has no hash: leave it out", r.Kind)
	}
	switch {
	case node:
		if err := driver.CheckNode(r.Node); err != nil {
			return err
		}
	case r.Node != "":
		return invalid("a rule %q has no node: leave it out", r.Kind)
	}
	switch {
	case shards:
		if err := checkShards(r.Shards, one || once); err != nil {
			return err
		}
	case r.Shards != "":
		return invalid("a rule %q has no shards: leave them out", r.Kind)
	}
	switch {
	case once && r.Token <= 0:
		return invalid("a rule %q needs the token of the lease that it acts on, not %d", r.Kind, r.Token)
	case !once && r.Token != 0:
		return invalid("a rule %q has no token: leave it out", r.Kind)
	}
	if err := cmp.Or(r.checkStop(), r.checkResolve()); err != nil {
		return err
	}
	for _, text := range []string{r.Author, r.Writer, r.Reason, r.Result} {
		// Those that are not printed, such as marks of the direction, can hide the rest.
		hidden := func(c rune) bool { return !unicode.IsPrint(c) }
		if len(text) > MaxText || !utf8.ValidString(text) || strings.ContainsFunc(text, hidden) {
			return invalid("author, writer, reason and result have at most %d bytes, without control and format characters: shorten %.40q",
				MaxText, text)
		}
	}
	return nil
}

var hashes = regexp.MustCompile(`^0x[0-9a-f]{16}$`)

// checkStop checks the fields of a Stop, which other rules do not have.
func (r *Rule) checkStop() error {
	switch {
	case r.Kind != Stop && (r.Away != 0 || len(r.Sessions) > 0):
		return invalid("a rule %q has no budget and no sessions: leave them out", r.Kind)
	case r.Kind != Stop:
		return nil
	case r.Away < 1:
		return invalid("a rule %q needs how many nodes may be away, at least 1, not %d", r.Kind, r.Away)
	case r.Expires.IsZero():
		return invalid("a rule %q needs an end", r.Kind)
	case len(r.Sessions) > maxSessions:
		return invalid("a rule %q has at most %d sessions, not %d", r.Kind, maxSessions, len(r.Sessions))
	}
	for _, s := range r.Sessions {
		if err := driver.CheckSession(s); err != nil {
			return err
		}
	}
	return nil
}

// checkResolve checks the fields of a Resolve, which other rules do not have.
func (r *Rule) checkResolve() error {
	switch {
	case r.Kind != Resolve && (r.Effect != "" || r.Outcome != "" || r.Result != "" || !r.Began.IsZero() || r.Repeats != 0):
		return invalid("a rule %q has no effect, outcome, result, begin and repeats: leave them out", r.Kind)
	case r.Kind != Resolve:
		return nil
	case len(r.Effect) > MaxEffect:
		return invalid("the key %.40q... of an effect has %d bytes: the limit is %d", r.Effect, len(r.Effect), MaxEffect)
	case r.Outcome != OutcomeDone && r.Outcome != OutcomeFailed && r.Outcome != OutcomeRepeat:
		return invalid("the outcome %.40q of an effect is not known: use done, failed or repeat", r.Outcome)
	case r.Result != "" && r.Outcome != OutcomeDone:
		return invalid("an effect that is %s has no result: leave it out", r.Outcome)
	case r.Repeats < 0:
		return invalid("an effect was not repeated %d times", r.Repeats)
	}
	return driver.CheckKey(r.Effect)
}

// checkShards checks a shard's name, or, unless there may be one only, a prefix that ends
// in "*".
func checkShards(s string, one bool) error {
	name, isPrefix := strings.CutSuffix(s, "*")
	if isPrefix && one {
		return invalid("%.40q is a prefix: name one shard, as the rule acts on one lease", s)
	}
	if isPrefix && name == "" {
		return nil
	}
	if strings.HasPrefix(name, "_") {
		return invalid(`the shards %.40q are Tenure's own, as the name begins with "_": choose others`, s)
	}
	return driver.CheckShard(driver.ShardID(name))
}

// Key is the key of the rule's item. Two rules with one key replace each other: a shard
// or prefix has one pin, a node one drain and one stop, a shard one move or resignation and one
// release, an effect one outcome, and a hash one split or merge.
func (r *Rule) Key() string {
	shards := "shard/" + r.Shards
	switch p, isPrefix := strings.CutSuffix(r.Shards, "*"); {
	case isPrefix && p == "":
		shards = "all"
	case isPrefix:
		shards = "prefix/" + p
	}
	switch r.Kind {
	case Drain, Stop:
		return prefix + string(r.Kind) + "/" + r.Node
	case Pin:
		return prefix + string(r.Kind) + "/" + shards
	case Exclude:
		return prefix + string(r.Kind) + "/" + r.Node + "/" + shards
	case Move, Resign:
		return prefix + "once/" + shards
	case Release:
		return prefix + string(r.Kind) + "/" + shards
	case Resolve:
		return prefix + string(r.Kind) + "/" + r.Shards + "/" + r.Effect
	case Split, Merge:
		return prefix + "range/" + r.Hash
	case Freeze:
	}
	return prefix + string(r.Kind)
}

// Active reports whether the rule has not ended.
func (r *Rule) Active(now time.Time) bool { return r.Expires.IsZero() || now.Before(r.Expires) }

// Spent reports whether the rule has done its work, or cannot do it any more: it acts on one
// lease, and token, that of the shard's record, is another one's.
func (r *Rule) Spent(token driver.Token) bool { return r.Token != 0 && r.Token != token }

// Put is the operation that writes the rule, in a commit under a lease of Shard.
func Put(r *Rule) (driver.Op, error) {
	if err := r.Validate(); err != nil {
		return driver.Op{}, err
	}
	text, err := json.Marshal(r)
	return driver.Op{Kind: driver.OpPut, Key: r.Key(), Value: text}, err
}

// Remove is the operation that removes the rule with the key of r.
func Remove(r *Rule) (driver.Op, error) {
	if err := r.Validate(); err != nil {
		return driver.Op{}, err
	}
	return driver.Op{Kind: driver.OpDelete, Key: r.Key()}, nil
}

// Read returns the rules, those included that have ended, by key, and at most MaxRules. A
// record that is no rule, such as one of a newer version, is left out, as are the rules
// after the first MaxRules; the error says so beside the rules that could be read, in at
// most 8 KiB. Without any, the rules are nil.
func Read(ctx context.Context, b driver.Backend) ([]Rule, error) {
	items, all, err := records(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("tenure: read the operators' rules: %w", err)
	}
	rules := make([]Rule, 0, min(len(items), MaxRules))
	left, notUnderstood := 0, 0
	var which []string // of the records that are not understood, the first
	for i := range items {
		r, err := decode(&items[i])
		switch {
		case err != nil:
			if notUnderstood++; notUnderstood <= 3 {
				which = append(which, fmt.Sprintf("%.80q: %.120q", items[i].Key, err.Error()))
			}
		case len(rules) == MaxRules:
			left++
		default:
			rules = append(rules, *r)
		}
	}
	var errs []error
	if notUnderstood > 0 {
		errs = append(errs, fmt.Errorf("tenure: %w: %d records of shard %q are not understood as operators' rules: %s",
			driver.ErrInvalid, notUnderstood, Shard, strings.Join(which, "; ")))
	}
	switch {
	case !all:
		errs = append(errs, fmt.Errorf("tenure: %w: shard %q has more than %d records, and only the first of each kind are read: "+
			"remove some", driver.ErrInvalid, Shard, maxRecords))
	case left > 0:
		errs = append(errs, fmt.Errorf("tenure: %w: %d rules after the first %d are not obeyed: remove some", driver.ErrInvalid,
			left, MaxRules))
	}
	return slices.Clip(rules), errors.Join(errs...)
}

// kinds begin the keys of the rules of each kind, in their order.
var kinds = [...]string{
	prefix + string(Drain) + "/", prefix + string(Exclude) + "/", prefix + string(Freeze), prefix + "once/",
	prefix + string(Pin) + "/", prefix + "range/", prefix + string(Release) + "/",
	prefix + string(Resolve) + "/", prefix + string(Stop) + "/",
}

// records reads the records that may be rules, in the order of their keys, and says whether
// these are all. If not, it reads the first of each kind, so that junk under the keys of one
// kind hides the rules of no other. Either way a shard that somebody filled costs a member a
// bounded read.
func records(ctx context.Context, b driver.Backend) (items []driver.Item, all bool, err error) {
	items, err = b.List(ctx, Shard, prefix, maxRecords+1)
	if err != nil || len(items) <= maxRecords {
		return items, true, err
	}
	items = nil
	for _, kind := range kinds {
		some, err := b.List(ctx, Shard, kind, MaxRules)
		if err != nil {
			return nil, false, err
		}
		items = append(items, some...)
	}
	return items, false, nil
}

// decode reads a record.
func decode(i *driver.Item) (*Rule, error) {
	if len(i.Value) > maxRecord {
		return nil, invalid("it has %d bytes", len(i.Value))
	}
	r := new(Rule)
	if err := json.Unmarshal(i.Value, r); err != nil {
		return nil, err
	}
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if r.Key() != i.Key {
		return nil, invalid("its key would be %q", r.Key())
	}
	return r, nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("tenure: %w rule: %s", driver.ErrInvalid, fmt.Sprintf(format, args...))
}
