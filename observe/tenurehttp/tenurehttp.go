// Package tenurehttp shows the state of an Elector over HTTP to load balancers, orchestrators and
// people. All paths except /may-stop are read-only.
//
//	mux.Handle("/tenure/", http.StripPrefix("/tenure", tenurehttp.Handler(elector, nil)))
//
//	GET /healthz         200, or 503 if a restart or a person may be needed: a handler is
//	                     stuck, core.View.Trouble is set, or the member is halted
//	GET /livez           200, or 503 while a handler is stuck. Use this path to decide on
//	                     restarts, because a halted member remembers the store's answers,
//	                     and only that member notices some restores of a store
//	GET /readyz          200 while this member takes part: it has joined if it contends,
//	                     or has news from the store. 503 from the start of a drain or
//	                     stop, and while the member is halted. See Options.NeedsStore
//	GET /leader?shard=s  200 on the one member that serves shard s. Other members answer
//	                     503 with the owner, or 404 if no member contends for the shard
//	GET /view            members, shards, this member's leases and last moves, with reasons
//	GET /                the board, a page that shows all of this and stays up to date
//	GET /events          the changes that the page shows, as server-sent events
//	GET /may-stop        200 if this node may be stopped now; a place is then reserved for it.
//	                     Otherwise 409 with the nodes that are away, or 503 if there is no
//	                     answer. This path exists only with Options.Stops
//
// The handler answers all paths except /may-stop from Elector.View and Options, without I/O. All
// answers except the page are JSON. Each answer is a snapshot. Therefore, a process that was paused
// may answer 200 once more after another member has taken over. Load balancers may rely on the
// answer. Writes must not, because only the lease in the store is authoritative.
//
// An answer takes at most 2 MiB. If the namespace has more data, the handler truncates the lists,
// and marks the answer as truncated.
//
// The board, a page for people, shows members with their heartbeats, up to 20,000 shards in their
// owners' colors, moves with their reasons, refused writes, and lag. With Options.Sharding, it also
// shows loads and the keyspace's ranges. With Options.Effects, it shows how many effects are
// waiting. The board's Content-Security-Policy forbids loading anything from another host. The
// board's path must end in a slash, as in the example.
//
// A stream from /events sends changes at most five times a second. A stream ends when the server
// stops, when the client accepts no data for 10 s, or after 15 min. The page then opens another
// stream. If Options.MaxStreams streams are open, the handler refuses a new stream. However, if
// another address has at least two streams more than the client's address, the address with the
// most streams loses its oldest stream to the client.
//
// The path /may-stop is for preStop hooks, and for controllers that update members one by one. Like
// the command "tenure may-stop", the path reads and writes the store, but only for this member's
// node. A repeated request keeps the reserved place. The path accepts only GET requests without
// parameters, and refuses requests from browsers. If Options.StopToken is set, requests must carry
// that token. Otherwise, requests must arrive over a Unix socket. The handler queries the store at
// most once a second, and writes to the store at most twice during each Options.StopFor. Until the
// next query is allowed, the handler repeats its last refusal. The handler queries the store before
// each approval.
//
// The other paths accept only GET and HEAD, and change nothing. They show members' names, metadata
// and addresses, so serve them only on loopback, or where only operators can reach them. Over
// loopback, the Host header must be localhost, a loopback address or one of Options.Hosts. The
// handler refuses other Hosts, because another site's page could read the answers through a DNS
// name that points to loopback. The paths /healthz, /livez and /readyz accept any Host.
package tenurehttp

import (
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/internal/mark"
	"github.com/tenure-go/tenure/observe/internal/count"
	"github.com/tenure-go/tenure/sharding"
)

// Source provides the state that a Handler shows. A Source is usually a *core.Elector. If a Source
// also has an Elector's methods TrustRemaining and Heartbeats, the Handler shows their results.
type Source interface {
	// View returns the newest snapshot. See core.Elector.View.
	View() *core.View
}

// Options configure a Handler. Nil means the defaults.
type Options struct {
	// MaxShards limits the shards, and the leases, in one answer from /view. The default and the
	// maximum are 1000. To get the next shards, request ?after=NAME.
	MaxShards int
	// NeedsStore makes /readyz also answer 503 while the session is not trusted, and therefore
	// during every store outage. By default, a member without a trusted session stays ready,
	// because no other member could do better. The answer then contains the reason.
	NeedsStore bool
	// Journal records refused writes and members' events. If Journal is nil, the Handler shows
	// neither.
	Journal *Journal
	// Lag returns how far a follower is behind, as follower.Tailer.Lag does: the number of known
	// entries that are not applied, and how long the oldest of them has been known. Lag must not
	// wait. If Lag is nil, the Handler shows no lag.
	Lag func() (entries int64, oldest time.Duration)
	// Sharding, if set, lets the board and /view show a keyspace's ranges, and the load of shards
	// and members. Set Sharding to the Picture method of the sharding.Manager that uses this
	// Elector. Picture's documentation describes which calls to the store it makes. The Handler
	// calls Sharding at most once a second, and only while a board is open or /view is requested.
	// Sharding must not wait.
	Sharding func() sharding.Picture
	// Effects, if set, lets the board and /view show how many of this process's effects are
	// waiting, and how many wait for a person. Set Effects to the Counts method of the ledgers'
	// effect.Stats. The Handler calls Effects at most once a second, and only while a board is open
	// or /view is requested. The Handler does not show the effects' keys.
	Effects func() effect.Counts
	// Places, if set, lets the board draw these shards on a map. The Handler does not modify
	// Places.
	Places map[string]Place
	// MaxStreams is the maximum number of open boards. The default and the maximum are 16.
	MaxStreams int
	// Hosts lists additional names, without ports, that the Handler accepts as the Host of a
	// request over loopback. An example is the name of a proxy on this machine. By default, Hosts
	// is empty.
	Hosts []string

	// Stops is the Elector's backend, in which /may-stop reads and reserves places. If Stops is
	// nil, the Handler does not serve /may-stop.
	Stops core.Backend
	// StopAway is the number of nodes that may be away simultaneously, including the node that is
	// about to stop. The default is 1. If other places were reserved with smaller numbers, the
	// smallest number applies.
	StopAway int
	// StopMembers is the number of nodes that should run. Missing nodes count as away. The default,
	// 0, means unknown.
	StopMembers int
	// StopFor is how long a place lasts unless a new session of the node joins earlier. StopFor
	// must be from 1 s to 24 h, and the default is 10 min. If each process has a new label, as in a
	// Deployment, a place does not end when the replacement joins. For such processes, set StopFor
	// to the time that it takes to replace a process.
	StopFor time.Duration
	// StopToken is the bearer token that /may-stop requires. By default, StopToken is empty.
	// Without a token, /may-stop answers only requests that arrive over a Unix socket and not
	// through a proxy.
	StopToken string
}

type viewJSON struct {
	Node      string `json:"node"`
	Session   string `json:"session,omitempty"`
	Trusted   bool   `json:"trusted"`
	Halted    string `json:"halted,omitempty"` // why the member grants no further leases
	Leaving   bool   `json:"leaving"`          // a planned stop has begun
	Contended int    `json:"contended"`        // shards that this member contends for
	// Ineligible is the reason why this member is not eligible. For an eligible member, Ineligible
	// is left out.
	Ineligible string `json:"ineligible,omitempty"`
	// Trouble is a problem of this member that only a person can solve. See core.View.
	Trouble string `json:"trouble,omitempty"`
	// TrustRemaining is how long the member's leases last if no further heartbeat succeeds.
	TrustRemaining string       `json:"trust_remaining,omitempty"`
	Members        []memberJSON `json:"members"`
	// MoreMembers is true if the answer omits members because their names and metadata are long.
	MoreMembers bool `json:"more_members,omitempty"`
	// Shards lists the first shards. With ?after=NAME, Shards lists the first shards after that
	// name. With ?shard=NAME, it contains only that shard.
	Shards []shardJSON `json:"shards"`
	More   bool        `json:"more,omitempty"` // there are more shards
	// Unowned and Reserved count the shards without an owner, as core.View.Unowned does. Reserved
	// counts Tenure's own shards.
	Unowned  int `json:"unowned"`
	Reserved int `json:"unowned_reserved"`
	// Quarantined counts the shards in quarantine, as core.View.Quarantined does.
	Quarantined int         `json:"quarantined"`
	Leases      []leaseJSON `json:"leases"`     // leases of this member; at most as many as shards
	Stuck       []string    `json:"stuck"`      // shards whose handler did not return in time; at most 100
	LastMoves   []moveJSON  `json:"last_moves"` // moves of this member, oldest first
	// Damaged lists up to 64 unreadable records in the store. DamagedTotal is the number of all
	// damaged records found since the start. See core.View.
	Damaged      []*core.DamagedError `json:"damaged,omitempty"`
	DamagedTotal int                  `json:"damaged_total"`
	// Refused is the number of writes that were refused because of their fence. Notes contains the
	// Journal's newest notes, oldest first. Lag is how far a follower is behind. See Options.
	Refused uint64   `json:"refused,omitempty"`
	Notes   []Note   `json:"notes,omitempty"`
	Lag     *lagJSON `json:"lag,omitempty"`
	// Ranges lists the keyspace's ranges, in the order of hashes. If there are more than 256
	// ranges, neighboring ranges are combined. See Options.Sharding.
	Ranges []rangeJSON `json:"ranges,omitempty"`
	// Effects contains the counts of this process's waiting effects. See Options.Effects.
	Effects *effectsJSON `json:"effects,omitempty"`
}

type lagJSON struct {
	Entries int64   `json:"entries"` // number of entries that are known but not applied
	Seconds float64 `json:"seconds"` // how long the oldest of these entries has been known
}

type memberJSON struct {
	Node     string            `json:"node"`
	Session  string            `json:"session"`
	TTL      string            `json:"ttl"`
	Priority int32             `json:"priority"`
	Weight   int32             `json:"weight"`
	Draining bool              `json:"draining,omitempty"`
	Silent   bool              `json:"silent,omitempty"` // no heartbeat has been seen for the member's TTL
	Meta     map[string]string `json:"meta,omitempty"`
	// Ineligible is the reason why the member is not eligible. For an eligible member, Ineligible
	// is left out.
	Ineligible string `json:"ineligible,omitempty"`
	// Trouble is a problem of the member that only a person can solve.
	Trouble string `json:"trouble,omitempty"`
	// If this member watches the other, SinceHeartbeat is how long ago it saw the other's last
	// heartbeat.
	SinceHeartbeat string `json:"since_heartbeat,omitempty"`
	// Load contains the total known load of the member's shards and, if known, the member's
	// capacity. Load is left out if no load is known. See Options.Sharding.
	Load *memberShares `json:"load,omitempty"`

	ttl time.Duration
}

// Node is empty while no member serves the shard.
type shardJSON struct {
	Shard   string     `json:"shard"`
	Node    string     `json:"node,omitempty"`
	Session string     `json:"session,omitempty"`
	Token   core.Token `json:"token"`
	// Aside is the reason why the shard should have no owner. If the shard should have an owner,
	// Aside is left out. AsideUntil is the time when the shard should have an owner again, for
	// example after a quarantine. If there is no such time, AsideUntil is left out.
	Aside      string    `json:"aside,omitempty"`
	AsideUntil time.Time `json:"aside_until,omitzero"`
	// Load is left out if it is unknown. See Options.Sharding.
	Load *float64 `json:"load,omitempty"`
	// Elsewhere is the shard's preferred zone, if the shard's owner is in a different zone.
	Elsewhere string `json:"elsewhere,omitempty"`
}

type leaseJSON struct {
	Shard string     `json:"shard"`
	Token core.Token `json:"token"`
	State string     `json:"state"`
	Since time.Time  `json:"since"`
}

// moveJSON is an event of one of this member's leases, with the reason.
type moveJSON struct {
	At     time.Time  `json:"at"`
	Shard  string     `json:"shard"`
	Token  core.Token `json:"token"`
	Kind   string     `json:"kind"`
	Reason string     `json:"reason,omitempty"`
}

// The answer may contain reasons even if OK is true.
type statusJSON struct {
	OK      bool     `json:"ok"`
	Reasons []string `json:"reasons,omitempty"`
}

type leaderJSON struct {
	Leader bool `json:"leader"` // this member serves the shard
	shardJSON
}

type problemJSON struct {
	Error string `json:"error"`
}

// Handler returns a handler for the paths that the package comment lists. The handler is safe for
// concurrent use.
func Handler(s Source, o *Options) http.Handler {
	h := &handler{source: s, limit: maxShards}
	h.streams = streams{most: maxStreams, ended: make(map[*http.Server]chan struct{})}
	if o != nil {
		h.needsStore, h.journal, h.lagOf, h.places, h.hosts, h.sharding = o.NeedsStore, o.Journal, o.Lag, o.Places, o.Hosts, o.Sharding
		h.effects.counts = o.Effects
		if o.MaxStreams > 0 {
			h.streams.most = min(o.MaxStreams, maxStreams)
		}
		if o.MaxShards > 0 {
			h.limit = min(o.MaxShards, maxShards)
		}
	}
	mux := http.NewServeMux()
	for path, serve := range map[string]func(*core.View, *http.Request) (int, any){
		"/healthz": h.health, "/livez": h.live, "/readyz": h.ready, "/leader": h.leader, "/view": h.view,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			if reads(w, r) {
				status, body := serve(h.source.View(), r)
				reply(w, status, body)
			}
		})
	}
	mux.HandleFunc("/{$}", asset("index.html", "text/html"))
	mux.HandleFunc("/board.js", asset("board.js", "text/javascript"))
	mux.HandleFunc("/board.css", asset("board.css", "text/css"))
	mux.HandleFunc("/events", h.events)
	if o != nil && o.Stops != nil {
		mux.Handle("/may-stop", newStops(s, o))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// If the ResponseWriter does not support deadlines, the server must set them.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(streamPatience))
		if probes[r.URL.Path] || addressed(w, r, h.hosts) {
			mux.ServeHTTP(w, r)
		}
	})
}

// Orchestrators request these paths, which accept any Host.
var probes = map[string]bool{"/healthz": true, "/livez": true, "/readyz": true}

// CheckHost returns a handler that, over loopback, refuses the same Host headers as Handler. Use
// CheckHost for other pages of the same server, such as metrics. The hosts are additional allowed
// names, without ports.
func CheckHost(next http.Handler, hosts ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if addressed(w, r, hosts) {
			next.ServeHTTP(w, r)
		}
	})
}

// If a request over loopback has another machine's Host, addressed answers it. If another site's
// DNS name points to loopback, its pages send requests with the site's name as the Host.
func addressed(w http.ResponseWriter, r *http.Request, hosts []string) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if local == nil || !local.IP.IsLoopback() {
		return true
	}
	if here(r.Host, hosts) {
		return true
	}
	reply(w, http.StatusForbidden, problemJSON{Error: "the Host " + strconv.QuoteToASCII(bounded(r.Host)) +
		" is not this machine's: use localhost or 127.0.0.1, or list it in Options.Hosts"})
	return false
}

func here(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	at, _ := netip.ParseAddr(host)
	return at.Unmap().IsLoopback() || strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(host, name) })
}

// If a request's method may write, reads refuses the request.
func reads(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	reply(w, http.StatusMethodNotAllowed, problemJSON{Error: "use GET: this handler changes nothing"})
	return false
}

// These limits together keep an answer below 2 MiB.
const (
	maxShards  = 1000
	maxStuck   = 100
	maxMembers = 512 << 10 // maximum size of the members' data as JSON, in bytes
	maxReason  = 1000      // maximum size of an error, in bytes
	maxAside   = 100       // maximum size, in bytes, of the reason why a shard is set aside
)

type handler struct {
	source     Source
	limit      int
	needsStore bool
	journal    *Journal // may be nil
	lagOf      func() (int64, time.Duration)
	places     map[string]Place
	hosts      []string
	streams    streams

	mu      sync.Mutex
	counted *core.View // the view from which counts were made
	counts  counts

	sharding   func() sharding.Picture // may be nil
	sharesMu   sync.Mutex
	shares     *shares
	sharesNext time.Time

	effects effects
}

// These counts require a pass over all of a View's shards.
type counts struct{ unowned, reserved, quarantined, known int }

// count makes only one pass over each snapshot.
func (h *handler) count(v *core.View) counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counted != v {
		h.counts.unowned, h.counts.reserved = v.Unowned()
		h.counts.quarantined, h.counts.known = count.Quarantined(v), 0
		for i := range v.Shards {
			if o := &v.Shards[i]; !driver.Reserved(o.Shard) && (o.Aside == "" || !o.AsideUntil.IsZero()) {
				h.counts.known++
			}
		}
		h.counted = v
	}
	return h.counts
}

func (h *handler) newFeed() *feed { return &feed{h: h, owners: make(map[core.SessionID]int)} }

// If the Source lacks the method that trust or heartbeats calls, the result is the zero value.
func (h *handler) trust() time.Duration {
	if s, ok := h.source.(interface{ TrustRemaining() time.Duration }); ok {
		return s.TrustRemaining()
	}
	return 0
}

func (h *handler) heartbeats() map[core.SessionID]time.Duration {
	if s, ok := h.source.(interface {
		Heartbeats() map[core.SessionID]time.Duration
	}); ok {
		return s.Heartbeats()
	}
	return nil
}

func (h *handler) lag() *lagJSON {
	if h.lagOf == nil {
		return nil
	}
	entries, oldest := h.lagOf()
	return &lagJSON{Entries: entries, Seconds: oldest.Seconds()}
}

// The error may come from a store, so reason limits its length.
func reason(err error) string { return bounded(err.Error()) }

// meta returns the application's part of a member's metadata.
func meta(m *core.Member) map[string]string {
	if m.Ineligible() == "" && m.Trouble() == "" {
		return m.Meta
	}
	own := maps.Clone(m.Meta)
	delete(own, mark.IneligibleKey)
	delete(own, mark.TroubleKey)
	return own
}

// size returns an upper bound, in bytes, for a member's part of an answer.
func size(m *core.Member) int {
	const rest, escaped, indent = 400, 6, 30
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
	_ = out.Encode(body) // a client that has disconnected needs no answer
}

func status(reasons []string) (int, any) {
	if len(reasons) > 0 {
		return http.StatusServiceUnavailable, statusJSON{Reasons: reasons}
	}
	return http.StatusOK, statusJSON{OK: true}
}

func (h *handler) health(v *core.View, _ *http.Request) (int, any) {
	var reasons []string
	if v.Err != nil {
		reasons = append(reasons, "halted: "+reason(v.Err))
	}
	if v.Trouble != "" {
		reasons = append(reasons, bounded(v.Trouble))
	}
	return status(append(reasons, stuck(v)...))
}

func (h *handler) live(v *core.View, _ *http.Request) (int, any) { return status(stuck(v)) }

func stuckShards(v *core.View) (shards []string) {
	for i := range v.Leases {
		if l := &v.Leases[i]; l.State == core.LeaseStuck {
			shards = append(shards, string(l.Fence.Shard))
		}
	}
	return shards
}

// stuck returns a reason for each stuck handler, as far as the reasons fit into an answer.
func stuck(v *core.View) (reasons []string) {
	all := stuckShards(v)
	for _, s := range all[:min(len(all), maxStuck)] {
		reasons = append(reasons, "the handler of shard "+s+" did not return in time: its shard waits for this process to end")
	}
	return reasons
}

func (h *handler) ready(v *core.View, _ *http.Request) (int, any) {
	var reasons []string
	self, _ := v.Member(v.Session)
	switch {
	case v.Err != nil:
		reasons = append(reasons, "halted: "+reason(v.Err))
	case v.Stopped:
		reasons = append(reasons, "stopping: what is held here is handed back")
	case v.Leaving:
		reasons = append(reasons, "leaving: handlers are asked to stop soon")
	case self.Draining:
		reasons = append(reasons, "draining: what is held here goes to other members")
	case v.Contended > 0 && v.Session == "":
		reasons = append(reasons, "not joined yet, or joining again")
	case v.Contended > 0 && !v.Trusted:
		reasons = append(reasons, "the session is not trusted: its heartbeats fail")
		if !h.needsStore {
			return http.StatusOK, statusJSON{OK: true, Reasons: reasons}
		}
	case v.Contended == 0 && len(v.Members) == 0 && len(v.Shards) == 0:
		reasons = append(reasons, "no news from the store yet, or an empty namespace")
	case v.Ineligible != "":
		return http.StatusOK, statusJSON{OK: true, Reasons: []string{"not eligible to own shards: " + v.Ineligible}}
	}
	return status(reasons)
}

func (h *handler) leader(v *core.View, r *http.Request) (int, any) {
	name := r.URL.Query().Get("shard")
	if err := core.CheckShard(name); err != nil {
		return http.StatusBadRequest, problemJSON{Error: "?shard=NAME: " + err.Error()}
	}
	for _, l := range v.Leases {
		if string(l.Fence.Shard) == name && v.Trusted && (l.State == core.LeaseStarting || l.State == core.LeaseHeld) {
			return http.StatusOK, leaderJSON{Leader: true, shardJSON: shardJSON{Shard: name, Node: v.Node, Session: string(l.Fence.Session), Token: l.Fence.Token}}
		}
	}
	o, ok := v.Owner(name)
	if !ok {
		return http.StatusNotFound, problemJSON{Error: "nobody contends for shard " + name}
	}
	return http.StatusServiceUnavailable, leaderJSON{shardJSON: shard(o)}
}

func shard(o core.Ownership) shardJSON {
	return shardJSON{Shard: o.Shard, Node: o.Node, Session: string(o.Session), Token: o.Token,
		Aside: cut(o.Aside, maxAside), AsideUntil: o.AsideUntil}
}

func (h *handler) view(v *core.View, r *http.Request) (int, any) {
	q := r.URL.Query()
	shards, limit := v.Shards, h.limit
	if text := q.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > h.limit {
			return http.StatusBadRequest, problemJSON{Error: "?limit=N: 0 to " + strconv.Itoa(h.limit)}
		}
		limit = n
	}
	if after := q.Get("after"); after != "" {
		shards = shards[sort.Search(len(shards), func(i int) bool { return shards[i].Shard > after }):]
	}
	leases, stuck := v.Leases, stuckShards(v)
	if name := q.Get("shard"); name != "" { // both lists are sorted by shard
		from := sort.Search(len(shards), func(i int) bool { return shards[i].Shard >= name })
		to := sort.Search(len(shards), func(i int) bool { return shards[i].Shard > name })
		shards = shards[from:to]
		from = sort.Search(len(leases), func(i int) bool { return string(leases[i].Fence.Shard) >= name })
		to = sort.Search(len(leases), func(i int) bool { return string(leases[i].Fence.Shard) > name })
		leases = leases[from:to]
	}
	out := viewJSON{
		Node: v.Node, Session: string(v.Session), Trusted: v.Trusted, Leaving: v.Leaving, Ineligible: v.Ineligible, Trouble: bounded(v.Trouble),
		Contended: v.Contended, More: len(shards) > limit,
		// In the JSON, lists are empty rather than null.
		Shards: []shardJSON{}, Leases: []leaseJSON{}, Stuck: append([]string{}, stuck[:min(len(stuck), maxStuck)]...),
	}
	if v.Err != nil {
		out.Halted = reason(v.Err)
	}
	out.Damaged, out.DamagedTotal = v.Damaged, v.DamagedTotal
	out.Members, out.MoreMembers = members(v, h.heartbeats())
	if trust := h.trust(); trust > 0 {
		out.TrustRemaining = trust.Round(time.Millisecond).String()
	}
	out.Notes, _, out.Refused = h.journal.since(0)
	out.Lag, out.Effects = h.lag(), h.effects.look()
	n := h.count(v)
	out.Unowned, out.Reserved, out.Quarantined = n.unowned, n.reserved, n.quarantined
	for _, o := range shards[:min(limit, len(shards))] {
		out.Shards = append(out.Shards, shard(o))
	}
	if !crossSite(r) { // another site's page cannot read the answer, so its request must not make the handler read the store
		h.shared(v).add(&out)
	}
	for _, l := range leases[:min(h.limit, len(leases))] {
		out.Leases = append(out.Leases, leaseJSON{Shard: string(l.Fence.Shard), Token: l.Fence.Token, State: string(l.State), Since: l.Since})
	}
	out.LastMoves = moves(v.Moves, reason)
	return http.StatusOK, out
}

// members returns the members that fit into an answer, with the ages of their heartbeats. The list
// always includes this process's member.
func members(v *core.View, beats map[core.SessionID]time.Duration) (list []memberJSON, more bool) {
	list = []memberJSON{}
	left := maxMembers
	if self, ok := v.Member(v.Session); ok {
		left -= size(&self)
	}
	for i := range v.Members {
		m := &v.Members[i]
		if m.Session != v.Session {
			if left -= size(m); left < 0 {
				more = true
				continue
			}
		}
		out := memberJSON{
			ttl:  m.TTL,
			Node: m.Node, Session: string(m.Session), TTL: m.TTL.String(), Priority: m.Priority, Weight: m.Weight, Meta: meta(m),
			Ineligible: m.Ineligible(), Trouble: m.Trouble(), Draining: m.Draining, Silent: slices.Contains(v.Silent, m.Session),
		}
		if m.Session == v.Session {
			out.Trouble = bounded(v.Trouble)
		}
		if age, ok := beats[m.Session]; ok {
			out.SinceHeartbeat = age.Round(time.Millisecond).String()
		}
		list = append(list, out)
	}
	return list, more
}
