package servers

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

// TestConsul: a killed server keeps its data, and a stopped server does not answer. Three servers
// continue without one.
func TestConsul(t *testing.T) {
	t.Parallel()
	t.Run("one", func(t *testing.T) {
		t.Parallel()
		s := New(t, Consul, nil)
		put(t, s, "kept")
		if err := s.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 { // of a dead server, and of a running one
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if status := request(t, s, http.MethodGet, "/v1/kv/kept?raw"); status != http.StatusOK {
			t.Errorf("a key from before the restart: status %d", status)
		}
	})
	t.Run("three", func(t *testing.T) {
		t.Parallel()
		testConsulThree(t)
	})
	t.Run("ACLs", func(t *testing.T) {
		t.Parallel()
		const line = `acl = { enabled = true, default_policy = "deny", tokens = { initial_management = "5a8e2d0c-4b1f-4c52-9d0a-6d0f0f7f2a11" } }`
		s := New(t, Consul, &Options{Config: []string{line}})
		if status := request(t, s, http.MethodPut, "/v1/kv/x"); status != http.StatusForbidden {
			t.Errorf("without a token: status %d", status)
		}
	})
}

func testConsulThree(t *testing.T) {
	c, err := StartCluster(bounded(t, 2*startTimeout), Consul, 3, nil)
	Unavailable(t, Consul, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	m := c.Members()
	put(t, m[0], "common")
	for _, s := range m {
		eventually(t, "the key", func() bool {
			return request(t, s, http.MethodGet, "/v1/kv/common?raw&consistent") == http.StatusOK
		})
	}
	if err := m[0].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two of three serve", func() bool {
		return request(t, m[1], http.MethodPut, "/v1/kv/still") == http.StatusOK
	})
	if err := m[1].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := m[1].Cont(); err != nil {
		t.Fatal(err)
	}
	if err := m[0].Restart(bounded(t, startTimeout)); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(bounded(t, 2*startTimeout)); err != nil {
		t.Fatal(err)
	}
	for _, s := range m {
		eventually(t, "the key from before the restart", func() bool {
			return request(t, s, http.MethodGet, "/v1/kv/common?raw&consistent") == http.StatusOK
		})
	}
}

func put(t *testing.T, s *Server, key string) {
	t.Helper()
	if status := request(t, s, http.MethodPut, "/v1/kv/"+key); status != http.StatusOK {
		t.Fatalf("writing to %s: status %d", s.Addr(), status)
	}
}

// request returns the status, 0 without an answer.
func request(t *testing.T, s *Server, method, path string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(bounded(t, ample.Time), method, "http://"+s.Addr()+path,
		strings.NewReader("value"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK && method == http.MethodPut {
		var done bool
		if err := json.NewDecoder(res.Body).Decode(&done); err != nil || !done {
			return 0
		}
	}
	return res.StatusCode
}
