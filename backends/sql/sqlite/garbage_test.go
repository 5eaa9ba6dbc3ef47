package sqlite

import (
	"context"
	"sync"
	"testing"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/internal/proof/garbage"
)

var garbageFor = garbage.Flag()

// TestGarbage is not parallel, because it measures the heap. It makes one write at a time, because
// each process has one writer for each file. Any program that may write can also hold the file's
// lock and so block all others.
func TestGarbage(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: .ci/run runs it")
	}
	conformance.TestGarbage(t, func(t conformance.T) *conformance.Store {
		s := newHarness(t).store(t)
		var writer sync.Mutex
		tamper := s.Tamper
		s.Tamper = func(ctx context.Context, what conformance.Tampering, name string) error {
			writer.Lock()
			defer writer.Unlock()
			return tamper(ctx, what, name)
		}
		return s
	}, *garbageFor)
}
