package archtest

import (
	"go/ast"
	"slices"
)

// checkBounds finds, in packages that read what others wrote, decoders, lists and ranges of
// records that do not say how many bytes they take:
//
//   - JSON is decoded by package boundjson;
//   - a List names its largest value;
//   - a range of package kv reads keys only, or names its largest value.
func checkBounds(t *tree) []finding {
	var out []finding
	for _, p := range t.pkgs {
		if !match(readers, p.dir) {
			continue
		}
		info := t.resolve(p)
		for _, f := range p.files {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); !ok || anySize[p.dir+" "+fn.Name.Name] != "" {
					continue
				}
				ast.Inspect(d, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.SelectorExpr:
						if packageOf(n, info) == "encoding/json" && (n.Sel.Name == "Unmarshal" || n.Sel.Name == "NewDecoder") {
							out = append(out, t.at(n, "json.%s of what others may have written: use internal/boundjson", n.Sel.Name))
						}
					case *ast.CallExpr:
						s, ok := n.Fun.(*ast.SelectorExpr)
						if last := len(n.Args) - 1; ok && s.Sel.Name == "List" && last >= 3 && isZero(n.Args[last]) {
							out = append(out, t.at(n, "List of values of any size: name the largest"))
						}
					case *ast.CompositeLit:
						id, ok := n.Type.(*ast.Ident)
						if ok && p.dir == "backends/kv" && id.Name == "Range" && !names(n, "Largest") && !names(n, "KeysOnly") {
							out = append(out, t.at(n, "a range of values of any size: name the largest"))
						}
					}
					return true
				})
			}
		}
	}
	return out
}

// names reports whether a literal sets a field.
func names(l *ast.CompositeLit, field string) bool {
	return slices.ContainsFunc(l.Elts, func(e ast.Expr) bool {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return false
		}
		id, ok := kv.Key.(*ast.Ident)
		return ok && id.Name == field
	})
}
