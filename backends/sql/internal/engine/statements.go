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

// Statement identifies a statement in a dialect's file.
type Statement int

// These constants identify the statements. The catalogue lists their parameters and effects.
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
// processes a batch of rows. A dialect's text can receive the rows in one of three forms (see
// Compile).
var catalogue = [statementCount]struct {
	name    string
	params  []string
	columns []string
}{
	namespaceInsert: {"namespace_insert", []string{"namespace", "store_id"}, nil},
	// namespace_read and namespace_lock return the identity, the base, the revision, the highest
	// revision of a removed shard's row (R2), the recorded incarnation, and the current
	// incarnation. An incarnation is '' for a store without incarnations (I2).
	namespaceRead:   {"namespace_read", []string{"namespace"}, nil},
	namespaceLock:   {"namespace_lock", []string{"namespace"}, nil},
	namespaceRaise:  {"namespace_raise", []string{"namespace", "revision"}, nil},
	namespaceRebase: {"namespace_rebase", []string{"namespace", "base"}, nil},
	namespaceTrim:   {"namespace_trim", []string{"namespace", "trimmed"}, nil},
	// clock_read returns the server's time, in microseconds since 1970. This statement and the
	// three lift statements are optional, but a store with an incarnation needs them (I2).
	clockRead:     {"clock_read", nil, nil},
	namespaceLift: {"namespace_lift", []string{"namespace", "base", "revision", "incarnation"}, nil},
	tailInsert:    {"tail_insert", []string{"namespace", "bucket"}, nil},
	tailsRead:     {"tails_read", []string{"namespace"}, nil},
	// tails_lock is optional. It locks counters in the order of the rows, for a dialect whose
	// tails_move does not keep this order.
	tailsLock: {"tails_lock", []string{"namespace"}, []string{"bucket", "count", "trimmed"}},
	// tails_move locks counters until the transaction ends, in the order of the rows and after all
	// other rows. It raises each counter by the number of entries that logs_insert will add. It
	// records the last position that logs_trim will remove, if that position is higher than the
	// recorded one.
	tailsMove: {"tails_move", []string{"namespace"}, []string{"bucket", "count", "trimmed"}},
	// tail_move, head_write and log_insert are optional. Each processes a batch of one row, for
	// databases that are slow to read rows from JSON.
	tailMove: {"tail_move", []string{"namespace"}, []string{"bucket", "count", "trimmed"}},
	// The five statements that read shards return the same columns. All but shards_read lock the
	// rows in the order of their names. To change an owner, shards_claim skips rows that another
	// transaction has locked, and shards_lock waits for them. To change a head, shards_try skips
	// such rows, and shards_hold waits for them and may allow a concurrent fence_touch.
	shardsClaim: {"shards_claim", []string{"namespace", "shards"}, nil},
	shardsLock:  {"shards_lock", []string{"namespace", "shards"}, nil},
	shardsHold:  {"shards_hold", []string{"namespace", "shards"}, nil},
	shardsTry:   {"shards_try", []string{"namespace", "shards"}, nil},
	shardsRead:  {"shards_read", []string{"namespace", "shards"}, nil},
	// shards_insert grants shards without a row, and shards_grant grants shards with a row. The
	// parameter from is the token before the grant or, for shards_grant, -1 for the token in each
	// row. The note is prepended to the row's grants, which are cut at 200 bytes.
	shardsInsert:  {"shards_insert", []string{"namespace", "shards", "session", "token", "from", "revision", "note"}, nil},
	shardsGrant:   {"shards_grant", []string{"namespace", "shards", "session", "token", "from", "revision", "note"}, nil},
	shardsLift:    {"shards_lift", []string{"namespace", "token", "revision"}, nil},
	shardsRelease: {"shards_release", []string{"namespace", "shards", "revision", "note"}, nil},
	// locks_free returns the name, token and revision of free shards without a head, whose names
	// are at least :low and below :high. It omits the newest :keep shards, returns at most :limit
	// shards, and locks nothing. shards_delete removes rows that are already locked.
	locksFree:    {"locks_free", []string{"namespace", "low", "high", "keep", "limit"}, nil},
	shardsDelete: {"shards_delete", []string{"namespace", "shards"}, nil},
	shardsAll:    {"shards_all", []string{"namespace"}, nil},
	shardsSince:  {"shards_since", []string{"namespace", "revision"}, nil},
	ownerRead:    {"owner_read", []string{"namespace", "shard"}, nil},
	grantsRead:   {"grants_read", []string{"namespace", "shard"}, nil},
	headRead:     {"head_read", []string{"namespace", "shard"}, nil},
	headsAll:     {"heads_all", []string{"namespace"}, nil},
	// The rows exist and are locked. The optional heads_few and head_write do the same for a few
	// rows and for one row. The statement heads_few need not use the number and the token, because
	// these are the next number and the row's token.
	headsWrite: {"heads_write", []string{"namespace"}, []string{"shard", "number", "seq", "oldest", "nonce", "token"}},
	headsFew:   {"heads_few", []string{"namespace"}, []string{"shard", "number", "seq", "oldest", "nonce", "token"}},
	headWrite:  {"head_write", []string{"namespace"}, []string{"shard", "number", "seq", "oldest", "nonce", "token"}},
	// items_versions returns the shard, the key and the version of each item that exists.
	itemsVersions: {"items_versions", []string{"namespace"}, []string{"shard", "key"}},
	itemsPut:      {"items_put", []string{"namespace"}, []string{"shard", "key", "version", "bytes"}},
	itemsDelete:   {"items_delete", []string{"namespace"}, []string{"shard", "key"}},
	// item_read and items_list return a value's length in bytes before the value.
	itemRead: {"item_read", []string{"namespace", "shard", "key"}, nil},
	// The parameter high is the first key after the range, or empty if the range has no upper
	// limit.
	itemsList: {"items_list", []string{"namespace", "shard", "low", "high", "limit", "largest"}, nil},
	// logs_insert adds one row for each commit, with a shard's entries from first to last. The
	// parameter cuts is an array of the byte offsets at which the entries begin, followed by the
	// end. The parameter back is the distance of the row's position from the position that
	// tails_move set. If there is no counter, the statement must fail.
	logsInsert: {"logs_insert", []string{"namespace"}, []string{"shard", "first", "last", "token", "number", "bucket", "back", "cuts", "bytes"}},
	logInsert:  {"log_insert", []string{"namespace"}, []string{"shard", "first", "last", "token", "number", "bucket", "back", "cuts", "bytes"}},
	// log_append is optional. It locks the shard's row, and then checks and writes a commit that
	// only appends. It returns the namespace's floor, which must not be below seen, and the head's
	// new seq and oldest. If the statement writes nothing, it returns no rows.
	logAppend: {"log_append", []string{"namespace", "store_id", "seen", "shard", "session", "token", "number", "nonce", "bucket", "count",
		"cuts", "payloads"}, nil},
	// logs_append is optional, and is like log_append for the commits of several shards. It locks
	// the shards in the given order, and waits at most patience (milliseconds) for each lock. For
	// each commit written, it returns the floor, the shard, seq and oldest. Lists are the driver's
	// arrays. Each list up to payloads has one element per commit. The lists counts, places and
	// backs contain the number of entries, the bucket, and the distance from the counter's
	// position. The buckets are in order. Each bucket's counter rises by its total, even if some
	// commits are not written.
	logsAppend: {"logs_append", []string{"namespace", "store_id", "seen", "patience", "shards", "sessions", "tokens", "numbers", "nonces",
		"counts", "places", "backs", "cuts", "payloads", "buckets", "totals"}, nil},
	// logs_read and logs_tail return the same columns, with the rows in order. The rows contain the
	// entries, or positions, from :after to :through. The statement may stop after the row with
	// which the payloads reach :bytes. A dialect that produces rows while they are read need not do
	// so. The payloads' length in bytes precedes the payloads.
	logsRead: {"logs_read", []string{"namespace", "shard", "after", "through", "bytes"}, nil},
	logsTail: {"logs_tail", []string{"namespace", "bucket", "after", "through", "bytes"}, nil},
	// logs_positions returns the shard, and the position of the last row that logs_trim removes. If
	// there is no such row, it returns no row, or 0.
	logsPositions: {"logs_positions", []string{"namespace"}, []string{"shard", "through"}},
	// logs_trim removes the rows that have no entry after through.
	logsTrim: {"logs_trim", []string{"namespace"}, []string{"shard", "through"}},
	// fence_touch returns a row if the lease is current, the floor is not below seen, and the
	// incarnation matches the recorded incarnation. It keeps the lease current until the
	// transaction ends.
	fenceTouch: {"fence_touch", []string{"namespace", "shard", "session", "token", "store_id", "seen"}, nil},
	// fence_change and members_change are optional. On a server that certifies writes, they run
	// before fence_touch and members_hold. Because these statements change the rows, no concurrent
	// transaction that changes or removes the rows can commit.
	fenceChange: {"fence_change", []string{"namespace", "shard", "session", "token"}, nil},
	probeInsert: {"probe_insert", []string{"id"}, nil},
	probeUpdate: {"probe_update", []string{"id", "version", "seen"}, nil},
	probeDelete: {"probe_delete", []string{"id"}, nil},
	// barrier_write and barrier_insert are optional, for a database that shows commits before they
	// are durable. They run outside any transaction. The first changes a row or, if no change is
	// needed, only returns a row. The second inserts a missing row.
	barrierWrite:  {"barrier_write", []string{"id"}, nil},
	barrierInsert: {"barrier_insert", []string{"id"}, nil},
	rosterInsert:  {"roster_insert", []string{"namespace", "store_id"}, nil},
	// roster_read and roster_lock return the identity, the revision, and the two incarnations.
	rosterRead:  {"roster_read", []string{"namespace"}, nil},
	rosterLock:  {"roster_lock", []string{"namespace"}, nil},
	rosterRaise: {"roster_raise", []string{"namespace", "revision"}, nil},
	nodeRead:    {"node_read", []string{"namespace", "node"}, nil},
	// node_write inserts or changes the row. No label can begin with "!". Rows with such names
	// belong to this package, and nodes_all, nodes_idle and nodes_delete omit them.
	nodeWrite: {"node_write", []string{"namespace", "node", "session"}, nil},
	nodesAll:  {"nodes_all", []string{"namespace"}, nil},
	// nodes_idle returns at most :limit labels whose session is not a member, sorted by name.
	nodesIdle:   {"nodes_idle", []string{"namespace", "limit"}, nil},
	nodesDelete: {"nodes_delete", []string{"namespace", "nodes"}, nil},
	memberNode:  {"member_node", []string{"namespace", "session"}, nil},
	memberInsert: {"member_insert", []string{"namespace", "session", "node", "ttl_ns", "priority", "weight", "meta",
		"draining", "updates", "supersede", "revision"}, nil},
	// Until the transaction ends, member_hold and members_hold prevent the removal of the rows that
	// they return.
	memberHold:    {"member_hold", []string{"namespace", "session"}, nil},
	membersHold:   {"members_hold", []string{"namespace", "sessions"}, nil},
	membersChange: {"members_change", []string{"namespace", "sessions"}, nil},
	// member_lock locks a member's row for an update, unless another transaction has locked the
	// row. It returns the columns of members_all.
	memberLock: {"member_lock", []string{"namespace", "session"}, nil},
	memberUpdate: {"member_update", []string{"namespace", "session", "priority", "weight", "meta", "draining",
		"updates", "revision"}, nil},
	membersPresent: {"members_present", []string{"namespace", "sessions"}, nil},
	// members_lock locks members and their beats, except rows that another transaction has locked.
	// It returns sessions and versions.
	membersLock:   {"members_lock", []string{"namespace", "sessions"}, nil},
	membersAll:    {"members_all", []string{"namespace"}, nil},
	membersSince:  {"members_since", []string{"namespace", "revision"}, nil},
	membersDelete: {"members_delete", []string{"namespace", "sessions"}, nil},
	beatInsert:    {"beat_insert", []string{"namespace", "session"}, nil},
	// beat_try and beat_lock lock the row and return its version. If another transaction has locked
	// the row, beat_try skips it. A database whose locks never outlive a commit's flush does not
	// need beat_try.
	beatTry:   {"beat_try", []string{"namespace", "session"}, nil},
	beatLock:  {"beat_lock", []string{"namespace", "session"}, nil},
	beatWrite: {"beat_write", []string{"namespace", "session", "version"}, nil},
	beatsLift: {"beats_lift", []string{"namespace", "by"}, nil},
	beatsRead: {"beats_read", []string{"namespace", "sessions"}, nil},
	// look_read is optional, for a server that receives only one statement at a time. It combines
	// namespaceRead, rosterRead without the incarnation, and beatsRead. It returns one row for each
	// session, or one row if there are no sessions.
	lookRead:         {"look_read", []string{"namespace", "sessions"}, nil},
	beatsDelete:      {"beats_delete", []string{"namespace", "sessions"}, nil},
	departureRead:    {"departure_read", []string{"namespace", "session"}, nil},
	departuresInsert: {"departures_insert", []string{"namespace", "sessions", "revision"}, nil},
	departuresSince:  {"departures_since", []string{"namespace", "revision"}, nil},
	departuresTrim:   {"departures_trim", []string{"namespace", "revision"}, nil},
}

// Statements contains a dialect's statements, ready to be prepared. Only Certify changes them. They
// are safe for concurrent use.
type Statements struct {
	compiled  [statementCount]compiled
	prefix    string // prefix of the tables, with the name of a schema or database, if any
	certified bool   // see Certify
}

type compiled struct {
	text string
	args []int // index of the parameter for each placeholder
	rows int   // a batch's rows per execution; 0: all, as JSON
}

// common contains the statements that a dialect need not define.
//
//go:embed statements.sql
var common string

var (
	section   = regexp.MustCompile(`(?m)^-- name: ([a-z_]+(?: [a-z_]+)*)\s*$`)
	parameter = regexp.MustCompile(`\beach\([0-9]+, :[a-z_]+\)|(^|[^:a-z_]):([a-z_]+)`)
	// A statement for all rows of a batch contains rowsParameter. A statement for n rows contains
	// eachParameter.
	rowsParameter = regexp.MustCompile(`(^|[^:a-z_]):rows\b`)
	eachParameter = regexp.MustCompile(`\beach\(([0-9]+), :`)
	// The quoted name of a schema or database may precede a prefix.
	bounded   = regexp.MustCompile("bounded\\(((?:[a-z]+\\.)?`?([a-z_]+)`?)\\)")
	qualified = regexp.MustCompile("^(\"[a-z_][a-z0-9_]{0,62}\"\\.|`[A-Za-z0-9_$-]{1,64}`\\.)?[a-z_][a-z0-9_]{0,31}$")
)

// tooWide replaces text that is too wide. It is neither a name nor JSON.
const tooWide = "!"

// bound expands bounded(column), which replaces values that are too wide. Payloads and items become
// NULL, and other text becomes tooWide.
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

// parameters lists a statement's parameters for an error message.
func (s Statement) parameters() string {
	spec := catalogue[s]
	list := ":" + strings.Join(spec.params, ", :")
	if len(spec.columns) > 0 {
		list += "; for each row :" + strings.Join(spec.columns, ", :")
	}
	return list
}

// Compile reads a dialect's file. A section begins with "-- name: x" and has one statement with
// :parameters. A section that begins with "-- name: x y" defines two statements with the same text.
// The catalogue in statements.go lists the statements, their parameters and their effects. If the
// dialect lacks a statement, Compile uses the one in this package's statements.sql. The error lists
// everything that is missing.
//
//   - The placeholder function returns the text of a statement's i-th placeholder, counted from 1.
//     Each occurrence of a parameter gets its own placeholder, so "$n" does not repeat.
//   - Names of tables and indexes begin with "tenure_", which is replaced by the prefix. The prefix
//     may begin with the quoted name of a schema and a dot.
//   - A statement for a batch of rows has one of three forms. With the parameter :rows, one JSON
//     array of arrays with bytes in base64, the statement runs once. With the columns as
//     parameters, it runs once for each row. With each(n, :column), it runs once for n rows, and
//     copies of the last row pad a smaller batch. The text each(n, :column) becomes n placeholders
//     separated by ", ".
//   - bounded(column) becomes "CASE WHEN octet_length(column) <= its width THEN column ... END", so
//     that a value that is too wide never leaves the database. A dialect whose database has no
//     octet_length defines every statement that uses bounded, and replaces bounded before it calls
//     Compile.
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

// Certify adapts the statements to a server that certifies writes, where a lock on one node has no
// effect on another. On such a server, a decision must also change the rows that concurrent
// transactions change. Certify also replaces old with text in all statements. Call it before the
// statements are first used.
func (s *Statements) Certify(old, text string) {
	s.certified = true
	for i := range s.compiled {
		s.compiled[i].text = strings.ReplaceAll(s.compiled[i].text, old, text)
	}
}

// The result reports whether the dialect defines an optional statement and the statement is in use.
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

// forRows returns the statement for a batch of n rows. A dialect may have a separate statement for
// a few rows.
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

// The result contains the readers that wait for the statement's changes.
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
