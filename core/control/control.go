// Package control defines operators' rules, which are small records. A rule may, for example, drain
// a node, place or move a shard, or freeze all shards. It may also allow a node to be stopped, or
// decide an effect in doubt. The command tenure writes the rules. Package sharding obeys them in
// its plans. A core.Elector obeys drains, moves and resignations for the shards that no plan
// assigns. Neither obeys a Stop, which only callers that request another Stop read. Neither obeys a
// Resolve, which package effect carries out.
//
// A rule is an item of the reserved shard Shard. Like any other commit, it is written under a lease
// of that shard. It is therefore written completely or not at all, and it survives restarts. The
// members see in their views that the shard's record has changed. The command takes a lease for
// each change.
//
// Rules are advice to planners. They never grant or fence anything. A rule with an end expires
// according to the wall clock of the member that obeys it. A move or resignation names the token of
// one lease. Once the shard has another token, the rule is permanently spent.
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

// Shard is the reserved shard whose items are the rules.
const Shard = "_control"

// prefix begins the keys of rules.
const prefix = "rule/"

// Kind is the kind of a rule.
type Kind string

// The kinds of rules.
const (
	Drain   Kind = "drain"   // Node should own nothing
	Pin     Kind = "pin"     // Node should own Shards while Node is alive
	Exclude Kind = "exclude" // Node should not own Shards
	Freeze  Kind = "freeze"  // no shard moves unless its owner is dead or leaving
	Move    Kind = "move"    // the one shard in Shards moves to Node, once
	Resign  Kind = "resign"  // the owner of the one shard in Shards gives it away, once
	Split   Kind = "split"   // a range of the keyspace begins at Hash
	Merge   Kind = "merge"   // no range of the keyspace begins at Hash
	Release Kind = "release" // the one shard in Shards leaves quarantine
	Resolve Kind = "resolve" // Effect, of the one shard in Shards, has Outcome (package effect)
	Stop    Kind = "stop"    // Node may be stopped until Expires; it takes one of Away places
)

// maxText limits Author, Writer, Reason and Result each, in bytes.
const maxText = 500

// maxEffect limits Effect, in bytes.
const maxEffect = 256

// The outcomes of a Resolve.
const (
	OutcomeDone   = "done"   // the effect happened
	OutcomeFailed = "failed" // it did not happen, or was compensated
	OutcomeRepeat = "repeat" // attempt it once more, with the same idempotency key
)

// MaxRules is the number of rules that members obey: the first by key. A namespace needs few,
// because one prefix covers many shards.
const MaxRules = 1000

// maxRecords is the number of records that Read reads, whatever they contain. If there are more, it
// reads MaxRules of each kind.
const maxRecords = 4 * MaxRules

// MaxRecord is larger than the record of any rule, in bytes.
const MaxRecord = 32 << 10

// maxSessions limits the number of Sessions.
const maxSessions = 100

// Rule is one rule. Its Kind determines which fields are used.
type Rule struct {
	Kind   Kind   `json:"kind"`
	Node   string `json:"node,omitempty"`   // a node label
	Shards string `json:"shards,omitempty"` // a shard's name, or a prefix that ends in "*"

	// Hash is the hash of a Split or Merge, in the form 0x8000000000000000. It cannot be the
	// first hash.
	Hash string `json:"hash,omitempty"`

	// Token is the token of the one lease that a Move or Resign acts on.
	Token driver.Token `json:"token,omitempty"`

	// Away is the number of nodes, including Node, that may be away at a time. It is at least 1.
	// The requester of a Stop chooses it.
	Away int `json:"away,omitempty"`
	// Sessions lists the sessions of Node when a Stop was written, at most 100. A session of Node
	// that joins later ends the Stop, because the node is back.
	Sessions []driver.SessionID `json:"sessions,omitempty"`

	// Effect is the key of the effect in doubt that a Resolve decides, and Outcome is its outcome.
	// Began and Repeats are the state of the effect that the author saw. If the effect has another
	// state, the rule is spent. Result is the stored outcome of an effect that is done.
	Effect  string    `json:"effect,omitempty"`
	Outcome string    `json:"outcome,omitempty"`
	Result  string    `json:"result,omitempty"`
	Began   time.Time `json:"began,omitzero"`
	Repeats int       `json:"repeats,omitempty"`

	Author  string    `json:"author"` // the person who asks for the rule, as its writer reports
	Writer  string    `json:"writer"` // user and host of the tenure process that wrote it
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`               // when it was written, by the author's clock
	Expires time.Time `json:"expires,omitzero"` // when it ends; zero for never
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
		// Unprintable characters, such as direction marks, can hide the rest.
		hidden := func(c rune) bool { return !unicode.IsPrint(c) }
		if len(text) > maxText || !utf8.ValidString(text) || strings.ContainsFunc(text, hidden) {
			return invalid("author, writer, reason and result have at most %d bytes, without control and format characters: shorten %.40q",
				maxText, text)
		}
	}
	return nil
}

var hashes = regexp.MustCompile(`^0x[0-9a-f]{16}$`)

// checkStop checks the fields of a Stop, and that other rules do not have them.
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

// checkResolve checks the fields of a Resolve, and that other rules do not have them.
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

// checkShards checks a shard's name. Unless one is set, a prefix that ends in "*" is also valid.
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

// Key returns the key of the rule's item. Two rules with the same key replace each other. There is
// at most one pin for a shard or prefix, one drain and one stop for a node, and one split or merge
// for a hash. A shard also has at most one move or resignation and one release, and an effect one
// outcome.
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

// Active reports whether the rule is still in force at time now.
func (r *Rule) Active(now time.Time) bool { return r.Expires.IsZero() || now.Before(r.Expires) }

// Spent reports whether the rule has done its work or can no longer do it. Such a rule acts on one
// lease, but token, the shard's current token, belongs to another lease.
func (r *Rule) Spent(token driver.Token) bool { return r.Token != 0 && r.Token != token }

// Put returns the operation that writes the rule, for a commit under a lease of Shard.
func Put(r *Rule) (driver.Op, error) {
	if err := r.Validate(); err != nil {
		return driver.Op{}, err
	}
	text, err := json.Marshal(r)
	return driver.Op{Kind: driver.OpPut, Key: r.Key(), Value: text}, err
}

// Remove returns the operation that removes the rule with the key of r.
func Remove(r *Rule) (driver.Op, error) {
	if err := r.Validate(); err != nil {
		return driver.Op{}, err
	}
	return driver.Op{Kind: driver.OpDelete, Key: r.Key()}, nil
}

// Read returns at most MaxRules rules, by key, including rules that have ended. It leaves out
// records that are not rules, such as those of a newer version, and all rules after the first
// MaxRules. If it leaves out any, it returns the rules that it could read, with an error of at most
// 8 KiB. If it cannot read any, the rules are nil.
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

// records passes the records that may be rules to take, in key order, and reports whether it passed
// all. If there are too many, it reads the first of each kind. Junk under one kind's keys therefore
// hides no rules of another kind. Even a shard full of junk costs a member only a limited read.
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
