package config_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding"
)

func load(t *testing.T, text string, environ ...string) (*config.Config, error) {
	t.Helper()
	if environ == nil {
		environ = []string{}
	}
	return config.Load(&config.LoadOptions{Path: "app.yaml", Data: []byte(text), Environ: environ})
}

func openers() []core.Opener {
	return []core.Opener{sqlite.Opener(), postgres.Opener(), mysql.Opener()}
}

const good = `
http: {port: 80} # the application's own
tenure:
  backend: sqlite
  backends:
    sqlite: &one
      path: tenure.db
      namespace: orders
    postgres:
      dsn: postgres://user@host/db
      namespace: orders
      max_conns: 7
  node: n1
  priority: 3
  meta: {addr: "n1:80"}
  ttl: 5s
  drain_budget: 1m30s
  jitter: 0.2
`

func TestLoad(t *testing.T) {
	t.Parallel()
	c, err := load(t, good, "TENURE__TTL=3s", "TENURE__META__ZONE=eu", "TENURE__BACKENDS__POSTGRES__MAX_CONNS=9",
		"OTHER=1", "TENURE_TTL=1s")
	if err != nil {
		t.Fatal(err)
	}
	o := c.Options()
	if o.Node != "n1" || o.Priority != 3 || o.TTL != 3*time.Second || o.DrainBudget != 90*time.Second ||
		o.Jitter != 0.2 ||
		o.Meta["addr"] != "n1:80" || o.Meta["zone"] != "eu" || o.Margin != 0 {
		t.Errorf("got %+v", o)
	}
	if err := c.Validate(openers()...); err != nil {
		t.Error(err)
	}
	if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0], "app.yaml:17: tenure.drain_budget") ||
		!strings.Contains(w[0], "stop_timeout") {
		t.Errorf("got warnings %q", w)
	}
	for _, none := range []string{"", "http: {}", "tenure:", "tenure: {}"} {
		c, err := load(t, none)
		if err != nil {
			t.Errorf("%q: %v", none, err)
		} else if o := c.Options(); o.TTL != 0 || len(c.Warnings()) != 0 {
			t.Errorf("%q: got %+v, %v", none, o, c.Warnings())
		}
	}
}

// A backend's errors refer to settings by their keys in the file.
func TestRemediesAreKeys(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"postgres": {"dsn: postgres://u:p@db.example.com/d?sslmode=disable", "or insecure"},
		"redis":    {"addrs: [redis.example.com:6379]", "or set insecure"},
		"etcd":     {"endpoints: []", "set endpoints"},
		"consul":   {"address: a:1, addresses: [b:1]", "set address or addresses"},
	} {
		c, err := load(t, "tenure: {backends: {"+name+": {namespace: orders, "+tt.text+"}}}")
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Open(t.Context(), postgres.Opener(), redis.Opener(), etcd.Opener(), consul.Opener())
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "Options.") {
			t.Errorf("%s: got %v, want %q and no name of Go", name, err, tt.want)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tenure.db")
	var opened []string
	watched := func(o core.Opener) core.Opener {
		open := o.Open
		o.Open = func(ctx context.Context, decode func(any) error) (core.Backend, error) {
			opened = append(opened, o.Name)
			return open(ctx, decode)
		}
		return o
	}
	c, err := load(t, good, "TENURE__BACKENDS__SQLITE__PATH="+path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Open(t.Context(), watched(postgres.Opener()), watched(sqlite.Opener()))
	if err != nil {
		t.Fatal(err)
	}
	if i := b.Info(); i.Backend != "sqlite" || i.Namespace != "orders" || fmt.Sprint(opened) != "[sqlite]" {
		t.Errorf("opened %v: %+v", opened, i)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// TestOpenChecksLimits: Open also checks the limits that only an opened backend knows, and then
// closes the backend.
func TestOpenChecksLimits(t *testing.T) {
	t.Parallel()
	c, err := load(t, "tenure: {ttl: 20ms, backends: {sqlite: {path: '"+filepath.Join(t.TempDir(), "a.db")+
		"', namespace: a}}}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Open(t.Context(), sqlite.Opener()); err == nil ||
		!strings.Contains(err.Error(), "app.yaml:1: tenure.ttl: ") || !strings.Contains(err.Error(), "floor") {
		t.Errorf("got %v", err)
	}
}

func TestSection(t *testing.T) {
	t.Parallel()
	c, err := load(t, "tenure: {sharding: {shards: [a, b], budget: 3}}", "TENURE__SHARDING__ZONES=x, y")
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Shards []string `yaml:"shards"`
		Zones  []string `yaml:"zones"`
		Budget uint8    `yaml:"budget"`
	}
	if err := c.Section("sharding", &s); err != nil || fmt.Sprint(s) != "{[a b] [x y] 3}" {
		t.Errorf("got %v, %v", s, err)
	}
	if err := c.Section("follower", &s); err != nil {
		t.Errorf("a section that is not there: %v", err)
	}
	c, err = load(t, "tenure:\n  sharding:\n    shards: [a]\n    intervall: 1s")
	if err != nil {
		t.Fatal(err)
	}
	var settings sharding.Options // without fx
	if err := c.Section("sharding", &settings); !errors.Is(err, core.ErrInvalid) || !strings.Contains(err.Error(), ":4: tenure.sharding.intervall") ||
		!strings.Contains(err.Error(), `"interval"`) {
		t.Errorf("an unknown key: %v", err)
	}
	if err := c.Section("other", &s); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

// TestMistakes: each mistake is reported on one line that names the place, the key, the value and
// the remedy.
func TestMistakes(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "no-such-secret")
	const sq = "\n  backends: {sqlite: {path: a.db, namespace: n}}"
	cases := []struct {
		name string
		text string
		env  []string
		want []string // parts of the line
	}{
		{"unknown key", "tenure:\n  heartbeet: 1s", nil, []string{"app.yaml:2: tenure.heartbeet", `did you mean "heartbeat"`}},
		{"unknown key, far off", "tenure:\n  colour: red", nil, []string{"app.yaml:2: tenure.colour", "remove it, or use one of", "ttl"}},
		{"other case", "tenure:\n  drainBudget: 1s", nil, []string{"tenure.drainBudget", `"drain_budget"`}},
		{"hyphen", "tenure:\n  drain-budget: 1s", nil, []string{"tenure.drain-budget", `"drain_budget"`}},
		{"letters swapped", "tenure:\n  tlt: 1s", nil, []string{"tenure.tlt", `"ttl"`}},
		{"twice", "tenure:\n  ttl: 1s\n  ttl: 2s", nil, []string{"app.yaml:3: key tenure.ttl occurs twice", "remove one"}},
		{"subtree twice", "tenure: {}\ntenure: {}", nil, []string{"app.yaml:2: key tenure occurs twice"}},
		{"not YAML", "tenure: [", nil, []string{"app.yaml is not YAML", "yaml: line "}},
		{"two documents", "tenure: {}\n---\ntenure: {}", nil, []string{"app.yaml has more than one YAML document", "keep one"}},
		{"subtree is a value", "tenure: yes", nil, []string{"app.yaml:1: tenure", "keys are expected"}},
		{"subtree is a list", "tenure: [ttl]", nil, []string{"app.yaml:1: tenure", "keys are expected"}},
		{"merge key", "x: &x {ttl: 1s}\ntenure:\n  <<: *x", nil, []string{"app.yaml:3: tenure", "write it out"}},
		{"no unit", "tenure:\n  ttl: 10", nil, []string{"app.yaml:2: tenure.ttl", `"10" has no unit`, "10s"}},
		{"zero without a unit is fine, one and a half is not", "tenure:\n  ttl: 1.5", nil, []string{`"1.5" has no unit`, "1.5s"}},
		{"wrong unit", "tenure:\n  ttl: 1d", nil, []string{`"1d" is not a duration`, "h, m, s, ms"}},
		{"unit in words", "tenure:\n  ttl: ten seconds", nil, []string{`"ten seconds" is not a duration`}},
		{"duration as a list", "tenure:\n  ttl: [1s]", nil, []string{"tenure.ttl: got a list", "write one duration"}},
		{"number in words", "tenure:\n  priority: high", nil, []string{`tenure.priority: "high" is not a whole number`, "digits"}},
		{"number too large", "tenure:\n  weight: 99999999999", nil, []string{`"99999999999" is not a whole number of at most 32 bits`}},
		{"fraction", "tenure:\n  weight: 1.5", nil, []string{`"1.5" is not a whole number`}},
		{"jitter in percent", "tenure:\n  jitter: 10%", nil, []string{`"10%" is not a number`, "0.1"}},
		{"jitter too large", "tenure:\n  jitter: 0.9", nil, []string{"app.yaml:2: tenure.jitter", "0.9", "lower it"}},
		{"truth", "tenure:\n  node: n\n  supersede: yes", nil, []string{`tenure.supersede: "yes" is neither true nor false`}},
		{"list for a value", "tenure:\n  node: [a]", nil, []string{"tenure.node: got a list", "write one value"}},
		{"value for a group", "tenure:\n  meta: addr", nil, []string{"tenure.meta: got a value", "write keys below it"}},
		{"negative", "tenure:\n  drain_budget: -1s", nil, []string{"app.yaml:2: tenure.drain_budget", "-1s", "default"}},
		{"negative weight", "tenure:\n  weight: -1", nil, []string{"app.yaml:2: tenure.weight", "-1"}},
		{"negative stop_timeout", "tenure:\n  stop_timeout: -1s", nil, []string{"tenure.stop_timeout", "-1s is negative"}},
		{"heartbeat against ttl", "tenure:\n  ttl: 5s\n  heartbeat: 4s", nil,
			[]string{"app.yaml:3: tenure.heartbeat", "heartbeat 4s", "ttl 5s", "lower it to at most"}},
		{"margin too large", "tenure:\n  ttl: 3s\n  margin: 2s", nil,
			[]string{"app.yaml:3: tenure.margin", "margin 2s", "lower it, or raise ttl above 6s"}},
		{"margin too small", "tenure:\n  ttl: 10s\n  margin: 1ms", nil, []string{"app.yaml:3: tenure.margin", "margin 1ms", "raise it"}},
		{"backoff", "tenure:\n  backoff_min: 1m\n  backoff_max: 1s", nil,
			[]string{"tenure.backoff_max", "backoff_max 1s is below backoff_min 1m", "raise it"}},
		{"resync against ttl", "tenure:\n  ttl: 1m\n  resync: 30s", nil,
			[]string{"tenure.resync", "resync 30s is below the ttl 1m", "raise it"}},
		{"negative failback", "tenure:\n  failback: -1s", nil, []string{"app.yaml:2: tenure.failback", "-1s is negative"}},
		{"watchdog", "tenure:\n  watchdog: 10us", nil, []string{"tenure.watchdog", "watchdog 10", "raise it"}},
		{"ttl too long", "tenure:\n  ttl: 48h", nil, []string{"app.yaml:2: tenure.ttl", "48h", "24h"}},
		{"supersede without node", "tenure:\n  supersede: true", nil, []string{"app.yaml:2: tenure.supersede", "set node"}},
		{"node with a slash", "tenure:\n  node: a/b", nil, []string{"app.yaml:2: tenure.node", `"a/b"`}},
		{"meta key", "tenure:\n  meta: {'a b': x}", nil, []string{"tenure.meta", `"a b"`}},
		{"secret file missing", "tenure:\n  backends:\n    postgres:\n      dsn: !file " + missing, nil,
			[]string{"app.yaml:4: tenure.backends.postgres.dsn", "no such file", "create the file"}},
		{"secret variable missing", "tenure:\n  node: !env NODE_NAME", nil,
			[]string{"app.yaml:2: tenure.node", "no variable of the name after !env", "set it"}},
		{"unknown tag", "tenure:\n  node: !vault a", nil, []string{"app.yaml:2: tenure.node", "unknown tag", "use !file or !env", "quote"}},
		{"unknown tag of YAML's", "tenure:\n  node: !!vault a", nil, []string{"app.yaml:2: tenure.node", "unknown tag", "quote"}},
		{"alias of nothing", "tenure:\n  node: *one", nil, []string{"app.yaml is not YAML", "an alias has no anchor",
			"quote a value that begins with ! or *"}},
		{"no backend", "tenure: {}", nil, []string{"tenure.backend: no backend is configured", "mysql, postgres, sqlite"}},
		{"two backends", "tenure:\n  backends: {sqlite: {path: a, namespace: n}, mysql: {dsn: x, namespace: n}}", nil,
			[]string{"tenure.backend: it is not set", "set it to one of mysql, sqlite"}},
		{"unknown backend", "tenure:\n  backend: redis" + sq, nil,
			[]string{"app.yaml:2: tenure.backend", `"redis"`, "use one of mysql, postgres, sqlite"}},
		{"backend misspelt", "tenure:\n  backend: postgre" + sq, nil, []string{`"postgre"`, `did you mean "postgres"?`}},
		{"part of an unknown backend", "tenure:\n  backend: sqlite\n  backends:\n    sqlite: {path: a, namespace: " +
			"n}\n    redis: {addr: b}", nil, []string{"app.yaml:5: tenure.backends.redis", "unknown key", "sqlite"}},
		{"backends is a value", "tenure:\n  backends: sqlite", nil,
			[]string{"app.yaml:2: tenure.backends", "write the name of a backend below it"}},
		{"backend's part is a value", "tenure:\n  backends:\n    sqlite: a.db", nil,
			[]string{"app.yaml:3: tenure.backends.sqlite", "write the backend's keys below it"}},
		{"unknown key of a backend", "tenure:\n  backends:\n    sqlite:\n      path: a\n      namespce: n", nil,
			[]string{"app.yaml:5: tenure.backends.sqlite.namespce", `did you mean "namespace"?`}},
		{"unknown key of a backend that is not chosen", "tenure:\n  backend: sqlite\n  backends:\n    sqlite: {path: " +
			"a, namespace: n}\n    mysql: {host: b}", nil, []string{"app.yaml:5: tenure.backends.mysql.host", "dsn"}},
		{"unit of a backend's key", "tenure:\n  backends:\n    sqlite: {path: a, namespace: n, poll: 50}", nil,
			[]string{"app.yaml:3: tenure.backends.sqlite.poll", `"50" has no unit`}},
		{"environment: unknown key", "", []string{"TENURE__HEARTBEET=1s"},
			[]string{"TENURE__HEARTBEET: tenure.heartbeet", `did you mean "heartbeat"?`}},
		{"environment: no unit", "", []string{"TENURE__TTL=5"}, []string{"TENURE__TTL: tenure.ttl", `"5" has no unit`}},
		{"environment: below a value", "tenure:\n  ttl: 1s", []string{"TENURE__TTL__X=5"},
			[]string{"TENURE__TTL__X: ttl is a value in app.yaml:2", "correct the name"}},
		{"environment: empty part", "", []string{"TENURE____TTL=5s"}, []string{"TENURE____TTL: a part of the name is empty"}},
		{"environment: unknown backend", good, []string{"TENURE__BACKEND=redis"}, []string{"TENURE__BACKEND: tenure.backend", `"redis"`}},
	}
	if len(cases) < 40 {
		t.Errorf("%d cases, want at least 40", len(cases))
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg, err := load(t, c.text, c.env...)
			if err == nil {
				err = cfg.Validate(openers()...)
			}
			if !errors.Is(err, core.ErrInvalid) {
				t.Fatalf("got %v, want ErrInvalid", err)
			}
			line := err.Error()
			if strings.Contains(line, "\n") {
				t.Errorf("more than one line: %s", line)
			}
			for _, want := range c.want {
				if !strings.Contains(line, want) {
					t.Errorf("got %q, want %q in it", line, want)
				}
			}
		})
	}
}

func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	_, err := load(t, "tenure:\n  ttl: 10\n  colour: red\n  weight: x")
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("got %v", err)
	}
}

func TestBombs(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("a0: &a0 {x: y}\n")
	for i := 1; i < 20; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [*a%d, *a%d]\n", i, i, i-1, i-1)
	}
	if _, err := load(t, b.String()+"tenure: {meta: {x: *a19}}"); err == nil ||
		!strings.Contains(err.Error(), "aliases") {
		t.Errorf("aliases that multiply: %v", err)
	}
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, 60<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(t, "x: &x !file "+large+"\ntenure: {x: ["+strings.Repeat("*x, ", 1000)+"]}"); err == nil ||
		!strings.Contains(err.Error(), "remove aliases") {
		t.Errorf("aliases of a file: %v", err)
	}
	if _, err := load(t, strings.Repeat("#", 2<<20)); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("a large file: %v", err)
	}
}

// TestCyclicAlias: a file of 1 KB cannot take up gigabytes of memory. The test measures the
// process's allocations, so no other test runs at the same time.
func TestCyclicAlias(t *testing.T) {
	key := strings.Repeat("k", 200)
	for _, text := range []string{
		"tenure: &t {meta: *t}",
		"tenure: &t {" + key + ": *t}",
		"tenure: &t [*t, *t]",
		"tenure: {a: &a {" + key + ": &b {c: *a, d: *b}}}",
		"tenure: {" + strings.Repeat("k", 100<<10) + ": {" + strings.Repeat("a: b, c: d, ", 10) + "}}",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := load(t, text)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, core.ErrInvalid) || len(err.Error()) > 16<<10 {
			t.Errorf("%.60s: got an error of %d bytes: %.200v", text, len(fmt.Sprint(err)), err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 16<<20 {
			t.Errorf("%.60s: allocated %d bytes, want 16 MiB at most", text, got)
		}
	}
}

// TestSecrets plants secrets everywhere, and looks for them in everything that is printed.
func TestSecrets(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "dsn")
	if err := os.WriteFile(file, []byte("postgres://u:planted1@host/db\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := `
tenure:
  backend: mysql
  meta: {upstream: "https://u:planted2@host", api_token: planted3}
  backends:
    postgres:
      dsn: !file ` + file + `
      namespace: orders
    mysql:
      dsn: "u:planted4@tcp(127.0.0.1:1)/db"
      namespace: !env NS
    redis:
      url: planted5
      port: 6379
`
	environ := []string{"NS=planted6", "NUMBER=40414243", "TENURE__BACKENDS__MYSQL__PASSWORD_FILE=/run/secrets/pw"}
	c, err := load(t, text, environ...)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	log.Debug("config", "pointer", c, "value", *c)
	slog.New(slog.NewTextHandler(&out, nil)).Info("config", "c", c)
	js, err := json.Marshal(map[string]any{"p": c, "v": *c})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(js)
	type holder struct{ C config.Config }
	fmt.Fprintf(&out, "%v %+v %#v %s %q %x", c, *c, c, c, c, c)
	fmt.Fprintf(&out, "%v %+v %#v", holder{*c}, holder{*c}, struct{ c *config.Config }{c})
	out.WriteString(c.Redacted() + c.Redacted(openers()...))
	if err := c.Validate(openers()...); err != nil { // redis is not one of them
		out.WriteString(err.Error())
	} else {
		t.Error("a part of an unknown backend was accepted")
	}
	for _, bad := range []string{
		strings.Replace(text, "namespace: !env NS", "max_conns: !env NS", 1),
		strings.Replace(text, "upstream:", "upstream: {x: y}, dsn:", 1),
		strings.Replace(text, `dsn: "u:`, `insecure: "u:`, 1),
		strings.Replace(text, `dsn: "u:`, `poll: "u:`, 1),
		strings.Replace(text, "dsn: !file", "insecure: !file", 1),
		strings.Replace(text, "dsn: !file", "poll: !file", 1),
		strings.Replace(text, "meta:", "ttl: !env NUMBER\n  meta:", 1),
		strings.Replace(text, "url: planted5", "password: !planted7", 1),
		strings.Replace(text, "url: planted5", "password: !!planted7", 1),
		strings.Replace(text, "url: planted5", "password: *planted8", 1),
		strings.Replace(text, "backend: mysql", `backend: "u:planted9@tcp(127.0.0.1:1)/db"`, 1),
		strings.Replace(text, "backend: mysql", "backend: !env NS", 1),
		strings.Replace(text, "url: planted5", "password: !env planted11", 1),
		strings.Replace(text, "url: planted5", "password: !file planted12", 1),
		strings.Replace(text, "url: planted5", "password: !file /planted13/x", 1),
		strings.Replace(text, "backend: mysql", "backend: mysql\n  node: postgres://user:planted14@host/db", 1),
		strings.Replace(text, "backend: mysql", "backend: mysql\n  ttl: host=db password=planted15", 1),
	} {
		c, err := load(t, bad, environ...)
		if err == nil {
			err = c.Validate(openers()...)
		}
		if err == nil {
			t.Errorf("accepted %s", bad)
		}
		fmt.Fprintf(&out, "%+v", err)
	}
	if _, err = load(t, text, append(environ, "TENURE__BACKEND=postgres://u:planted10@host/db")...); err == nil {
		t.Error("a DSN was accepted as a backend's name")
	}
	fmt.Fprintf(&out, "%+v", err)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if c, err = load(t, strings.Replace(text, "    redis:\n      url: planted5\n      port: 6379\n", "", 1),
		environ...); err != nil {
		t.Fatal(err)
	}
	_, err = c.Open(ctx, openers()...) // nothing listens there
	if err == nil {
		t.Error("opened")
	}
	fmt.Fprintf(&out, "%+v", err)
	if i := max(strings.Index(out.String(), "planted"), strings.Index(out.String(), "40414243")); i >= 0 {
		t.Errorf("a secret is shown: ...%s", out.String()[max(0, i-200):min(out.Len(), i+20)])
	}
	for _, want := range []string{"backend: mysql", "namespace: orders", "/run/secrets/pw", "app.yaml:7", "port: 6379",
		"xxxxx"} {
		if !strings.Contains(c.Redacted(openers()...)+out.String(), want) {
			t.Errorf("Redacted hides %q:\n%s", want, c.Redacted(openers()...))
		}
	}
}

// keys returns the keys of a struct, and of the structs that it embeds.
func keys(t reflect.Type) (all []string) {
	for i := range t.NumField() {
		switch f := t.Field(i); {
		case f.Anonymous:
			all = append(all, keys(f.Type)...)
		case f.Tag.Get("yaml") != "-":
			all = append(all, f.Tag.Get("yaml"))
		}
	}
	return all
}

// TestPastedCredentials puts a data source name under each text key of each backend, and malformed
// names under the right key. No error contains any part of the password.
func TestPastedCredentials(t *testing.T) {
	t.Parallel()
	needed := map[string]string{
		"sqlite": "path: /nonexistent/a.db", "postgres": "dsn: postgres://127.0.0.1:1/db",
		"mysql": "dsn: me@tcp(127.0.0.1:1)/db",
		"etcd":  "endpoints: ['http://127.0.0.1:1']", "consul": "address: http://127.0.0.1:1",
		"zookeeper": "servers: ['127.0.0.1:1']", "redis": "addrs: ['127.0.0.1:1']",
	}
	tried := 0
	for _, o := range []core.Opener{sqlite.Opener(), postgres.Opener(), mysql.Opener(), etcd.Opener(), consul.Opener(),
		zookeeper.Opener(), redis.Opener()} {
		for _, key := range keys(reflect.TypeOf(o.Settings)) {
			values := []string{
				"postgres://me:planted@127.0.0.1:1/db", "me:planted@tcp(127.0.0.1:1)/db",
				"https://me:planted@127.0.0.1:1", "me:planted@127.0.0.1:1",
				"host=127.0.0.1 port=1 user=me password=planted dbname=db",
				"postgres://me:x@planted@127.0.0.1:1/db", "postgres://me:x@planted/y@127.0.0.1:1/db",
				"postgres://me:x@planted?a=b@127.0.0.1:1/db",
				"postgres://me:x@planted#y@127.0.0.1:1/db", "postgres://me:12/planted@127.0.0.1:1/db",
				"me:x/planted@tcp(127.0.0.1:1)", "https://me:x/planted@127.0.0.1:1", "https://me:x@planted@127.0.0.1:1",
			}
			if strings.HasSuffix(key, "_file") { // the file's content instead of its name
				values = append(values, "planted", "-----BEGIN PRIVATE KEY-----planted")
			}
			if key == "dsn" {
				values = append(values, "me:x(planted)/db")
			}
			for _, value := range values {
				tried++
				part := "namespace: orders, insecure: true, " + needed[o.Name]
				switch o.Name {
				case "sqlite":
					part = strings.Replace(part, "insecure: true, ", "", 1)
				case "etcd":
					if key != "username" && strings.HasPrefix(key, "password") {
						part += ", username: me"
					}
				}
				environ := []string{"TENURE__BACKENDS__" + strings.ToUpper(o.Name+"__"+key) + "=" + value}
				c, err := load(t, "tenure: {open_timeout: 100ms, backends: {"+o.Name+": {"+part+"}}}", environ...)
				if err == nil {
					var b core.Backend
					if b, err = c.Open(t.Context(), o); err == nil {
						t.Errorf("%s.%s: opened with %s", o.Name, key, value)
						_ = b.Close()
					}
				}
				if text := fmt.Sprintf("%+v", err); strings.Contains(text, "planted") {
					t.Errorf("%s.%s: %s: the error has a part of it: %s", o.Name, key, value, text)
				}
			}
		}
	}
	if tried < 500 {
		t.Errorf("tried %d, want 500 at least", tried)
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	text, err := config.Schema(openers()...)
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Properties map[string]struct {
			Type, Description, Pattern string
			Enum                       []string
			AdditionalProperties       any
			Properties                 map[string]struct {
				AdditionalProperties any
				Properties           map[string]struct{ WriteOnly bool }
			}
		}
		AdditionalProperties any
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	backends := s.Properties["backends"]
	if s.AdditionalProperties != false || s.Properties["ttl"].Pattern == "" || s.Properties["ttl"].Description == "" ||
		fmt.Sprint(s.Properties["backend"].Enum) != "[mysql postgres sqlite]" ||
		backends.AdditionalProperties != false ||
		backends.Properties["sqlite"].AdditionalProperties != false ||
		!backends.Properties["postgres"].Properties["dsn"].WriteOnly ||
		backends.Properties["postgres"].Properties["namespace"].WriteOnly {
		t.Errorf("got %s", text)
	}
	for name, p := range s.Properties {
		if p.Description == "" {
			t.Errorf("key %s has no description", name)
		}
	}
}

// TestCredentialsAreSecret: every setting of a backend that may hold a credential
// has a secret type.
func TestCredentialsAreSecret(t *testing.T) {
	t.Parallel()
	found := 0
	for _, o := range []core.Opener{memory.Opener(), sqlite.Opener(), postgres.Opener(), mysql.Opener(), etcd.Opener(),
		consul.Opener(), zookeeper.Opener(), redis.Opener()} {
		if o.Settings == nil {
			t.Errorf("%s: its opener does not state its settings", o.Name)
			continue
		}
		text, err := config.Schema(o)
		if err != nil {
			t.Fatal(err)
		}
		var s struct {
			Properties struct {
				Backends struct {
					Properties map[string]struct {
						Properties map[string]struct{ WriteOnly bool }
					}
				}
			}
		}
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatal(err)
		}
		for key, p := range s.Properties.Backends.Properties[o.Name].Properties {
			switch key {
			case "dsn", "password", "token", "sentinel_password":
				found++
				if !p.WriteOnly {
					t.Errorf("%s.%s is not secret", o.Name, key)
				}
			default:
				if p.WriteOnly {
					t.Errorf("%s.%s is secret", o.Name, key)
				}
			}
		}
	}
	if found != 7 {
		t.Errorf("found %d credentials, want 7", found)
	}
}
