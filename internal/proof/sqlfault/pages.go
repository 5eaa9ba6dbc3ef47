package sqlfault

import (
	"testing"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/faultproxy"
)

// CheckPageBytes reads a log through a proxy. The log is much larger than a page, and the read does
// not limit the number of entries. The reply for a page must not be much larger than a page.
func CheckPageBytes(t *testing.T, server string, open func(addr string) driver.Backend) {
	t.Helper()
	const commits, size, most = 24, 1 << 20, 6 << 20
	proxy, err := faultproxy.New(server, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = proxy.Close() })
	b := open(proxy.Addr())
	s := Join(t, b, "n1")
	granted, _ := Acquire(t, s, Claims(1))
	f := granted[0].Fence
	tail, err := b.TailLog(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	for number := driver.WriteNo(1); number <= commits; number++ {
		Commit(t, s, AppendOf(f, number, make([]byte, size-10), make([]byte, 10)))
	}
	cost := func(reading string, read func() []driver.Entry) {
		t.Helper()
		for seq := driver.Seq(0); seq < 2*commits; {
			before := proxy.Stats().Replies.Forwarded
			entries := read()
			if n := proxy.Stats().Replies.Forwarded - before; n > most {
				t.Errorf("%s: a page of %d entries after %d costs %d bytes, want at most %d", reading, len(entries),
					seq, n, most)
			}
			if len(entries) == 0 {
				t.Fatalf("%s: no entries after %d", reading, seq)
			}
			for _, e := range entries {
				if seq++; e.Seq != seq {
					t.Fatalf("%s: entry %d follows %d", reading, e.Seq, seq-1)
				}
			}
		}
	}
	after := driver.Seq(0)
	cost("ReadLog", func() []driver.Entry {
		page, err := b.ReadLog(t.Context(), f.Shard, after, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		after += driver.Seq(len(page.Entries))
		return page.Entries
	})
	cost("TailLog", func() []driver.Entry {
		page, err := b.TailLog(t.Context(), tail.Cursor, 1<<20)
		if err != nil || page.Reset {
			t.Fatal(page, err)
		}
		tail = page
		return page.Entries
	})
}
