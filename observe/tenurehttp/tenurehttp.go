// Package tenurehttp shows an Elector over HTTP to load balancers, orchestrators and people. All
// paths except /may-stop are read-only.
//
//	mux.Handle("/tenure/", http.StripPrefix("/tenure", tenurehttp.Handler(elector, nil)))
//
//	GET /healthz         200, or 503 in a state that may need a restart or a person: a
//	                     handler is stuck, core.View.Trouble, or the member is halted
//	GET /livez           200, or 503 while a handler is stuck. Let this path decide about
//	                     restarts: a halted member remembers what the store answered, and
//	                     with some restored stores only that member notices
//	GET /readyz          200 while this member takes part: it has joined if it contends,
//	                     or has news from the store; 503 from the start of a drain or
//	                     stop, and while halted. See Options.NeedsStore
//	GET /leader?shard=s  200 on the one member that serves shard s; elsewhere 503 with its
//	                     owner; 404 for a shard that no member contends for
//	GET /view            members, shards, own leases and last moves, with their reasons
//	GET /                the board: a page that shows all this and follows it
//	GET /events          the source of the page: server-sent events
//	GET /may-stop        200 if this node may be stopped now, and a place is reserved for it;
//	                     409 with the nodes that are away if not; 503 without an answer.
//	                     Only with Options.Stops
//
// The handler answers everything except /may-stop without I/O, from Elector.View and Options, as
// JSON. The answer is a snapshot: a process that was stopped may answer 200 once more after it was
// superseded. A load balancer may rely on the answer. A write may not, because only the lease in
// the store decides.
//
// An answer has at most 2 MiB. If the namespace holds more, lists end early and say so.
//
// The board is for people. It shows members with their heartbeats, every shard in its owner's
// colour, moves with their reasons, refused writes and lag. With Options.Sharding, it also shows
// loads and the ranges of the keyspace. With Options.Effects, it shows the number of effects that
// wait. It loads nothing from another host, which its Content-Security-Policy forbids. Its
// address must end in a slash, as in the example. It shows the first 20,000 shards.
//
// A stream of /events sends changes at most five times a second. It ends when its server ends,
// when the client takes nothing for 10 s, or after 15 min. The page then opens another stream. If
// there are more streams than Options.MaxStreams, the newest is refused. However, if its address
// has fewer streams than another, the address with the most streams loses its oldest one instead.
//
// /may-stop is for preStop hooks and controllers that update members one by one. It asks the store
// as "tenure may-stop" does, but only for the node of this member. This includes writes to the
// store. Asking again keeps the place. It accepts only GET without parameters, and no request of a
// browser. It answers requests over a Unix socket or, with Options.StopToken, requests with that
// token. It asks the store at most once a second, and writes at most twice in Options.StopFor.
// Between two questions, it repeats a no. Before it says yes, it asks again.
//
// The other paths take only GET and HEAD and change nothing. They show names, metadata and
// addresses of members, so serve them on loopback, or where only operators reach them. Over
// loopback, the handler refuses a Host that is neither localhost, a loopback address nor one of
// Options.Hosts. Otherwise, another site's page could read the answers through a DNS name that
// points to loopback. /healthz, /livez and /readyz take any Host.
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
	"github.com/tenure-go/tenure/sharding"
)

// Source is what a Handler shows, usually a *core.Elector. If it has the methods TrustRemaining
// and Heartbeats of an Elector, the Handler shows their results, too.
type Source interface {
	// View returns the newest snapshot: see core.Elector.View.
	View() *core.View
}

// Options are the options of a Handler. Nil means the defaults.
type Options struct {
	// MaxShards limits the shards, and the leases, in one answer of /view. Default and maximum:
	// 1000. Ask for the other shards with ?after=NAME.
	MaxShards int
	// NeedsStore makes /readyz answer 503 while the session is not trusted, too. This includes
	// every outage of the store. By default, such a member stays ready, because no other member
	// could do better, and the answer has the reason.
	NeedsStore bool
	// Journal records refused writes and the events of members. If it is nil, they are not
	// shown.
	Journal *Journal
	// Lag returns how far a follower is behind, as follower.Tailer.Lag does. It returns the number
	// of entries known and not applied, and how long the oldest of them has been known. It must
	// not wait. If it is nil, no lag is shown.
	Lag func() (entries int64, oldest time.Duration)
	// Sharding, if set, lets the board and /view show the ranges of a keyspace, and the load of
	// shards and members. Use Manager.Picture of the Manager on this Elector. Its comment describes
	// its calls to the store. The Handler calls it at most once a second, and only while a board is
	// open or /view is asked for. It must not wait.
	Sharding func() sharding.Picture
	// Effects, if set, lets the board and /view show how many effects of this process wait, and for
	// what. Use the method Counts of the ledgers' effect.Stats. The Handler calls it at most once a
	// second, and only while a board is open or /view is asked for. No key of an effect is shown.
	Effects func() effect.Counts
	// Places, if set, lets the board draw these shards on a map, too. The Handler does not modify
	// it.
	Places map[string]Place
	// MaxStreams limits the number of boards that follow concurrently. Default and maximum: 16.
	MaxStreams int
	// Hosts are further names, without ports, that a request over loopback may have as its Host.
	// An example is the name of a proxy on this machine. Default: none.
	Hosts []string

	// Stops is the backend of the Elector. The path /may-stop reads it, and reserves places in
	// it. If Stops is nil, there is no /may-stop.
	Stops core.Backend
	// StopAway is the number of nodes that may be away at a time, including the node that is about
	// to stop. Default 1. The smallest number among this request and the reserved places counts.
	StopAway int
	// StopMembers is the number of nodes that should run; missing nodes count as away. Default 0:
	// unknown.
	StopMembers int
	// StopFor is how long a place lasts, if no other session of the node joins before. Default 10
	// min, 1 s to 24 h. If each process has a new label, as in a Deployment, joining does not end a
	// place. Set StopFor to the time that a replacement takes.
	StopFor time.Duration
	// StopToken is the bearer token that /may-stop requires. Default: none; /may-stop then answers
	// only requests over a Unix socket that no proxy passed on.
	StopToken string
}

// viewJSON is the answer of /view.
type viewJSON struct {
	Node      string `json:"node"`
	Session   string `json:"session,omitempty"`
	Trusted   bool   `json:"trusted"`
	Halted    string `json:"halted,omitempty"` // why the member grants no more leases
	Leaving   bool   `json:"leaving"`          // a planned stop has begun
	Contended int    `json:"contended"`        // shards that this member contends for
	// Ineligible is why this member is not eligible. It is left out if the member is eligible.
	Ineligible string `json:"ineligible,omitempty"`
	// Trouble is a problem of this member that a person must solve: see core.View.
	Trouble string `json:"trouble,omitempty"`
	// TrustRemaining is how long the member's leases last if no further heartbeat succeeds.
	TrustRemaining string       `json:"trust_remaining,omitempty"`
	Members        []memberJSON `json:"members"`
	// MoreMembers is true if members are left out because names and metadata are long.
	MoreMembers bool `json:"more_members,omitempty"`
	// Shards are the first shards, or those after ?after=NAME, or the one of ?shard=NAME.
	Shards []shardJSON `json:"shards"`
	More   bool        `json:"more,omitempty"` // there are more shards
	// Unowned and Reserved count the shards without an owner, as core.View.Unowned does: Reserved
	// counts Tenure's own.
	Unowned  int `json:"unowned"`
	Reserved int `json:"unowned_reserved"`
	// Quarantined counts the shards in quarantine, as core.View.Quarantined does.
	Quarantined int         `json:"quarantined"`
	Leases      []leaseJSON `json:"leases"`     // of this member; at most as many as shards
	Stuck       []string    `json:"stuck"`      // shards whose handler did not return in time; at most 100
	LastMoves   []moveJSON  `json:"last_moves"` // of this member, oldest first
	// Damaged are unreadable records of the store, at most 64. DamagedTotal counts all found since
	// the start: see core.View.
	Damaged      []*core.DamagedError `json:"damaged,omitempty"`
	DamagedTotal int                  `json:"damaged_total"`
	// Refused counts writes that their fence refused. Notes are the newest of the Journal, oldest
	// first. Lag is a follower's: see Options.
	Refused uint64   `json:"refused,omitempty"`
	Notes   []Note   `json:"notes,omitempty"`
	Lag     *lagJSON `json:"lag,omitempty"`
	// Ranges are the ranges of the keyspace, in the order of hashes. If there are more than 256,
	// neighbours are combined: see Options.Sharding.
	Ranges []rangeJSON `json:"ranges,omitempty"`
	// Effects are the effects of this process that wait: see Options.Effects.
	Effects *effectsJSON `json:"effects,omitempty"`
}

// lagJSON is how far a follower is behind.
type lagJSON struct {
	Entries int64   `json:"entries"` // known and not applied
	Seconds float64 `json:"seconds"` // for which the oldest of them has been known
}

// memberJSON is a living member.
type memberJSON struct {
	Node     string            `json:"node"`
	Session  string            `json:"session"`
	TTL      string            `json:"ttl"`
	Priority int32             `json:"priority"`
	Weight   int32             `json:"weight"`
	Draining bool              `json:"draining,omitempty"`
	Silent   bool              `json:"silent,omitempty"` // no heartbeat was seen for its TTL
	Meta     map[string]string `json:"meta,omitempty"`
	// Ineligible is why the member is not eligible. It is left out if the member is eligible.
	Ineligible string `json:"ineligible,omitempty"`
	// Trouble is a problem of the member that a person must solve.
	Trouble string `json:"trouble,omitempty"`
	// SinceHeartbeat is how long ago this member saw the other member's last heartbeat, if it
	// watches that member.
	SinceHeartbeat string `json:"since_heartbeat,omitempty"`
	// Load is the sum of the known loads of the member's shards, and its capacity, if it has one.
	// It is left out if no load is known: see Options.Sharding.
	Load *memberShares `json:"load,omitempty"`

	ttl time.Duration
}

// shardJSON is a shard and its owner. Node is empty while no member serves it.
type shardJSON struct {
	Shard   string     `json:"shard"`
	Node    string     `json:"node,omitempty"`
	Session string     `json:"session,omitempty"`
	Token   core.Token `json:"token"`
	// Aside is why the shard is meant to have no owner. It is left out if the shard should have
	// one. AsideUntil is the end of that, for example of a quarantine. It is left out if there is
	// none.
	Aside      string    `json:"aside,omitempty"`
	AsideUntil time.Time `json:"aside_until,omitzero"`
	// Load is left out if it is unknown: see Options.Sharding.
	Load *float64 `json:"load,omitempty"`
	// Elsewhere is the zone that the shard prefers, if its owner is in another one.
	Elsewhere string `json:"elsewhere,omitempty"`
}

// leaseJSON is a lease of this member.
type leaseJSON struct {
	Shard string     `json:"shard"`
	Token core.Token `json:"token"`
	State string     `json:"state"`
	Since time.Time  `json:"since"`
}

// moveJSON is an event of a lease of this member, and its reason.
type moveJSON struct {
	At     time.Time  `json:"at"`
	Shard  string     `json:"shard"`
	Token  core.Token `json:"token"`
	Kind   string     `json:"kind"`
	Reason string     `json:"reason,omitempty"`
}

// statusJSON is the answer of /healthz, /livez and /readyz. It may have reasons even if OK is true.
type statusJSON struct {
	OK      bool     `json:"ok"`
	Reasons []string `json:"reasons,omitempty"`
}

// leaderJSON is the answer of /leader.
type leaderJSON struct {
	Leader bool `json:"leader"` // this member serves the shard
	shardJSON
}

// problemJSON is the answer to a refused request.
type problemJSON struct {
	Error string `json:"error"`
}

// Handler returns a handler for the paths of the package comment. It is safe for concurrent use.
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
		// A ResponseWriter without deadlines leaves them to its server.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(streamPatience))
		if probes[r.URL.Path] || addressed(w, r, h.hosts) {
			mux.ServeHTTP(w, r)
		}
	})
}

// probes are the paths that an orchestrator asks, under any Host.
var probes = map[string]bool{"/healthz": true, "/livez": true, "/readyz": true}

// CheckHost returns a handler that refuses the same Hosts over loopback as Handler does. It is for
// other pages of the same server, such as metrics. The hosts are names without ports.
func CheckHost(next http.Handler, hosts ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if addressed(w, r, hosts) {
			next.ServeHTTP(w, r)
		}
	})
}

// addressed reports whether a request over loopback names this machine. If not, it answers the
// request. A page of another site whose name points to loopback sends the name of that site.
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

// here reports whether a Host is localhost, a loopback address, or one of the names.
func here(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	at, _ := netip.ParseAddr(host)
	return at.Unmap().IsLoopback() || strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(host, name) })
}

// reads reports whether a request only reads. If not, it answers the request.
func reads(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	reply(w, http.StatusMethodNotAllowed, problemJSON{Error: "use GET: this handler changes nothing"})
	return false
}

// Limits of an answer. Together they keep it below 2 MiB.
const (
	maxShards  = 1000
	maxStuck   = 100
	maxMembers = 512 << 10 // bytes of the members' own data, as JSON
	maxReason  = 1000      // bytes of an error
	maxAside   = 100       // bytes of why a shard is set aside
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
	counted *core.View // the view that counts were taken from
	counts  counts

	sharding   func() sharding.Picture // may be nil
	sharesMu   sync.Mutex
	shares     *shares
	sharesNext time.Time

	effects effects
}

// counts are the numbers that need a look at every shard of a View.
type counts struct{ unowned, reserved, quarantined, known int }

// count counts once for each snapshot.
func (h *handler) count(v *core.View) counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.counted != v {
		h.counts.unowned, h.counts.reserved = v.Unowned()
		h.counts.quarantined, h.counts.known = v.Quarantined(), 0
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

// trust and heartbeats return the results of the Source's methods, if it has them.
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

// reason returns the text of an error, which may have come from a store.
func reason(err error) string { return bounded(err.Error()) }

// meta returns the application's metadata of a member.
func meta(m *core.Member) map[string]string {
	if m.Ineligible() == "" && m.Trouble() == "" {
		return m.Meta
	}
	own := maps.Clone(m.Meta)
	delete(own, mark.IneligibleKey)
	delete(own, mark.TroubleKey)
	return own
}

// size returns an upper bound of the bytes that a member takes in an answer.
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

// stuck returns a reason for each stuck handler, up to the limit of an answer.
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
	leases, stuck := v.Leases, v.Stuck()
	if name := q.Get("shard"); name != "" { // both are sorted by shard
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
		// Lists are empty rather than null.
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
	if !crossSite(r) { // another site's page cannot read the answer, so the store is not read for it
		h.shared(v).add(&out)
	}
	for _, l := range leases[:min(h.limit, len(leases))] {
		out.Leases = append(out.Leases, leaseJSON{Shard: string(l.Fence.Shard), Token: l.Fence.Token, State: string(l.State), Since: l.Since})
	}
	out.LastMoves = moves(v.Moves, reason)
	return http.StatusOK, out
}

// members returns the members of a view that fit, always including this one, with the ages of
// their heartbeats.
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
