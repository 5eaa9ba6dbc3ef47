package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/route"
)

// order is a client's order, and an entry of the log.
type order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
}

const (
	itemPrefix = "order/" // of an order's item
	maxBody    = 4 << 10  // bytes of a request
)

var validID = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// service writes the orders of the shards that this process owns.
type service struct {
	backend core.Backend
	manager *sharding.Manager // set before the application starts, because its handler is the method serve

	mu    sync.Mutex
	owned map[*core.Lease]*owned
}

// owned is a shard while its handler runs.
type owned struct {
	slice    *sharding.Slice
	requests sync.WaitGroup
}

func newService(b core.Backend) *service {
	return &service{backend: b, owned: map[*core.Lease]*owned{}}
}

// errStarting means that this process does not know the map of ranges yet.
var errStarting = errors.New("this member does not know the shards yet")

// shard returns the shard of an order, by the map of ranges that this process knows.
func (s *service) shard(id string) (string, error) {
	if !validID.MatchString(id) {
		return "", errors.New("an order's id has 1 to 64 of a-z, 0-9 and -")
	}
	m := s.manager.Map()
	if m == nil {
		return "", errStarting
	}
	return m.Shard(id), nil
}

// started refuses requests until the map of ranges is known.
func (s *service) started(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.manager.Map() == nil {
			refuse(w, http.StatusServiceUnavailable, errStarting.Error()+": try again")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// serve is the handler of a shard: it takes requests for the orders in the shard's range until ctx
// ends.
func (s *service) serve(ctx context.Context, lease *core.Lease) error {
	slice, err := s.manager.OpenSlice(ctx, lease, s.take)
	if err != nil {
		return err
	}
	defer slice.Close()
	o := &owned{slice: slice}
	s.mu.Lock()
	s.owned[lease] = o
	s.mu.Unlock()
	defer o.requests.Wait() // each is limited by its commit
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.owned, lease)
	}()
	<-ctx.Done()
	return nil
}

// take copies the orders of a range from the shard that had them. Orders are never removed, so it
// replaces older copies from a time when the range was here before.
func (s *service) take(ctx context.Context, from string, r sharding.Range) (ops []core.Op, err error) {
	items, err := s.backend.List(ctx, core.ShardID(from), itemPrefix, 0, maxBody)
	keys := s.manager.Map().Keyspace
	for _, item := range items {
		if r.Has(keys.Of(strings.TrimPrefix(item.Key, itemPrefix))) {
			ops = append(ops, core.Put(item.Key, item.Value))
		}
	}
	return ops, err
}

// enter returns the slice of a shard that is served under the lease. leave ends the use.
func (s *service) enter(lease *core.Lease) (slice *sharding.Slice, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.owned[lease]
	if o == nil {
		return nil, nil
	}
	o.requests.Add(1)
	return o.slice, o.requests.Done
}

// place writes an order, at the owner of its shard.
func (s *service) place(w http.ResponseWriter, r *http.Request) {
	lease := route.FromContext(r.Context())
	o := order{ID: r.PathValue("id")}
	var sent struct {
		Customer string `json:"customer"`
		Cents    int64  `json:"cents"`
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(&sent); err != nil || !validID.MatchString(sent.Customer) || sent.Cents <= 0 {
		refuse(w, http.StatusBadRequest, "an order has a customer, named as an order is, and a positive number of cents")
		return
	}
	o.Customer, o.Cents = sent.Customer, sent.Cents
	value, err := json.Marshal(o)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	slice, leave := s.enter(lease)
	if slice == nil {
		refuse(w, http.StatusServiceUnavailable, "the shard is not served yet, or not any more: try again")
		return
	}
	defer leave()
	err = slice.Do(o.ID, func() error {
		slice.Add(o.ID, 1) // counts as load of this shard, unless it refuses the order
		// A commit that has begun outlasts its request.
		_, err := lease.Commit(lease.Context(), core.PutIf(itemPrefix+o.ID, value, core.Absent), core.Append(value))
		if errors.Is(err, core.ErrConflict) {
			err = s.repeated(lease, o.ID, string(value))
		}
		return err
	})
	switch {
	case err == nil:
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "%s token %d\n", lease.Shard(), lease.Token())
	case errors.Is(err, errOther):
		refuse(w, http.StatusConflict, err.Error())
	default:
		// The order moved, or was lost, or its outcome is unknown: the same request settles it.
		slog.Debug("order not placed", "order", o.ID, "error", err)
		refuse(w, http.StatusServiceUnavailable, "the order was not placed, or that is not known: try again")
	}
}

var errOther = errors.New("there is another order with this id")

// repeated returns nil if an order that exists is the same.
func (s *service) repeated(lease *core.Lease, id, value string) error {
	item, err := lease.Get(lease.Context(), itemPrefix+id)
	switch {
	case err != nil:
		return err
	case item == nil || string(item.Value) != value:
		return errOther
	}
	return nil
}

func refuse(w http.ResponseWriter, status int, why string) {
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, why, status)
}
