// Package control defines operators' rules, which are small records. For example, a rule may drain
// a node, place or move a shard, or freeze all shards. A rule may also permit a node to stop, or
// decide the outcome of an effect in doubt. The tenure command writes the rules. Package sharding
// obeys the rules in its plans. A core.Elector obeys drains, moves and resignations for the shards
// that no plan assigns. Package sharding and Electors ignore a rule of kind Stop. A Stop affects
// only later requests for another Stop. Package effect carries out rules of kind Resolve.
//
// A rule is an item of the reserved shard "_control". Like any other item, a rule is written under
// a lease of that shard. The write is atomic and survives restarts. The tenure command acquires a
// lease for each change, so members see in their views that the shard's record has changed.
//
// Rules only advise planners, and never grant or fence anything. A rule's expiry time refers to the
// wall clock of the member that obeys the rule. A move or resignation identifies one lease by its
// token. Once the shard has a different token, the rule is permanently spent.
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
	"github.com/tenure-go/tenure/internal/boundjson"
)

// Shard is the reserved shard that stores the rules.
const Shard = "_control"

const prefix = "rule/"

// Kind determines what a rule does.
type Kind string

// These are the kinds of rules.
const (
	Drain   Kind = "drain"   // Node should own nothing
	Pin     Kind = "pin"     // Node should own Shards while Node is alive
	Exclude Kind = "exclude" // Node should not own Shards
	Freeze  Kind = "freeze"  // no shard moves unless its owner is dead or leaving
	Move    Kind = "move"    // the one shard in Shards moves to Node, once
	Resign  Kind = "resign"  // the owner of the one shard in Shards gives it to another member, once
	Split   Kind = "split"   // a range of the keyspace begins at Hash
	Merge   Kind = "merge"   // no range of the keyspace begins at Hash
	Release Kind = "release" // the one shard in Shards leaves quarantine
	Resolve Kind = "resolve" // Effect, of the one shard in Shards, has Outcome (package effect)
	Stop    Kind = "stop"    // Node may be stopped until Expires; it occupies one of Away places
)

// maxText is the maximum size, in bytes, of an Author, Writer, Reason or Result.
const maxText = 500

// maxEffect is the maximum size of an Effect, in bytes.
const maxEffect = 256

// These are the outcomes of a Resolve.
const (
	OutcomeDone   = "done"   // the effect happened
	OutcomeFailed = "failed" // the effect did not happen, or was compensated
	OutcomeRepeat = "repeat" // the effect is attempted again, with the same idempotency key
)

// MaxRules is the maximum number of rules that members obey. If there are more rules, members obey
// the first MaxRules in key order. A namespace needs few rules, because one prefix can cover many
// shards.
const MaxRules = 1000

// maxRecords is the maximum number of records that Read reads, whether valid or not. If there are
// more records, Read reads at most MaxRules records of each kind.
const maxRecords = 4 * MaxRules

// MaxRecord exceeds the size of every rule's record, in bytes.
const MaxRecord = 32 << 10

const maxSessions = 100

// Rule is one operator's rule. The Kind field determines which other fields are used.
type Rule struct {
	Kind   Kind   `json:"kind"`
	Node   string `json:"node,omitempty"`   // a node label
	Shards string `json:"shards,omitempty"` // a shard's name, or a prefix that ends in "*"

	// Hash is where a Split or Merge changes the keyspace, in the form 0x8000000000000000. The
	// keyspace's first hash is not allowed.
	Hash string `json:"hash,omitempty"`

	// Token identifies the lease that a Move or Resign acts on.
	Token driver.Token `json:"token,omitempty"`

	// Away is the number of nodes, including Node, that may be away at the same time. The requester
	// of a Stop chooses this number, which is at least 1.
	Away int `json:"away,omitempty"`
	// Sessions lists up to 100 sessions that Node had when a Stop was written. If a session of Node
	// joins later, the node is back, and the Stop ends.
	Sessions []driver.SessionID `json:"sessions,omitempty"`

	// Effect is the key of the effect in doubt that a Resolve decides, and Outcome is the decision.
	// Began and Repeats record the effect's state as the author saw it. If the effect's state has
	// changed, the rule is spent. Result is the stored outcome of an effect that is done.
	Effect  string    `json:"effect,omitempty"`
	Outcome string    `json:"outcome,omitempty"`
	Result  string    `json:"result,omitempty"`
	Began   time.Time `json:"began,omitzero"`
	Repeats int       `json:"repeats,omitempty"`

	Author  string    `json:"author"` // the person who requested the rule, as recorded by its writer
	Writer  string    `json:"writer"` // user and host of the tenure process that wrote the rule
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`               // when the rule was written, by the author's clock
	Expires time.Time `json:"expires,omitzero"` // when the rule ends; zero for never
}

// Validate checks a rule. The error matches core.ErrInvalid and explains what to change.
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
		// Unprintable characters, such as direction marks, can hide other text.
		hidden := func(c rune) bool { return !unicode.IsPrint(c) }
		if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsFunc(text, hidden) {
			return invalid("author, writer, reason and result have at most %d bytes, without control and format characters: shorten %.40q",
				maxText, text)
		}
	}
	return nil
}

var hashes = regexp.MustCompile(`^0x[0-9a-f]{16}$`)

// checkStop checks the fields of a Stop, and refuses other rules that set these fields.
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

// checkResolve checks the fields of a Resolve, and refuses other rules that set these fields.
func (r *Rule) checkResolve() error {
	switch {
	case r.Kind != Resolve && (r.Effect != "" || r.Outcome != "" || r.Result != "" || !r.Began.IsZero() || r.Repeats != 0):
		return invalid("a rule %q has no effect, outcome, result, begin and repeats: leave them out", r.Kind)
	case r.Kind != Resolve:
		return nil
	case len(r.Effect) > maxEffect:
		return invalid("the key %.40q... of an effect has %d bytes: the limit is %d", r.Effect, len(r.Effect), maxEffect)
	case r.Outcome != OutcomeDone && r.Outcome != OutcomeFailed && r.Outcome != OutcomeRepeat:
		return invalid("the outcome %.40q of an effect is not known: use done, failed or repeat", r.Outcome)
	case r.Result != "" && r.Outcome != OutcomeDone:
		return invalid("an effect that is %s has no result: leave it out", r.Outcome)
	case r.Repeats < 0:
		return invalid("an effect was not repeated %d times", r.Repeats)
	}
	return driver.CheckKey(r.Effect)
}

// checkShards checks a shard's name. Unless the rule needs exactly one shard, a prefix that ends in
// "*" is also valid.
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

// Key returns the key of the rule's item. A rule replaces an earlier rule with the same key. There
// is at most one pin for a shard or prefix, one drain and one stop for a node, and one split or
// merge for a hash. A shard has at most one move or resignation, and one release. An effect has at
// most one outcome.
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

// Active reports whether the rule is in force at the given time.
func (r *Rule) Active(now time.Time) bool { return r.Expires.IsZero() || now.Before(r.Expires) }

// Spent reports whether the rule has done its work or can no longer do it, given the shard's
// current token. A rule that acts on one lease is spent if that token belongs to another lease.
func (r *Rule) Spent(token driver.Token) bool { return r.Token != 0 && r.Token != token }

// Put returns the operation that writes the rule. It must be committed under a lease of Shard.
func Put(r *Rule) (driver.Op, error) {
	if err := r.Validate(); err != nil {
		return driver.Op{}, err
	}
	text, err := json.Marshal(r)
	return driver.Op{Kind: driver.OpPut, Key: r.Key(), Value: text}, err
}

// Remove returns the operation that removes the rule with r's key.
func Remove(r *Rule) (driver.Op, error) {
	if err := r.Validate(); err != nil {
		return driver.Op{}, err
	}
	return driver.Op{Kind: driver.OpDelete, Key: r.Key()}, nil
}

// Read returns the first MaxRules rules by key, including rules that have ended. Read leaves out
// records that it does not understand, such as rules that a newer version wrote. If Read leaves out
// any record, it returns the other rules and an error of at most 8 KiB. If Read cannot read any
// record, the rules are nil.
func Read(ctx context.Context, b driver.Backend) ([]Rule, error) {
	rules := []Rule{}
	left, notUnderstood := 0, 0
	var which []string // the first records that are not understood
	all, err := records(ctx, b, func(items []driver.Item) {
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
	})
	if err != nil {
		return nil, fmt.Errorf("tenure: read the operators' rules: %w", err)
	}
	var errs []error
	if notUnderstood > 0 {
		errs = append(errs, fmt.Errorf("tenure: %w: records of shard %q are not understood as operators' rules (%d): %s",
			driver.ErrInvalid, Shard, notUnderstood, strings.Join(which, "; ")))
	}
	switch {
	case !all:
		errs = append(errs, fmt.Errorf("tenure: %w: shard %q has more than %d records, or %d bytes, and only the first of each kind are read: "+
			"remove some", driver.ErrInvalid, Shard, maxRecords, driver.MaxListBytes-MaxRecord))
	case left > 0:
		errs = append(errs, fmt.Errorf("tenure: %w: %d rules after the first %d are not obeyed: remove some", driver.ErrInvalid,
			left, MaxRules))
	}
	return slices.Clip(rules), errors.Join(errs...)
}

// kinds lists the key prefix of each kind of rule, in key order.
var kinds = [...]string{
	prefix + string(Drain) + "/", prefix + string(Exclude) + "/", prefix + string(Freeze), prefix + "once/",
	prefix + string(Pin) + "/", prefix + "range/", prefix + string(Release) + "/",
	prefix + string(Resolve) + "/", prefix + string(Stop) + "/",
}

// All records that may be rules are passed to take, in key order. If there are too many, only the
// first records of each kind are read, and the result all is false. Invalid records under the keys
// of one kind therefore cannot hide rules of another kind. Even if the shard is full of invalid
// records, a member reads only a limited number of them.
func records(ctx context.Context, b driver.Backend, take func([]driver.Item)) (all bool, err error) {
	items, err := b.List(ctx, Shard, prefix, maxRecords+1, MaxRecord)
	if err != nil {
		return false, err
	}
	bytes := 0
	for i := range items {
		bytes += len(items[i].Value)
	}
	if len(items) <= maxRecords && bytes <= driver.MaxListBytes-MaxRecord {
		take(items)
		return true, nil
	}
	for _, kind := range kinds {
		if items, err = b.List(ctx, Shard, kind, MaxRules, MaxRecord); err != nil {
			return false, err
		}
		take(items)
	}
	return false, nil
}

func decode(i *driver.Item) (*Rule, error) {
	if i.Damaged != nil {
		return nil, i.Damaged
	}
	r := new(Rule)
	if err := boundjson.Unmarshal(i.Value, MaxRecord, 2*maxSessions, r); err != nil {
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
