package sqlite

import (
	"context"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/tenure-go/tenure/core/driver"
)

// code returns SQLite's primary result code, or 0 for any other error.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func busy(err error) bool {
	c := code(err)
	return c == lib.SQLITE_BUSY || c == lib.SQLITE_LOCKED
}

// damaged reports whether SQLite read data that it never wrote. Either the file was overwritten, or
// the file or its log was truncated or replaced.
func damaged(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	c := e.Code() & 0xff
	return c == lib.SQLITE_CORRUPT || c == lib.SQLITE_NOTADB || e.Code() == lib.SQLITE_IOERR_SHORT_READ
}

// readFailed classifies a read error. If the database is damaged, the error is permanent (I1).
func readFailed(path string, err error) error {
	if !damaged(err) || driver.NotApplied(err) {
		return err
	}
	return fmt.Errorf("tenure: %w: the database %s, or its members' file, is damaged: %s: %w", driver.ErrStoreChanged, path, restoreAdvice, err)
}

// notApplied classifies the error of a transaction that was rolled back (E1).
func notApplied(path string, err error) error {
	err = readFailed(path, err)
	if err == nil || driver.NotApplied(err) {
		return err
	}
	retry := func(advice string) error {
		return fmt.Errorf("tenure: %w: %s: %w", driver.ErrRetry, advice, err)
	}
	switch code(err) {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return retry("another connection holds the write lock")
	case lib.SQLITE_FULL:
		return retry("the disk is full: make room")
	case lib.SQLITE_READONLY, lib.SQLITE_CANTOPEN, lib.SQLITE_PERM:
		err = fmt.Errorf("%w: %w", driver.ErrDenied, err)
		return retry("the database cannot be written: check the rights of the file and its directory")
	case lib.SQLITE_IOERR, lib.SQLITE_NOMEM, lib.SQLITE_INTERRUPT:
		return retry("the transaction was rolled back")
	}
	return err
}

// commitFailed classifies an error returned by COMMIT, after the rollback. If the disk was full,
// the transaction's last frame is not in the write-ahead log, so the transaction was not applied.
// After any other disk error, the outcome is unknown.
func commitFailed(path string, err error) error {
	if c := code(err); c == lib.SQLITE_FULL || c == lib.SQLITE_BUSY {
		return notApplied(path, err)
	}
	return fmt.Errorf("tenure: commit failed, its outcome is unknown: %w", err)
}

// notSent returns the error for a call whose context ended before the call took effect.
func notSent(ctx context.Context) error {
	return fmt.Errorf("tenure: %w: the context ended while another writer held the database: %w", driver.ErrRetry, driver.Ended(ctx))
}

var errClosed = fmt.Errorf("tenure: %w: open the backend again", driver.ErrClosed)
