package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// longItems is a store in which a shard has an item that is too long for a commit.
type longItems struct{ core.Backend }

func (longItems) Info() driver.Info { return driver.Info{Limits: driver.Limits{WriteBytes: 1000}} }

func (longItems) ReadLog(context.Context, driver.ShardID, driver.Seq, int) (*driver.LogPage, error) {
	return &driver.LogPage{}, nil
}

func (longItems) List(_ context.Context, shard driver.ShardID, _ string, _, largest int) ([]driver.Item, error) {
	long := driver.Item{Key: "long", Version: 2, Value: make([]byte, 1001)}
	if largest > 0 && len(long.Value) > largest {
		long.Value, long.Damaged = nil, driver.Damaged("s/long", shard, "its value has 1001 bytes")
	}
	return []driver.Item{{Key: "a", Version: 1, Value: []byte("short")}, long, {Key: "z", Version: 3, Value: []byte("last")}}, nil
}

// TestLongItems: the commands items and export omit a value that no commit wrote, report the
// omission, and show the other items.
func TestLongItems(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(a *app) error{
		"items":         func(a *app) error { return a.items(t.Context(), longItems{}, "s", "") },
		"items as JSON": func(a *app) error { a.format = "json"; return a.items(t.Context(), longItems{}, "s", "") },
		"export": func(a *app) error {
			return a.exportShard(t.Context(), longItems{}, driver.ShardState{Shard: "s"}, true, true)
		},
	} {
		var out bytes.Buffer
		err := run(&app{out: &out, timeout: limit})
		if codeOf(t.Context(), err) != exitDamaged || !strings.Contains(err.Error(), `"long": its value has 1001 bytes`) {
			t.Errorf("%s: got %v", name, err)
		}
		if text := out.String(); !strings.Contains(text, "short") || !strings.Contains(text, "last") || !strings.Contains(text, "1001 bytes") || len(text) > 900 {
			t.Errorf("%s wrote %d bytes: %.900s", name, len(text), text)
		}
	}
}
