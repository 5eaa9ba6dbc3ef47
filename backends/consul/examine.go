package consul

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/tenure-go/tenure/core/driver"
)

var _ driver.Examiner = (*Backend)(nil)

// Examine implements driver.Examiner. Consul always syncs its log, and its API does not report a
// clock. Listing the servers and reading the token require no permission.
func (b *Backend) Examine(ctx context.Context) ([]driver.Finding, error) {
	c, err := b.store.begin(ctx, requests)
	if err != nil {
		return nil, err
	}
	defer c.done()
	peers, err := c.client.Status().PeersWithQueryOptions(c.query())
	if c.heard(err) != nil {
		return nil, fmt.Errorf("tenure: list the servers: %w", err)
	}
	servers := driver.Finding{Name: "servers", Value: fmt.Sprint(len(peers))}
	if len(peers) < 3 {
		servers.Remedy = "the loss of one disk or machine can lose acknowledged writes, or stops the cluster: run three servers"
	}
	token, _, err := c.client.ACL().TokenReadSelf(c.query())
	err = c.heard(err)
	f := driver.Finding{Name: "token"}
	refused, ok := errors.AsType[api.StatusError](err)
	switch {
	case err == nil:
		var names []string
		for _, p := range token.Policies {
			names = append(names, p.Name)
			if p.Name == "global-management" {
				f.Remedy = "it may do anything: use a token with the policy of docs/backends/consul.md"
			}
		}
		f.Value = fmt.Sprintf("with the policies %q", names)
	case ok && strings.Contains(refused.Body, "ACL support disabled"):
		f = driver.Finding{Name: "ACLs", Value: "off",
			Remedy: "all that reach the agent may write everything: see docs/backends/consul.md for a policy"}
	case refusedRight(err):
		f.Value = "none, or one that was deleted or has expired"
		f.Remedy = "it may do what default_policy and the anonymous token allow: use a token with the policy of " +
			"docs/backends/consul.md, and default_policy = \"deny\""
	default:
		return nil, fmt.Errorf("tenure: read the token's policies: %w", err)
	}
	return []driver.Finding{servers, f}, nil
}

// refusedRight reports whether a query was refused for lack of permission.
func refusedRight(err error) bool {
	e, ok := errors.AsType[api.StatusError](err)
	return ok && (e.Code == http.StatusForbidden || e.Code == http.StatusUnauthorized)
}
