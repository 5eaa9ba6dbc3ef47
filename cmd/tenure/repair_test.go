//go:build unix

package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/core"
)

// TestRepair: unreadable plans are rebuilt once, as they were before. Readable plans are not
// rebuilt.
func TestRepair(t *testing.T) {
	t.Parallel()
	p := sqlitePlace(t)
	p.patient()
	p.run(exitOK, "init")
	p.bad(exitRefused, "no keyspace", "repair", "k", "--shards", "4", "--dry-run")
	p.bad(exitUsage, `keyspace "a/b"`, "repair", "a/b", "--shards", "4", "--dry-run")
	const q1, q2, q3 = "0x4000000000000000", "0x8000000000000000", "0xc000000000000000"
	want := []string{"k-0000 0x0000000000000000", "k-0004 0x2000000000000000", "k-0001 " + q1, "k-0002 " + q2, "k-0003 " + q3}
	stop, _ := p.manage("a")
	p.layout(want[0], want[2], want[3], want[4])
	p.run(exitOK, "split", "k-0000", "--at", "0x2000000000000000", "-y")
	p.layout(want...)
	repair := func(more ...string) []string { return append([]string{"repair", "k", "--shards", "4"}, more...) }
	p.bad(exitRefused, "understood", repair("--dry-run")...)
	stop()
	_, before, _ := p.exec("ranges")
	p.spoilPlans()

	p.bad(exitDamaged, "form 99", "ranges")
	p.bad(exitSilent, "form 99", "status") // nobody runs, too
	p.bad(exitUsage, "begins with 0 shards", "repair", "k", "-y")
	p.bad(exitUsage, "hash", repair("--hash", "md5", "-y")...)
	p.bad(exitDamaged, "ends at", "repair", "k", "--shards", "5", "-y")
	p.bad(exitDamaged, "it has 0 shards", "repair", "other", "--shards", "4", "-y")
	p.bad(exitRefused, "--yes", repair()...)
	for range 2 {
		if out, _ := p.run(exitOK, repair("--dry-run")...); out != before {
			t.Errorf("the map is rebuilt as\n%s\nwant\n%s", out, before)
		}
	}
	if out, _ := p.run(exitOK, repair("--dry-run", "-o", "json")...); !strings.Contains(out, `"keyspace": "k"`) {
		t.Errorf("as JSON the map is %s", out)
	}
	p.bad(exitDamaged, "form 99", "ranges")
	p.run(exitOK, repair("-y")...)
	if _, after, _ := p.exec("ranges"); after != before {
		t.Errorf("the ranges are\n%s\nand were\n%s", after, before)
	}
	p.bad(exitRefused, "understood", repair("-y")...)
	p.manage("b")
	p.layout(want...)
}

// spoilPlans replaces the plans with an entry in an unknown form.
func (p *place) spoilPlans() {
	p.t.Helper()
	a := &app{path: p.path, key: "tenure", timeout: limit}
	b, err := a.open(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	defer b.Close()
	o := a.conf.Options()
	o.Node, o.LockDir, o.Logger = "spoiler", "none", slog.New(slog.DiscardHandler)
	err = core.RunSingleton(p.t.Context(), b, "_assigner", func(ctx context.Context, l *core.Lease) error {
		seq, err := l.Append(ctx, []byte{99, 1})
		if err == nil {
			_, err = l.Commit(ctx, core.Trim(seq-1))
		}
		return err
	}, o)
	if err != nil {
		p.t.Fatal(err)
	}
}
