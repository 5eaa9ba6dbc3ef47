package faultproxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

// The proxy passes TLS through unchanged. The client verifies the server's certificate, and faults
// have the same effect as on plain bytes.
func TestTLSPassesThrough(t *testing.T) {
	t.Parallel()
	handled := make(chan struct{}, 10)
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		handled <- struct{}{}
		_, _ = io.WriteString(w, "hello")
	}))
	defer s.Close()
	p, err := New(s.Listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	get := func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.Addr(), nil)
		if err != nil {
			return "", err
		}
		res, err := s.Client().Do(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		return string(b), err
	}
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	if got, err := get(ctx); err != nil || !strings.Contains(got, "hello") {
		t.Fatalf("through the proxy: %q, %v", got, err)
	}
	<-handled
	if err := p.Set(swallowReplies); err != nil {
		t.Fatal(err)
	}
	lost, stop := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() {
		_, err := get(lost)
		failed <- err
	}()
	select {
	case <-handled:
	case <-time.After(ample.Time):
		t.Fatal("the request did not arrive")
	}
	stop()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that the answer never came", err)
	}
}
