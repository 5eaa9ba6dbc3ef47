package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/tenure-go/tenure/core"
)

// MemberInfo describes a member as the cluster knows it. If the member has never started, Name and
// Client are empty.
type MemberInfo struct {
	Address
	ID      uint64 // never used again after the member's removal
	Learner bool   // receives all writes, but has no vote yet
	Leader  bool   // leads the cluster, in the view of a member that answered
	Silent  bool   // did not answer within 5 s, or half of the time that was left
	Size    int64  // of its database, in bytes; 0 if Silent
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
	o, err := c.operateOthers()
	if err != nil {
		return "", err
	}
	defer o.Close()
	for {
		limited, cancel := context.WithTimeout(ctx, 4*asking)
		initial, err = c.rejoinOnce(limited, o, self)
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

func (c *Config) rejoinOnce(ctx context.Context, o *Operator, self Address) (string, error) {
	list, err := o.list(ctx)
	if err != nil {
		return "", err
	}
	peer := c.PeerTLS.url(self.Peer)
	for _, x := range list {
		if x.Name != c.Name && !slices.Contains(x.PeerURLs, peer) {
			continue
		}
		if x.Name != c.Name && x.Name != "" {
			return "", invalid("member %q has the peer address %s: use another", x.Name, self.Peer)
		}
		if o.status(ctx, x) != nil {
			return "", invalid("the member runs at %s: stop it first", addressIn(x.ClientURLs))
		}
		if _, err := o.client.MemberRemove(ctx, x.ID); err != nil {
			return "", err
		}
	}
	added, err := o.client.MemberAddAsLearner(ctx, []string{peer})
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

// operateOthers returns an Operator that connects to the other members.
func (c *Config) operateOthers() (*Operator, error) {
	others := *c
	others.Members = slices.DeleteFunc(slices.Clone(c.Members), func(m Address) bool { return m.Name == c.Name })
	if len(others.Members) == 0 {
		return nil, invalid("Members names no other member")
	}
	return others.operate()
}
