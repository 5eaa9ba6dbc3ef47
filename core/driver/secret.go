package driver

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// maxSecret bounds a file with a credential, in bytes.
const maxSecret = 64 << 10

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

// ReadSecret reads a credential from a regular file of at most 64 KiB, without the line
// breaks at its end. It refuses a FIFO or a device, which could make it wait. Its errors
// do not name the file: what was written as its name may be the credential.
func ReadSecret(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|withoutWaiting, 0)
	if err != nil {
		return "", WithoutPath(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if info, err := f.Stat(); err != nil {
		return "", WithoutPath(err)
	} else if !info.Mode().IsRegular() {
		return "", errors.New("it is not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", WithoutPath(err)
	}
	if len(text) > maxSecret {
		return "", fmt.Errorf("the file has more than %d bytes", maxSecret)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// WithoutPath is an error of a file's operation without the file's name.
func WithoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
