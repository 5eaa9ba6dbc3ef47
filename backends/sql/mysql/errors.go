package mysql

import (
	stdsql "database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"

	"github.com/go-sql-driver/mysql"

	"github.com/tenure-go/tenure/core/driver"
)

// These server error numbers need special treatment.
const (
	errTableExists     = 1050
	errNoTable         = 1146
	errNoSavepoint     = 1305
	errLockWait        = 1205
	errDeadlock        = 1213
	errSnapshotChanged = 1020
	errReadOnlyOption  = 1290
	errReadOnlyServer  = 1836
	errReadOnlyTx      = 1792
	errSafeUpdates     = 1175
)

func number(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// explain returns a remedy for a server error.
func explain(err error) string {
	switch number(err) {
	case errDeadlock:
		return "the transaction was part of a deadlock"
	case errLockWait:
		return "a lock was not available in time"
	case errSnapshotChanged:
		return "the row was changed after the transaction's snapshot"
	case errReadOnlyOption, errReadOnlyServer, errReadOnlyTx:
		return "the server is read-only: connect to the primary"
	case 1040, 1203, 1226:
		return "no connection is left: a process needs MaxConns and 6 more: raise max_connections or the user's limit"
	case 1021, 1114, 1037, 1041:
		return "the server is short of resources: room on disk, or memory"
	case 1044, 1045, 1142, 1143, 1227, 1370:
		return "the user lacks a right: see the recipe for the run-time user"
	case errSafeUpdates:
		return "sql_safe_updates is on: switch it off on the server"
	case errNoTable:
		return "a table is missing: migrate first"
	case 1053, 1317, 1927, 1969:
		return "the server ended the statement"
	}
	return ""
}

// denied marks errors that are caused by a permission or a setting (E5).
func denied(err error) error {
	switch number(err) {
	case errReadOnlyOption, errReadOnlyServer, errReadOnlyTx, errSafeUpdates, 1044, 1045, 1142, 1143, 1227, 1370, 1698:
		return fmt.Errorf("%w: %w", driver.ErrDenied, err)
	}
	return err
}

// notApplied classifies an error that occurred before COMMIT was sent. The transaction is rolled
// back, or its connection is closed, so the transaction certainly has no effect (E1).
func notApplied(err error) error {
	if err == nil || driver.NotApplied(err) {
		return err
	}
	if text := explain(err); text != "" {
		return fmt.Errorf("tenure: %w: %s: %w", driver.ErrRetry, text, denied(err))
	}
	return fmt.Errorf("tenure: %w: the transaction was not committed: %w", driver.ErrRetry, err)
}

// commitFailed classifies an error returned by COMMIT. After most such errors, the outcome is
// unknown.
func commitFailed(err error) error {
	switch number(err) {
	case errDeadlock, errLockWait, errReadOnlyOption, errReadOnlyServer:
		return notApplied(err)
	}
	return fmt.Errorf("tenure: commit failed, its outcome is unknown: %w", err)
}

// stale reports whether the connection ended before this call. For a statement prepared on a closed
// connection, database/sql returns ErrConnDone.
func stale(err error) bool {
	return errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, stdsql.ErrConnDone)
}
