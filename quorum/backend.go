package quorum

import (
	"context"
	"errors"

	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/core/driver"
)

// Backend is an etcd backend that also reports the cluster's problems. Backend is safe for
// concurrent use.
type Backend struct {
	*etcd.Backend
	trouble func(context.Context) error
	release func() error
}

// Trouble returns what Member.Trouble or, in a client, Operator.Trouble returns. An Elector that uses
// this Backend calls Trouble (core.Options.Trouble).
func (b *Backend) Trouble(ctx context.Context) error { return b.trouble(ctx) }

// Close ends the Backend's connections. If the Opener started a member, Close then stops it, as
// Member.Close does.
func (b *Backend) Close() error { return errors.Join(b.Backend.Close(), b.release()) }

// Settings are the Opener's options in a configuration. Without a name and a folder, the process is
// only a client. Create applies to the cluster and to the namespace.
type Settings struct {
	Config    `yaml:",inline"`
	Namespace string `yaml:"namespace"` // such as "orders"
}

// Opener returns the opener that is called "quorum" in configurations. It starts the member that
// name names, and opens the namespace. Closing the Backend stops the member.
func Opener() driver.Opener { return driver.NewOpener("quorum", openSettings) }

func openSettings(ctx context.Context, s *Settings) (*Backend, error) {
	o := &etcd.Options{Create: s.Create}
	if s.Name == "" {
		if s.Dir != "" {
			return nil, invalid("a data folder without a member: set Name, or remove the folder from a client's settings")
		}
		return Dial(ctx, s.Config, s.Namespace, o)
	}
	m, err := Start(ctx, s.Config)
	if err != nil {
		return nil, err
	}
	b, err := m.Open(ctx, s.Namespace, o)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	b.release = m.Close
	return b, nil
}
