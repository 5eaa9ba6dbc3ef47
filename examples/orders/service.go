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

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
	"github.com/tenure-go/tenure/sharding/route"
)

// Items and log entries contain orders in this form.
type order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
}

const (
	itemPrefix = "order/" // prefix of the key of an order's item
	maxBody    = 4 << 10  // maximum size of a request, in bytes
)

var validID = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// A service writes orders for the shards that this process owns.
type service struct {
	backend core.Backend
	manager *sharding.Manager // set before the application starts, because the Manager's handler calls take
}

func newService(b core.Backend) *service { return &service{backend: b} }

// If this process does not know the map of ranges yet, the error matches sharding.ErrNoOwner.
func shardOf(r *sharding.Router, id string) (string, error) {
	if !validID.MatchString(id) {
		return "", errors.New("an order's id has 1 to 64 of a-z, 0-9 and -")
	}
	return r.Shard(id)
}

// The orders in a range are copied from the shard that had the range. Orders are never removed, so
// if this shard had the range earlier, its older copies are replaced.
func (s *service) take(ctx context.Context, from string, r assign.Range) (ops []core.Op, err error) {
	items, err := s.backend.List(ctx, core.ShardID(from), itemPrefix, 0, maxBody)
	keys := s.manager.Map().Keyspace
	for _, item := range items {
		if r.Has(keys.Of(strings.TrimPrefix(item.Key, itemPrefix))) {
			ops = append(ops, core.Put(item.Key, item.Value))
		}
	}
	return ops, err
}

// This handler runs in the process that owns the order's shard.
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
	slice := s.manager.Slice(lease)
	if slice == nil {
		refuse(w, http.StatusServiceUnavailable, "the shard is not served yet, or not any more: try again")
		return
	}
	err = slice.Do(o.ID, func() error {
		slice.Add(o.ID, 1) // counts as load of this shard unless the shard refuses the order
		// A commit continues even after its request has ended.
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
		// Repeating the request determines whether the order was placed.
		slog.Debug("order not placed", "order", o.ID, "error", err)
		refuse(w, http.StatusServiceUnavailable, "the order was not placed, or that is not known: try again")
	}
}

var errOther = errors.New("there is another order with this id")

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
