package tenurehttp

import (
	"bytes"
	"embed"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
)

//go:embed page
var page embed.FS

// policy has the page load its own script and style, and nothing else from anywhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// asset serves a file of the page.
func asset(name, kind string) http.HandlerFunc {
	content, err := page.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is compiled in
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if !reads(w, r) {
			return
		}
		w.Header().Set("Content-Type", kind+"; charset=utf-8")
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	}
}

// Place is where a shard is drawn, as a part of the width and the height of the map: 0, 0
// is above and to the left.
type Place struct {
	X, Y float64
	Name string // of the place, for people; may be empty
}

// Bounds of what a stream sends at first: of more shards the board says that they are
// left out.
const (
	maxBoardShards = 20_000
	maxBoardBytes  = 2 << 20 // of their names, and of why they are set aside
)

// update is one message of a stream: the whole board at first, then what has changed.
// Empty fields have not changed, except for those without omitempty.
type update struct {
	Full      bool             `json:"full,omitempty"`
	At        int64            `json:"at"` // milliseconds since 1970
	Node      string           `json:"node"`
	Session   string           `json:"session"`
	Trusted   bool             `json:"trusted"`
	Trust     int64            `json:"trust"` // milliseconds until leases end
	Halted    string           `json:"halted"`
	Leaving   bool             `json:"leaving"`
	Contended int              `json:"contended"`
	Total     int              `json:"total"` // shards, those included that are left out
	Unowned   int              `json:"unowned"`
	Reserved  int              `json:"reserved"`
	Aside     int              `json:"quarantined"`
	Refused   *uint64          `json:"refused,omitempty"` // nil without a Journal
	Beats     map[string]int64 `json:"beats"`             // by session, milliseconds since the last one seen
	Lag       *lagJSON         `json:"lag,omitempty"`
	Members   json.RawMessage  `json:"members,omitempty"` // []boardMember
	Owners    []boardOwner     `json:"owners,omitempty"`  // sessions that rows name for the first time
	Shards    []boardRow       `json:"shards,omitempty"`  // new, or of another owner, token or reason to be set aside
	Removed   []string         `json:"removed,omitempty"`
	Moves     []moveJSON       `json:"moves,omitempty"` // of this member, oldest first
	Notes     []Note           `json:"notes,omitempty"`
	Places    map[string]point `json:"places,omitempty"`
	// MemberLoads are memberShares by session, Ranges all ranges as []rangeJSON, Elsewhere the zones
	// of shards that are in another one, and Loads those of shards that have changed; null: not known
	// any more. Left out without Options.Sharding.
	MemberLoads json.RawMessage     `json:"member_loads,omitempty"`
	Elsewhere   json.RawMessage     `json:"elsewhere,omitempty"`
	Ranges      json.RawMessage     `json:"ranges,omitempty"`
	Loads       map[string]*float64 `json:"loads,omitempty"`
	Effects     *effectsJSON        `json:"effects,omitempty"`
}

type boardMember struct {
	memberJSON
	TTLMillis int64 `json:"ttl_ms"`
}

// boardRow is a shard's name, the number of its owner's session in this stream, 0 for
// none, and its token. A shard that is set aside has the reason as well, and the end in
// milliseconds since 1970, 0 for none.
type boardRow []any

func newRow(o *core.Ownership, owner int) boardRow {
	row := boardRow{o.Shard, owner, o.Token}
	if o.Aside.Why == "" {
		return row
	}
	until := int64(0)
	if !o.Aside.Until.IsZero() {
		until = o.Aside.Until.UnixMilli()
	}
	return append(row, cut(o.Aside.Why, maxAside), until)
}

// boardOwner is a number, and the session that it stands for.
type boardOwner [2]any

// point is a Place: x, y, name.
type point [3]any

// feed is what one stream has sent so far.
type feed struct {
	h       *handler
	last    *core.View
	shards  []core.Ownership // of it, those that were sent
	members json.RawMessage
	owners  map[core.SessionID]int
	notes   uint64

	loads               map[string]float64 // of shards
	memberLoads, ranges json.RawMessage
	elsewhere           json.RawMessage
	shares              *shares
	effects             *effectsJSON
}

// next is what has changed since the last call. news is false if it is only the time.
func (f *feed) next() (u *update, news bool) {
	v := f.h.source.View()
	u = &update{
		Full: f.last == nil, At: time.Now().UnixMilli(), Node: v.Node, Session: string(v.Session), Trusted: v.Trusted,
		Leaving: v.Leaving, Contended: v.Contended, Total: len(v.Shards), Trust: f.h.trust().Milliseconds(),
		Beats: map[string]int64{}, Lag: f.h.lag(),
	}
	if v.Err != nil {
		u.Halted = reason(v.Err)
	}
	n := f.h.count(v)
	u.Unowned, u.Reserved, u.Aside = n.unowned, n.reserved, n.quarantined
	for session, age := range f.h.heartbeats() {
		u.Beats[string(session)] = age.Milliseconds()
	}
	if f.h.journal != nil {
		u.Refused = new(uint64)
		u.Notes, f.notes, *u.Refused = f.h.journal.since(f.notes)
	}
	if v != f.last {
		f.changes(u, v)
	}
	if u.Full && len(f.h.places) > 0 {
		u.Places = make(map[string]point, len(f.h.places))
		for shard, p := range f.h.places {
			u.Places[shard] = point{p.X, p.Y, p.Name}
		}
	}
	news = v != f.last || len(u.Notes) > 0
	if s := f.h.shared(v); v != f.last || s != f.shares {
		news = f.share(u, s) || news
		f.shares = s
	}
	news = f.countEffects(u) || news
	f.last = v
	return u, news
}

// changes adds to an update what differs between the last view and v.
func (f *feed) changes(u *update, v *core.View) {
	list, _ := members(v, f.h.heartbeats())
	rows := make([]boardMember, len(list))
	for i := range list {
		rows[i] = boardMember{memberJSON: list[i], TTLMillis: v.Members[i].TTL.Milliseconds()}
		rows[i].SinceHeartbeat = "" // in Beats
	}
	if all, err := json.Marshal(rows); err == nil && !bytes.Equal(all, f.members) {
		u.Members, f.members = all, all
	}
	u.Moves = movesAfter(f.last, v)
	shown := v.Shards[:min(len(v.Shards), maxBoardShards)]
	size := 0
	for i := range shown {
		if size += len(shown[i].Shard) + min(len(shown[i].Aside.Why), maxAside); size > maxBoardBytes {
			shown = shown[:i]
			break
		}
	}
	f.diff(u, shown)
	f.shards = shown
}

// diff walks both sorted lists.
func (f *feed) diff(u *update, shown []core.Ownership) {
	old := f.shards
	for i := range shown {
		o := &shown[i]
		for len(old) > 0 && old[0].Shard < o.Shard {
			u.Removed = append(u.Removed, old[0].Shard)
			old = old[1:]
		}
		if len(old) > 0 && old[0].Shard == o.Shard {
			same := old[0].Session == o.Session && old[0].Token == o.Token && old[0].Aside == o.Aside
			old = old[1:]
			if same {
				continue
			}
		}
		u.Shards = append(u.Shards, newRow(o, f.owner(u, o.Session)))
	}
	for i := range old {
		u.Removed = append(u.Removed, old[i].Shard)
	}
}

// owner is the number of a session.
func (f *feed) owner(u *update, s core.SessionID) int {
	if s == "" {
		return 0
	}
	n, ok := f.owners[s]
	if !ok {
		n = len(f.owners) + 1
		f.owners[s] = n
		u.Owners = append(u.Owners, boardOwner{n, string(s)})
	}
	return n
}

// movesAfter are the moves of v that last, which may be nil, does not have.
func movesAfter(last, v *core.View) []moveJSON {
	fresh := v.Moves
	if last != nil && len(last.Moves) > 0 {
		newest := &last.Moves[len(last.Moves)-1]
		for i := len(fresh) - 1; i >= 0; i-- {
			m := &fresh[i]
			if m.At.Before(newest.At) || m.At.Equal(newest.At) && m.Fence == newest.Fence && m.Kind == newest.Kind {
				fresh = fresh[i+1:]
				break
			}
		}
	}
	return moves(fresh)
}

func moves(list []core.Move) []moveJSON {
	out := make([]moveJSON, 0, len(list))
	for _, m := range list {
		move := moveJSON{At: m.At, Shard: string(m.Fence.Shard), Token: m.Fence.Token, Kind: string(m.Kind)}
		if m.Err != nil {
			move.Reason = reason(m.Err)
		}
		out = append(out, move)
	}
	return out
}

// bounded is text of at most maxReason bytes.
func bounded(text string) string { return cut(text, maxReason) }

// cut is text of at most n bytes, and what says that there were more.
func cut(text string, n int) string {
	if len(text) > n {
		text = strings.ToValidUTF8(text[:n], "") + "..."
	}
	return text
}
