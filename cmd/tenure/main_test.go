//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/internal/mark"
	"github.com/tenure-go/tenure/internal/operator"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

var binary string

var pool servers.Pool

var rounds = flag.Int("rounds", 1, "faults of each kind in TestRun, rounds of TestRunSetuid, and more faults in TestKilledTool and TestRightLost")

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		child()
		return
	}
	flag.Parse()
	dir, err := os.MkdirTemp("", "tenure-command-")
	if err == nil {
		binary = filepath.Join(dir, "tenure")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := pool.Run(m)
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// place is a configuration of a store.
type place struct {
	t       *testing.T
	path    string
	members []*core.Elector // that manage started
}

const limit = ample.Time // for one command

// newPlace writes a configuration. The argument backend is the configuration's part below
// "backends".
func newPlace(t *testing.T, backend string) *place {
	t.Helper()
	p := &place{t: t, path: filepath.Join(t.TempDir(), "tenure.yaml")}
	text := "tenure:\n  node: tool-test\n  ttl: 5s\n  backends:\n    " + backend + "\n"
	if err := os.WriteFile(p.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// patient makes members keep their leases on a busy machine, because a lease lapses only after half
// a minute without a heartbeat. Heartbeats are as frequent as before, because status waits for
// them.
func (p *place) patient() {
	p.t.Helper()
	text, err := os.ReadFile(p.path)
	if err == nil {
		err = os.WriteFile(p.path, bytes.Replace(text, []byte("ttl: 5s"), []byte("ttl: 30s\n  heartbeat: 1s"), 1), 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

func sqlitePlace(t *testing.T) *place {
	return newPlace(t, fmt.Sprintf("sqlite: {path: %q, namespace: test}", filepath.Join(t.TempDir(), "test.db")))
}

func (p *place) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TENURE_") }),
		configVariable+"="+p.path)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// run runs a command to its end, and fails the test if its exit code is not want.
func (p *place) run(want int, args ...string) (stdout, stderr string) {
	p.t.Helper()
	code, stdout, stderr := p.exec(args...)
	if code != want {
		p.t.Fatalf("tenure %s: exit code %d, want %d; it wrote %s%s", strings.Join(args, " "), code, want, stdout, stderr)
	}
	return stdout, stderr
}

// oneOfMany is a wrong plural.
var oneOfMany = regexp.MustCompile(`(?:^|[^-0-9])1 (argument|eviction|item|lock|member|problem|record|rule|shard|entrie)s\b`)

func (p *place) exec(args ...string) (code int, stdout, stderr string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := p.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		p.t.Fatalf("tenure %s: %v", strings.Join(args, " "), err)
	}
	// The findings of certify come from the suite, and are for authors of backends.
	if wrong := oneOfMany.FindString(out.String() + errs.String()); wrong != "" && args[0] != "certify" {
		p.t.Errorf("tenure %s: writes %q", strings.Join(args, " "), wrong)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// decode runs a command that succeeds, and decodes its output as JSON.
func (p *place) decode(into any, args ...string) {
	p.t.Helper()
	out, _ := p.run(exitOK, append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		p.t.Fatalf("tenure %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// bad runs a command that fails, and checks its single line.
func (p *place) bad(code int, want string, args ...string) {
	p.t.Helper()
	out, errs := p.run(code, args...)
	if strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "tenure: ") || !strings.Contains(errs, want) ||
		strings.Contains(errs, "strconv.") {
		p.t.Errorf("tenure %s: wrote %q, want one line with %q", strings.Join(args, " "), errs, want)
	}
	if strings.Contains(out+errs, "planted") {
		p.t.Errorf("tenure %s: shows a secret: %s%s", strings.Join(args, " "), out, errs)
	}
}

// lead serves a shard in this process, with some items and entries, until the test ends.
func (p *place) lead(shard string) {
	p.t.Helper()
	ready := make(chan error, 16)
	p.member("leader", shard, func(ctx context.Context, l *core.Lease) error {
		_, err := l.Commit(ctx, core.Put("config/size", []byte("12")), core.Put("raw", []byte{0xff, 0}),
			core.Append([]byte("one")))
		for _, text := range []string{"two", "three\x1b[31m"} {
			if err == nil {
				_, err = l.Append(ctx, []byte(text))
			}
		}
		if err == nil {
			_, err = l.Commit(ctx, core.Trim(1))
		}
		ready <- err
		<-ctx.Done()
		return nil
	})
	select {
	case err := <-ready:
		if err != nil {
			p.t.Fatal(err)
		}
	case <-time.After(limit):
		p.t.Fatal("no lease was granted")
	}
}

// member contends for a shard in this process, until the test ends or stop is called.
func (p *place) member(node, shard string, h core.Handler) (stop func()) {
	p.t.Helper()
	a := &app{path: p.path, key: "tenure", timeout: limit}
	b, err := a.open(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	o := a.conf.Options()
	o.Node, o.LockDir = node, "none"
	o.Meta = map[string]string{"address": "127.0.0.1:1"}
	e, err := core.NewElector(b, o)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := e.Contend(h, shard); err != nil {
		p.t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		end()
		if err := errors.Join(<-done, b.Close()); err != nil {
			p.t.Error(err)
		}
	})
	p.t.Cleanup(stop)
	return stop
}

func TestCommands(t *testing.T) {
	t.Parallel()
	everyCommand(t, sqlitePlace(t))
}

// TestServed runs TestCommands on the stores that have servers.
func TestServed(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		dsn := pool.Get(t, servers.Postgres, nil).Database(t).Reveal()
		p := newPlace(t, fmt.Sprintf("postgres: {dsn: %q, namespace: test}", dsn))
		everyCommand(t, p)
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(u.User.Username(), "planted")
		newPlace(t, fmt.Sprintf("postgres: {dsn: %q, namespace: test}", u)).bad(exitRefused, "authentication", "status")
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		dsn := pool.Get(t, servers.MariaDB, nil).Database(t).Reveal()
		everyCommand(t, newPlace(t, fmt.Sprintf("mysql: {dsn: %q, namespace: test}", dsn)))
		user, _, _ := strings.Cut(dsn, ":")
		_, rest, _ := strings.Cut(dsn, "@")
		newPlace(t, fmt.Sprintf("mysql: {dsn: %q, namespace: test}", user+":planted@"+rest)).bad(exitRefused,
			"denied", "status")
	})
	for kind, format := range atAddress {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			everyCommand(t, newPlace(t, fmt.Sprintf(format, servers.New(t, kind, nil).Addr())))
		})
	}
}

// atAddress returns the configuration of a store that needs only an address.
var atAddress = map[servers.Kind]string{
	servers.Etcd:      "etcd: {endpoints: [%q], namespace: test}",
	servers.ZooKeeper: "zookeeper: {servers: [%q], namespace: test}",
	servers.Consul:    "consul: {address: %q, namespace: test}",
	servers.Redis:     "redis: {addrs: [%q], namespace: test}",
}

// findings contains findings that doctor must report on each store.
var findings = map[string][]string{
	"sqlite":    {"synchronous", "journal_mode"},
	"postgres":  {"fsync", "full_page_writes", "synchronous_commit", "role", "clock"},
	"mysql":     {"innodb_flush_log_at_trx_commit", "innodb_doublewrite", "sync_binlog", "user", "clock"},
	"etcd":      {"voting members", "alarms", "authentication"},
	"consul":    {"servers", "ACLs"},
	"zookeeper": {"rights"},
	"redis":     {"role", "appendonly", "appendfsync", "maxmemory-policy", "user", "clock"},
}

func everyCommand(t *testing.T, p *place) {
	p.patient()
	p.bad(exitNotFound, "tenure init", "status")
	p.run(exitOK, "init")
	p.run(exitOK, "init", "--yes")
	p.silent()
	p.lead("orders-1")

	var s statusOut
	if p.decode(&s, "status"); s.Members != 1 || s.Owned != 1 || s.Unowned != 1 || s.StoreID == "" ||
		len(s.Beats) != 1 || s.Beats[0].Node != "leader" || len(s.Silent) != 0 {
		t.Errorf("status: got %+v", s)
	}
	var members []memberOut
	if p.decode(&members, "members"); len(members) != 1 || members[0].Node != "leader" || members[0].Version <= 0 ||
		members[0].Shards != 1 || members[0].TTL != "30s" || members[0].Meta["address"] != "127.0.0.1:1" {
		t.Errorf("members: got %+v", members)
	}
	var shards []shardOut
	if p.decode(&shards, "shards", "--node", "leader"); len(shards) != 1 || shards[0].Shard != "orders-1" {
		t.Errorf("shards: got %+v", shards)
	}
	if p.decode(&shards, "shards", "--node", "nobody"); len(shards) != 0 {
		t.Errorf("shards of nobody: got %+v", shards)
	}
	var who shardOut
	if p.decode(&who, "who", "orders-1"); who.Node != "leader" || who.Token <= 0 || who.Session != members[0].Session {
		t.Errorf("who: got %+v", who)
	}
	var items []itemOut
	if p.decode(&items, "items", "orders-1"); len(items) != 2 || items[0].Key != "config/size" ||
		*items[0].Value.Text != "12" ||
		!bytes.Equal(items[1].Value.Base64, []byte{0xff, 0}) {
		t.Errorf("items: got %+v", items)
	}
	if p.decode(&items, "items", "orders-1", "--prefix", "config/"); len(items) != 1 {
		t.Errorf("items with a prefix: got %+v", items)
	}
	if out, _ := p.run(exitOK, "log", "orders-1"); strings.Count(out, "\n") != 2 || strings.Contains(out, "\x1b") {
		t.Errorf("log: got %q, want the entries 2 and 3, without control characters", out)
	}
	if out, _ := p.run(exitOK, "log", "orders-1", "--after", "2", "-o", "json"); !strings.Contains(out, `"seq":3`) ||
		strings.Contains(out, `"seq":2`) {
		t.Errorf("log --after 2: got %q", out)
	}
	p.bad(exitNotFound, "--after 1", "log", "orders-1", "--after", "0")
	for limit, cut := range map[string]bool{"1": true, "2": false, "0": false} { // entry 1 was trimmed
		out, _ := p.run(exitOK, "history", "orders-1", "--limit", limit)
		if strings.Contains(out, "entries before 3 were not read: give --limit 0") != cut {
			t.Errorf("history --limit %s: got %q; want the left-out entries named: %v", limit, out, cut)
		}
		var h historyOut
		if p.decode(&h, "history", "orders-1", "--limit", limit); h.Cut != cut {
			t.Errorf("history --limit %s: got %+v", limit, h)
		}
	}
	p.bad(exitNotFound, "never owned", "who", "orders-2")
	p.bad(exitNotFound, "never owned", "items", "orders-2")
	p.bad(exitNotFound, "never owned", "log", "orders-2")
	p.followed(who.Token)
	p.ruled()
	p.moved()
	p.stopping()
	p.repaired(members[0].Session, s.Backend)

	var d doctorOut
	if p.decode(&d, "doctor"); d.RoundTrip == "" || d.WriteBytes <= 0 {
		t.Errorf("doctor: got %+v", d)
	}
	remedies := 0
	for _, want := range findings[d.Backend] {
		if !slices.ContainsFunc(d.Findings, func(f driver.Finding) bool { return f.Name == want && f.Value != "" }) {
			t.Errorf("doctor: got %+v, want %q", d.Findings, want)
		}
	}
	for _, f := range d.Findings {
		if f.Remedy != "" {
			remedies++
		}
	}
	if len(d.Warnings) != remedies {
		t.Errorf("doctor: got the warnings %q, want the %d of %+v", d.Warnings, remedies, d.Findings)
	}
	var v verifyOut
	entries := 2 // of orders-1
	for _, s := range []string{"moved-1", "_control"} {
		out, _ := p.run(exitOK, "log", s)
		entries += strings.Count(out, "\n")
	}
	if p.decode(&v, "verify"); v.Shards < 4 || v.Items != 3 || v.Entries != entries || len(v.Problems) != 0 {
		t.Errorf("verify: got %+v, want %d entries", v, entries)
	}
	out, _ := p.run(exitOK, "export")
	kinds := map[string]int{}
	for line := range strings.Lines(out) {
		var x struct{ Kind string }
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("export: %v: %s", err, line)
		}
		kinds[x.Kind]++
	}
	if want := (map[string]int{"namespace": 1, "member": 1, "shard": v.Shards, "item": 3,
		"entry": entries}); fmt.Sprint(kinds) != fmt.Sprint(want) {
		t.Errorf("export: got %v, want %v", kinds, want)
	}
	if out, _ := p.run(exitOK, "status", "-o", "yaml"); !strings.Contains(out, "members: 1\n") ||
		strings.Contains(out, "{") {
		t.Errorf("status in YAML: got %s", out)
	}
}

// followed checks that watch and log --follow show the actions of a command under run.
func (p *place) followed(token core.Token) {
	p.t.Helper()
	var outs [2]string // files
	var cmds [2]*exec.Cmd
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	for i, args := range [][]string{{"watch", "-o", "json"}, {"log", "orders-1", "--follow", "--after", "1"}} {
		cmds[i] = p.command(ctx, args...)
		outs[i] = filepath.Join(p.t.TempDir(), "out")
		f, err := os.Create(outs[i])
		if err != nil {
			p.t.Fatal(err)
		}
		defer f.Close()
		cmds[i].Stdout = f
		if err := cmds[i].Start(); err != nil {
			p.t.Fatal(err)
		}
	}
	// If a store is polled, a reader does not see a member that leaves before the next read.
	script := `until grep -q tool-test "` + outs[0] + `"; do sleep 0.05; done
		[ "$TENURE_SHARD" = jobs ] && [ "$TENURE_TOKEN" -gt 0 ] || exit 1
		echo "$TENURE_FENCE $TENURE_TOKEN"`
	if runtimeIsLinux {
		out, _ := p.run(exitOK, "run", "--shard", "jobs", "--", "sh", "-c", script)
		text, token, _ := strings.Cut(strings.TrimSpace(out), " ")
		if f, err := fence.Parse(text); err != nil || f.Shard != "jobs" || fmt.Sprint(f.Token) != token {
			p.t.Errorf("run: the command has TENURE_FENCE %q (%v) and TENURE_TOKEN %s", text, err, token)
		}
		p.run(7, "run", "--shard", "jobs", "--restart", "never", "--", "sh", "-c", "exit 7")
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			p.t.Fatal(err)
		}
		return string(text)
	}
	const leads = `"kind":"owned","shard":"orders-1","node":"leader"`
	ample.Wait(p.t, "watch or log --follow has not shown what is there", func() bool {
		return strings.Contains(read(outs[0]), leads) && strings.Count(read(outs[1]), "\n") >= 2
	})
	for _, cmd := range cmds {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			p.t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			p.t.Errorf("%v: %v", cmd.Args[1:], err)
		}
	}
	if out := read(outs[0]); !strings.Contains(out, leads) ||
		runtimeIsLinux && !strings.Contains(out, `"node":"tool-test"`) {
		p.t.Errorf("watch: got %s, want the leader with token %d, and a member that came", out, token)
	}
	if out := read(outs[1]); strings.Count(out, "\n") != 2 {
		p.t.Errorf("log --follow: got %q", out)
	}
}

// ruled writes, lists and removes each kind of rule.
func (p *place) ruled() {
	p.t.Helper()
	p.run(exitOK, "drain", "leader", "--dry-run")
	if _, errs := p.run(exitRefused, "drain", "leader"); !strings.Contains(errs, "get 1 shard from node leader") ||
		!strings.Contains(errs, "--yes") {
		p.t.Errorf("drain without --yes: got %q", errs)
	}
	p.bad(exitNotFound, "--force", "drain", "nobody", "--yes")
	p.bad(exitNotFound, "no such rule", "undrain", "leader")
	p.run(exitOK, "drain", "leader", "--yes", "--reason", "a new disk", "--author", "me", "--expires", "1h")
	var members []memberOut
	p.decode(&members, "members")
	if i := slices.IndexFunc(members, func(m memberOut) bool { return m.Node == "leader" }); i < 0 ||
		members[i].Draining || members[i].Drained == nil || members[i].Drained.Reason != "a new disk" {
		p.t.Errorf("members: got %+v, want one whose node is drained by a rule", members)
	}
	if out, _ := p.run(exitOK, "members"); !strings.Contains(out, "rule of me, written by "+writer()+": a new disk") {
		p.t.Errorf("members: got %s, want the rule that drains one", out)
	}
	p.run(exitOK, "pin", "orders-1", "nobody", "--yes", "--force")
	p.run(exitOK, "exclude", "jobs*", "leader", "-y")
	p.run(exitOK, "freeze", "-y")
	var rules []ruleOut
	p.decode(&rules, "rules")
	if len(rules) != 4 || rules[0].Kind != "drain" || rules[0].Reason != "a new disk" || rules[0].Author != "me" ||
		rules[0].Writer != writer() || rules[1].Author != writer() || rules[0].Ended ||
		rules[0].Expires.Sub(rules[0].At) != time.Hour || rules[1].Shards != "jobs*" || rules[3].Node != "nobody" {
		p.t.Errorf("rules: got %+v", rules)
	}
	for _, args := range [][]string{{"undrain", "leader"}, {"unpin", "orders-1"}, {"include", "jobs*", "leader"},
		{"unfreeze"}} {
		if _, errs := p.run(exitRefused, args...); !strings.Contains(errs, "this rule ends") || !strings.Contains(errs, "--yes") {
			p.t.Errorf("%s without --yes: got %q", args[0], errs)
		}
		p.run(exitOK, append(args, "--dry-run")...)
		p.run(exitOK, append(args, "--yes")...)
	}
	if p.decode(&rules, "rules"); len(rules) != 0 {
		p.t.Errorf("rules that were removed: got %+v", rules)
	}
}

// moved makes two members pass a shard back and forth, and shows the shard's history.
func (p *place) moved() {
	p.t.Helper()
	serve := func(ctx context.Context, l *core.Lease) error {
		_, err := l.Append(ctx, []byte("mine"))
		<-ctx.Done()
		return err
	}
	stop := p.member("left", "moved-1", serve)
	var tokens []core.Token
	owned := func(node string) {
		p.t.Helper()
		ample.Wait(p.t, "moved-1 is not with "+node, func() bool {
			var shards []shardOut
			p.decode(&shards, "shards", "--node", node)
			i := slices.IndexFunc(shards, func(s shardOut) bool { return s.Shard == "moved-1" })
			if i >= 0 {
				tokens = append(tokens, shards[i].Token)
			}
			return i >= 0
		})
	}
	owned("left")
	p.bad(exitNotFound, "--force", "move", "moved-1", "right", "--yes")
	stopRight := p.member("right", "moved-1", serve)
	p.bad(exitRefused, "owns shard", "move", "moved-1", "left", "--yes", "--token", fmt.Sprint(tokens[0]))
	p.bad(exitRefused, "correct --token", "resign", "moved-1", "--yes", "--token", "1")
	p.bad(exitNotFound, "no such rule", "unmove", "moved-1")
	p.run(exitOK, "resign", "moved-1", "--yes", "--reason", "a look")
	owned("right")
	p.run(exitOK, "move", "moved-1", "left", "-y", "--author", "me", "--token", fmt.Sprint(tokens[1]))
	owned("left")
	var rules []ruleOut
	if p.decode(&rules, "rules"); len(rules) != 1 || rules[0].Kind != "move" || !rules[0].Spent || rules[0].Token != tokens[1] {
		p.t.Errorf("rules after a move: got %+v", rules)
	}
	p.run(exitOK, "move", "moved-1", "nowhere", "-y", "--force")
	p.run(exitOK, "unmove", "moved-1", "-y")
	stop()
	stopRight()
	// When both members stop, the shard may pass to any member that is up. A member that does not
	// want the shard releases it.
	ample.Wait(p.t, "moved-1 has an owner", func() bool { code, _, _ := p.exec("who", "moved-1"); return code == exitNotFound })
	p.bad(exitNotFound, "nobody owns", "resign", "moved-1", "-y")
	var h historyOut
	p.decode(&h, "history", "moved-1")
	n := len(h.Leases)
	if n < 3 || h.Oldest != 1 || h.Leases[0].Token != tokens[0] || h.Leases[0].Entries != 1 || len(h.Leases[0].Rules) != 1 ||
		h.Leases[0].Rules[0].Rule.Reason != "a look" || h.Leases[1].Rules[0].Rule.Author != "me" ||
		h.Leases[1].Rules[0].By != writer() || len(h.Leases[2].Rules) != 2 ||
		!h.Leases[2].Rules[1].Removed || h.Leases[n-1].Node != "" {
		p.t.Errorf("history: got %+v, want the leases %d", h, tokens)
	}
	passed := slices.ContainsFunc(h.Owners, func(g driver.Grant) bool { return g.Node == "right" && g.End == driver.EndPassed })
	sorted := slices.IsSortedFunc(h.Owners, func(x, y driver.Grant) int { return x.Since.Compare(y.Since) })
	if len(h.Owners) < 3 || !passed || !sorted {
		p.t.Errorf("history: the last owners are %+v; want right among them, which passed it", h.Owners)
	}
	// The next change removes a rule that is spent.
	p.run(exitOK, "freeze", "-y")
	if p.decode(&rules, "rules"); len(rules) != 1 {
		p.t.Errorf("rules: got %+v, want the freeze", rules)
	}
}

// stopping asks whether nodes may be stopped, one after the other, and two at the same time.
func (p *place) stopping() {
	p.t.Helper()
	p.bad(exitNotFound, "tenure members", "may-stop", "nobody")
	p.bad(exitNotFound, "tenure members", "may-stop", "nobody", "--done")
	p.bad(exitMayNot, "no other node is up", "may-stop", "leader")
	idle := func(ctx context.Context, _ *core.Lease) error { <-ctx.Done(); return nil }
	stopThird, stopSecond := p.member("third", "moved-1", idle), p.member("second", "moved-1", idle)
	defer stopThird()
	p.joined("second", "third")
	// Two nodes ask for the only place at the same time, and one gets it.
	var codes [2]int
	var all sync.WaitGroup
	for i, node := range []string{"second", "third"} {
		all.Go(func() { codes[i], _, _ = p.exec("may-stop", node) })
	}
	all.Wait()
	if slices.Sort(codes[:]); codes != [2]int{exitOK, exitMayNot} {
		p.t.Fatalf("may-stop twice at once: exit codes %d", codes)
	}
	for _, node := range []string{"second", "third"} {
		p.run(exitOK, "may-stop", node, "--done")
	}
	if _, errs := p.run(exitOK, "may-stop", "third", "--done"); !strings.Contains(errs, "held no place") {
		p.t.Errorf("may-stop --done without a place: got %q", errs)
	}
	var rules []ruleOut
	stops := func() int {
		p.decode(&rules, "rules")
		return len(slices.DeleteFunc(rules, func(r ruleOut) bool { return r.Kind != "stop" || r.Ended }))
	}
	var newest []ruleOut
	p.decode(&rules, "rules")
	if p.decode(&newest, "rules", "--last", "1"); len(newest) != 1 ||
		slices.ContainsFunc(rules, func(r ruleOut) bool { return r.At.After(newest[0].At) }) {
		p.t.Errorf("the newest rule: got %+v of %+v", newest, rules)
	}
	if p.decode(&newest, "rules", "--last", "100"); len(newest) != len(rules) {
		p.t.Errorf("the newest 100 rules: got %d of %d", len(newest), len(rules))
	}
	p.bad(exitUsage, "give 0 or more", "rules", "--last", "-1")
	var yes operator.Answer
	if p.decode(&yes, "may-stop", "second", "--dry-run"); !yes.May || !yes.Until.IsZero() || stops() != 0 {
		p.t.Errorf("may-stop --dry-run: got %+v, and the rules %+v", yes, rules)
	}
	asked := time.Now()
	p.decode(&yes, "may-stop", "second", "--reason", "a new disk", "--for", "1h")
	if away := yes.Until.Sub(asked).Round(time.Hour); !yes.May || away != time.Hour || stops() != 1 || rules[0].Reason != "a new disk" {
		p.t.Errorf("may-stop: got %+v, and the rules %+v", yes, rules)
	}
	p.run(exitOK, "may-stop", "second")
	if out, errs := p.run(exitMayNot, "may-stop", "leader", "--away", "2"); !strings.Contains(errs, "node second: it holds a place until") ||
		!strings.Contains(out, "may stop") {
		p.t.Errorf("may-stop with no place left: got %s%s", out, errs)
	}
	stopSecond()
	p.run(exitMayNot, "may-stop", "leader")
	defer p.member("second", "moved-1", idle)()
	p.joined("second")
	if n := stops(); n != 0 {
		p.t.Errorf("rules: got %+v, want the place of a node that is back to have ended", rules)
	}
	p.run(exitOK, "may-stop", "leader", "--members", "3")
	p.run(exitOK, "may-stop", "leader", "--done")
	if _, errs := p.run(exitMayNot, "may-stop", "leader", "--members", "4"); !strings.Contains(errs, "1 of the members that should run are missing") {
		p.t.Errorf("may-stop with a member missing: got %s", errs)
	}
}

// joined waits until members of the nodes are alive.
func (p *place) joined(nodes ...string) {
	p.t.Helper()
	ample.Wait(p.t, fmt.Sprintf("%v have not joined", nodes), func() bool {
		var members []memberOut
		p.decode(&members, "members")
		return !slices.ContainsFunc(nodes, func(node string) bool {
			return !slices.ContainsFunc(members, func(m memberOut) bool { return m.Node == node })
		})
	})
}

// repaired checks that the tool evicts the session of a process that has ended, and refuses to
// evict a live session. If the store has a floor, repaired raises it.
func (p *place) repaired(leader core.SessionID, backend string) {
	p.t.Helper()
	p.run(exitOK, "evict", string(leader), "--dry-run")
	if _, errs := p.run(exitRefused, "evict", string(leader), "--version", "1", "--yes"); !strings.Contains(errs,
		"is alive") {
		p.t.Errorf("evict of a session that has a later version: got %q", errs)
	}
	if _, errs := p.run(exitRefused, "evict", string(leader)); !strings.Contains(errs, "owns 1 shard,") {
		p.t.Errorf("evict without --yes: got %q", errs)
	}
	p.bad(exitNotFound, "tenure members", "evict", "0000", "--yes")
	_, b := p.open()
	if _, err := b.Join(p.t.Context(), core.Member{Session: "left", Node: "gone", TTL: time.Hour,
		MemberState: core.MemberState{Meta: map[string]string{mark.IneligibleKey: "ill", "zone": "z"}}}); err != nil {
		p.t.Fatal(err)
	}
	var members []memberOut
	p.decode(&members, "members")
	if i := slices.IndexFunc(members, func(m memberOut) bool { return m.Session == "left" }); i < 0 ||
		members[i].Ineligible != "ill" || len(members[i].Meta) != 1 {
		p.t.Errorf("members: got %+v, want one that is not eligible, and its reason apart from its metadata", members)
	}
	p.run(exitOK, "evict", "left", "--yes")
	p.bad(exitNotFound, "tenure members", "evict", "left", "--yes")
	if !slices.Contains([]string{"sqlite", "postgres", "mysql"}, backend) {
		p.bad(exitRefused, "no floor", "raise-floor", "1000000", "--yes")
		return
	}
	p.run(exitOK, "raise-floor", "1000000", "--dry-run")
	p.run(exitRefused, "raise-floor", "1000000")
	p.run(exitOK, "raise-floor", "1000000", "--yes")
	p.bad(exitRefused, "nothing was changed", "raise-floor", "1000000", "--yes")
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.run(exitOK, "init")
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{exitUsage, "tenure --help", []string{"bogus"}},
		{exitUsage, `did you mean "shards"`, []string{"shard"}},
		{exitUsage, "takes SHARD", []string{"who"}},
		{exitUsage, "takes no argument", []string{"status", "x"}},
		{exitUsage, "unknown flag", []string{"status", "--nope"}},
		{exitUsage, "json", []string{"status", "-o", "xml"}},
		{exitUsage, "--timeout", []string{"status", "--timeout", "0"}},
		{exitUsage, "letters, digits", []string{"who", "a/b"}},
		{exitUsage, "letters, digits", []string{"who", "a\x1b[31m"}},
		{exitUsage, "the limit is 128", []string{"items", long}},
		{exitUsage, "letters, digits", []string{"items", "a", "--prefix", "../x"}},
		{exitUsage, "letters, digits", []string{"shards", "--node", "a b"}},
		{exitUsage, "--after", []string{"log", "a", "--after", "-5"}},
		{exitUsage, "--limit", []string{"log", "a", "--limit", "-5"}},
		{exitUsage, "--for", []string{"watch", "--for", "-1s"}},
		{exitUsage, "no such file", []string{"status", "--config", "/nowhere/x.yaml"}},
		{exitUsage, "no backend is configured", []string{"status", "--key", "other"}},
		{exitUsage, "--shard is missing", []string{"run", "--", "true"}},
		{exitUsage, "no command to run", []string{"run", "--shard", "a"}},
		{exitUsage, "letters, digits", []string{"run", "--shard", "a/b", "--", "true"}},
		{exitUsage, "Tenure's own", []string{"run", "--shard", "_a", "--", "true"}},
		{exitUsage, "on-failure", []string{"run", "--shard", "a", "--restart", "maybe", "--", "true"}},
		{exitUsage, "--grace", []string{"run", "--shard", "a", "--grace", "1h", "--", "true"}},
		{exitUsage, "not found", []string{"run", "--shard", "a", "--", "no-such-command"}},
		{exitUsage, "letters, digits", []string{"drain", "a/b", "-y"}},
		{exitUsage, "Tenure's own", []string{"pin", "_assigner", "a", "-y"}},
		{exitUsage, "letters, digits", []string{"pin", "a/../b", "a", "-y"}},
		{exitUsage, "letters, digits", []string{"evict", "a/b", "-y"}},
		{exitUsage, "--version", []string{"evict", "a", "-y", "--version", "-1"}},
		{exitUsage, "no positive number", []string{"raise-floor", "x", "-y"}},
		{exitUsage, "takes SHARD NODE", []string{"pin", "a", "-y"}},
		{exitUsage, "takes SHARD NODE", []string{"move", "a", "-y"}},
		{exitUsage, "name one shard", []string{"move", "a*", "b", "-y"}},
		{exitUsage, "name one shard", []string{"resign", "a*", "-y"}},
		{exitUsage, "letters, digits", []string{"resign", "a/b", "-y"}},
		{exitUsage, "letters, digits", []string{"move", "a", "b c", "-y"}},
		{exitUsage, "Tenure's own", []string{"resign", "_assigner", "-y"}},
		{exitUsage, "letters, digits", []string{"unmove", "a b"}},
		{exitUsage, "--token", []string{"resign", "a", "-y", "--token", "-1"}},
		{exitUsage, "give a whole number", []string{"resign", "a", "-y", "--token", "x"}},
		{exitUsage, "at most 18 digits", []string{"rules", "--last", "99999999999999999999"}},
		{exitUsage, "give 0 or more", []string{"log", "a", "--last", "-1"}},
		{exitUsage, "leave out --after", []string{"log", "a", "--last", "1", "--after", "1"}},
		{exitUsage, "true or false", []string{"raise-floor", "7", "--yes=x"}},
		{exitUsage, "such as 90s", []string{"status", "--timeout", "90"}},
		{exitUsage, "letters, digits", []string{"history", "a/b"}},
		{exitUsage, "--limit", []string{"history", "a", "--limit", "-1"}},
		{exitNotFound, "never owned", []string{"history", "a"}},
		{exitNotFound, "never owned", []string{"resign", "a", "-y"}},
		{exitNotFound, "never owned", []string{"move", "a", "b", "-y", "--force"}},
		{exitUsage, "--expires", []string{"freeze", "-y", "--expires", "-1h"}},
		{exitUsage, "control and format characters", []string{"freeze", "-y", "--reason", "a\nb"}},
		{exitNotFound, "never owned", []string{"who", "a"}},
		{exitUsage, "takes NODE", []string{"may-stop"}},
		{exitUsage, "letters, digits", []string{"may-stop", "a/b"}},
		{exitUsage, "letters, digits", []string{"may-stop", "a\x1b[31m", "--done"}},
		{exitUsage, "--away", []string{"may-stop", "a", "--away", "0"}},
		{exitUsage, "away is outside", []string{"may-stop", "a", "--away", "-1"}},
		{exitUsage, "away is outside", []string{"may-stop", "a", "--away", "1000000"}},
		{exitUsage, "members is outside", []string{"may-stop", "a", "--members", "-1"}},
		{exitUsage, "--for", []string{"may-stop", "a", "--for", "0s"}},
		{exitUsage, "outside 1s to 24h", []string{"may-stop", "a", "--for", "25h"}},
		{exitUsage, "dry-run", []string{"may-stop", "a", "--done", "--dry-run"}},
		{exitNotFound, "no member of node", []string{"may-stop", "a"}},
	} {
		p.bad(c.code, c.want, c.args...)
	}
	out, errs := p.run(exitOK, "--help")
	if !strings.Contains(out, "completion") || strings.Contains(out, guardName) || errs != "" {
		t.Errorf("--help: got %s%s", out, errs)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out, _ := p.run(exitOK, "completion", shell); !strings.Contains(out, "tenure") {
			t.Errorf("completion %s: got %q", shell, out)
		}
	}
}

// TestUnreachable tries every store at an address without a listener.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	stores := map[string]string{
		"postgres":  `postgres: {dsn: "postgres://u:planted@127.0.0.1:1/db?sslmode=disable", namespace: test}`,
		"mysql":     `mysql: {dsn: "u:planted@tcp(127.0.0.1:1)/db", namespace: test}`,
		"etcd":      `etcd: {endpoints: ["127.0.0.1:1"], namespace: test}`,
		"zookeeper": `zookeeper: {servers: ["127.0.0.1:1"], namespace: test}`,
		"consul":    `consul: {address: "127.0.0.1:1", namespace: test}`,
		"redis":     `redis: {addrs: ["127.0.0.1:1"], namespace: test}`,
	}
	for at, name := range slices.Sorted(maps.Keys(stores)) {
		backend := stores[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, backend+"\n  open_timeout: 2s")
			for i, command := range slices.Sorted(maps.Keys(every)) {
				// Each command tries one of the stores, except two commands that try all stores.
				if command == "status" || command == "run" || i%len(stores) == at {
					p.bad(exitUnreachable, name, every[command]...)
				}
			}
		})
	}
}
