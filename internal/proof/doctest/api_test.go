package doctest

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAPI: every name in docs/api.txt is still exported. The file lists the names for other
// modules. It is updated for a release, or for a change that CHANGELOG.md names: go test
// ./internal/proof/doctest -run API -args -update
func TestAPI(t *testing.T) {
	t.Parallel()
	now := exportedNow(t)
	file := filepath.Join(root, "docs", "api.txt")
	if *update {
		text := strings.Join(slices.Sorted(maps.Keys(now)), "\n") + "\n"
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	n := 0
	for line := range strings.Lines(pageText(t, "docs/api.txt")) {
		n++
		if line = strings.TrimSpace(line); !now[line] {
			t.Errorf("%s\nis gone: restore it, or name it in CHANGELOG.md and run this with -args -update", line)
		}
	}
	if n < 500 {
		t.Errorf("docs/api.txt has %d lines", n)
	}
}

// exportedNow lists the exported names of the packages for other modules, in the form of
// docs/api.txt.
func exportedNow(t *testing.T) map[string]bool {
	t.Helper()
	now := make(map[string]bool)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if rel != "." && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"internal", "testdata", "cmd"}, d.Name())) {
			return fs.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && rel != "." {
			return fs.SkipDir // another module
		}
		exported(t, filepath.ToSlash(rel), now)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// exported adds a line for each exported name of a package, each field and each method.
func exported(t *testing.T, pkg string, all map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if file.Name.Name == "main" || !ast.FileExports(file) {
			continue
		}
		show := func(node any) string {
			var b strings.Builder
			if err := format.Node(&b, fset, node); err != nil {
				t.Fatal(err)
			}
			return strings.Join(strings.Fields(b.String()), " ")
		}
		add := func(parts ...string) { all[pkg+": "+strings.Join(parts, " ")] = true }
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				unnamed(d.Type)
				signature := d.Name.Name + strings.TrimPrefix(show(d.Type), "func")
				if d.Recv == nil {
					add("func", signature)
				} else if of := show(d.Recv.List[0].Type); ast.IsExported(strings.TrimLeft(of, "*")) {
					add("func ("+of+")", signature)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						for _, n := range spec.Names {
							add(d.Tok.String(), n.Name)
						}
					case *ast.TypeSpec:
						for _, line := range members(spec, show) {
							add(line)
						}
					}
				}
			}
		}
	}
}

// members returns the lines of a type: the type, and its fields or methods.
func members(spec *ast.TypeSpec, show func(any) string) []string {
	var list *ast.FieldList
	kind := ""
	switch x := spec.Type.(type) {
	case *ast.StructType:
		list, kind = x.Fields, "struct"
	case *ast.InterfaceType:
		list, kind = x.Methods, "interface"
	default:
		return []string{"type " + show(spec)}
	}
	name := "type " + spec.Name.Name + " " + kind
	lines := []string{name}
	for _, f := range list.List {
		if method, ok := f.Type.(*ast.FuncType); ok {
			unnamed(method)
		}
		typ := show(f.Type)
		if len(f.Names) == 0 {
			lines = append(lines, name+", "+typ)
		}
		for _, n := range f.Names {
			lines = append(lines, name+", "+n.Name+" "+typ)
		}
	}
	return lines
}

// unnamed drops the names of parameters and results, which no caller writes.
func unnamed(f *ast.FuncType) {
	for _, list := range []*ast.FieldList{f.Params, f.Results} {
		if list == nil {
			continue
		}
		var all []*ast.Field
		for _, field := range list.List {
			for range max(1, len(field.Names)) {
				all = append(all, &ast.Field{Type: field.Type})
			}
		}
		list.List = all
	}
}
