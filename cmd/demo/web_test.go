//go:build unix

package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
)

// TestWebHost: another site, whose name points at loopback, cannot read anything.
func TestWebHost(t *testing.T) {
	t.Parallel()
	b, err := memory.Open(t.Context(), memory.New(), "flights", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	w, err := startWeb(t.Context(), "127.0.0.1:0", b, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}()
	for host, want := range map[string]int{"": http.StatusOK, "evil.example": http.StatusForbidden} {
		for _, path := range []string{"", "view", "metrics"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("/%s for Host %q: %s, want status %d", path, host, resp.Status, want)
			}
		}
	}
}
