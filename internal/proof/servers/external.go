package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"
)

// external is a server specified by the environment, which this package must not change.
type external struct{ variable string }

func (e external) refuse() error {
	return fmt.Errorf("%w: it was named by %s; unset that to have one started", ErrUnsupported, e.variable)
}

func (e external) kill(context.Context) error    { return e.refuse() }
func (e external) stop(context.Context) error    { return e.refuse() }
func (e external) cont() error                   { return e.refuse() }
func (e external) restart(context.Context) error { return e.refuse() }
func (e external) killProcess(int) error         { return e.refuse() }
func (e external) slowFlush(time.Duration) (func() (uint32, error), error) {
	return nil, e.refuse()
}

func (e external) logs() string { return "" }
func (e external) close() error { return nil }

func (e external) reconfigure(context.Context, []string) error {
	return fmt.Errorf("%w: %w", errors.ErrUnsupported, e.refuse())
}

func fromEnvironment(ctx context.Context, kind Kind, variable string, o *Options) (*Server, error) {
	if !reflect.ValueOf(*o).IsZero() {
		return nil, unavailable(kind, "the server named by %s takes no options: unset it to have one started", variable)
	}
	d, err := parseDSN(kind, os.Getenv(variable))
	if err != nil {
		return nil, fmt.Errorf("tenure: %s is not understood: %w", variable, err)
	}
	s := &Server{kind: kind, user: d, admin: d, local: d, inst: external{variable}}
	if kind == ZooKeeper { // ZooKeeper has no databases, and its users connect on their own
		return s, nil
	}
	if err := s.exec(ctx, func(*sql.DB) error { return nil }); err != nil {
		return nil, fmt.Errorf("tenure: cannot reach the server named by %s: %w", variable, err)
	}
	return s, nil
}
