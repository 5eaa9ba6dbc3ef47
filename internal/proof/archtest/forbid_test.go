package archtest

import (
	"go/ast"
	"go/types"
	"path"
	"slices"
	"strings"
)

// vague lists names that do not describe a package's purpose.
var vague = []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "base"}

// checkForbidden finds constructs that no package may contain, or that the packages in places may
// not contain:
//
//   - a package name that describes no purpose;
//   - func init: a program's behavior must follow from its calls;
//   - an interface for the clock: the state machine gets instants, and tests of the runner use
//     testing/synctest;
//   - a transaction of type any: the compiler would not detect a wrong type;
//   - in a pure package: clocks, timers, goroutines, channels, unseeded randomness;
//   - in a silent package: logging, printing, the standard streams.
func checkForbidden(t *tree, places layout) []finding {
	var out []finding
	for _, p := range t.pkgs {
		for _, name := range []string{p.files[0].Name.Name, path.Base(p.dir)} {
			if slices.Contains(vague, name) {
				out = append(out, t.at(p.files[0].Name, "package name %s says nothing: name it for its content", name))
				break
			}
		}
		info := t.resolve(p)
		for _, f := range p.files {
			out = append(out, t.checkAnywhere(f)...)
			if match(places.pure, p.dir) {
				out = append(out, t.checkPure(f, info)...)
			}
			if match(places.silent, p.dir) {
				out = append(out, t.checkSilent(f, info)...)
			}
		}
	}
	return out
}

func (t *tree) checkAnywhere(f *ast.File) []finding {
	var out []finding
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && n.Name.Name == "init" {
				out = append(out, t.at(n, "func init: do it where it is needed, or let the caller do it"))
			}
		case *ast.FuncType:
			for _, field := range n.Params.List {
				for _, name := range field.Names {
					if strings.HasSuffix(strings.ToLower(name.Name), "tx") && isAny(field.Type) {
						out = append(out, t.at(name, "transaction %s of type any: take the type that it is", name.Name))
					}
				}
			}
		case *ast.InterfaceType:
			for _, m := range n.Methods.List {
				if len(m.Names) == 1 && m.Names[0].Name == "Now" {
					out = append(out, t.at(m, "interface for the clock: hand over instants, or test under "+
						"testing/synctest"))
				}
			}
		}
		return true
	})
	return out
}

func (t *tree) checkPure(f *ast.File, info *types.Info) []finding {
	var out []finding
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			from := packageOf(n, info)
			if names, limited := pureNames[from]; limited && !slices.Contains(names, n.Sel.Name) {
				out = append(out, t.at(n, "%s.%s in the pure machine: of %s it may use %s", from, n.Sel.Name, from,
					strings.Join(names, ", ")))
			}
		case *ast.GoStmt:
			out = append(out, t.at(n, "goroutine in the pure machine"))
		case *ast.ChanType:
			out = append(out, t.at(n, "channel in the pure machine"))
		case *ast.SelectStmt:
			out = append(out, t.at(n, "select in the pure machine"))
		}
		return true
	})
	return out
}

func (t *tree) checkSilent(f *ast.File, info *types.Info) []finding {
	var out []finding
	for _, spec := range f.Imports {
		if name := imported(spec); name == "log" || name == "log/slog" || name == "log/syslog" {
			out = append(out, t.at(spec, "%s where nothing is logged: return an error", name))
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			name := n.Sel.Name
			switch packageOf(n, info) {
			case "fmt":
				if strings.HasPrefix(name, "Print") {
					out = append(out, t.at(n, "fmt.%s where nothing is printed: return an error", name))
				}
			case "os":
				if name == "Stdout" || name == "Stderr" {
					out = append(out, t.at(n, "os.%s where nothing is printed: return an error", name))
				}
			}
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok && (id.Name == "print" || id.Name == "println") {
				if _, builtin := info.Uses[id].(*types.Builtin); builtin {
					out = append(out, t.at(n, "%s where nothing is printed: return an error", id.Name))
				}
			}
		}
		return true
	})
	return out
}

func isAny(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "any"
	case *ast.InterfaceType:
		return x.Methods.NumFields() == 0
	}
	return false
}
