package route

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
	"github.com/tenure-go/tenure/internal/problem"
	"github.com/tenure-go/tenure/internal/seam"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
)

// OwnersOptions configure NewOwners. Nil means the defaults.
type OwnersOptions struct {
	// AddressKeys lists the metadata keys whose addresses the map contains for each member. The
	// defaults are "http" and "grpc".
	AddressKeys []string
	// MaxWaiting is the maximum number of requests that wait for a change. The member answers
	// further requests immediately, with Retry-After. The default is 1000, and the maximum is
	// 100,000.
	MaxWaiting int
	// Authorize reports whether a request is allowed, for example by its credential. Other requests
	// are answered with 403. Nil, the default, allows all requests.
	Authorize func(r *http.Request) bool
}

// In answers that contain the map, this header's value is the number of seconds since the member
// last heard from the store.
const newsAge = "Tenure-News-Age"

const (
	maxWait       = 30 * time.Second       // the longest wait that a request may ask for
	lookEvery     = 5 * time.Millisecond   // the minimum time between versions
	lookShare     = 10                     // the same minimum as a multiple of the last look's duration
	rangesEvery   = 100 * time.Millisecond // time between two looks at the map of ranges while a request waits
	maxHistory    = 256                    // number of versions whose changes are kept
	ownersPatient = 30 * time.Second       // how long a client may take to receive an answer
	gzipFrom      = 4 << 10                // minimum size, in bytes, of an answer that is compressed
	maxEncoded    = 16                     // maximum number of encoded answers that are kept
	maxVersion    = 80                     // maximum size of a version, in bytes
	maxWaiting    = 100_000
)

// ownersJSON contains the whole map, or the changes since a version.
type ownersJSON struct {
	Version string `json:"version"`
	// Full reports whether the answer is the whole map. A shard that the whole map lacks has no
	// owner. A shard that another answer lacks has not changed.
	Full bool `json:"full"`
	// Number is the range map's number. Keyspace is nil if the member has no keyspace.
	Number   int64         `json:"number,omitempty"`
	Keyspace *keyspaceJSON `json:"keyspace,omitempty"`
	// Members maps nodes to their addresses. Members is nil if no addresses changed.
	Members map[string]map[string]string `json:"members,omitempty"`
	Shards  []ownedJSON                  `json:"shards"`
}

type keyspaceJSON struct {
	Name   string `json:"name"`
	Hash   string `json:"hash"`
	Digits int    `json:"digits"`
}

// A shard without a range has no keys. A shard without a node has no owner.
type ownedJSON struct {
	Shard string        `json:"shard"`
	Range *assign.Range `json:"range,omitempty"`
	Node  string        `json:"node,omitempty"`
	Token core.Token    `json:"token,omitempty"`
}

func (x ownedJSON) same(y ownedJSON) bool {
	return x.Node == y.Node && x.Token == y.Token && (x.Range == nil) == (y.Range == nil) && (x.Range == nil || *x.Range == *y.Range)
}

// An owned is immutable.
type owned struct {
	n        int64 // number of the version
	number   int64
	keyspace *keyspaceJSON
	members  map[string]map[string]string
	shards   []ownedJSON // sorted by name
}

type step struct {
	n       int64
	members bool
	shards  []string
}

type owners struct {
	e        *core.Elector
	r        *sharding.Router
	o        OwnersOptions
	instance string        // the prefix of this process's versions
	watch    chan struct{} // contains an element while a request looks for changes

	mu      sync.Mutex
	view    *core.View // the view from which now was made
	ranges  *sharding.Map
	next    time.Time // time of the next look
	now     *owned
	changed chan struct{} // closed when there is a new version
	history []step        // oldest first
	kept    int           // number of shards' names in history
	encoded map[string][]byte
	waiting int
	stopped map[*http.Server]context.Context // Shutdown ends the context
}

// NewOwners returns a handler that serves the map of owners to Clients, from this process's view
// and without I/O. The package comment describes the answers. The Router r must use the Elector e.
// The caller still owns the Elector and the Router. The error matches core.ErrInvalid.
func NewOwners(e *core.Elector, r *sharding.Router, o *OwnersOptions) (http.Handler, error) {
	if e == nil || r == nil {
		return nil, fmt.Errorf("tenure: %w: the map of owners needs an elector and a router", core.ErrInvalid)
	}
	var c OwnersOptions
	if o != nil {
		c = *o
	}
	if c.MaxWaiting < 0 || c.MaxWaiting > maxWaiting {
		return nil, fmt.Errorf("tenure: %w: MaxWaiting %d is outside 0 to %d", core.ErrInvalid, c.MaxWaiting, maxWaiting)
	}
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 1000)
	if c.AddressKeys = slices.Clone(c.AddressKeys); len(c.AddressKeys) == 0 {
		c.AddressKeys = []string{defaultAddressKey, "grpc"}
	}
	return &owners{e: e, r: r, o: c, instance: rand.Text()[:12], watch: make(chan struct{}, 1),
		changed: make(chan struct{}), encoded: map[string][]byte{}, stopped: map[*http.Server]context.Context{}}, nil
}

// ServeHTTP implements http.Handler.
func (o *owners) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refuse := func(status int, title, detail string) {
		answer(w, problem.Document{Type: problemInvalid, Status: status, Title: title, Detail: detail})
	}
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		refuse(http.StatusMethodNotAllowed, "the map of owners is read", "use GET")
		return
	case r.Header.Get("Sec-Fetch-Site") == "cross-site":
		refuse(http.StatusForbidden, "the map of owners is not for pages of other sites", "")
		return
	case o.o.Authorize != nil && !o.o.Authorize(r):
		refuse(http.StatusForbidden, "the caller may not read the map of owners", "")
		return
	}
	after, wait, err := ownersQuery(r)
	if err != nil {
		refuse(http.StatusBadRequest, "the query cannot be read", err.Error())
		return
	}
	// If w does not support deadlines, only the server limits how long the write takes.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait + ownersPatient))
	now, crowded, err := o.await(r, after, wait)
	if err != nil {
		answer(w, problem.Document{Type: problemUnowned, Status: http.StatusServiceUnavailable, Title: "this member does not know the owners", Detail: err.Error()})
		return
	}
	h := w.Header()
	version := o.version(now.n)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("ETag", `W/"`+version+`"`)
	age, _ := o.e.Internal(seam.Key{}).News()
	h.Set(newsAge, strconv.FormatFloat(age.Seconds(), 'f', 3, 64))
	if crowded {
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	switch version {
	case after:
		w.WriteHeader(http.StatusNoContent)
		return
	case strings.Trim(strings.TrimPrefix(r.Header.Get("If-None-Match"), "W/"), `"`):
		w.WriteHeader(http.StatusNotModified)
		return
	}
	zip := strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
	body, zipped, err := o.body(now, after, zip)
	if err != nil {
		refuse(http.StatusInternalServerError, "the map of owners cannot be written", err.Error())
		return
	}
	h.Set("Content-Type", "application/json")
	h.Set("Vary", "Accept-Encoding")
	if zipped {
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // a client that has disconnected needs no answer
}

func ownersQuery(r *http.Request) (after string, wait time.Duration, err error) {
	q := r.URL.Query()
	if after = q.Get("after"); !validVersion(after) && after != "" {
		return "", 0, fmt.Errorf("after=%.40q is no version: use the one of an answer", after)
	}
	if text := q.Get("wait"); text != "" {
		if wait, err = time.ParseDuration(text); err != nil || wait < 0 {
			return "", 0, fmt.Errorf("wait=%.40q is no duration such as 10s", text)
		}
	}
	if r.Method == http.MethodHead {
		wait = 0
	}
	return after, min(wait, maxWait), nil
}

func validVersion(s string) bool {
	return s != "" && len(s) <= maxVersion && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '.' && c != '-'
	})
}

func (o *owners) version(n int64) string { return o.instance + "." + strconv.FormatInt(n, 10) }

// While the caller has the newest version, await waits. If too many requests were already waiting,
// crowded is true.
func (o *owners) await(r *http.Request, after string, wait time.Duration) (now *owned, crowded bool, err error) {
	now, changed, err := o.look()
	if err != nil || wait == 0 || o.version(now.n) != after {
		return now, false, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	stopped, ok := o.enter(r)
	if !ok {
		return now, true, nil
	}
	defer o.leave()
	defer context.AfterFunc(stopped, cancel)()
	for ctx.Err() == nil && o.version(now.n) == after {
		select {
		case o.watch <- struct{}{}: // one request looks for changes on behalf of all waiting requests
			o.watchOnce(ctx)
			<-o.watch
		case <-changed:
		case <-ctx.Done():
		}
		if now, changed, err = o.look(); err != nil {
			return nil, false, err
		}
	}
	return now, false, nil
}

func (o *owners) watchOnce(ctx context.Context) {
	o.mu.Lock()
	seen, next := o.view, o.next
	o.mu.Unlock()
	limit, cancel := context.WithTimeout(ctx, rangesEvery)
	defer cancel()
	_, _ = o.e.WaitView(limit, seen) // look reports errors
	sleep(ctx, time.Until(next))
}

// enter reserves a place for a request that waits. When the server shuts down, stopped ends.
func (o *owners) enter(r *http.Request) (stopped context.Context, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting >= o.o.MaxWaiting {
		return nil, false
	}
	o.waiting++
	server, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
	if server == nil {
		return context.Background(), true
	}
	stopped, known := o.stopped[server]
	if !known {
		var stop context.CancelFunc
		stopped, stop = context.WithCancel(context.Background())
		o.stopped[server] = stopped
		server.RegisterOnShutdown(stop)
	}
	return stopped, true
}

func (o *owners) leave() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting--
}

var errNoNews = errors.New("it has no news from the store yet")

// When there is a newer map, the channel is closed.
func (o *owners) look() (*owned, chan struct{}, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	began := time.Now()
	if o.now != nil && began.Before(o.next) {
		return o.now, o.changed, nil
	}
	v, ranges := o.e.View(), o.r.Map()
	switch _, err := o.r.Shard(""); {
	case v.Err != nil:
		return nil, nil, errors.New("it is halted")
	case v.Stopped:
		return nil, nil, errors.New("it is stopping")
	case errors.Is(err, sharding.ErrNoOwner), len(v.Members) == 0 && len(v.Shards) == 0:
		return nil, nil, errNoNews
	}
	if age, fresh := o.e.Internal(seam.Key{}).News(); !fresh {
		return nil, nil, fmt.Errorf("it has had no news from the store for %v", age.Round(time.Second))
	}
	if o.now == nil || v != o.view || ranges != o.ranges {
		o.view, o.ranges = v, ranges
		o.set(snapshot(v, ranges, o.o.AddressKeys))
	}
	took := time.Since(began)
	o.next = began.Add(max(lookEvery, lookShare*took))
	return o.now, o.changed, nil
}

// If the map has changed, set creates its next version. The caller holds o.mu.
func (o *owners) set(next *owned) {
	was := o.now
	if was == nil {
		o.now = next
		return
	}
	next.n = was.n + 1
	s := step{n: next.n, members: !maps.EqualFunc(was.members, next.members, maps.Equal), shards: differ(was.shards, next.shards)}
	moved := (was.keyspace == nil) != (next.keyspace == nil) || was.keyspace != nil && *was.keyspace != *next.keyspace
	if !moved && !s.members && len(s.shards) == 0 {
		return
	}
	if moved {
		o.history, o.kept = nil, 0
	} else {
		o.history, o.kept = append(o.history, s), o.kept+len(s.shards)
		for len(o.history) > maxHistory || o.kept > len(next.shards)+maxHistory {
			o.kept -= len(o.history[0].shards)
			o.history = slices.Delete(o.history, 0, 1)
		}
	}
	o.now = next
	clear(o.encoded)
	close(o.changed)
	o.changed = make(chan struct{})
}

// Both lists of shards are sorted by name.
func differ(was, next []ownedJSON) (names []string) {
	for i, k := 0, 0; i < len(was) || k < len(next); {
		switch {
		case k == len(next) || i < len(was) && was[i].Shard < next[k].Shard:
			names = append(names, was[i].Shard)
			i++
		case i == len(was) || next[k].Shard < was[i].Shard:
			names = append(names, next[k].Shard)
			k++
		default:
			if !was[i].same(next[k]) {
				names = append(names, next[k].Shard)
			}
			i, k = i+1, k+1
		}
	}
	return names
}

// The map of ranges may be nil.
func snapshot(v *core.View, ranges *sharding.Map, keys []string) *owned {
	s := &owned{members: map[string]map[string]string{}}
	nodes := make(map[core.SessionID]string, len(v.Members))
	for i := range v.Members {
		m := &v.Members[i]
		nodes[m.Session] = m.Node
		addresses := map[string]string{}
		for _, k := range keys {
			if a := m.Meta[k]; a != "" && len(a) <= maxAddress {
				addresses[k] = a
			}
		}
		s.members[m.Node] = addresses
	}
	at := map[string]int{}
	if ranges != nil {
		k := ranges.Keyspace
		s.number, s.keyspace = ranges.Number, &keyspaceJSON{k.Name, cmp.Or(k.Hash, keyspace.HashMixed), cmp.Or(k.Digits, 4)}
		s.shards = make([]ownedJSON, 0, ranges.Len())
		for shard, r := range ranges.All() {
			at[shard] = len(s.shards)
			s.shards = append(s.shards, ownedJSON{Shard: shard, Range: &r})
		}
	}
	for _, x := range v.Shards {
		node := nodes[x.Session]
		i, ranged := at[x.Shard]
		switch {
		case ranged && node != "":
			s.shards[i].Node, s.shards[i].Token = node, x.Token
		case node != "" && !strings.HasPrefix(x.Shard, "_"): // a shard without keys
			s.shards = append(s.shards, ownedJSON{Shard: x.Shard, Node: node, Token: x.Token})
		}
	}
	slices.SortFunc(s.shards, func(a, b ownedJSON) int { return cmp.Compare(a.Shard, b.Shard) })
	return s
}

// If after is empty, the caller has no version.
func (o *owners) body(now *owned, after string, zip bool) (body []byte, zipped bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	key, since := "full", int64(-1)
	if n, ok := strings.CutPrefix(after, o.instance+"."); ok && now == o.now {
		if n, err := strconv.ParseInt(n, 10, 64); err == nil && len(o.history) > 0 && n >= o.history[0].n-1 && n < now.n {
			key, since = strconv.FormatInt(n, 10), n
		}
	}
	body = o.encoded[key]
	if body == nil || now != o.now {
		if body, err = json.Marshal(o.answer(now, since)); err != nil {
			return nil, false, err
		}
		o.keep(now, key, body)
	}
	if !zip || len(body) < gzipFrom {
		return body, false, nil
	}
	if small := o.encoded[key+"z"]; small != nil && now == o.now {
		return small, true, nil
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err == nil {
		_, err = z.Write(body)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return nil, false, err
	}
	o.keep(now, key+"z", out.Bytes())
	return out.Bytes(), true, nil
}

// Other callers with the same version get the stored answer. The caller holds o.mu.
func (o *owners) keep(now *owned, key string, body []byte) {
	if now == o.now && (len(o.encoded) < maxEncoded || strings.HasPrefix(key, "full")) {
		o.encoded[key] = body
	}
}

// If since is -1, answer returns the whole map. The caller holds o.mu.
func (o *owners) answer(now *owned, since int64) *ownersJSON {
	out := &ownersJSON{Version: o.version(now.n), Full: since < 0, Number: now.number, Keyspace: now.keyspace}
	if since < 0 {
		out.Members, out.Shards = now.members, now.shards
		return out
	}
	changed := map[string]bool{}
	for _, s := range o.history {
		if s.n > since {
			if s.members {
				out.Members = now.members
			}
			for _, name := range s.shards {
				changed[name] = true
			}
		}
	}
	out.Shards = make([]ownedJSON, 0, len(changed))
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		x := ownedJSON{Shard: name}
		if i, ok := slices.BinarySearchFunc(now.shards, name, func(x ownedJSON, name string) int { return cmp.Compare(x.Shard, name) }); ok {
			x = now.shards[i]
		}
		out.Shards = append(out.Shards, x)
	}
	return out
}
