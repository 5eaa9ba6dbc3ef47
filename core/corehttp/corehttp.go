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
// The handler takes GET and HEAD only and changes nothing. It tells names, metadata
// and addresses of members: serve it on loopback, or where only operators reach it.
package corehttp

import (
	"encoding/json"
	"net/http"
	"slices"
	"sort"
	"strconv"
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
	// MaxShards bounds the shards in one answer of /view. Default 1000. The rest is
	// asked for with ?after=NAME.
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
	// Shards are the first, or those after ?after=NAME; ?shard=NAME shows one only.
	Shards []Shard `json:"shards"`
	More   bool    `json:"more,omitempty"` // there are shards behind these
	// Unowned and Reserved count, of all shards, those that nobody serves, as
	// core.View.Unowned does: the reserved ones, Tenure's own, apart.
	Unowned   int      `json:"unowned"`
	Reserved  int      `json:"unowned_reserved"`
	Leases    []Lease  `json:"leases"`     // of this member
	Stuck     []string `json:"stuck"`      // shards whose handler did not return in time
	LastMoves []Move   `json:"last_moves"` // of this member, oldest first
}

// Member is a member that lives.
type Member struct {
	Node     string            `json:"node"`
	Session  string            `json:"session"`
	TTL      string            `json:"ttl"`
	Priority int32             `json:"priority"`
	Weight   int32             `json:"weight"`
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
	h := &handler{source: s, limit: 1000}
	if o != nil && o.MaxShards > 0 {
		h.limit = o.MaxShards
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

type handler struct {
	source Source
	limit  int
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
	for _, s := range v.Stuck() {
		reasons = append(reasons, "the handler of shard "+s+" did not return in time: its shard waits for this process to end")
	}
	return status(reasons)
}

func (h *handler) ready(v *core.View, _ *http.Request) (int, any) {
	var reasons []string
	switch {
	case v.Err != nil:
		reasons = append(reasons, "halted: "+v.Err.Error())
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
	leases := v.Leases
	if name := q.Get("shard"); name != "" {
		shards = slices.DeleteFunc(slices.Clone(shards), func(o core.Ownership) bool { return o.Shard != name })
		leases = slices.DeleteFunc(slices.Clone(leases), func(l core.LeaseInfo) bool { return string(l.Fence.Shard) != name })
	}
	out := View{
		Node: v.Node, Session: string(v.Session), Trusted: v.Trusted, Contended: v.Contended, More: len(shards) > limit,
		// Empty lists rather than null.
		Members: []Member{}, Shards: []Shard{}, Leases: []Lease{}, LastMoves: []Move{}, Stuck: append([]string{}, v.Stuck()...),
	}
	if v.Err != nil {
		out.Halted = v.Err.Error()
	}
	for _, m := range v.Members {
		out.Members = append(out.Members, Member{
			Node: m.Node, Session: string(m.Session), TTL: m.TTL.String(), Priority: m.Priority, Weight: m.Weight, Meta: m.Meta,
			Silent: slices.Contains(v.Silent, m.Session),
		})
	}
	out.Unowned, out.Reserved = v.Unowned()
	for _, o := range shards[:min(limit, len(shards))] {
		out.Shards = append(out.Shards, shard(o))
	}
	for _, l := range leases {
		out.Leases = append(out.Leases, Lease{Shard: string(l.Fence.Shard), Token: l.Fence.Token, State: string(l.State), Since: l.Since})
	}
	for _, m := range v.Moves {
		move := Move{At: m.At, Shard: string(m.Fence.Shard), Token: m.Fence.Token, Kind: string(m.Kind)}
		if m.Err != nil {
			move.Reason = m.Err.Error()
		}
		out.LastMoves = append(out.LastMoves, move)
	}
	return http.StatusOK, out
}
