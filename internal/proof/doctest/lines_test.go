package doctest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	eventKind = regexp.MustCompile(`(?m)^\tSession\w+ +EventKind = "(.+?)"`)
	leaseEnd  = regexp.MustCompile(`Cause[A-Z]\w+: "(.+?)"`)
	lineRow   = regexp.MustCompile("(?m)^\\| `(tenure: [^|]+)` \\|")
)

// TestLogLines compares the page with the lines that the code writes to the log.
func TestLogLines(t *testing.T) {
	t.Parallel()
	page := pageText(t, wrongPage)
	rows := make(map[string]bool)
	for _, row := range lineRow.FindAllStringSubmatch(page, -1) {
		for name := range strings.SplitSeq(row[1], "`, `") {
			rows[name] = true
		}
	}
	want := logged(t, "core", "effect", "follower", "lock", "sharding")
	unlogged := []string{"heartbeat failed", "call failed"} // only for hooks
	for _, kind := range eventKind.FindAllStringSubmatch(pageText(t, "core/hooks.go"), -1) {
		switch name := kind[1]; {
		case slices.Contains(unlogged, name):
		case strings.HasPrefix(name, "session ") || strings.HasPrefix(name, "store "):
			want = append(want, "tenure: "+name)
		case strings.HasSuffix(name, "eligible"):
			want = append(want, "tenure: member "+name)
		default:
			want = append(want, "tenure: session "+name)
		}
	}
	if len(want) < 20 {
		t.Fatalf("the code writes %q: the pattern no longer finds its lines", want)
	}
	slices.Sort(want)
	for _, line := range slices.Compact(want) {
		if !rows[line] {
			t.Errorf("%s has no row for %q", wrongPage, line)
		}
		delete(rows, line)
	}
	for line := range rows {
		t.Errorf("%s has %q, which the code does not write", wrongPage, line)
	}
	causes := leaseEnd.FindAllStringSubmatch(pageText(t, "internal/fsm/io.go"), -1)
	if len(causes) < 10 {
		t.Errorf("%d causes: the pattern no longer finds them", len(causes))
	}
	_, table, _ := strings.Cut(page, "\n### Causes of a lease's end\n")
	for _, c := range causes {
		if !strings.Contains(table, "`"+c[1]+"`") {
			t.Errorf("%s does not say what the cause %q means", wrongPage, c[1])
		}
	}
}

// logged returns the messages that are literals in the code.
func logged(t *testing.T, dirs ...string) (all []string) {
	t.Helper()
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				var args []ast.Expr
				switch n := n.(type) {
				case *ast.CallExpr:
					method, ok := n.Fun.(*ast.SelectorExpr)
					if ok && slices.Contains([]string{"info", "warn", "Info", "Warn", "Error", "LogAttrs"}, method.Sel.Name) {
						args = n.Args
					}
				case *ast.CompositeLit:
					if kind, ok := n.Type.(*ast.Ident); ok && kind.Name == "lineKind" {
						for _, field := range n.Elts {
							args = append(args, field.(*ast.KeyValueExpr).Value)
						}
					}
				}
				for _, arg := range args {
					if text := literal(arg); strings.HasPrefix(text, "tenure: ") && text != "tenure: " {
						all = append(all, text)
					}
				}
				return true
			})
		}
	}
	return all
}
