package memory_test

import (
	"testing"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// BenchmarkMany acquires and hands over many shards, and BenchmarkMoves hands over one.
func BenchmarkMany(b *testing.B)  { sqlfault.BenchmarkMany(b, openedTwice) }
func BenchmarkMoves(b *testing.B) { sqlfault.BenchmarkMoves(b, openedTwice) }

func openedTwice(b *testing.B) [2]driver.Backend {
	s := memory.New()
	return [2]driver.Backend{open(b, s, &memory.Options{}), open(b, s, &memory.Options{})}
}
