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

// Size limits of a credential file and of certificate files, in bytes. A machine's bundle of
// authorities has about 220 KiB.
const (
	maxSecret = 64 << 10
	maxPEM    = 1 << 20
)

// Secret is a string for the credentials in a backend's settings. It prints as xxxxx in every
// format. To use it, convert it to a string. It is not hidden in an unexported field, because
// package fmt prints such a field without calling its methods.
type Secret string

// String returns xxxxx, or the empty string for the empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return "xxxxx"
}

// Format writes the result of String for every verb.
func (s Secret) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, s.String()) }

// MarshalText returns the result of String, for JSON, YAML and structured logs.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ReadSecret reads a credential from a regular file of at most 64 KiB, without the line breaks at
// its end. It refuses a FIFO or a device, which could block it. Its errors do not name the file,
// because the name in a setting may be the credential itself.
func ReadSecret(path string) (string, error) {
	text, err := readRegular(path, maxSecret)
	return strings.TrimRight(string(text), "\r\n"), err
}

// TLSFiles are the settings of a backend's TLS connections. They name PEM files of at most 1 MiB,
// which Config reads as ReadSecret reads its file.
type TLSFiles struct {
	CA         string // trusted authorities; empty for those of the machine
	Cert, Key  string // the client's certificate; both empty for none
	ServerName string // expected in the server's certificate; empty for the host's name
}

// Config reads the files. An error begins with the name of the wrong setting, ca_file, cert_file or
// key_file. It does not name the file.
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

// readRegular reads a regular file of up to most bytes.
func readRegular(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|withoutWaiting, 0)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if info, err := f.Stat(); err != nil {
		return nil, withoutPath(err)
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, withoutPath(err)
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("the file has more than %d bytes", most)
	}
	return text, nil
}

// withoutPath returns the error of a file operation without the file's name.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
