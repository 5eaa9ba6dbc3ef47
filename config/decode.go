package config

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

type problems struct{ errs []error }

func (p *problems) add(n *node, path, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s: %s: %s", n.where, path, fmt.Sprintf(format, args...)))
}

// decode fills v from n. Each key of n must match the yaml tag of a field in v.
func (p *problems) decode(n *node, path string, v reflect.Value) {
	if n.kind == absent {
		return
	}
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		p.duration(n, path, v)
		return
	case v.Kind() == reflect.Pointer:
		target := reflect.New(v.Type().Elem())
		p.decode(n, path, target.Elem())
		v.Set(target)
		return
	case v.Kind() == reflect.Struct:
		p.structure(n, path, v)
		return
	case v.Kind() == reflect.Map:
		p.mapping(n, path, v)
		return
	case v.Kind() == reflect.Slice:
		p.list(n, path, v)
		return
	}
	if n.kind != scalar {
		p.add(n, path, "got %s: write one value", n.kind)
		return
	}
	shown := show(n, v.Type())
	switch v.Kind() {
	case reflect.String:
		v.SetString(n.value)
	case reflect.Bool:
		b, ok := map[string]bool{"true": true, "false": false}[n.value]
		if !ok {
			p.add(n, path, "%s is neither true nor false: write one of them", shown)
			return
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		i, err := strconv.ParseInt(n.value, 10, v.Type().Bits())
		if err != nil {
			p.add(n, path, "%s is not a whole number of at most %d bits: write digits only", shown, v.Type().Bits())
			return
		}
		v.SetInt(i)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		i, err := strconv.ParseUint(n.value, 10, v.Type().Bits())
		if err != nil {
			p.add(n, path, "%s is not a whole number from 0 up: write digits only", shown)
			return
		}
		v.SetUint(i)
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(n.value, v.Type().Bits())
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			p.add(n, path, "%s is not a number: write one such as 0.1", shown)
			return
		}
		v.SetFloat(f)
	default:
		p.add(n, path, "this key cannot be set from configuration")
	}
}

func (p *problems) duration(n *node, path string, v reflect.Value) {
	if n.kind != scalar {
		p.add(n, path, "got %s: write one duration such as 10s", n.kind)
		return
	}
	d, err := time.ParseDuration(n.value)
	if err == nil {
		v.SetInt(int64(d))
		return
	}
	shown := show(n, v.Type())
	if _, err := strconv.ParseFloat(n.value, 64); err == nil && shown != hidden {
		p.add(n, path, "%s has no unit: write %ss or %sms", shown, n.value, n.value)
		return
	}
	p.add(n, path, "%s is not a duration: use the units h, m, s, ms, as in 1m30s", shown)
}

func (p *problems) structure(n *node, path string, v reflect.Value) {
	if n.kind != mapping {
		p.add(n, path, "got %s: write keys below it", n.kind)
		return
	}
	known := fields(v.Type())
	for _, key := range n.keys {
		f, is := known[key]
		if !is {
			p.unknown(n.fields[key], path+"."+key, key, slices.Collect(maps.Keys(known)))
			continue
		}
		p.field(n.fields[key], path+"."+key, v.FieldByIndex(f.Index))
	}
}

// field decodes a struct field. It refuses a credential under a key that is not meant for one,
// because a later check would quote the value.
func (p *problems) field(n *node, path string, v reflect.Value) {
	t := v.Type()
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() == reflect.String && !isSecret(t) &&
		(n.holdsPassword() || slices.ContainsFunc(n.items, (*node).holdsPassword)) {
		p.add(n, path, "the value looks like one with a password, so it is not shown: this key is not for one")
		return
	}
	p.decode(n, path, v)
}

func (p *problems) unknown(n *node, path, key string, known []string) {
	slices.Sort(known)
	for _, name := range known {
		if near(key, name) {
			p.add(n, path, "unknown key %q: did you mean %q?", key, name)
			return
		}
	}
	p.add(n, path, "unknown key %q: remove it, or use one of %s", key, strings.Join(known, ", "))
}

func (p *problems) mapping(n *node, path string, v reflect.Value) {
	if n.kind != mapping {
		p.add(n, path, "got %s: write keys below it", n.kind)
		return
	}
	m := reflect.MakeMapWithSize(v.Type(), len(n.keys))
	for _, key := range n.keys {
		item := reflect.New(v.Type().Elem()).Elem()
		p.decode(n.fields[key], path+"."+key, item)
		m.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), item)
	}
	v.Set(m)
}

// list also accepts a string of comma-separated items, as in an environment variable.
func (p *problems) list(n *node, path string, v reflect.Value) {
	items := n.items
	switch n.kind {
	case list:
	case scalar:
		for part := range strings.SplitSeq(n.value, ",") {
			items = append(items, &node{kind: scalar, value: strings.TrimSpace(part), secret: n.secret, where: n.where})
		}
	default:
		p.add(n, path, "got %s: write a list", n.kind)
		return
	}
	s := reflect.MakeSlice(v.Type(), len(items), len(items))
	for i, item := range items {
		p.decode(item, fmt.Sprintf("%s[%d]", path, i), s.Index(i))
	}
	v.Set(s)
}

// fields returns the struct fields that have a key, indexed by key. The fields of embedded structs
// with the tag option "inline" are included.
func fields(t reflect.Type) map[string]reflect.StructField {
	all := make(map[string]reflect.StructField, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case f.Anonymous && options == "inline":
			for name, inner := range fields(f.Type) {
				inner.Index = append([]int{i}, inner.Index...)
				all[name] = inner
			}
		case f.IsExported() && name != "-" && name != "":
			all[name] = f
		}
	}
	return all
}

// near reports whether a is probably a misspelling of b. A misspelling adds, drops or changes one
// letter, swaps two adjacent letters, or differs only in separators or case.
func near(a, b string) bool {
	plain := strings.NewReplacer("_", "", "-", "", ".", "")
	a, b = strings.ToLower(plain.Replace(a)), strings.ToLower(plain.Replace(b))
	if a == b {
		return true
	}
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(a) < 3 || len(b)-len(a) > 1 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) == len(b) {
		swapped := i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
		return a[i+1:] == b[i+1:] || swapped
	}
	return a[i:] == b[i+1:]
}
