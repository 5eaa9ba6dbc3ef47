package sqlite_test

import (
	"testing"

	"github.com/tenure-go/tenure/backends/sql/sqlfault"
	"github.com/tenure-go/tenure/core/driver"
)

// BenchmarkAppend is what one shard's producers get.
func BenchmarkAppend(b *testing.B) {
	sqlfault.BenchmarkAppend(b, func(b *testing.B) driver.Backend { return open(b, dbPath(b), nil) })
}
