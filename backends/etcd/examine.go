package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tenure-go/tenure/core/driver"
)

var _ driver.Examiner = (*Backend)(nil)

// Examine implements driver.Examiner. The client's API does not report the servers' clocks, or
// whether the servers sync their disks.
func (b *Backend) Examine(ctx context.Context) ([]driver.Finding, error) {
	var out []driver.Finding
	members, err := b.client.MemberList(ctx)
	named := !errors.Is(err, rpctypes.ErrUserEmpty)
	switch {
	case refusedRight(err):
	case err != nil:
		return nil, fmt.Errorf("tenure: list the cluster's members: %w", err)
	default:
		voters := 0
		for _, m := range members.Members {
			if !m.IsLearner {
				voters++
			}
		}
		f := driver.Finding{Name: "voting members", Value: fmt.Sprint(voters)}
		if voters < 3 {
			f.Remedy = "the loss of one disk or machine can lose acknowledged writes, or stops the cluster: run three members"
		}
		out = append(out, f)
	}
	alarms, err := b.client.AlarmList(ctx)
	switch {
	case refusedRight(err):
	case err != nil:
		return nil, fmt.Errorf("tenure: list alarms: %w", err)
	default:
		f := driver.Finding{Name: "alarms", Value: "none"}
		for i, a := range alarms.Alarms {
			if i == 0 {
				f.Value = ""
			} else {
				f.Value += ", "
			}
			f.Value += a.Alarm.String()
			f.Remedy = "the cluster refuses writes, or is damaged: see etcdctl alarm list"
		}
		out = append(out, f)
	}
	rights, err := b.rights(ctx, named)
	if err != nil {
		return nil, err
	}
	return append(out, rights), nil
}

// The argument named reports whether the client has a user.
func (b *Backend) rights(ctx context.Context, named bool) (driver.Finding, error) {
	auth, err := b.client.AuthStatus(ctx) // every user may read it
	switch {
	case err != nil:
		return driver.Finding{}, fmt.Errorf("tenure: read the state of authentication: %w", err)
	case !auth.Enabled:
		return driver.Finding{Name: "authentication", Value: "off",
			Remedy: "all that reach the cluster may write everything: see docs/backends/etcd.md for a role"}, nil
	}
	f := driver.Finding{Name: "user", Value: fmt.Sprintf("%q", b.client.Username)}
	if !named {
		f.Value, f.Remedy = "none", "the cluster asks for one: set username and password, as docs/backends/etcd.md has it"
		return f, nil
	}
	user, err := b.client.UserGet(ctx, b.client.Username)
	switch {
	case b.client.Username == "" && (refusedRight(err) || errors.Is(err, rpctypes.ErrUserNotFound)):
		f.Value = "the name in the certificate"
	case err != nil:
		return f, fmt.Errorf("tenure: read the rights of user %q: %w", b.client.Username, err)
	default:
		f.Value += fmt.Sprintf(" with the roles %q", user.Roles)
		if len(user.Roles) == 0 {
			f.Remedy = "it may do nothing: grant it the role of docs/backends/etcd.md"
		}
		for _, r := range user.Roles {
			if r == "root" {
				f.Remedy = "it may do anything: use a user with the role of docs/backends/etcd.md"
			}
		}
	}
	return f, nil
}

// refusedRight reports whether a query was refused for lack of permission, which is normal for the
// run-time role.
func refusedRight(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty)
}
