package sqlfault

import (
	"context"
	stdsql "database/sql"
	"errors"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// Beats sends one session's overlapping heartbeats through a backend behind a Wire. A heartbeat
// that hangs in transit must not delay later heartbeats (E4). While another transaction has locked
// the session's row, heartbeats must stay unanswered, because they have not changed the row (M1).
// The waiting function returns when a statement in the database is waiting for a lock.
func (s *Setup) Beats(t *testing.T, open func(ctx context.Context, dsn string, wire *Wire) (driver.Backend, error),
	waiting func(dsn servers.DSN, db *stdsql.DB)) {
	t.Parallel()
	dsn := s.migrated(t, s.Pool.Get(t, s.Kind, nil))
	wire, db := new(Wire), s.DB(t, dsn)
	b, err := open(t.Context(), dsn.Reveal(), wire)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close() //nolint:errcheck // the test is over
	checkBeats(t, b, wire, db, func() { waiting(dsn, db) })
}

func checkBeats(t *testing.T, b driver.Backend, wire *Wire, db *stdsql.DB, waiting func()) {
	s := Join(t, b, "n1")
	version := func() (v int64) {
		if err := db.QueryRowContext(t.Context(), "SELECT version FROM tenure_beats").Scan(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	var answers []chan error
	beat := func() {
		answer := make(chan error, 1)
		answers = append(answers, answer)
		go func() { answer <- s.Beat(t.Context()) }()
	}
	answered := func(what string) {
		t.Helper()
		for _, answer := range answers {
			if err := <-answer; err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		answers = nil
	}

	release := wire.Hold()
	beat()
	ample.Wait(t, "the heartbeat is not sent", func() bool { return wire.holds() > 0 })
	wire.set(none)
	before := version()
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	if err := s.Beat(ctx); err != nil || version() != before+1 {
		t.Errorf("a heartbeat beside one that hangs: %v; the version was %d and is %d", err, before, version())
	}
	release()
	answered("the heartbeat that hung")

	other := Tx(t, db, stdsql.LevelReadCommitted)
	Exec(t, other, "SELECT version FROM tenure_beats FOR UPDATE")
	before = version()
	for range 3 {
		beat()
	}
	waiting()
	for i, answer := range answers {
		select {
		case err := <-answer:
			t.Errorf("heartbeat %d was answered with %v, although nobody could write the row", i, err)
			answer <- err
		default:
		}
	}
	if err := other.Rollback(); err != nil {
		t.Fatal(err)
	}
	answered("a heartbeat that waited for somebody else's transaction")
	if now := version(); now <= before {
		t.Errorf("three heartbeats left the version at %d, which was %d before", now, before)
	}
	if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
	if err := s.Beat(t.Context()); !errors.Is(err, driver.ErrSessionLost) {
		t.Errorf("a heartbeat of a closed session: %v, want ErrSessionLost", err)
	}
}
