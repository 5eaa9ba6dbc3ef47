package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/tenure-go/tenure/follower"
	"github.com/tenure-go/tenure/sharding"
)

// A member's read model is a separate SQLite database that contains each order from each log
// exactly once. The SQLite backend's package registers the driver.
type model struct {
	db      *sql.DB
	applier *follower.SQL
}

const (
	createModel = "CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT NOT NULL, cents INTEGER NOT NULL)"
	insertModel = "INSERT INTO orders (id, customer, cents) VALUES (?, ?, ?)"
)

// These constants are the default and maximum ages of a read.
const (
	defaultWithin = 2 * time.Second
	mostWithin    = time.Hour
)

func openModel(ctx context.Context, path string) (*model, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // the database is one file with one writer
	m := &model{db: db}
	m.applier, err = follower.NewSQL(db, "sqlite", "model", apply, nil)
	if err == nil {
		err = m.applier.Create(ctx)
	}
	if err == nil {
		_, err = db.ExecContext(ctx, createModel)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return m, nil
}

// A batch of orders is added to the model in the transaction that moves the position.
func apply(ctx context.Context, tx *sql.Tx, b follower.Batch) error {
	for _, e := range b.Entries {
		var o order
		if err := json.Unmarshal(e.Payload, &o); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, insertModel, o.ID, o.Customer, o.Cents); err != nil {
			return err
		}
	}
	return nil
}

// The handler answers a read if the model is fresh enough for it.
func (m *model) reads(r *sharding.Router, t *follower.Tailer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		id, within := q.PathValue("id"), defaultWithin
		if v := q.URL.Query().Get("within"); v != "" {
			d, err := time.ParseDuration(v)
			if err != nil || d < 0 || d > mostWithin {
				refuse(w, http.StatusBadRequest, "within is a duration from 0s to 1h, such as 2s")
				return
			}
			within = d
		}
		shard, err := shardOf(r, id)
		if err != nil {
			status := http.StatusBadRequest
			if errors.Is(err, sharding.ErrNoOwner) {
				status = http.StatusServiceUnavailable
			}
			refuse(w, status, err.Error())
			return
		}
		if err := fresh(t, shard, within); err != nil {
			refuse(w, http.StatusServiceUnavailable, "this member's copy is older than "+within.String()+": try again")
			return
		}
		o := order{ID: id}
		err = m.db.QueryRowContext(q.Context(), "SELECT customer, cents FROM orders WHERE id = ?", id).Scan(&o.Customer, &o.Cents)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			refuse(w, http.StatusNotFound, "there is no such order")
		case err != nil:
			refuse(w, http.StatusInternalServerError, "the read model cannot be read")
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(o) // a client that has disconnected needs no answer
		}
	})
}

// An order stays in the log of the shard that accepted it. That shard may since have given its
// range away or ended, so the model must be fresh for all known logs. The model must also be fresh
// for the shard itself, whose log may be too new to be known.
func fresh(t *follower.Tailer, shard string, within time.Duration) error {
	if err := t.Fresh(shard, within); err != nil {
		return err
	}
	for _, lag := range t.Lags() {
		if err := t.Fresh(lag.Shard, within); err != nil {
			return err
		}
	}
	return nil
}

// The amounts are listed by order id.
func (m *model) all(w http.ResponseWriter, r *http.Request) {
	rows, err := m.db.QueryContext(r.Context(), "SELECT id, cents FROM orders")
	if err != nil {
		refuse(w, http.StatusInternalServerError, "the read model cannot be read")
		return
	}
	defer rows.Close()
	out := map[string]int64{}
	for rows.Next() {
		var id string
		var cents int64
		if err := rows.Scan(&id, &cents); err != nil {
			refuse(w, http.StatusInternalServerError, "the read model cannot be read")
			return
		}
		out[id] = cents
	}
	if rows.Err() != nil {
		refuse(w, http.StatusInternalServerError, "the read model cannot be read")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // a client that has disconnected needs no answer
}
