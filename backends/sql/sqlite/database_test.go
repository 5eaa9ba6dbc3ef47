package sqlite

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// While the largest number of read transactions runs, each transaction can still prepare a
// statement when it first uses it, which needs another connection.
func TestReadersCanPrepare(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), ample.Time)
	defer cancel()
	opts, err := (*Options)(nil).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	d, err := openDatabase(ctx, filepath.Join(t.TempDir(), "app.db"), dataSchema, opts, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}()

	inside := make(chan struct{})
	var entered, done sync.WaitGroup
	entered.Add(readers)
	go func() { entered.Wait(); close(inside) }()
	for range readers {
		done.Go(func() {
			err := d.read(ctx, func(ctx context.Context, _ *engine.Tx) error {
				entered.Done()
				<-inside
				stmt, err := d.reads.PrepareContext(ctx, "SELECT 1")
				if err != nil {
					return err
				}
				return stmt.Close()
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
}
