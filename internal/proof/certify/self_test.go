package certify

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// openers returns the openers of the tests' members.
func openers() []driver.Opener {
	return []driver.Opener{lying(sqlite.Opener()), postgres.Opener(), mysql.Opener(), etcd.Opener(), zookeeper.Opener(),
		consul.Opener(), redis.Opener()}
}

func TestMain(m *testing.M) {
	if code, is := Member(openers()...); is {
		os.Exit(code)
	}
	os.Exit(pool.Run(m))
}

var pool servers.Pool

// few are cases, one of which needs a fault.
var few = regexp.MustCompile("^(Acquire|Commit)/(Exclusive|AppliesWhenCurrent|LateRequestRefused)$")

// quick returns options for a few cases. settings is a struct.
func quick(o driver.Opener, settings any) Options {
	return Options{Opener: o, Settings: settings, RunOptions: RunOptions{Only: []Phase{Conformance}}, Cases: few}
}

// certify makes the namespace, and certifies its store.
func certify(t *testing.T, o Options) *Report {
	t.Helper()
	makeNamespace(t, o)
	o.Progress = func(line string) { t.Log(line) }
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func makeNamespace(t *testing.T, o Options) {
	t.Helper()
	s := settingsOf(o.Settings)
	b, err := s.in(s.text("namespace", ""), true).open(t.Context(), o.Opener)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// counted checks how many cases passed, failed and were skipped.
func counted(t *testing.T, r *Report, want string) {
	t.Helper()
	for _, l := range r.Lines() {
		if l.Phase == string(Conformance) && strings.HasPrefix(l.Figures, want) {
			return
		}
	}
	t.Errorf("got %+v, want %q; findings: %+v", r.Lines(), want, r.Findings)
}

func matching(cases string) *regexp.Regexp { return regexp.MustCompile(cases) }
