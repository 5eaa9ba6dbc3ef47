// Package corehttp shows an Elector over HTTP, read-only: for load balancers, for
// orchestrators, and for a person at three in the morning.
//
//	mux.Handle("/tenure/", http.StripPrefix("/tenure", corehttp.Handler(elector, nil)))
//
//	GET /healthz         200, or 503 while a handler is stuck: a restart would end it
//	GET /readyz          200 while this member takes part: it has news from the store,
//	                     is trusted if it contends, and is not halted; else 503
//	GET /leader?shard=s  200 on the one member that serves shard s; elsewhere 503, with
//	                     who does; 404 for a shard that nobody contends for
//	GET /view            members, shards, own leases and last moves, with their reasons
//
// Everything is answered from Elector.View, without I/O, as JSON. It is a picture: a
// process that was stopped may answer 200 once more after it was superseded. A load
// balancer may go by it, a write may not: the lease decides, in the store.
//
// An answer has at most 2 MiB, whatever the namespace holds: lists end early then, and
// say so.
//
// The handler takes GET and HEAD only and changes nothing. It tells names, metadata
// and addresses of members: serve it on loopback, or where only operators reach it.
package corehttp

import (
	"encoding/json"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Source is what a Handler shows: a *core.Elector.
type Source interface {
	// View is the newest snapshot, as Elector.View.
	View() *core.View
}

// Options of a Handler. Nil works.
type Options struct {
	// MaxShards bounds the shards, and the leases, in one answer of /view. Default, and
	// most, 1000. The rest of the shards is asked for with ?after=NAME.
	MaxShards int
}

// View is the answer of /view.
type View struct {
	Node      string   `json:"node"`
	Session   string   `json:"session,omitempty"`
	Trusted   bool     `json:"trusted"`
	Halted    string   `json:"halted,omitempty"` // why nothing is granted any more
	Contended int      `json:"contended"`        // shards that this member contends for
	Members   []Member `json:"members"`
	// MoreMembers: there are members beside these, whose names and metadata are long.
	MoreMembers bool `json:"more_members,omitempty"`
	// Shards are the first, or those after ?after=NAME; ?shard=NAME shows one only.
	Shards []Shard `json:"shards"`
	More   bool    `json:"more,omitempty"` // there are shards behind these
	// Unowned and Reserved count, of all shards, those that nobody serves, as
	// core.View.Unowned does: the reserved ones, Tenure's own, apart.
	Unowned   int      `json:"unowned"`
	Reserved  int      `json:"unowned_reserved"`
	Leases    []Lease  `json:"leases"`     // of this member; as many as shards at most
	Stuck     []string `json:"stuck"`      // shards whose handler did not return in time; at most 100
	LastMoves []Move   `json:"last_moves"` // of this member, oldest first
	// Damaged are records of the store that cannot be read, at most 64; DamagedTotal
	// counts all that were found since the start. See core.View.
	Damaged      []*core.DamagedError `json:"damaged,omitempty"`
	DamagedTotal int                  `json:"damaged_total"`
}

// Member is a member that lives.
type Member struct {
	Node     string            `json:"node"`
	Session  string            `json:"session"`
	TTL      string            `json:"ttl"`
	Priority int32             `json:"priority"`
	Weight   int32             `json:"weight"`
	Draining bool              `json:"draining,omitempty"`
	Silent   bool              `json:"silent,omitempty"` // no heartbeat was seen for its TTL
	Meta     map[string]string `json:"meta,omitempty"`
}

// Shard is a shard and who owns it; without a node nobody serves it at present.
type Shard struct {
	Shard   string     `json:"shard"`
	Node    string     `json:"node,omitempty"`
	Session string     `json:"session,omitempty"`
	Token   core.Token `json:"token"`
}

// Lease is a lease of this member.
type Lease struct {
	Shard string     `json:"shard"`
	Token core.Token `json:"token"`
	State string     `json:"state"`
	Since time.Time  `json:"since"`
}

// Move is something that happened to a lease of this member, and why.
type Move struct {
	At     time.Time  `json:"at"`
	Shard  string     `json:"shard"`
	Token  core.Token `json:"token"`
	Kind   string     `json:"kind"`
	Reason string     `json:"reason,omitempty"`
}

// Status is the answer of /healthz and /readyz.
type Status struct {
	OK      bool     `json:"ok"`
	Reasons []string `json:"reasons,omitempty"`
}

// Leader is the answer of /leader.
type Leader struct {
	Leader bool `json:"leader"` // this member serves the shard
	Shard
}

// Problem is the answer to a request that cannot be served.
type Problem struct {
	Error string `json:"error"`
}

// Handler returns a handler for the paths of the package comment, of a
// *core.Elector. Safe for concurrent use.
func Handler(s Source, o *Options) http.Handler {
	h := &handler{source: s, limit: maxShards}
	if o != nil && o.MaxShards > 0 {
		h.limit = min(o.MaxShards, maxShards)
	}
	mux := http.NewServeMux()
	for path, serve := range map[string]func(*core.View, *http.Request) (int, any){
		"/healthz": h.health, "/readyz": h.ready, "/leader": h.leader, "/view": h.view,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet && r.Method != http.MethodHead {
				w.Header().Set("Allow", "GET, HEAD")
				reply(w, http.StatusMethodNotAllowed, Problem{Error: "use GET: this handler changes nothing"})
				return
			}
			status, body := serve(h.source.View(), r)
			reply(w, status, body)
		})
	}
	return mux
}

// Bounds of an answer. Together they keep it below 2 MiB.
const (
	maxShards  = 1000
	maxStuck   = 100
	maxMembers = 512 << 10 // bytes of what members told, as JSON
	maxReason  = 1000      // bytes of an error
)

type handler struct {
	source Source
	limit  int

	mu       sync.Mutex
	counted  *core.View // of which the numbers are
	unowned  int
	reserved int
}

// count is View.Unowned, which looks at every shard: once for each snapshot.
func (h *handler) count(v *core.View) (unowned, reserved int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counted != v {
		h.unowned, h.reserved = v.Unowned()
		h.counted = v
	}
	return h.unowned, h.reserved
}

// reason is an error's text, which may have come from a store.
func reason(err error) string {
	text := err.Error()
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "..."
	}
	return text
}

// size is more than what a member takes in an answer.
func size(m *core.Member) int {
	const rest, escaped, indent = 300, 6, 30
	n := rest + escaped*(len(m.Node)+len(m.Session))
	for k, v := range m.Meta {
		n += escaped*(len(k)+len(v)) + indent
	}
	return n
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	_ = out.Encode(body) // a client that is gone needs no answer
}

func status(reasons []string) (int, any) {
	if len(reasons) > 0 {
		return http.StatusServiceUnavailable, Status{Reasons: reasons}
	}
	return http.StatusOK, Status{OK: true}
}

func (h *handler) health(v *core.View, _ *http.Request) (int, any) {
	var reasons []string
	stuck := v.Stuck()
	for _, s := range stuck[:min(len(stuck), maxStuck)] {
		reasons = append(reasons, "the handler of shard "+s+" did not return in time: its shard waits for this process to end")
	}
	return status(reasons)
}

func (h *handler) ready(v *core.View, _ *http.Request) (int, any) {
	var reasons []string
	switch {
	case v.Err != nil:
		reasons = append(reasons, "halted: "+reason(v.Err))
	case v.Stopped:
		reasons = append(reasons, "stopping: what is held here is handed back")
	case v.Contended > 0 && !v.Trusted:
		reasons = append(reasons, "the session is not trusted: it has not joined yet, or its heartbeats fail")
	case v.Contended == 0 && len(v.Members) == 0 && len(v.Shards) == 0:
		reasons = append(reasons, "no news from the store yet, or an empty namespace")
	}
	return status(reasons)
}

func (h *handler) leader(v *core.View, r *http.Request) (int, any) {
	name := r.URL.Query().Get("shard")
	if err := core.CheckShard(name); err != nil {
		return http.StatusBadRequest, Problem{Error: "?shard=NAME: " + err.Error()}
	}
	for _, l := range v.Leases {
		if string(l.Fence.Shard) == name && v.Trusted && (l.State == core.LeaseStarting || l.State == core.LeaseHeld) {
			return http.StatusOK, Leader{Leader: true, Shard: Shard{Shard: name, Node: v.Node, Session: string(l.Fence.Session), Token: l.Fence.Token}}
		}
	}
	o, ok := v.Owner(name)
	if !ok {
		return http.StatusNotFound, Problem{Error: "nobody contends for shard " + name}
	}
	return http.StatusServiceUnavailable, Leader{Shard: shard(o)}
}

func shard(o core.Ownership) Shard {
	return Shard{Shard: o.Shard, Node: o.Node, Session: string(o.Session), Token: o.Token}
}

func (h *handler) view(v *core.View, r *http.Request) (int, any) {
	q := r.URL.Query()
	shards, limit := v.Shards, h.limit
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > h.limit {
			return http.StatusBadRequest, Problem{Error: "?limit=N: 0 to " + strconv.Itoa(h.limit)}
		}
		limit = n
	}
	if after := q.Get("after"); after != "" {
		shards = shards[sort.Search(len(shards), func(i int) bool { return shards[i].Shard > after }):]
	}
	leases, stuck := v.Leases, v.Stuck()
	if name := q.Get("shard"); name != "" { // both are sorted by it
		from := sort.Search(len(shards), func(i int) bool { return shards[i].Shard >= name })
		to := sort.Search(len(shards), func(i int) bool { return shards[i].Shard > name })
		shards = shards[from:to]
		from = sort.Search(len(leases), func(i int) bool { return string(leases[i].Fence.Shard) >= name })
		to = sort.Search(len(leases), func(i int) bool { return string(leases[i].Fence.Shard) > name })
		leases = leases[from:to]
	}
	out := View{
		Node: v.Node, Session: string(v.Session), Trusted: v.Trusted, Contended: v.Contended, More: len(shards) > limit,
		// Empty lists rather than null.
		Members: []Member{}, Shards: []Shard{}, Leases: []Lease{}, LastMoves: []Move{}, Stuck: append([]string{}, stuck[:min(len(stuck), maxStuck)]...),
	}
	if v.Err != nil {
		out.Halted = reason(v.Err)
	}
	out.Damaged, out.DamagedTotal = v.Damaged, v.DamagedTotal
	left := maxMembers
	for i := range v.Members {
		m := &v.Members[i]
		if left -= size(m); left < 0 {
			out.MoreMembers = true
			break
		}
		out.Members = append(out.Members, Member{
			Node: m.Node, Session: string(m.Session), TTL: m.TTL.String(), Priority: m.Priority, Weight: m.Weight, Meta: m.Meta,
			Draining: m.Draining, Silent: slices.Contains(v.Silent, m.Session),
		})
	}
	out.Unowned, out.Reserved = h.count(v)
	for _, o := range shards[:min(limit, len(shards))] {
		out.Shards = append(out.Shards, shard(o))
	}
	for _, l := range leases[:min(h.limit, len(leases))] {
		out.Leases = append(out.Leases, Lease{Shard: string(l.Fence.Shard), Token: l.Fence.Token, State: string(l.State), Since: l.Since})
	}
	for _, m := range v.Moves {
		move := Move{At: m.At, Shard: string(m.Fence.Shard), Token: m.Fence.Token, Kind: string(m.Kind)}
		if m.Err != nil {
			move.Reason = reason(m.Err)
		}
		out.LastMoves = append(out.LastMoves, move)
	}
	return http.StatusOK, out
}
