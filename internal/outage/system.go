package outage

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/tenure-go/tenure/conformance/faultproxy"
	"github.com/tenure-go/tenure/conformance/system"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/servers"
)

// Deployment is a store for one seed of the system suite at a time.
type Deployment struct {
	Servers []*servers.Server
	// Addrs are those that the members of a run use, each through a proxy.
	Addrs []string
	// Settings are system.Store's Options, for those proxies' addresses.
	Settings func(through []string, namespace string) any
}

// SystemConfig returns a configuration of the system suite for n seeds at a time, each on
// its own servers and in its own namespace. Its schedule restarts one server after the
// other, so that of three a majority is left; it stalls them all, and cuts the members off
// from all of them.
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
			t.Cleanup(func() { p.Close() })
			d.cuts = append(d.cuts, system.Cutting(p))
			d.through = append(d.through, p.Addr())
		}
		for _, s := range d.Servers {
			d.pauses = append(d.pauses, system.Pausing(s.Stop, s.Cont))
		}
		idle <- d
	}
	return system.Config{Opener: opener, Parallel: n, Store: func(t *testing.T, seed uint64) *system.Store {
		d := <-idle
		t.Cleanup(func() { idle <- d })
		return &system.Store{
			Options: d.Settings(d.through, fmt.Sprintf("system/seed%d", seed)),
			Restart: d.restart, Pause: all(d.pauses), Cut: all(d.cuts),
		}
	}}
}

type deployment struct {
	Deployment
	through      []string
	pauses, cuts []fault
	restarted    atomic.Int64
}

// fault injects a fault until undo is called.
type fault = func(ctx context.Context) (undo func() error, err error)

func (d *deployment) restart(ctx context.Context) error {
	return d.Servers[int(d.restarted.Add(1))%len(d.Servers)].Restart(ctx)
}

// all injects all of the faults, or none.
func all(faults []fault) fault {
	return func(ctx context.Context) (func() error, error) {
		var undos []func() error
		undo := func() error {
			var errs []error
			for _, u := range undos {
				errs = append(errs, u())
			}
			return errors.Join(errs...)
		}
		for _, s := range faults {
			u, err := s(ctx)
			if err != nil {
				return nil, errors.Join(err, undo())
			}
			undos = append(undos, u)
		}
		return undo, nil
	}
}
