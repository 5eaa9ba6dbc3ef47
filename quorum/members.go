package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/tenure-go/tenure/core"
)

// MemberInfo describes a member as the cluster knows it. If the member has never started, Name and
// Client are empty.
type MemberInfo struct {
	Address
	ID      uint64 // never used again after the member's removal
	Learner bool   // receives all writes, but has no vote yet
	Leader  bool   // leads the cluster, in this member's view
}

// Members returns the cluster's current members, sorted by name. If no majority answers before ctx
// ends, Members returns an error.
func (m *Member) Members(ctx context.Context) ([]MemberInfo, error) {
	s := m.etcd.Server
	if err := s.LinearizableReadNotify(ctx); err != nil {
		return nil, fmt.Errorf("tenure: quorum: read the members of cluster %q: %w", m.config.Cluster, err)
	}
	var all []MemberInfo
	for _, x := range s.Cluster().Members() {
		all = append(all, MemberInfo{Address: Address{Name: x.Name, Peer: addressIn(x.PeerURLs), Client: addressIn(x.ClientURLs)},
			ID: uint64(x.ID), Learner: x.IsLearner, Leader: x.ID == s.Leader()})
	}
	slices.SortFunc(all, func(a, b MemberInfo) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func addressIn(urls []string) string {
	_, address, _ := strings.Cut(strings.Join(urls, " "), "://")
	return address
}

// Remove permanently removes the named member from the cluster. If the member runs, it stops with
// ErrRemoved. The cluster refuses a removal that leaves no connected majority. If another process is
// to take the member's place, call Replace in that process instead.
func (m *Member) Remove(ctx context.Context, name string) error {
	all, err := m.Members(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(x MemberInfo) bool { return x.Name == name })
	if i < 0 {
		return invalid("cluster %q has no member %.80q: use a name that Members returns", m.config.Cluster, name)
	}
	if _, err := m.etcd.Server.RemoveMember(ctx, all[i].ID); err != nil {
		return fmt.Errorf("tenure: quorum: remove member %q: %w", name, err)
	}
	return nil
}

// Replace is Start for a member whose disk is lost. The data folder must be empty. Replace removes
// the former member of this name from the cluster, joins as a learner, copies the data, and becomes
// a voter. Replace also adds a member that the cluster does not have.
//
// Replace needs a majority of the former members, and refuses to remove a member that answers. If
// Replace is interrupted, call Replace again, unless it refuses the folder: then call Start.
func Replace(ctx context.Context, c Config) (*Member, error) {
	return begin(ctx, c, func(c *Config, self Address, f *folder) (id identity, initial, state string, err error) {
		if f.begun {
			err = invalid("%s contains the data of member %q: call Start, or move the folder away", c.Dir, c.Name)
		} else {
			initial, err = c.rejoin(ctx, self)
		}
		return identity{Joining: true}, initial, embed.ClusterStateFlagExisting, err
	})
}

// rejoin changes the cluster's members, and returns them in the form of --initial-cluster. After a
// failure, rejoin begins again, because the cluster may have an election.
func (c *Config) rejoin(ctx context.Context, self Address) (initial string, err error) {
	client, err := c.dial(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = client.Close() }() // the error only repeats that it is closed
	for {
		limited, cancel := context.WithTimeout(ctx, 4*asking)
		initial, err = c.rejoinOnce(limited, client, self)
		cancel()
		if err == nil || errors.Is(err, core.ErrInvalid) {
			return initial, err
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

func (c *Config) rejoinOnce(ctx context.Context, client *clientv3.Client, self Address) (string, error) {
	list, err := client.MemberList(ctx)
	if err != nil {
		return "", err
	}
	peer := c.PeerTLS.url(self.Peer)
	for _, x := range list.Members {
		if x.Name != c.Name && !slices.Contains(x.PeerURLs, peer) {
			continue
		}
		if x.Name != c.Name && x.Name != "" {
			return "", invalid("member %q has the peer address %s: use another", x.Name, self.Peer)
		}
		for _, u := range x.ClientURLs {
			limited, cancel := context.WithTimeout(ctx, asking)
			status, err := client.Status(limited, u)
			cancel()
			if err == nil && status.Header.MemberId == x.ID {
				return "", invalid("the member runs at %s: stop it first", u)
			}
		}
		if _, err := client.MemberRemove(ctx, x.ID); err != nil {
			return "", err
		}
	}
	added, err := client.MemberAddAsLearner(ctx, []string{peer})
	if err != nil {
		return "", err
	}
	var all []string
	for _, x := range added.Members {
		if x.ID == added.Member.ID {
			x.Name = c.Name
		}
		name := cmp.Or(x.Name, fmt.Sprintf("%x", x.ID)) // a member that has not started
		for _, u := range x.PeerURLs {
			all = append(all, name+"="+u)
		}
	}
	return strings.Join(all, ","), nil
}

// dial returns a client of the other members.
func (c *Config) dial(ctx context.Context) (*clientv3.Client, error) {
	o := clientv3.Config{Context: ctx, Logger: zap.NewNop()}
	for _, m := range c.Members {
		if m.Name != c.Name {
			o.Endpoints = append(o.Endpoints, c.ClientTLS.url(m.Client))
		}
	}
	if len(o.Endpoints) == 0 {
		return nil, invalid("Members names no other member")
	}
	if c.ClientTLS != (TLS{}) {
		t, err := c.ClientTLS.info().ClientConfig()
		if err != nil {
			return nil, err
		}
		o.TLS = t
	}
	return clientv3.New(o)
}
