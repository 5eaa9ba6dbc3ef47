// Package takeover uses only hooks to measure how long shards had no owner after their member
// ended.
package takeover

import (
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
)

// maxEnded limits the members whose end is remembered.
const maxEnded = 1024

// Times are the last signs of life of members that are silent or gone. The zero value is ready for
// use. Times is safe for concurrent use.
type Times struct {
	mu    sync.Mutex
	ended map[core.SessionID]time.Time
}

// Peer is for Hooks.OnPeer.
func (t *Times) Peer(e core.PeerEvent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := e.Peer.Session
	_, known := t.ended[id]
	at := time.Now()
	switch e.Kind {
	case core.PeerJoined:
		delete(t.ended, id)
		return
	case core.PeerSilent:
		at, known = at.Add(-e.Peer.TTL), false // it may have been silent before and returned
	case core.PeerDead, core.PeerEvicted, core.PeerGone:
	default:
		return
	}
	if known {
		return
	}
	if t.ended == nil {
		t.ended = make(map[core.SessionID]time.Time)
	}
	if len(t.ended) >= maxEnded {
		for other := range t.ended {
			delete(t.ended, other)
			break
		}
	}
	t.ended[id] = at
}

// Took returns, for an event of Hooks.OnGrant, the time since the previous owner's last sign of
// life. ok is false if the shard was not taken over.
func (t *Times) Took(e core.LeaseEvent) (took time.Duration, ok bool) {
	if e.Former == "" {
		return 0, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.ended[e.Former]
	return time.Since(at), ok
}
