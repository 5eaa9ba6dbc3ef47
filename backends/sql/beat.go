package sql

import (
	"context"
	"fmt"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
)

// beatCalls is how many heartbeats of a session ask the server at once: where one flush takes a
// quarter of the TTL, so many are sent in the two that a commit may have to wait for.
const beatCalls = 6

// beats are the heartbeats of a session that are under way. Safe for concurrent use.
type beats struct {
	mu       sync.Mutex
	atServer int           // calls that ask for the row's lock, or have it
	changed  chan struct{} // closed, and made anew, when one of them ends
}

// enter enters unless most calls are at the server, and else returns what is closed when one
// of them ends.
func (b *beats) enter(most int) (entered bool, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.atServer >= most {
		return false, b.changed
	}
	b.atServer++
	return true, nil
}

func (b *beats) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.atServer--
	close(b.changed)
	b.changed = make(chan struct{})
}

// Beat changes the version of the session's record, or sees another call do so after it
// began. See driver.Session.
//
// On a slow disk calls overlap, and each would wait for a flush, for those that come before it
// as well where the database keeps the lock on the row until the commit is on its disk. So a
// call that finds the row locked reads the version that is visible, which takes no lock and no
// flush. It has what it needs as soon as this process has a greater one acknowledged, to
// whichever call: that one was not visible when this one began. The same is so of a version
// that was chosen after the call began. No call waits for a connection that hangs: each asks by
// its own, and the next that finds the row free writes it, and answers all. With no other call
// at the server the lock is somebody else's, and is waited for.
func (s *session) Beat(ctx context.Context) error {
	if err := s.b.begin(ctx); err != nil {
		return err
	}
	since := s.tried.Load()
	how, most := beatLock, beatCalls
	if s.b.stmts.has(beatTry) {
		how = beatTry
	}
	for s.acked.Load() <= since {
		entered, changed := s.beats.enter(most)
		if !entered {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return fmt.Errorf("tenure: waiting for the heartbeats under way: %w", driver.Ended(ctx))
			}
		}
		written, visible, err := s.beat(ctx, how)
		s.beats.leave()
		if written || err != nil {
			return s.b.adopting(ctx, err)
		}
		since = min(since, visible)
		how, most = beatLock, 1
	}
	return nil
}

// beat writes the next version and returns true, or false and the version that is visible
// while another transaction has the row, if the statement leaves such a row out.
func (s *session) beat(ctx context.Context, how Statement) (bool, int64, error) {
	acked, seen := s.acked.Load(), s.b.rosterAt.Load()
	var written bool
	var version int64
	err := s.b.store.WriteBeat(ctx, func(ctx context.Context, roster *Tx) error {
		check := s.b.askRoster(ctx, roster, rosterRead, seen)
		found, err := roster.row(ctx, how, []any{s.b.name, string(s.id)}, &version)
		if err != nil {
			return err
		}
		if _, err := check(); err != nil {
			return err
		}
		if written = found; !found && how == beatTry {
			versions, err := s.b.readBeats(ctx, roster, beatsRead, []driver.Beat{{Session: s.id}})
			if err != nil {
				return err
			}
			var v driver.Version
			v, found = versions[s.id]
			version = int64(v)
		}
		if !found {
			return lost(s.id)
		}
		if version < acked {
			return storeChanged("session %q has beat %d and had %d acknowledged", s.id, version, acked)
		}
		if !written {
			return nil
		}
		// A version that was seen, and then taken back, would hide a heartbeat, and be evicted.
		version = max(version, s.tried.Load()) + 1
		raise(&s.tried, version)
		return roster.write(ctx, beatWrite, s.b.name, string(s.id), version)
	})
	if err != nil {
		return false, 0, err // a store may still be writing the others
	}
	if written {
		raise(&s.acked, version)
		s.b.peers.beats(s.id)
	}
	return written, version, nil
}
