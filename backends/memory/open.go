package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

var limits = driver.Limits{
	BatchItems: 1024,
	WriteOps:   4096,
	WriteBytes: 4 << 20,
	MinTTL:     10 * time.Millisecond,
}

// Options configure Open. The zero value and nil are valid.
type Options struct {
	// NoCreate makes Open refuse a namespace that does not exist yet. By default, Open creates it,
	// because an in-memory store is always new.
	NoCreate bool
	// Wrap, if not nil, returns the store that the backend uses, so that a test can add faults or
	// counters. Open calls it once. By default, the backend uses the original store.
	Wrap func(kv.Store) kv.Store
}

// Open opens a namespace of a store. Several backends on one Store behave like backends of several
// processes on one server. Closing a backend does not change the store.
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

// Opener returns the opener for this backend, whose name in the configuration is "memory". Each
// backend that it opens has its own store, which ends with the process.
func Opener() driver.Opener {
	return driver.NewOpener("memory", func(ctx context.Context, c *Config) (*kv.Backend, error) {
		return Open(ctx, New(), c.Namespace, nil)
	})
}
