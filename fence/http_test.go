package fence_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/problem"
)

type failing struct{ fence.Memory }

func (*failing) Raise(context.Context, string, driver.Fence) (driver.Fence, error) {
	return driver.Fence{}, errors.New("dial marks.internal as user secret: refused")
}

func TestHandler(t *testing.T) {
	t.Parallel()
	m := fence.NewMark(&fence.Memory{}, &fence.Options{MayWrite: func(shard driver.ShardID, resource string) bool {
		return shard == "ledger" && (resource == "ledger" || strings.HasPrefix(resource, "accounts/"))
	}})
	var seen []driver.Fence
	app := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, _ := fence.FromContext(r.Context())
		seen = append(seen, f)
		_, _ = io.WriteString(w, "done")
	})
	byPath := &fence.HTTPOptions{
		Resource: func(r *http.Request, _ driver.Fence) string { return strings.TrimPrefix(r.URL.Path, "/") },
		Unfenced: func(r *http.Request) bool { return r.Method == http.MethodGet },
	}
	for _, c := range []struct {
		name    string
		o       *fence.HTTPOptions
		method  string
		path    string
		header  []string
		status  int
		problem string
	}{
		{"admitted", nil, "POST", "/", []string{"ledger/a/5"}, 200, ""},
		{"again", nil, "POST", "/", []string{"ledger/a/5"}, 200, ""},
		{"lower", nil, "POST", "/", []string{"ledger/b/4"}, 412, "urn:tenure:fence:refused"},
		{"equal from another", nil, "POST", "/", []string{"ledger/b/5"}, 412, "urn:tenure:fence:refused"},
		{"lower elsewhere", byPath, "POST", "/accounts/7", []string{"ledger/b/4"}, 200, ""},
		{"none", nil, "GET", "/", nil, 428, "urn:tenure:fence:missing"},
		{"none, a read", byPath, "GET", "/accounts/7", nil, 200, ""},
		{"none, a write", byPath, "POST", "/accounts/7", nil, 428, "urn:tenure:fence:missing"},
		{"nonsense", nil, "POST", "/", []string{"ledger"}, 400, "urn:tenure:fence:invalid"},
		{"another shard's", byPath, "POST", "/orders/7", []string{"ledger/a/99"}, 403, "urn:tenure:fence:foreign"},
		{"another shard's by itself", nil, "POST", "/", []string{"other/a/99"}, 403, "urn:tenure:fence:foreign"},
		{"two", nil, "POST", "/", []string{"ledger/a/5", "ledger/b/6"}, 400, "urn:tenure:fence:invalid"},
		{"no resource", byPath, "POST", "/", []string{"ledger/a/5"}, 400, "urn:tenure:fence:invalid"},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), c.method, c.path, nil)
		r.Header[http.CanonicalHeaderKey(fence.Header)] = c.header
		called := len(seen)
		m.Handler(app, c.o).ServeHTTP(w, r)
		if w.Code != c.status {
			t.Errorf("%s: status %d, want %d: %s", c.name, w.Code, c.status, w.Body)
			continue
		}
		if (len(seen) > called) != (c.problem == "") {
			t.Errorf("%s: the handler was called %d times", c.name, len(seen)-called)
		}
		if c.problem == "" {
			if f := seen[called]; len(c.header) > 0 && fence.Format(f) != c.header[0] {
				t.Errorf("%s: the handler saw %v", c.name, f)
			}
			continue
		}
		var p problem.Document
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Type != c.problem || p.Status != c.status ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %v: %s", c.name, err, w.Body)
		}
	}
	if m.Refused() != 2 {
		t.Errorf("counted %d refusals, want 2", m.Refused())
	}
}

func TestHandlerStorageFails(t *testing.T) {
	t.Parallel()
	m := fence.NewMark(&failing{}, nil)
	h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("called") }), nil)
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/", nil)
	r.Header.Set(fence.Header, "ledger/a/5")
	h.ServeHTTP(w, r)
	if w.Code != 503 || strings.Contains(w.Body.String(), "secret") ||
		strings.Contains(w.Body.String(), "marks.internal") {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
}

// TestResponseError: a Handler's refusal is never mistaken for success, and the application's
// answer is never mistaken for a refusal.
func TestResponseError(t *testing.T) {
	t.Parallel()
	const problem = "application/problem+json"
	for _, c := range []struct {
		status    int
		kind      string
		body      string
		want      error // nil: no error
		malformed bool
	}{
		{412, problem, `{"type":"urn:tenure:fence:refused","token":4}`, driver.ErrFenced, false},
		{428, problem, `{"type":"urn:tenure:fence:missing","detail":"send it"}`, driver.ErrInvalid, false},
		{400, problem, `{"type":"urn:tenure:fence:invalid","detail":"send \u001b another"}`, driver.ErrInvalid, false},
		{503, problem, `{"type":"urn:tenure:fence:mark"}`, driver.ErrRetry, false},
		{403, problem, `{"type":"urn:tenure:fence:foreign","resource":"a\u001b"}`, driver.ErrInvalid, false},
		{403, "text/plain", "", nil, false},
		{200, problem, `{"type":"urn:tenure:fence:refused"}`, nil, false},
		{400, problem, `{"type":"urn:shop:price","token":"of the shop"}`, nil, false},
		{400, "text/plain", `{"type":"urn:tenure:fence:invalid"}`, nil, false},
		{503, "", "", nil, false},
		{412, problem, `{"type":`, nil, true},
		{400, problem, `{"type":"urn:tenure:fence:invalid","token":"x"}`, nil, true},
	} {
		r := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.kind}},
			Body: io.NopCloser(strings.NewReader(c.body))}
		err := fence.ResponseError(r)
		if (err != nil) != (c.want != nil || c.malformed) || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%d %s: %v, want %v", c.status, c.body, err, c.want)
		}
		if err != nil && strings.ContainsRune(err.Error(), 0x1b) {
			t.Errorf("%d: an escape sequence of the server's in %q", c.status, err)
		}
	}
}

func TestTransport(t *testing.T) {
	t.Parallel()
	m := fence.NewMark(&fence.Memory{}, nil)
	s := httptest.NewServer(m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil))
	defer s.Close()
	client := &http.Client{Transport: &fence.Transport{Base: s.Client().Transport}}
	post := func(ctx context.Context) (int, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if r.Header.Get(fence.Header) != "" {
			t.Error("the caller's request was changed")
		}
		err = fence.ResponseError(res)
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
		return res.StatusCode, err
	}
	if status, err := post(t.Context()); status != 428 || !errors.Is(err, driver.ErrInvalid) ||
		!strings.Contains(err.Error(), fence.Header) {
		t.Errorf("without a fence: %d, %v", status, err)
	}
	if status, err := post(fence.NewContext(t.Context(),
		driver.Fence{Shard: "a'b", Session: "s", Token: 1})); status != 400 || !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("with an invalid shard: %d, %v", status, err)
	}
	if status, err := post(fence.NewContext(t.Context(), lease("b", 6))); status != 200 || err != nil {
		t.Errorf("got %d, %v", status, err)
	}
	status, err := post(fence.NewContext(t.Context(), lease("a", 5)))
	want := fence.RefusedError{Resource: "ledger", Fence: lease("a", 5), Current: lease("b", 6)}
	if e, ok := errors.AsType[*fence.RefusedError](err); status != 412 || !ok || *e != want {
		t.Errorf("got %d, %v", status, err)
	}
}
