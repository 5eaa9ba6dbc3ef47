package doctest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/internal/proof/mutate"
)

// planted is broken code, and the test, the case or the rule that must fail because of it.
type planted struct{ pkg, rule, name, killer string }

// TestMutantList compares the summary in docs/internals/conformance.md with the mutants of the
// code. With -v, it lists each mutant. After a change: go test ./internal/proof/doctest -run
// MutantList -args -update
func TestMutantList(t *testing.T) {
	t.Parallel()
	var list, summary strings.Builder
	summary.WriteString("| package | mutants |\n|---|---|\n")
	all := mutants(t)
	for len(all) > 0 {
		pkg := all[0].pkg
		n := 0
		for ; n < len(all) && all[n].pkg == pkg; n++ {
			m := all[n]
			fmt.Fprintf(&list, "%s: %s%s: fails %s\n", pkg, m.rule, m.name, m.killer)
		}
		fmt.Fprintf(&summary, "| `%s` | %d |\n", pkg, n)
		all = all[n:]
	}
	t.Logf("\n%s", list.String())
	mutate.Document(t, filepath.Join(root, "docs", "internals", "conformance.md"), "mutants", summary.String(), *update)
}

// mutants returns the mutants of every file named mutants_test.go, by package.
func mutants(t *testing.T) []planted {
	t.Helper()
	var all []planted
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && file != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir // Git and builds have files that come and go
		}
		if err != nil || d.Name() != "mutants_test.go" {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			return err
		}
		found := mutantsOf(t, filepath.ToSlash(rel), f)
		if len(found) == 0 {
			t.Errorf("%s has no mutants: the list no longer finds them", file)
		}
		all = append(all, found...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// mutantsOf finds the literals of mutate.Mutant, and of structs that have a killer.
func mutantsOf(t *testing.T, pkg string, f *ast.File) []planted {
	t.Helper()
	texts := make(map[string]ast.Expr) // constants
	structs := make(map[string]*ast.StructType)
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ValueSpec:
			for i, value := range n.Values {
				texts[n.Names[i].Name] = value
			}
		case *ast.TypeSpec:
			if s, ok := n.Type.(*ast.StructType); ok {
				structs[n.Name.Name] = s
			}
		}
		return true
	})
	var all []planted
	add := func(lit *ast.CompositeLit, names []string) {
		m := plantedBy(lit, names, texts)
		if m.pkg = pkg; m.name == "" || m.killer == "" {
			t.Errorf("%s: the mutant %q fails %q: want constants", pkg, m.name, m.killer)
		}
		all = append(all, m)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		if array, ok := lit.Type.(*ast.ArrayType); ok {
			if names, ok := mutantFields(array.Elt, structs); ok {
				for _, e := range lit.Elts {
					add(e.(*ast.CompositeLit), names)
				}
			}
		} else if names, ok := mutantFields(lit.Type, structs); ok {
			add(lit, names)
		}
		return true
	})
	return all
}

// plantedBy reads the literal of a mutant, which may name its fields.
func plantedBy(lit *ast.CompositeLit, names []string, texts map[string]ast.Expr) planted {
	var m planted
	for i, e := range lit.Elts {
		field := ""
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			field, e = kv.Key.(*ast.Ident).Name, kv.Value
		} else {
			field = names[i]
		}
		switch text := constantOf(e, texts); field {
		case "Name", "name", "does", "bug":
			if text != "" {
				m.name = text
			}
		case "Killer", "killer", "breaks":
			m.killer = text
		case "rule":
			m.rule = text + ": "
		}
	}
	if id, name, found := strings.Cut(m.name, ": "); m.rule == "" && found && ruleID.FindString(id) == id {
		m.rule, m.name = id+": ", name
	}
	return m
}

// mutantFields returns the fields of a type, and whether it is a type of mutants.
func mutantFields(typ ast.Expr, structs map[string]*ast.StructType) ([]string, bool) {
	var s *ast.StructType
	switch typ := typ.(type) {
	case *ast.SelectorExpr:
		if typ.Sel.Name == "Mutant" {
			return nil, true // its literals name their fields
		}
	case *ast.Ident:
		s = structs[typ.Name]
	case *ast.StructType:
		s = typ
	}
	if s == nil {
		return nil, false
	}
	var names []string
	for _, field := range s.Fields.List {
		for _, name := range field.Names {
			names = append(names, name.Name)
		}
	}
	return names, slices.Contains(names, "killer") || slices.Contains(names, "breaks")
}

// constantOf returns the value of a constant string, otherwise "".
func constantOf(e ast.Expr, texts map[string]ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		if value := texts[e.Name]; value != nil {
			return literal(value)
		}
	case *ast.BinaryExpr:
		left, right := constantOf(e.X, texts), constantOf(e.Y, texts)
		if left != "" && right != "" {
			return left + right
		}
	}
	return literal(e)
}
