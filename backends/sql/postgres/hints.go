package postgres

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/backends/sql"
	"github.com/tenure-go/tenure/backends/sql/internal/dialect"
)

// link carries hints by NOTIFY, which takes a lock of the whole server when it
// commits: no transaction that matters does.
type link struct {
	s       *store
	connect func(context.Context) (*pgx.Conn, error)
	channel string // an identifier
	self    string // tells one's own from those of others
	of      string // the namespace
}

var _ dialect.Link = (*link)(nil)

func newLink(s *store, connect func(context.Context) (*pgx.Conn, error), channel, namespace string) *link {
	return &link{s: s, connect: connect, channel: channel, self: rand.Text(), of: namespace}
}

// Send notifies everybody who listens.
func (l *link) Send(ctx context.Context, to sql.Readers) error {
	_, err := l.s.reads.Exec(ctx, "SELECT pg_notify($1, $2)", l.channel, l.message(to))
	return err
}

// Listen hears until the connection or the context ends.
func (l *link) Listen(ctx context.Context, ready func(), heard func(sql.Readers)) error {
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

// message is "process.readers namespace", without the readers if it is for all of
// them, and without a namespace if it is for nobody.
func (l *link) message(to sql.Readers) string {
	switch to &^ sql.Watchers {
	case sql.Observers: // who see heartbeats as well
		return l.self + ".observers " + l.of
	case sql.Tailers:
		if to == sql.Tailers {
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

// heard says which readers a message wakes.
func (l *link) heard(message string) sql.Readers {
	from, of, _ := strings.Cut(message, " ")
	self, readers, _ := strings.Cut(from, ".")
	switch {
	case of != l.of || self == l.self:
		return 0
	case readers == "observers":
		return sql.Observers
	case readers == "tailers":
		return sql.Tailers
	case readers == "watchers":
		return sql.Watchers
	}
	return sql.Observers | sql.Tailers
}
