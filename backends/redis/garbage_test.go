package redis

import (
	"testing"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/internal/proof/garbage"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

var garbageFor = garbage.Flag()

// TestGarbage is not parallel, because it measures the heap. It writes garbage as the run-time
// user.
func TestGarbage(t *testing.T) {
	server := pool.Get(t, servers.Redis, nil)
	user := asUser(t, server, "suite/*")
	conformance.TestGarbage(t, harness(t, user, user, Options{}, nil).New, *garbageFor)
}
