package system

import (
	"context"
	"errors"

	"github.com/tenure-go/tenure/internal/proof/faultproxy"
)

// Fault injects a fault until undo is called.
type Fault = func(ctx context.Context) (undo func() error, err error)

// Together returns a Fault that injects either all of the faults or none of them.
func Together(faults []Fault) Fault {
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

// Pausing returns a Store.Pause that stops and continues a server, such as one of package servers.
func Pausing(stop func(context.Context) error, cont func() error) func(context.Context) (func() error, error) {
	return func(ctx context.Context) (func() error, error) {
		if err := stop(ctx); err != nil {
			return nil, err
		}
		return cont, nil
	}
}

// Cutting returns a Store.Cut that uses the proxy for the members' connections. The cut resets open
// connections and refuses new ones.
func Cutting(p *faultproxy.Proxy) func(context.Context) (func() error, error) {
	return func(context.Context) (func() error, error) {
		if err := p.Refuse(); err != nil {
			return nil, err
		}
		p.Reset()
		return p.Admit, nil
	}
}
