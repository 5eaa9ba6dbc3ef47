package archtest

import (
	"slices"
	"strings"
)

func checkImports(t *tree, rows []row) []finding {
	var out []finding
	for _, p := range t.pkgs {
		i := deciding(rows, p)
		if i < 0 {
			out = append(out, t.at(p.files[0].Name, "package %s has no row in the import table: add one with its "+
				"allowed imports", p.dir))
			continue
		}
		for _, f := range p.files {
			for _, spec := range f.Imports {
				if spec.Name != nil && spec.Name.Name == "." {
					out = append(out, t.at(spec, "dot import: name the package"))
				}
				name := imported(spec)
				target, own := t.local(name)
				if !own {
					target = name
				}
				denied := match(rows[i].deny, target) && rows[i].except != t.fset.Position(f.Pos()).Filename
				allowed := match(rows[i].allow, target) || !own && standard(name)
				if denied || !allowed {
					out = append(out, t.at(spec, "%s may not import %s: beside the standard library it may import %s",
						p.dir, name, list(rows[i])))
				}
			}
		}
	}
	return out
}

// checkFloors finds imports from a higher floor, or from another wing of the same floor.
func checkFloors(t *tree, floors [][][]string) []finding {
	var out []finding
	for _, p := range t.pkgs {
		from, wing := floorOf(floors, p.dir)
		if from < 0 {
			out = append(out, t.at(p.files[0].Name, "package %s is on no floor: add it to one", p.dir))
			continue
		}
		for _, f := range p.files {
			for _, spec := range f.Imports {
				target, own := t.local(imported(spec))
				if !own {
					continue
				}
				switch to, other := floorOf(floors, target); {
				case to > from:
					out = append(out, t.at(spec, "the import of %s runs up from %s", target, p.dir))
				case to == from && other != wing:
					out = append(out, t.at(spec, "the import of %s runs across from %s", target, p.dir))
				}
			}
		}
	}
	return out
}

// floorOf returns the floor and wing of a package, or -1 if it has none.
func floorOf(floors [][][]string, dir string) (floor, wing int) {
	for _, has := range []func([]string, string) bool{slices.Contains[[]string], match} {
		for i, wings := range floors {
			for j, pkgs := range wings {
				if has(pkgs, dir) {
					return i, j
				}
			}
		}
	}
	return -1, -1
}

// deciding returns the index of the row that applies to a package, or a negative number if there is
// none.
func deciding(rows []row, p *pkg) int {
	return slices.IndexFunc(rows, func(r row) bool { return match([]string{r.pkg}, p.dir) })
}

func idle(t *tree, rows []row) []row {
	used := make([]bool, len(rows))
	for _, p := range t.pkgs {
		if i := deciding(rows, p); i >= 0 {
			used[i] = true
		}
	}
	var out []row
	for i, r := range rows {
		if !used[i] {
			out = append(out, r)
		}
	}
	return out
}

func list(r row) string {
	s := "nothing"
	if len(r.allow) > 0 {
		s = strings.Join(r.allow, ", ")
	}
	if len(r.deny) > 0 {
		s += "; never " + strings.Join(r.deny, ", ")
	}
	return s
}
