package archtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

type tree struct {
	module string // path of the root module
	fset   *token.FileSet
	all    []*pkg // by folder
	pkgs   []*pkg // folders with files outside tests
}

type pkg struct {
	dir   string // relative to the root, with slashes; "." is the root
	files []*ast.File
	tests []*ast.File // of the package, and of the one beside it that tests it from outside
}

type finding struct {
	pos token.Position // its file name is relative to the root
	in  string         // folder and function, for rules whose exceptions are listed by these
	msg string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %s", f.pos.Filename, f.pos.Line, f.msg)
}

// load parses every package below root that the go command would see under some build constraint,
// including packages of nested modules.
func load(root string) (*tree, error) {
	module, err := modulePath(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	t := &tree{module: module, fset: token.NewFileSet()}
	byDir := map[string]*pkg{}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			if name != root && (base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") ||
				strings.HasPrefix(base, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(t.fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if byHand(f) {
			return nil
		}
		dir := path.Dir(rel)
		if byDir[dir] == nil {
			byDir[dir] = &pkg{dir: dir}
		}
		if strings.HasSuffix(base, "_test.go") {
			byDir[dir].tests = append(byDir[dir].tests, f)
			return nil
		}
		byDir[dir].files = append(byDir[dir].files, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, dir := range slices.Sorted(maps.Keys(byDir)) {
		p := byDir[dir]
		t.all = append(t.all, p)
		if len(p.files) > 0 {
			t.pkgs = append(t.pkgs, p)
		}
	}
	return t, nil
}

// byHand reports whether the file is a program for "go run" that is never part of a package.
func byHand(f *ast.File) bool {
	for _, g := range f.Comments {
		for _, c := range g.List {
			if c.Pos() < f.Package && constraint.IsGoBuild(c.Text) {
				x, err := constraint.Parse(c.Text)
				return err == nil && !x.Eval(func(tag string) bool { return tag != "ignore" })
			}
		}
	}
	return false
}

func modulePath(gomod string) (string, error) {
	b, err := os.ReadFile(gomod)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if m, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(m), nil
		}
	}
	return "", errors.New(gomod + " names no module")
}

func (t *tree) at(n ast.Node, format string, args ...any) finding {
	return finding{pos: t.fset.Position(n.Pos()), msg: fmt.Sprintf(format, args...)}
}

// local returns the folder of an import path, and reports whether the path belongs to the
// repository.
func (t *tree) local(importPath string) (dir string, ok bool) {
	if importPath == t.module {
		return ".", true
	}
	return strings.CutPrefix(importPath, t.module+"/")
}

func imported(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value
	}
	return p
}

// standard reports whether the path is the standard library's, by the go command's rule: its first
// element has no dot.
func standard(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return !strings.Contains(first, ".")
}

// match reports whether a path matches one of the patterns: the path, anything, or a prefix that
// ends in "/...".
func match(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if pattern == anything || pattern == p {
			return true
		}
		below, ok := strings.CutSuffix(pattern, "/...")
		return ok && (p == below || strings.HasPrefix(p, below+"/"))
	})
}
