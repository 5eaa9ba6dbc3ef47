package consul

import (
	"testing"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/internal/proof/garbage"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

var garbageFor = garbage.Flag()

// TestGarbage is not parallel, because it measures the heap.
func TestGarbage(t *testing.T) {
	conformance.TestGarbage(t, harness(t, pool.Get(t, servers.Consul, nil)).New, *garbageFor)
}
