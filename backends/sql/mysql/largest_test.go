package mysql

import (
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/servers"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

// TestLargestWrite makes a write with the largest allowed numbers of operations and bytes.
func TestLargestWrite(t *testing.T) {
	t.Parallel()
	b := open(t, pool.Get(t, servers.MariaDB, nil).Database(t), Options{})
	s := sqlfault.Join(t, b, "n1")
	granted, _ := sqlfault.Acquire(t, s, sqlfault.Claims(1))
	limits := b.Info().Limits
	payloads := make([][]byte, limits.WriteOps)
	for i := range payloads {
		payloads[i] = make([]byte, limits.WriteBytes/limits.WriteOps)
		for j := range payloads[i] {
			payloads[i][j] = byte(i ^ 255*j)
		}
	}
	sqlfault.Commit(t, s, sqlfault.AppendOf(granted[0].Fence, 1, payloads...))
	seen := 0
	for after := driver.Seq(0); seen < len(payloads); {
		page, err := b.ReadLog(t.Context(), granted[0].Fence.Shard, after, 1000)
		if err != nil || len(page.Entries) == 0 {
			t.Fatal(len(page.Entries), err)
		}
		for _, e := range page.Entries {
			if string(e.Payload) != string(payloads[seen]) {
				t.Fatalf("entry %d is not what was written", e.Seq)
			}
			seen++
			after = e.Seq
		}
	}
}
