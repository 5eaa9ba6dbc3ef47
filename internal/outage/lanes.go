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

// Lane is a store that one seed of the system suite at a time is played on.
type Lane struct {
	Servers []*servers.Server
	// Addrs are those that the members of a run use, each through a proxy.
	Addrs []string
	// Settings are system.Store's Options, for those proxies' addresses.
	Settings func(through []string, namespace string) any
}

// Lanes is a configuration of the system suite for n seeds at a time, each on servers
// of its own and in a namespace of its own. Its schedule restarts one server after
// the other, so that of three a majority is left; it stalls them all, and cuts the
// members off from all of them.
func Lanes(t *testing.T, opener driver.Opener, n int, start func() Lane) system.Config {
	t.Helper()
	idle := make(chan *lane, n)
	for range n {
		l := &lane{Lane: start()}
		for _, addr := range l.Addrs {
			p, err := faultproxy.New(addr, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close() })
			l.cuts = append(l.cuts, system.Cutting(p))
			l.through = append(l.through, p.Addr())
		}
		for _, s := range l.Servers {
			l.pauses = append(l.pauses, system.Pausing(s.Stop, s.Cont))
		}
		idle <- l
	}
	return system.Config{Opener: opener, Parallel: n, Store: func(t *testing.T, seed uint64) *system.Store {
		l := <-idle
		t.Cleanup(func() { idle <- l })
		return &system.Store{
			Options: l.Settings(l.through, fmt.Sprintf("system/seed%d", seed)),
			Restart: l.restart, Pause: all(l.pauses), Cut: all(l.cuts),
		}
	}}
}

type lane struct {
	Lane
	through      []string
	pauses, cuts []strike
	struck       atomic.Int64
}

// strike does something until undo is called.
type strike = func(ctx context.Context) (undo func() error, err error)

func (l *lane) restart(ctx context.Context) error {
	return l.Servers[int(l.struck.Add(1))%len(l.Servers)].Restart(ctx)
}

// all strikes with all of them, or none.
func all(strikes []strike) strike {
	return func(ctx context.Context) (func() error, error) {
		var undos []func() error
		undo := func() error {
			var errs []error
			for _, u := range undos {
				errs = append(errs, u())
			}
			return errors.Join(errs...)
		}
		for _, s := range strikes {
			u, err := s(ctx)
			if err != nil {
				return nil, errors.Join(err, undo())
			}
			undos = append(undos, u)
		}
		return undo, nil
	}
}
