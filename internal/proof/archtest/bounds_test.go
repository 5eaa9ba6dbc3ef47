package archtest

import (
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// checkBounds finds decoders, lists and ranges of records without a size limit, in packages that
// read untrusted data. The rules are:
//
//   - JSON is decoded by package boundjson;
//   - TestBombs of the package calls each decoder, or a function that calls it: a function that decodes JSON or
//     varints, or whose name and parameter say that it decodes;
//   - a List names its largest value;
//   - a range of package kv reads keys only, or names its largest value.
func checkBounds(t *tree) []finding {
	var out []finding
	for _, p := range t.pkgs {
		if !match(readers, p.dir) {
			continue
		}
		info := t.resolve(p)
		tried := triedByBombs(p)
		for _, f := range p.files {
			for _, d := range f.Decls {
				fn, ok := d.(*ast.FuncDecl)
				if ok && !tried[fn.Name.Name] && decodes(fn, info) {
					out = append(out, t.at(fn, "%s is a decoder: TestBombs of its package has to try it", fn.Name.Name))
				}
				if !ok || anySize[p.dir+" "+fn.Name.Name] != "" {
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

// A decoder's name, and its parameter.
var (
	decoder = regexp.MustCompile(`^([dD]ecode|Parse)`)
	encoded = regexp.MustCompile(`^(\[\]byte|string|(kv\.)?Pair|\*(core|driver)\.Item)$`)
)

// decodes reports whether a function decodes JSON or varints itself, or has a decoder's name and parameter.
func decodes(fn *ast.FuncDecl, info *types.Info) (found bool) {
	if decoder.MatchString(fn.Name.Name) {
		found = slices.ContainsFunc(fn.Type.Params.List, func(p *ast.Field) bool { return encoded.MatchString(types.ExprString(p.Type)) })
	}
	ast.Inspect(fn, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			switch path := packageOf(s, info); s.Sel.Name {
			case "Unmarshal":
				found = found || path == "encoding/json" || strings.HasSuffix(path, "internal/boundjson")
			case "NewDecoder":
				found = found || path == "encoding/json"
			case "Uvarint", "Varint":
				found = found || path == "encoding/binary"
			}
		}
		return true
	})
	return found
}

// triedByBombs returns the names of a package's functions that its TestBombs calls, directly or
// through another of these functions.
func triedByBombs(p *pkg) map[string]bool {
	named := func(d *ast.FuncDecl) (all []string) {
		ast.Inspect(d, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				all = append(all, id.Name)
			}
			return true
		})
		return all
	}
	calls := make(map[string][]string)
	for _, f := range slices.Concat(p.files, p.tests) {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				calls[fn.Name.Name] = append(calls[fn.Name.Name], named(fn)...)
			}
		}
	}
	tried := make(map[string]bool)
	var try func(name string)
	try = func(name string) {
		if of := calls[name]; of != nil && !tried[name] {
			tried[name] = true
			for _, next := range of {
				try(next)
			}
		}
	}
	try("TestBombs")
	return tried
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
