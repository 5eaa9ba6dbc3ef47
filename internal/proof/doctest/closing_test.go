package doctest

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core"
)

// hastyShards adds a commit every millisecond to the program "Three shards" of
// docs/concepts/contexts.md, so commits are pending when an interrupt arrives. It returns the path
// of the program's binary.
func hastyShards(t *testing.T, mod string, all []*program) string {
	t.Helper()
	for _, x := range all {
		source := strings.Replace(x.source, "time.After(time.Second)", "time.After(time.Millisecond)", 1)
		if x.page == "docs/concepts/contexts.md" && strings.Contains(source, "closed in order") && source != x.source {
			write(t, filepath.Join(mod, "hasty-shards", "main.go"), source)
			return filepath.Join(mod, "bin", "hasty-shards")
		}
	}
	t.Fatal("docs/concepts/contexts.md has no program that writes a closing entry and ticks every second")
	return ""
}

// closes checks the page's claim about its handler: each shard's log ends with the closing entry,
// even if the interrupt arrives during a commit.
func closes(t *testing.T, binary string) {
	for n := range 20 {
		s := &session{T: t, dir: t.TempDir(), binary: binary, lines: make(chan printed, 10_000)}
		j := s.start(binary)
		for range 3 {
			s.expect("docs/concepts/contexts.md", "...: its log ends at 0", true)
		}
		time.Sleep(time.Duration(n) * 3 * time.Millisecond) // to interrupt commits at different moments
		s.signal(j, syscall.SIGINT)
		s.ended(j)
		b, err := sqlite.Open(t.Context(), filepath.Join(s.dir, "tenure.db"), "orders", nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, shard := range []core.ShardID{"eu", "us", "asia"} {
			page, err := b.ReadLog(t.Context(), shard, 0, 0)
			if err == nil {
				page, err = b.ReadLog(t.Context(), shard, page.Head.Seq-1, 1)
			}
			if err != nil {
				t.Fatal(err)
			}
			if last := page.Entries[0]; string(last.Payload) != "closed in order" {
				t.Errorf("run %d: the log of %s ends with entry %d, %q", n, shard, last.Seq, last.Payload)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		s.end()
	}
}
