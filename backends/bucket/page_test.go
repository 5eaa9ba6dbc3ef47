package bucket_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"gocloud.dev/blob"

	"github.com/tenure-go/tenure/backends/bucket"
	"github.com/tenure-go/tenure/core"
)

// lead contains a program of docs/backends/bucket.md, in which TestPage finds it.
func lead(ctx context.Context, handler core.Handler, firstTime bool) error {
	b, err := bucket.Open(ctx, "s3://my-bucket?region=eu-central-1", "orders", &bucket.Options{
		Create: firstTime, // the first time only
	})
	if err != nil {
		return err
	}
	defer b.Close()
	return core.RunSingleton(ctx, b, "hello", handler, nil)
}

// raise is the other one.
func raise(ctx context.Context, opened *blob.Bucket) error {
	err := bucket.RaiseFloor(ctx, opened, "orders", 1_000_000, nil)
	return err
}

// TestPage: the page's programs are those above, which compile. Without a driver, a URL is refused.
func TestPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/backends/bucket.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("page_test.go")
	if err != nil {
		t.Fatal(err)
	}
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	blocks := strings.Split(string(text), "```go\n")[1:]
	if len(blocks) != 2 {
		t.Errorf("the page has %d programs, want 2", len(blocks))
	}
	for _, block := range blocks {
		block, _, ok := strings.Cut(block, "```")
		if !ok || !strings.Contains(squeeze(string(source)), squeeze(block)) {
			t.Errorf("a program of the page is not in this file:\n%s", block)
		}
	}
	if _, err := bucket.Open(t.Context(), "none://my-bucket", "orders", nil); !errors.Is(err, core.ErrInvalid) ||
		!strings.Contains(err.Error(), "none") {
		t.Errorf("without a driver: %v, want ErrInvalid that names the scheme", err)
	}
	ended, end := context.WithCancel(t.Context())
	end() // nothing is sent
	if err := lead(ended, nil, true); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v, want its error", err)
	}
	if err := raise(t.Context(), nil); !errors.Is(err, core.ErrInvalid) {
		t.Errorf("without a bucket: %v, want ErrInvalid", err)
	}
}
