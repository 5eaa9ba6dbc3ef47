package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

var (
	goTest   = regexp.MustCompile("(?m)(?:^|`)go test ([^`\n]*[^`\n\\s])")
	bugTest  = regexp.MustCompile("`([a-z]+(?:/[a-z.]+)*) ([A-Z][^` ]*)`") // as docs/internals/bugs-found.md writes a go test
	goDemo   = regexp.MustCompile("(?m)(?:^|`|\\$ )go run \\./cmd/demo ([^`\n]+)")
	makeIt   = regexp.MustCompile("(?:^|`)make ((?:[a-z-]+[ `\n])+)")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w*)\(`)
	flagName = regexp.MustCompile(`"([a-z]+(?:\.[a-z]+)?)"`)
)

// TestCommandsExist compares the commands that pages name with the code: the package, tests, benchmarks and flags of
// "go test", targets of make, and flags of the demonstration. Most are measurements, which take minutes.
func TestCommandsExist(t *testing.T) {
	t.Parallel()
	targets := pageText(t, "Makefile")
	demo := sources(t, "cmd/demo", "*.go") + sources(t, "cmd/demo/simulation", "*.go")
	n := 0
	for _, page := range pages(t) {
		if page == "CHANGELOG.md" { // it names commands of earlier versions
			continue
		}
		text := pageText(t, page)
		n += goTests(t, page, text)
		for _, found := range goDemo.FindAllStringSubmatch(text, -1) {
			n++
			flags, _, _ := strings.Cut(found[1], "#")
			for _, word := range strings.Fields(flags) {
				if name, ok := strings.CutPrefix(word, "-"); ok && !strings.Contains(demo, `"`+name+`"`) && word != "-simulate" {
					t.Errorf("%s: go run ./cmd/demo %s: no flag %s", page, found[1], word)
				}
			}
		}
		for _, found := range makeIt.FindAllStringSubmatch(text, -1) {
			for _, target := range strings.Fields(strings.Trim(found[1], "`")) {
				n++
				if !strings.Contains(targets, "\n"+target+":") && !strings.Contains(targets, ".PHONY: "+target) {
					t.Errorf("%s: make %s: no such target", page, target)
				}
			}
		}
	}
	if n < 50 {
		t.Errorf("%d commands: the pattern no longer finds them", n)
	}
}

// TestWorkflow: everything that the workflow for a team's CI runs exists, and the workflow is valid
// YAML.
func TestWorkflow(t *testing.T) {
	t.Parallel()
	const name = "docs/guides/service-ci.yml"
	text := pageText(t, name)
	var w struct {
		Jobs map[string]struct {
			Steps []struct{ Uses, Run string }
		}
	}
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		t.Fatal(err)
	}
	n := 0
	source := sources(t, "cmd/tenure", "certify.go")
	for _, job := range w.Jobs {
		for _, step := range job.Steps {
			_, flags, ok := strings.Cut(step.Run, "tenure certify")
			if !ok {
				continue
			}
			n++
			for _, word := range strings.Fields(flags) {
				if flag, ok := strings.CutPrefix(word, "--"); ok && !strings.Contains(source, `"`+flag+`"`) {
					t.Errorf("%s: tenure certify has no flag --%s", name, flag)
				}
			}
		}
	}
	if n != 1 {
		t.Errorf("%s runs tenure certify %d times, want once", name, n)
	}
}

// TestNewcomersCommands: README.md contains the first commands for a newcomer, and the command for
// the tests.
func TestNewcomersCommands(t *testing.T) {
	t.Parallel()
	readme := pageText(t, "README.md")
	for _, want := range []string{"git clone ", "go run ./cmd/demo\n", "make test"} {
		if !strings.Contains(readme, want) {
			t.Errorf("README.md lacks %q", want)
		}
	}
}

// goTests checks the tests that a page names, and returns their number.
func goTests(t *testing.T, page, text string) int {
	t.Helper()
	n := 0
	for _, found := range goTest.FindAllStringSubmatch(text, -1) {
		n++
		if strings.Contains(found[1], "./mybackend") || strings.Contains(found[1], "/STORE") || !strings.Contains(found[1], "./") {
			continue // the reader's own
		}
		goTestExists(t, page, strings.NewReplacer("'", "", `\|`, "|").Replace(found[1]))
	}
	if page != "docs/internals/bugs-found.md" {
		return n
	}
	named := bugTest.FindAllStringSubmatch(text, -1)
	if len(named) < 90 {
		t.Errorf("%s: %d tests: the pattern no longer finds them", page, len(named))
	}
	for _, found := range named {
		goTestExists(t, page, "./"+found[1]+" -run "+found[2])
	}
	return n + len(named)
}

// goTestExists checks the arguments of a go test.
func goTestExists(t *testing.T, page, args string) {
	t.Helper()
	args, _, _ = strings.Cut(args, " #")
	own, testFlags, _ := strings.Cut(args+" ", "-args")
	words := strings.Fields(own)
	var names []string
	flags, where := "", ""
	for i, word := range words {
		if strings.HasPrefix(word, "./") {
			where += word + " "
			dir, below := strings.CutSuffix(strings.TrimPrefix(word, "./"), "...")
			if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
				t.Errorf("%s: go test %s: %v", page, args, err)
			}
			if below {
				return
			}
			text := sources(t, dir, "*_test.go") + sources(t, dir, "main.go")
			for _, d := range testFunc.FindAllStringSubmatch(text, -1) {
				names = append(names, d[1])
			}
			if dir == "conformance" || strings.HasPrefix(dir, "backends/") { // what their tests register
				text += sources(t, "internal/proof/system", "*.go") + sources(t, "conformance", "*.go") +
					sources(t, "internal/proof/sqlfault", "*.go")
			}
			for _, f := range flagName.FindAllString(text, -1) {
				flags += f
			}
		}
		if (word == "-run" || word == "-bench") && i+1 < len(words) {
			defer func(pattern string) {
				for _, alternative := range alternatives(pattern) {
					if !anyMatches(alternative, names) {
						t.Errorf("%s: go test %s: no test or benchmark in %s matches %q", page, args, where, alternative)
					}
				}
			}(words[i+1])
		}
	}
	for _, word := range strings.Fields(testFlags) {
		name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
		if strings.HasPrefix(word, "-") && !strings.Contains(flags, `"`+name+`"`) {
			t.Errorf("%s: go test %s: %s has no flag %s", page, args, where, word)
		}
	}
}

// group is an alternation within a pattern.
var group = regexp.MustCompile(`^([^(]*)\(([^)]*)\)(.*)$`)

// alternatives returns the parts of a pattern for whole tests, without the subtests. Each names a
// test.
func alternatives(pattern string) []string {
	if pattern == "^$" || pattern == "NONE" {
		return nil
	}
	var all []string
	depth, start := 0, 0
	for i, c := range pattern + "|" {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == '|' && depth == 0:
			whole, _, _ := strings.Cut(pattern[start:i], "/")
			start = i + 1
			found := group.FindStringSubmatch(whole)
			if found == nil {
				all = append(all, whole)
				continue
			}
			for _, a := range strings.Split(found[2], "|") {
				all = append(all, found[1]+a+found[3])
			}
		}
	}
	return all
}

func anyMatches(pattern string, names []string) bool {
	re, err := regexp.Compile(pattern)
	for _, name := range names {
		if err == nil && re.MatchString(name) {
			return true
		}
	}
	return false
}

func sources(t *testing.T, dir, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), pattern))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
