package doctest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

// shellPage has the needs of a page's shell blocks. They run in one session of an interactive bash
// for the page, in an empty folder. Its network and its processes are separate, so the page's
// commands start its server on the usual port.
//
//	<!-- run -->          before a block of sh: every command of it succeeds
//	<!-- run: prints -->  and prints something
//	<!-- recipe -->       as run
//
// A Go program after a block is written to main.go, and the commands "go run ." of the following
// console block run it.
type shellPage struct {
	before string // replaces the conditions that the page assumes
	ready  string // runs after the first block: waits for the server
	inside string // runs after the program: a member that owns the shard of later blocks
}

const (
	// The module is not published while it is tested, so go get and go install use the working
	// tree.
	toolsHere = `go() {
  case "$*" in
  "get github.com/tenure-go/tenure/"*)
    command go mod edit -require=github.com/tenure-go/tenure@v0.0.0 -replace=github.com/tenure-go/tenure="$TREE" &&
      cp "$TREE/go.sum" . && command go "$@" ;;
  "install github.com/tenure-go/tenure/cmd/tenure@latest") cp "$BUILT/tenure" "$GOBIN" ;;
  *) command go "$@" ;;
  esac
}
awaits() { for _ in $(seq 900); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; echo "in vain: $*"; tail -n 5 *.log; return 1; }
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1"); }
member() { "$BUILT/tenure" run --shard "$1" -- sleep 600 >"member-$1.log" 2>&1 & }
`
	// There is no image without a registry. TestBlocks runs the page's program on a server of this
	// machine.
	withoutImages = "docker() { :; }\n"
	// A test installs no packages, so "make servers" provides the server and the class of zkCli.sh.
	zooKeeperHere = `sudo() { [ "$1" = apt-get ] ||
  java -cp '/usr/share/java/*' org.apache.zookeeper.server.ZooKeeperServerMain 2181 "$PWD/zk" >zk.log 2>&1 & }
zkCli.sh() { java -cp '/usr/share/java/*' org.apache.zookeeper.ZooKeeperMain -server 127.0.0.1:2181 "$@" 2>/dev/null; }
`
	owned = "member hello; awaits $BUILT/tenure who hello\n"
)

func shellPages() map[string]shellPage {
	onSQLite := "printf 'tenure:\\n  ttl: 3s\\n  backends:\\n    sqlite:\\n      path: %s/t.db\\n      namespace: orders\\n' \"$PWD\" >tenure.yaml\n" +
		"export TENURE_CONFIG=tenure.yaml\n$BUILT/tenure init\n"
	return map[string]shellPage{
		"README.md":                 {},
		"docs/tutorial.md":          {},
		"docs/backends/sqlite.md":   {},
		"docs/backends/postgres.md": {before: withoutImages},
		"docs/backends/mysql.md":    {before: withoutImages},
		"docs/backends/etcd.md": {ready: "awaits listens 2379\n",
			inside: "export TENURE__BACKENDS__ETCD__ENDPOINTS=http://127.0.0.1:2379 TENURE__BACKENDS__ETCD__NAMESPACE=orders\n" + owned},
		"docs/backends/consul.md": {ready: "awaits consul kv put ready 1\n",
			inside: "export TENURE__BACKENDS__CONSUL__ADDRESS=http://127.0.0.1:8500 TENURE__BACKENDS__CONSUL__NAMESPACE=orders\n" + owned},
		"docs/backends/redis.md": {ready: "awaits listens 6379\n",
			inside: "export TENURE__BACKENDS__REDIS__ADDRS=127.0.0.1:6379 TENURE__BACKENDS__REDIS__NAMESPACE=orders\n" + owned},
		"docs/backends/zookeeper.md": {before: zooKeeperHere, ready: "awaits listens 2181\n",
			inside: "export TENURE__BACKENDS__ZOOKEEPER__SERVERS=127.0.0.1:2181 TENURE__BACKENDS__ZOOKEEPER__NAMESPACE=orders\n" + owned},
		"docs/guides/service.md": {inside: "go build -o service . && { ./service >service.log 2>&1 & }\n" +
			"awaits $BUILT/tenure who orders-0063\n"},
		"docs/tenure.md": {before: onSQLite + "printf '#!/bin/sh\\n' >report; chmod +x report\n" +
			"for n in 1 2 3; do TENURE__NODE=node-$n member orders-$n; done; TENURE__NODE=node-1 member orders-17\n" +
			"for s in 1 2 3 17; do awaits $BUILT/tenure who orders-$s; done\n"},
		"docs/sidecar.md": {before: onSQLite + "mount -t tmpfs tmpfs /run && mkdir /run/app && cp $BUILT/tenure $GOBIN\n",
			ready: "awaits curl -s --unix-socket /run/app/tenure.sock http://sidecar/v1/shards/jobs\n"},
	}
}

// notRun returns the shell blocks that the test does not run, by a part of their text, with the
// reason.
func notRun() map[string]string {
	return map[string]string{
		"kubectl apply":          "there is no cluster; tools/manifests validates the manifests",
		"go run ./cmd/demo":      "takes minutes; make demo-test and demo-seeds run it, and TestCommandsExist compares its flags",
		"go test ./backends/":    "measurements and long faults, which take minutes; TestCommandsExist compares names and flags",
		"go test -race ./backe":  "the same",
		"go test ./cmd/tenure":   "the same",
		"go test ./internal/fsm": "make simulation runs it; TestCommandsExist compares names and flags",
		"quorum members":         "there is no cluster; TestCommand of quorum/cmd/quorum runs it",
		"tenure effect resolve":  "no effect is in doubt; TestEffects of cmd/tenure runs it",
	}
}

// TestShell runs the shell blocks of the pages.
func TestShell(t *testing.T) {
	t.Parallel()
	servers.Short(t)
	built := t.TempDir()
	goTool(t, root, "build", "-o", filepath.Join(built, "tenure"), "./cmd/tenure")
	goTool(t, module(t), "mod", "graph") // fetches the modules for go get, because pages have no network
	n := 0
	for _, page := range pages(t) {
		all := blocks(t, page)
		marked := false
		for _, b := range all {
			if b.lang == "console" && !playedBy(all, b) && unrun(b) == "" {
				t.Errorf("%s: the console does not follow a program that is run, and the test does not say why", b)
			}
			if b.lang != "sh" {
				continue
			}
			n++
			if isRun(b) {
				marked = true
			} else if unrun(b) == "" {
				t.Errorf("%s: neither <!-- run --> nor a reason in the test", b)
			}
		}
		p, listed := shellPages()[page]
		if marked != listed {
			t.Errorf("%s: blocks that are run: %v, while the test lists the page: %v", page, marked, listed)
		}
		if marked && listed {
			t.Run(strings.TrimSuffix(page, ".md"), func(t *testing.T) { p.play(t, page, all, built) })
		}
	}
	if n < 20 {
		t.Errorf("%d shell blocks: the pattern no longer finds them", n)
	}
}

func isRun(b *block) bool {
	return b.mark == "run" || strings.HasPrefix(b.mark, "run: ") || b.mark == "recipe"
}

func unrun(b *block) string {
	for part, why := range notRun() {
		if strings.Contains(b.text, part) {
			return why
		}
	}
	return ""
}

// playedBy reports whether a console's block follows a program, which TestBlocks runs.
func playedBy(all []*block, console *block) bool {
	for _, b := range all {
		if b.next == console && b.lang == "go" {
			return true
		}
	}
	return false
}

// step is one command, with the expected result.
type step struct {
	where  string // empty: the test's own folder
	text   string
	prints bool
	want   []string // lines
}

// steps returns the commands of a page in order.
func (p shellPage) steps(t *testing.T, all []*block) []step {
	t.Helper()
	steps := []step{{text: toolsHere}, {text: p.before}}
	ready, inside := p.ready, p.inside
	for _, b := range all {
		if b.lang != "sh" || !isRun(b) {
			continue
		}
		for _, text := range commands(t, b) {
			steps = append(steps, step{where: b.String(), text: text, prints: b.mark == "run: prints"})
		}
		steps = append(steps, step{text: ready})
		ready = ""
		program := b.next
		if program == nil || !program.isProgram() || inside == "" {
			continue
		}
		steps = append(steps, step{text: "cat >main.go <<'END OF MAIN'\n" + program.text + "END OF MAIN\n"})
		for _, run := range strings.Split(program.next.text, "$ go run .\n")[1:] {
			steps = append(steps, step{where: program.next.String(), text: "go run . 2>run.log\n", want: strings.Split(strings.TrimSuffix(run, "\n"), "\n")})
		}
		steps = append(steps, step{text: inside})
		inside = ""
	}
	return steps
}

// commands splits a block at the ends of whole commands, as bash reads it.
func commands(t *testing.T, b *block) []string {
	t.Helper()
	var all []string
	open := ""
	for line := range strings.Lines(b.text) {
		open += line
		if strings.TrimSpace(open) == "" || strings.HasPrefix(line, "#") {
			open = ""
			continue
		}
		if strings.HasSuffix(line, "\\\n") || exec.CommandContext(t.Context(), "bash", "-nc", open).Run() != nil {
			continue
		}
		all, open = append(all, open), ""
	}
	if open != "" {
		t.Errorf("%s: bash does not parse\n%s", b, open)
	}
	return all
}

// play runs a page's session.
func (p shellPage) play(t *testing.T, page string, all []*block, built string) {
	t.Parallel()
	alone := []string{"--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"}
	if out, err := exec.CommandContext(t.Context(), "unshare", append(alone, "ip", "link", "set", "lo", "up")...).CombinedOutput(); err != nil {
		t.Skipf("needs a network of its own, by unshare and ip: %v %s", err, out)
	}
	p.available(t)
	steps := p.steps(t, all)
	ctx, cancel := context.WithTimeout(t.Context(), 2*ample.Time)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", append(alone, "sh", "-c", "ip link set lo up && exec bash --norc --noprofile --noediting -i")...)
	cmd.Dir = t.TempDir()
	files(t, page, cmd.Dir, pageAddr)
	cmd.Env = slices.DeleteFunc(append(os.Environ(), environment(t, cmd.Dir, built)...), func(e string) bool {
		return strings.HasPrefix(e, "TENURE_") // variables of the shell that runs the test
	})
	const mark = "@@ the command ended: "
	var script strings.Builder
	for i, s := range steps {
		fmt.Fprintf(&script, "%s\nprintf '\\n%s%%d %d\\n' $?\n", strings.TrimSuffix(s.text, "\n"), mark, i)
	}
	cmd.Stdin = strings.NewReader(script.String() + "exit 0\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("bash: %v\n%s", err, out)
	}
	i := 0
	var printed []string
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		status, ended := strings.CutPrefix(lines.Text(), mark)
		if !ended {
			if !isShells(lines.Text()) {
				printed = append(printed, lines.Text())
			}
			continue
		}
		if i < len(steps) {
			steps[i].check(t, status == "0 "+strconv.Itoa(i), printed)
		}
		i, printed = i+1, nil
	}
	if i != len(steps) {
		t.Errorf("%d of %d commands ended\n%s", i, len(steps), out)
	}
}

// isShells reports whether an interactive bash without a terminal printed the line.
func isShells(line string) bool {
	return strings.TrimSpace(line) == "" || strings.HasPrefix(line, "bash: cannot set terminal process group") ||
		line == "bash: no job control in this shell" || regexp.MustCompile(`^\[\d+\] \d+$`).MatchString(line)
}

func (s *step) check(t *testing.T, ok bool, printed []string) {
	t.Helper()
	text := strings.Join(printed, "\n")
	bad := !ok || strings.Contains(text, "event not found") || strings.Contains(text, "syntax error")
	bad = bad || s.prints && text == ""
	for i, want := range s.want {
		bad = bad || len(printed) != len(s.want) || !matches(want, printed[i])
	}
	if bad {
		t.Errorf("%s: the command\n%s\nhas failed, or printed otherwise than the page says:\n%s", s.where, s.text, text)
	}
}

// available skips the test if the machine does not have the page's server, unless it is required.
func (p shellPage) available(t *testing.T) {
	t.Helper()
	for text, need := range map[string]struct {
		kind servers.Kind
		tool string
	}{"2379": {servers.Etcd, "etcdctl"}, "consul": {servers.Consul, "consul"}, "6379": {servers.Redis, "redis-server"},
		"2181": {servers.ZooKeeper, "java"}} {
		if !strings.Contains(p.ready, text) {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "command -v "+need.tool)
		cmd.Env = append(os.Environ(), "PATH="+searched(t))
		if cmd.Run() != nil {
			servers.Unavailable(t, need.kind, fmt.Errorf("%w: no %s: run make servers", servers.ErrUnavailable, need.tool))
		}
	}
}

// searched returns the PATH with the programs that make servers builds.
func searched(t *testing.T) string {
	t.Helper()
	tools, err := filepath.Abs(filepath.Join(root, ".cache", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	return tools + ":" + os.Getenv("PATH") + ":/usr/sbin:/sbin"
}

func environment(t *testing.T, dir, built string) []string {
	t.Helper()
	tree, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	caches, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	cache, mods, _ := strings.Cut(strings.TrimSpace(string(caches)), "\n")
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"PS1=", "PS2=", "HOME=" + dir, "HISTFILE=", "GOFLAGS=-mod=mod", "GOWORK=off", "GOPROXY=off",
		"GOCACHE=" + cache, "GOMODCACHE=" + mods, "GOBIN=" + bin, "PATH=" + bin + ":" + searched(t), "TREE=" + tree, "BUILT=" + built}
}
