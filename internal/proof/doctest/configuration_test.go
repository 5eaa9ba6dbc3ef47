package doctest

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/backends/consul"
	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/backends/redis"
	"github.com/tenure-go/tenure/backends/sql/mysql"
	"github.com/tenure-go/tenure/backends/sql/postgres"
	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/backends/zookeeper"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/mutate"
)

// key is a key of the configuration, with the data from the schema and from the comment of its
// field. The key's type is declared in the folder dir.
type key struct{ name, field, says, dir, of string }

// schema is the part of a JSON Schema that the page needs.
type schema struct {
	Type        string             `json:"type"`
	Pattern     string             `json:"pattern"`
	WriteOnly   bool               `json:"writeOnly"`
	Description string             `json:"description"`
	Properties  map[string]*schema `json:"properties"`
}

func (s *schema) kind() string {
	switch {
	case s.WriteOnly:
		return "secret"
	case s.Pattern != "":
		return "duration"
	}
	return map[string]string{
		"string": "text", "boolean": "true or false", "array": "list", "object": "part", "integer": "number", "number": "number",
	}[s.Type]
}

// TestConfiguration compares the keys of docs/configuration.md with the schema, and their text with the comments of the
// fields. After a change: go test ./internal/proof/doctest -run Configuration -args -update
func TestConfiguration(t *testing.T) {
	t.Parallel()
	backends := []struct {
		dir    string
		opener core.Opener
	}{
		{"backends/sql/sqlite", sqlite.Opener()},
		{"backends/sql/postgres", postgres.Opener()},
		{"backends/sql/mysql", mysql.Opener()},
		{"backends/etcd", etcd.Opener()},
		{"backends/consul", consul.Opener()},
		{"backends/zookeeper", zookeeper.Opener()},
		{"backends/redis", redis.Opener()},
	}
	var openers []core.Opener
	for _, x := range backends {
		openers = append(openers, x.opener)
	}
	text, err := config.Schema(openers...)
	if err != nil {
		t.Fatal(err)
	}
	var all schema
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("## Keys of a member\n\n| key | is | |\n|---|---|---|\n")
	for _, k := range keysOf(t, "config", "settings") {
		p := all.Properties[k.name]
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", k.name, p.kind(), p.Description)
	}
	for _, part := range []string{"sharding", "follower"} {
		fmt.Fprintf(&b, "\n## Keys below `%s`\n\nRead by `tenurefx`, or without fx by `Config.Section` into a `%[1]s.Options`.\n\n"+
			"| key | |\n|---|---|\n", part)
		writeKeys(t, &b, part, "Options", "")
	}
	own := make(map[string][]string) // rows by backend
	of := make(map[string][]string)  // backends by row
	var rows []string
	for _, x := range backends {
		properties := all.Properties["backends"].Properties[x.opener.Name].Properties
		keys := keysOf(t, x.dir, "Settings")
		inFile(t, x.dir, keys)
		for _, k := range keys {
			p := properties[k.name]
			if p == nil {
				t.Fatalf("%s: the schema has no key %s", x.dir, k.name)
			}
			row := fmt.Sprintf("| `%s` | %s | %s |", k.name, p.kind(), k.says)
			if of[row] == nil {
				rows = append(rows, row)
			}
			own[x.opener.Name] = append(own[x.opener.Name], row)
			of[row] = append(of[row], x.opener.Name)
		}
		if len(keys) != len(properties) {
			t.Errorf("%s: %d fields, but the schema has %v", x.dir, len(keys), slices.Sorted(maps.Keys(properties)))
		}
	}
	b.WriteString("\n## Keys that several backends have\n\nA backend's other keys are in its table below.\n\n" +
		"| key | is | | below `backends.` |\n|---|---|---|---|\n")
	for _, row := range rows {
		switch n := len(of[row]); {
		case n == len(backends):
			fmt.Fprintf(&b, "%s all |\n", row)
		case n > 1:
			fmt.Fprintf(&b, "%s %s |\n", row, strings.Join(of[row], ", "))
		}
	}
	for _, x := range backends {
		fmt.Fprintf(&b, "\n## Keys below `backends.%s`\n\n| key | is | |\n|---|---|---|\n", x.opener.Name)
		for _, row := range own[x.opener.Name] {
			if len(of[row]) == 1 {
				fmt.Fprintln(&b, row)
			}
		}
	}
	mutate.Document(t, filepath.Join(root, "docs", "configuration.md"), "keys", b.String(), *update)
}

// writeKeys writes a row for each key of a struct, and below it the rows of the key's own part.
func writeKeys(t *testing.T, b *strings.Builder, dir, of, above string) {
	t.Helper()
	keys := keysOf(t, dir, of)
	inFile(t, dir, keys)
	for _, k := range keys {
		fmt.Fprintf(b, "| `%s%s` | %s |\n", above, k.name, k.says)
		writeKeys(t, b, k.dir, k.of, above+k.name+".")
	}
}

func goFiles(t *testing.T, fset *token.FileSet, dir string) []*ast.File {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	var files []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

// keysOf returns the fields of a struct in declaration order. The fields of an embedded struct
// replace it. A field without a tag has no name. If the folder does not contain the struct, keysOf
// returns no keys.
func keysOf(t *testing.T, dir, of string) []key {
	t.Helper()
	structs := make(map[string]*ast.StructType)
	for _, file := range goFiles(t, token.NewFileSet(), dir) {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					structs[spec.Name.Name] = s
				}
			}
			return true
		})
	}
	var collect func(of string) []key
	collect = func(of string) (all []key) {
		if structs[of] == nil {
			return nil
		}
		for _, f := range structs[of].Fields.List {
			tag := ""
			if f.Tag != nil {
				tag, _, _ = strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("yaml"), ",")
			}
			typeName, isName := f.Type.(*ast.Ident)
			switch {
			case tag == "-":
			case len(f.Names) == 0 && isName:
				all = append(all, collect(typeName.Name)...)
			default:
				says := strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
				for _, n := range f.Names {
					if !n.IsExported() {
						continue
					}
					text := says
					if after, ok := strings.CutPrefix(says, n.Name+" "); ok && !strings.HasPrefix(after, "and ") {
						text = strings.TrimPrefix(strings.TrimPrefix(after, "is "), "are ")
					}
					k := key{tag, n.Name, strings.ReplaceAll(text, "|", `\|`), dir, ""}
					if isName {
						k.of = typeName.Name
					} else if other, ok := f.Type.(*ast.SelectorExpr); ok { // of a package below this one
						k.dir, k.of = filepath.Join(dir, fmt.Sprint(other.X)), other.Sel.Name
					}
					all = append(all, k)
				}
			}
		}
		return all
	}
	return collect(of)
}
