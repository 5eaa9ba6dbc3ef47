package driver

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"
)

// A TLSReader reads the files of TLS as they are now, for one connection.
type TLSReader func() (*tls.Config, error)

// Renewed returns a TLSReader for files that may be replaced, and the first configuration. While the
// files cannot be read, such as in the middle of a replacement, the reader returns the newest
// configuration until the client's certificate in it has ended.
func (read TLSReader) Renewed() (TLSReader, *tls.Config, error) {
	first, err := read()
	if err != nil {
		return nil, nil, err
	}
	end, last := NoteCertificate(first), first
	var mu sync.Mutex
	return func() (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		if c, err := read(); err == nil {
			end, last = NoteCertificate(c), c
		} else if !end.IsZero() && time.Now().After(end) {
			return nil, err
		}
		return last, nil
	}, first, nil
}

// handshakeTimeout bounds the handshake of TLS.
const handshakeTimeout = 10 * time.Second

// A Dialer connects to an address.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// Dial returns a Dialer that connects by another one and begins TLS on the connection.
func (read TLSReader) Dial(dial Dialer) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		c, err := read()
		if err == nil {
			if c = c.Clone(); c.ServerName == "" {
				c.ServerName, _, _ = net.SplitHostPort(addr)
			}
			conn := tls.Client(raw, c)
			if err = conn.HandshakeContext(ctx); err == nil {
				return conn, nil
			}
		}
		_ = raw.Close() // no request was sent on it
		return nil, fmt.Errorf("TLS: %w", err)
	}
}

var (
	endsMu sync.Mutex
	ends   = map[string]time.Time{} // of client certificates, by subject
)

// NoteCertificate returns the end of the client's certificate, which CertificateEnd then counts; the
// zero time if there is no certificate.
func NoteCertificate(c *tls.Config) (end time.Time) {
	if c == nil || len(c.Certificates) == 0 || c.Certificates[0].Leaf == nil {
		return end
	}
	endsMu.Lock()
	defer endsMu.Unlock()
	leaf := c.Certificates[0].Leaf
	ends[leaf.Subject.String()] = leaf.NotAfter
	return leaf.NotAfter
}

// CertificateEnd returns the earliest end of the client certificates that this process connects to
// stores with; the zero time if there are none.
func CertificateEnd() (earliest time.Time) {
	endsMu.Lock()
	defer endsMu.Unlock()
	for _, end := range ends {
		if earliest.IsZero() || end.Before(earliest) {
			earliest = end
		}
	}
	return earliest
}
