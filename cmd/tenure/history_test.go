package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// remembering is a backend that returns a given history.
type remembering struct {
	driver.Backend
	all []driver.Grant
	err error
}

func (r remembering) History(context.Context, driver.ShardID) ([]driver.Grant, error) {
	return r.all, r.err
}

// TestHistoryUnknown: a part of the history that was never written is unknown. For a damaged
// history, the newer part is shown.
func TestHistoryUnknown(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.run(exitOK, "init")
	p.lead("s")
	a, b := p.open()
	out := new(bytes.Buffer)
	a.out = out
	at := time.Unix(1e9, 0)
	h := remembering{Backend: b, err: driver.Damaged("s", "s", "cut\x1b[31m"),
		all: []driver.Grant{{Until: at, End: driver.EndGone}, {Node: "n2", Since: at}, {Node: "n3", Since: time.Unix(0, 0)}}}
	want := map[string][]string{
		"":     {"unknown unknown 2001-09-09T01:46:40Z gone", "n2 2001-09-09T01:46:40Z -", "n3 unknown -", `damaged: "cut\x1b[31m"`},
		"json": {`"damage": "\"cut\\x1b[31m\""`, `"until": "2001-09-09T01:46:40Z", "end": "gone"`, `"node": "n2", "since": "2001-09-09T01:46:40Z"`},
	}
	for a.format = range want {
		out.Reset()
		if err := a.history(t.Context(), h, "s", 0); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(strings.Fields(out.String()), " ")
		for _, w := range want[a.format] {
			if !strings.Contains(got, w) || strings.Contains(got, "\x1b") {
				t.Errorf("%q: %s; want %q", a.format, got, w)
			}
		}
	}
}
