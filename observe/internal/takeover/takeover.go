// Package takeover uses hooks to measure how long shards had no owner after an owner died.
package takeover

import (
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
)

const maxEnded = 1024

// Times records when each silent or departed member gave its last sign of life. The zero value is
// ready for use. A Times is safe for concurrent use.
type Times struct {
	mu    sync.Mutex
	ended map[core.SessionID]time.Time
}

// Peer records an event that concerns another member.
func (t *Times) Peer(e core.Event) {
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
		at, known = at.Add(-e.Peer.TTL), false // the member may have been silent before and returned
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

// Took returns the time from the previous owner's last sign of life until a core.LeaseGranted
// event. If the shard was not taken over from an owner, ok is false.
func (t *Times) Took(e core.Event) (took time.Duration, ok bool) {
	if e.Session == "" {
		return 0, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.ended[e.Session]
	return time.Since(at), ok
}
