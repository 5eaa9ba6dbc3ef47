package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// certificates contains the paths of PEM files. Without TLSMutual, the client's paths are empty. No
// file contains the CA's key.
type certificates struct {
	ca, serverCert, serverKey, clientCert, clientKey string
}

// makeCertificates creates a CA, a certificate for loopback and, if mutual is true, a certificate
// for the client. The write function stores a file and returns its path.
func makeCertificates(mutual bool, write func(name, content string) (string, error)) (*certificates, error) {
	now := time.Now()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Tenure test CA"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(7 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	caPEM, err := sign(authority, authority, caKey, caKey)
	if err != nil {
		return nil, err
	}
	c := &certificates{}
	if c.ca, err = write("ca.pem", caPEM); err != nil {
		return nil, err
	}
	issue := func(serial int64, name string, usage x509.ExtKeyUsage) (cert, key string, err error) {
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return "", "", err
		}
		text, err := sign(&x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
			DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		}, authority, private, caKey)
		if err != nil {
			return "", "", err
		}
		der, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			return "", "", err
		}
		if cert, err = write(name+".pem", text); err != nil {
			return "", "", err
		}
		key, err = write(name+".key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
		return cert, key, err
	}
	if c.serverCert, c.serverKey, err = issue(2, "server", x509.ExtKeyUsageServerAuth); err != nil {
		return nil, err
	}
	if mutual {
		if c.clientCert, c.clientKey, err = issue(3, userName, x509.ExtKeyUsageClientAuth); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func sign(cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) (string, error) {
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, &key.PublicKey, parentKey)
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), nil
}

func (c *certificates) config() (*tls.Config, error) {
	text, err := os.ReadFile(c.ca)
	if err != nil {
		return nil, fmt.Errorf("tenure: cannot read the CA of a server, which may be closed: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, errors.New("tenure: the CA of a server is no certificate")
	}
	cfg := &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	if c.clientKey != "" {
		cert, err := tls.LoadX509KeyPair(c.clientCert, c.clientKey)
		if err != nil {
			return nil, fmt.Errorf("tenure: cannot read the client's certificate: %w", err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}
