package tenurehttp

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding"
)

// The kinds of Notes.
const (
	NoteRefused = "refused" // a fence refused a write
	NoteMember  = "member"  // another member joined, fell silent or left
	NoteSession = "session" // an event that concerns this process's session
	NoteRange   = "range"   // ranges were split or merged
	NoteOther   = "note"
)

// Note describes an event in words for people.
type Note struct {
	At    time.Time `json:"at"`
	Kind  string    `json:"kind"`
	Shard string    `json:"shard,omitempty"`
	Text  string    `json:"text"` // cut to 1000 bytes
}

const maxNotes = 64

// Journal keeps the newest 64 notes and counts refused writes, for /view and the board. A Journal's
// Hooks record notes and refused writes. The zero value is ready for use. A Journal is safe for
// concurrent use.
type Journal struct {
	mu      sync.Mutex
	notes   []Note // oldest first
	total   uint64 // number of notes, including forgotten ones
	refused uint64
}

// Hooks returns hooks for core.Options. Use core.JoinHooks to combine these hooks with other hooks.
func (j *Journal) Hooks() core.Hooks {
	return core.Hooks{OnEvent: func(e core.Event) {
		switch peer, ok := strings.CutPrefix(string(e.Kind), "peer "); {
		case e.Kind == core.WriteRefused:
			if refused, ok := errors.AsType[*core.FencedError](e.Err); ok {
				j.Refused(refused)
			}
		case e.Fence.Shard != "", e.Kind == core.PeerUpdated, e.Kind == core.RecordDamaged, e.Kind == core.EventsDropped: // these events are not noted
		case ok:
			j.Add(Note{Kind: NoteMember, Text: e.Peer.Node + " " + peer})
		default:
			text := string(e.Kind)
			if e.Err != nil {
				text += ": " + sentence(e.Err)
			}
			j.Add(Note{Kind: NoteSession, Text: text})
		}
	}}
}

// Refused counts a write that was refused because of its fence, and adds a note about it.
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

// Ranged adds notes about the splits and merges that a plan has begun or ended. Use this method as
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
			if !slices.Contains(e.To, e.From) { // if From takes a range back, To contains From
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

// since returns those notes after the first n that the Journal still has, the total number of
// notes, and the number of refused writes. A nil Journal has no notes.
func (j *Journal) since(n uint64) (notes []Note, total, refused uint64) {
	if j == nil {
		return nil, 0, 0
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	fresh := min(j.total-n, uint64(len(j.notes)))
	return append(notes, j.notes[uint64(len(j.notes))-fresh:]...), j.total, j.refused
}
