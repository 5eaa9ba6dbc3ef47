package driver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

// selfSigned returns a self-signed certificate for addresses or names.
func selfSigned(t *testing.T, end time.Time, ips []net.IP, names ...string) (cert, key []byte, pair tls.Certificate) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: t.Name()}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: end, IsCA: true, BasicConstraintsValid: true, IPAddresses: ips, DNSNames: names}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
	if pair, err = tls.X509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return cert, key, pair
}

// TestRenewed: the files are read for each connection. While they cannot be read, the newest
// certificate is used until it expires. Errors do not show the files' content.
func TestRenewed(t *testing.T) {
	dir := t.TempDir()
	f := driver.TLSFiles{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	write := func(cert, key []byte) {
		t.Helper()
		for name, text := range map[string][]byte{f.Cert: cert, f.Key: key} {
			if err := os.WriteFile(name, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	var end driver.Certificate
	if _, _, err := driver.TLSReader(f.Config).Renewed(&end); err == nil {
		t.Error("files that do not exist are read")
	}
	cert, key, first := selfSigned(t, time.Now().Add(time.Hour), nil)
	write(cert, key)
	read, _, err := driver.TLSReader(f.Config).Renewed(&end)
	if err != nil {
		t.Fatal(err)
	}
	has := func(want tls.Certificate) {
		t.Helper()
		c, err := read()
		if err != nil || !c.Certificates[0].Leaf.Equal(want.Leaf) || !end.CertificateEnd().Equal(want.Leaf.NotAfter) {
			t.Errorf("another certificate, or end, %v: %v", end.CertificateEnd(), err)
		}
	}
	has(first)
	ended, endedKey, last := selfSigned(t, time.Now().Add(-time.Minute), nil)
	write(ended, key) // only the certificate is new
	has(first)
	write(nil, nil)
	has(first)
	write(ended, endedKey)
	has(last)
	write([]byte("planted"), []byte("planted"))
	if _, err := read(); err == nil || strings.Contains(err.Error(), "planted") || !strings.Contains(err.Error(), "cert_file") {
		t.Errorf("broken files after the end of the certificate: %v", err)
	}
}

// TestDialChecksTheServer: the server's certificate must be valid for the dialed address, and
// issued by an authority in the newest files.
func TestDialChecksTheServer(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	end := time.Now().Add(time.Hour)
	good, _, pair := selfSigned(t, end, []net.IP{net.IPv4(127, 0, 0, 1)})
	other, _, otherPair := selfSigned(t, end, nil, "other.example")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan tls.Certificate, 1)
	go func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			conn := tls.Server(raw, &tls.Config{Certificates: []tls.Certificate{<-served}})
			_ = conn.Handshake()
			raw.Close()
		}
	}()
	var read driver.TLSReader
	dial := func(trusted []byte, of tls.Certificate) error {
		t.Helper()
		if err := os.WriteFile(ca, trusted, 0o600); err != nil {
			t.Fatal(err)
		}
		if read == nil {
			if read, _, err = driver.TLSReader(driver.TLSFiles{CA: ca}.Config).Renewed(&driver.Certificate{}); err != nil {
				t.Fatal(err)
			}
		}
		served <- of
		conn, err := read.Dial((&net.Dialer{}).DialContext)(t.Context(), "tcp", l.Addr().String())
		if err == nil {
			conn.Close()
		}
		return err
	}
	if err := dial(good, pair); err != nil {
		t.Errorf("its own certificate: %v", err)
	}
	if err := dial(other, pair); err == nil {
		t.Error("an authority is trusted that is no longer in the file")
	}
	if err := dial(other, otherPair); err == nil {
		t.Error("a certificate for another name is taken")
	}
}
