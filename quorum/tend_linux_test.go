package quorum

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

// TestSpace: a cluster whose database exceeds its quota makes room and continues without an
// operator. If a member does not answer, the leader says so, and tries again.
func TestSpace(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.of.Quota = minQuota
	var all []*proc
	for _, p := range c.first(false) {
		all = append(all, p)
	}
	fill := func() {
		client, value := c.client(), strings.Repeat("x", 1<<20)
		ample.Wait(t, "the database does not exceed its quota", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
			defer cancel()
			_, err := client.Put(ctx, "ballast", value)
			return errors.Is(err, rpctypes.ErrNoSpace)
		})
	}
	said := func(words string) (n int) {
		for _, p := range all {
			p.mu.Lock()
			n += strings.Count(strings.Join(p.said, "\n"), words)
			p.mu.Unlock()
		}
		return n
	}
	const again, not = "accepts writes again", "does not answer: start, replace or remove it"
	c.progress()
	fill()
	ample.Wait(t, "no member made room", func() bool { return said(again) > 0 })
	if said("raise Quota") == 0 {
		t.Error("the leader has not logged the remedy")
	}
	c.progress()
	if testing.Short() {
		t.Log("with -short, no member ends, because the next attempts take half a minute")
		c.check()
		return
	}
	leader, before := c.leads(), said(again)
	ends := all[slices.IndexFunc(all, func(p *proc) bool { return p != leader })]
	ends.end(syscall.SIGKILL)
	fill()
	ample.Wait(t, "the leader has not said that a member does not answer", func() bool { return said(not) > 0 })
	all = append(all, c.start(ends.name))
	ample.Wait(t, "no member made room again", func() bool { return said(again) > before })
	c.progress()
	c.check()
}

// TestTrouble: living members report a member that does not answer, and its return.
func TestTrouble(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	all := c.first(false)
	stays := all["a"]
	said := func(words string) bool {
		stays.mu.Lock()
		defer stays.mu.Unlock()
		return slices.ContainsFunc(stays.said, func(line string) bool { return strings.Contains(line, words) })
	}
	c.progress()
	all["c"].end(syscall.SIGKILL)
	ample.Wait(t, "nobody reports that c is silent", func() bool { return said(`trouble="member \"c\" of the quorum does not answer`) })
	c.start("c")
	ample.Wait(t, "nobody reports that c is back", func() bool { return said("process reports no more trouble") })
	c.progress()
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
	for _, f := range []string{"PeerTLS", "ClientTLS"} {
		if strings.Count(out.String(), "files="+f) != 1 || !strings.Contains(out.String(), "expired") {
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
