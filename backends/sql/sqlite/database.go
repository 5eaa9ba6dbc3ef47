package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/sqlschema"
)

//go:embed schema statements.sql
var files embed.FS

// readers is the number of connections that read one file. One connection would suffice, because
// reads are never blocked, but several connections let goroutines read in parallel.
const readers = 4

// readWait is how long a read waits for a lock, in milliseconds, unless the read's context ends
// earlier. In WAL mode, a read waits only for recovery.
const readWait = 60_000

// logFile is the index of the log in database.files.
const logFile = 1

// These constants are the folders of the two databases' schemas.
const (
	dataSchema    = "data"
	membersSchema = "members"
)

// database is one of a store's two databases.
type database struct {
	path  string
	files []file
	reads *sql.DB
	// While the anchor is open, SQLite does not remove the write-ahead log or its index. If either
	// is missing, another program has removed it. The anchor is the oldest connection, so it has
	// the log that belongs to the index, and writes that log back when closed.
	anchor    *sql.Conn
	prep      *engine.Prepared
	snaps     chan struct{} // one slot per read transaction
	count     *transactions
	committer *committer
	beats     *committer // writes heartbeats; nil in the data file
}

// settled returns a connector for a file that is already in WAL mode. Each new connection first
// calls intact, if set.
func settled(path string, busy int, d durability, intact func() error) (sqldriver.Connector, error) {
	c, err := connector(dsn(path, busy, d))
	if err != nil {
		return nil, err
	}
	return asserted{c, path, d, intact}, nil
}

func connector(dsn string) (sqldriver.Connector, error) {
	c, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("tenure: %w: database name: %w", driver.ErrInvalid, err)
	}
	return c, nil
}

// openDatabase opens a file and brings its schema up to date.
func openDatabase(ctx context.Context, path, schema string, o *Options, stmts *engine.Statements) (_ *database, err error) {
	exists, err := checkPath(path)
	if err != nil {
		return nil, err
	}
	if !exists && !o.create() {
		return nil, &driver.MissingError{
			What: fmt.Sprintf("there is no database file %s", path), Make: "check the path, or open it once with Create",
		}
	}
	if err := checkLog(ctx, path, o.TablePrefix); err != nil {
		return nil, err
	}
	if !exists {
		if err := createFile(path); err != nil {
			return nil, err
		}
	}
	sub, err := fs.Sub(files, "schema/"+schema)
	if err != nil {
		return nil, err
	}
	migrations := sqlschema.Migrations{Files: sub, Prefix: o.TablePrefix}
	if err := prepareFile(ctx, path, migrations); err != nil {
		return nil, err
	}
	d := &database{path: path, snaps: make(chan struct{}, readers)}
	c, err := settled(path, readWait, flushed, d.check)
	if err != nil {
		return nil, err
	}
	d.reads = sql.OpenDB(c)
	// The anchor and the read transactions leave one connection free. A statement is prepared on
	// that connection when it is first used, while its transaction keeps another.
	d.reads.SetMaxOpenConns(readers + 2)
	d.reads.SetMaxIdleConns(readers + 2)
	d.prep = engine.Prepare(d.reads, stmts)
	if err = d.settle(ctx); err == nil {
		d.count, err = openTransactions(path, o.TablePrefix)
	}
	if err == nil {
		accepted, advice := false, "remove "+transactionsFile(path, o.TablePrefix)
		if schema == membersSchema {
			accepted, advice = o.NewRoster, "open once with NewRoster when no former member runs any more"
		}
		err = d.count.check(ctx, d, o.TablePrefix, accepted, advice)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// settle opens the anchor and records the files that the anchor uses.
func (d *database) settle(ctx context.Context) (err error) {
	main, err := newFile(d.path)
	if err != nil {
		return err
	}
	if d.anchor, err = d.reads.Conn(ctx); err != nil {
		return explain(d.path, err)
	}
	d.files = append(d.files, main) // logFile is appended next
	for _, suffix := range []string{logSuffix, indexSuffix} {
		beside, err := newFile(d.path + suffix)
		if err != nil {
			return err
		}
		d.files = append(d.files, beside)
	}
	return nil
}

// check returns an error if a file was removed or replaced while it was open. Without this check,
// the open handles would continue to work without an error (I1). If the file was the log or the
// index, check sets the mark.
func (d *database) check() error {
	for i := range d.files {
		if err := d.files[i].check(); err != nil {
			if i >= logFile && errors.Is(err, driver.ErrStoreChanged) {
				d.count.mark(i)
			}
			return err
		}
	}
	return nil
}

// newWriter returns a connection for writes, on which SQLite does not wait for locks.
func newWriter(ctx context.Context, on *database, d durability, count *transactions, stmts *engine.Statements) (*writer, error) {
	c, err := settled(on.path, 0, d, on.check)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(1)
	w := &writer{path: on.path, db: db, stmts: stmts, count: count}
	if err := whenFree(ctx, w.connect); err != nil {
		return nil, errors.Join(explain(on.path, err), w.close())
	}
	return w, nil
}

// close closes the database's connections. A log that was removed while it was open is written
// back.
func (d *database) close() error {
	var errs []error
	for _, c := range []*committer{d.committer, d.beats} {
		if c != nil {
			errs = append(errs, c.close())
		}
	}
	errs = append(errs, d.writeBack())
	errs = append(errs, d.prep.Close())
	if d.count != nil { // before SQLite removes the files that check would miss
		errs = append(errs, d.count.close())
	}
	if d.anchor != nil {
		d.anchor.Close()
	}
	return errors.Join(append(errs, d.reads.Close())...)
}

// writeBackTime limits the wait for other processes that are reading the database or writing the
// log back.
const writeBackTime = 5 * time.Second

// writeBack copies a removed log into the database, or returns an error. SQLite also writes the log
// back when the last connection is closed, with two exceptions. Two processes may close the
// database at the same time, or the last connection may be newer than the removal and have an empty
// log.
func (d *database) writeBack() error {
	var lost error
	for i, f := range d.files {
		switch err := f.check(); {
		case err == nil || !errors.Is(err, driver.ErrStoreChanged):
		case i != logFile: // nothing can be written back, or the index belongs to another log
			return nil
		default:
			lost = err
		}
	}
	if lost == nil {
		return nil
	}
	d.count.mark(logFile)
	var busy, pages, written int
	for deadline := time.Now().Add(writeBackTime); ; time.Sleep(lastWait) {
		err := d.anchor.QueryRowContext(context.Background(), "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &pages, &written)
		switch {
		case err == nil && busy == 0 && written == pages:
			return nil
		case err != nil:
			return fmt.Errorf("%w; it could not be written back: %w", lost, err)
		case time.Now().After(deadline):
			return fmt.Errorf("%w; %d of its %d pages could be written back in %v", lost, max(written, 0), max(pages, 0), writeBackTime)
		}
	}
}

// All reads of fn see one snapshot.
func (d *database) read(ctx context.Context, fn func(ctx context.Context, tx *engine.Tx) error) error {
	select {
	case d.snaps <- struct{}{}:
		defer func() { <-d.snaps }()
	case <-ctx.Done():
		return fmt.Errorf("tenure: reading %s: %w", d.path, driver.Ended(ctx))
	}
	tx, err := d.reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return readFailed(d.path, fmt.Errorf("tenure: reading %s: %w", d.path, err))
	}
	defer tx.Rollback()
	return readFailed(d.path, fn(ctx, engine.NewTx(d.prep, tx)))
}

// prepareFile checks that this program can use the database in the file. It then sets the journal
// mode and migrates the schema.
func prepareFile(ctx context.Context, path string, migrations sqlschema.Migrations) error {
	c, err := connector(dsn(path, 0, flushed))
	if err != nil {
		return err
	}
	db := sql.OpenDB(c)
	defer db.Close()
	db.SetMaxOpenConns(1)
	err = whenFree(ctx, func() error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		version, err := schemaVersion(ctx, conn, migrations)
		if err != nil {
			return err
		}
		if err := migrations.Check(version, true); err != nil {
			return err
		}
		if err := useWAL(ctx, conn, path); err != nil {
			return err
		}
		return migrate(ctx, conn, migrations)
	})
	if err != nil {
		return explain(path, err)
	}
	return nil
}

// whenFree repeats the attempt while another connection holds a lock on the file. A refused attempt
// changes nothing.
func whenFree(ctx context.Context, try func() error) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for wait := firstWait; ; wait = min(wait*3/2, lastWait) {
		<-timer.C
		err := try()
		if !busy(err) {
			return err
		}
		timer.Reset(wait)
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", driver.Ended(ctx), err)
		}
	}
}

func schemaVersion(ctx context.Context, conn *sql.Conn, migrations sqlschema.Migrations) (int, error) {
	var n int
	err := conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?",
		migrations.Prefix+"schema").Scan(&n)
	if err != nil || n == 0 {
		return 0, err
	}
	return migrations.Version(ctx, conn)
}

func useWAL(ctx context.Context, conn *sql.Conn, path string) error {
	var mode string
	if err := conn.QueryRowContext(ctx, "PRAGMA journal_mode = wal").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("tenure: %w: %s cannot use a write-ahead log (journal mode %q): put it on a local disk", driver.ErrUnsupported, path, mode)
	}
	return nil
}

// migrate rereads the version under the write lock, because another process may have just migrated.
func migrate(ctx context.Context, conn *sql.Conn, migrations sqlschema.Migrations) (err error) {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		end := "COMMIT"
		if err != nil {
			end = "ROLLBACK"
		}
		if _, failed := conn.ExecContext(context.WithoutCancel(ctx), end); err == nil {
			err = failed
		}
	}()
	version, err := schemaVersion(ctx, conn, migrations)
	if err != nil {
		return err
	}
	if err := migrations.Check(version, true); err != nil {
		return err
	}
	return migrations.Migrate(ctx, conn, version)
}

// explain returns a one-line error with a remedy for a file that cannot be opened.
func explain(path string, err error) error {
	advice := ""
	switch code(err) {
	case lib.SQLITE_NOTADB:
		advice = "it is not an SQLite database: name another file"
	case lib.SQLITE_CORRUPT:
		return readFailed(path, err)
	case lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_PERM:
		advice = "it cannot be written: check the rights of the file, of its directory and of the files beside it"
	case lib.SQLITE_FULL:
		advice = "the disk is full: make room"
	case lib.SQLITE_IOERR:
		advice = "the disk failed or is full: make room, or check its health"
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		advice = "another process holds a lock on it: end that process, or allow more time"
	default:
		return fmt.Errorf("tenure: opening %s: %w", path, err)
	}
	return fmt.Errorf("tenure: opening %s: %s: %w", path, advice, err)
}
