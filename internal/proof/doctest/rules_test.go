package doctest

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/internal/proof/mutate"
	"github.com/tenure-go/tenure/internal/proof/suite"
	"github.com/tenure-go/tenure/internal/seam"
)

var update = flag.Bool("update", false, "write the generated parts of docs")

var (
	ruleID   = regexp.MustCompile(`\b[A-Z][0-9]{1,2}\b`)
	bullet   = regexp.MustCompile(`(?m)^//   - ([A-Z][0-9]{1,2}): (.*(?:\n//     .*)*)`)
	docLink  = regexp.MustCompile(`\[([A-Za-z.*]+)\]`)
	sentence = regexp.MustCompile(`^(.*?[^.])\.(?: [A-Z]|$)`)
	tested   = regexp.MustCompile(`^(?:Test|Fuzz)[A-Z]\w*`)
)

// TestRuleIndex compares docs/internals/rules.md with the rules that the code states and with the
// tests that name them. After a change: go test ./internal/proof/doctest -run RuleIndex -args -update
func TestRuleIndex(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("## Stores\n\nEach backend keeps these ([core/driver](../../core/driver/doc.go)).\n\n| rule | says | tested by |\n|---|---|---|\n")
	for _, r := range suite.Rules() {
		var cases []string
		for _, c := range (conformance.Harness{}).Internal(seam.Key{}).Cases() {
			if slices.Contains(c.Rules, r) {
				cases = append(cases, c.Name)
			}
		}
		fmt.Fprintf(&b, "| **%s** %s | %s | %s |\n", r, r.Title(), r.Explain(), few(cases))
	}
	found := evidence(t)
	for _, part := range []struct{ head, text, dir string }{
		{"The machine", "What a member does (C), what holds for all of them together (S), and progress (V)", "internal/fsm"},
		{"Followers", "The log, and those that apply it", "follower"},
		{"Sharding", "Ownership of many shards", "sharding"},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s ([%s](../../%s/doc.go)).\n\n| rule | says | tested by |\n|---|---|---|\n", part.head, part.text, part.dir, part.dir)
		rules := bullet.FindAllStringSubmatch(pageText(t, part.dir+"/doc.go"), -1)
		if len(rules) < 4 {
			t.Fatalf("%s/doc.go states %d rules: the pattern no longer finds them", part.dir, len(rules))
		}
		for _, r := range rules {
			id, text := r[1], docLink.ReplaceAllString(strings.ReplaceAll(r[2], "\n//     ", " "), "$1")
			says := sentence.FindStringSubmatch(text)[1]
			tests := few(found[id])
			if tests == "" {
				if named := ruleID.FindAllString(text, -1); len(named) > 0 {
					tests = "the cases of " + strings.Join(named, ", ")
				} else {
					t.Errorf("no test names %s (%s): name it in the comment of the one that fails without it", id, says)
				}
			}
			fmt.Fprintf(&b, "| **%s** | %s | %s |\n", id, says, tests)
		}
	}
	mutate.Document(t, filepath.Join(root, "docs", "internals", "rules.md"), "rules", b.String(), *update)
}

func few(names []string) string {
	const most = 3
	more := ""
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`" + more
}

// evidence returns the tests that name each rule: in their comments, as the killer of a
// mutant whose name begins with the rule, or as the rule of a failure.
func evidence(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for _, from := range []struct{ files, suite string }{
		{"internal/fsm/*_test.go", "internal/fsm TestSimulation"},
		{"core/*_test.go", ""},
		{"follower/*_test.go", ""},
		{"sharding/*_test.go", ""},
		{"internal/proof/history/*.go", "internal/proof/system TestSystem"},
		{"internal/proof/system/*.go", "internal/proof/system TestSystem"},
	} {
		files, err := filepath.Glob(filepath.Join(root, from.files))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", from.files, len(files), err)
		}
		add := func(id, test string) {
			if id != "" && test != "" && !slices.Contains(all[id], test) {
				all[id] = append(all[id], test)
			}
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					if tested.MatchString(n.Name.Name) {
						for _, id := range ruleID.FindAllString(n.Doc.Text(), -1) {
							add(id, path.Dir(from.files)+" "+n.Name.Name)
						}
					}
				case *ast.CompositeLit:
					if id, test := killer(n); test != "" {
						add(id, path.Dir(from.files)+" "+test)
					} else {
						add(id, from.suite)
					}
				case *ast.CallExpr:
					if len(n.Args) > 1 {
						if id := literal(n.Args[0]); ruleID.FindString(id) == id {
							add(id, from.suite)
						}
					}
				}
				return true
			})
		}
	}
	return all
}

// killer returns the rule that a mutant breaks, and the name of the test that must fail, without
// the name of the subtest.
func killer(mutant *ast.CompositeLit) (id, test string) {
	for i, e := range mutant.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			e = kv.Value
		}
		text := literal(e)
		rule, _, isRule := strings.Cut(text, ": ")
		switch {
		case i == 0 && isRule && ruleID.FindString(rule) == rule:
			id = rule
		case tested.MatchString(text):
			test = tested.FindString(text)
		}
	}
	return id, test
}

// literal returns the value of a literal string, otherwise "".
func literal(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return text
}
