package engine

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

// The statements of every dialect. The catalogue lists their parameters and describes their effect.
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
	grantsRead
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

// catalogue lists each statement's name and parameters, in the order in which this package passes
// them. A list parameter is one JSON array of strings, except where noted. A statement with columns
// is for a batch of rows. A dialect's text takes the rows in one of three ways: see Compile.
var catalogue = [statementCount]struct {
	name    string
	params  []string
	columns []string
}{
	namespaceInsert: {"namespace_insert", []string{"namespace", "store_id"}, nil},
	// Both return the identity, the base, the revision, the highest revision of a removed
	// shard's row (R2), the recorded incarnation, and the current one. An incarnation is '' for
	// a store without incarnations (I2).
	namespaceRead:   {"namespace_read", []string{"namespace"}, nil},
	namespaceLock:   {"namespace_lock", []string{"namespace"}, nil},
	namespaceRaise:  {"namespace_raise", []string{"namespace", "revision"}, nil},
	namespaceRebase: {"namespace_rebase", []string{"namespace", "base"}, nil},
	namespaceTrim:   {"namespace_trim", []string{"namespace", "trimmed"}, nil},
	// The server's clock, in microseconds since 1970. This statement and the three that lift are
	// optional. A store with an incarnation needs them (I2).
	clockRead:     {"clock_read", nil, nil},
	namespaceLift: {"namespace_lift", []string{"namespace", "base", "revision", "incarnation"}, nil},
	tailInsert:    {"tail_insert", []string{"namespace", "bucket"}, nil},
	tailsRead:     {"tails_read", []string{"namespace"}, nil},
	// Optional. Locks counters in the order of the rows, for a dialect whose tails_move does not.
	tailsLock: {"tails_lock", []string{"namespace"}, []string{"bucket", "count", "trimmed"}},
	// Locks counters until the transaction ends, last of all rows and in the order of the rows.
	// Raises each by the number of entries that logs_insert will add. Notes the last position that
	// logs_trim will remove, if it is greater than the noted one.
	tailsMove: {"tails_move", []string{"namespace"}, []string{"bucket", "count", "trimmed"}},
	// Optional, as are head_write and log_insert: the same for a batch of one row, for databases
	// that read rows from JSON slowly.
	tailMove: {"tail_move", []string{"namespace"}, []string{"bucket", "count", "trimmed"}},
	// The five that read shards return the same columns. The first four lock the rows in the order
	// of their names. The first is for a change of the owner and skips rows that another
	// transaction has locked. The second is for a change of the owner and waits. The third is for a
	// change of the head, and may allow fence_touch beside it. The fourth is for a change of the
	// head and skips locked rows.
	shardsClaim: {"shards_claim", []string{"namespace", "shards"}, nil},
	shardsLock:  {"shards_lock", []string{"namespace", "shards"}, nil},
	shardsHold:  {"shards_hold", []string{"namespace", "shards"}, nil},
	shardsTry:   {"shards_try", []string{"namespace", "shards"}, nil},
	shardsRead:  {"shards_read", []string{"namespace", "shards"}, nil},
	// Grants shards without a row, and shards with one. from is the token before the grant. For the
	// second statement, -1 means the token of each row. note is prepended to the row's grants,
	// which are cut at 200 bytes.
	shardsInsert:  {"shards_insert", []string{"namespace", "shards", "session", "token", "from", "revision", "note"}, nil},
	shardsGrant:   {"shards_grant", []string{"namespace", "shards", "session", "token", "from", "revision", "note"}, nil},
	shardsLift:    {"shards_lift", []string{"namespace", "token", "revision"}, nil},
	shardsRelease: {"shards_release", []string{"namespace", "shards", "revision", "note"}, nil},
	// Returns the name, the token and the revision of free shards without a head, whose names are
	// from low to below high. It leaves out the newest keep, and returns at most limit. It locks
	// nothing. The other statement removes rows that are locked.
	locksFree:    {"locks_free", []string{"namespace", "low", "high", "keep", "limit"}, nil},
	shardsDelete: {"shards_delete", []string{"namespace", "shards"}, nil},
	shardsAll:    {"shards_all", []string{"namespace"}, nil},
	shardsSince:  {"shards_since", []string{"namespace", "revision"}, nil},
	ownerRead:    {"owner_read", []string{"namespace", "shard"}, nil},
	grantsRead:   {"grants_read", []string{"namespace", "shard"}, nil},
	headRead:     {"head_read", []string{"namespace", "shard"}, nil},
	headsAll:     {"heads_all", []string{"namespace"}, nil},
	// The rows exist and are locked. Optional: the same for few rows, and for one. The statement
	// for few may omit the number, which is the next one, and the token, which is the row's.
	headsWrite: {"heads_write", []string{"namespace"}, []string{"shard", "number", "seq", "oldest", "nonce", "token"}},
	headsFew:   {"heads_few", []string{"namespace"}, []string{"shard", "number", "seq", "oldest", "nonce", "token"}},
	headWrite:  {"head_write", []string{"namespace"}, []string{"shard", "number", "seq", "oldest", "nonce", "token"}},
	// Returns the shard, the key and the version of each item that exists.
	itemsVersions: {"items_versions", []string{"namespace"}, []string{"shard", "key"}},
	itemsPut:      {"items_put", []string{"namespace"}, []string{"shard", "key", "version", "bytes"}},
	itemsDelete:   {"items_delete", []string{"namespace"}, []string{"shard", "key"}},
	// Both return the length of a value, in bytes, before the value.
	itemRead: {"item_read", []string{"namespace", "shard", "key"}, nil},
	// high is the first key after the range, or empty for no limit.
	itemsList: {"items_list", []string{"namespace", "shard", "low", "high", "limit", "largest"}, nil},
	// Adds commits, one row each, with the entries first to last of a shard. cuts is an array
	// of the byte offsets at which the entries begin, followed by the end. back is the distance
	// of the position from the one that tails_move set. Without a counter, the statement must
	// fail.
	logsInsert: {"logs_insert", []string{"namespace"}, []string{"shard", "first", "last", "token", "number", "bucket", "back", "cuts", "bytes"}},
	logInsert:  {"log_insert", []string{"namespace"}, []string{"shard", "first", "last", "token", "number", "bucket", "back", "cuts", "bytes"}},
	// Optional: decides and writes one commit that only appends, and locks its row before it
	// decides. It returns the namespace's floor, which must be at least seen, and the new seq
	// and oldest of the head. If it writes nothing, it returns no rows.
	logAppend: {"log_append", []string{"namespace", "store_id", "seen", "shard", "session", "token", "number", "nonce", "bucket", "count",
		"cuts", "payloads"}, nil},
	// Optional: the same for commits of several shards. It locks the shards in the given order,
	// each for at most patience (milliseconds). For each commit that it wrote, it returns the
	// floor, the shard, seq and oldest. Lists are the driver's arrays. Those up to payloads
	// have an element for each commit. counts holds its number of entries, places its bucket,
	// and backs its distance from the counter's position. Buckets are in order. They rise by
	// totals even if a commit is not written.
	logsAppend: {"logs_append", []string{"namespace", "store_id", "seen", "patience", "shards", "sessions", "tokens", "numbers", "nonces",
		"counts", "places", "backs", "cuts", "payloads", "buckets", "totals"}, nil},
	// Both return the same columns: in order, the rows that have the entries, or positions,
	// after to through. Rows may be left out at the end, so that the payloads of the rows
	// before the last have fewer than bytes. A dialect that produces rows while they are read
	// need not leave any out. The payloads' length in bytes precedes them.
	logsRead: {"logs_read", []string{"namespace", "shard", "after", "through", "bytes"}, nil},
	logsTail: {"logs_tail", []string{"namespace", "bucket", "after", "through", "bytes"}, nil},
	// Returns the shard, and the position of the last row that logs_trim removes. Without such
	// a row, it returns nothing, or 0.
	logsPositions: {"logs_positions", []string{"namespace"}, []string{"shard", "through"}},
	// Removes the rows with no entry after through.
	logsTrim: {"logs_trim", []string{"namespace"}, []string{"shard", "through"}},
	// Returns a row if the lease is current, the namespace's floor is at least seen, and the
	// incarnation is the recorded one. It keeps the lease current until the transaction ends.
	fenceTouch: {"fence_touch", []string{"namespace", "shard", "session", "token", "store_id", "seen"}, nil},
	// This and members_change are optional. They run before fence_touch and members_hold on a
	// server that certifies writes. Each changes the rows, so that no concurrent transaction that
	// changes or removes them commits.
	fenceChange: {"fence_change", []string{"namespace", "shard", "session", "token"}, nil},
	probeInsert: {"probe_insert", []string{"id"}, nil},
	probeUpdate: {"probe_update", []string{"id", "version", "seen"}, nil},
	probeDelete: {"probe_delete", []string{"id"}, nil},
	// Optional: for a database that shows commits before they are durable. Both run outside any
	// transaction. The first changes a row, and returns a row without changing it if it needs no
	// change. The second inserts a missing row.
	barrierWrite:  {"barrier_write", []string{"id"}, nil},
	barrierInsert: {"barrier_insert", []string{"id"}, nil},
	rosterInsert:  {"roster_insert", []string{"namespace", "store_id"}, nil},
	// Both return the identity, the revision, and the incarnations as above.
	rosterRead:  {"roster_read", []string{"namespace"}, nil},
	rosterLock:  {"roster_lock", []string{"namespace"}, nil},
	rosterRaise: {"roster_raise", []string{"namespace", "revision"}, nil},
	nodeRead:    {"node_read", []string{"namespace", "node"}, nil},
	// Inserts or changes the row. Rows with names that begin with "!", which no label can have,
	// belong to this package. The three statements below leave them out.
	nodeWrite: {"node_write", []string{"namespace", "node", "session"}, nil},
	nodesAll:  {"nodes_all", []string{"namespace"}, nil},
	// Returns at most limit labels whose session is no member, in the order of their names.
	nodesIdle:   {"nodes_idle", []string{"namespace", "limit"}, nil},
	nodesDelete: {"nodes_delete", []string{"namespace", "nodes"}, nil},
	memberNode:  {"member_node", []string{"namespace", "session"}, nil},
	memberInsert: {"member_insert", []string{"namespace", "session", "node", "ttl_ns", "priority", "weight", "meta",
		"draining", "updates", "supersede", "revision"}, nil},
	// Both keep what they return from being removed until the transaction ends.
	memberHold:    {"member_hold", []string{"namespace", "session"}, nil},
	membersHold:   {"members_hold", []string{"namespace", "sessions"}, nil},
	membersChange: {"members_change", []string{"namespace", "sessions"}, nil},
	// Locks a member's row for an update, unless another transaction has locked it. Returns the
	// columns of members_all.
	memberLock: {"member_lock", []string{"namespace", "session"}, nil},
	memberUpdate: {"member_update", []string{"namespace", "session", "priority", "weight", "meta", "draining",
		"updates", "revision"}, nil},
	membersPresent: {"members_present", []string{"namespace", "sessions"}, nil},
	// Locks members and their beats, except those that another transaction has locked. Returns
	// sessions and versions.
	membersLock:   {"members_lock", []string{"namespace", "sessions"}, nil},
	membersAll:    {"members_all", []string{"namespace"}, nil},
	membersSince:  {"members_since", []string{"namespace", "revision"}, nil},
	membersDelete: {"members_delete", []string{"namespace", "sessions"}, nil},
	beatInsert:    {"beat_insert", []string{"namespace", "session"}, nil},
	// Both lock the row and return its version. The first skips a row that another transaction has
	// locked. It is optional for a database whose locks never outlive a commit's flush.
	beatTry:   {"beat_try", []string{"namespace", "session"}, nil},
	beatLock:  {"beat_lock", []string{"namespace", "session"}, nil},
	beatWrite: {"beat_write", []string{"namespace", "session", "version"}, nil},
	beatsLift: {"beats_lift", []string{"namespace", "by"}, nil},
	beatsRead: {"beats_read", []string{"namespace", "sessions"}, nil},
	// Optional, for a server to which one statement is sent at a time. Combines namespaceRead,
	// rosterRead without the incarnation, and beatsRead. Returns a row per session, or one row
	// if there is no session.
	lookRead:         {"look_read", []string{"namespace", "sessions"}, nil},
	beatsDelete:      {"beats_delete", []string{"namespace", "sessions"}, nil},
	departureRead:    {"departure_read", []string{"namespace", "session"}, nil},
	departuresInsert: {"departures_insert", []string{"namespace", "sessions", "revision"}, nil},
	departuresSince:  {"departures_since", []string{"namespace", "revision"}, nil},
	departuresTrim:   {"departures_trim", []string{"namespace", "revision"}, nil},
}

// Statements holds a dialect's statements, ready to be prepared. It is immutable except for
// Certify, and safe for concurrent use.
type Statements struct {
	compiled  [statementCount]compiled
	prefix    string // prefix of the tables, with the name of a schema or database, if any
	certified bool   // see Certify
}

type compiled struct {
	text string
	args []int // index of the parameter for each placeholder
	rows int   // rows of a batch per execution; 0: all, as JSON
}

// common are the statements that a dialect need not define.
//
//go:embed statements.sql
var common string

var (
	section   = regexp.MustCompile(`(?m)^-- name: ([a-z_]+(?: [a-z_]+)*)\s*$`)
	parameter = regexp.MustCompile(`\beach\([0-9]+, :[a-z_]+\)|(^|[^:a-z_]):([a-z_]+)`)
	// A statement for all rows of a batch contains the first, and one for n rows the second.
	rowsParameter = regexp.MustCompile(`(^|[^:a-z_]):rows\b`)
	eachParameter = regexp.MustCompile(`\beach\(([0-9]+), :`)
	// A prefix may follow the quoted name of a schema or database.
	bounded   = regexp.MustCompile("bounded\\(((?:[a-z]+\\.)?`?([a-z_]+)`?)\\)")
	qualified = regexp.MustCompile("^(\"[a-z_][a-z0-9_]{0,62}\"\\.|`[A-Za-z0-9_$-]{1,64}`\\.)?[a-z_][a-z0-9_]{0,31}$")
)

// tooWide stands for text that is too wide. It is no name and no JSON.
const tooWide = "!"

// bound expands bounded(column), in which bytes that are too wide become NULL.
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
	case fenceChange, membersChange, lookRead, logAppend, logsAppend, tailsLock, tailMove, headsFew, headWrite, logInsert, clockRead,
		namespaceLift, shardsLift, beatTry, beatsLift, barrierWrite, barrierInsert:
		return true
	default:
		return false
	}
}

// lacks reports whether a dialect's text may omit a parameter.
func (s Statement) lacks(param string) bool {
	switch s {
	case logsRead, logsTail: // for dialects that produce rows while they are read
		return param == "bytes"
	case tailsLock:
		return param == "count" || param == "trimmed"
	case headsFew:
		return param == "number" || param == "token"
	default:
		return false
	}
}

// parameters lists the parameters of a text, for an error.
func (s Statement) parameters() string {
	spec := catalogue[s]
	list := ":" + strings.Join(spec.params, ", :")
	if len(spec.columns) > 0 {
		list += "; for each row :" + strings.Join(spec.columns, ", :")
	}
	return list
}

// Compile reads a dialect's file. A section begins with "-- name: x" and has one statement with
// :parameters. A section that begins with "-- name: x y" defines two equal statements. The
// catalogue, in this package's statements.go, lists the statements, their parameters and their
// effects. If the dialect lacks a statement, the one in this package's statements.sql is used. An
// error names everything that is missing.
//
//   - placeholder returns the text of a statement's placeholder number i, which begins with 1. Each
//     occurrence of a parameter gets a separate one, so "$n" does not repeat.
//   - Names of tables and indexes begin with "tenure_", which the prefix replaces. The prefix may
//     begin with the quoted name of a schema and a dot.
//   - A statement for a batch of rows has one of three forms. With the parameter :rows, one
//     JSON array of arrays with bytes in base64, it runs once. With the columns as parameters,
//     it runs once for each row. With each(n, :column), which becomes n placeholders with ", "
//     between, it runs once for n rows, and the last row fills up a smaller batch.
//   - bounded(column) becomes "CASE WHEN octet_length(column) <= its width THEN column ... END", so
//     that a value that is too wide never leaves the database. If a dialect's database has no
//     octet_length, the dialect defines every statement with bounded, and replaces bounded before
//     it calls Compile.
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

// sections returns the sections of a dialect's file by name.
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

// Certify is for a server that certifies writes, where a lock on one node has no effect on
// another. Decisions then also change the rows that rivals change. Certify replaces old with
// text in all statements. It must be called before their first use.
func (s *Statements) Certify(old, text string) {
	s.certified = true
	for i := range s.compiled {
		s.compiled[i].text = strings.ReplaceAll(s.compiled[i].text, old, text)
	}
}

// has reports whether the dialect defines an optional statement and the statement is to be
// used.
func (s *Statements) has(of Statement) bool {
	return s.compiled[of].text != "" && (s.certified || of != fenceChange && of != membersChange)
}

// Text returns the statement as it is sent, with the dialect's placeholders.
func (s *Statements) Text(of Statement) string { return s.compiled[of].text }

// bind returns the parameters in the order of the statement's placeholders.
func (s *Statements) bind(of Statement, params []any) []any {
	c := &s.compiled[of]
	args := make([]any, len(c.args))
	for i, p := range c.args {
		args[i] = params[p]
	}
	return args
}

// forRows returns the statement for a batch of n rows. A dialect may have one for fewer.
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

// wakes returns the readers that wait for the statement's changes.
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
