package sharding

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
)

// Route is where requests for a shard go.
type Route struct {
	Shard   string
	Session core.SessionID
	Token   core.Token // to go with the request: an owner with another refuses
	Node    string
	Meta    map[string]string // of the owner, such as its address; not to be modified
	Self    bool              // this process owns it
}

// ErrNoOwner: nobody who lives owns the shard at present. Try again shortly.
var ErrNoOwner = errors.New("shard has no owner at present")

// Router says who owns a shard, from this process's view and without I/O. An
// answer may be out of date; that is harmless, because the owner's fence decides.
// Its process need not own anything: an Elector that contends for nothing only
// observes. All methods are safe for concurrent use.
type Router struct {
	e *core.Elector
	m *Manager

	mu      sync.Mutex
	view    *core.View
	looked  time.Time
	members map[core.SessionID]*core.Member
}

// routeAge is how old a view may be that is asked for owners: making one costs
// milliseconds where there are very many shards.
const routeAge = 5 * time.Millisecond

// NewRouter returns a Router on an Elector, and on the Manager of the same process, which knows
// the map of the keyspace's ranges. Without a Manager it routes by shard only.
func NewRouter(e *core.Elector, m *Manager) (*Router, error) {
	if e == nil {
		return nil, fmt.Errorf("tenure: %w: the elector is nil", core.ErrInvalid)
	}
	return &Router{e: e, m: m}, nil
}

// Owner returns where requests for a shard go. The error matches ErrNoOwner.
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

// OwnerOfKey returns where requests for a key go: to the owner of its shard. While the range is
// on its way to that shard the owner refuses the key with ErrMoved: try again shortly. The error
// matches ErrNoOwner as long as the map of ranges is not known.
func (r *Router) OwnerOfKey(key string) (Route, error) {
	shard, err := r.Shard(key)
	if err != nil {
		return Route{}, err
	}
	return r.Owner(shard)
}

// Shard is the shard of a key, by the map of ranges that is known here. Errors as of OwnerOfKey.
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

// Map is the Manager's map of ranges; nil if it is not known yet, or without a keyspace.
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

// Changes is a subscription to changes of owners, made by Router.Changes. It is
// used by one goroutine.
type Changes struct {
	r    *Router
	last *core.View
}

// Changes starts a subscription. Its first Next returns every shard known.
func (r *Router) Changes() *Changes { return &Changes{r: r} }

// Next waits for owners to change and returns the shards that did, each as it is
// now; Session is empty where nobody owns it. Changes in between are merged, and
// none is lost however slow the caller is. The error is ctx's, or matches
// core.ErrStopped.
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
		k := 0
		for _, o := range v.Shards { // both by name; none is ever removed
			for k < len(old) && old[k].Shard < o.Shard {
				k++
			}
			if k < len(old) && old[k] == o {
				continue
			}
			x, err := route(v, members, o.Shard)
			if err != nil {
				x = Route{Shard: o.Shard, Token: o.Token}
			}
			out = append(out, x)
		}
		c.last = v
		if len(out) > 0 {
			return out, nil
		}
	}
}
