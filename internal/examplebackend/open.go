package examplebackend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// Name is the backend's name in Info and of its Opener.
const Name = "example"

// DefaultPollPeriod is how often a watch looks at the journal.
const DefaultPollPeriod = 10 * time.Millisecond

// Options for Open. The zero value, and nil, work.
type Options struct {
	// Create makes the directory and the namespace if they are not there. Default
	// false: a missing one is an error, because it may mean a wrong path or a lost
	// disk (rule I1).
	Create bool `json:"create" yaml:"create"`

	// PollPeriod is how late a change made by another process may be reported.
	// Default (0) DefaultPollPeriod; 1 ms to 10 s.
	PollPeriod time.Duration `json:"poll" yaml:"poll"`
}

// Settings are the Opener's options in configuration.
type Settings struct {
	Dir       string `json:"dir" yaml:"dir"`
	Namespace string `json:"namespace" yaml:"namespace"`
	Options   `yaml:",inline"`
}

// Opener opens this backend by name, "example", from configuration.
func Opener() driver.Opener { return driver.NewOpener(Name, openSettings) }

func openSettings(ctx context.Context, s *Settings) (*kv.Backend, error) {
	return Open(ctx, s.Dir, s.Namespace, &s.Options)
}

// Open opens a namespace of the store in a directory. Any number of processes of
// one host may have it open. ctx bounds the opening only; nil options work.
func Open(ctx context.Context, dir, namespace string, o *Options) (*kv.Backend, error) {
	c, err := newClient(dir, o)
	if err != nil {
		return nil, err
	}
	return openOn(ctx, c, c.poll, namespace, o)
}

// openOn opens a namespace of a store and closes the store if that fails.
func openOn(ctx context.Context, s kv.Store, poll time.Duration, namespace string, o *Options) (*kv.Backend, error) {
	b, err := kv.Open(ctx, s, kv.Options{
		Backend: Name, Namespace: namespace, Create: o != nil && o.Create,
		Limits: driver.Limits{
			BatchItems: 256, WriteOps: 1024, WriteBytes: 1 << 20,
			PollPeriod: poll, MinTTL: 500 * time.Millisecond,
		},
	})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return b, nil
}

func newClient(dir string, o *Options) (*client, error) {
	if o == nil {
		o = &Options{}
	}
	if dir == "" {
		return nil, fmt.Errorf("tenure: %w: the directory is empty: name one on a local disk", driver.ErrInvalid)
	}
	poll := o.PollPeriod
	if poll == 0 {
		poll = DefaultPollPeriod
	}
	if poll < time.Millisecond || poll > 10*time.Second {
		return nil, fmt.Errorf("tenure: %w: poll period %v is outside 1ms to 10s", driver.ErrInvalid, poll)
	}
	if o.Create {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("tenure: creating the store: %w", err)
		}
	}
	return &client{
		dir: dir, poll: poll, journal: journal{dir: dir, compactAt: defaultCompactAt},
		writing: make(chan struct{}, 1), changed: make(chan struct{}), closed: make(chan struct{}),
	}, nil
}
