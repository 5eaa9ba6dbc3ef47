package sqlfault

import (
	"crypto/rand"
	stdsql "database/sql"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/sqlschema"
)

// Wide contains an SQL dialect's expressions for a text of n letters "x" and for n bytes.
type Wide struct{ Text, Bytes func(n int) string }

func (w Wide) of(column string, n int) string {
	if column == "payloads" || column == "value" {
		return w.Bytes(n)
	}
	return w.Text(n)
}

// OfServers returns the Wide for PostgreSQL, MySQL and MariaDB, which accept text as bytes.
func OfServers() Wide {
	letters := func(n int) string { return fmt.Sprintf("repeat('x', %d)", n) }
	return Wide{Text: letters, Bytes: letters}
}

// CheckBounds writes the largest values that the contract allows. It then writes values that are
// one byte longer, which the schema must refuse. The db function returns the database that contains
// a table.
func CheckBounds(t *testing.T, b driver.Backend, db func(table string) *stdsql.DB, w Wide) {
	t.Helper()
	name := func(n int) string { return strings.Repeat("n", n) }
	meta := make(map[string]string)
	for i := range driver.MaxMetaEntries {
		meta[fmt.Sprint(i, name(10))[:10]] = strings.Repeat("\x01", driver.MaxMetaBytes/driver.MaxMetaEntries-10)
	}
	if err := Join(t, b, "gone").Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	session := driver.SessionID((rand.Text() + rand.Text() + rand.Text())[:driver.MaxSessionLen])
	s, err := b.Join(t.Context(), driver.Member{Session: session, Node: name(driver.MaxNameLen), TTL: 10 * time.Second,
		MemberState: driver.MemberState{Meta: meta}})
	if err != nil {
		t.Fatal(err)
	}
	granted, _ := Acquire(t, s, []driver.Claim{{Shard: driver.ShardID(name(driver.MaxNameLen))}})
	f, limits := granted[0].Fence, b.Info().Limits
	entries := make([][]byte, limits.WriteOps)
	for i := range entries {
		entries[i] = make([]byte, limits.WriteBytes/limits.WriteOps)
	}
	Commit(t, s, AppendOf(f, 1, entries...))
	Commit(t, s, AppendOf(f, 2, make([]byte, limits.WriteBytes)))
	put := driver.Op{Kind: driver.OpPut, Key: name(driver.MaxKeyLen),
		Value: make([]byte, limits.WriteBytes-driver.MaxKeyLen)}
	Commit(t, s, driver.Write{Fence: f, Number: 3, Nonce: 1, Ops: []driver.Op{put}})
	page, err := b.ReadLog(t.Context(), f.Shard, 0, limits.WriteOps+1)
	if err != nil || len(page.Entries) != limits.WriteOps+1 {
		t.Errorf("the largest commits: %d entries, %v", len(page.Entries), err)
	}
	if it, err := b.Get(t.Context(), f.Shard, put.Key); err != nil || len(it.Value) != len(put.Value) {
		t.Errorf("the largest item: %v", err)
	}
	view, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil || len(view.Members) != 1 || !maps.Equal(view.Members[0].Meta, meta) || len(view.Shards) != 1 ||
		len(view.Damaged) > 0 {
		t.Errorf("the longest names: %+v, %v", view, err)
	}

	columns := map[string][]string{
		"namespaces": {"store_id", "namespace"}, "shards": {"shard", "session", "grants"}, "items": {"shard", "key", "value"},
		"logs": {"shard", "cuts", "payloads"}, "rosters": {"store_id"}, "nodes": {"node", "session"},
		"members": {"session", "node", "meta"}, "beats": {"session"}, "departures": {"session"},
	}
	for _, table := range slices.Sorted(maps.Keys(columns)) {
		for _, column := range columns[table] {
			width := sqlschema.Width(column)
			quoted := column
			if column == "key" {
				quoted = keyColumn(db(table))
			}
			text := fmt.Sprintf("UPDATE tenure_%s SET %s = %s", table, quoted, w.of(column, width+1))
			res, err := db(table).ExecContext(t.Context(), text)
			if err == nil {
				n, _ := res.RowsAffected()
				t.Errorf("tenure_%s.%s takes %d bytes in %d rows", table, column, width+1, n)
			}
		}
	}
	if _, err := db("probes").ExecContext(t.Context(), "INSERT INTO tenure_probes (id, version) VALUES ("+w.Text(65)+
		", 1)"); err == nil {
		t.Error("tenure_probes.id takes 65 bytes")
	}
}

// keyColumn returns the name of the key column, quoted for MySQL, in which "key" is a reserved
// word.
func keyColumn(db *stdsql.DB) string {
	if strings.Contains(fmt.Sprintf("%T", db.Driver()), "mysql") {
		return "`key`"
	}
	return "key"
}

// widen replaces names, metadata, values and entries with values of the given number of bytes.
func (w Wide) widen(t *testing.T, db func(table string) *stdsql.DB, wide int) {
	t.Helper()
	for _, text := range []string{
		"shards SET session = " + w.Text(wide) + " WHERE shard = 'shard-00000'",
		"items SET value = " + w.Bytes(wide) + " WHERE shard = 'shard-00001'",
		"logs SET payloads = " + w.Bytes(wide) + ", cuts = '[0,0]' WHERE shard = 'shard-00001' AND last_seq = 2",
		"logs SET cuts = " + w.Text(wide) + " WHERE shard = 'shard-00002'",
		"members SET meta = " + w.Text(wide) + " WHERE node = 'n1'",
		"members SET node = " + w.Text(wide) + " WHERE node = 'n2'",
		"nodes SET session = " + w.Text(wide) + " WHERE node = 'n2'",
	} {
		table, _, _ := strings.Cut(text, " ")
		if _, err := db(table).ExecContext(t.Context(), "UPDATE tenure_"+text); err != nil {
			t.Fatal(err)
		}
	}
}

// CheckWide creates rows with 8 MiB in names, metadata, values and entries, in tables from which an
// administrator removed checks and types. Calls that need these values must return an error without
// loading the values. CheckWide counts the process's allocations, so no other test may run at the
// same time.
func CheckWide(t *testing.T, b driver.Backend, db func(table string) *stdsql.DB, w Wide) {
	t.Helper()
	const wide = 8 << 20
	s, other := Join(t, b, "n1"), Join(t, b, "n2")
	granted, _ := Acquire(t, s, Claims(3))
	for i, g := range granted {
		put := driver.Op{Kind: driver.OpPut, Key: "k", Value: []byte("v")}
		Commit(t, s, driver.Write{Fence: g.Fence, Number: 1, Nonce: 1,
			Ops: []driver.Op{put, {Kind: driver.OpAppend, Value: []byte(fmt.Sprint(i))}}})
	}
	tail, err := b.TailLog(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	Commit(t, s, AppendOf(granted[1].Fence, 2, []byte("tail")))
	w.widen(t, db, wide)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	view, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil || len(view.Shards) != 2 || len(view.Members) != 1 || view.Members[0].Meta != nil ||
		len(view.Damaged) != 3 {
		t.Errorf("the view is %+v, %v; want 2 shards, 1 member, and 3 damaged records", view, err)
	}
	damaged := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, driver.ErrDamaged) {
			t.Errorf("%s: %v, want ErrDamaged", what, err)
		}
	}
	claims, err := s.Acquire(t.Context(), []driver.Claim{{Shard: "shard-00000"}, {Shard: "fresh"}})
	if err != nil || claims[1].Err != nil {
		t.Errorf("claims: %+v, %v", claims, err)
	} else {
		damaged("the claim", claims[0].Err)
	}
	writes, err := s.Commit(t.Context(),
		[]driver.Write{AppendOf(granted[0].Fence, 2, nil), AppendOf(granted[1].Fence, 3, nil)})
	if err != nil || writes[1].Err != nil {
		t.Errorf("commits: %+v, %v", writes, err)
	} else {
		damaged("the commit", writes[0].Err)
	}
	if err := s.Release(t.Context(), []driver.Fence{granted[0].Fence, granted[1].Fence}); err != nil {
		t.Errorf("releasing: %v", err)
	}
	_, err = b.Get(t.Context(), "shard-00001", "k")
	damaged("the item", err)
	_, err = b.List(t.Context(), "shard-00001", "", 0, 0)
	damaged("the items", err)
	if page, err := b.ReadLog(t.Context(), "shard-00001", 0, 1); err != nil || len(page.Entries) != 1 {
		t.Errorf("the entry before the wide one: %+v, %v", page, err)
	}
	_, err = b.ReadLog(t.Context(), "shard-00001", 1, 1)
	damaged("the wide payloads", err)
	_, err = b.ReadLog(t.Context(), "shard-00002", 0, 1)
	damaged("the wide cuts", err)
	if page, err := b.TailLog(t.Context(), tail.Cursor, 10); err != nil || !page.Reset {
		t.Errorf("the tail over a wide row: %+v, %v; want a reset", page, err)
	}
	if again, err := b.Join(t.Context(), driver.Member{Session: driver.SessionID(rand.Text()), Node: "n2",
		TTL: 10 * time.Second}); err != nil {
		t.Errorf("a join under a label whose row is wide: %v", err)
	} else if err := again.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := errors.Join(other.Beat(t.Context()), other.Close(t.Context())); err != nil {
		t.Errorf("the member whose row is wide: %v", err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > wide {
		t.Errorf("all these calls allocated %d bytes, want less than one of the values of %d", n, wide)
	}
	if _, err := db("namespaces").ExecContext(t.Context(), "UPDATE tenure_namespaces SET store_id = "+
		w.Text(wide)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Observe(t.Context(), driver.ObserveQuery{}); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("with a wide identity: %v, want ErrStoreChanged", err)
	}
}

// Damage returns the statements for a kind of tampering. The statements in data change the data
// tables, and those in roster change the roster tables. Each statement ends in a condition, to
// which the caller adds a condition on the namespace. The caller must turn the schema's checks off.
func Damage(what conformance.Tampering, name string, w Wide) (data, roster []string) {
	shard := func(set string) []string {
		return []string{"UPDATE tenure_namespaces SET revision = revision + 1 WHERE",
			fmt.Sprintf("UPDATE tenure_shards SET %s, revision = revision + 1000000 WHERE shard = '%s' AND", set, name)}
	}
	switch what {
	case conformance.CorruptShard:
		return shard("session = 'x\x1b{{{'"), nil
	case conformance.OversizeShard:
		return shard("session = " + w.Text(1<<20)), nil
	case conformance.ImpossibleShard:
		return shard("token = 4611686018427387905"), nil
	case conformance.CorruptHistory:
		return shard("session = '', grants = '\x1b[31m{{{/'"), nil
	case conformance.CorruptHead:
		return shard("number = -7, oldest = 9"), nil
	case conformance.CorruptEntry:
		return []string{fmt.Sprintf("UPDATE tenure_logs SET cuts = '{{{' WHERE shard = '%s' AND last_seq = 1 AND",
			name)}, nil
	case conformance.OddItem:
		return []string{fmt.Sprintf("INSERT INTO tenure_items SELECT DISTINCT namespace, shard, 'k2#x', 1, value FROM tenure_items "+
			"WHERE shard = '%s' AND", name)}, nil
	case conformance.RemoveEntry:
		return []string{fmt.Sprintf("DELETE FROM tenure_logs WHERE shard = '%s' AND last_seq = 1 AND", name)}, nil
	case conformance.RewriteShard:
		return []string{fmt.Sprintf("UPDATE tenure_shards SET token = token WHERE shard = '%s' AND", name)}, nil
	case conformance.RemoveShard:
		return []string{fmt.Sprintf("DELETE FROM tenure_shards WHERE shard = '%s' AND", name)}, nil
	case conformance.CorruptBeat:
		return nil, []string{fmt.Sprintf("UPDATE tenure_beats SET version = version + 1000003 WHERE session = '%s' AND",
			name)}
	case conformance.CorruptMember:
		return nil, []string{"UPDATE tenure_rosters SET revision = revision + 1 WHERE",
			fmt.Sprintf("UPDATE tenure_members SET meta = '{{{', revision = revision + 1000000 WHERE session = '%s' AND", name)}
	}
	return nil, nil
}
