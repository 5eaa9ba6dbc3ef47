package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/tenure-go/tenure/core/driver"
)

// beatCalls is the maximum number of concurrent heartbeats of a session at the server. A commit may
// have to wait for two flushes. If a flush takes a quarter of the TTL, a session sends beatCalls
// heartbeats during two flushes.
const beatCalls = 6

// beats counts the pending heartbeats of a session. It is safe for concurrent use.
type beats struct {
	mu       sync.Mutex
	atServer int           // calls that wait for the row's lock, or have it
	changed  chan struct{} // closed and replaced when one of these calls ends
}

// enter admits a call if the number of calls at the server is below the limit. Otherwise, it
// returns a channel that is closed when one of them ends.
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

// Beat changes the version of the session's record, or finds that another call has changed the
// version since Beat began. See driver.Session.
//
// On a slow disk, calls overlap, and each call would wait for a flush. If the database keeps the
// row locked until the commit is on disk, each call would also wait for the flushes of earlier
// calls. Therefore, a call that finds the row locked reads the visible version, without a lock or a
// flush. The call succeeds when the store has acknowledged a greater version to any call of this
// process, because such a version was not yet visible when the call began. The call also succeeds
// if the store has acknowledged a version that was chosen after the call began. No call waits for
// another call's hanging connection, because each call uses a separate connection. The next call
// that finds the row free writes the row, and thereby completes all waiting calls. If no other call
// of this process is at the server, another process has locked the row, and Beat waits for the
// lock.
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

// beat writes the next version and returns true. If the statement skips a locked row, beat returns
// false and the visible version.
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
		// A version may be undone after another member saw it. If the version were then reused,
		// that member would not notice the new heartbeat and would evict the session. Therefore,
		// each new version is greater than every version tried before.
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
