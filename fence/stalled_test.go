package fence_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// TestStalledRequest: a client cannot keep a higher token waiting by no longer sending the body or
// reading the answer.
func TestStalledRequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, path string
		http2      bool
	}{
		{"body", "/read", false}, {"answer", "/write", false}, {"body, HTTP 2", "/read", true}, {"answer, HTTP 2", "/write", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
			defer cancel()
			inside := make(chan struct{}, 1)
			mark := fence.NewMark(&fence.Memory{}, &fence.Options{Wait: 2 * ample.Time})
			server := stallServer(t, c.http2, mark.Handler(stalling(inside), nil))
			client := &http.Client{Transport: &fence.Transport{Base: server.Client().Transport}}
			send := func(f string, path string, body io.Reader) (*http.Response, error) {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+path, body)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set(fence.Header, f)
				return client.Do(r)
			}
			body, rest := io.Pipe()
			defer rest.Close()
			type answer struct {
				response *http.Response
				err      error
			}
			zombie := make(chan answer, 1)
			go func() {
				res, err := send("ledger/a/10", c.path, body) //nolint:bodyclose // below
				zombie <- answer{res, err}
			}()
			if _, err := io.WriteString(rest, "half"); err != nil {
				t.Fatal(err)
			}
			select {
			case <-inside:
			case <-ctx.Done():
				t.Fatal("the first request was not admitted")
			}

			res, err := send("ledger/b/11", "/", http.NoBody)
			if err != nil {
				t.Fatalf("the higher token got no answer: %v", err)
			}
			if err := res.Body.Close(); err != nil || res.StatusCode != http.StatusOK {
				t.Errorf("the higher token: status %d, %v", res.StatusCode, err)
			}
			if err := mark.Seal(ctx, "ledger", lease("b", 11)); err != nil {
				t.Error(err)
			}
			got := <-zombie
			if got.err != nil {
				t.Fatalf("the superseded request: %v", got.err)
			}
			if c.path == "/read" && got.response.StatusCode != http.StatusConflict {
				t.Errorf("the superseded request: status %d, want the handler's 409", got.response.StatusCode)
			}
			if err := got.response.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// stalling reads the whole body at /read, and answers 409 if the read fails. At /write, it sends an
// endless answer. It signals when it begins.
func stalling(inside chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/read":
			inside <- struct{}{}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				w.WriteHeader(http.StatusConflict)
			}
		case "/write":
			inside <- struct{}{}
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		}
	})
}

func stallServer(t *testing.T, http2 bool, h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	if s.EnableHTTP2 = http2; http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}
