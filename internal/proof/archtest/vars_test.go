package archtest

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// readOnly are functions whose result cannot be changed, or never is.
var readOnly = []string{
	"errors.New", "fmt.Errorf", "github.com/tenure-go/tenure/internal/errtext.NotApplied", "regexp.MustCompile", "strings.NewReplacer",
	"reflect.TypeFor",
	"hash/crc32.MakeTable", "hash/crc64.MakeTable", "text/template.Must", "html/template.Must",
}

// checkVars finds package-level state. A package-level variable may be
//
//   - a compile-time assertion: var _ Interface = (*Type)(nil);
//   - embedded files;
//   - an error whose name shows that it is one, or another package's error under its name;
//   - not exported, a literal, or the result of a function of readOnly;
//
// and nothing may ever assign to it or to a part of it, or take its address.
func checkVars(t *tree, places layout) []finding {
	var out []finding
	for _, p := range t.pkgs {
		if match(places.program, p.dir) {
			continue
		}
		info := t.resolve(p)
		globals := map[types.Object]bool{}
		for _, f := range p.files {
			for _, decl := range f.Decls {
				g, ok := decl.(*ast.GenDecl)
				if !ok || g.Tok != token.VAR {
					continue
				}
				for _, spec := range g.Specs {
					v := spec.(*ast.ValueSpec)
					for i, name := range v.Names {
						globals[info.Defs[name]] = true
						if name.Name != "_" && !embedded(g, v) &&
							!(i < len(v.Values) && t.constant(name, v.Values[i], info)) {
							out = append(out, t.at(name, "package-level state %s: keep it in a value that somebody owns", name.Name))
						}
					}
				}
			}
		}
		for _, f := range p.files {
			out = append(out, t.writes(f, info, globals)...)
		}
	}
	return out
}

// constant reports whether a variable with this name and value counts as a constant while nothing
// writes to it.
func (t *tree) constant(name *ast.Ident, value ast.Expr, info *types.Info) bool {
	isErr := strings.HasPrefix(name.Name, "Err") || strings.HasPrefix(name.Name, "err")
	switch value := value.(type) {
	case *ast.CallExpr:
		made := false
		if sel, ok := value.Fun.(*ast.SelectorExpr); ok {
			made = slices.Contains(readOnly, packageOf(sel, info)+"."+sel.Sel.Name)
		}
		if array, ok := value.Fun.(*ast.ArrayType); ok && array.Len == nil { // []byte("...")
			made = true
		}
		return made && (isErr || !name.IsExported())
	case *ast.SelectorExpr:
		return isErr && packageOf(value, info) != ""
	case *ast.CompositeLit:
		var from string
		if sel, ok := value.Type.(*ast.SelectorExpr); ok {
			from = packageOf(sel, info)
		}
		return !name.IsExported() && from != "sync" && from != "sync/atomic"
	case *ast.BasicLit:
		return !name.IsExported()
	}
	return false
}

func embedded(g *ast.GenDecl, v *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{g.Doc, v.Doc} {
		if doc != nil && slices.ContainsFunc(doc.List,
			func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") }) {
			return true
		}
	}
	return false
}

// writes finds code that changes a package-level variable of this or another package.
func (t *tree) writes(f *ast.File, info *types.Info, globals map[types.Object]bool) []finding {
	var out []finding
	check := func(target ast.Expr, doing string) {
		if name := t.global(target, info, globals); name != "" {
			out = append(out, t.at(target, "%s the package-level variable %s: keep it in a value that somebody owns",
				doing, name))
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, target := range n.Lhs {
					check(target, "assigns to")
				}
			}
		case *ast.RangeStmt:
			if n.Tok == token.ASSIGN {
				for _, target := range []ast.Expr{n.Key, n.Value} {
					if target != nil {
						check(target, "assigns to")
					}
				}
			}
		case *ast.IncDecStmt:
			check(n.X, "assigns to")
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				check(n.X, "takes the address of")
			}
		case *ast.SelectorExpr:
			if m := info.Selections[n]; m != nil && m.Kind() == types.MethodVal && byPointer(m) {
				check(n.X, "takes the address of")
			}
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 {
				if _, builtin := info.Uses[id].(*types.Builtin); builtin &&
					slices.Contains([]string{"delete", "clear", "copy"}, id.Name) {
					check(n.Args[0], "changes")
				}
			}
		}
		return true
	})
	return out
}

// byPointer reports whether selecting the method takes the address of a value.
func byPointer(m *types.Selection) bool {
	if _, already := m.Recv().Underlying().(*types.Pointer); already {
		return false
	}
	recv := m.Obj().(*types.Func).Signature().Recv()
	_, pointer := recv.Type().(*types.Pointer)
	return pointer
}

// global returns the name of the package-level variable that x names or belongs to.
func (t *tree) global(x ast.Expr, info *types.Info, globals map[types.Object]bool) string {
	for {
		switch e := x.(type) {
		case *ast.Ident:
			if obj := info.Uses[e]; obj != nil && globals[obj] {
				return e.Name
			}
			return ""
		case *ast.SelectorExpr:
			if from := packageOf(e, info); from != "" {
				return from + "." + e.Sel.Name
			}
			x = e.X
		case *ast.IndexExpr:
			x = e.X
		case *ast.SliceExpr:
			x = e.X
		case *ast.StarExpr:
			x = e.X
		case *ast.ParenExpr:
			x = e.X
		default:
			return ""
		}
	}
}
