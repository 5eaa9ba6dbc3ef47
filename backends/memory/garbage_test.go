package memory_test

import (
	"testing"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/conformance/system"
)

// TestGarbage is not parallel, because it measures the heap.
func TestGarbage(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: .ci/run runs it")
	}
	system.Garbage(t, newConformanceStore(memory.Open)(conformance.Wrap(t)), 0)
}
