// Package tenurehttp shows an Elector over HTTP: for load balancers, for orchestrators, and
// for a person at three in the morning. All but /may-stop is read-only.
//
//	mux.Handle("/tenure/", http.StripPrefix("/tenure", tenurehttp.Handler(elector, nil)))
//
//	GET /healthz         200, or 503 while a handler is stuck, which a restart would end,
//	                     while the store refuses calls, by core.View.Trouble, and once the member is halted, which only a restart ends
//	GET /livez           200, or 503 while a handler is stuck: what may restart the process
//	                     asks here, since a halted member remembers what it was answered,
//	                     and some stores that went back show it to nobody else
//	GET /readyz          200 while this member takes part: it has joined if it contends,
//	                     or has news from the store; 503 from the start of a drain or
//	                     stop, and while halted. See Options.NeedsStore
//	GET /leader?shard=s  200 on the one member that serves shard s; elsewhere 503, with
//	                     who does; 404 for a shard that nobody contends for
//	GET /view            members, shards, own leases and last moves, with their reasons
//	GET /                the board: a page that shows all this, and follows it
//	GET /events          what the page follows: server-sent events
//	GET /may-stop        200 if this node may be stopped now, and a place is reserved for it;
//	                     409 with the nodes that are away if not; 503 without an answer.
//	                     Only with Options.Stops
//
// Everything but /may-stop is answered without I/O, from Elector.View and Options, as JSON. It is a
// picture: a process that was stopped may answer 200 once more after it was superseded. A load
// balancer may go by it, a write may not: the lease decides, in the store.
//
// An answer has at most 2 MiB, whatever the namespace holds: lists end early then, and
// say so.
//
// The board is for people: members with their heartbeats, every shard in its owner's
// colour, moves with their reasons, refused writes and lag; with Options.Sharding the ranges
// of the keyspace, and loads; with Options.Effects how many effects wait. It loads nothing from
// another host, and its Content-Security-Policy forbids that. It needs its address to end in a
// slash, as in the example. A stream of /events says what has changed at most five times a second. It ends
// with its server, with a client that takes nothing for 10 s, and after 15 min, when the
// page opens another one; of more than Options.MaxStreams at a time the
// last are refused, or an address that has most of them loses its oldest to another address.
// It shows the first 20,000 shards.
//
// /may-stop is for preStop hooks and controllers that update members one by one. It asks the
// store as tenure may-stop does, for the node of this member and no other, and so writes to
// it. Asking again keeps the place. It takes GET only, no parameters, and no browser's
// request. It answers the processes of this machine, or, with Options.StopToken, those that
// send the token. It asks the store once a second at most, and writes twice in Options.StopFor
// at most.
//
// The rest of the handler takes GET and HEAD only and changes nothing. It tells names, metadata
// and addresses of members: serve it on loopback, or where only operators reach it. On
// loopback it refuses a Host that is neither localhost, an address of loopback nor one of
// Options.Hosts, so that no other site's page reads it through a name that its owner points
// here; /healthz, /livez and /readyz take any.
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
	"github.com/tenure-go/tenure/sharding"
)

// Source is what a Handler shows: a *core.Elector. One that has the methods
// TrustRemaining and Heartbeats of an Elector shows these, too.
type Source interface {
	// View is the newest snapshot, as Elector.View.
	View() *core.View
}

// Options of a Handler. Nil works.
type Options struct {
	// MaxShards bounds the shards, and the leases, in one answer of /view. Default, and
	// most, 1000. The rest of the shards is asked for with ?after=NAME.
	MaxShards int
	// NeedsStore makes /readyz 503 also while the session is not trusted, that is in
	// every outage of the store. Without it such a member stays ready, since no other one
	// could do better, and the answer has the reason.
	NeedsStore bool
	// Journal has what a View does not: refused writes, and what happened to members.
	// Nil: they are not shown.
	Journal *Journal
	// Lag is how far a follower is behind, such as follower.Tailer.Lag: entries known and
	// not applied, and since when the oldest of them is known. It must not wait. Nil: not
	// shown.
	Lag func() (entries int64, oldest time.Duration)
	// Sharding has the board and /view show the ranges of a keyspace, and the load of shards and
	// members: Manager.Picture of the Manager on this Elector, which says what store calls it costs.
	// It is called at most once a second, only while a board is open or /view is asked for, and
	// must not wait. Nil: they are not shown.
	Sharding func() sharding.Picture
	// Effects has the board and /view show how many effects of this process wait, and for what:
	// Counts of the effect.Stats of its ledgers. It is called at most once a second, only while a
	// board is open or /view is asked for. No key of an effect is shown. Nil: they are not shown.
	Effects func() effect.Counts
	// Places has the board draw these shards on a map as well. It is not modified. Nil:
	// there is no map.
	Places map[string]Place
	// MaxStreams bounds the boards that follow at a time. Default, and most, 16.
	MaxStreams int
	// Hosts are names, without ports, by which requests may come over loopback beside
	// localhost and its addresses, such as that of a proxy on this machine. Default none.
	Hosts []string

	// Stops is the backend of the Elector: /may-stop reads it, and reserves places there. Nil:
	// there is no /may-stop.
	Stops core.Backend
	// StopAway is how many nodes may be away at a time, those included that are about to be
	// stopped. Default 1. The least of those counts that hold places or ask for one.
	StopAway int
	// StopMembers is how many nodes should run; those that are missing count as away. Default
	// 0: not known.
	StopMembers int
	// StopFor is how long a place lasts, if no other session of the node joins before. Default
	// 10 min, 1 s to 24 h. Members under a new label for each process, as those of a
	// Deployment, end no place by joining: give the time that it takes to replace one.
	StopFor time.Duration
	// StopToken is what /may-stop wants as a bearer token. Empty, the default: it answers only
	// requests over loopback or a Unix socket that no proxy passed on.
	StopToken string
}

// viewJSON is the answer of /view.
type viewJSON struct {
	Node      string `json:"node"`
	Session   string `json:"session,omitempty"`
	Trusted   bool   `json:"trusted"`
	Halted    string `json:"halted,omitempty"` // why nothing is granted any more
	Leaving   bool   `json:"leaving"`          // a planned stop has begun
	Contended int    `json:"contended"`        // shards that this member contends for
	// Ineligible is why this member is not eligible; left out if it is.
	Ineligible string `json:"ineligible,omitempty"`
	// Trouble is what somebody has to mend about this member: see core.View.
	Trouble string `json:"trouble,omitempty"`
	// TrustRemaining is how long the own leases last if no heartbeat succeeds any more.
	TrustRemaining string       `json:"trust_remaining,omitempty"`
	Members        []memberJSON `json:"members"`
	// MoreMembers: there are members beside these, whose names and metadata are long.
	MoreMembers bool `json:"more_members,omitempty"`
	// Shards are the first, or those after ?after=NAME; ?shard=NAME shows one only.
	Shards []shardJSON `json:"shards"`
	More   bool        `json:"more,omitempty"` // there are shards behind these
	// Unowned and Reserved count, of all shards, those that nobody serves, as
	// core.View.Unowned does: the reserved ones, Tenure's own, apart.
	Unowned  int `json:"unowned"`
	Reserved int `json:"unowned_reserved"`
	// Quarantined counts, of all shards, those in quarantine, as core.View.Quarantined does.
	Quarantined int         `json:"quarantined"`
	Leases      []leaseJSON `json:"leases"`     // of this member; as many as shards at most
	Stuck       []string    `json:"stuck"`      // shards whose handler did not return in time; at most 100
	LastMoves   []moveJSON  `json:"last_moves"` // of this member, oldest first
	// Damaged are records of the store that cannot be read, at most 64; DamagedTotal
	// counts all that were found since the start. See core.View.
	Damaged      []*core.DamagedError `json:"damaged,omitempty"`
	DamagedTotal int                  `json:"damaged_total"`
	// Refused counts writes that were refused by their fence, Notes are the newest of what
	// the Journal has, oldest first, and Lag is a follower's. See Options.
	Refused uint64   `json:"refused,omitempty"`
	Notes   []Note   `json:"notes,omitempty"`
	Lag     *lagJSON `json:"lag,omitempty"`
	// Ranges are those of the keyspace, in the order of hashes: of more than 256, neighbours are
	// combined. See Options.Sharding.
	Ranges []rangeJSON `json:"ranges,omitempty"`
	// Effects are those of this process that wait. See Options.Effects.
	Effects *effectsJSON `json:"effects,omitempty"`
}

// lagJSON is how far a follower is behind.
type lagJSON struct {
	Entries int64   `json:"entries"` // known and not applied
	Seconds float64 `json:"seconds"` // since the oldest of them is known
}

// memberJSON is a member that lives.
type memberJSON struct {
	Node     string            `json:"node"`
	Session  string            `json:"session"`
	TTL      string            `json:"ttl"`
	Priority int32             `json:"priority"`
	Weight   int32             `json:"weight"`
	Draining bool              `json:"draining,omitempty"`
	Silent   bool              `json:"silent,omitempty"` // no heartbeat was seen for its TTL
	Meta     map[string]string `json:"meta,omitempty"`
	// Ineligible is why it is not eligible; left out if it is.
	Ineligible string `json:"ineligible,omitempty"`
	// Trouble is what it says that somebody has to mend.
	Trouble string `json:"trouble,omitempty"`
	// SinceHeartbeat is how long ago this member saw its last heartbeat, where it watches
	// that member.
	SinceHeartbeat string `json:"since_heartbeat,omitempty"`
	// Load is the sum of what its shards have, as far as it is known, and its capacity, if it has
	// one; left out if no load is known. See Options.Sharding.
	Load *memberShares `json:"load,omitempty"`
}

// shardJSON is a shard and its owner. Without a node, no member serves it at present.
type shardJSON struct {
	Shard   string     `json:"shard"`
	Node    string     `json:"node,omitempty"`
	Session string     `json:"session,omitempty"`
	Token   core.Token `json:"token"`
	// Aside is why the shard is not meant to have an owner, and AsideUntil when it is meant to
	// have one again, as in quarantine; left out if it is, and if it never is.
	Aside      string    `json:"aside,omitempty"`
	AsideUntil time.Time `json:"aside_until,omitzero"`
	// Load is left out if it is not known. See Options.Sharding.
	Load *float64 `json:"load,omitempty"`
	// Elsewhere is the zone that the shard prefers, where its owner is in another one.
	Elsewhere string `json:"elsewhere,omitempty"`
}

// leaseJSON is a lease of this member.
type leaseJSON struct {
	Shard string     `json:"shard"`
	Token core.Token `json:"token"`
	State string     `json:"state"`
	Since time.Time  `json:"since"`
}

// moveJSON is something that happened to a lease of this member, and why.
type moveJSON struct {
	At     time.Time  `json:"at"`
	Shard  string     `json:"shard"`
	Token  core.Token `json:"token"`
	Kind   string     `json:"kind"`
	Reason string     `json:"reason,omitempty"`
}

// statusJSON is the answer of /healthz, /livez and /readyz. One that is OK may have reasons to look.
type statusJSON struct {
	OK      bool     `json:"ok"`
	Reasons []string `json:"reasons,omitempty"`
}

// leaderJSON is the answer of /leader.
type leaderJSON struct {
	Leader bool `json:"leader"` // this member serves the shard
	shardJSON
}

// problemJSON is the answer to a request that cannot be served.
type problemJSON struct {
	Error string `json:"error"`
}

// Handler returns a handler for the paths of the package comment, of a
// *core.Elector. Safe for concurrent use.
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
		// A ResponseWriter that has no deadline leaves it to its server.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(streamPatience))
		if probes[r.URL.Path] || addressed(w, r, h.hosts) {
			mux.ServeHTTP(w, r)
		}
	})
}

// probes are the paths that an orchestrator asks, by whatever name.
var probes = map[string]bool{"/healthz": true, "/livez": true, "/readyz": true}

// CheckHost is a handler that refuses over loopback what Handler refuses, for what is
// served beside it, such as metrics: a Host that is neither localhost, an address of
// loopback nor one of hosts, which are names without ports.
func CheckHost(next http.Handler, hosts ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if addressed(w, r, hosts) {
			next.ServeHTTP(w, r)
		}
	})
}

// addressed reports whether a request over loopback names this machine, and answers any
// other: a page of another site whose name was pointed at loopback names that site.
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

// here reports whether a Host is localhost, an address of loopback, or one of the names.
func here(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	at, _ := netip.ParseAddr(host)
	return at.Unmap().IsLoopback() || strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(host, name) })
}

// reads reports whether a request only reads, and answers any other.
func reads(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	reply(w, http.StatusMethodNotAllowed, problemJSON{Error: "use GET: this handler changes nothing"})
	return false
}

// Bounds of an answer. Together they keep it below 2 MiB.
const (
	maxShards  = 1000
	maxStuck   = 100
	maxMembers = 512 << 10 // bytes of what members told, as JSON
	maxReason  = 1000      // bytes of an error
	maxAside   = 100       // bytes of why a shard is set aside
)

type handler struct {
	source     Source
	limit      int
	needsStore bool
	journal    *Journal // nil works
	lagOf      func() (int64, time.Duration)
	places     map[string]Place
	hosts      []string
	streams    streams

	mu      sync.Mutex
	counted *core.View // of which the numbers are
	counts  counts

	sharding   func() sharding.Picture // may be nil
	sharesMu   sync.Mutex
	shares     *shares
	sharesNext time.Time

	effects effects
}

// counts are those of a View that look at every shard.
type counts struct{ unowned, reserved, quarantined int }

// count counts once for each snapshot.
func (h *handler) count(v *core.View) counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counted != v {
		h.counts.unowned, h.counts.reserved = v.Unowned()
		h.counts.quarantined = v.Quarantined()
		h.counted = v
	}
	return h.counts
}

func (h *handler) newFeed() *feed { return &feed{h: h, owners: make(map[core.SessionID]int)} }

// trust and heartbeats are the Source's, if it has them.
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

// reason is an error's text, which may have come from a store.
func reason(err error) string { return bounded(err.Error()) }

// meta is what the application says of a member.
func meta(m *core.Member) map[string]string {
	if m.Ineligible() == "" && m.Trouble() == "" {
		return m.Meta
	}
	own := maps.Clone(m.Meta)
	delete(own, driver.IneligibleKey)
	delete(own, driver.TroubleKey)
	return own
}

// size is more than what a member takes in an answer.
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
	_ = out.Encode(body) // a client that is gone needs no answer
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

// stuck has a reason for each handler that did not return, as far as an answer may have them.
func stuck(v *core.View) (reasons []string) {
	all := v.Stuck()
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
		Aside: cut(o.Aside.Why, maxAside), AsideUntil: o.Aside.Until}
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
	leases, stuck := v.Leases, v.Stuck()
	if name := q.Get("shard"); name != "" { // both are sorted by it
		from := sort.Search(len(shards), func(i int) bool { return shards[i].Shard >= name })
		to := sort.Search(len(shards), func(i int) bool { return shards[i].Shard > name })
		shards = shards[from:to]
		from = sort.Search(len(leases), func(i int) bool { return string(leases[i].Fence.Shard) >= name })
		to = sort.Search(len(leases), func(i int) bool { return string(leases[i].Fence.Shard) > name })
		leases = leases[from:to]
	}
	out := viewJSON{
		Node: v.Node, Session: string(v.Session), Trusted: v.Trusted, Leaving: v.Leaving, Ineligible: v.Ineligible, Trouble: bounded(v.Trouble), Contended: v.Contended, More: len(shards) > limit,
		// Empty lists rather than null.
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
	if !crossSite(r) { // another site's page, which cannot read this, has the store read for nobody
		h.shared(v).add(&out)
	}
	for _, l := range leases[:min(h.limit, len(leases))] {
		out.Leases = append(out.Leases, leaseJSON{Shard: string(l.Fence.Shard), Token: l.Fence.Token, State: string(l.State), Since: l.Since})
	}
	out.LastMoves = moves(v.Moves)
	return http.StatusOK, out
}

// members are those of a view as far as they fit, with the ages of their heartbeats.
func members(v *core.View, beats map[core.SessionID]time.Duration) (list []memberJSON, more bool) {
	list = []memberJSON{}
	left := maxMembers
	for i := range v.Members {
		m := &v.Members[i]
		if left -= size(m); left < 0 {
			return list, true
		}
		out := memberJSON{
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
	return list, false
}
