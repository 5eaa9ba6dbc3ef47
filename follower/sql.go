package follower

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/goexit"
)

// SQLApplyFunc applies a batch's entries inside a transaction, which the SQL Applier commits.
// Applier's documentation describes the goroutines that call the function.
type SQLApplyFunc func(ctx context.Context, tx *sql.Tx, b Batch) error

// SQLOptions configure NewSQL. Nil and the zero value mean the defaults.
type SQLOptions struct {
	// Table is the name of the table that stores positions. The name consists of up to 63 letters,
	// digits and "_". A schema's name and a "." may precede it. Default "tenure_positions".
	// Statements quote the name, so PostgreSQL distinguishes upper and lower case.
	Table string
	// Restore replaces the whole state of the snapshot's shard inside a transaction. If Restore is
	// nil and the follower needs trimmed entries, the shard stays at its position.
	Restore func(ctx context.Context, tx *sql.Tx, s *Snapshot) error
}

// SQL is an Applier that keeps its effects and positions in one of the application's databases. One
// transaction commits each effect together with its position, so the effect happens exactly once.
// The transaction first moves the position. The move succeeds only if the batch begins exactly at
// the stored position. Therefore, even if two processes follow under the same name, only one of
// them applies each entry. A SQL is safe for concurrent use.
type SQL struct {
	db    *sql.DB
	name  string
	apply SQLApplyFunc
	o     SQLOptions

	create, load, find, insert, update string
}

var _ Restorer = (*SQL)(nil)

// NewSQL returns an Applier on db. The caller closes db. The name distinguishes the followers in
// one database, and must stay the same across restarts. The name must satisfy core.CheckShard.
// NewSQL does no I/O, and therefore does not create the table (see Create). Nil options mean the
// defaults. The error matches core.ErrInvalid.
func NewSQL(db *sql.DB, d driver.Dialect, name string, apply SQLApplyFunc, o *SQLOptions) (*SQL, error) {
	s := &SQL{db: db, name: name, apply: apply}
	if o != nil {
		s.o = *o
	}
	def(&s.o.Table, "tenure_positions")
	switch d {
	case driver.SQLite, driver.Postgres, driver.MySQL:
	default:
		return nil, fmt.Errorf("tenure: %w: dialect %q: use %q, %q or %q", core.ErrInvalid, d, driver.SQLite, driver.Postgres,
			driver.MySQL)
	}
	if db == nil || apply == nil {
		return nil, fmt.Errorf("tenure: %w: follower %q needs a database and a function", core.ErrInvalid, name)
	}
	if err := driver.CheckNode(name); err != nil {
		return nil, err
	}
	if len(s.o.Table) > 127 || !regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$`).MatchString(s.o.Table) {
		return nil, fmt.Errorf("tenure: %w: table %.80q: use letters, digits and \"_\"", core.ErrInvalid, s.o.Table)
	}
	// Names must be compared byte by byte. By default, MySQL does not do so.
	name128 := "VARCHAR(128) NOT NULL"
	if d == driver.MySQL {
		name128 = "VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
	}
	s.create = s.text(d, "CREATE TABLE IF NOT EXISTS {positions} (follower "+name128+", shard "+name128+", store "+
		name128+
		", seq BIGINT NOT NULL, token BIGINT NOT NULL, PRIMARY KEY (follower, shard))")
	s.load = s.text(d, "SELECT shard, store, seq, token FROM {positions} WHERE follower = ?")
	s.find = s.text(d, "SELECT seq FROM {positions} WHERE follower = ? AND shard = ?")
	s.insert = s.text(d, "INSERT INTO {positions} (follower, shard, store, seq, token) VALUES (?, ?, ?, ?, ?)")
	s.update = s.text(d, "UPDATE {positions} SET seq = ?, token = ? WHERE follower = ? AND shard = ? AND store = ? "+
		"AND seq = ? AND token = ?")
	return s, nil
}

func (s *SQL) text(d driver.Dialect, stmt string) string {
	if d == driver.Postgres {
		for i := 1; strings.Contains(stmt, "?"); i++ {
			stmt = strings.Replace(stmt, "?", fmt.Sprintf("$%d", i), 1)
		}
	}
	quote := `"`
	if d == driver.MySQL {
		quote = "`"
	}
	return strings.ReplaceAll(stmt, "{positions}", quote+strings.ReplaceAll(s.o.Table, ".", quote+"."+quote)+quote)
}

// Schema returns the statement that creates the table of positions, for migrations that run under
// another role. The Applier's role needs permission to select, insert and update rows.
func (s *SQL) Schema() string { return s.create }

// Create creates the table of positions if it does not exist.
func (s *SQL) Create(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, s.create); err != nil {
		return fmt.Errorf("tenure: creating the table of positions: %w", err)
	}
	return nil
}

// Load reads the positions. See Applier.
func (s *SQL) Load(ctx context.Context) (Checkpoint, error) {
	rows, err := s.db.QueryContext(ctx, s.load, s.name)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("tenure: reading the positions: %w; is there a table %s? See Create", err,
			s.o.Table)
	}
	defer rows.Close()
	var cp Checkpoint
	for rows.Next() {
		var p Position
		var store string
		if err := rows.Scan(&p.Shard, &store, &p.Seq, &p.Token); err != nil {
			return Checkpoint{}, fmt.Errorf("tenure: reading the positions: %w", err)
		}
		if cp.Store != "" && store != cp.Store {
			return Checkpoint{}, fmt.Errorf("tenure: %w: follower %q has positions of the stores %q and %q",
				core.ErrStoreChanged, s.name, cp.Store, store)
		}
		cp.Store = store
		cp.Positions = append(cp.Positions, p)
	}
	if err := rows.Err(); err != nil {
		return Checkpoint{}, fmt.Errorf("tenure: reading the positions: %w", err)
	}
	return cp, nil
}

// Apply applies a batch and moves its position in one transaction. See Applier.
func (s *SQL) Apply(ctx context.Context, b Batch) error {
	return s.in(ctx, b.Store, b.From, b.Last(), func(tx *sql.Tx) error { return s.apply(ctx, tx, b) })
}

// Restore restores a snapshot and moves its shard's position in one transaction.
// See Restorer.
func (s *SQL) Restore(ctx context.Context, from Position, snap *Snapshot) error {
	if s.o.Restore == nil {
		return errNoRestore(snap)
	}
	return s.in(ctx, snap.Store, from, snap.Position, func(tx *sql.Tx) error { return s.o.Restore(ctx, tx, snap) })
}

// If the commit's reply is lost, the method in returns an error. The Tailer then tries the batch
// again, notices that the position has moved, and loads it.
func (s *SQL) in(ctx context.Context, store string, from, to Position, effect func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err = s.move(ctx, tx, store, from, to); err == nil {
		err = goexit.Call(func() error { return effect(tx) })
	}
	if err == nil {
		return tx.Commit()
	}
	if rerr := tx.Rollback(); rerr != nil && !errors.Is(rerr, sql.ErrTxDone) {
		return errors.Join(err, rerr)
	}
	if from.Seq == 0 && !errors.Is(err, ErrMoved) && s.exists(ctx, from) {
		return fmt.Errorf("tenure: %w: shard %q has one already: %w", ErrMoved, from.Shard, err)
	}
	return err
}

// By updating the position's row, move locks the row until the transaction ends.
func (s *SQL) move(ctx context.Context, tx *sql.Tx, store string, from, to Position) error {
	if from.Seq == 0 {
		_, err := tx.ExecContext(ctx, s.insert, s.name, to.Shard, store, int64(to.Seq), int64(to.Token))
		return err
	}
	res, err := tx.ExecContext(ctx, s.update, int64(to.Seq), int64(to.Token), s.name, to.Shard, store, int64(from.Seq),
		int64(from.Token))
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err == nil && n != 1 {
		err = fmt.Errorf("tenure: %w: shard %q is not at entry %d", ErrMoved, from.Shard, from.Seq)
	}
	return err
}

func (s *SQL) exists(ctx context.Context, p Position) bool {
	var seq int64
	return s.db.QueryRowContext(ctx, s.find, s.name, p.Shard).Scan(&seq) == nil
}
