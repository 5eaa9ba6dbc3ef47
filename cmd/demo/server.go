package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

// The demonstration can start a server or cluster of this kind.
type serverKind struct {
	kind    servers.Kind
	install string // the installation that messages recommend
	members int    // number of members of a cluster; 0 for one server with databases
}

// A run uses a single server with a database, or a whole cluster. The server stops when this
// process ends.
type server struct {
	*servers.Server             // the server that the run may kill
	place           string      // for the narration
	victim          string      // for the narration
	dsn             string      // contains passwords
	database        servers.DSN // set if the server has databases
	end             func() error
}

const (
	startLimit = time.Minute      // time to create a server's data and start the server
	dropLimit  = 10 * time.Second // time to drop the server's database
)

// If an environment variable specifies a running server, the run uses that server.
func (k serverKind) start(ctx context.Context) (*server, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if k.members > 0 {
		c, err := servers.StartCluster(ctx, k.kind, k.members, nil)
		if err != nil {
			return nil, k.explain(err)
		}
		addrs := strings.Join(c.Addrs(), ",")
		if k.members == 1 {
			return &server{
				Server: c.Members()[0], dsn: addrs, end: c.Close,
				place:  fmt.Sprintf("a %s server of the run's own at %s", k.kind, addrs),
				victim: fmt.Sprintf("the %s server", k.kind),
			}, nil
		}
		return &server{
			Server: c.Members()[0], dsn: addrs, end: c.Close,
			place:  fmt.Sprintf("%d members of %s of the run's own at %s", k.members, k.kind, addrs),
			victim: fmt.Sprintf("one of %d members of %s", k.members, k.kind),
		}, nil
	}
	s, err := servers.Start(ctx, k.kind, nil)
	if err != nil {
		return nil, k.explain(err)
	}
	d, err := s.CreateDatabase(ctx)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", errors.Join(err, s.Close()))
	}
	return &server{
		Server: s, dsn: d.Reveal(), database: d,
		place:  fmt.Sprintf("a %s database of the run's own at %s", k.kind, s.Addr()),
		victim: fmt.Sprintf("the %s server", k.kind),
		// A server that the environment specifies outlives the run, so the run drops its database.
		end: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), dropLimit)
			defer cancel()
			return errors.Join(s.DropDatabase(ctx, d), s.Close())
		},
	}, nil
}

// explain adds advice to the error for a server that cannot be started.
func (k serverKind) explain(err error) error {
	if errors.Is(err, servers.ErrUnavailable) {
		return fmt.Errorf("demo: install %s, or name a running server with -dsn: %w", k.install, err)
	}
	return fmt.Errorf("demo: %w", err)
}

func (s *server) close() error { return s.end() }
