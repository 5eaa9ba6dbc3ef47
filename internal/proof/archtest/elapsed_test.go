package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"sync"
)

// checkElapsed finds comparisons of an elapsed time, or of the current time with a deadline, in
// tests and in packages that make checks for tests. On a busy machine, such a comparison may fail.
// Two places are exempt: synctest bubbles, whose time is virtual, and internal/proof/ample, which
// contains the helpers that wait and the helper that calibrates.
//
// A bubble is the function given to synctest.Test, bubble, bubbleAlone or inBubble, a function with
// a parameter or receiver *world or *World, and a function that only such functions use. An elapsed
// time is followed through variables, fields, parameters and results within a package.
//
// It also returns the callers of Gauge.AtMost, by folder and function.
func checkElapsed(t *tree) (out []finding, callers []string) {
	clock := timePackage()
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, p := range t.all {
		if p.dir == "internal/proof/ample" {
			continue
		}
		for _, unit := range units(p) {
			own := slices.DeleteFunc(slices.Clone(unit), func(f *ast.File) bool {
				return !slices.Contains(p.tests, f) && !match(judging, p.dir)
			})
			if !slices.ContainsFunc(own, usesTime) {
				continue
			}
			all.Go(func() {
				found, by := t.elapsedIn(p, unit, own, clock)
				mu.Lock()
				defer mu.Unlock()
				out, callers = append(out, found...), append(callers, by...)
			})
		}
	}
	all.Wait()
	slices.Sort(callers)
	return out, slices.Compact(callers)
}

// elapsedIn checks the files in own. They belong to the package whose files are all in unit.
func (t *tree) elapsedIn(p *pkg, unit, own []*ast.File, clock *types.Package) (out []finding, callers []string) {
	e := &elapsed{info: t.resolveWith(&pkg{dir: p.dir, files: unit}, hollow{clock}), short: map[types.Object]bool{}, end: map[types.Object]bool{}}
	e.bubbles(unit)
	for e.grown = true; e.grown; {
		e.grown = false
		e.walk(own, e.follow)
	}
	e.walk(own, func(n ast.Node, fn string) {
		switch {
		case e.judges(n):
			f := t.at(n, "a comparison of an elapsed time: wait with ample.Wait, assert an order or a count, "+
				"or judge a figure with ample.Gauge")
			f.in = p.dir + " " + fn
			out = append(out, f)
		case atMost(n):
			callers = append(callers, p.dir+" "+fn)
		}
	})
	return out, callers
}

func usesTime(f *ast.File) bool {
	return slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return imported(i) == "time" })
}

// timePackage returns the parts of package time that the check needs, because the check does not
// compile package time.
func timePackage() *types.Package {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "time.go", `package time
type Duration int64
func (Duration) Abs() Duration
func (Duration) Round(Duration) Duration
func (Duration) Truncate(Duration) Duration
func (Duration) Hours() float64
func (Duration) Minutes() float64
func (Duration) Seconds() float64
func (Duration) Milliseconds() int64
func (Duration) Microseconds() int64
func (Duration) Nanoseconds() int64
func (Duration) String() string
const (
	Nanosecond Duration = 1
	Microsecond Duration = 1e3
	Millisecond Duration = 1e6
	Second Duration = 1e9
	Minute Duration = 60e9
	Hour Duration = 3600e9
)
type Time struct{}
func Now() Time
func Since(Time) Duration
func Until(Time) Duration
func (Time) Add(Duration) Time
func (Time) Sub(Time) Duration
func (Time) After(Time) bool
func (Time) Before(Time) bool
func (Time) Equal(Time) bool
func (Time) Compare(Time) int
func (Time) IsZero() bool
func (Time) Round(Duration) Time
func (Time) Truncate(Duration) Time
func (Time) UTC() Time
func (Time) Local() Time
func (Time) UnixNano() int64
`, 0)
	if err != nil {
		panic(err) // the text is a constant of this function
	}
	p, err := (&types.Config{}).Check("time", fset, []*ast.File{f}, nil)
	if err != nil {
		panic(err)
	}
	return p
}

// judging lists packages whose files outside tests make checks for tests.
var judging = []string{"conformance/...", "internal/proof/..."}

// units returns the packages of a folder: the package with its tests, and the external test
// package.
func units(p *pkg) [][]*ast.File {
	inner, outer := slices.Clone(p.files), []*ast.File(nil)
	for _, f := range p.tests {
		if strings.HasSuffix(f.Name.Name, "_test") {
			outer = append(outer, f)
		} else {
			inner = append(inner, f)
		}
	}
	return [][]*ast.File{inner, outer}
}

type elapsed struct {
	info   *types.Info
	inside map[ast.Node]bool     // functions in bubbles: declarations and literals
	short  map[types.Object]bool // variables, fields and functions with an elapsed time
	end    map[types.Object]bool // variables, fields and functions with a deadline
	grown  bool
}

// walk calls visit for every node outside of bubbles, with the name of the function around it.
func (e *elapsed) walk(files []*ast.File, visit func(n ast.Node, fn string)) {
	for _, f := range files {
		for _, d := range f.Decls {
			name := "the package's variables"
			if fn, ok := d.(*ast.FuncDecl); ok {
				name = fn.Name.Name
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if n == nil || e.inside[n] {
					return false
				}
				visit(n, name)
				return true
			})
		}
	}
}

// bubbles finds the functions that run only in bubbles.
func (e *elapsed) bubbles(files []*ast.File) {
	e.inside = map[ast.Node]bool{}
	decls := map[types.Object]*ast.FuncDecl{}
	given := map[types.Object]bool{} // named functions that are given to a bubble
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				decls[e.info.Defs[n.Name]] = n
				if hasWorld(n.Type.Params) || hasWorld(n.Recv) {
					e.inside[n] = true
				}
			case *ast.FuncLit:
				if hasWorld(n.Type.Params) {
					e.inside[n] = true
				}
			case *ast.CallExpr:
				if !opensBubble(n) {
					return true
				}
				for _, a := range n.Args {
					switch a := a.(type) {
					case *ast.FuncLit:
						e.inside[a] = true
					case *ast.Ident:
						if o := e.info.Uses[a]; o != nil {
							given[o] = true
						}
					}
				}
			}
			return true
		})
	}
	// A function is inside if it is used, and used only from inside.
	used := map[types.Object]int{}
	count := func(into map[types.Object]int) func(ast.Node) bool {
		return func(n ast.Node) bool {
			if n == nil {
				return false
			}
			if id, ok := n.(*ast.Ident); ok {
				if o := e.info.Uses[id]; decls[o] != nil {
					into[o]++
				}
			}
			return true
		}
	}
	for _, f := range files {
		ast.Inspect(f, count(used))
	}
	for grown := true; grown; {
		grown = false
		outside := map[types.Object]int{}
		look := count(outside)
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				if n == nil || e.inside[n] {
					return false
				}
				if call, ok := n.(*ast.CallExpr); ok && opensBubble(call) {
					for _, a := range call.Args {
						if id, ok := a.(*ast.Ident); ok && decls[e.info.Uses[id]] != nil {
							outside[e.info.Uses[id]]--
						}
					}
				}
				return look(n)
			})
		}
		for o, d := range decls {
			if !e.inside[d] && used[o] > 0 && outside[o] <= 0 {
				e.inside[d], grown = true, true
			}
		}
	}
}

func opensBubble(c *ast.CallExpr) bool {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name == "bubble" || f.Name == "bubbleAlone" || f.Name == "inBubble"
	case *ast.SelectorExpr:
		x, ok := f.X.(*ast.Ident)
		return ok && x.Name == "synctest" && f.Sel.Name == "Test"
	}
	return false
}

func hasWorld(l *ast.FieldList) bool {
	if l == nil {
		return false
	}
	return slices.ContainsFunc(l.List, func(f *ast.Field) bool {
		star, ok := f.Type.(*ast.StarExpr)
		if !ok {
			return false
		}
		switch x := star.X.(type) {
		case *ast.Ident:
			return x.Name == "world" || x.Name == "World"
		case *ast.SelectorExpr:
			return x.Sel.Name == "World"
		}
		return false
	})
}

// follow records which objects get an elapsed time or a deadline in a node.
func (e *elapsed) follow(n ast.Node, _ string) {
	switch n := n.(type) {
	case *ast.AssignStmt:
		for i, l := range n.Lhs {
			if len(n.Lhs) == len(n.Rhs) {
				e.give(l, n.Rhs[i])
			} else if o := e.result(n.Rhs[0], i); o != nil {
				e.mark(e.object(l), o)
			}
		}
	case *ast.ValueSpec:
		for i, l := range n.Names {
			if len(n.Names) == len(n.Values) {
				e.give(l, n.Values[i])
			}
		}
	case *ast.RangeStmt:
		if n.Value != nil {
			e.give(n.Value, n.X)
		}
	case *ast.KeyValueExpr:
		if id, ok := n.Key.(*ast.Ident); ok {
			e.give(id, n.Value)
		}
	case *ast.FuncDecl:
		if sig, ok := typeOf(e.info.Defs[n.Name]); ok && n.Body != nil {
			e.results(sig, n.Body)
		}
	case *ast.CallExpr:
		var o types.Object
		switch f := n.Fun.(type) {
		case *ast.Ident:
			o = e.info.Uses[f]
		case *ast.SelectorExpr:
			o = e.info.Uses[f.Sel]
		}
		if sig, ok := typeOf(o); ok {
			for i, a := range n.Args {
				if i < sig.Params().Len() {
					e.mark(sig.Params().At(i), a)
				}
			}
		}
	}
}

func typeOf(o types.Object) (*types.Signature, bool) {
	if o == nil {
		return nil, false
	}
	sig, ok := o.Type().(*types.Signature)
	return sig, ok
}

// results records which results of a function are elapsed times or deadlines. Signatures have
// objects for unnamed results too.
func (e *elapsed) results(sig *types.Signature, body ast.Node) {
	ast.Inspect(body, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false
		}
		if r, ok := n.(*ast.ReturnStmt); ok && len(r.Results) == sig.Results().Len() {
			for i, x := range r.Results {
				e.mark(sig.Results().At(i), x)
			}
		}
		return true
	})
}

// result returns the i-th result of a call to a function of the package, as an expression for mark.
func (e *elapsed) result(x ast.Expr, i int) any {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return nil
	}
	var o types.Object
	switch f := call.Fun.(type) {
	case *ast.Ident:
		o = e.info.Uses[f]
	case *ast.SelectorExpr:
		o = e.info.Uses[f.Sel]
	}
	if sig, ok := typeOf(o); ok && i < sig.Results().Len() {
		return sig.Results().At(i)
	}
	return nil
}

func (e *elapsed) give(to ast.Expr, from ast.Expr) { e.mark(e.object(to), from) }

// mark marks an object like from, an expression or an object.
func (e *elapsed) mark(o types.Object, from any) {
	if o == nil || o.Name() == "_" {
		return
	}
	var short, end bool
	switch from := from.(type) {
	case ast.Expr:
		short, end = e.isShort(from), e.isEnd(from)
	case types.Object:
		short, end = e.short[from], e.end[from]
	}
	if short && !e.short[o] {
		e.short[o], e.grown = true, true
	}
	if end && !e.end[o] {
		e.end[o], e.grown = true, true
	}
}

// object returns the object that an expression names, which is a variable or a field. For an
// element, the object is that of the whole value.
func (e *elapsed) object(x ast.Expr) types.Object {
	switch x := x.(type) {
	case *ast.Ident:
		if o := e.info.Defs[x]; o != nil {
			return o
		}
		return e.info.Uses[x]
	case *ast.SelectorExpr:
		return e.info.Uses[x.Sel]
	case *ast.IndexExpr:
		return e.object(x.X)
	case *ast.StarExpr:
		return e.object(x.X)
	case *ast.ParenExpr:
		return e.object(x.X)
	}
	return nil
}

func (e *elapsed) call(x *ast.CallExpr) (from, name string) {
	switch f := x.Fun.(type) {
	case *ast.Ident:
		return "", f.Name
	case *ast.SelectorExpr:
		return packageOf(f, e.info), f.Sel.Name
	}
	return "", ""
}

// isShort reports whether the expression is an elapsed time, or is derived from one.
func (e *elapsed) isShort(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.CallExpr:
		switch from, name := e.call(x); {
		case from == "time" && (name == "Since" || name == "Until"):
			return true
		case from == "" && name == "Sub" && len(x.Args) == 1:
			return e.isTime(x.Args[0])
		case from == "slices" || from == "time" || slices.Contains([]string{"append", "max", "min", "float64", "int64", "int", "Duration"}, name):
			return slices.ContainsFunc(x.Args, e.isShort)
		}
		if sel, ok := x.Fun.(*ast.SelectorExpr); ok && slices.Contains(ofDuration, sel.Sel.Name) && e.isShort(sel.X) {
			return true
		}
		o, ok := e.result(x, 0).(*types.Var)
		return ok && e.short[o]
	case *ast.BinaryExpr:
		return !isComparison(x.Op) && (e.isShort(x.X) || e.isShort(x.Y))
	case *ast.ParenExpr:
		return e.isShort(x.X)
	case *ast.UnaryExpr:
		return e.isShort(x.X)
	case *ast.Ident, *ast.SelectorExpr, *ast.IndexExpr, *ast.StarExpr:
		o := e.object(x)
		return o != nil && e.short[o]
	case *ast.SliceExpr:
		return e.isShort(x.X)
	}
	return false
}

// ofDuration lists the methods of a Duration that return it in a different form.
var ofDuration = []string{"Seconds", "Milliseconds", "Microseconds", "Nanoseconds", "Minutes", "Round", "Truncate", "Load", "Abs"}

// isTime reports whether the expression is an instant.
func (e *elapsed) isTime(x ast.Expr) bool {
	typ := e.info.TypeOf(x)
	return typ != nil && typ.String() == "time.Time"
}

// isEnd reports whether the expression is a deadline: the current time with something added.
func (e *elapsed) isEnd(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.CallExpr:
		sel, ok := x.Fun.(*ast.SelectorExpr)
		return ok && sel.Sel.Name == "Add" && len(x.Args) == 1 && e.isTime(sel.X)
	case *ast.ParenExpr:
		return e.isEnd(x.X)
	case *ast.Ident, *ast.SelectorExpr:
		o := e.object(x)
		return o != nil && e.end[o]
	}
	return false
}

func isComparison(op token.Token) bool {
	return slices.Contains([]token.Token{token.LSS, token.GTR, token.LEQ, token.GEQ}, op)
}

// judges reports whether a node compares an elapsed time, or an instant with a deadline.
func (e *elapsed) judges(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		// Checking whether a variable is set is not a comparison of times.
		return isComparison(n.Op) && (e.isShort(n.X) && !isZero(n.Y) || e.isShort(n.Y) && !isZero(n.X))
	case *ast.CallExpr:
		sel, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || len(n.Args) != 1 || !slices.Contains([]string{"After", "Before", "Compare"}, sel.Sel.Name) {
			return false
		}
		return e.isPresent(sel.X) || e.isPresent(n.Args[0]) || e.isEnd(sel.X) || e.isEnd(n.Args[0])
	}
	return false
}

func isZero(x ast.Expr) bool {
	lit, ok := x.(*ast.BasicLit)
	return ok && lit.Value == "0"
}

// isPresent reports whether the expression reads the clock.
func (e *elapsed) isPresent(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	from, name := e.call(call)
	return from == "time" && name == "Now"
}

func atMost(n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "AtMost" && len(call.Args) == 3
}
