package zookeeper

import (
	"context"

	"github.com/tenure-go/tenure/core/driver"
)

var _ driver.Examiner = (*Backend)(nil)

// Examine implements driver.Examiner. The client's protocol does not report the servers' clocks, or
// whether they sync their disks (forceSync), so Examine sends no query.
func (b *Backend) Examine(context.Context) ([]driver.Finding, error) {
	f := driver.Finding{Name: "rights", Value: "new nodes are this user's"}
	switch {
	case b.store.rights.own[0].Scheme == "world":
		f.Value = "new nodes are everybody's"
		f.Remedy = "all that reach the ensemble may write them: set user and password, as docs/backends/zookeeper.md has it"
	case len(b.store.rights.admins) == 0:
		f.Value += ", who may change their ACLs"
		f.Remedy = "set admins, so that the run-time user cannot remove permanent records"
	}
	return []driver.Finding{f}, nil
}
