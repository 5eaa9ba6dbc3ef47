package doctest

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"strings"
	"testing"
)

var (
	goWord   = regexp.MustCompile(`\b(?:core\.)?(?:Options\.)?([A-Z][A-Za-z]*)\b`)
	ifUnset  = regexp.MustCompile(`Default \((?:0|""|nil)\)`)
	inGoOnly = regexp.MustCompile(`\b(?:Open[A-Z]\w*|new\(|Default[A-Z]\w*|\w+Options)\b`)
)

// inFile changes what comments say to programmers into what the writer of a file reads: keys for the names of fields,
// and values for those of constants.
func inFile(t *testing.T, dir string, keys []key) {
	t.Helper()
	names := map[string]string{"Watchdog": "`watchdog`", "Meta": "`meta`"} // of core.Options
	for _, k := range keys {
		names[k.field] = "`" + k.name + "`"
	}
	for name, value := range constants(t, dir) {
		names[name] = value
	}
	for i, k := range keys {
		text := goWord.ReplaceAllStringFunc(ifUnset.ReplaceAllString(k.says, "Default"), func(word string) string {
			m := goWord.FindStringSubmatch(word)
			if is := names[m[1]]; is != "" && (is != "`"+strings.ToLower(m[1])+"`" || word != m[1] || !plain[m[1]]) {
				return is
			}
			return word
		})
		if found := inGoOnly.FindString(text); found != "" {
			t.Errorf("%s: the comment of %s, which docs/configuration.md shows, has %s: say it without Go", dir, k.field, found)
		}
		keys[i].says = text
	}
}

// plain are fields whose names are also words, or names of other things.
var plain = map[string]bool{"TLS": true, "Name": true, "Schema": true, "Shards": true}

// constants are the values of a package's exported constants, as the configuration has them.
func constants(t *testing.T, dir string) map[string]string {
	t.Helper()
	fset := token.NewFileSet()
	all := make(map[string]string)
	for _, file := range goFiles(t, fset, dir) {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.CONST {
				continue
			}
			for _, s := range decl.Specs {
				spec := s.(*ast.ValueSpec)
				for i, name := range spec.Names {
					if name.IsExported() && i < len(spec.Values) {
						all[name.Name] = value(spec.Values[i])
					}
				}
			}
		}
	}
	return all
}

// value is a constant as the configuration has it, or "".
func value(e ast.Expr) string {
	expr := types.ExprString(e)
	if after, ok := strings.CutPrefix(expr, "time."); ok {
		expr = "1 * time." + after
	}
	if n, unit, ok := strings.Cut(expr, " * time."); ok {
		return n + map[string]string{"Millisecond": "ms", "Second": "s", "Minute": "min"}[unit]
	}
	v, err := types.Eval(token.NewFileSet(), nil, token.NoPos, expr)
	if err != nil || v.Value == nil {
		return ""
	}
	if v.Value.Kind() == constant.String {
		return `"` + constant.StringVal(v.Value) + `"`
	}
	return v.Value.String()
}
