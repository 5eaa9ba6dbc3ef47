package outage

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/system"
)

// A Suite runs the system suite on servers of one kind.
type Suite struct {
	Kind   servers.Kind
	Opener driver.Opener
	// FirstOnly makes a run's members connect only to the first server, as they would connect to an
	// agent.
	FirstOnly bool
	// Options returns system.Store's Options for the proxies' addresses.
	Options func(through []string, namespace string) any
}

// Run runs the seeds that the flags select, each with one server.
func (s *Suite) Run(t *testing.T) { system.Run(t, s.config(t, 1, system.Parallel())) }

// RunOnThree runs a seed on three servers.
func (s *Suite) RunOnThree(t *testing.T) {
	c := s.config(t, 3, 1)
	c.Seeds = 1
	system.Run(t, c)
}

// RunControl runs without the fence, and expects damage.
func (s *Suite) RunControl(t *testing.T) {
	c := s.config(t, 1, system.Parallel())
	c.Control, c.Seeds = true, 1
	system.Run(t, c)
}

// Fresh runs the function Fresh with one server.
func (s *Suite) Fresh(t *testing.T) { Fresh(t, s.config(t, 1, 1)) }

func (s *Suite) config(t *testing.T, members, parallel int) system.Config {
	return SystemConfig(t, s.Opener, parallel, func() Deployment {
		d := Deployment{Settings: s.Options}
		if members == 1 {
			d.Servers = []*servers.Server{servers.New(t, s.Kind, nil)}
		} else {
			d.Servers = servers.NewCluster(t, s.Kind, members, nil).Members()
		}
		for _, server := range d.Servers {
			d.Addrs = append(d.Addrs, server.Addr())
		}
		if s.FirstOnly {
			d.Addrs = d.Addrs[:1]
		}
		return d
	})
}

// Deployment is a store that serves one seed of the system suite at a time.
type Deployment struct {
	Servers []*servers.Server
	// Addrs are the addresses that the members of a run use, each through a proxy.
	Addrs []string
	// Settings returns system.Store's Options for the proxies' addresses.
	Settings func(through []string, namespace string) any
}

// SystemConfig returns a configuration of the system suite for n seeds at a time, each on separate
// servers and in a separate namespace. The schedule restarts one server after another, so a
// majority of three servers always remains. The schedule also stalls all servers, and cuts members
// off from all servers.
func SystemConfig(t *testing.T, opener driver.Opener, n int, start func() Deployment) system.Config {
	t.Helper()
	idle := make(chan *deployment, n)
	for range n {
		d := &deployment{Deployment: start()}
		for _, addr := range d.Addrs {
			p, err := faultproxy.New(addr, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() }) // a cut connection may fail to close
			d.cuts = append(d.cuts, system.Cutting(p))
			d.through = append(d.through, p.Addr())
		}
		for _, s := range d.Servers {
			d.pauses = append(d.pauses, system.Pausing(s.Stop, s.Cont))
		}
		idle <- d
	}
	return system.Config{Opener: opener, Parallel: n, Store: func(t conformance.T, seed uint64) *system.Store {
		d := <-idle
		t.Cleanup(func() { idle <- d })
		return &system.Store{
			Options: d.Settings(d.through, fmt.Sprintf("system/seed%d", seed)),
			Restart: d.restart, Pause: system.Together(d.pauses), Cut: system.Together(d.cuts),
		}
	}}
}

type deployment struct {
	Deployment
	through      []string
	pauses, cuts []system.Fault
	restarted    atomic.Int64
}

func (d *deployment) restart(ctx context.Context) error {
	return d.Servers[int(d.restarted.Add(1))%len(d.Servers)].Restart(ctx)
}
