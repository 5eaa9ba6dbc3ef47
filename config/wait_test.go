package config_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
)

// TestOpenWait: Open waits at most open_wait for a store that starts late, and logs one line. It
// does not wait after an error in the configuration.
func TestOpenWait(t *testing.T) {
	slogDefault := slog.Default()
	defer slog.SetDefault(slogDefault)
	var log strings.Builder
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	down := errors.New("connection refused")
	for _, c := range []struct {
		wait  string
		up    time.Duration // when the store becomes available
		fails error
		took  time.Duration // the least time that Open takes; 0: none
		bad   string
	}{
		{wait: "0s", up: time.Second, fails: down, bad: "connection refused"},
		{wait: "1m", up: 20 * time.Second, fails: down, took: 20 * time.Second},
		{wait: "1m", up: time.Hour, fails: down, took: time.Minute, bad: "not be had within open_wait (1m0s): connection refused"},
		{wait: "1m", up: time.Hour, fails: fmt.Errorf("bad path: %w", core.ErrInvalid), bad: "bad path"},
	} {
		t.Run(fmt.Sprint(c.wait, c.up, c.fails), func(t *testing.T) {
			log.Reset()
			synctest.Test(t, func(t *testing.T) {
				o := memory.Opener()
				began := time.Now()
				real := o.Open
				o.Open = func(ctx context.Context, decode func(any) error) (core.Backend, error) {
					if _, bounded := ctx.Deadline(); !bounded {
						t.Error("an attempt has no bound")
					}
					if time.Since(began) < c.up {
						return nil, c.fails
					}
					return real(ctx, decode)
				}
				conf, err := load(t, "tenure: {open_wait: "+c.wait+", backends: {memory: {namespace: x}}}")
				if err != nil {
					t.Fatal(err)
				}
				b, err := conf.Open(t.Context(), o)
				if b != nil {
					defer b.Close()
				}
				if c.bad == "" && err != nil || c.bad != "" && (err == nil || !strings.Contains(err.Error(), c.bad)) {
					t.Errorf("got %v, want %q", err, c.bad)
				}
				if took := time.Since(began); took < c.took || took > c.took+5*time.Second {
					t.Errorf("took %v, want %v", took, c.took)
				}
				if lines := strings.Count(log.String(), "trying again"); (lines == 1) != (c.took > 0) {
					t.Errorf("%d lines in the log", lines)
				}
			})
		})
	}
	for _, wait := range []string{"-1s", "25h"} {
		if _, err := load(t, "tenure: {open_wait: "+wait+"}"); !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), "open_wait") {
			t.Errorf("open_wait %s: %v", wait, err)
		}
	}
}

func TestOpenWaitIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := memory.Opener()
		o.Open = func(context.Context, func(any) error) (core.Backend, error) {
			return nil, errors.New("connection refused")
		}
		conf, err := load(t, "tenure: {open_wait: 1h, backends: {memory: {namespace: x}}}")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		if _, err := conf.Open(ctx, o); err == nil || time.Since(began) > 10*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
