package memory_test

import (
	"testing"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/conformance"
)

// TestGarbage is not parallel, because it measures the heap.
func TestGarbage(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: .ci/run runs it")
	}
	conformance.TestGarbage(t, newConformanceStore(memory.Open), 0)
}
