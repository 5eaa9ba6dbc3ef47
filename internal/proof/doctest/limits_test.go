package doctest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/suite"
)

// TestLimits compares the limits in docs/sizing.md with the backends' limits in their reports, and
// with the constants.
func TestLimits(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs", "sizing.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Limits\n")
	section, _, _ = strings.Cut(section, "\n## ")
	size, ops, ttl := "| bytes of one commit |", "| operations and entries of one commit |", "| shortest TTL |"
	for _, backend := range []string{"sqlite", "postgres", "mysql", "etcd", "consul", "zookeeper", "redis"} {
		l := readReport(t, backend).Limits
		bytes := fmt.Sprintf(" %d KiB |", l.WriteBytes>>10)
		if l.WriteBytes%(1<<20) == 0 {
			bytes = fmt.Sprintf(" %d MiB |", l.WriteBytes>>20)
		}
		size += bytes
		ops += fmt.Sprintf(" %d |", l.WriteOps)
		ttl += fmt.Sprintf(" %d ms |", l.MinTTL.Milliseconds())
	}
	words := strings.Join(strings.Fields(section), " ")
	for _, want := range []string{
		size, ops, ttl,
		fmt.Sprintf("have at most %d bytes, and item keys at most %d", driver.MaxNameLen, driver.MaxKeyLen),
		fmt.Sprintf("metadata has at most %d entries and %d bytes", driver.MaxMetaEntries, driver.MaxMetaBytes),
	} {
		if !strings.Contains(words, want) {
			t.Errorf("docs/sizing.md does not say\n%s", want)
		}
	}
}

func readReport(t *testing.T, backend string) *suite.Report {
	t.Helper()
	r, err := suite.ReadFile(filepath.Join(root, "docs", "reports"), backend, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
