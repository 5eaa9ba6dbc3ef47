package postgres

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/backends/sql/internal/dialect"
	"github.com/tenure-go/tenure/backends/sql/internal/engine"
)

// link sends hints with NOTIFY. A commit with NOTIFY takes a server-wide lock, so no other
// transaction uses NOTIFY.
type link struct {
	s       *store
	connect func(context.Context) (*pgx.Conn, error)
	channel string // an identifier
	self    string // identifies this process's hints
	of      string // the namespace
}

var _ dialect.Link = (*link)(nil)

func newLink(s *store, connect func(context.Context) (*pgx.Conn, error), channel, namespace string) *link {
	return &link{s: s, connect: connect, channel: channel, self: rand.Text(), of: namespace}
}

// Send notifies all listeners.
func (l *link) Send(ctx context.Context, to engine.Readers) error {
	_, err := l.s.reads.Exec(ctx, "SELECT pg_notify($1, $2)", l.channel, l.message(to))
	return err
}

// Listen receives hints until the connection or the context ends.
func (l *link) Listen(ctx context.Context, ready func(), heard func(engine.Readers)) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer func() {
		hangUp(conn)
		_ = conn.Close(ctx)
		<-conn.PgConn().CleanupDone()
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{l.channel}.Sanitize()); err != nil {
		return err
	}
	ready()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		heard(l.heard(n.Payload))
	}
}

// message returns "process.readers namespace". A hint for all readers omits the readers. A hint
// without readers contains only the process.
func (l *link) message(to engine.Readers) string {
	switch to &^ engine.Watchers {
	case engine.Observers: // observers see heartbeats too
		return l.self + ".observers " + l.of
	case engine.Tailers:
		if to == engine.Tailers {
			return l.self + ".tailers " + l.of
		}
	case 0:
		if to == 0 {
			return l.self
		}
		return l.self + ".watchers " + l.of
	default: // several kinds, or all
	}
	return l.self + " " + l.of
}

func (l *link) heard(message string) engine.Readers {
	from, of, _ := strings.Cut(message, " ")
	self, readers, _ := strings.Cut(from, ".")
	switch {
	case of != l.of || self == l.self:
		return 0
	case readers == "observers":
		return engine.Observers
	case readers == "tailers":
		return engine.Tailers
	case readers == "watchers":
		return engine.Watchers
	}
	return engine.Observers | engine.Tailers
}
