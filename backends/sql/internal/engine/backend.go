package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/oddkey"
)

// Config contains the arguments that a dialect's package passes to New. Create, NewRoster and
// ShowsEarly are optional.
type Config struct {
	Name       string // the backend's name, as in the Opener
	Namespace  string
	Store      Store
	Statements *Statements
	// Limits are the backend's limits. CommitCalls and IdlePollPeriod may be 0.
	Limits driver.Limits
	// Create allows New to write a missing identity (I1).
	Create bool
	// NewRoster allows an empty roster when data exists. An operator who sets NewRoster asserts
	// that the previous members are gone.
	NewRoster bool
	// ShowsEarly reports whether the database, as configured, shows commits before they are
	// durable. ShowsEarly must be safe for concurrent use and must not block. If it is nil (the
	// default), a database shows commits early if its dialect defines the barrier statements.
	ShowsEarly func() bool
	// Buckets is the number of tail counters of a new namespace. A database with one writer at a
	// time needs 1, and any other database needs 16.
	Buckets int
}

// Backend is a namespace in an SQL database. It implements driver.Backend and is safe for
// concurrent use.
type Backend struct {
	*driver.Certificate // nil without TLS files; set before the first use

	store   Store
	stmts   *Statements
	name    string
	id      string // the namespace's identity
	info    driver.Info
	buckets int64
	odd     oddkey.Found

	floor    atomic.Int64 // highest base + revision seen and durable (I1)
	rosterAt atomic.Int64 // highest roster revision seen and durable (I1)
	durable  durable
	early    func() bool // see Config.ShowsEarly
	barriers *barriers
	slot     string // of barriers

	observing, tailing attention
	peers              peers
	lastView           lastView
	freed              freed

	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
}

var _ driver.Backend = (*Backend)(nil)

// New opens the namespace. It checks that the store honors conditions (P1), and reads the identity.
// With Create, it writes a missing identity. New takes ownership of cfg.Store, and closes it on
// failure.
func New(ctx context.Context, cfg Config) (*Backend, error) {
	if err := cfg.check(); err != nil {
		if cfg.Store != nil {
			err = errors.Join(err, cfg.Store.Close())
		}
		return nil, err
	}
	b := &Backend{
		store: cfg.Store, stmts: cfg.Statements, name: cfg.Namespace, closing: make(chan struct{}), slot: barrierSlot(),
		early: cfg.ShowsEarly, barriers: newBarriers(),
	}
	b.freed.start()
	b.observing.pace, b.tailing.pace = newPace(cfg.Limits), newPace(cfg.Limits)
	if err := b.open(ctx, cfg); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	b.info = driver.Info{Backend: cfg.Name, Namespace: cfg.Namespace, StoreID: b.id, Limits: cfg.Limits}
	return b, nil
}

// check returns an error if the Config lacks a required value.
func (cfg *Config) check() error {
	l := cfg.Limits
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"Name", cfg.Name != ""},
		{"Store", cfg.Store != nil},
		{"Statements", cfg.Statements != nil},
		{"Limits.BatchItems", l.BatchItems > 0},
		{"Limits.WriteOps", l.WriteOps > 0},
		{"Limits.WriteBytes", l.WriteBytes > 0},
		{"Limits.PollPeriod", l.PollPeriod > 0},
		{"Limits.MinTTL", l.MinTTL > 0},
		{"Buckets", cfg.Buckets > 0},
	} {
		if !field.set {
			return invalid("Config.%s is missing: set it", field.name)
		}
	}
	return driver.CheckNamespace(cfg.Namespace)
}

func (b *Backend) open(ctx context.Context, cfg Config) error {
	if err := b.identify(ctx, cfg); err != nil {
		return err
	}
	return b.probe(ctx)
}

// Info returns the values that never change while the Backend is open.
func (b *Backend) Info() driver.Info { return b.info }

// Close ends blocked calls and closes the store. See driver.Backend.
func (b *Backend) Close() error {
	b.closeOnce.Do(func() {
		close(b.closing)
		b.closeErr = b.store.Close()
	})
	return b.closeErr
}

// begin returns an error if the backend is closed or the context has ended.
func (b *Backend) begin(ctx context.Context) error {
	select {
	case <-b.closing:
		return errClosed
	default:
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("tenure: %w: %w", driver.ErrRetry, err)
	}
	return nil
}

// readError returns the error of a read, or errClosed if the backend was closed during the read.
func (b *Backend) readError(err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-b.closing:
		return errClosed
	default:
		return err
	}
}

var errClosed = fmt.Errorf("tenure: %w: open the backend again", driver.ErrClosed)

func invalid(format string, args ...any) error {
	return fmt.Errorf("tenure: %w: %s", driver.ErrInvalid, fmt.Sprintf(format, args...))
}

func storeChanged(format string, args ...any) error {
	return fmt.Errorf("tenure: %w: %s", driver.ErrStoreChanged, fmt.Sprintf(format, args...))
}

func raise(mark *atomic.Int64, to int64) {
	for {
		at := mark.Load()
		if to <= at || mark.CompareAndSwap(at, to) {
			return
		}
	}
}
