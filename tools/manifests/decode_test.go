package manifests

import (
	"encoding/json"
	"strings"
)

// decode decodes JSON for the validator, and keeps numbers as they are written.
func decode(text string) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}
