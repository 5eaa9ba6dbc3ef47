// Package errtext formats errors that wrap errors of this module.
package errtext

import (
	"fmt"
	"strings"
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
