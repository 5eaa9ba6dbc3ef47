package sql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tenure-go/tenure/core/driver"
)

// Config is what a dialect's package gives to New. All but Create, NewRoster and
// ShowsEarly is required.
type Config struct {
	Name       string // of the Opener
	Namespace  string
	Store      Store
	Statements *Statements
	// Limits, of which CommitCalls and IdlePollPeriod may be 0.
	Limits driver.Limits
	// Create writes a missing identity (I1).
	Create bool
	// NewRoster allows an empty roster beside existing data: an operator's word
	// that the former members are gone.
	NewRoster bool
	// ShowsEarly reports whether the database shows commits before they are durable, as it
	// is set up at present. It is safe for concurrent use and does not block. Default (nil):
	// a database does if its dialect has the statements of barriers.
	ShowsEarly func() bool
	// Buckets is the number of tail counters that a new namespace gets: 1 where
	// there is one writer at a time, 16 elsewhere.
	Buckets int
}

// Backend is a namespace in an SQL database. It implements driver.Backend; safe
// for concurrent use.
type Backend struct {
	*driver.Certificate // nil without files of TLS; set before the first use

	store   Store
	stmts   *Statements
	name    string
	id      string // the namespace's identity
	info    driver.Info
	buckets int64

	floor    atomic.Int64 // highest base + revision seen, and durable (I1)
	rosterAt atomic.Int64 // highest revision of the roster seen, and durable (I1)
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

// New opens the namespace: it proves that the store honours conditions (P1) and
// reads the identity or, with Create, writes a missing one. It owns cfg.Store
// from then on, and closes it when it fails.
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

// check refuses what is missing.
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

// Info returns what is constant after opening.
func (b *Backend) Info() driver.Info { return b.info }

// Close unblocks what is blocked and closes the store. See driver.Backend.
func (b *Backend) Close() error {
	b.closeOnce.Do(func() {
		close(b.closing)
		b.closeErr = b.store.Close()
	})
	return b.closeErr
}

// begin is the start of every call.
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

// readError says that a read failed because the backend was closed under it.
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

// raise lifts a high-water mark.
func raise(mark *atomic.Int64, to int64) {
	for {
		at := mark.Load()
		if to <= at || mark.CompareAndSwap(at, to) {
			return
		}
	}
}
