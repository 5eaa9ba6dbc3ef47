package dialect

import (
	"context"
	"fmt"

	"github.com/tenure-go/tenure/core/driver"
)

// PasswordFile returns a function that reads a password from a file, without the trailing line
// break. The function is safe for concurrent use.
func PasswordFile(path string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		text, err := driver.ReadSecret(path)
		if err != nil {
			return "", fmt.Errorf("tenure: %w: reading the password's file: %w", driver.ErrRetry, err)
		}
		return text, nil
	}
}
