package certify

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/history"
	"github.com/tenure-go/tenure/internal/proof/suite"
	"github.com/tenure-go/tenure/internal/proof/system"
)

// TestRecordsAreRemoved: no record of the run is left, and all other records are unchanged.
func TestRecordsAreRemoved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "mine.db")
	o := quick(sqlite.Opener(), sqlite.Settings{Path: path, Namespace: "team", Options: sqlite.Options{TablePrefix: "mine_", PollPeriod: 5 * time.Millisecond}})
	r := certify(t, o)
	counted(t, r, fmt.Sprintf("2 passed, 0 failed, %d skipped", len(Cases())-2))
	if r.Verdict != Held || r.Opening.Limits.PollPeriod != 5*time.Millisecond || !strings.Contains(r.Store.Version, "SQLite 3") || r.Store.Where != path {
		t.Errorf("got %s with %+v and %+v", r.Verdict, r.Opening, r.Store)
	}
	if !slices.ContainsFunc(r.Skipped, func(s Skip) bool {
		return s.What == "case Commit/LateRequestRefused" && strings.Contains(s.Why, "lacks Wire.Hold")
	}) {
		t.Errorf("the case that needs a fault is not listed: %+v", r.Skipped)
	}
	for file, tables := range map[string][]string{path: dataTables(), path + "-members": memberTables()} {
		rowsOf(t, file, tables)
	}
}

// rowsOf checks that the tables have only rows of the namespace team.
func rowsOf(t *testing.T, file string, tables []string) {
	t.Helper()
	db, err := sqlite.OpenDB(file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, table := range tables {
		var others, own sql.NullInt64
		err := db.QueryRow("SELECT sum(namespace <> 'team'), sum(namespace = 'team') FROM mine_"+table).Scan(&others, &own)
		if err != nil || others.Int64 != 0 || own.Int64 > 1 {
			t.Errorf("table %s has %d rows of others and %d of the team's, %v", table, others.Int64, own.Int64, err)
		}
	}
}

// TestBeneath: a run's namespace is always valid, and differs from the configured namespace.
func TestBeneath(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", driver.MaxNameLen)
	for ns, want := range map[string]string{"": "certify-", "orders": "orders/certify-", long: long + "/certify-",
		"a/b/c/d/e/f/g/h": "a/b/c/d/certify-", "../etc": "certify-", "a\nb": "certify-", "certify-prod": "certify-prod/certify-"} {
		got := beneath(ns)
		if !strings.HasPrefix(got, want) || driver.CheckNamespace(got+"/case-0123456789/b") != nil || got == beneath(ns) {
			t.Errorf("beneath %.40q: got %.80q", ns, got)
		}
	}
}

// TestSettingsAreComplete: the members get the configured settings, including secrets.
func TestSettingsAreComplete(t *testing.T) {
	t.Parallel()
	yes := false
	for _, want := range []any{
		postgres.Settings{DSN: "postgres://me:planted@h/db", Namespace: "n", Options: postgres.Options{Schema: "s", PollPeriod: time.Second}},
		mysql.Settings{DSN: "me:planted@tcp(h)/db", PasswordFile: "f", Namespace: "n"},
		sqlite.Settings{Path: "p", Namespace: "n", Options: sqlite.Options{Create: &yes}},
		consul.Settings{Config: consul.Config{Addresses: []string{"a", "b"}, Token: "planted", TLS: true}, Namespace: "n"},
		zookeeper.Settings{Servers: []string{"a:1"}, Namespace: "n", Options: zookeeper.Options{User: "u", Password: "planted"}},
	} {
		s := settingsOf(want)
		got := reflect.New(reflect.TypeOf(want))
		_, _ = s.open(t.Context(), driver.Opener{Open: func(_ context.Context, decode func(any) error) (driver.Backend, error) {
			return nil, decode(got.Interface())
		}})
		if !reflect.DeepEqual(got.Elem().Interface(), want) {
			t.Errorf("got %#v, want %#v", got.Elem().Interface(), want)
		}
		for _, shown := range s.shown() {
			if strings.Contains(shown.Value, "planted") {
				t.Errorf("setting %s shows a secret", shown.Name)
			}
		}
	}
}

// TestSecretsAreScrubbed: a secret is replaced in each form of a message.
func TestSecretsAreScrubbed(t *testing.T) {
	t.Parallel()
	secret := `p@ss/"w<rd\` + "\n"
	escaped, err := json.Marshal(secret)
	if err != nil {
		t.Fatal(err)
	}
	scrub := scrubber([]string{secret, "", "ss"})
	for _, text := range []string{secret, string(escaped), "postgres://me:p%40ss%2F%22w%3Crd%5C%0A@h/db", `"p@ss/\"w<rd\\\n"`} {
		if got := scrub("before " + text + " after"); strings.Contains(got, "w<rd") || strings.Contains(got, "w%3Crd") ||
			strings.Contains(got, "w\\u003crd") || !strings.Contains(got, "before ") || !strings.Contains(got, " after") {
			t.Errorf("got %q", got)
		}
	}
	inner := errors.New("refused for " + secret)
	if err := scrubbed(inner, scrub); strings.Contains(err.Error(), secret) || !errors.Is(err, inner) {
		t.Errorf("got %v", err)
	}
	for _, opening := range []error{nil, errors.New(secret)} {
		r := newReport(&Options{Opener: driver.Opener{Name: "x"}}, &target{}, settings{}, "n")
		r.took(&suite.Report{Version: secret, Results: []suite.Result{{Case: "Acquire/Exclusive", Outcome: suite.Failed, Messages: []string{secret}}}}, nil)
		r.find(Finding{Message: secret})
		r.Store.Version, r.Opening.Rollback = secret, secret
		r.Opening.Findings = []driver.Finding{{Name: "n", Value: secret, Remedy: secret}}
		r.judge(opening)
		r.scrub(scrub)
		if text, err := r.JSON(); err != nil || strings.Count(string(text), "xxxxx") < 5 || strings.Contains(string(text), "w\\u003crd") {
			t.Errorf("%v: %s", err, text)
		}
	}
}

// TestPasswordIsAWord: a password that is a word of the report does not change the report, and a
// later run recognizes it.
func TestPasswordIsAWord(t *testing.T) {
	t.Parallel()
	o := quick(sqlite.Opener(), sqlite.Settings{Path: filepath.Join(t.TempDir(), "mine.db"), Namespace: "team"})
	makeNamespace(t, o)
	b, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	text, err := b.JSON()
	if err != nil {
		t.Fatal(err)
	}
	words := append(regexp.MustCompile(`[A-Za-z0-9]+`).FindAllString(string(text), -1), "e", "1", kind, notChosen, "sqlite")
	slices.Sort(words)
	before := b.Lines()
	for _, word := range slices.Compact(words) {
		r := *b
		r.Findings, r.Opening.Findings = nil, nil // texts of the store, which are scrubbed
		r.Store.Version, r.Opening.Rollback = "", ""
		want, err := r.JSON()
		if err != nil {
			t.Fatal(err)
		}
		r.scrub(scrubber([]string{word}))
		got, err := r.JSON()
		if err != nil || jsonOf(t, got) != jsonOf(t, want) || !slices.Equal(r.Lines()[1:], before[1:]) || len(r.Lines()) != 2 {
			t.Errorf("with the password %q: %v, got %s\nwant %s", word, err, got, want)
		}
	}
	if got := scrubber([]string{"e", "1"})("refused: e at 10.0.0.1, e1, 1e, (e)"); got != "refused: xxxxx at 10.0.0.xxxxx, e1, 1e, (xxxxx)" {
		t.Errorf("got %q", got)
	}
}

// jsonOf returns JSON with its keys in order, without the store's version.
func jsonOf(t *testing.T, text []byte) string {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if suite, ok := v["conformance"].(map[string]any); ok {
		delete(suite, "version")
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestAddresses: addresses that do not parse are not shown, because they may contain a password.
func TestAddresses(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"h", "h:1", "10.0.0.1:2379", "[::1]:1", "[fe80::1%eth0]:1", "http://h:1", "https://h.example.org", "http://h:1/"} {
		if !isAddress(good) || shownAddresses([]string{good}) != good {
			t.Errorf("%q is no address", good)
		}
	}
	const planted = "pl4nted-s3cret"
	for _, bad := range []string{"redis://:" + planted + "@h:1", "http://me:" + planted + "@h:1", "me:" + planted + "@h:1", "h:" + planted,
		"h:1/" + planted, "h:1?x=" + planted, "h 1 " + planted, "h:1\n" + planted, "::1:" + planted} {
		for _, s := range []settings{{"endpoints": []string{"h:1", bad}}, {"address": bad}, {"addrs": []string{bad}}, {"servers": []string{bad}},
			{"addresses": []string{bad}}} {
			all := fmt.Sprint(s.shown())
			for _, on := range []func(settings) (*target, error){onEtcd, onConsul, onRedis, onZooKeeper} {
				target, err := on(s)
				if err != nil {
					t.Fatal(err)
				}
				all += target.where
			}
			scrub := scrubber(s.secrets())
			all += scrub(fmt.Sprintf("cannot reach %s (%q)", bad, bad))
			if at := strings.LastIndex(bad, "@"); at > 0 {
				all += scrub("look up " + bad[strings.LastIndex(bad, "/")+1:] + ": no such host")
			}
			if strings.Contains(all, planted) {
				t.Errorf("%q is shown: %s", bad, all)
			}
		}
	}
	dsn := settings{"dsn": "postgres://me:12/" + planted + "@h/db"}
	if got := scrubber(dsn.secrets())("lookup me:12: database=" + planted + "@h/db"); strings.Contains(got, planted) {
		t.Errorf("got %q", got)
	}
}

// TestNotOpened: if a store was not opened, the report has no settings.
func TestNotOpened(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "report")
	f, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := quick(redis.Opener(), redis.Settings{Addrs: []string{"127.0.0.1:1"}, Username: "pl4nted-s3cret", Namespace: "pl4nted-s3cret"})
	o.Folder = f
	if r, err := Run(t.Context(), o); err == nil || r == nil || r.Verdict != NotOpened || len(r.Store.Settings) != 0 || r.Store.Where != "" {
		t.Errorf("got %+v, %v", r, err)
	}
	for _, file := range []string{markdownFile, jsonFile} {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !strings.Contains(string(text), "not opened") || strings.Contains(string(text), "pl4nted-s3cret") {
			t.Errorf("%v: %s", err, text)
		}
		if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, %v", file, info.Mode(), err)
		}
	}
}

// TestNothingPassed: a run that checked nothing proves nothing.
func TestNothingPassed(t *testing.T) {
	t.Parallel()
	o := quick(sqlite.Opener(), sqlite.Settings{Path: filepath.Join(t.TempDir(), "mine.db"), Namespace: "team"})
	for _, cases := range []string{"^Commit/LateRequestRefused$", "^nothing$"} { // one that the store cannot run, and none
		o.Cases = matching(cases)
		if r := certify(t, o); r.Verdict != Nothing || !slices.Contains(r.Why, "no case of the conformance suite passed") {
			t.Errorf("%s: got %s because of %q", cases, r.Verdict, r.Why)
		}
	}
}

const hostile = "x\n# heading\n| a | b |\n</td><script>alert(1)</script> [link](http://evil) ![i](x) `code` **b** \x1b[31m\u202e ```"

// TestHostileValues: all values of the configuration, the store and its errors are shown as plain
// text.
func TestHostileValues(t *testing.T) {
	t.Parallel()
	r := newReport(&Options{Opener: driver.Opener{Name: hostile}}, &target{where: hostile}, settings{"path": hostile, hostile: "y"}, hostile)
	report := &suite.Report{Backend: hostile, Version: hostile, Options: hostile,
		Results: []suite.Result{{Case: "Acquire/Exclusive", Outcome: suite.Failed, Messages: []string{hostile, hostile}}}}
	r.took(report, nil)
	r.Store.Version, r.Removed, r.Left = hostile, hostile, strings.Repeat("long ", 100_000)
	r.Opening = OpeningReport{Rollback: hostile, Findings: []driver.Finding{{Name: hostile, Value: hostile, Remedy: hostile}}}
	r.find(Finding{Phase: System, Rule: "S3", Check: hostile, Message: hostile, breach: true})
	r.skip(hostile, hostile)
	r.judge(nil)
	r.Why = append(r.Why, hostile)
	md := string(r.Markdown())
	for _, bad := range []string{"\n# heading", "<script", "</td", "](http", "\x1b", "\u202e", " **b**", " `code`", "\n```", " | a | b"} {
		if strings.Contains(strings.ReplaceAll(md, "\\"+strings.TrimSpace(bad), ""), bad) {
			t.Errorf("the report has %q:\n%s", bad, md)
		}
	}
	if len(md) > 64<<10 {
		t.Errorf("the report has %d bytes", len(md))
	}
	for _, line := range strings.Split(md, "\n") {
		if strings.HasPrefix(line, "| ") && strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") != 3 {
			t.Errorf("a row of the tables has other cells: %q", line)
		}
	}
}

func TestFolder(t *testing.T) {
	t.Parallel()
	refused := func(path, want string) {
		t.Helper()
		if f, err := OpenFolder(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v, want %q", path, f, err, want)
		}
	}
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	write(t, precious, "precious")
	refused(precious, "the folder for the report")
	refused(filepath.Join(precious, "below"), "the folder for the report")
	link := filepath.Join(dir, "link")
	symlink(t, dir, link)
	refused(link, "symbolic link")
	refused("/proc/self/nowhere", "the folder for the report")

	foreign := filepath.Join(dir, "foreign")
	makeFolder(t, foreign)
	write(t, filepath.Join(foreign, markdownFile), "# my notes")
	refused(foreign, "no report of tenure certify")
	linked := filepath.Join(dir, "linked")
	makeFolder(t, linked)
	symlink(t, precious, filepath.Join(linked, jsonFile))
	refused(linked, "no regular file")

	own := filepath.Join(dir, "deep", "own")
	r := newReport(&Options{Opener: driver.Opener{Name: "x"}}, &target{}, nil, "n")
	for range 2 {
		f, err := OpenFolder(own)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.write(r), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	// Neither a file that appears during the run nor the target of a link is replaced.
	f, err := OpenFolder(own)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Remove(filepath.Join(own, jsonFile)); err != nil {
		t.Fatal(err)
	}
	symlink(t, precious, filepath.Join(own, jsonFile))
	if err := f.write(r); err == nil {
		t.Error("a link was written through, or replaced")
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "precious" {
		t.Errorf("the precious file has %q, %v", text, err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func makeFolder(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	control := func(damaged int) *SystemReport {
		s := &SystemReport{}
		s.Runs, s.Failed = 3, damaged
		return s
	}
	for name, c := range map[string]struct {
		change func(*Report)
		err    error
		want   Verdict
	}{
		"held":           {func(r *Report) { r.Control = control(3) }, nil, Held},
		"control alone":  {func(r *Report) { r.System, r.Control = nil, control(3) }, nil, Nothing},
		"no case passed": {func(r *Report) { r.Options.Only = Phases() }, nil, Nothing},
		"no case":        {func(r *Report) { r.System = nil }, nil, Nothing},
		"not opened":     {func(r *Report) { r.find(Finding{breach: true}) }, errors.New("no"), NotOpened},
		"broken":         {func(r *Report) { r.Control = control(0); r.find(Finding{Rule: "F1", breach: true}) }, nil, Broken},
		"control":        {func(r *Report) { r.Control = control(2) }, nil, Nothing},
		"not judged":     {func(r *Report) { r.find(Finding{Check: "c"}) }, nil, Nothing},
		"a slow store": {func(r *Report) {
			r.played(System, 1, &system.Report{Figures: suite.Figures{Runs: 1}, Findings: []history.Finding{{Rule: "traffic"}, {Rule: "W1"}}}, nil)
		}, nil, Nothing},
		"a slow store that lies": {func(r *Report) {
			r.played(System, 1, &system.Report{Figures: suite.Figures{Runs: 1}, Findings: []history.Finding{{Rule: "traffic"}, {Rule: "S3"}}}, nil)
		}, nil, Broken},
		"a stuck shard": {func(r *Report) {
			r.played(System, 1, &system.Report{Figures: suite.Figures{Runs: 1}, Findings: []history.Finding{{Rule: "W1"}}}, nil)
		}, nil, Broken},
		"seed not begun": {func(r *Report) { r.played(System, 1, nil, []string{"no member"}) }, nil, Nothing},
	} {
		r := newReport(&Options{}, &target{}, nil, "n")
		r.System = &SystemReport{}
		c.change(r)
		if r.judge(c.err); r.Verdict != c.want || (c.want != Held) != (len(r.Why) > 0) {
			t.Errorf("%s: got %s because of %q", name, r.Verdict, r.Why)
		}
	}
	for message, want := range map[string]bool{"F1 fenced commit: accepted": true, "F1 cannot be judged: acquire: down": false, "F1: hung: x": false, "closing a backend: x": false} {
		if rule, breach := ruleOf(message, []suite.Rule{"F1"}); rule != "F1" || breach != want {
			t.Errorf("%q: got %s, %t", message, rule, breach)
		}
	}
}

// TestRefused: a store that cannot be opened is reported once, without the password.
func TestRefused(t *testing.T) {
	t.Parallel()
	const planted = "pl4nted-s3cret"
	passwords := filepath.Join(t.TempDir(), "password")
	write(t, passwords, planted+"\n")
	missing := filepath.Join(t.TempDir(), "missing.db")
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"no namespace":         {quick(sqlite.Opener(), sqlite.Settings{Path: missing, Namespace: "n"}), "no database file"},
		"no PostgreSQL there":  {quick(postgres.Opener(), postgres.Settings{DSN: "postgres://me:" + planted + "@127.0.0.1:1/db", Namespace: "n"}), "refused"},
		"no MySQL there":       {quick(mysql.Opener(), mysql.Settings{DSN: "me:" + planted + "@tcp(127.0.0.1:1)/db", Namespace: "n"}), "refused"},
		"no DSN of PostgreSQL": {quick(postgres.Opener(), postgres.Settings{DSN: "postgres://me:" + planted + "@[::1/db", Namespace: "n"}), "the DSN is not understood"},
		"no DSN of MySQL":      {quick(mysql.Opener(), mysql.Settings{DSN: "me:" + planted + "@tcp[/db", Namespace: "n"}), "the DSN is not understood"},
		"password in a file": {quick(postgres.Opener(), postgres.Settings{DSN: "postgres://me@127.0.0.1:1/" + planted, PasswordFile: passwords,
			Namespace: "n"}), "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := c.o
			var lines []string
			o.Progress = func(line string) { lines = append(lines, line) }
			dir := t.TempDir()
			f, err := OpenFolder(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			o.Folder = f
			r, err := Run(t.Context(), o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			said := err.Error() + strings.Join(lines, "")
			if r != nil {
				if r.Verdict != NotOpened {
					t.Errorf("got %s", r.Verdict)
				}
				for _, file := range []string{markdownFile, jsonFile} {
					text, err := os.ReadFile(filepath.Join(dir, file))
					if err != nil {
						t.Fatal(err)
					}
					said += string(text)
				}
			}
			if strings.Contains(said, planted) {
				t.Errorf("the output has the password:\n%s", said)
			}
		})
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("the database was made")
	}
}
