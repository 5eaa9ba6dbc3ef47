package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/sql/internal/engine"
	"github.com/tenure-go/tenure/backends/sql/internal/enginetest"
	"github.com/tenure-go/tenure/conformance"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/sqlfault"
)

func TestConformance(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var version string
	if err := db.QueryRowContext(t.Context(), "SELECT sqlite_version()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	conformance.Test(t, conformance.Harness{
		Name:    backendName,
		Version: "SQLite " + version,
		New:     func(t conformance.T) *conformance.Store { return newHarness(t).store(t) },
	})
}

// harness is one pair of database files.
type harness struct {
	path   string
	calls  sqlfault.Calls
	denied atomic.Bool
}

// deniable is a store that refuses commits as a read-only file does.
type deniable struct {
	engine.Store
	h *harness
}

func (d deniable) WriteData(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	if !d.h.denied.Load() {
		return d.Store.WriteData(ctx, fn)
	}
	db, err := sql.Open("sqlite", "file:"+d.h.path+"?mode=ro")
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "DELETE FROM tenure_logs")
	return d.Classify(err)
}

const harnessNamespace = "suite/case"

func newHarness(t conformance.T) *harness {
	dir, err := os.MkdirTemp("", "tenure-sqlite-")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &harness{path: filepath.Join(dir, "suite.db")}
}

func (h *harness) store(t conformance.T) *conformance.Store {
	open := func(namespace string, o Options, change ...string) func(context.Context) (driver.Backend, error) {
		return func(ctx context.Context) (driver.Backend, error) {
			return h.open(ctx, namespace, &o, change...)
		}
	}
	return &conformance.Store{
		Open:         open(harnessNamespace, Options{}),
		OpenExisting: open(harnessNamespace, Options{Create: new(false)}),
		OpenNamespace: func(ctx context.Context, suffix string) (driver.Backend, error) {
			return h.open(ctx, harnessNamespace+suffix, nil)
		},
		OpenLying: open(harnessNamespace, Options{}, "-- name: namespace_insert\n", sqlfault.LyingProbe("")+"\n-- name: namespace_insert\n"),
		OpenFaulty: func(ctx context.Context) (driver.Backend, *conformance.Wire, error) {
			w := new(sqlfault.Wire)
			b, err := h.openOn(ctx, harnessNamespace, nil, w)
			return b, &conformance.Wire{DropRequests: w.DropRequests, DropReplies: w.DropReplies, Hold: w.Hold, Cut: w.Cut}, err
		},
		Calls: func() conformance.Calls {
			return conformance.Calls{Reads: h.calls.Reads.Load(), Writes: h.calls.Writes.Load()}
		},
		Compact: func(ctx context.Context) error {
			return h.exec(ctx, membersSuffix, "UPDATE tenure_rosters SET revision = revision + 10000")
		},
		Deny: func(context.Context) (func(context.Context) error, error) {
			h.denied.Store(true)
			return func(context.Context) error {
				h.denied.Store(false)
				return nil
			}, nil
		},
		Tamper:     h.tamper,
		Wipe:       h.wipe,
		Snapshot:   h.snapshot,
		RaiseFloor: sqlfault.RaiseFloor(open(harnessNamespace, Options{})),
		Guards:     []conformance.Guard{h.guard(t)},
	}
}

// guard returns the fence for transactions on the data file. The file is opened when a case begins
// a transaction.
func (h *harness) guard(t conformance.T) conformance.Guard {
	d := &sqlfault.Database{Namespace: harnessNamespace}
	opened := sync.OnceValue(func() (err error) {
		if d.DB, err = OpenDB(h.path); err != nil {
			return err
		}
		t.Cleanup(func() { d.DB.Close() })
		_, err = d.DB.ExecContext(t.Context(), sqlfault.TextsTable)
		return err
	})
	g := d.FenceTx(func(ctx context.Context) (*sql.Tx, error) {
		if err := opened(); err != nil {
			return nil, err
		}
		return d.DB.BeginTx(ctx, nil)
	})
	texts := g.Texts
	g.Texts = func(ctx context.Context) ([]string, error) {
		if err := opened(); err != nil {
			return nil, err
		}
		return texts(ctx)
	}
	return g
}

// open opens a backend that counts its calls. change replaces text in the
// statements.
func (h *harness) open(ctx context.Context, namespace string, o *Options, change ...string) (driver.Backend, error) {
	return h.openOn(ctx, namespace, o, new(sqlfault.Wire), change...)
}

func (h *harness) openOn(ctx context.Context, namespace string, o *Options, w *sqlfault.Wire, change ...string) (driver.Backend, error) {
	b, _, err := h.openStore(ctx, namespace, o, w, change...)
	return b, err
}

func (h *harness) openStore(
	ctx context.Context, namespace string, o *Options, w *sqlfault.Wire, change ...string,
) (driver.Backend, *store, error) {
	opts, err := o.withDefaults()
	if err != nil {
		return nil, nil, err
	}
	text, err := files.ReadFile("statements.sql")
	if err != nil {
		return nil, nil, err
	}
	stmts, err := engine.Compile(strings.NewReplacer(change...).Replace(string(text)), opts.TablePrefix, placeholder)
	if err != nil {
		return nil, nil, err
	}
	st, err := openStore(ctx, h.path, opts, stmts)
	if err != nil {
		return nil, nil, err
	}
	b, err := engine.New(ctx, config(namespace, opts, &enginetest.Store{Store: deniable{st, h}, Calls: &h.calls, Wire: w}, stmts))
	if err != nil {
		return nil, nil, err
	}
	return b, st, nil
}

// exec runs statements on one of the files, without the driver and the schema's checks.
func (h *harness) exec(ctx context.Context, suffix string, statements ...string) error {
	db, err := OpenDB(h.path + suffix)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, "PRAGMA ignore_check_constraints = 1"); err != nil {
		return err
	}
	return inTx(ctx, db, statements)
}

func inTx(ctx context.Context, db *sql.DB, statements []string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// wide makes strings and bytes that repeat the letter x.
var wide = sqlfault.Wide{
	Text:  func(n int) string { return fmt.Sprintf("printf('%%.*c', %d, 'x')", n) },
	Bytes: func(n int) string { return fmt.Sprintf("zeroblob(%d)", n) },
}

func (h *harness) tamper(ctx context.Context, what conformance.Tampering, name string) error {
	data, roster := sqlfault.Damage(what, name, wide)
	if len(data)+len(roster) == 0 {
		return errors.ErrUnsupported
	}
	for suffix, statements := range map[string][]string{"": data, membersSuffix: roster} {
		for i := range statements {
			statements[i] += " namespace = '" + harnessNamespace + "'"
		}
		if err := h.exec(ctx, suffix, statements...); err != nil {
			return err
		}
	}
	return nil
}

// TestBounds: the schema accepts the largest values, and refuses larger ones.
func TestBounds(t *testing.T) {
	t.Parallel()
	b, db := openBeside(t, false)
	sqlfault.CheckBounds(t, b, db, wide)
}

// TestWideRows is not parallel, because it counts allocations.
func TestWideRows(t *testing.T) {
	b, db := openBeside(t, true)
	sqlfault.CheckWide(t, b, db, wide)
}

// openBeside opens a backend, and also opens both of its files directly.
func openBeside(t *testing.T, unchecked bool) (driver.Backend, func(table string) *sql.DB) {
	t.Helper()
	h := &harness{path: filepath.Join(t.TempDir(), "suite.db")}
	b, err := h.open(t.Context(), "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	beside := make(map[string]*sql.DB)
	for _, suffix := range []string{"", membersSuffix} {
		db, err := OpenDB(h.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		db.SetMaxOpenConns(1)
		if unchecked {
			if _, err := db.ExecContext(t.Context(), "PRAGMA ignore_check_constraints = 1"); err != nil {
				t.Fatal(err)
			}
		}
		beside[suffix] = db
	}
	return b, func(table string) *sql.DB {
		switch table {
		case "rosters", "nodes", "members", "beats", "departures":
			return beside[membersSuffix]
		}
		return beside[""]
	}
}

func (h *harness) wipe(ctx context.Context) error {
	data := make([]string, 0, 8)
	for _, t := range []string{"namespaces", "shards", "items", "logs", "tails"} {
		data = append(data, "DELETE FROM tenure_"+t)
	}
	var roster []string
	for _, t := range []string{"rosters", "nodes", "members", "beats", "departures"} {
		roster = append(roster, "DELETE FROM tenure_"+t)
	}
	if err := h.exec(ctx, "", data...); err != nil {
		return err
	}
	return h.exec(ctx, membersSuffix, roster...)
}

// snapshot copies every table, so that restore brings them back in place.
func (h *harness) snapshot(ctx context.Context) (func(context.Context) error, error) {
	dir := h.path + ".snapshot" + fmt.Sprint(time.Now().UnixNano())
	for _, suffix := range []string{"", membersSuffix} {
		if err := h.vacuumInto(ctx, suffix, dir+suffix); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context) error {
		for _, suffix := range []string{"", membersSuffix} {
			if err := h.restore(ctx, suffix, dir+suffix); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func (h *harness) vacuumInto(ctx context.Context, suffix, to string) error {
	db, err := OpenDB(h.path + suffix)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", to)
	return err
}

func (h *harness) restore(ctx context.Context, suffix, from string) error {
	db, err := OpenDB(h.path + suffix)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, "ATTACH ? AS old", from); err != nil {
		return err
	}
	rows, err := db.QueryContext(ctx, "SELECT name FROM main.sqlite_master WHERE type = 'table'")
	if err != nil {
		return err
	}
	var statements []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return errors.Join(err, rows.Close())
		}
		statements = append(statements, "DELETE FROM main."+name, "INSERT INTO main."+name+" SELECT * FROM old."+name)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	return inTx(ctx, db, statements)
}

// TestWakes: commits do not wake Observe in the same process.
func TestWakes(t *testing.T) {
	t.Parallel()
	h := &harness{path: filepath.Join(t.TempDir(), "suite.db")}
	b, err := h.open(t.Context(), "app", &Options{PollPeriod: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	sqlfault.CheckWakes(t, b, b, &h.calls)
}

// newStore opens a store that the caller closes, and returns the other parts of a backend.
func newStore(t *testing.T) (*store, *Options, *engine.Statements) {
	t.Helper()
	o, err := (&Options{}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	text, err := files.ReadFile("statements.sql")
	if err != nil {
		t.Fatal(err)
	}
	stmts, err := engine.Compile(string(text), o.TablePrefix, placeholder)
	if err != nil {
		t.Fatal(err)
	}
	st, err := openStore(t.Context(), filepath.Join(t.TempDir(), "suite.db"), o, stmts)
	if err != nil {
		t.Fatal(err)
	}
	return st, o, stmts
}

// TestCauseOfRunningCall: a caller's reason for giving up a running transaction says nothing about
// the transaction's outcome (E1).
func TestCauseOfRunningCall(t *testing.T) {
	t.Parallel()
	st, _, _ := newStore(t)
	defer st.Close()
	runs, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-runs
		cancel(driver.ErrFenced)
	}()
	err := st.WriteData(ctx, func(context.Context, *engine.Tx) error {
		close(runs)
		<-end
		return nil
	})
	if !driver.Unknown(err) || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "fenced") {
		t.Errorf("the call answers %v", err)
	}
}

// impatient abandons writes of one kind, which the store completes later.
type impatient struct {
	engine.Store
	data, roster bool
	late         sync.WaitGroup
}

var errTurnedAway = errors.New("turned away")

func (s *impatient) WriteData(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	if !s.data {
		return s.Store.WriteData(ctx, fn)
	}
	s.late.Go(func() { _ = s.Store.WriteData(ctx, fn) })
	return errTurnedAway
}

func (s *impatient) WriteRoster(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	if !s.roster {
		return s.Store.WriteRoster(ctx, fn)
	}
	s.late.Go(func() { _ = s.Store.WriteRoster(ctx, fn) })
	return errTurnedAway
}

func (s *impatient) Close() error {
	s.late.Wait()
	return s.Store.Close()
}

// TestOpeningTurnsAway: an opening whose context ends while the identity is written shares nothing
// with the store's goroutine. Otherwise, the race detector would fail.
func TestOpeningTurnsAway(t *testing.T) {
	t.Parallel()
	for _, roster := range []bool{true, false} {
		st, o, stmts := newStore(t)
		_, err := engine.New(t.Context(), config("app", o, &impatient{Store: st, roster: roster, data: !roster}, stmts))
		if !errors.Is(err, errTurnedAway) {
			t.Error(err)
		}
	}
}

// hurried runs a function before each snapshot of the roster.
type hurried struct {
	engine.Store
	before func()
}

func (s *hurried) ReadRoster(ctx context.Context, fn func(context.Context, *engine.Tx) error) error {
	if s.before != nil {
		s.before()
	}
	return s.Store.ReadRoster(ctx, fn)
}

// TestDeparturesForgottenMeanwhile: if a look at the roster is so late that departures after its
// cursor may be forgotten, the answer is not limited to the remaining departures (O1).
func TestDeparturesForgottenMeanwhile(t *testing.T) {
	t.Parallel()
	st, o, stmts := newStore(t)
	roster := &hurried{Store: st}
	b, err := engine.New(t.Context(), config("app", o, roster, stmts))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	view, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	sqlfault.Join(t, b, "n1")
	roster.before = func() {
		h := &harness{path: st.data.path}
		if err := h.exec(t.Context(), membersSuffix, "UPDATE tenure_rosters SET revision = revision + 5000"); err != nil {
			t.Error(err)
		}
	}
	if v, err := b.Observe(t.Context(), driver.ObserveQuery{Since: view.Cursor}); !errors.Is(err, driver.ErrRetry) {
		t.Errorf("observing from before 5,000 changes: %+v, %v; want ErrRetry", v, err)
	}
	roster.before = nil
	if v, err := b.Observe(t.Context(), driver.ObserveQuery{Since: view.Cursor}); err != nil || !v.Reset || len(v.Members) != 1 {
		t.Errorf("observing again: %+v, %v; want the full state", v, err)
	}
}

// TestImpossibleMember: a record with which no member could have joined is not reported. A record
// with too much metadata is reported without the metadata.
func TestImpossibleMember(t *testing.T) {
	t.Parallel()
	h := &harness{path: filepath.Join(t.TempDir(), "suite.db")}
	b, err := h.open(t.Context(), "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	good, bad, wordy := sqlfault.Join(t, b, "n1"), sqlfault.Join(t, b, "n2"), sqlfault.Join(t, b, "n3")
	view, err := b.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, ttl := range []string{"1", "0", "-1", "9223372036854775807"} {
		err := h.exec(t.Context(), membersSuffix, "UPDATE tenure_rosters SET revision = revision + 1",
			"UPDATE tenure_members SET revision = (SELECT revision FROM tenure_rosters)",
			fmt.Sprintf("UPDATE tenure_members SET ttl_ns = %s WHERE session = '%s'", ttl, bad.ID()),
			fmt.Sprintf("UPDATE tenure_members SET meta = '{\"k\":\"%s\"}' WHERE session = '%s'", strings.Repeat("x", driver.MaxMetaBytes), wordy.ID()))
		if err != nil {
			t.Fatal(err)
		}
		for _, since := range []driver.Cursor{"", view.Cursor} {
			v, err := b.Observe(t.Context(), driver.ObserveQuery{Since: since})
			if err != nil {
				t.Fatal(err)
			}
			var got []driver.SessionID
			for _, m := range v.Members {
				got = append(got, m.Session)
				if m.Meta != nil {
					t.Errorf("member %+v has metadata", m)
				}
			}
			if len(got) != 2 || !slices.Contains(got, good.ID()) || !slices.Contains(got, wordy.ID()) {
				t.Errorf("with a TTL of %s ns, since %q: members %v, want %v", ttl, since, got, []driver.SessionID{good.ID(), wordy.ID()})
			}
		}
	}
}
