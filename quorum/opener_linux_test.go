package quorum

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/config"
	"github.com/tenure-go/tenure/core"
)

func configured(t *testing.T, name string, m Config, more string) *config.Config {
	t.Helper()
	if name != "" {
		more += fmt.Sprintf("      name: %q\n      dir: %s\n", name, m.Dir)
	}
	text := fmt.Sprintf("tenure:\n  backends:\n    quorum:\n      cluster: %s\n"+
		"      members: [{name: a, peer: %q, client: %q}]\n      namespace: orders\n%s",
		m.Cluster, m.Members[0].Peer, m.Members[0].Client, more)
	c, err := config.Load(&config.LoadOptions{Data: []byte(text), Environ: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestOpener: a configuration starts a member, or opens the cluster from a client. Closing the
// member's backend stops the member.
func TestOpener(t *testing.T) {
	t.Parallel()
	m := alone(t)
	ctx := bounded(t)
	open := func(name, more string) (core.Backend, error) { return configured(t, name, m, more).Open(ctx, Opener()) }
	for _, wrong := range []struct{ name, more, want string }{
		{"a", "", "set create"},
		{"", "      dir: here\n", "set name"},
		{"b", "      create: true\n", "not in Members"},
		{"a", "      quota: 7\n", "Quota"},
		{"a", "      quotta: 7\n", `did you mean "quota"`},
		{"a", "      client_tls: {ca_file: none.pem}\n", "client_tls: CAFile"},
	} {
		b, err := open(wrong.name, wrong.more)
		if err == nil {
			t.Fatalf("%q opens", wrong.more)
		}
		if b != nil || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%q: %v, want an error with %q", wrong.more, err, wrong.want)
		}
	}
	member, err := open("a", "      create: true\n")
	if err != nil {
		t.Fatal(err)
	}
	troubled := func(b core.Backend) error { return b.(interface{ Trouble(context.Context) error }).Trouble(ctx) }
	client, err := open("", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []core.Backend{member, client} {
		if err := troubled(b); err != nil {
			t.Errorf("a cluster whose member runs: %v", err)
		}
	}
	err = core.RunSingleton(ctx, client, shard, func(ctx context.Context, l *core.Lease) error {
		_, err := l.Append(ctx, []byte("x"))
		return err
	}, &core.Options{TTL: testTTL, Logger: m.Logger})
	if err != nil {
		t.Errorf("a client's lease: %v", err)
	}
	if err := member.Close(); err != nil {
		t.Errorf("close the member's backend: %v", err)
	}
	limited, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	if err := client.(*Backend).Trouble(limited); err == nil {
		t.Error("a client reports no trouble though the only member has stopped")
	}
	if err := client.Close(); err != nil {
		t.Errorf("close the client's backend: %v", err)
	}
	again, err := open("a", "")
	if err != nil {
		t.Fatalf("the member's folder does not open again: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// TestMemberTrouble: a backend names the reason for which its process's member has stopped.
func TestMemberTrouble(t *testing.T) {
	t.Parallel()
	m := started(t, alone(t))
	b, err := m.Open(bounded(t), "orders", &etcd.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	m.mu.Lock()
	m.err = ErrRemoved
	m.mu.Unlock()
	if err := b.Trouble(t.Context()); err == nil || !strings.Contains(err.Error(), ErrRemoved.Error()) {
		t.Errorf("the trouble of a removed member is %v", err)
	}
	m.mu.Lock()
	m.err = nil
	m.mu.Unlock()
}

// TestSchema: the schema contains the keys of a member, and no field that only a program can set.
func TestSchema(t *testing.T) {
	t.Parallel()
	text, err := config.Schema(Opener())
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"cluster", "name", "dir", "members", "peer", "client", "domain", "size", "peer_tls",
		"client_tls", "ca_file", "cert_file", "key_file", "create", "quota", "retention", "namespace"} {
		if name, _ := json.Marshal(key); !strings.Contains(string(text), string(name)+":") {
			t.Errorf("the schema lacks %s", key)
		}
	}
	if strings.Contains(strings.ToLower(string(text)), "resolver") {
		t.Error("the schema has a resolver")
	}
}
