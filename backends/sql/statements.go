package sql

import (
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
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
	namespaceTrim
	clockRead
	namespaceLift
	tailInsert
	tailsRead
	tailsLock
	tailsMove
	tailMove
	shardsClaim
	shardsLock
	shardsHold
	shardsTry
	shardsRead
	shardsInsert
	shardsGrant
	shardsLift
	shardsRelease
	locksFree
	shardsDelete
	shardsAll
	shardsSince
	ownerRead
	headRead
	headsAll
	headsWrite
	headsFew
	headWrite
	itemsVersions
	itemsPut
	itemsDelete
	itemRead
	itemsList
	logsInsert
	logInsert
	logAppend
	logsAppend
	logsRead
	logsTail
	logsPositions
	logsTrim
	fenceTouch
	fenceChange
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
	membersChange
	membersLock
	membersAll
	membersSince
	membersDelete
	beatInsert
	beatTry
	beatLock
	beatWrite
	beatsLift
	beatsRead
	lookRead
	beatsDelete
	departureRead
	departuresInsert
	departuresSince
	departuresTrim
	statementCount
)

// catalogue lists each statement's name and parameters, in the order in which
// this package passes them. A parameter that is a list is one JSON array of
// strings unless said otherwise. A statement with columns is for a batch of rows. A
// dialect's text takes them in one of three ways, which Compile tells.
var catalogue = [statementCount]struct {
	name    string
	params  []string
	columns []string
}{
	namespaceInsert: {"namespace_insert", []string{"namespace", "store_id"}, nil},
	// Both return the identity, the base, the revision, the highest revision of a shard's
	// row that was removed (R2), the incarnation on record, and the one under which the
	// statement runs; '' where the store has none (I2).
	namespaceRead:   {"namespace_read", []string{"namespace"}, nil},
	namespaceLock:   {"namespace_lock", []string{"namespace"}, nil},
	namespaceRaise:  {"namespace_raise", []string{"namespace", "revision"}, nil},
	namespaceRebase: {"namespace_rebase", []string{"namespace", "base"}, nil},
	namespaceTrim:   {"namespace_trim", []string{"namespace", "trimmed"}, nil},
	// The server's clock, in microseconds since 1970. It and the three that lift are
	// optional: for a store that has an incarnation (I2).
	clockRead:     {"clock_read", nil, nil},
	namespaceLift: {"namespace_lift", []string{"namespace", "base", "revision", "incarnation"}, nil},
	tailInsert:    {"tail_insert", []string{"namespace", "bucket"}, nil},
	tailsRead:     {"tails_read", []string{"namespace"}, nil},
	// Optional: locks counters in the order of the rows, for a dialect whose tails_move
	// does not.
	tailsLock: {"tails_lock", []string{"namespace"}, []string{"bucket", "count", "trimmed"}},
	// Locks counters until the transaction ends, last of all rows and in the order of
	// the rows; raises each by the number of entries that logs_insert will add; and notes
	// the last position that logs_trim will remove, if it is greater than the one noted.
	tailsMove: {"tails_move", []string{"namespace"}, []string{"bucket", "count", "trimmed"}},
	// Optional, as head_write and log_insert: the same for a batch of one row, where
	// reading rows from JSON takes long.
	tailMove: {"tail_move", []string{"namespace"}, []string{"bucket", "count", "trimmed"}},
	// The five that read shards return the same columns. The first four lock the
	// rows in the order of their names: to change the owner, leaving out rows that
	// another transaction has locked; to change the owner; to change the head,
	// which may leave room for fence_touch beside it; and to change the head, leaving
	// out rows that another transaction has locked.
	shardsClaim: {"shards_claim", []string{"namespace", "shards"}, nil},
	shardsLock:  {"shards_lock", []string{"namespace", "shards"}, nil},
	shardsHold:  {"shards_hold", []string{"namespace", "shards"}, nil},
	shardsTry:   {"shards_try", []string{"namespace", "shards"}, nil},
	shardsRead:  {"shards_read", []string{"namespace", "shards"}, nil},
	// Grants shards that have no row, and shards that have one. from is the token that
	// they are granted from; for the second, -1 stands for each row's.
	shardsInsert:  {"shards_insert", []string{"namespace", "shards", "session", "token", "from", "revision"}, nil},
	shardsGrant:   {"shards_grant", []string{"namespace", "shards", "session", "token", "from", "revision"}, nil},
	shardsLift:    {"shards_lift", []string{"namespace", "token", "revision"}, nil},
	shardsRelease: {"shards_release", []string{"namespace", "shards", "revision"}, nil},
	// Returns the name, the token and the revision of shards with names from low to below
	// high that are free and have no head: of all but the newest keep, and of at most limit.
	// It locks nothing. The other removes rows, which are locked.
	locksFree:    {"locks_free", []string{"namespace", "low", "high", "keep", "limit"}, nil},
	shardsDelete: {"shards_delete", []string{"namespace", "shards"}, nil},
	shardsAll:    {"shards_all", []string{"namespace"}, nil},
	shardsSince:  {"shards_since", []string{"namespace", "revision"}, nil},
	ownerRead:    {"owner_read", []string{"namespace", "shard"}, nil},
	headRead:     {"head_read", []string{"namespace", "shard"}, nil},
	headsAll:     {"heads_all", []string{"namespace"}, nil},
	// The rows exist and are locked. Optional: the same for few, and for one. That for few
	// may do without the number, which is the next one, and the token, which is the row's.
	headsWrite: {"heads_write", []string{"namespace"}, []string{"shard", "number", "seq", "oldest", "nonce", "token"}},
	headsFew:   {"heads_few", []string{"namespace"}, []string{"shard", "number", "seq", "oldest", "nonce", "token"}},
	headWrite:  {"head_write", []string{"namespace"}, []string{"shard", "number", "seq", "oldest", "nonce", "token"}},
	// Returns the shard, the key and the version of each item that exists.
	itemsVersions: {"items_versions", []string{"namespace"}, []string{"shard", "key"}},
	itemsPut:      {"items_put", []string{"namespace"}, []string{"shard", "key", "version", "bytes"}},
	itemsDelete:   {"items_delete", []string{"namespace"}, []string{"shard", "key"}},
	// Both return how many bytes a value has before it.
	itemRead: {"item_read", []string{"namespace", "shard", "key"}, nil},
	// high is the first key after the range, and empty for no bound.
	itemsList: {"items_list", []string{"namespace", "shard", "low", "high", "limit"}, nil},
	// Adds commits, each with the entries first to last of its shard, in a row. cuts: an
	// array of the offsets in bytes at which each begins, and of the end. The position is
	// so much back from the one that tails_move made room for; without a counter the
	// statement must fail.
	logsInsert: {"logs_insert", []string{"namespace"}, []string{"shard", "first", "last", "token", "number", "bucket", "back", "cuts", "bytes"}},
	logInsert:  {"log_insert", []string{"namespace"}, []string{"shard", "first", "last", "token", "number", "bucket", "back", "cuts", "bytes"}},
	// Optional: one commit that only appends, decided and written by one statement,
	// whose row is locked before it is decided upon. It returns the namespace's floor,
	// which must be at least seen, and the head's seq and oldest as it left them; or
	// nothing, if it wrote nothing.
	logAppend: {"log_append", []string{"namespace", "store_id", "seen", "shard", "session", "token", "number", "nonce", "bucket", "count",
		"cuts", "payloads"}, nil},
	// Optional: the same for commits of several shards. It locks the shards in the order
	// given, each for at most patience (milliseconds), and returns for each commit that it
	// wrote the floor, the shard, seq and oldest. Lists are the driver's arrays, up to
	// payloads with an element for each commit: counts are its entries, places its bucket,
	// and backs how many positions it is back from the counter's. Buckets are in order, and
	// rise by totals also where a commit is not written.
	logsAppend: {"logs_append", []string{"namespace", "store_id", "seen", "patience", "shards", "sessions", "tokens", "numbers", "nonces",
		"counts", "places", "backs", "cuts", "payloads", "buckets", "totals"}, nil},
	// Both return the same columns: the rows, in order, that have the entries,
	// or positions, after to through. Rows may be left out at the end, so that the
	// payloads of those before the last have less than the number of bytes; a dialect
	// that makes rows as they are read need not. Before the payloads they have their
	// number of bytes.
	logsRead: {"logs_read", []string{"namespace", "shard", "after", "through", "bytes"}, nil},
	logsTail: {"logs_tail", []string{"namespace", "bucket", "after", "through", "bytes"}, nil},
	// Returns the shard, and the position of the last of the rows that logs_trim removes;
	// nothing, or 0, where there is none.
	logsPositions: {"logs_positions", []string{"namespace"}, []string{"shard", "through"}},
	// Removes the rows all of whose entries are at or before through.
	logsTrim: {"logs_trim", []string{"namespace"}, []string{"shard", "through"}},
	// Returns a row if the lease is current, the namespace's floor at least seen, and the
	// incarnation the recorded one, and keeps the lease so until the transaction ends.
	fenceTouch: {"fence_touch", []string{"namespace", "shard", "session", "token", "store_id", "seen"}, nil},
	// This and members_change are optional, and run before fence_touch and members_hold on a server that certifies
	// writes: each changes the rows, so that no transaction commits beside it that changes or removes them.
	fenceChange: {"fence_change", []string{"namespace", "shard", "session", "token"}, nil},
	probeInsert: {"probe_insert", []string{"id"}, nil},
	probeUpdate: {"probe_update", []string{"id", "version", "seen"}, nil},
	probeDelete: {"probe_delete", []string{"id"}, nil},
	// Optional: for a database that shows commits before they are durable. Each is run
	// outside any transaction. The first changes a row, if there is one, or returns one if it
	// needs none; the second makes it, if there is none.
	barrierWrite:  {"barrier_write", []string{"id"}, nil},
	barrierInsert: {"barrier_insert", []string{"id"}, nil},
	rosterInsert:  {"roster_insert", []string{"namespace", "store_id"}, nil},
	// Both return the identity, the revision, and the incarnations as above.
	rosterRead:  {"roster_read", []string{"namespace"}, nil},
	rosterLock:  {"roster_lock", []string{"namespace"}, nil},
	rosterRaise: {"roster_raise", []string{"namespace", "revision"}, nil},
	nodeRead:    {"node_read", []string{"namespace", "node"}, nil},
	// Makes or changes the row. Rows whose names begin with "!", which no label may,
	// are this package's: the three below leave them out.
	nodeWrite: {"node_write", []string{"namespace", "node", "session"}, nil},
	nodesAll:  {"nodes_all", []string{"namespace"}, nil},
	// At most so many, in the order of their names, whose session is no member.
	nodesIdle:   {"nodes_idle", []string{"namespace", "limit"}, nil},
	nodesDelete: {"nodes_delete", []string{"namespace", "nodes"}, nil},
	memberNode:  {"member_node", []string{"namespace", "session"}, nil},
	memberInsert: {"member_insert", []string{"namespace", "session", "node", "ttl_ns", "priority", "weight", "meta",
		"draining", "updates", "supersede", "revision"}, nil},
	// Both keep what they return from being removed until the transaction ends.
	memberHold:    {"member_hold", []string{"namespace", "session"}, nil},
	membersHold:   {"members_hold", []string{"namespace", "sessions"}, nil},
	membersChange: {"members_change", []string{"namespace", "sessions"}, nil},
	// Locks a member's row to be updated, unless another transaction has locked it, and
	// returns the columns of members_all.
	memberLock: {"member_lock", []string{"namespace", "session"}, nil},
	memberUpdate: {"member_update", []string{"namespace", "session", "priority", "weight", "meta", "draining",
		"updates", "revision"}, nil},
	membersPresent: {"members_present", []string{"namespace", "sessions"}, nil},
	// Locks members and their beats, leaving out those that another transaction has
	// locked, and returns sessions and versions.
	membersLock:   {"members_lock", []string{"namespace", "sessions"}, nil},
	membersAll:    {"members_all", []string{"namespace"}, nil},
	membersSince:  {"members_since", []string{"namespace", "revision"}, nil},
	membersDelete: {"members_delete", []string{"namespace", "sessions"}, nil},
	beatInsert:    {"beat_insert", []string{"namespace", "session"}, nil},
	// Both lock the row and return its version; the first, which is optional where a lock
	// never outlives a commit's flush, leaves out a row that another transaction has locked.
	beatTry:   {"beat_try", []string{"namespace", "session"}, nil},
	beatLock:  {"beat_lock", []string{"namespace", "session"}, nil},
	beatWrite: {"beat_write", []string{"namespace", "session", "version"}, nil},
	beatsLift: {"beats_lift", []string{"namespace", "by"}, nil},
	beatsRead: {"beats_read", []string{"namespace", "sessions"}, nil},
	// Optional, where one statement is sent at a time: namespaceRead, rosterRead without
	// the incarnation and beatsRead in one, a row per session or one without any.
	lookRead:         {"look_read", []string{"namespace", "sessions"}, nil},
	beatsDelete:      {"beats_delete", []string{"namespace", "sessions"}, nil},
	departureRead:    {"departure_read", []string{"namespace", "session"}, nil},
	departuresInsert: {"departures_insert", []string{"namespace", "sessions", "revision"}, nil},
	departuresSince:  {"departures_since", []string{"namespace", "revision"}, nil},
	departuresTrim:   {"departures_trim", []string{"namespace", "revision"}, nil},
}

// Statements are a dialect's statements, ready to be prepared. Immutable but for Certify, safe
// for concurrent use.
type Statements struct {
	compiled  [statementCount]compiled
	prefix    string // of the tables, with a schema's or database's name, if any
	certified bool   // see Certify
}

type compiled struct {
	text string
	args []int // for each placeholder, the index of the parameter it stands for
	rows int   // of a batch that one execution takes; 0: all, as JSON
}

// common are the statements that no dialect has to say in its own words.
//
//go:embed statements.sql
var common string

var (
	section   = regexp.MustCompile(`(?m)^-- name: ([a-z_]+(?: [a-z_]+)*)\s*$`)
	parameter = regexp.MustCompile(`\beach\([0-9]+, :[a-z_]+\)|(^|[^:a-z_]):([a-z_]+)`)
	// What a statement for all rows of a batch has, and one for n.
	rowsParameter = regexp.MustCompile(`(^|[^:a-z_]):rows\b`)
	eachParameter = regexp.MustCompile(`\beach\(([0-9]+), :`)
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
	case fenceChange, membersChange, lookRead, logAppend, logsAppend, tailsLock, tailMove, headsFew, headWrite, logInsert, clockRead, namespaceLift, shardsLift,
		beatTry, beatsLift, barrierWrite, barrierInsert:
		return true
	default:
		return false
	}
}

// lacks reports whether a dialect's text may do without a parameter.
func (s Statement) lacks(param string) bool {
	switch s {
	case logsRead, logsTail: // where rows are made as they are read
		return param == "bytes"
	case tailsLock:
		return param == "count" || param == "trimmed"
	case headsFew:
		return param == "number" || param == "token"
	default:
		return false
	}
}

// parameters lists what a text is given, for an error.
func (s Statement) parameters() string {
	spec := catalogue[s]
	list := ":" + strings.Join(spec.params, ", :")
	if len(spec.columns) > 0 {
		list += "; for each row :" + strings.Join(spec.columns, ", :")
	}
	return list
}

// Compile reads a dialect's file: sections that begin with "-- name: x", each one
// statement with :parameters, or with "-- name: x y", the same one for both. The catalogue, in this package's statements.go, lists
// the statements, their parameters, and what each must do. Those of this package's
// statements.sql serve where the dialect has none of that name. An error names all that is
// missing.
//
//   - placeholder gives the text of the i-th placeholder of a statement, counted from
//     1. Each occurrence of a parameter gets its own, so "$n" does not repeat.
//   - Names of tables and indexes begin with "tenure_", which the prefix replaces. The
//     prefix may begin with the quoted name of a schema and a dot.
//   - A statement for a batch of rows has the parameter :rows, one JSON array of
//     arrays with bytes in base64, and runs once; or it has the columns as parameters,
//     and runs once for each row; or it has each(n, :column), which becomes n
//     placeholders with ", " between, and runs once for n rows: fewer are filled up
//     with the last.
//   - bounded(column) becomes "CASE WHEN octet_length(column) <= its width THEN column
//     ... END", so that a value that is too wide never leaves the database. A dialect
//     whose database has no octet_length has every statement with bounded itself, and
//     replaces it before it calls Compile.
func Compile(file, prefix string, placeholder func(i int) string) (*Statements, error) {
	if !qualified.MatchString(prefix) {
		return nil, invalid("table prefix %.100q: use lower-case letters, digits and \"_\", at most 32 bytes, a letter first", prefix)
	}
	s := &Statements{prefix: prefix}
	var wrong []error
	texts := sections(common)
	for name, text := range sections(file) {
		if texts[name] == text {
			wrong = append(wrong, fmt.Errorf("tenure: the dialect's statement %q is that of all dialects: remove it", name))
		}
		texts[name] = text
	}
	for i, spec := range catalogue {
		text, ok := texts[spec.name]
		delete(texts, spec.name)
		if !ok {
			if !Statement(i).optional() {
				given := Statement(i).parameters()
				wrong = append(wrong, fmt.Errorf("tenure: the dialect has no statement %q (%s): add it", spec.name, given))
			}
			continue
		}
		c, err := Statement(i).compile(text, prefix, placeholder)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("tenure: statement %q: %w", spec.name, err))
		}
		s.compiled[i] = c
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		wrong = append(wrong, fmt.Errorf("tenure: the dialect's statement %q is not in the catalogue: remove it", name))
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	return s, nil
}

// sections cuts a dialect's file.
func sections(file string) map[string]string {
	texts := make(map[string]string)
	marks := section.FindAllStringSubmatchIndex(file, -1)
	for i, m := range marks {
		end := len(file)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		text := strings.TrimSuffix(strings.TrimSpace(file[m[1]:end]), ";")
		for name := range strings.FieldsSeq(file[m[2]:m[3]]) {
			texts[name] = text
		}
	}
	return texts
}

func (s Statement) compile(text, prefix string, placeholder func(int) string) (compiled, error) {
	text, err := bound(text)
	wrong := []error{err}
	c := compiled{}
	params, columns := catalogue[s].params, catalogue[s].columns
	switch {
	case len(columns) == 0:
	case rowsParameter.MatchString(text):
		params = slices.Concat(params, []string{"rows"})
	default:
		c.rows = 1
		params = slices.Concat(params, columns)
		if m := eachParameter.FindStringSubmatch(text); m != nil {
			c.rows, err = strconv.Atoi(m[1])
			wrong = append(wrong, err)
		}
	}
	used := make([]bool, len(params))
	c.text = parameter.ReplaceAllStringFunc(sqlschema.WithPrefix(text, prefix), func(match string) string {
		colon := strings.LastIndexByte(match, ':')
		name, each := strings.CutSuffix(match[colon+1:], ")")
		i := slices.Index(params, name)
		switch column := i >= len(catalogue[s].params); {
		case i < 0:
			wrong = append(wrong, fmt.Errorf("parameter %q does not exist; there are %q", name, params))
			return match
		case each != (column && c.rows > 1) || each && !strings.HasPrefix(match, fmt.Sprintf("each(%d,", c.rows)):
			wrong = append(wrong, fmt.Errorf("parameter %q: each() is for columns, then for all, and of as many rows: %q", name, columns))
			return match
		}
		used[i] = true
		if !each {
			c.args = append(c.args, i)
			return match[:colon] + placeholder(len(c.args))
		}
		places := make([]string, c.rows)
		for row := range places {
			c.args = append(c.args, i+row*len(columns))
			places[row] = placeholder(len(c.args))
		}
		return strings.Join(places, ", ")
	})
	for i, p := range params {
		if !used[i] && !s.lacks(p) {
			wrong = append(wrong, fmt.Errorf("parameter %q is left out", p))
		}
	}
	return c, errors.Join(wrong...)
}

// Certify is for a server that certifies writes, where a lock of one node is nothing to another one: decisions then
// change what rivals change too. It puts another text for old in all statements. Call it before their first use.
func (s *Statements) Certify(old, text string) {
	s.certified = true
	for i := range s.compiled {
		s.compiled[i].text = strings.ReplaceAll(s.compiled[i].text, old, text)
	}
}

// has reports whether the dialect has an optional statement, and it is to be used.
func (s *Statements) has(of Statement) bool {
	return s.compiled[of].text != "" && (s.certified || of != fenceChange && of != membersChange)
}

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

// forRows is the statement for a batch of n rows: a dialect may have one for fewer.
func (s *Statements) forRows(of Statement, n int) Statement {
	fits := func(fewer Statement) bool { return n <= s.compiled[fewer].rows }
	switch {
	case of == tailsMove && fits(tailMove):
		return tailMove
	case of == headsWrite && fits(headWrite):
		return headWrite
	case of == headsWrite && fits(headsFew):
		return headsFew
	case of == logsInsert && fits(logInsert):
		return logInsert
	}
	return of
}

// wakes says who waits for what the statement moves.
func (s Statement) wakes() Readers {
	switch s {
	case namespaceRaise, namespaceRebase, namespaceLift, rosterRaise:
		return Observers
	case tailsMove, tailMove, logAppend, logsAppend:
		return Tailers
	case beatWrite:
		return Watchers
	default:
		return 0
	}
}
