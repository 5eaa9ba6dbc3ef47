// Package errtext formats errors that wrap this module's other errors.
package errtext

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"unicode"
)

const prefix = "tenure: "

// Errorf is like fmt.Errorf, but drops the module's prefix from a wrapped error. The text of the
// result therefore has the prefix only once.
func Errorf(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	text := strings.ReplaceAll(err.Error(), ": "+prefix, ": ")
	if text == err.Error() {
		return err
	}
	return &wrapped{text, err}
}

type wrapped struct {
	text string
	err  error
}

func (e *wrapped) Error() string { return e.text }
func (e *wrapped) Unwrap() error { return e.err }

// NotApplied is the type of sentinel errors which mean that nothing was or will be written. See
// core.NotApplied.
type NotApplied string

func (e NotApplied) Error() string    { return string(e) }
func (e NotApplied) NotApplied() bool { return true }

// goName matches a word that may name a Go field, and preceding words that suggest a field.
var goName = regexp.MustCompile(`\b((?:set|into|lower|raise|options:|or|and) )?(Options\.)?([A-Z][A-Za-z]+(?:\.[A-Z][A-Za-z]+)*)\b`)

// InKeys returns err with the fields of the settings struct replaced by their yaml keys. The errors
// of backends name fields, but users know only the keys of the configuration file.
func InKeys(err error, settings any) error {
	keys := make(map[string]string)
	collect(reflect.TypeOf(settings), "", "", keys)
	text := goName.ReplaceAllStringFunc(err.Error(), func(found string) string {
		m := goName.FindStringSubmatch(found)
		key, camel := keys[m[3]], strings.IndexFunc(m[3][1:], unicode.IsUpper) >= 0
		if key == "" || m[1]+m[2] == "" && !camel {
			return found
		}
		return m[1] + key
	})
	if text == err.Error() {
		return err
	}
	return &wrapped{text, err}
}

// collect adds the keys of t and of its nested structs, with the names of the enclosing structs.
func collect(t reflect.Type, names, above string, keys map[string]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case f.Anonymous && options == "inline":
			collect(f.Type, names, above, keys)
		case name != "" && name != "-":
			keys[names+f.Name] = above + name
			if f.Type.Kind() == reflect.Struct {
				collect(f.Type, names+f.Name+".", above+name+".", keys)
			}
		}
	}
}
