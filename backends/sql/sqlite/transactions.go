package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
)

// In the transactions file, number n is in slot n % numberSlots. Therefore, a process that writes
// its number late does not overwrite a greater one. The mark follows the slots.
const (
	numberSlots = 511
	numberBytes = 8
	markAt      = numberSlots * numberBytes
)

// transactions counts a database's transactions in a file next to the database. It is safe for
// concurrent use.
//
// Each transaction by Tenure or Backend.BeginTx, except heartbeats, increments a number in the
// database. Once the transaction is committed, and thus on disk, its number is written to the file.
// Therefore, after a crash, the file is ahead of the database only if the database lost
// acknowledged commits. SQLite can lose commits because it keeps them only in the -wal file until a
// checkpoint. When SQLite opens a database whose -wal file was removed, it also removes the -shm
// file, the only trace of the loss. Counting does not flush the file. It adds only one page to a
// commit's log, for a table with one row.
//
// The file also contains a mark, which a process sets if it finds the log or its index missing.
// While such a process has the database open, no process may create another log.
type transactions struct {
	path   string // of the database
	update string // the statement that counts
	file   *os.File
	marked sync.Once

	mu     sync.Mutex
	failed error // of the first failed write
}

func transactionsFile(path, prefix string) string { return path + "-" + prefix + "transactions" }

// findTransactions opens the file with the given flag, or returns nil if the file is missing.
func findTransactions(path, prefix string, flag int) (*transactions, error) {
	file, err := os.OpenFile(transactionsFile(path, prefix), flag, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, openingTransactions(err)
	}
	return newTransactions(path, prefix, file), nil
}

// openTransactions opens or creates the file. A new file gets the database's mode.
func openTransactions(path, prefix string) (*transactions, error) {
	if found, err := findTransactions(path, prefix, os.O_RDWR); found != nil || err != nil {
		return found, err
	}
	mode, err := os.Stat(path)
	if err != nil {
		return nil, openingTransactions(err)
	}
	file, err := os.OpenFile(transactionsFile(path, prefix), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, openingTransactions(err)
	}
	if err := file.Chmod(mode.Mode().Perm()); err != nil {
		return nil, openingTransactions(errors.Join(err, file.Close()))
	}
	return newTransactions(path, prefix, file), nil
}

func openingTransactions(err error) error {
	return fmt.Errorf("tenure: opening the count of a database's transactions: check the rights of the file and of its directory: %w", err)
}

func newTransactions(path, prefix string, file *os.File) *transactions {
	return &transactions{
		path: path, file: file,
		update: "UPDATE " + prefix + "transactions SET number = number + 1 WHERE total_changes() <> ? RETURNING number, total_changes()",
	}
}

// read returns the greatest number in the file, and the mark. A missing number or mark is 0.
func (t *transactions) read() (last int64, mark byte, err error) {
	var all [markAt + 1]byte
	if _, err := t.file.ReadAt(all[:], 0); err != nil && !errors.Is(err, io.EOF) { // it may be new
		return 0, 0, fmt.Errorf("tenure: reading %s: %w", t.file.Name(), err)
	}
	for at := 0; at < markAt; at += numberBytes {
		last = max(last, int64(binary.LittleEndian.Uint64(all[at:])))
	}
	return last, all[markAt], nil
}

func (t *transactions) committed(number int64) {
	_, err := t.file.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(number)), number%numberSlots*numberBytes)
	t.wrote(err)
}

func (t *transactions) wrote(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil && t.failed == nil {
		t.failed = fmt.Errorf("tenure: writing %s: %w", t.file.Name(), err)
	}
}

// The mark is the index of the missing file in database.files. Setting it also flushes the numbers.
// Later calls, and calls on a nil receiver, do nothing.
func (t *transactions) mark(which int) {
	if t == nil {
		return
	}
	t.marked.Do(func() {
		_, err := t.file.WriteAt([]byte{byte(which)}, markAt)
		t.wrote(errors.Join(err, t.file.Sync()))
	})
}

// unmark removes the mark. The caller must ensure that no process has a removed file open.
func unmark(path, prefix string) error {
	t, err := findTransactions(path, prefix, os.O_RDWR)
	if t == nil || err != nil {
		return err
	}
	_, err = t.file.WriteAt([]byte{0}, markAt)
	t.wrote(err)
	return t.close()
}

// check refuses a database that lost transactions. If the loss is accepted, check empties the
// transactions file instead. The advice describes how to accept the loss.
func (t *transactions) check(ctx context.Context, d *database, prefix string, accepted bool, advice string) error {
	last, _, err := t.read() // read before the database's number, which grows
	if err != nil {
		return err
	}
	var number int64
	if err := d.reads.QueryRowContext(ctx, "SELECT number FROM "+prefix+"transactions").Scan(&number); err != nil {
		return readFailed(d.path, fmt.Errorf("tenure: reading %s: %w", d.path, err))
	}
	if number >= last {
		return nil
	}
	if accepted {
		return t.file.Truncate(0)
	}
	return fmt.Errorf("tenure: %w: %s lacks %d transactions that it had: its %s file was removed, or an older copy is in its place: "+
		"%s; to go on with what is left, %s", driver.ErrStoreChanged, t.path, last-number, logSuffix, restoreAdvice, advice)
}

func (t *transactions) close() error {
	err := t.file.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.failed, err)
}

// counting is a connector whose connections count the transactions that database/sql begins.
type counting struct {
	sqldriver.Connector
	count *transactions
}

// countedConn contains the connection methods that database/sql uses.
type countedConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.SessionResetter
	sqldriver.Validator
}

func (c counting) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	full, ok := conn.(countedConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("tenure: %w: the SQLite driver's connections lack methods", driver.ErrUnsupported), conn.Close())
	}
	return &counted{countedConn: full, count: c.count}, nil
}

// counted is a connection that counts its transactions. It is not safe for concurrent use.
type counted struct {
	countedConn
	count   *transactions
	changes int64 // rows that the connection had changed when it last counted
}

func (c *counted) BeginTx(ctx context.Context, o sqldriver.TxOptions) (sqldriver.Tx, error) {
	tx, err := c.countedConn.BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	return countedTx{tx, c}, nil
}

type countedTx struct {
	sqldriver.Tx
	conn *counted
}

// Commit commits the transaction and, if the transaction changed anything, writes its number to the
// file.
func (t countedTx) Commit() error {
	number, err := t.conn.number()
	if err != nil {
		return errors.Join(err, t.Rollback())
	}
	if err := t.Tx.Commit(); err != nil {
		return err
	}
	if number > 0 {
		t.conn.count.committed(number)
	}
	return nil
}

// number counts the current transaction and returns its number, or 0 if the transaction changed
// nothing.
func (c *counted) number() (number int64, err error) {
	rows, err := c.QueryContext(context.Background(), c.count.update, []sqldriver.NamedValue{{Ordinal: 1, Value: c.changes}})
	if err != nil {
		return 0, err
	}
	row := make([]sqldriver.Value, 2)
	err = rows.Next(row)
	closed := rows.Close()
	if errors.Is(err, io.EOF) {
		return 0, closed
	}
	if err := errors.Join(err, closed); err != nil {
		return 0, err
	}
	number, _ = row[0].(int64)
	changes, _ := row[1].(int64)
	c.changes = changes + 1
	return number, nil
}
