package tenurehttp

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
)

//go:embed page
var page embed.FS

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func asset(name, kind string) http.HandlerFunc {
	content, err := page.ReadFile("page/" + name)
	if err != nil {
		panic(err) // cannot happen, because the files are compiled in
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

// Place is a shard's position on the map. X and Y are fractions of the map's width and height. The
// origin is at the top left.
type Place struct {
	X, Y float64
	Name string // name of the place; may be empty
}

// The board indicates if there are more shards.
const (
	maxBoardShards = 20_000
	maxBoardBytes  = 2 << 20 // maximum size of the shards' names and of the reasons why they are set aside
)

// A stream's first update contains the whole board, and later updates contain changes. If a field
// with omitempty is missing, its value has not changed.
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
	Total     int              `json:"total"` // number of all shards, including shards that are left out
	Known     int              `json:"known"` // Total without Tenure's own shards and the shards whose range was merged
	Unowned   int              `json:"unowned"`
	Reserved  int              `json:"reserved"`
	Aside     int              `json:"quarantined"`
	Refused   *uint64          `json:"refused,omitempty"` // nil without a Journal
	Beats     map[string]int64 `json:"beats"`             // milliseconds since the last heartbeat that was seen, by session
	Lag       *lagJSON         `json:"lag,omitempty"`
	Members   json.RawMessage  `json:"members,omitempty"` // []boardMember
	Owners    []boardOwner     `json:"owners,omitempty"`  // new sessions, to which rows refer from now on
	Shards    []boardRow       `json:"shards,omitempty"`  // shards that are new, or whose owner, token or reason to be set aside has changed
	Removed   []string         `json:"removed,omitempty"`
	Moves     []moveJSON       `json:"moves,omitempty"` // moves of this member, oldest first
	Notes     []Note           `json:"notes,omitempty"`
	Places    map[string]point `json:"places,omitempty"`
	// MemberLoads maps sessions to memberShares, and Ranges is a []rangeJSON. Elsewhere contains
	// the preferred zones of shards whose owner is in a different zone. Loads contains the changed
	// loads, with null for a load that is no longer known. If Options.Sharding is nil, the update
	// contains none of these four fields.
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

// boardRow contains a shard's name, the number of its owner's session in this stream (0 for no
// owner), and the token. If the shard is set aside, the row also contains the reason, and the end
// in milliseconds since 1970, or 0 if there is no end.
type boardRow []any

func newRow(o *core.Ownership, owner int) boardRow {
	row := boardRow{o.Shard, owner, o.Token}
	if o.Aside == "" {
		return row
	}
	until := int64(0)
	if !o.AsideUntil.IsZero() {
		until = o.AsideUntil.UnixMilli()
	}
	return append(row, cut(o.Aside, maxAside), until)
}

// boardOwner contains a session and, before it, the number that represents the session in rows.
type boardOwner [2]any

// point is a Place: x, y, name.
type point [3]any

// feed is what one stream has sent so far.
type feed struct {
	h       *handler
	last    *core.View
	shards  []core.Ownership // the shards in last that were sent
	members json.RawMessage
	owners  map[core.SessionID]int
	notes   uint64

	loads               map[string]float64 // the loads of shards
	memberLoads, ranges json.RawMessage
	elsewhere           json.RawMessage
	shares              *shares
	effects             *effectsJSON
}

// If only the time has changed since the last call, news is false.
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
	u.Unowned, u.Reserved, u.Aside, u.Known = n.unowned, n.reserved, n.quarantined, n.known
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

func (f *feed) changes(u *update, v *core.View) {
	list, _ := members(v, f.h.heartbeats())
	rows := make([]boardMember, len(list))
	for i := range list {
		rows[i] = boardMember{memberJSON: list[i], TTLMillis: list[i].ttl.Milliseconds()}
		rows[i].SinceHeartbeat = "" // this age is in Beats instead
	}
	if all, err := json.Marshal(rows); err == nil && !bytes.Equal(all, f.members) {
		u.Members, f.members = all, all
	}
	u.Moves = movesAfter(f.last, v, sentence)
	shown := v.Shards[:min(len(v.Shards), maxBoardShards)]
	size := 0
	for i := range shown {
		if size += len(shown[i].Shard) + min(len(shown[i].Aside), maxAside); size > maxBoardBytes {
			shown = shown[:i]
			break
		}
	}
	f.diff(u, shown)
	f.shards = shown
}

// Both lists of shards are sorted.
func (f *feed) diff(u *update, shown []core.Ownership) {
	old := f.shards
	for i := range shown {
		o := &shown[i]
		for len(old) > 0 && old[0].Shard < o.Shard {
			u.Removed = append(u.Removed, old[0].Shard)
			old = old[1:]
		}
		if len(old) > 0 && old[0].Shard == o.Shard {
			same := old[0].Session == o.Session && old[0].Token == o.Token && old[0].Aside == o.Aside && old[0].AsideUntil.Equal(o.AsideUntil)
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

// movesAfter returns the moves in v that are newer than the moves in last, which may be nil.
func movesAfter(last, v *core.View, say func(error) string) []moveJSON {
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
	return moves(fresh, say)
}

func sentence(err error) string {
	for _, s := range []struct {
		of   error
		says string
	}{
		{core.ErrWithdrawn, "the application withdrew it"},
		{core.ErrHandOver, "another member is to have it"},
		{core.ErrShutdown, "the process stops"},
		{core.ErrFailback, "a member with a higher priority is back"},
		{core.ErrLapsed, "no heartbeat succeeded in time, so another member may have it"},
		{core.ErrDrainBudget, "the handler was asked to stop and did not stop in time"},
		{core.ErrStalled, "the handler reported no progress in time"},
		{core.ErrReleased, "the handler returned"},
		{core.ErrFenced, "the store has granted it to another lease"},
	} {
		if errors.Is(err, s.of) {
			return s.says
		}
	}
	if e, ok := errors.AsType[*core.RevokedError](err); ok {
		return bounded(e.Cause)
	}
	return strings.TrimPrefix(reason(err), "tenure: ")
}

func moves(list []core.Event, say func(error) string) []moveJSON {
	out := make([]moveJSON, 0, len(list))
	for _, m := range list {
		move := moveJSON{At: m.At, Shard: string(m.Fence.Shard), Token: m.Fence.Token, Kind: string(m.Kind)}
		if m.Err != nil {
			move.Reason = say(m.Err)
		}
		out = append(out, move)
	}
	return out
}

func bounded(text string) string { return cut(text, maxReason) }

func cut(text string, n int) string {
	if len(text) > n {
		text = strings.ToValidUTF8(text[:n], "") + "..."
	}
	return text
}
