package trace

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// A looked is a context that ends after the given number of checks.
type looked struct {
	context.Context
	left, looks int
}

func (c *looked) Err() error {
	if c.looks++; c.looks > c.left {
		return context.Canceled
	}
	return nil
}

const pieces, leave = 50, 7

// TestCheckEnds: Check checks its context between the records that it decodes, and returns at the
// first check after the context's end.
func TestCheckEnds(t *testing.T) {
	t.Parallel()
	file := Source{Name: "x", Open: func() (io.ReadCloser, error) {
		var b bytes.Buffer
		zip := gzip.NewWriter(&b)
		_, _ = zip.Write([]byte(`{"tenure_trace":1,"run":"r"}` + "\n"))
		for range pieces {
			_, _ = zip.Write([]byte(`{"t":1}` + "\n"))
		}
		return io.NopCloser(&b), zip.Close()
	}}
	all := &looked{Context: t.Context(), left: 1 << 30}
	if _, err := Check(all, []Source{file}, time.Second); err != nil || all.looks < 2*pieces { // each is scanned, and then read
		t.Fatalf("%d looks at the context for %d records, %v", all.looks, pieces, err)
	}
	for left := range all.looks {
		ctx := &looked{Context: t.Context(), left: left}
		if _, err := Check(ctx, []Source{file}, time.Second); !errors.Is(err, context.Canceled) {
			t.Errorf("the context ended after %d of %d looks: got %v", left, all.looks, err)
		} else if ctx.looks > left+3 {
			t.Errorf("the context ended after %d looks, and %d more followed", left, ctx.looks-left-1)
		}
	}
}

// TestCompareEnds: Check also checks its context between items that it compares with many others.
// In this test, these items breach a rule.
func TestCompareEnds(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 0)
	for name, fill := range map[string]func(c *checker){
		"grants": func(c *checker) {
			for range pieces {
				c.grants["s"] = append(c.grants["s"], &grant{fence: driver.Fence{Shard: "s", Session: "S", Token: 1}})
			}
		},
		"begins": func(c *checker) {
			c.acks["s"] = []ackedSpan{{}}
			c.joined[driver.Fence{Shard: "s", Token: 1}] = true
			for range pieces {
				c.begins["s"] = append(c.begins["s"], begin{fence: driver.Fence{Shard: "s", Token: 2}, head: driver.Head{Number: 9, Token: 1}})
			}
		},
		"evictions": func(c *checker) {
			c.sessions["S"] = &session{beats: []time.Time{at.Add(time.Hour)}}
			for range pieces {
				c.evictions = append(c.evictions, eviction{of: "S", sent: at})
			}
		},
		"states": func(c *checker) {
			c.sessions["S"] = &session{ttl: time.Second}
			c.showed[said{"S", 1}] = make([]showed, pieces)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := &looked{Context: t.Context(), left: leave}
			c := newChecker(ctx, time.Second)
			fill(c)
			c.compare()
			if n := len(c.report.Breaches) + c.report.More; n == 0 || n > leave {
				t.Errorf("%d of %d were compared, with a context that ended after %d looks", n, pieces, leave)
			}
		})
	}
}
