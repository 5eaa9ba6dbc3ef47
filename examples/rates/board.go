package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
)

const (
	shard = "rates"
	key   = "table"
)

type table struct {
	Token core.Token         `json:"token"` // token of the lease that wrote the table
	Rates map[string]float64 `json:"rates"`
}

// Rates are set only if the lease is still current and the table has not changed since it was read.
func set(ctx context.Context, lease *core.Lease, rates map[string]float64) error {
	item, err := lease.Get(ctx, key)
	if err != nil {
		return err
	}
	t, version, err := decode(item)
	if err != nil {
		return err
	}
	for name, rate := range rates {
		t.Rates[name] = rate
	}
	t.Token = lease.Token()
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	_, err = lease.Commit(ctx, core.PutIf(key, text, version))
	return err
}

func decode(item *core.Item) (*table, core.Version, error) {
	t := &table{}
	version := core.Absent
	if item != nil {
		version = item.Version
		if err := json.Unmarshal(item.Value, t); err != nil {
			return nil, 0, fmt.Errorf("the table cannot be read: %w", err)
		}
	}
	if t.Rates == nil {
		t.Rates = make(map[string]float64)
	}
	return t, version, nil
}

// A board is a copy of the table. A board is safe for concurrent use.
type board struct {
	b core.Backend

	mu   sync.RWMutex
	t    *table
	asOf time.Time // t has every rate that was set before this time
}

func (d *board) refresh(ctx context.Context) error {
	sent := time.Now()
	item, err := d.b.Get(ctx, shard, key)
	if err != nil {
		return err
	}
	t, _, err := decode(item)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.t != nil && t.Token < d.t.Token {
		return fmt.Errorf("the table was written under token %d, and an older copy under %d: the store went back",
			t.Token, d.t.Token)
	}
	if sent.After(d.asOf) {
		d.t, d.asOf = t, sent
	}
	return nil
}

// After a failed refresh, follow reports the failure and retries.
func (d *board) follow(ctx context.Context, every time.Duration, failed func(error)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := d.refresh(call)
		cancel()
		if err != nil && ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// A copy that is older than the bound is not used.
func (d *board) rate(name string, bound time.Duration) (float64, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.t == nil {
		return 0, fmt.Errorf("no rates were read yet")
	}
	if age := time.Since(d.asOf); age > bound {
		return 0, fmt.Errorf("the rates may be %v old", age.Round(time.Millisecond))
	}
	rate, ok := d.t.Rates[name]
	if !ok {
		return 0, fmt.Errorf("there is no rate %q", name)
	}
	return rate, nil
}
