// Package sqlschema contains the parts that the schemas of all SQL dialects share: the prefix of
// table names, column widths, and versions.
package sqlschema

import (
	"fmt"
	"regexp"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/grants"
)

var (
	table    = regexp.MustCompile(`\btenure_`)
	prefixes = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,31}$`)
)

// CheckPrefix validates the prefix of the tables' names. A prefix consists of lower-case letters,
// digits and "_", and has at most 32 bytes.
func CheckPrefix(prefix string) error {
	if !prefixes.MatchString(prefix) {
		return fmt.Errorf("tenure: %w: table prefix %.40q: use lower-case letters, digits and \"_\", at most 32 bytes, "+
			"a letter first", driver.ErrInvalid, prefix)
	}
	return nil
}

// WithPrefix replaces the default prefix of table and index names, "tenure_", in SQL text.
// CheckPrefix must have accepted the prefix.
func WithPrefix(text, prefix string) string {
	return table.ReplaceAllLiteralString(text, prefix)
}

// Width returns the maximum number of bytes in a column of text or bytes, or 0 if there is no such
// column. The widths follow from the limits of names and commits, and from their encodings. The
// schemas check the widths, but an administrator or an older schema may have allowed wider values.
// Statements read these columns as bounded(column), so wider values never leave the database.
func Width(column string) int {
	switch column {
	case "namespace":
		return 1040
	case "store_id", "incarnation", "id":
		return 64
	case "grants":
		return grants.MaxBytes
	case "shard", "node":
		return driver.MaxNameLen
	case "session":
		return driver.MaxSessionLen
	case "key":
		return driver.MaxKeyLen
	case "meta":
		return 16 << 10
	case "cuts":
		return 64 << 10
	case "payloads", "value":
		return 1 << 20
	}
	return 0
}
