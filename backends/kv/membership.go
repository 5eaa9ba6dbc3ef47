package kv

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/boundjson"
)

// Records that change rarely are JSON objects with a format number. Unknown fields are ignored.
const (
	jsonFormat    = 1
	maxJSONRecord = 16 << 10 // bytes; a longer record is corrupt
)

// maxBase is the largest base. It leaves room for the revisions that are added to the base.
const maxBase = driver.Token(1) << 62

// identity is the namespace's identity record (rule I1).
type identity struct {
	Format int          `json:"v"`
	ID     string       `json:"id"`
	Base   driver.Token `json:"base"` // a token is the sum of Base and the store's revision
}

func decodeIdentity(p Pair) (identity, error) {
	var id identity
	if err := decodeJSON(p, &id, &id.Format); err != nil {
		return identity{}, err
	}
	if len(id.ID) == 0 || len(id.ID) > driver.MaxNameLen || id.Base < 0 || id.Base > maxBase {
		return identity{}, corrupt(p.Key, "no valid id and base")
	}
	return id, nil
}

// maxNodeSessions is the number of recent sessions kept in a node label's record. If a kept session
// joins again, the join is refused (rule M3).
const maxNodeSessions = 16

// nodeRecord is a node label's record. Its last session is the latest to join, and the one that
// Supersede ends.
type nodeRecord struct {
	Format   int                `json:"v"`
	Sessions []driver.SessionID `json:"sessions"`
	// Superseded lists the sessions that ended because the next session joined.
	Superseded []driver.SessionID `json:"superseded,omitempty"`
}

func (n nodeRecord) last() driver.SessionID {
	if len(n.Sessions) == 0 {
		return ""
	}
	return n.Sessions[len(n.Sessions)-1]
}

// If supersede is set, session s ended the previous session by joining.
func (n nodeRecord) with(s driver.SessionID, supersede bool) nodeRecord {
	keep := n.Sessions[max(0, len(n.Sessions)-maxNodeSessions+1):]
	next := nodeRecord{Format: jsonFormat, Sessions: append(slices.Clone(keep), s)}
	for _, old := range n.Superseded {
		if slices.Contains(keep, old) {
			next.Superseded = append(next.Superseded, old)
		}
	}
	if supersede && n.last() != "" {
		next.Superseded = append(next.Superseded, n.last())
	}
	return next
}

// superseded returns the session that superseded s, or "" if it is unknown.
func (n nodeRecord) superseded(s driver.SessionID) driver.SessionID {
	at := slices.Index(n.Sessions, s)
	if at < 0 || at+1 == len(n.Sessions) || !slices.Contains(n.Superseded, s) {
		return ""
	}
	return n.Sessions[at+1]
}

// decodeNode returns an empty nodeRecord if the label has no record.
func decodeNode(p Pair) (nodeRecord, error) {
	var n nodeRecord
	if p.Rev == 0 {
		return n, nil
	}
	if err := decodeJSON(p, &n, &n.Format); err != nil {
		return nodeRecord{}, err
	}
	for _, s := range n.Sessions {
		if driver.CheckSession(s) != nil {
			return nodeRecord{}, corrupt(p.Key, "no valid session")
		}
	}
	return n, nil
}

// memberRecord is a roster entry.
type memberRecord struct {
	Format int           `json:"v"`
	Member driver.Member `json:"member"`
}

func decodeMember(p Pair, session driver.SessionID) (driver.Member, error) {
	var r memberRecord
	if err := decodeJSON(p, &r, &r.Format); err != nil {
		return driver.Member{}, err
	}
	if r.Member.Session != session {
		return driver.Member{}, corrupt(p.Key, "it names another session")
	}
	if err := driver.CheckMember(r.Member, driver.Limits{}); err != nil {
		return driver.Member{}, corrupt(p.Key, err.Error())
	}
	return r.Member, nil
}

func decodeJSON(p Pair, into any, format *int) error {
	if err := boundjson.Unmarshal(p.Value, maxJSONRecord, 2*maxForgotten, into); err != nil {
		return corrupt(p.Key, "not JSON of the expected form")
	}
	if *format != jsonFormat {
		return corrupt(p.Key, "unknown format")
	}
	return nil
}

func encodeJSON(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("tenure: %w: %w", driver.ErrInvalid, err)
	}
	if len(b) > maxJSONRecord {
		return nil, fmt.Errorf("tenure: %w: the record has %d bytes, the limit is %d: use less metadata", driver.ErrTooLarge, len(b), maxJSONRecord)
	}
	return b, nil
}
