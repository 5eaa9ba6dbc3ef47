//go:build unix

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
)

// memberAccepts accepts the configurations that a program with every backend accepts, including an
// application's backend.
func memberAccepts(c *config.Config) error {
	return c.Validate(append(openers(), core.Opener{Name: "memory"}, core.Opener{Name: "own"})...)
}

// examples lists the configurations of the documentation, the deployments, the examples, and the
// tests of tenurefx and config, by their place.
func examples(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(place, text string) {
		var top struct {
			Tenure map[string]yaml.Node `yaml:"tenure"`
			Data   map[string]string    `yaml:"data"`
		}
		for part := range strings.SplitSeq(text, "\n---\n") {
			if yaml.Unmarshal([]byte(part), &top) != nil {
				continue
			}
			if _, set := top.Tenure["backends"]; set {
				all[place] = part
			}
			for file, text := range top.Data { // of a ConfigMap
				all[place+" "+file] = text
			}
		}
	}
	root := "../.."
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if name := d.Name(); name != ".." && (strings.HasPrefix(name, ".") || name == "testdata") {
				return filepath.SkipDir
			}
			return err
		}
		kind := filepath.Ext(path)
		if kind != ".md" && kind != ".yaml" && !strings.HasPrefix(path, root+"/tenurefx/") && !strings.HasPrefix(path, root+"/config/") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch kind {
		case ".yaml":
			add(path, string(text))
		case ".md":
			for i, block := range regexp.MustCompile("(?ms)^ *```yaml\n(.*?)^ *```").FindAllStringSubmatch(string(text), -1) {
				add(fmt.Sprintf("%s, block %d", path, i), block[1])
			}
		case ".go":
			file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					if s, err := strconv.Unquote(l.Value); err == nil && strings.Contains(s, "tenure:") {
						add(fmt.Sprintf("%s:%d", path, l.Pos()), s)
					}
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestAccepted: the command accepts every configuration that a member accepts.
func TestAccepted(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("postgres://orders@127.0.0.1/orders"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := examples(t)
	all["made up"] = `
http: {listen: ":8080"}
tenure:
  backend: sqlite
  backends:
    sqlite: {path: a.db, namespace: n}
    memory: {namespace: n}
    own: {anything: [1, 2], at: {all: true}}
  sharding: {shards: [a], of: {a: newer version}}
  follower: {backoff_max: 1s}
other: {tenure: no}
`
	accepted := 0
	for place, text := range all {
		text = regexp.MustCompile(`!file [^\s,}]+`).ReplaceAllString(text, "!file "+secret)
		var environ []string
		for _, name := range regexp.MustCompile(`!env (\w+)`).FindAllStringSubmatch(text, -1) {
			environ = append(environ, name[1]+"=postgres://orders@127.0.0.1/orders")
		}
		c, err := config.Load(&config.LoadOptions{Path: "c.yaml", Data: []byte(text), Environ: append(environ, "X=")})
		if err != nil || memberAccepts(c) != nil {
			continue // of a test that expects a refusal
		}
		accepted++
		if err := c.Validate(append(openers(), foreign(c, openers())...)...); err != nil {
			t.Errorf("%s: a member accepts it, and this command says %v", place, err)
		}
	}
	if accepted < 10 {
		t.Errorf("%d configurations of %d found: want those of the pages, deployments, examples and tests", accepted, len(all))
	}
}

// TestLikeAMember: the command works with a configuration that sets everything, and does not wait
// as members do.
func TestLikeAMember(t *testing.T) {
	t.Parallel()
	p := newPlace(t, fmt.Sprintf(`sqlite: {path: %q, namespace: test}
    own: {anything: true}
    memory: {namespace: test}
  backend: sqlite
  open_wait: 1h
  lame_duck: 1h
  stop_timeout: 3h
  supersede: true
  watchdog: 10s
  failback: 1m
  abandon_after: 1m
  priority: 3
  weight: 7
  meta: {address: "127.0.0.1:1"}
  sharding: {shards: [a], unknown: {to: this command}}
  follower: {unknown: true}`, filepath.Join(t.TempDir(), "test.db")))
	p.bad(exitNotFound, "tenure init", "status")
	p.run(exitOK, "init")
	p.run(exitOK, "freeze", "--yes")
	p.run(exitOK, "unfreeze", "--yes")
	p.run(exitOK, "doctor")
	for _, name := range []string{"own", "memory"} {
		p := newPlace(t, name+": {namespace: test}")
		p.bad(exitUsage, "this command has consul", "status")
	}
}

// TestEnvPrefix: if a member uses different variable names (config.LoadOptions), --env-prefix
// matches them, even for a variable that the command itself sets.
func TestEnvPrefix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tenure.yaml")
	text := "tenure:\n  open_wait: 1h\n  backend: memory\n  backends:\n    sqlite: {namespace: none}\n    memory: {namespace: test}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ORDERS_BACKEND", "sqlite")
	t.Setenv("ORDERS_BACKENDS__SQLITE__PATH", filepath.Join(t.TempDir(), "test.db"))
	t.Setenv("ORDERS_BACKENDS__SQLITE__NAMESPACE", "test")
	t.Setenv("ORDERS_OPEN_WAIT", "2h")
	p := &place{t: t, path: path}
	p.bad(exitUsage, "this command has consul", "status")
	p.bad(exitNotFound, "tenure init", "status", "--env-prefix", "ORDERS_")
	p.run(exitOK, "init", "--env-prefix", "ORDERS_")
	p.run(exitOK, "members", "--env-prefix", "ORDERS_")
	for _, prefix := range []string{"", "ORDERS-", "A=B", "a\x1b[31m"} {
		p.bad(exitUsage, "--env-prefix", "status", "--env-prefix", prefix)
	}
}
