package driver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// Bounds of files, in bytes: with a credential, and with certificates, as a machine's bundle of
// authorities has some 220 KiB.
const (
	maxSecret = 64 << 10
	maxPEM    = 1 << 20
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

// ReadSecret reads a credential from a regular file of at most 64 KiB, without the line
// breaks at its end. It refuses a FIFO or a device, which could make it wait. Its errors
// do not name the file: what was written as its name may be the credential.
func ReadSecret(path string) (string, error) {
	text, err := readRegular(path, maxSecret)
	return strings.TrimRight(string(text), "\r\n"), err
}

// TLSFiles are the settings of a backend's connections over TLS: names of files in PEM of at
// most 1 MiB, which are read as ReadSecret reads a credential.
type TLSFiles struct {
	CA         string // the authorities that are trusted; empty: those of the machine
	Cert, Key  string // the client's certificate; both empty: none
	ServerName string // expected in the server's certificate; empty: the host's name
}

// Config reads the files. An error begins with the setting that is wrong, ca_file, cert_file or
// key_file, and does not name the file.
func (t TLSFiles) Config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	read := func(setting, path string) ([]byte, error) {
		text, err := readRegular(path, maxPEM)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", setting, err)
		}
		return text, nil
	}
	if t.CA != "" {
		text, err := read("ca_file", t.CA)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, errors.New("ca_file: it holds no certificate in PEM")
		}
	}
	if t.Cert == "" && t.Key == "" {
		return c, nil
	}
	cert, err := read("cert_file", t.Cert)
	if err != nil {
		return nil, err
	}
	key, err := read("key_file", t.Key)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("cert_file and key_file: %w", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// readRegular reads a regular file of at most so many bytes.
func readRegular(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|withoutWaiting, 0)
	if err != nil {
		return nil, WithoutPath(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if info, err := f.Stat(); err != nil {
		return nil, WithoutPath(err)
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, WithoutPath(err)
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("the file has more than %d bytes", most)
	}
	return text, nil
}

// WithoutPath is an error of a file's operation without the file's name.
func WithoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
