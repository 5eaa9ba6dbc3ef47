package mutate

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"testing"
)

// Found is a mutant in a test file, with the file and line of its literal.
type Found struct {
	Mutant
	At string
}

// Read returns the mutants of a test file, in order, without compiling it. Each Edit must be in a
// list of edits in its mutant's literal, and must consist of constants of that file. If an Edit has
// a different form, Read returns an error.
func Read(file string) ([]Found, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return ReadSource(file, src)
}

// ReadSource is like Read, for a file with the text src.
func ReadSource(file string, src []byte) ([]Found, error) {
	if !bytes.Contains(src, []byte("mutate.Edit")) {
		return nil, nil
	}
	r := &reader{fset: token.NewFileSet(), texts: make(map[string]ast.Expr)}
	f, err := parser.ParseFile(r.fset, file, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			for i, value := range spec.Values {
				r.texts[spec.Names[i].Name] = value
			}
		}
		return true
	})
	var stack []ast.Node
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, n)
		if lit, ok := n.(*ast.CompositeLit); ok && holdsEdits(lit.Type) {
			r.mutant(lit, stack)
		}
		return true
	})
	return r.all, r.err
}

// holdsEdits reports whether a type is Edit, or a list or map of types that contain edits.
func holdsEdits(typ ast.Expr) bool {
	switch typ := typ.(type) {
	case *ast.ArrayType:
		return holdsEdits(typ.Elt)
	case *ast.MapType:
		return holdsEdits(typ.Value)
	case *ast.SelectorExpr:
		return typ.Sel.Name == "Edit"
	}
	return false
}

type reader struct {
	fset  *token.FileSet
	texts map[string]ast.Expr // values of constants and variables, by their names
	all   []Found
	err   error
}

// mutant reads the mutant whose list of edits is the last node in nodes.
func (r *reader) mutant(list *ast.CompositeLit, nodes []ast.Node) {
	at := len(nodes) - 2
	if _, ok := nodes[at].(*ast.KeyValueExpr); ok {
		at--
	}
	lit, ok := nodes[at].(*ast.CompositeLit)
	if typ, isList := list.Type.(*ast.ArrayType); !ok || !isList || holdsEdits(lit.Type) {
		r.fail(list, "an edit that is in no mutant's list")
		return
	} else if _, isLists := typ.Elt.(*ast.ArrayType); isLists {
		r.fail(list, "edits of several mutants in one list")
		return
	}
	m := Found{At: r.at(lit)}
	for _, e := range lit.Elts {
		key, value := "", e
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			key, value = kv.Key.(*ast.Ident).Name, kv.Value
		}
		switch {
		case value == list:
		case m.Name == "":
			m.Name = r.text(value)
		case key == "Killer" || key == "": // the last text before the edits
			m.Killer = r.text(value)
		}
	}
	for _, e := range list.Elts {
		edit, ok := e.(*ast.CompositeLit)
		if !ok {
			r.fail(e, "an edit that is no literal")
			return
		}
		m.Edits = append(m.Edits, r.edit(edit))
	}
	r.all = append(r.all, m)
}

func (r *reader) edit(lit *ast.CompositeLit) (edit Edit) {
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			r.fail(e, "an edit that does not name its fields")
			return edit
		}
		switch text := r.text(kv.Value); kv.Key.(*ast.Ident).Name {
		case "File":
			edit.File = text
		case "In":
			edit.In = text
		case "Old":
			edit.Old = text
		case "New":
			edit.New = text
		}
	}
	return edit
}

// text returns the value of a constant string.
func (r *reader) text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return text
		}
	case *ast.BinaryExpr:
		return r.text(e.X) + r.text(e.Y)
	case *ast.Ident:
		if value := r.texts[e.Name]; value != nil {
			return r.text(value)
		}
	}
	r.fail(e, "not a constant text of this file")
	return ""
}

func (r *reader) at(n ast.Node) string {
	pos := r.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", pos.Filename, pos.Line)
}

// fail records an error, but keeps only the first one.
func (r *reader) fail(n ast.Node, what string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %s", r.at(n), what)
	}
}

// Listed fails t unless Read finds exactly these lists of edits in a file. If Listed passes, a
// check that does not compile the file still covers all mutants.
func Listed(t testing.TB, file string, mutants ...[]Edit) {
	t.Helper()
	found, err := Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(found, mutants, func(f Found, m []Edit) bool { return slices.Equal(f.Edits, m) }) {
		t.Fatalf("%s has %d mutants, of which Read finds %d, or finds others", file, len(mutants), len(found))
	}
}
