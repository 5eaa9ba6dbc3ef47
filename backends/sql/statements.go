package sql

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/tenure-go/tenure/internal/sqlschema"
)

// Statement names one statement of a dialect's file.
type Statement int

// The statements every dialect has. What each must do is described where the
// parameters are listed, in the catalogue.
const (
	namespaceInsert Statement = iota
	namespaceRead
	namespaceLock
	namespaceRaise
	namespaceRebase
	namespaceLift
	tailInsert
	tailsRead
	tailAdvance
	tailTrim
	shardsClaim
	shardsLock
	shardsHold
	shardsRead
	shardsInsert
	shardsGrant
	shardsLift
	shardsRelease
	shardsAll
	shardsSince
	ownerRead
	headRead
	headsAll
	headWrite
	itemsVersions
	itemsPut
	itemsDelete
	itemRead
	itemsList
	logsInsert
	logsAppend
	logsRead
	logsTail
	logsTrim
	fenceTouch
	probeInsert
	probeUpdate
	probeDelete
	barrierWrite
	barrierInsert
	rosterInsert
	rosterRead
	rosterLock
	rosterRaise
	nodeRead
	nodeWrite
	nodesAll
	nodesIdle
	nodesDelete
	memberInsert
	memberNode
	memberHold
	memberLock
	memberUpdate
	membersPresent
	membersHold
	membersLock
	membersAll
	membersSince
	membersDelete
	beatInsert
	beatLock
	beatWrite
	beatsLift
	beatsRead
	beatsDelete
	departureRead
	departuresInsert
	departuresSince
	departuresTrim
	statementCount
)

// catalogue lists each statement's name and parameters, in the order in which
// this package passes them. A parameter that is a list is one JSON array of
// strings unless said otherwise.
var catalogue = [statementCount]struct {
	name   string
	params []string
}{
	namespaceInsert: {"namespace_insert", []string{"namespace", "store_id"}},
	// Both return the identity, the base, the revision, the incarnation on record, and
	// the one under which the statement runs; '' where the store has none (I2).
	namespaceRead:   {"namespace_read", []string{"namespace"}},
	namespaceLock:   {"namespace_lock", []string{"namespace"}},
	namespaceRaise:  {"namespace_raise", []string{"namespace", "revision"}},
	namespaceRebase: {"namespace_rebase", []string{"namespace", "base"}},
	// The three that lift are optional: for a store that has an incarnation (I2).
	namespaceLift: {"namespace_lift", []string{"namespace", "base", "revision", "incarnation"}},
	tailInsert:    {"tail_insert", []string{"namespace", "bucket"}},
	tailsRead:     {"tails_read", []string{"namespace"}},
	// Locks the counter until the transaction ends, last of all rows, and raises it
	// by the number of entries that logs_insert will add.
	tailAdvance: {"tail_advance", []string{"namespace", "bucket", "count"}},
	// Notes that what logs_trim removes is about to go.
	tailTrim: {"tail_trim", []string{"namespace", "bucket", "shard", "through"}},
	// The four that read shards return the same columns. The first three lock the
	// rows in the order of their names: to change the owner, leaving out rows that
	// another transaction has locked; to change the owner; to change the head,
	// which may leave room for fence_touch beside it.
	shardsClaim: {"shards_claim", []string{"namespace", "shards"}},
	shardsLock:  {"shards_lock", []string{"namespace", "shards"}},
	shardsHold:  {"shards_hold", []string{"namespace", "shards"}},
	shardsRead:  {"shards_read", []string{"namespace", "shards"}},
	// Grants shards that have no row, and shards that have one.
	shardsInsert:  {"shards_insert", []string{"namespace", "shards", "session", "token", "revision"}},
	shardsGrant:   {"shards_grant", []string{"namespace", "shards", "session", "token", "revision"}},
	shardsLift:    {"shards_lift", []string{"namespace", "token", "revision"}},
	shardsRelease: {"shards_release", []string{"namespace", "shards", "revision"}},
	shardsAll:     {"shards_all", []string{"namespace"}},
	shardsSince:   {"shards_since", []string{"namespace", "revision"}},
	ownerRead:     {"owner_read", []string{"namespace", "shard"}},
	headRead:      {"head_read", []string{"namespace", "shard"}},
	headsAll:      {"heads_all", []string{"namespace"}},
	headWrite:     {"head_write", []string{"namespace", "shard", "number", "seq", "oldest", "nonce", "token"}},
	itemsVersions: {"items_versions", []string{"namespace", "shard", "keys"}},
	// items: an array of [key, offset, length]; values: one blob that they slice.
	itemsPut:    {"items_put", []string{"namespace", "shard", "version", "items", "values"}},
	itemsDelete: {"items_delete", []string{"namespace", "shard", "keys"}},
	// Both return how many bytes a value has before it.
	itemRead: {"item_read", []string{"namespace", "shard", "key"}},
	// high is the first key after the range, and empty for no bound.
	itemsList: {"items_list", []string{"namespace", "shard", "low", "high"}},
	// Adds one commit's entries, first to last. cuts: an array of the offsets in
	// payloads at which each begins, and of the end. The position is the one that
	// tail_advance made room for; without a counter the statement must fail.
	logsInsert: {"logs_insert", []string{"namespace", "shard", "first", "last", "token", "number", "bucket", "cuts", "payloads"}},
	// Optional: one commit that only appends, decided and written by one statement,
	// whose row is locked before it is decided upon. It returns the namespace's floor,
	// which must be at least seen, and the head's seq and oldest as it left them; or
	// nothing, if it wrote nothing.
	logsAppend: {"logs_append", []string{"namespace", "store_id", "seen", "shard", "session", "token", "number", "nonce", "bucket", "count", "cuts", "payloads"}},
	// Both return the same columns: the rows, in order, that have the entries,
	// or positions, after to through. Rows may be left out at the end, so that the
	// payloads of those before the last have less than the number of bytes; a dialect
	// that makes rows as they are read need not. Before the payloads they have their
	// number of bytes.
	logsRead: {"logs_read", []string{"namespace", "shard", "after", "through", "bytes"}},
	logsTail: {"logs_tail", []string{"namespace", "bucket", "after", "through", "bytes"}},
	// Removes the rows all of whose entries are at or before through.
	logsTrim: {"logs_trim", []string{"namespace", "shard", "through"}},
	// Returns a row if the lease is current, and keeps it so until the transaction
	// ends.
	fenceTouch:  {"fence_touch", []string{"namespace", "shard", "session", "token", "store_id"}},
	probeInsert: {"probe_insert", []string{"id"}},
	probeUpdate: {"probe_update", []string{"id", "version", "seen"}},
	probeDelete: {"probe_delete", []string{"id"}},
	// Optional: for a database that shows commits before they are durable. Each is run
	// outside any transaction. The first changes a row, if there is one; the second makes
	// it, if there is none.
	barrierWrite:  {"barrier_write", []string{"id"}},
	barrierInsert: {"barrier_insert", []string{"id"}},
	rosterInsert:  {"roster_insert", []string{"namespace", "store_id"}},
	// Both return the identity, the revision, and the incarnations as above.
	rosterRead:  {"roster_read", []string{"namespace"}},
	rosterLock:  {"roster_lock", []string{"namespace"}},
	rosterRaise: {"roster_raise", []string{"namespace", "revision"}},
	nodeRead:    {"node_read", []string{"namespace", "node"}},
	// Makes or changes the row. Rows whose names begin with "!", which no label may,
	// are this package's: the three below leave them out.
	nodeWrite: {"node_write", []string{"namespace", "node", "session"}},
	nodesAll:  {"nodes_all", []string{"namespace"}},
	// At most so many, in the order of their names, whose session is no member.
	nodesIdle:   {"nodes_idle", []string{"namespace", "limit"}},
	nodesDelete: {"nodes_delete", []string{"namespace", "nodes"}},
	memberNode:  {"member_node", []string{"namespace", "session"}},
	memberInsert: {"member_insert", []string{"namespace", "session", "node", "ttl_ns", "priority", "weight", "meta",
		"draining", "updates", "supersede", "revision"}},
	// Both keep what they return from being removed until the transaction ends.
	memberHold:  {"member_hold", []string{"namespace", "session"}},
	membersHold: {"members_hold", []string{"namespace", "sessions"}},
	// Locks a member's row to be updated, unless another transaction has locked it, and
	// returns the columns of members_all.
	memberLock: {"member_lock", []string{"namespace", "session"}},
	memberUpdate: {"member_update", []string{"namespace", "session", "priority", "weight", "meta", "draining",
		"updates", "revision"}},
	membersPresent: {"members_present", []string{"namespace", "sessions"}},
	// Locks members and their beats, leaving out those that another transaction has
	// locked, and returns sessions and versions.
	membersLock:      {"members_lock", []string{"namespace", "sessions"}},
	membersAll:       {"members_all", []string{"namespace"}},
	membersSince:     {"members_since", []string{"namespace", "revision"}},
	membersDelete:    {"members_delete", []string{"namespace", "sessions"}},
	beatInsert:       {"beat_insert", []string{"namespace", "session"}},
	beatLock:         {"beat_lock", []string{"namespace", "session"}},
	beatWrite:        {"beat_write", []string{"namespace", "session", "version"}},
	beatsLift:        {"beats_lift", []string{"namespace", "by"}},
	beatsRead:        {"beats_read", []string{"namespace", "sessions"}},
	beatsDelete:      {"beats_delete", []string{"namespace", "sessions"}},
	departureRead:    {"departure_read", []string{"namespace", "session"}},
	departuresInsert: {"departures_insert", []string{"namespace", "sessions", "revision"}},
	departuresSince:  {"departures_since", []string{"namespace", "revision"}},
	departuresTrim:   {"departures_trim", []string{"namespace", "revision"}},
}

// Statements are a dialect's statements, ready to be prepared. Immutable, safe
// for concurrent use.
type Statements struct {
	compiled [statementCount]compiled
	prefix   string // of the tables, with a schema's or database's name, if any
}

type compiled struct {
	text string
	args []int // for each placeholder, the index of the parameter it stands for
}

var (
	section   = regexp.MustCompile(`(?m)^-- name: ([a-z_]+)\s*$`)
	parameter = regexp.MustCompile(`(^|[^:a-z_]):([a-z_]+)`)
	// A prefix may follow the quoted name of a schema or database.
	bounded   = regexp.MustCompile("bounded\\(((?:[a-z]+\\.)?`?([a-z_]+)`?)\\)")
	qualified = regexp.MustCompile("^(\"[a-z_][a-z0-9_]{0,62}\"\\.|`[A-Za-z0-9_$-]{1,64}`\\.)?[a-z_][a-z0-9_]{0,31}$")
)

// tooWide stands for text that is too wide. No name, and nothing in JSON, is that.
const tooWide = "!"

// bound expands bounded(column). Bytes that are too wide are NULL.
func bound(text string) (string, error) {
	var unknown []error
	text = bounded.ReplaceAllStringFunc(text, func(call string) string {
		m := bounded.FindStringSubmatch(call)
		width := sqlschema.Width(m[2])
		if width == 0 {
			unknown = append(unknown, fmt.Errorf("column %q has no width", m[2]))
		}
		wide := " ELSE '" + tooWide + "'"
		if m[2] == "payloads" || m[2] == "value" {
			wide = ""
		}
		return fmt.Sprintf("CASE WHEN octet_length(%s) <= %d THEN %s%s END", m[1], width, m[1], wide)
	})
	return text, errors.Join(unknown...)
}

func (s Statement) String() string { return catalogue[s].name }

// optional reports whether a dialect may lack the statement.
func (s Statement) optional() bool {
	switch s {
	case logsAppend, namespaceLift, shardsLift, beatsLift, barrierWrite, barrierInsert:
		return true
	}
	return false
}

// Compile reads a dialect's file: sections that begin with "-- name: x", each
// one statement with :parameters. placeholder gives the text of the i-th
// placeholder of a statement, counted from 1. The prefix may begin with the
// quoted name of a schema and a dot.
func Compile(file, prefix string, placeholder func(i int) string) (*Statements, error) {
	if !qualified.MatchString(prefix) {
		return nil, invalid("table prefix %.100q: use lower-case letters, digits and \"_\", at most 32 bytes, a letter first", prefix)
	}
	texts := make(map[string]string)
	marks := section.FindAllStringSubmatchIndex(file, -1)
	for i, m := range marks {
		end := len(file)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		texts[file[m[2]:m[3]]] = strings.TrimSuffix(strings.TrimSpace(file[m[1]:end]), ";")
	}
	s := &Statements{prefix: prefix}
	for i, spec := range catalogue {
		text, ok := texts[spec.name]
		if !ok && Statement(i).optional() {
			continue
		}
		if !ok {
			return nil, fmt.Errorf("tenure: the dialect has no statement %q: add it", spec.name)
		}
		delete(texts, spec.name)
		text, err := bound(text)
		if err != nil {
			return nil, fmt.Errorf("tenure: statement %q: %w", spec.name, err)
		}
		c, err := compile(sqlschema.WithPrefix(text, prefix), spec.params, placeholder)
		if err != nil {
			return nil, fmt.Errorf("tenure: statement %q: %w", spec.name, err)
		}
		s.compiled[i] = c
	}
	for name := range texts {
		return nil, fmt.Errorf("tenure: the dialect's statement %q is used by nobody: remove it", name)
	}
	return s, nil
}

func compile(text string, params []string, placeholder func(int) string) (compiled, error) {
	var c compiled
	var unknown []error
	c.text = parameter.ReplaceAllStringFunc(text, func(match string) string {
		colon := strings.LastIndexByte(match, ':')
		name := match[colon+1:]
		for i, p := range params {
			if p == name {
				c.args = append(c.args, i)
				return match[:colon] + placeholder(len(c.args))
			}
		}
		unknown = append(unknown, fmt.Errorf("parameter %q does not exist; there are %q", name, params))
		return match
	})
	return c, errors.Join(unknown...)
}

// has reports whether the dialect has an optional statement.
func (s *Statements) has(of Statement) bool { return s.compiled[of].text != "" }

// Text is the statement as it is sent, with the dialect's placeholders.
func (s *Statements) Text(of Statement) string { return s.compiled[of].text }

// bind puts the parameters in the order of the statement's placeholders.
func (s *Statements) bind(of Statement, params []any) []any {
	c := &s.compiled[of]
	args := make([]any, len(c.args))
	for i, p := range c.args {
		args[i] = params[p]
	}
	return args
}

// wakes says who waits for what the statement moves, other than for a heartbeat.
func (s Statement) wakes() Readers {
	switch s {
	case namespaceRaise, namespaceRebase, namespaceLift, rosterRaise:
		return Observers
	case tailAdvance, tailTrim, logsAppend:
		return Tailers
	}
	return 0
}
