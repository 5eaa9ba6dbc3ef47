package driver

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A TLSReader reads the current TLS files for one connection.
type TLSReader func() (*tls.Config, error)

// Renewed reads files that may be replaced later, and returns a TLSReader and the first
// configuration. While the files cannot be read, for example during a replacement, the reader
// returns the last configuration until its client certificate expires. Renewed records the
// certificate's expiry time in cert.
func (read TLSReader) Renewed(cert *Certificate) (TLSReader, *tls.Config, error) {
	first, err := read()
	if err != nil {
		return nil, nil, err
	}
	end, last := cert.Note(first), first
	var mu sync.Mutex
	return func() (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		if c, err := read(); err == nil {
			end, last = cert.Note(c), c
		} else if !end.IsZero() && time.Now().After(end) {
			return nil, err
		}
		return last, nil
	}, first, nil
}

// handshakeTimeout limits the TLS handshake.
const handshakeTimeout = 10 * time.Second

// A Dialer connects to an address.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// Dial returns a Dialer that connects with dial and then performs a TLS handshake.
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
		_ = raw.Close() // no request was sent on the connection
		return nil, fmt.Errorf("TLS: %w", err)
	}
}

// Certificate records when a backend's client certificate expires. A Certificate is safe for
// concurrent use. A nil Certificate never expires.
type Certificate struct{ end atomic.Pointer[time.Time] }

// Note records and returns when the client's certificate expires, or the zero time if there is no
// certificate.
func (c *Certificate) Note(cfg *tls.Config) (end time.Time) {
	if cfg != nil && len(cfg.Certificates) > 0 && cfg.Certificates[0].Leaf != nil {
		end = cfg.Certificates[0].Leaf.NotAfter
	}
	if c != nil {
		c.end.Store(&end)
	}
	return end
}

// CertificateEnd returns the last recorded expiry time, or the zero time if there is no
// certificate.
func (c *Certificate) CertificateEnd() (end time.Time) {
	if c != nil && c.end.Load() != nil {
		end = *c.end.Load()
	}
	return end
}
