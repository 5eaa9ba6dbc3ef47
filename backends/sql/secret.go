package sql

import (
	"context"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

// Secret is a string that prints as xxxxx in every format: a data source name
// may hold a password.
type Secret = driver.Secret

// PasswordFile returns a function that reads a password from a file, without
// the line break at its end. Safe for concurrent use.
func PasswordFile(path string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		text, err := driver.ReadSecret(path)
		if err != nil {
			return "", fmt.Errorf("tenure: %w: reading the password's file: %w", driver.ErrRetry, err)
		}
		return text, nil
	}
}
