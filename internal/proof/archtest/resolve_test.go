package archtest

import (
	"go/ast"
	"go/types"
	"path"
	"regexp"
	"strings"
)

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// hollow imports every package as an empty package. The checks need only the meaning of names
// inside one package. Therefore, they compile nothing, and read the files for all platforms in the
// same way.
type hollow struct {
	time *types.Package // the package time, or nil
}

func (h hollow) Import(importPath string) (*types.Package, error) {
	if importPath == "time" && h.time != nil {
		return h.time, nil
	}
	name := path.Base(importPath)
	if dir := path.Dir(importPath); majorVersion.MatchString(name) && dir != "." {
		name = path.Base(dir)
	}
	name, _, _ = strings.Cut(name, ".")
	p := types.NewPackage(importPath, name)
	p.MarkComplete()
	return p, nil
}

// resolve finds the objects of a package's identifiers.
func (t *tree) resolve(p *pkg) *types.Info { return t.resolveWith(p, hollow{}) }

func (t *tree) resolveWith(p *pkg, imports hollow) *types.Info {
	info := &types.Info{
		Types:      map[ast.Expr]types.TypeAndValue{},
		Defs:       map[*ast.Ident]types.Object{},
		Uses:       map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	conf := types.Config{Importer: imports, Error: func(error) {}, FakeImportC: true}
	// Errors are expected, because imports are empty. Identifiers are still resolved.
	_, _ = conf.Check(p.dir, t.fset, p.files, info)
	return info
}

// packageOf returns the import path of the package from which the selector selects, or "" if it
// does not select from a package.
func packageOf(sel *ast.SelectorExpr, info *types.Info) string {
	id, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	name, ok := info.Uses[id].(*types.PkgName)
	if !ok {
		return ""
	}
	return name.Imported().Path()
}
