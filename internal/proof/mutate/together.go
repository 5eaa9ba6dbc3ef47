package mutate

import (
	"bytes"
	"cmp"
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
	"strings"
	"testing"
)

// chosenVar is the environment variable with the number of the mutant that a process is.
const chosenVar = "TENURE_MUTANT"

// Built is the test binary of the package in the working folder, with a mutant or without.
type Built struct{ path, chosen string }

// Command runs the binary.
func (b Built) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Env = append(os.Environ(), chosenVar+"="+b.chosen)
	return cmd
}

// Together builds mutants, in their order, and the code without one. Mutants that change nothing
// but what functions do share a binary, as building takes most of the time: each function that
// is changed begins with a choice among its forms, by the environment. What another mutant
// changes would be in all of them, so it has a binary of its own.
func Together(t testing.TB, mutants [][]Edit) (none Built, all []Built) {
	t.Helper()
	dir := t.TempDir()
	files := make(map[string]*merged)
	for n, edits := range mutants {
		changed := make(map[string]*merged)
		bodies := true
		for path, with := range apply(t, t.TempDir(), edits) {
			if bodies = bodies && filepath.Ext(path) == ".go"; !bodies {
				break
			}
			if files[path] == nil {
				files[path] = newMerged(t, path)
			}
			changed[path] = newMerged(t, with)
			bodies = files[path].onlyBodies(changed[path])
		}
		if !bodies {
			all = append(all, Built{Build(t, edits...), ""})
			continue
		}
		for path, f := range changed {
			files[path].add(n, f)
		}
		all = append(all, Built{chosen: fmt.Sprint(n)})
	}
	replace := make(map[string]string)
	for path, m := range files {
		if len(m.cases) == 0 {
			continue
		}
		folder := filepath.Join(dir, fmt.Sprint(len(replace)))
		write(t, filepath.Join(folder, "mutants.go"), m.text(t))
		replace[path] = filepath.Join(folder, "mutants.go")
		chosen := filepath.Join(filepath.Dir(path), "chosen_mutant.go")
		if strings.HasSuffix(m.file.Name.Name, "_test") {
			chosen = filepath.Join(filepath.Dir(path), "chosen_mutant_test.go")
		}
		if replace[chosen] == "" {
			write(t, filepath.Join(folder, "chosen.go"),
				fmt.Appendf(nil, "package %s\n\nimport \"os\"\n\nvar chosenMutant = os.Getenv(%q)\n", m.file.Name.Name, chosenVar))
			replace[chosen] = filepath.Join(folder, "chosen.go")
		}
	}
	none.path = build(t, dir, replace)
	for n := range all {
		all[n].path = cmp.Or(all[n].path, none.path)
	}
	return none, all
}

func write(t testing.TB, name string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// build builds the test binary of the working folder with files replaced.
func build(t testing.TB, dir string, replace map[string]string) string {
	t.Helper()
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	write(t, file, overlay)
	binary := filepath.Join(dir, "mutant.test")
	// Without optimization and symbols, because building takes most of the time.
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-gcflags=-N -l -dwarf=false",
		"-ldflags=-s -w", "-overlay", file, "-o", binary, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, out)
	}
	return binary
}

// merged is a file with the functions of several mutants.
type merged struct {
	src   []byte
	fset  *token.FileSet
	file  *ast.File
	funcs map[string]*ast.FuncDecl
	cases map[string][]string // by function: the arms of its switch
	more  []string            // the forms of functions
}

func newMerged(t testing.TB, path string) *merged {
	t.Helper()
	m := &merged{fset: token.NewFileSet(), funcs: make(map[string]*ast.FuncDecl), cases: make(map[string][]string)}
	var err error
	if m.src, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if m.file, err = parser.ParseFile(m.fset, path, m.src, parser.ParseComments); err != nil {
		t.Fatalf("a mutant of %s: %v", path, err)
	}
	for _, d := range m.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			m.funcs[nameOf(f)] = f
		}
	}
	return m
}

// nameOf is a function's name, with its receiver's.
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

// cut is the text from one place of the file to another.
func (m *merged) cut(from, to token.Pos) string {
	return string(m.src[m.fset.Position(from).Offset:m.fset.Position(to).Offset])
}

// onlyBodies reports whether the file of a mutant differs in what functions do and in nothing
// else, and no such function can tell that another one calls it.
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

// add takes over what functions do in the file of mutant n.
func (m *merged) add(n int, with *merged) {
	for i, d := range m.file.Decls {
		w := with.file.Decls[i]
		if text := with.cut(w.Pos(), w.End()); m.cut(d.Pos(), d.End()) != text {
			m.variant(n, w.(*ast.FuncDecl), text)
		}
	}
}

// variant adds mutant n's form of a function under another name, to be called in its place.
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

// text is the file with all of it.
func (m *merged) text(t testing.TB) []byte {
	t.Helper()
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
		t.Fatalf("%v:\n%s", err, out.Bytes())
	}
	return text
}
