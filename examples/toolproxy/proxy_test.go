package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// member starts a member with a proxy, and returns when the member leads.
func member(t *testing.T, store *memory.Store, tools map[string]string) (url string, stop func()) {
	t.Helper()
	b, err := memory.Open(t.Context(), store, "agents", nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := core.NewElector(b, &core.Options{LockDir: "none"})
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{tools: tools}
	server := httptest.NewServer(p.routes())
	if status, _ := send(t, server.URL, "count", "k", ""); status != http.StatusServiceUnavailable {
		t.Errorf("before it leads: got %d", status)
	}
	if err := e.Contend(p.lead, "tools"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	ample.Wait(t, "it does not lead", func() bool { return p.ledger.Load() != nil })
	return server.URL, func() {
		server.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		b.Close()
	}
}

func send(t *testing.T, url, tool, key, body string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/tools/"+tool, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// TestProxy checks that each call is made once or is in doubt, under two leaders in turn.
func TestProxy(t *testing.T) {
	var calls atomic.Int64
	tool := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := calls.Add(1)
		switch body, _ := io.ReadAll(r.Body); string(body) {
		case "hang up":
			panic(http.ErrAbortHandler)
		case "fail":
			w.WriteHeader(http.StatusInternalServerError)
		case "move":
			http.Redirect(w, r, "/", http.StatusTemporaryRedirect)
		case "refuse":
			http.Error(w, "no", http.StatusForbidden)
		case "long":
			_, _ = w.Write(make([]byte, 1<<20))
		default:
			_, _ = fmt.Fprintf(w, "%d %s", n, body)
		}
	}))
	defer tool.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	store := memory.New()
	tools := map[string]string{"count": tool.URL, "closed": closed.URL}
	for leader := range 2 {
		url, stop := member(t, store, tools)
		for i, c := range []struct {
			tool, key, body string
			status          int
			answer          string
		}{
			{"count", "a", "x", 200, "1 x"},
			{"count", "a", "another", 200, "1 x"},
			{"count", "../ä\tb", "x", 200, "2 x"},
			{"count", "", "x", 400, "known tool"},
			{"other", "a", "x", 400, "known tool"},
			{"count", "large", strings.Repeat("x", 1<<20+1), 400, "MiB"},
			{"count", "hang", "hang up", 409, "in doubt"},
			{"count", "hang", "x", 409, "in doubt"},
			{"count", "fail", "fail", 409, "in doubt"},
			{"count", "move", "move", 409, "in doubt"},
			{"count", "refuse", "refuse", 502, "the tool refused it: 403 Forbidden: no"},
			{"count", "long", "long", 410, "too long"},
			{"closed", "a", "x", 502, "not made"},
		} {
			status, answer := send(t, url, c.tool, c.key, c.body)
			if status != c.status || !strings.Contains(answer, c.answer) {
				t.Errorf("leader %d, call %d: got %d %.200q, want %d %q", leader, i, status, answer, c.status, c.answer)
			}
		}
		stop()
		if n := calls.Load(); n != 7 {
			t.Errorf("leader %d: the tool was called %d times", leader, n)
		}
	}
}
