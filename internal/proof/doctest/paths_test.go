package doctest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPathsThroughTheCode: each function in CONTRIBUTING's lists is in the file named before it. An
// earlier function in the list uses it, unless it is the first.
func TestPathsThroughTheCode(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Five paths through the code\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, section, _ = strings.Cut(section, "\n**") // the text before the first list
	lists := strings.Split(section, "\n**")
	if len(lists) != 5 {
		t.Fatalf("there are %d lists, want 5", len(lists))
	}
	declared := map[string]map[string][]*ast.FuncDecl{} // by file and name
	used := map[string]bool{}                           // by the functions named so far
	for _, list := range lists {
		file, first := "", true
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(list, -1) {
			name := m[1]
			if strings.HasSuffix(name, ".go") {
				file = name
				if declared[file] == nil {
					declared[file] = functions(t, file)
				}
				continue
			}
			found := declared[file][name]
			switch {
			case len(found) == 0:
				t.Errorf("%s has no function %s", file, name)
			case !first && !used[name]:
				t.Errorf("no function named before %s in %s uses it", name, file)
			}
			first = false
			for _, f := range found {
				ast.Inspect(f.Body, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						used[id.Name] = true
					}
					return true
				})
			}
		}
		if first {
			t.Errorf("a list names no function: %s", list)
		}
	}
}

func functions(t *testing.T, file string) map[string][]*ast.FuncDecl {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(file)), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]*ast.FuncDecl{}
	for _, d := range f.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
			out[d.Name.Name] = append(out[d.Name.Name], d)
		}
	}
	return out
}
