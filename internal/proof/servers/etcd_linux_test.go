package servers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// etcdKey puts or reads a key through the HTTP gateway of a member.
func etcdKey(ctx context.Context, s *Server, call, body string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Addr()+"/v3/kv/"+call,
		strings.NewReader(body))
	if err != nil {
		return "", err
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return string(text), err
}

const (
	putKey  = `{"key": "a2V5", "value": "dmFsdWU="}`
	readKey = `{"key": "a2V5"}`
)

// mustHave waits until a member has the key of putKey.
func mustHave(t *testing.T, s *Server) {
	t.Helper()
	var last error
	eventually(t, "the key", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		text, err := etcdKey(ctx, s, "range", readKey)
		last = err
		return err == nil && strings.Contains(text, `"dmFsdWU="`)
	})
	if last != nil {
		t.Error(last)
	}
}

// TestEtcdCluster stops some members, and then all. The data stays, and without a majority, no
// request is answered.
func TestEtcdCluster(t *testing.T) {
	t.Parallel()
	c, err := StartCluster(bounded(t, 2*startTimeout), Etcd, 3, &Options{NoSync: true})
	Unavailable(t, Etcd, err)
	closed := false
	defer func() {
		if !closed {
			c.Close()
		}
	}()
	m := c.Members()
	addrs := fmt.Sprint(c.Addrs())
	if _, err := etcdKey(t.Context(), m[0], "put", putKey); err != nil {
		t.Fatal(err)
	}
	if err := m[0].Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustHave(t, m[1])
	if err := m[1].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	if text, err := etcdKey(ctx, m[2], "put", putKey); err == nil {
		t.Errorf("one of three members takes a write: %s", text)
	}
	cancel()
	if err := m[1].Cont(); err != nil {
		t.Fatal(err)
	}
	if err := m[0].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustHave(t, m[0])
	if err := c.Restart(bounded(t, startTimeout)); err != nil {
		t.Fatal(err)
	}
	for _, s := range m {
		mustHave(t, s)
		if s.Logs() == "" {
			t.Errorf("the log of %s is empty", s.Addr())
		}
	}
	if now := fmt.Sprint(c.Addrs()); now != addrs {
		t.Errorf("got addresses %s after the restart, want %s", now, addrs)
	}
	if err := m[0].Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed = true
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if err := m[0].Restart(t.Context()); err == nil {
		t.Error("a member of a closed cluster was restarted")
	}
}

func TestEtcdTLS(t *testing.T) {
	t.Parallel()
	for _, level := range []TLS{TLSServer, TLSMutual} {
		s := fresh(t, Etcd, &Options{TLS: level, NoSync: true})
		cfg, err := s.TLSConfig()
		if err != nil {
			t.Fatal(err)
		}
		health := func() error {
			conn, err := tls.Dial("tcp", s.Addr(), cfg)
			if err != nil {
				return err
			}
			defer conn.Close()
			// With TLS 1.3, a refusal comes with the first read.
			if _, err := io.WriteString(conn, "GET /health HTTP/1.0\r\n\r\n"); err != nil {
				return err
			}
			_, err = conn.Read(make([]byte, 1))
			return err
		}
		if err := health(); err != nil {
			t.Errorf("level %d: %v", level, err)
		}
		cfg.Certificates = nil
		if err := health(); (err != nil) != (level == TLSMutual) {
			t.Errorf("level %d without a client's certificate: %v", level, err)
		}
	}
}

func TestClusterRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind Kind
		n    int
		o    *Options
	}{{Postgres, 3, nil}, {Etcd, 0, nil}, {Etcd, 10, nil}, {"none", 3, nil}, {Etcd, 3, &Options{DiskBytes: -1}}} {
		if got, err := StartCluster(t.Context(), c.kind, c.n, c.o); err == nil {
			got.Close()
			t.Errorf("%+v was started", c)
		}
	}
	if os.Getuid() != 0 {
		_, err := StartCluster(t.Context(), Etcd, 1, &Options{DiskBytes: 1 << 20})
		if !errors.Is(err, ErrUnavailable) {
			t.Errorf("a disk without root: %v, want ErrUnavailable", err)
		}
	}
}
