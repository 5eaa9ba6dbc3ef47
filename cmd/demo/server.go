package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenure-go/tenure/conformance/servers"
)

// A serverKind is a server that the demonstration starts for a run.
type serverKind struct {
	kind    servers.Kind
	install string // what to install to have it
}

// A server is the run's own, with a database of its own. It ends with this
// process, however that ends.
type server struct {
	*servers.Server
	database servers.DSN
}

const (
	startLimit = time.Minute      // for making a server's data and starting it
	dropLimit  = 10 * time.Second // for dropping its database
)

// start starts a server, or takes the one that the environment names.
func (k serverKind) start(ctx context.Context) (*server, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	s, err := servers.Start(ctx, k.kind, nil)
	if err != nil {
		return nil, k.explain(err)
	}
	d, err := s.CreateDatabase(ctx)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", errors.Join(err, s.Close()))
	}
	return &server{s, d}, nil
}

// explain says what to do about a server that cannot be started.
func (k serverKind) explain(err error) error {
	if errors.Is(err, servers.ErrUnavailable) {
		return fmt.Errorf("demo: install %s, or name a running server with -dsn: %w", k.install, err)
	}
	return fmt.Errorf("demo: %w", err)
}

// close drops the database, which matters where the environment named the server,
// and ends the server.
func (s *server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), dropLimit)
	defer cancel()
	return errors.Join(s.DropDatabase(ctx, s.database), s.Close())
}
