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
	Token   core.Token // to send with the request; an owner with another token refuses it
	Node    string
	Meta    map[string]string // of the owner, such as its address; do not modify it
	Self    bool              // this process owns it
}

// ErrNoOwner: no living member currently owns the shard, and nothing was done. Try again shortly.
var ErrNoOwner error = errtext.NotApplied("shard has no owner at present")

// Router finds the owner of a shard, from this process's view and without I/O. An answer may be out
// of date. That is harmless, because the owner's fence decides. The process need not own anything:
// an Elector that contends for nothing only observes. All methods are safe for concurrent use.
type Router struct {
	e *core.Elector
	m *Manager

	mu      sync.Mutex
	view    *core.View
	looked  time.Time
	members map[core.SessionID]*core.Member
}

// routeAge is the age up to which a view is used again, because making one takes milliseconds with
// very many shards.
const routeAge = 5 * time.Millisecond

// NewRouter returns a Router on an Elector and the Manager of the same process, which knows the
// map of the keyspace's ranges. Without a Manager, it routes by shard only.
func NewRouter(e *core.Elector, m *Manager) (*Router, error) {
	if e == nil {
		return nil, fmt.Errorf("tenure: %w: the elector is nil", core.ErrInvalid)
	}
	return &Router{e: e, m: m}, nil
}

// Owner returns the destination of requests for a shard. The error matches ErrNoOwner.
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

// OwnerOfKey returns the destination of requests for a key, which is the owner of its shard. While
// the range is moving to that shard, the owner refuses the key with ErrMoved. Try again shortly.
// While the map of ranges is unknown, the error matches ErrNoOwner.
func (r *Router) OwnerOfKey(key string) (Route, error) {
	shard, err := r.Shard(key)
	if err != nil {
		return Route{}, err
	}
	return r.Owner(shard)
}

// Shard returns the shard of a key according to the map of ranges that is known here. Its errors
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

// Map returns the Manager's map of ranges. If it is not known yet, or there is no keyspace, Map
// returns nil.
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

// Changes is a subscription to changes of owners, made by Router.Changes. One goroutine may use it.
type Changes struct {
	r    *Router
	last *core.View
}

// Changes starts a subscription. Its first Next returns every known shard.
func (r *Router) Changes() *Changes { return &Changes{r: r} }

// Next waits for owners to change and returns the changed shards with their current owners. If a
// shard has no owner, Session is empty. Intermediate changes are merged. However slow the caller
// is, no change is lost. The error is that of ctx, or matches core.ErrStopped.
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
		vanished := func(to string) { // a free lock has no record; to: "" for all
			for ; len(old) > 0 && (to == "" || old[0].Shard < to); old = old[1:] {
				if old[0].Session != "" {
					out = append(out, Route{Shard: old[0].Shard, Token: old[0].Token})
				}
			}
		}
		for _, o := range v.Shards { // both by name
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
