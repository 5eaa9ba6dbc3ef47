package suite

import (
	"reflect"
	"testing"
)

// TestAdd: Add adds every count, and takes the longest overlap.
func TestAdd(t *testing.T) {
	t.Parallel()
	var f Figures
	eachInt(reflect.ValueOf(&f).Elem(), func(_ string, v reflect.Value) { v.SetInt(1) })
	other := f
	f.Add(&other)
	n := 0
	eachInt(reflect.ValueOf(&f).Elem(), func(name string, v reflect.Value) {
		n++
		if want := map[bool]int64{false: 2, true: 1}[name == "Overlap"]; v.Int() != want {
			t.Errorf("%s: got %d, want %d", name, v.Int(), want)
		}
	})
	if n < 20 {
		t.Errorf("only %d counts were found", n)
	}
}

// eachInt calls do for each count in a struct. It skips the numbers of takeovers in Times, because Add does not change Times.
func eachInt(v reflect.Value, do func(name string, v reflect.Value)) {
	for i := range v.NumField() {
		switch field := v.Field(i); {
		case field.Kind() == reflect.Int:
			do(v.Type().Field(i).Name, field)
		case field.Type() == reflect.TypeFor[Long]():
			eachInt(field, do)
		}
	}
}
