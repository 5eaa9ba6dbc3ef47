package quorum

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Resolver looks up SRV records. The type net.Resolver implements it.
type Resolver interface {
	LookupSRV(ctx context.Context, service, proto, name string) (cname string, records []*net.SRV, err error)
}

// discover sets Members from the records of Domain, if Domain is set.
func (c *Config) discover(ctx context.Context) error {
	if c.Domain == "" {
		return nil
	}
	c.Domain = strings.ToLower(strings.TrimSuffix(c.Domain, "."))
	switch {
	case len(c.Members) > 0:
		return invalid("Members and Domain are set: set one")
	case !hosts.MatchString(c.Domain):
		return invalid("Domain %.80q: use a DNS name", c.Domain)
	case c.Size < 1 || c.Size > maxMembers:
		return invalid("Size %d: use the number of members, 1 to %d", c.Size, maxMembers)
	}
	peers, err := c.lookup(ctx, "etcd-server")
	if err != nil {
		return err
	}
	clients, err := c.lookup(ctx, "etcd-client")
	if err != nil {
		return err
	}
	for name, peer := range peers {
		if clients[name] == "" {
			return invalid("host %q of Domain %q is no target of its records for clients: publish both", name, c.Domain)
		}
		c.Members = append(c.Members, Address{name, peer, clients[name]})
	}
	slices.SortFunc(c.Members, func(a, b Address) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// lookup returns the targets of a service's records, by the part of their names before Domain.
func (c *Config) lookup(ctx context.Context, service string) (map[string]string, error) {
	if c.ClientTLS != (TLS{}) {
		service += "-ssl"
	}
	record := "_" + service + "._tcp." + c.Domain
	var r Resolver = net.DefaultResolver
	if c.Resolver != nil {
		r = c.Resolver
	}
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	_, all, err := r.LookupSRV(ctx, service, "tcp", c.Domain)
	if err != nil {
		return nil, fmt.Errorf("tenure: quorum: look up the members: %w", err)
	}
	if len(all) != c.Size {
		return nil, invalid("%s has %d records, and Size is %d: publish one record for each member, whether or not it is "+
			"ready", record, len(all), c.Size)
	}
	found := map[string]string{}
	for _, a := range all {
		host := strings.ToLower(strings.TrimSuffix(a.Target, "."))
		name, below := strings.CutSuffix(host, "."+c.Domain)
		if !below || !names.MatchString(name) || found[name] != "" {
			return nil, invalid("%s has the target %.80q: each target must be another host below Domain", record, a.Target)
		}
		found[name] = net.JoinHostPort(host, strconv.Itoa(int(a.Port)))
	}
	return found, nil
}
