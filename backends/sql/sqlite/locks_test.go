package sqlite

import (
	"testing"

	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestLocks: R2.
func TestLocks(t *testing.T) {
	t.Parallel()
	b, db := openBeside(t, false)
	sqlfault.CheckLocks(t, b, db("shards"))
}
