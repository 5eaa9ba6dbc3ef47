package quorum

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core"
)

// records answers lookups, by service.
type records map[string][]*net.SRV

func (r records) LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error) {
	if _, limited := ctx.Deadline(); !limited || proto != "tcp" || name != "orders.internal" {
		return "", nil, fmt.Errorf("a lookup of %s %s without a limit, or of another name", proto, name)
	}
	if r[service] == nil {
		return "", nil, &net.DNSError{Err: "no such host", Name: service, IsNotFound: true}
	}
	return "", r[service], nil
}

func targets(port uint16, names ...string) (all []*net.SRV) {
	for _, n := range names {
		all = append(all, &net.SRV{Target: n, Port: port})
	}
	return all
}

// TestDomain: members come from DNS, and answers that do not name exactly Size hosts below Domain
// are refused.
func TestDomain(t *testing.T) {
	t.Parallel()
	of := func(peers, clients []*net.SRV) Config {
		return Config{Cluster: "orders", Domain: "Orders.internal.", Size: 2,
			Resolver: records{"etcd-server": peers, "etcd-client": clients, "etcd-server-ssl": peers, "etcd-client-ssl": clients}}
	}
	peers, clients := targets(2380, "b.orders.internal.", "A.orders.internal."), targets(2379, "a.orders.internal.",
		"b.orders.internal.")
	for _, files := range []TLS{{}, {CAFile: "x"}} {
		c := of(peers, clients)
		c.ClientTLS = files
		want := []Address{{"a", "a.orders.internal:2380", "a.orders.internal:2379"},
			{"b", "b.orders.internal:2380", "b.orders.internal:2379"}}
		if err := c.discover(t.Context()); err != nil || !reflect.DeepEqual(c.Members, want) {
			t.Errorf("%+v, %v; want %+v", c.Members, err, want)
		}
	}
	many := make([]*net.SRV, 10_000)
	for i := range many {
		many[i] = &net.SRV{Target: fmt.Sprintf("n%d.orders.internal.", i), Port: 1}
	}
	for words, c := range map[string]Config{
		"has 10000 records, and Size is 2": of(many, clients),
		"has 1 records":                    of(peers, clients[:1]),
		"evil.example":                     of(targets(1, "a.orders.internal.", "evil.example."), clients),
		"another host below":               of(targets(1, "a.orders.internal.", "a.orders.internal."), clients),
		"orders.internal.":                 of(targets(1, "a.orders.internal.", "orders.internal."), clients),
		`a,b=http://c`:                     of(targets(1, "a,b=http://c.orders.internal.", "a.orders.internal."), clients),
		`\x1b`:                             of(targets(1, "\x1b[2J.orders.internal.", "a.orders.internal."), clients),
		"publish both":                     of(targets(1, "a.orders.internal.", "c.orders.internal."), clients),
		"use host:port":                    of(targets(0, "a.orders.internal.", "b.orders.internal."), clients),
		"not a loopback address":           of(peers, clients),
		"Size 0":                           {Cluster: "c", Domain: "x"},
		"Size 8":                           {Cluster: "c", Domain: "x", Size: 8},
		"use a DNS name":                   {Cluster: "c", Domain: "x y\n" + strings.Repeat("z", 1000), Size: 1},
		"set one":                          {Cluster: "c", Domain: "x", Size: 1, Members: []Address{{}}},
	} {
		_, err := Operate(t.Context(), c)
		if !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), words) || len(err.Error()) > 400 {
			t.Errorf("%v, want ErrInvalid with %q", err, words)
		}
	}
	c := of(nil, clients)
	if _, err := Operate(t.Context(), c); err == nil || errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), "look up") {
		t.Errorf("without an answer: %v", err)
	}
}
