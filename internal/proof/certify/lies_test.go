package certify

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/harness"
	"github.com/tenure-go/tenure/internal/proof/intercept"
)

// lying opens a store that misbehaves as the file's name says, and other stores unchanged.
func lying(o driver.Opener) driver.Opener {
	return driver.Opener{Name: o.Name, Settings: o.Settings, Open: func(ctx context.Context, decode func(any) error) (driver.Backend, error) {
		var s sqlite.Settings
		b, err := o.Open(ctx, func(into any) error {
			err := decode(into)
			s = *into.(*sqlite.Settings)
			return err
		})
		if err != nil {
			return nil, err
		}
		switch strings.TrimSuffix(filepath.Base(s.Path), ".db") {
		case "unfenced":
			return harness.Unfenced(b), nil
		case "loses":
			return intercept.Wrap(b, losing()), nil
		case "stale":
			return intercept.Wrap(b, stale()), nil
		}
		return b, nil
	}}
}

// losing acknowledges every fifth write of its process without applying it.
func losing() intercept.Around {
	var mu sync.Mutex
	n := 0
	return func(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
		if c.Op != intercept.Commit || slices.ContainsFunc(c.Writes, func(w driver.Write) bool {
			return strings.HasPrefix(string(w.Fence.Shard), "_")
		}) {
			return proceed(ctx)
		}
		mu.Lock()
		n++
		lose := n%5 == 0
		mu.Unlock()
		if !lose {
			return proceed(ctx)
		}
		c.Committed = make([]driver.CommitResult, len(c.Writes))
		return nil
	}
}

// stale answers every second read of a log's entries with the previous answer.
func stale() intercept.Around {
	var mu sync.Mutex
	n := 0
	pages := map[string]*driver.LogPage{}
	return func(ctx context.Context, c *intercept.Call, proceed func(context.Context) error) error {
		if c.Op != intercept.ReadLog || c.Max == 0 {
			return proceed(ctx)
		}
		mu.Lock()
		defer mu.Unlock()
		key := fmt.Sprint(c.Shard, c.After > 0, c.Max)
		if n++; n%2 == 0 && pages[key] != nil {
			c.Page = pages[key]
			return nil
		}
		err := proceed(ctx)
		if err == nil {
			pages[key] = c.Page
		}
		return err
	}
}

// on returns options for the database with the given name.
func on(t *testing.T, name string, only ...Phase) Options {
	t.Helper()
	o := quick(lying(sqlite.Opener()), sqlite.Settings{Path: filepath.Join(t.TempDir(), name+".db"), Namespace: "team"})
	o.Only, o.Seeds, o.ControlSeeds, o.Steps = only, 1, 1, 4
	return o
}

// TestLiesAreShown: both suites find a store that breaks a rule, and name it.
func TestLiesAreShown(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: stores that lie are certified in .ci/run")
	}
	for _, c := range []struct {
		store string
		phase Phase
		cases string
		rules []string // at least one of them
	}{
		{"unfenced", Conformance, "^Commit/FencedAfter(Takeover|Release)$", []string{"F1"}},
		{"unfenced", System, "", []string{"S3"}},
		{"loses", Conformance, "^(Commit/(AppliesWhenCurrent|DataSurvivesLeases)|Log/.*)$", []string{"F1", "L1"}},
		{"loses", System, "", []string{"S15", "S16"}},
		{"stale", Conformance, "^Log/(Contiguous|TokensNonDecreasing|WrongNumberConflicts|SeqSurvivesFullTrim|TrimmedIsReported)$", []string{"F1", "L1", "L2", "L3"}},
	} {
		t.Run(c.store+" in "+string(c.phase), func(t *testing.T) {
			t.Parallel()
			o := on(t, c.store, c.phase)
			if c.cases != "" {
				o.Cases = matching(c.cases)
			}
			r := certify(t, o)
			if r.Verdict != Broken || !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.breach && slices.Contains(c.rules, f.Rule) }) {
				t.Errorf("got %s because of %q, want a breach of one of %q; findings: %+v", r.Verdict, r.Why, c.rules, r.Findings)
			}
			if md := string(r.Markdown()); !strings.Contains(md, "# sqlite: broken") || !strings.Contains(md, strings.Fields(r.Why[0])[0]) {
				t.Errorf("the report does not say so:\n%.1000s", md)
			}
		})
	}
}
