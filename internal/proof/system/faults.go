package system

import (
	"context"

	"github.com/tenure-go/tenure/internal/proof/faultproxy"
)

// Pausing is a Store.Pause made of a server's stop and continue, such as those of
// package servers.
func Pausing(stop func(context.Context) error, cont func() error) func(context.Context) (func() error, error) {
	return func(ctx context.Context) (func() error, error) {
		if err := stop(ctx); err != nil {
			return nil, err
		}
		return cont, nil
	}
}

// Cutting is a Store.Cut made of the proxy that the members' connections go
// through: they are reset, and new ones refused.
func Cutting(p *faultproxy.Proxy) func(context.Context) (func() error, error) {
	return func(context.Context) (func() error, error) {
		if err := p.Refuse(); err != nil {
			return nil, err
		}
		p.Reset()
		return p.Admit, nil
	}
}
