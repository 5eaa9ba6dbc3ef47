// Package enginetest provides tests with an engine.Store behind the faulty network of
// internal/proof/sqlfault.
package enginetest

import (
	"context"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// Store is an engine.Store behind a faulty network. It counts its calls, and is safe for concurrent
// use.
type Store struct {
	engine.Store
	Calls *sqlfault.Calls
	Wire  *sqlfault.Wire
}

var _ engine.Store = (*Store)(nil)

// WriteData counts the call and passes it on.
func (s *Store) WriteData(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	s.Calls.Writes.Add(1)
	return s.Wire.Pass(ctx, true, func(ctx context.Context) error { return s.Store.WriteData(ctx, fn) })
}

// WriteRoster counts the call and passes it on.
func (s *Store) WriteRoster(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	s.Calls.Writes.Add(1)
	return s.Wire.Pass(ctx, true, func(ctx context.Context) error { return s.Store.WriteRoster(ctx, fn) })
}

// WriteBeat counts the call and passes it on.
func (s *Store) WriteBeat(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	s.Calls.Writes.Add(1)
	return s.Wire.Pass(ctx, true, func(ctx context.Context) error { return s.Store.WriteBeat(ctx, fn) })
}

// WriteOwners counts the call and passes it on.
func (s *Store) WriteOwners(
	ctx context.Context, fn func(context.Context, *engine.Tx, func() (*engine.Tx, error)) error,
) error {
	s.Calls.Writes.Add(1)
	return s.Wire.Pass(ctx, true, func(ctx context.Context) error { return s.Store.WriteOwners(ctx, fn) })
}

// ReadData counts the call and passes it on.
func (s *Store) ReadData(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	s.Calls.Reads.Add(1)
	return s.Wire.Pass(ctx, false, func(ctx context.Context) error { return s.Store.ReadData(ctx, fn) })
}

// ReadRoster counts the call and passes it on.
func (s *Store) ReadRoster(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	s.Calls.Reads.Add(1)
	return s.Wire.Pass(ctx, false, func(ctx context.Context) error { return s.Store.ReadRoster(ctx, fn) })
}

// Read counts the call and passes it on.
func (s *Store) Read(ctx context.Context, fn func(ctx context.Context, data, roster *engine.Tx) error) error {
	s.Calls.Reads.Add(1)
	return s.Wire.Pass(ctx, false, func(ctx context.Context) error { return s.Store.Read(ctx, fn) })
}

// Ping counts the call and passes it on.
func (s *Store) Ping(ctx context.Context, fn func(ctx context.Context, data, roster *engine.Tx) error) error {
	s.Calls.Reads.Add(1)
	return s.Wire.Pass(ctx, false, func(ctx context.Context) error { return s.Store.Ping(ctx, fn) })
}
