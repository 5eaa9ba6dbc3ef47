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

// Kinds of a Note.
const (
	NoteRefused = "refused" // a write, by its fence
	NoteMember  = "member"  // another member came, fell silent or went
	NoteSession = "session" // something happened to this process's own session
	NoteRange   = "range"   // splits and merges
	NoteOther   = "note"
)

// Note is something that happened, for people to read.
type Note struct {
	At    time.Time `json:"at"`
	Kind  string    `json:"kind"`
	Shard string    `json:"shard,omitempty"`
	Text  string    `json:"text"` // at most 1000 bytes are kept
}

// maxNotes is how many notes a Journal keeps.
const maxNotes = 64

// Journal keeps the newest 64 notes, and counts refused writes, for /view and the board.
// Its Hooks feed it. The zero value works. Safe for concurrent use.
type Journal struct {
	mu      sync.Mutex
	notes   []Note // oldest first
	total   uint64 // of notes, the forgotten ones included
	refused uint64
}

// Hooks are for core.Options, joined with others by core.JoinHooks.
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
				text += ": " + e.Err.Error()
			}
			j.Add(Note{Kind: NoteSession, Text: text})
		},
	}
}

// Refused counts a write that was refused by its fence, and notes it.
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

// Ranged notes what a plan began and ended: it is for sharding.Options.OnRange. Events that are
// alike are one note.
func (j *Journal) Ranged(events []sharding.RangeEvent) {
	same := map[string][]sharding.RangeEvent{}
	for _, e := range events {
		same[e.String()] = append(same[e.String()], e)
	}
	for _, what := range slices.Sorted(maps.Keys(same)) {
		list := same[what]
		n := Note{Kind: NoteRange, Shard: list[0].From, Text: what + ", into " + strings.Join(list[0].To, ", ")}
		if len(list) > 1 {
			n.Text = fmt.Sprintf("%s; and %d more, of other shards", n.Text, len(list)-1)
		}
		j.Add(n)
	}
}

// Add adds a note. Without a time it is of now.
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

// since returns the notes that are kept of those after the first n, and how many there
// were in all, and of refused writes. A nil Journal has none.
func (j *Journal) since(n uint64) (notes []Note, total, refused uint64) {
	if j == nil {
		return nil, 0, 0
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	fresh := min(j.total-n, uint64(len(j.notes)))
	return append(notes, j.notes[uint64(len(j.notes))-fresh:]...), j.total, j.refused
}
