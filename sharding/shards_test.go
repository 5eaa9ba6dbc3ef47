package sharding

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/keyspace"
)

// A million shards are refused with a clear error before any name is built, no matter how the
// shards are specified. The largest allowed number is accepted.
func TestMillionShards(t *testing.T) {
	const million = 1_000_000
	single := make([]string, 0, maxSpecs)
	for i := range 10 {
		single = append(single, fmt.Sprintf("part%d-0..99999", i))
	}
	expand := func(specs ...string) error {
		_, err := keyspace.Expand(specs...)
		return err
	}
	for name, err := range map[string]error{
		"range":    expand("orders-0..999999"),
		"ranges":   expand(single...),
		"keyspace": Keyspace{Name: "orders", Shards: million}.Validate(),
		"options": func() error {
			_, _, err := (&Options{Shards: []string{"orders-0..999999"}}).resolve()
			return err
		}(),
		"one more": expand(fmt.Sprintf("orders-0..%d", keyspace.MaxShards)),
	} {
		if !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), "199999") || !strings.Contains(err.Error(), "keys") {
			t.Errorf("%s: %v, want the limit and what to do", name, err)
		}
	}
	if err := expand(fmt.Sprintf("orders-1..%d", keyspace.MaxShards)); err != nil {
		t.Errorf("%d shards: %v", keyspace.MaxShards, err)
	}
	if err := (Keyspace{Name: "orders", Shards: keyspace.MaxShards, Digits: 6}).Validate(); err != nil {
		t.Errorf("a keyspace of %d shards: %v", keyspace.MaxShards, err)
	}
}
