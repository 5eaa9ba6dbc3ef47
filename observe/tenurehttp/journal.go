package tenurehttp

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding"
)

// These are the kinds of a Note.
const (
	NoteRefused = "refused" // a write, because of its fence
	NoteMember  = "member"  // another member joined, fell silent or left
	NoteSession = "session" // an event of this process's own session
	NoteRange   = "range"   // splits and merges
	NoteOther   = "note"
)

// Note is an event, for people to read.
type Note struct {
	At    time.Time `json:"at"`
	Kind  string    `json:"kind"`
	Shard string    `json:"shard,omitempty"`
	Text  string    `json:"text"` // cut to 1000 bytes
}

// maxNotes is the number of notes that a Journal keeps.
const maxNotes = 64

// Journal keeps the newest 64 notes and counts refused writes, for /view and the board. Its Hooks
// feed it. The zero value is ready for use. A Journal is safe for concurrent use.
type Journal struct {
	mu      sync.Mutex
	notes   []Note // oldest first
	total   uint64 // of notes, including forgotten ones
	refused uint64
}

// Hooks returns hooks for core.Options. Use core.JoinHooks to join them with others.
func (j *Journal) Hooks() core.Hooks {
	return core.Hooks{
		OnRefused: j.Refused,
		OnPeer: func(e core.PeerEvent) {
			if e.Kind != core.PeerUpdated {
				j.Add(Note{Kind: NoteMember, Text: e.Peer.Node + " " + string(e.Kind)})
			}
		},
		OnSession: func(e core.SessionEvent) {
			text := string(e.Kind)
			if e.Err != nil {
				text += ": " + sentence(e.Err)
			}
			j.Add(Note{Kind: NoteSession, Text: text})
		},
	}
}

// Refused counts and notes a write that its fence refused.
func (j *Journal) Refused(e *core.FencedError) {
	text := fmt.Sprintf("write under token %d refused", e.Fence.Token)
	if e.Current.Token != 0 {
		text += fmt.Sprintf(": token %d has the shard", e.Current.Token)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.refused++
	j.add(Note{Kind: NoteRefused, Shard: string(e.Fence.Shard), Text: text})
}

// Ranged notes the changes of ranges that a plan began and ended. It is for
// sharding.Options.OnRange. Equal events become one note.
func (j *Journal) Ranged(events []sharding.RangeEvent) {
	same := map[string][]sharding.RangeEvent{}
	for _, e := range events {
		same[e.String()] = append(same[e.String()], e)
	}
	for _, what := range slices.Sorted(maps.Keys(same)) {
		list := same[what]
		n := Note{Kind: NoteRange, Shard: list[0].From, Text: what}
		for i, e := range list {
			if i > 0 {
				n.Text += "; " + e.From
			}
			if !slices.Contains(e.To, e.From) { // a range that returns has From in To
				n.Text += ", into " + strings.Join(e.To, ", ")
			}
			if rest := len(list) - 1 - i; rest > 0 && len(n.Text) > maxReason/2 {
				n.Text = fmt.Sprintf("%.900s; and %d more, of other shards", n.Text, rest)
				break
			}
		}
		j.Add(n)
	}
}

// Add adds a note. If the note has no time, Add sets the current time.
func (j *Journal) Add(n Note) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.add(n)
}

func (j *Journal) add(n Note) {
	if n.At.IsZero() {
		n.At = time.Now()
	}
	n.Text = bounded(n.Text)
	j.total++
	if len(j.notes) == maxNotes {
		copy(j.notes, j.notes[1:])
		j.notes = j.notes[:maxNotes-1]
	}
	j.notes = append(j.notes, n)
}

// since returns the kept notes after the first n, the total number of notes, and the number of
// refused writes. A nil Journal has none.
func (j *Journal) since(n uint64) (notes []Note, total, refused uint64) {
	if j == nil {
		return nil, 0, 0
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	fresh := min(j.total-n, uint64(len(j.notes)))
	return append(notes, j.notes[uint64(len(j.notes))-fresh:]...), j.total, j.refused
}
