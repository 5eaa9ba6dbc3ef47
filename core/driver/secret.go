package driver

import (
	"fmt"
	"io"
)

// Secret is a string that prints as xxxxx in every format, for the credentials in
// a backend's settings. Convert it to string to use it. It does not hide in a field
// that is not exported, which the fmt package prints without asking.
type Secret string

// String is xxxxx, or empty for the empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "xxxxx"
}

// Format prints String whatever the verb.
func (s Secret) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, s.String()) }

// MarshalText is String, for JSON, YAML and structured logs.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
