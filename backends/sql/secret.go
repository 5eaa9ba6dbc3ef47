package sql

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tenure-go/tenure/core/driver"
)

// Secret is a string that prints as xxxxx in every format: a data source name
// may hold a password. Convert it to string to use it.
type Secret string

const redacted = "xxxxx"

// String is xxxxx, or empty for the empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return redacted
}

// Format prints String whatever the verb.
func (s Secret) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, s.String()) }

// MarshalText is String, for JSON, YAML and structured logs.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// PasswordFile returns a function that reads a password from a file, without
// the line break at its end. Safe for concurrent use.
func PasswordFile(path string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("tenure: %w: reading the password: %w", driver.ErrRetry, err)
		}
		return strings.TrimRight(string(text), "\r\n"), nil
	}
}
