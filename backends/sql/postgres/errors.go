package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/core/driver"
)

// advice maps a SQLSTATE, or a class of SQLSTATEs, to a remedy.
var advice = map[string]string{
	"40001": "the transaction could not be serialized",
	"40P01": "the transaction was part of a deadlock",
	"25006": "the server is read-only: connect to the primary (target_session_attrs=read-write)",
	"0A000": "the server refuses to write, as a standby does: connect to the primary (target_session_attrs=read-write)", // error of BEGIN ... READ WRITE
	"55000": "the server recovers, as a standby does: connect to the primary (target_session_attrs=read-write)",
	"25P03": "the transaction idled for too long",
	"08P01": "the server, or a pooler before it, refuses a setting: behind PgBouncer in transaction mode set Options.Pooler (pooler)",
	"53300": "no connection is left: a process needs MaxConns and 7 more: raise max_connections or the role's CONNECTION LIMIT",
	"53":    "the server is short of resources: room on disk, memory or connections",
	"42501": "the role lacks a right: see the recipe for the run-time role",
	"42P01": "a table is missing: migrate first",
	"55P03": "a lock was not available",
	"57014": "the statement was cancelled",
	"57":    "the server is shutting down or starting",
	"28":    "the server refused the credentials",
}

func explain(err error) string {
	var e *pgconn.PgError
	if !errors.As(err, &e) || len(e.Code) != 5 {
		return ""
	}
	if text := advice[e.Code]; text != "" {
		return text
	}
	return advice[e.Code[:2]]
}

// denied marks errors that are caused by a permission or a setting (E5).
func denied(err error) error {
	var e *pgconn.PgError
	if errors.As(err, &e) && (e.Code == "42501" || e.Code == "25006" || e.Code == "0A000" || strings.HasPrefix(e.Code, "28")) {
		return fmt.Errorf("%w: %w", driver.ErrDenied, err)
	}
	return err
}

// notApplied classifies an error that occurred before COMMIT was sent. The transaction is not
// committed later, so it certainly has no effect (E1).
func notApplied(err error) error {
	if err == nil || driver.NotApplied(err) {
		return err
	}
	var e *pgconn.PgError
	if errors.As(err, &e) && (e.Code == "55P03" || e.Code == "23502") { // lock not available within the limit; NULL for a row that does not exist
		err = fmt.Errorf("%w: %w", engine.ErrUndecided, err)
	}
	if text := explain(err); text != "" {
		return fmt.Errorf("tenure: %w: %s: %w", driver.ErrRetry, text, denied(err))
	}
	return fmt.Errorf("tenure: %w: the transaction was not committed: %w", driver.ErrRetry, err)
}

// commitFailed classifies an error from sending a transaction's last statements with COMMIT. A
// server that answers ERROR has rolled the transaction back. A server that ends the session, or
// does not answer, may have committed it.
func commitFailed(err error) error {
	var e *pgconn.PgError
	if driver.NotApplied(err) || pgconn.SafeToRetry(err) || errors.As(err, &e) && severity(e) == "ERROR" {
		return notApplied(err)
	}
	return fmt.Errorf("tenure: commit failed, its outcome is unknown: %w", err)
}

// severity returns the English severity, if the server sends it. The Severity field depends on the
// server's lc_messages.
func severity(e *pgconn.PgError) string {
	if e.SeverityUnlocalized != "" {
		return e.SeverityUnlocalized
	}
	return e.Severity
}
