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

// These are the size limits of credential and certificate files, in bytes. A machine's bundle of
// certificate authorities takes about 220 KiB.
const (
	maxSecret = 64 << 10
	maxPEM    = 1 << 20
)

// Secret is a credential in a backend's settings. A Secret prints as xxxxx in every format. To use
// a Secret, convert it to a string. Do not put a Secret in an unexported field, because package fmt
// prints such a field without calling its methods.
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
// its end. ReadSecret refuses a FIFO or a device, because reading one could block. The errors of
// ReadSecret do not name the file, because the name in a setting may be the credential itself.
func ReadSecret(path string) (string, error) {
	text, err := readRegular(path, maxSecret)
	return strings.TrimRight(string(text), "\r\n"), err
}

// TLSFiles contains the settings for a backend's TLS connections. Config reads the named PEM files,
// each of at most 1 MiB, with the precautions that ReadSecret takes.
type TLSFiles struct {
	CA         string // trusted authorities; empty to use the machine's authorities
	Cert, Key  string // the client's certificate; both are empty if the client has none
	ServerName string // the expected name in the server's certificate; empty for the host's name
}

// Config reads the files. An error begins with the name of the invalid setting, which is ca_file,
// cert_file or key_file, but does not name the file.
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

// readRegular reads a regular file of at most the given size in bytes.
func readRegular(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|withoutWaiting, 0)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close() //nolint:errcheck // the file was only read
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

func withoutPath(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
