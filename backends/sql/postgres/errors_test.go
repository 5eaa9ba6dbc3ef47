package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenure-go/tenure/core/driver"
)

// TestCommitFailed: a server's answer to COMMIT means the same in every language (E1).
func TestCommitFailed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err     error
		unknown bool
	}{
		{&pgconn.PgError{Severity: "ERROR", Code: "40001"}, false},
		{&pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR", Code: "40001"}, false},
		{&pgconn.PgError{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01"}, true},
		{&pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "FATAL", Code: "57P01"}, true},
		{fmt.Errorf("rolled back: %w", driver.ErrRetry), false},
		{errors.New("the connection broke"), true},
	} {
		err := commitFailed(c.err)
		if driver.Unknown(err) != c.unknown || strings.Contains(err.Error(), "unknown") != c.unknown || !errors.Is(err, c.err) {
			t.Errorf("%#v is %v; unknown is %v, want %v", c.err, err, !c.unknown, c.unknown)
		}
	}
}
