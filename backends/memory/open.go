package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// Limits of every backend of this package.
var limits = driver.Limits{
	BatchItems: 1024,
	WriteOps:   4096,
	WriteBytes: 4 << 20,
	MinTTL:     10 * time.Millisecond,
}

// Options are the choices of Open; nil and the zero value are the defaults.
type Options struct {
	// NoCreate refuses a namespace that does not exist yet. By default it is
	// created, because a store in memory is always new.
	NoCreate bool
	// Wrap, if not nil, is called once, by Open, and returns what the backend uses instead
	// of the store: a test puts faults or counters there. Default nil: the store itself.
	Wrap func(kv.Store) kv.Store
}

// Open opens a namespace of a store. Several backends on one Store behave as those
// of several processes on one server. Closing a backend leaves the store as it is.
func Open(ctx context.Context, s *Store, namespace string, o *Options) (*kv.Backend, error) {
	if o == nil {
		o = &Options{}
	}
	if s == nil {
		return nil, fmt.Errorf("tenure: cannot open namespace %q: %w: Open needs a store: use New()", namespace, driver.ErrInvalid)
	}
	c := s.Client()
	if o.Wrap != nil {
		c = o.Wrap(c)
	}
	b, err := kv.Open(ctx, c, kv.Options{Backend: "memory", Namespace: namespace, Create: !o.NoCreate, Limits: limits})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return b, nil
}

// Config is this backend's part of a configuration.
type Config struct {
	Namespace string `yaml:"namespace" json:"namespace"`
}

// Opener chooses this backend in configuration as "memory". Each backend that it
// opens has its own store, which ends with the process.
func Opener() driver.Opener {
	return driver.NewOpener("memory", func(ctx context.Context, c *Config) (*kv.Backend, error) {
		return Open(ctx, New(), c.Namespace, nil)
	})
}
