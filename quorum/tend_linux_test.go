package quorum

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

// TestSpace: a cluster whose database exceeds its quota makes room and continues without an
// operator. If there is no room to make, the leader says so, and tries again.
func TestSpace(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.of.Quota = minQuota
	procs := c.first(false)
	c.progress()
	fill := func(key func(i int) string) {
		client, value := c.client(), strings.Repeat("x", 1<<20)
		i := 0
		ample.Wait(t, "the database does not exceed its quota", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
			defer cancel()
			_, err := client.Put(ctx, key(i), value)
			i++
			return errors.Is(err, rpctypes.ErrNoSpace)
		})
	}
	said := func(words string) (n int) {
		for _, p := range procs {
			p.mu.Lock()
			n += strings.Count(strings.Join(p.said, "\n"), words)
			p.mu.Unlock()
		}
		return n
	}
	fill(func(int) string { return "ballast" })
	ample.Wait(t, "no member made room", func() bool { return said("accepts writes again") == 1 })
	if said("refuses writes") == 0 || said("raise Quota") == 0 {
		t.Error("the leader has not logged what it does, and the remedy")
	}
	c.progress()
	if testing.Short() {
		t.Log("with -short, the database is not filled with current data")
	} else {
		fill(func(i int) string { return fmt.Sprint("ballast", i) })
		ample.Wait(t, "no member found that it cannot make room", func() bool { return said("still refuses writes") > 0 })
		if _, err := c.client().Delete(bounded(t), "ballast", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		ample.Wait(t, "no member made room again", func() bool { return said("accepts writes again") == 2 })
		c.progress()
	}
	c.check()
}

// TestCertificates: certificates that end soon are logged, and members use a file that has changed.
func TestCertificates(t *testing.T) {
	t.Parallel()
	c := alone(t)
	host, _, _ := hostOf(c.Members[0].Peer)
	c.PeerTLS, c.ClientTLS = certificate(t, host), certificate(t, host)
	var out bytes.Buffer
	c.Logger = slog.New(slog.NewTextHandler(&out, nil))
	c.logCertificates(time.Now().Add(-soon))
	if out.Len() != 0 {
		t.Errorf("certificates that end in more than 7 days were logged: %s", &out)
	}
	c.logCertificates(time.Now())
	for _, f := range []string{c.PeerTLS.CAFile, c.PeerTLS.CertFile, c.ClientTLS.CAFile, c.ClientTLS.CertFile} {
		if strings.Count(out.String(), f) != 1 {
			t.Errorf("%s, which ends within 7 days, was not logged once: %s", f, &out)
		}
	}
	c.Logger = slog.New(slog.DiscardHandler)
	started(t, c)
	pair, err := tls.LoadX509KeyPair(c.ClientTLS.CertFile, c.ClientTLS.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(c.ClientTLS.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	authority, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	renewed := *pair.Leaf
	renewed.SerialNumber = big.NewInt(7)
	der, err := x509.CreateCertificate(rand.Reader, &renewed, authority, pair.Leaf.PublicKey, pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	text = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(c.ClientTLS.CertFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	conn, err := tls.Dial("tcp", c.Members[0].Client, &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if n := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); n != 7 {
		t.Errorf("after the file has changed, the member shows certificate %d, want 7", n)
	}
}
