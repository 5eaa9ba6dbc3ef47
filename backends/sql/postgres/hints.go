package postgres

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenure-go/tenure/backends/sql"
)

const (
	// tellPause is the least time between two notifications of one process: a
	// notification takes a lock of the whole server when it commits.
	tellPause = time.Millisecond
	// listenPause is how long the listener waits before it connects again.
	listenPause = 500 * time.Millisecond
)

// hints tells other processes that something changed, after the commit and many
// changes at once, and hears of theirs. Hints may be lost: everybody polls as well.
type hints struct {
	s       *store
	connect func(context.Context) (*pgx.Conn, error)
	channel string // an identifier
	self    string // tells one's own from those of others
	of      string // the namespace

	pending atomic.Uint32 // the readers to be told about
	due     chan struct{}
	done    sync.WaitGroup
}

func newHints(s *store, connect func(context.Context) (*pgx.Conn, error), channel, namespace string) *hints {
	h := &hints{s: s, connect: connect, channel: channel, self: rand.Text(), of: namespace, due: make(chan struct{}, 1)}
	h.done.Go(h.teller)
	h.done.Go(h.listener)
	return h
}

// close waits for the goroutines, which end with the store's life.
func (h *hints) close() { h.done.Wait() }

// tell has the others told, soon, who of their readers waits for what changed.
func (h *hints) tell(readers sql.Readers) {
	if readers == 0 {
		return
	}
	h.pending.Or(uint32(readers))
	select {
	case h.due <- struct{}{}:
	default:
	}
}

func (h *hints) teller() {
	for {
		select {
		case <-h.due:
		case <-h.s.life.Context().Done():
			return
		}
		// What fails is made up for by polling.
		_, _ = h.s.reads.Exec(h.s.life.Context(), "SELECT pg_notify($1, $2)", h.channel, h.message(sql.Readers(h.pending.Swap(0))))
		if !h.pause(tellPause) {
			return
		}
	}
}

func (h *hints) listener() {
	for {
		h.listen(h.s.life.Context())
		if !h.pause(listenPause) {
			return
		}
	}
}

// listen hears until the connection or the store's life ends.
func (h *hints) listen(ctx context.Context) {
	conn, err := h.connect(ctx)
	if err != nil {
		return
	}
	defer func() {
		_ = conn.Close(ctx)
		<-conn.PgConn().CleanupDone()
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{h.channel}.Sanitize()); err != nil {
		return
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return
		}
		h.s.wake.Broadcast(h.heard(n.Payload))
	}
}

// message is "process.readers namespace", without the readers if it is for all of
// them. A process of an earlier release names none, and understands either.
func (h *hints) message(readers sql.Readers) string {
	switch readers {
	case sql.Observers:
		return h.self + ".observers " + h.of
	case sql.Tailers:
		return h.self + ".tailers " + h.of
	}
	return h.self + " " + h.of
}

// heard says which readers a message wakes.
func (h *hints) heard(message string) sql.Readers {
	from, of, _ := strings.Cut(message, " ")
	self, readers, _ := strings.Cut(from, ".")
	switch {
	case of != h.of || self == h.self:
		return 0
	case readers == "observers":
		return sql.Observers
	case readers == "tailers":
		return sql.Tailers
	}
	return sql.Observers | sql.Tailers
}

// pause reports whether the store still lives after d.
func (h *hints) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-h.s.life.Context().Done():
		return false
	}
}
