package sharding

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/errtext"
)

// Route is the destination of requests for a shard.
type Route struct {
	Shard   string
	Session core.SessionID
	Token   core.Token // the client sends it with the request; an owner with a different token refuses the request
	Node    string
	Meta    map[string]string // metadata of the owner, such as its address; do not modify it
	Self    bool              // this process owns the shard
}

// ErrNoOwner means that no living member currently owns the shard. Nothing was done, and the caller
// may try again soon.
var ErrNoOwner error = errtext.NotApplied("shard has no owner at present")

// Router finds the owner of a shard in this process's view, without I/O. An outdated answer is
// harmless, because the fence refuses late writes. The process need not own any shard. If the
// process's Elector contends for no shard, it only observes. A Router is safe for concurrent use.
type Router struct {
	e *core.Elector
	m *Manager

	mu      sync.Mutex
	view    *core.View
	looked  time.Time
	members map[core.SessionID]*core.Member
}

// A view of up to routeAge is reused, because computing a new view takes milliseconds with very
// many shards.
const routeAge = 5 * time.Millisecond

// NewRouter returns a Router that uses an Elector and the same process's Manager. The Manager knows
// the map of the keyspace's ranges. If m is nil, the Router can route only by shard.
func NewRouter(e *core.Elector, m *Manager) (*Router, error) {
	if e == nil {
		return nil, fmt.Errorf("tenure: %w: the elector is nil", core.ErrInvalid)
	}
	return &Router{e: e, m: m}, nil
}

// Owner returns the destination of requests for a shard. If no living member owns the shard, the
// error matches ErrNoOwner.
func (r *Router) Owner(shard string) (Route, error) {
	v, members := r.look()
	return route(v, members, shard)
}

func route(v *core.View, members map[core.SessionID]*core.Member, shard string) (Route, error) {
	o, ok := v.Owner(shard)
	m := members[o.Session]
	if !ok || m == nil {
		return Route{}, fmt.Errorf("tenure: shard %q: %w", shard, ErrNoOwner)
	}
	return Route{Shard: shard, Session: o.Session, Token: o.Token, Node: m.Node, Meta: m.Meta, Self: o.Session == v.Session}, nil
}

// OwnerOfKey returns the destination of requests for a key: the owner of the key's shard. While the
// key's range is moving to that shard, the owner refuses the key with ErrMoved, and the caller
// should try again shortly. If the map of ranges is not known yet, the error matches ErrNoOwner.
func (r *Router) OwnerOfKey(key string) (Route, error) {
	shard, err := r.Shard(key)
	if err != nil {
		return Route{}, err
	}
	return r.Owner(shard)
}

// Shard returns a key's shard according to the map of ranges that this process knows. Its errors
// are those of OwnerOfKey.
func (r *Router) Shard(key string) (string, error) {
	m := r.Map()
	switch {
	case m != nil:
		return m.Shard(key), nil
	case r.m == nil || r.m.o.Keyspace.Name == "":
		return "", fmt.Errorf("tenure: %w: the router has no keyspace: give NewRouter a Manager with one", core.ErrInvalid)
	}
	return "", fmt.Errorf("tenure: the map of ranges is not known yet: %w", ErrNoOwner)
}

// Map returns the Manager's map of ranges, or nil if the map is not known yet or there is no
// keyspace.
func (r *Router) Map() *Map {
	if r.m == nil {
		return nil
	}
	return r.m.Map()
}

func (r *Router) look() (*core.View, map[core.SessionID]*core.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); r.view == nil || now.Sub(r.looked) >= routeAge {
		r.looked = now
		r.set(r.e.View())
	}
	return r.view, r.members
}

func (r *Router) set(v *core.View) {
	if v == r.view {
		return
	}
	r.view, r.members = v, make(map[core.SessionID]*core.Member, len(v.Members))
	for i := range v.Members {
		r.members[v.Members[i].Session] = &v.Members[i]
	}
}

// Changes is a subscription to ownership changes. See Router.Changes. Only one goroutine may use a
// Changes.
type Changes struct {
	r    *Router
	last *core.View
}

// Changes starts a subscription. A subscription's first Next returns every known shard.
func (r *Router) Changes() *Changes { return &Changes{r: r} }

// Next waits for owners to change and returns the changed shards with their current owners. If a
// shard has no owner, its Session is empty. Next merges intermediate changes, but never omits a
// changed shard, even if the caller is slow. The error is ctx's error, or matches core.ErrStopped.
func (c *Changes) Next(ctx context.Context) ([]Route, error) {
	for {
		v, err := c.r.e.WaitView(ctx, c.last)
		if err != nil {
			return nil, err
		}
		c.r.mu.Lock()
		c.r.set(v)
		c.r.looked = time.Now()
		members := c.r.members
		c.r.mu.Unlock()
		var out []Route
		var old []core.Ownership
		if c.last != nil {
			old = c.last.Shards
		}
		vanished := func(to string) { // a free lock has no record; if to is "", all remaining shards vanished
			for ; len(old) > 0 && (to == "" || old[0].Shard < to); old = old[1:] {
				if old[0].Session != "" {
					out = append(out, Route{Shard: old[0].Shard, Token: old[0].Token})
				}
			}
		}
		for _, o := range v.Shards { // both are sorted by name
			vanished(o.Shard)
			if len(old) > 0 && old[0].Shard == o.Shard {
				was := old[0]
				if old = old[1:]; was == o {
					continue
				}
			}
			x, err := route(v, members, o.Shard)
			if err != nil {
				x = Route{Shard: o.Shard, Token: o.Token}
			}
			out = append(out, x)
		}
		vanished("")
		c.last = v
		if len(out) > 0 {
			return out, nil
		}
	}
}
