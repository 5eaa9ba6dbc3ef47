package sqlite

import (
	"testing"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/internal/proof/garbage"
)

var garbageFor = garbage.Flag()

// TestGarbage is not parallel, because it measures the heap. There is one writer, as each process
// has one per file. Every program that may write can keep the file's lock from all others anyway.
func TestGarbage(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: .ci/run runs it")
	}
	garbage.Test(t, newHarness(conformance.Wrap(t)).store(conformance.Wrap(t)), 1, *garbageFor)
}
