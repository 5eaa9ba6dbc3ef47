package sqlfault

import (
	"context"
	"sync/atomic"

	"github.com/tenure-go/tenure/backends/sql"
)

// Calls counts transactions. A read outside a transaction, of several rows at
// once, counts as one as well. Safe for concurrent use.
type Calls struct{ Reads, Writes atomic.Int64 }

// Store is a store behind a wire, which counts its calls. Safe for concurrent use.
type Store struct {
	sql.Store
	Calls *Calls
	Wire  *Wire
}

var _ sql.Store = (*Store)(nil)

// WriteData counts and passes on.
func (s *Store) WriteData(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	s.Calls.Writes.Add(1)
	return s.Wire.pass(ctx, true, func(ctx context.Context) error { return s.Store.WriteData(ctx, fn) })
}

// WriteRoster counts and passes on.
func (s *Store) WriteRoster(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	s.Calls.Writes.Add(1)
	return s.Wire.pass(ctx, true, func(ctx context.Context) error { return s.Store.WriteRoster(ctx, fn) })
}

// WriteBeat counts and passes on.
func (s *Store) WriteBeat(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	s.Calls.Writes.Add(1)
	return s.Wire.pass(ctx, true, func(ctx context.Context) error { return s.Store.WriteBeat(ctx, fn) })
}

// WriteOwners counts and passes on.
func (s *Store) WriteOwners(
	ctx context.Context, fn func(context.Context, *sql.Tx, func() (*sql.Tx, error)) error,
) error {
	s.Calls.Writes.Add(1)
	return s.Wire.pass(ctx, true, func(ctx context.Context) error { return s.Store.WriteOwners(ctx, fn) })
}

// ReadData counts and passes on.
func (s *Store) ReadData(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	s.Calls.Reads.Add(1)
	return s.Wire.pass(ctx, false, func(ctx context.Context) error { return s.Store.ReadData(ctx, fn) })
}

// ReadRoster counts and passes on.
func (s *Store) ReadRoster(ctx context.Context, fn func(context.Context, *sql.Tx) error) error {
	s.Calls.Reads.Add(1)
	return s.Wire.pass(ctx, false, func(ctx context.Context) error { return s.Store.ReadRoster(ctx, fn) })
}

// Read counts and passes on.
func (s *Store) Read(ctx context.Context, fn func(ctx context.Context, data, roster *sql.Tx) error) error {
	s.Calls.Reads.Add(1)
	return s.Wire.pass(ctx, false, func(ctx context.Context) error { return s.Store.Read(ctx, fn) })
}

// Ping counts and passes on.
func (s *Store) Ping(ctx context.Context, fn func(ctx context.Context, data, roster *sql.Tx) error) error {
	s.Calls.Reads.Add(1)
	return s.Wire.pass(ctx, false, func(ctx context.Context) error { return s.Store.Ping(ctx, fn) })
}
