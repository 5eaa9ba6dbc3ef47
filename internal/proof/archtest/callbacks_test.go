package archtest

import (
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// callbacksOf returns the functions that an application provides, by folder, type and field: fields
// of exported structs, types that are functions, and the methods of the interfaces in applied.
func callbacksOf(t *tree) (out []string) {
	for _, p := range t.pkgs {
		if match(unlisted, p.dir) {
			continue
		}
		for _, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok || !spec.Name.IsExported() {
					return true
				}
				name := p.dir + " " + spec.Name.Name
				switch x := spec.Type.(type) {
				case *ast.FuncType:
					out = append(out, name)
				case *ast.StructType:
					for _, field := range x.Fields.List {
						if _, ok := field.Type.(*ast.FuncType); ok && len(field.Names) > 0 && field.Names[0].IsExported() {
							out = append(out, name+"."+field.Names[0].Name)
						}
					}
				case *ast.InterfaceType:
					for _, m := range x.Methods.List {
						if slices.Contains(applied, name) && len(m.Names) > 0 {
							out = append(out, name+"."+m.Names[0].Name)
						}
					}
				}
				return true
			})
		}
	}
	return out
}

// TestCallbacks: callbacks states what happens if a function that an application provides ends its
// goroutine. Either package goexit or one of the application's goroutines calls such a function.
func TestCallbacks(t *testing.T) {
	t.Parallel()
	src, err := repository()
	if err != nil {
		t.Fatal(err)
	}
	unused := maps.Clone(callbacks)
	for _, name := range callbacksOf(src) {
		if callbacks[name] == "" {
			t.Errorf("%s: nothing says what follows if it ends its goroutine (runtime.Goexit): call it with internal/goexit, "+
				"test that, and list it in callbacks", name)
		}
		delete(unused, name)
	}
	for name := range unused {
		t.Errorf("%s is no function that an application gives: remove it from callbacks", name)
	}
	guarded := map[string]bool{}
	for _, p := range src.pkgs {
		for _, f := range p.files {
			for _, spec := range f.Imports {
				guarded[p.dir] = guarded[p.dir] || strings.HasSuffix(imported(spec), "/internal/goexit")
			}
		}
	}
	for name, how := range callbacks {
		if dir, _, _ := strings.Cut(name, " "); strings.HasPrefix(how, "goexit") && !guarded[dir] {
			t.Errorf("%s is not called by package goexit, which %s does not use", name, dir)
		}
	}
}
