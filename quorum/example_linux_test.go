package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/etcd"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/quorum"
)

// page contains the program of docs/quorum.md, in which TestPage finds it.
func page(ctx context.Context, name string, files quorum.TLS, firstTime bool) error {
	m, err := quorum.Start(ctx, quorum.Config{
		Cluster: "orders", Name: name, Dir: "/var/lib/orders",
		Members: []quorum.Address{
			{Name: "a", Peer: "a.internal:2380", Client: "a.internal:2379"},
			{Name: "b", Peer: "b.internal:2380", Client: "b.internal:2379"},
			{Name: "c", Peer: "c.internal:2380", Client: "c.internal:2379"},
		},
		PeerTLS: files, ClientTLS: files,
		Create: firstTime,
	})
	if err != nil {
		return err
	}
	defer m.Close()
	b, err := m.Open(ctx, "orders", &etcd.Options{Create: firstTime})
	if err != nil {
		return err
	}
	return b.Close()
}

// TestPage: the page's program is the one above, which compiles, and needs TLS.
func TestPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/quorum.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_linux_test.go")
	if err != nil {
		t.Fatal(err)
	}
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	_, block, _ := strings.Cut(string(text), "```go\n")
	block, _, ok := strings.Cut(block, "```")
	if !ok || !strings.Contains(squeeze(string(source)), squeeze(block)) {
		t.Errorf("the page's program is not the one of this file:\n%s", block)
	}
	if err := page(t.Context(), "a", quorum.TLS{}, true); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("without TLS: %v, want ErrInvalid", err)
	}
}

// A cluster of one member, for development. In production, three processes name the same three
// Members, and each has another Name.
func ExampleStart() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "quorum")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, err := quorum.Start(ctx, quorum.Config{
		Cluster: "orders", Name: "a", Dir: dir, Create: true, // the first time only
		Members: []quorum.Address{{Name: "a", Peer: "127.95.12.7:2380", Client: "127.95.12.7:2379"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	b, err := m.Open(ctx, "orders", &etcd.Options{Create: true}) // the first time only
	if err != nil {
		log.Fatal(err)
	}
	defer b.Close()
	err = core.RunSingleton(ctx, b, "invoices", func(ctx context.Context, lease *core.Lease) error {
		n, err := lease.Append(ctx, []byte("hello"))
		fmt.Println("wrote entry", n)
		return err
	}, nil)
	fmt.Println("error:", err)
	// Output:
	// wrote entry 1
	// error: <nil>
}
