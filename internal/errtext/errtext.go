// Package errtext formats errors that wrap errors of this module.
package errtext

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"unicode"
)

const prefix = "tenure: "

// Errorf is fmt.Errorf, but its text has the module's prefix only once: that of a
// wrapped error is left out.
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

// goName is a word that may name a field of Go code, and what before it says that it does.
var goName = regexp.MustCompile(`\b((?:set|into|lower|raise|options:|or|and) )?(Options\.)?([A-Z][A-Za-z]+)\b`)

// InKeys is err with the fields of settings, a struct, named by their yaml keys: what a backend
// tells programmers to set, its configuration file has under another name.
func InKeys(err error, settings any) error {
	keys := make(map[string]string)
	collect(reflect.TypeOf(settings), keys)
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

func collect(t reflect.Type, keys map[string]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case f.Anonymous && options == "inline":
			collect(f.Type, keys)
		case name != "" && name != "-":
			keys[f.Name] = name
		}
	}
}
