package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/errtext"
)

func checkDialect(d driver.Dialect) error {
	switch d {
	case driver.SQLite, driver.Postgres, driver.MySQL:
		return nil
	}
	return fmt.Errorf("tenure: %w: dialect %q: use %q, %q or %q", driver.ErrInvalid, d, driver.SQLite, driver.Postgres,
		driver.MySQL)
}

// bind replaces each ? in text with the dialect's placeholder.
func bind(d driver.Dialect, text string) string {
	if d != driver.Postgres {
		return text
	}
	var b strings.Builder
	for i, part := range strings.Split(text, "?") {
		if i > 0 {
			b.WriteString("$" + strconv.Itoa(i))
		}
		b.WriteString(part)
	}
	return b.String()
}

// quoted checks and quotes an identifier: a column, or a table with an optional schema before a
// dot.
func quoted(d driver.Dialect, what, name string) (string, error) {
	quote := `"`
	if d == driver.MySQL {
		quote = "`"
	}
	parts := strings.Split(name, ".")
	if len(parts) > 1 && (what != "table" || len(parts) > 2) {
		return "", fmt.Errorf("tenure: %w: %s %q has a dot", driver.ErrInvalid, what, name)
	}
	for i, p := range parts {
		if !isIdentifier(p) {
			return "", fmt.Errorf("tenure: %w: %s %q: use a letter or _, then letters, digits and _, at most 63",
				driver.ErrInvalid, what, name)
		}
		parts[i] = quote + p + quote
	}
	return strings.Join(parts, "."), nil
}

func isIdentifier(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

const defaultTable = "tenure_marks"

// SQLOptions configure a SQL storage.
type SQLOptions struct {
	Dialect driver.Dialect // required
	// Table is the name of the table that stores marks. A schema and a dot may precede the name.
	// Default "tenure_marks". Schema returns the statement that creates the table.
	Table string
	// MayWrite restricts AdmitTx just as Options.MayWrite restricts a Mark. Default: ByName.
	MayWrite func(shard driver.ShardID, resource string) bool
	// OnRefused is called for each refusal by AdmitTx, like a Mark's Options.OnRefused.
	OnRefused func(*RefusedError)
}

var _ Storage = (*SQL)(nil)

// SQL keeps marks in a table in the application's database. Use SQL as the Storage of a Mark or,
// preferably, in the transactions that write the protected data. SQL is safe for concurrent use.
type SQL struct {
	db          *sql.DB
	schema      string
	raise, load string
	mayWrite    func(driver.ShardID, string) bool
	onRefused   func(*RefusedError)
}

// NewSQL returns a storage in db, which the caller closes. NewSQL does no I/O. The application's
// own migrations create the table with the statement that Schema returns.
func NewSQL(db *sql.DB, o SQLOptions) (*SQL, error) {
	if err := checkDialect(o.Dialect); err != nil {
		return nil, err
	}
	if o.Table == "" {
		o.Table = defaultTable
	}
	table, err := quoted(o.Dialect, "table", o.Table)
	if err != nil {
		return nil, err
	}
	s := &SQL{db: db, mayWrite: o.MayWrite, onRefused: o.OnRefused}
	if s.mayWrite == nil {
		s.mayWrite = ByName
	}
	text, tail := "VARCHAR(255)", ""
	s.load = bind(o.Dialect, "SELECT shard, session, token FROM "+table+" WHERE resource = ?")
	insert := "INSERT INTO " + table + " AS m (resource, shard, session, token) VALUES (?, ?, ?, ?)"
	switch o.Dialect {
	case driver.MySQL:
		// Names are compared byte by byte, regardless of the server's default.
		tail = " CHARACTER SET ascii COLLATE ascii_bin"
		// MySQL assigns columns from left to right, so the token comes last.
		s.raise = strings.Replace(insert, " AS m", "", 1) + " ON DUPLICATE KEY UPDATE" +
			" shard = IF(VALUES(token) > token, VALUES(shard), shard)," +
			" session = IF(VALUES(token) > token, VALUES(session), session)," +
			" token = GREATEST(token, VALUES(token))"
		s.load += " FOR UPDATE" // otherwise, at REPEATABLE READ, the query reads an old snapshot
	case driver.SQLite, driver.Postgres:
		// The statement locks the row even if the condition does not hold.
		s.raise = bind(o.Dialect, insert+" ON CONFLICT (resource) DO UPDATE SET"+
			" shard = excluded.shard, session = excluded.session, token = excluded.token WHERE excluded.token > "+
			"m.token")
	}
	s.schema = "CREATE TABLE IF NOT EXISTS " + table + " (\n" +
		"\tresource " + text + tail + " NOT NULL PRIMARY KEY,\n" +
		"\tshard " + text + tail + " NOT NULL,\n" +
		"\tsession " + text + tail + " NOT NULL,\n" +
		"\ttoken BIGINT NOT NULL\n)"
	return s, nil
}

// Schema returns the statement that creates the table of marks, for the application's migrations.
// The run-time role needs SELECT, INSERT and UPDATE on this table, and must not be able to delete
// its rows.
func (s *SQL) Schema() string { return s.schema }

// AdmitTx admits f inside the caller's transaction, and locks the mark until the transaction ends.
// The transaction's writes therefore take effect only if no higher token has superseded f when the
// transaction commits. The commit also raises the mark. Call AdmitTx as the first statement of the
// transaction, and roll back after any error. Transactions that write to the same resource run one
// after another.
func (s *SQL) AdmitTx(ctx context.Context, tx *sql.Tx, resource string, f driver.Fence) error {
	if err := check(resource, f); err != nil {
		return err
	}
	if !s.mayWrite(f.Shard, resource) {
		return &ForeignError{Resource: resource, Fence: f}
	}
	current, err := s.raiseIn(ctx, tx, resource, f)
	if err != nil {
		return errtext.Errorf("tenure: the mark of resource %q: %w", resource, err)
	}
	if current == f {
		return nil
	}
	e := &RefusedError{Resource: resource, Fence: f, Current: current}
	if s.onRefused != nil {
		s.onRefused(e)
	}
	return e
}

// Raise implements Storage in a separate transaction.
func (s *SQL) Raise(ctx context.Context, resource string, f driver.Fence) (current driver.Fence, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return driver.Fence{}, err
	}
	if current, err = s.raiseIn(ctx, tx, resource, f); err != nil {
		return driver.Fence{}, errors.Join(err, tx.Rollback())
	}
	return current, tx.Commit()
}

func (s *SQL) raiseIn(ctx context.Context, tx *sql.Tx, resource string, f driver.Fence) (driver.Fence, error) {
	if _, err := tx.ExecContext(ctx, s.raise, resource, string(f.Shard), string(f.Session),
		int64(f.Token)); err != nil {
		return driver.Fence{}, err
	}
	var shard, session string
	var token int64
	if err := tx.QueryRowContext(ctx, s.load, resource).Scan(&shard, &session, &token); err != nil {
		return driver.Fence{}, err
	}
	return driver.Fence{Shard: driver.ShardID(shard), Session: driver.SessionID(session), Token: driver.Token(token)}, nil
}
