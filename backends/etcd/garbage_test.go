package etcd

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/internal/proof/garbage"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

var garbageFor = garbage.Flag()

// TestGarbage is not parallel, because it measures the heap. It writes garbage as the run-time
// user.
func TestGarbage(t *testing.T) {
	server := servers.New(t, servers.Etcd, &servers.Options{Config: []string{"bcrypt-cost = 4"}})
	_, user := enableAuth(t, server, "readwrite", "suite/", clientv3.GetPrefixRangeEnd("suite/"))
	conformance.TestGarbage(t, harness(t, user, user, nil).New, *garbageFor)
}
