package core

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestAliasesAreDocumented: go doc shows only the comment of an alias, which therefore names the
// type's fields or methods.
func TestAliasesAreDocumented(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile(token.NewFileSet(), "aliases.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("driver/*.go")
	if err != nil {
		t.Fatal(err)
	}
	composite := make(map[string]bool)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				switch spec.Type.(type) {
				case *ast.StructType, *ast.InterfaceType:
					composite["driver."+spec.Name.Name] = true
				}
			}
			return true
		})
	}
	n := 0
	for _, decl := range f.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.TYPE {
			continue
		}
		for _, spec := range group.Specs {
			alias := spec.(*ast.TypeSpec)
			n++
			target := alias.Type.(*ast.SelectorExpr)
			name := target.X.(*ast.Ident).Name + "." + target.Sel.Name
			text := strings.Join(strings.Fields(alias.Doc.Text()), " ")
			if !strings.HasPrefix(text, alias.Name.Name+" ") || composite[name] && !strings.Contains(text, "["+name+"]") {
				t.Errorf("the comment of %s begins with its name, and names [%s] if that has fields or methods: %q", alias.Name.Name, name, text)
			}
		}
	}
	if n < 20 || !composite["driver.Fence"] {
		t.Errorf("%d aliases, and Fence is a struct: %v: the test no longer finds them", n, composite["driver.Fence"])
	}
}
