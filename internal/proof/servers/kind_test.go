package servers

import (
	"errors"
	"strings"
	"testing"
)

// verdict is a testing.TB that records how the test ended.
type verdict struct {
	testing.TB
	skipped, failed bool
}

func (v *verdict) Helper()      {}
func (v *verdict) Skip(...any)  { v.skipped = true }
func (v *verdict) Fatal(...any) { v.failed = true }

func TestUnavailablePolicy(t *testing.T) {
	missing := unavailable(Postgres, "for a test")
	for _, c := range []struct {
		require         string
		err             error
		skipped, failed bool
	}{
		{"", nil, false, false},
		{"", missing, true, false},
		{"mariadb", missing, true, false},
		{"mariadb, postgres", missing, false, true},
		{"all", missing, false, true},
		{"", errors.New("broken"), false, true},
	} {
		t.Setenv(RequireVariable, c.require)
		v := &verdict{}
		Unavailable(v, Postgres, c.err)
		if v.skipped != c.skipped || v.failed != c.failed {
			t.Errorf("%s=%q, error %v: got skipped %v, failed %v, want %v, %v", RequireVariable, c.require, c.err,
				v.skipped, v.failed, c.skipped, c.failed)
		}
	}
}

// TestShort: with -short, only required servers start or are used, including servers that the
// environment names.
func TestShort(t *testing.T) {
	if !testing.Short() {
		t.Skip("looks at -short")
	}
	t.Setenv(RequireVariable, string(Consul))
	t.Setenv(Postgres.variable(), "postgres://u:p@127.0.0.1:1/x")
	for _, kind := range []Kind{Postgres, Redis} {
		s, err := Start(t.Context(), kind, nil)
		c, errs := StartCluster(t.Context(), Redis, 3, nil)
		for _, err := range []error{err, errs} {
			v := &verdict{}
			if Unavailable(v, kind, err); !v.skipped || v.failed {
				t.Errorf("%s: got %v, %v, %v, want a skipped test", kind, s, c, err)
			}
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind Kind
		o    Options
		want string
	}{
		{"oracle", Options{}, "no kind"},
		{Postgres, Options{Config: []string{"a = b\nc = d"}}, "line break"},
		{Postgres, Options{TLS: 9}, "does not exist"},
		{MariaDB, Options{DiskBytes: -1}, "negative"},
		{PgBouncer, Options{}, "Upstream"},
		{PgBouncer, Options{Upstream: &Server{kind: MariaDB}}, "Upstream"},
		{Postgres, Options{Upstream: &Server{kind: MariaDB}}, "Upstream"},
		{MariaDB, Options{Upstream: &Server{kind: Postgres}}, "Upstream"},
		{S3, Options{TLS: TLSServer}, "without TLS"},
		{GCS, Options{TLS: TLSMutual}, "without TLS"},
	} {
		s, err := Start(t.Context(), c.kind, &c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Start(%s, %+v): got %v, %v, want an error with %q", c.kind, c.o, s, err, c.want)
		}
	}
}
