package mutate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// chosenVar is the environment variable with the number of a process's mutant.
const chosenVar = "TENURE_MUTANT"

// Built is the test binary of the package in the working folder, with or without a mutant.
type Built struct{ path, chosen string }

// Command runs the binary.
func (b Built) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Env = append(os.Environ(), chosenVar+"="+b.chosen)
	return cmd
}

// Together builds the mutants and the unchanged code, and returns the mutants in the given order.
// Building takes most of the time, so mutants that change only function bodies share a binary. In a
// shared binary, each changed function first chooses one of its forms according to an environment
// variable. A mutant that changes other code would affect all mutants of the shared binary, so
// Together builds a separate binary for it.
func Together(t testing.TB, mutants [][]Edit) (none Built, all []Built) {
	t.Helper()
	none, all, err := share(t.Context(), t.TempDir(), mutants)
	if err != nil {
		t.Fatal(err)
	}
	for n := range all {
		if all[n].path == "" {
			all[n].path = Build(t, mutants[n]...)
		}
	}
	return none, all
}

// share is like Together, but without the separate binaries.
func share(ctx context.Context, dir string, mutants [][]Edit) (none Built, all []Built, err error) {
	files := make(map[string]*merged)
	all = make([]Built, len(mutants))
	for n, edits := range mutants {
		with, err := mergeable(files, edits)
		if err != nil {
			return none, nil, err
		}
		for path, f := range with {
			files[path].add(n, f)
			all[n].chosen = strconv.Itoa(n)
		}
	}
	replace := make(map[string]string)
	for path, m := range files {
		if len(m.cases) == 0 {
			continue
		}
		folder := filepath.Join(dir, fmt.Sprint(len(replace)))
		text, err := m.text()
		if err == nil {
			err = write(filepath.Join(folder, "mutants.go"), text)
		}
		if err != nil {
			return none, nil, err
		}
		replace[path] = filepath.Join(folder, "mutants.go")
		chosen := filepath.Join(filepath.Dir(path), "chosen_mutant.go")
		if strings.HasSuffix(m.file.Name.Name, "_test") {
			chosen = filepath.Join(filepath.Dir(path), "chosen_mutant_test.go")
		}
		if replace[chosen] == "" {
			err := write(filepath.Join(folder, "chosen.go"),
				fmt.Appendf(nil, "package %s\n\nimport \"os\"\n\nvar chosenMutant = os.Getenv(%q)\n", m.file.Name.Name, chosenVar))
			if err != nil {
				return none, nil, err
			}
			replace[chosen] = filepath.Join(folder, "chosen.go")
		}
	}
	if none.path, err = build(ctx, dir, replace); err != nil {
		return none, nil, err
	}
	for n := range all {
		if all[n].chosen != "" {
			all[n].path = none.path
		}
	}
	return none, all, nil
}

// mergeable returns the files of a mutant that changes only function bodies, and nil for any other
// mutant. It also adds the unchanged files to files.
func mergeable(files map[string]*merged, edits []Edit) (map[string]*merged, error) {
	texts, err := changed(".", edits)
	if err != nil {
		return nil, err
	}
	with := make(map[string]*merged)
	for path, text := range texts {
		if filepath.Ext(path) != ".go" {
			return nil, nil
		}
		if files[path] == nil {
			src, err := os.ReadFile(path)
			if err == nil {
				files[path], err = newMerged(path, src)
			}
			if err != nil {
				return nil, err
			}
		}
		if with[path], err = newMerged(path, []byte(text)); err != nil {
			return nil, err
		}
		if !files[path].onlyBodies(with[path]) {
			return nil, nil
		}
	}
	return with, nil
}

func write(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o600)
}

// build builds the test binary of the package in the working folder, with files replaced.
func build(ctx context.Context, dir string, replace map[string]string) (string, error) {
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := write(file, overlay); err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "mutant.test")
	// Because building takes most of the time, the build omits optimization and symbols.
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-gcflags=-N -l -dwarf=false",
		"-ldflags=-s -w", "-overlay", file, "-o", binary, ".")
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go test -c: %w\n%s", err, out)
	}
	return binary, nil
}

// merged is a file with the functions of several mutants.
type merged struct {
	src   []byte
	fset  *token.FileSet
	file  *ast.File
	funcs map[string]*ast.FuncDecl
	cases map[string][]string // by function: the cases of its switch
	more  []string            // forms of functions
}

func newMerged(path string, src []byte) (*merged, error) {
	m := &merged{src: src, fset: token.NewFileSet(), funcs: make(map[string]*ast.FuncDecl), cases: make(map[string][]string)}
	var err error
	if m.file, err = parser.ParseFile(m.fset, path, m.src, parser.ParseComments); err != nil {
		return nil, fmt.Errorf("a mutant of %s: %w", path, err)
	}
	for _, d := range m.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			m.funcs[nameOf(f)] = f
		}
	}
	return m, nil
}

// nameOf returns a function's name, with its receiver's name.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if x, ok := typ.(*ast.IndexExpr); ok {
		typ = x.X
	}
	if x, ok := typ.(*ast.IndexListExpr); ok {
		typ = x.X
	}
	return typ.(*ast.Ident).Name + "." + f.Name.Name
}

// cut returns the text between two positions of the file.
func (m *merged) cut(from, to token.Pos) string {
	return string(m.src[m.fset.Position(from).Offset:m.fset.Position(to).Offset])
}

// onlyBodies reports whether a mutant's file differs only in function bodies. These functions must
// not be able to detect that another function calls them.
func (m *merged) onlyBodies(with *merged) bool {
	if len(m.file.Decls) != len(with.file.Decls) {
		return false
	}
	for i, d := range m.file.Decls {
		w := with.file.Decls[i]
		was, is := m.cut(d.Pos(), d.End()), with.cut(w.Pos(), w.End())
		if was == is {
			continue
		}
		f, ok := d.(*ast.FuncDecl)
		fw, same := w.(*ast.FuncDecl)
		if !ok || !same || m.cut(f.Pos(), f.Body.Pos()) != with.cut(fw.Pos(), fw.Body.Pos()) {
			return false
		}
		if f.Type.TypeParams != nil || f.Name.Name == "init" ||
			f.Recv != nil && (len(f.Recv.List[0].Names) == 0 || f.Recv.List[0].Names[0].Name == "_") {
			return false
		}
		for _, text := range []string{"recover()", "runtime.Caller", "//go:"} {
			if strings.Contains(was+is, text) {
				return false
			}
		}
	}
	return true
}

// add copies the changed function bodies of mutant n's file.
func (m *merged) add(n int, with *merged) {
	for i, d := range m.file.Decls {
		w := with.file.Decls[i]
		if text := with.cut(w.Pos(), w.End()); m.cut(d.Pos(), d.End()) != text {
			m.variant(n, w.(*ast.FuncDecl), text)
		}
	}
}

// variant adds mutant n's form of a function under a different name. The function calls this form
// if mutant n is chosen.
func (m *merged) variant(n int, fn *ast.FuncDecl, text string) {
	name := fmt.Sprintf("%s_mutant%d", fn.Name.Name, n)
	at := int(fn.Name.Pos() - fn.Pos())
	m.more = append(m.more, text[:at]+name+text[at+len(fn.Name.Name):])
	call := name
	if fn.Recv != nil {
		call = fn.Recv.List[0].Names[0].Name + "." + name
	}
	var args []string
	for i, p := range fn.Type.Params.List {
		for j, id := range p.Names {
			arg := id.Name
			if arg == "_" {
				arg = fmt.Sprintf("unnamed%d_%d", i, j)
			}
			if _, ok := p.Type.(*ast.Ellipsis); ok {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	call += "(" + strings.Join(args, ", ") + ")"
	if fn.Type.Results != nil {
		call = "return " + call
	} else {
		call += "\n\t\treturn"
	}
	m.cases[nameOf(fn)] = append(m.cases[nameOf(fn)], fmt.Sprintf("\tcase \"%d\":\n\t\t%s\n", n, call))
}

// text returns the merged file.
func (m *merged) text() ([]byte, error) {
	type change struct {
		from, to int
		text     string
	}
	var changes []change
	offset := func(p token.Pos) int { return m.fset.Position(p).Offset }
	for name, arms := range m.cases {
		f := m.funcs[name]
		slices.Sort(arms)
		brace := offset(f.Body.Lbrace) + 1
		changes = append(changes, change{brace, brace, "\n\tswitch chosenMutant {\n" + strings.Join(arms, "") + "\t}\n"})
		for i, p := range f.Type.Params.List {
			for j, id := range p.Names {
				if id.Name == "_" {
					changes = append(changes, change{offset(id.Pos()), offset(id.End()), fmt.Sprintf("unnamed%d_%d", i, j)})
				}
			}
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return a.from - b.from })
	var out bytes.Buffer
	at := 0
	for _, c := range changes {
		out.Write(m.src[at:c.from])
		out.WriteString(c.text)
		at = c.to
	}
	out.Write(m.src[at:])
	for _, d := range m.more {
		out.WriteString("\n" + d + "\n")
	}
	text, err := format.Source(out.Bytes())
	if err != nil {
		return nil, fmt.Errorf("%w:\n%s", err, out.Bytes())
	}
	return text, nil
}
