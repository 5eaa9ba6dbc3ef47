//go:build unix

package sqlite_test

import (
	stdsql "database/sql"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/tenure-go/tenure/backends/sql/sqlite"
	"github.com/tenure-go/tenure/core/driver"
)

// lost is a database that has lost its log, and the entries that were acknowledged before the loss.
type lost struct {
	path  string
	acked []string
	ended error // of the processes
}

// loseLog makes processes append to a database, removes its log, and ends them all.
func loseLog(t *testing.T, kill bool) lost {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: processes that lose their log run in .ci/run")
	}
	l := lost{path: dbPath(t)}
	var processes []*process
	for i := range 3 {
		p := start(t, fmt.Sprint("p", i), l.path)
		processes = append(processes, p)
		l.acked = append(l.acked, p.next(t, 10)...)
	}
	if err := os.Remove(l.path + "-wal"); err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if kill {
			p.cmd.Process.Kill()
			continue
		}
		p.in.Close()
	}
	for _, p := range processes {
		lines := p.rest()
		err := p.cmd.Wait()
		if l.acked = append(l.acked, lines...); !kill {
			l.ended = errors.Join(l.ended, err)
		}
	}
	return l
}

// missing opens the database and returns how many of the acknowledged entries it lacks. If the
// database is refused, missing counts them in a copy without the files that caused the refusal.
func (l lost) missing(t *testing.T) (n int, err error) {
	b, err := sqlite.Open(t.Context(), l.path, "app", nil)
	if err != nil {
		b, failed := sqlite.Open(t.Context(), copied(t, l.path, "-shm", "-tenure_transactions"), "app", nil)
		if failed != nil {
			t.Errorf("a copy: %v", failed)
			return len(l.acked), err
		}
		n, failed := l.lacks(t, b)
		if failed != nil {
			t.Errorf("a copy: %v", failed)
		}
		return n, err
	}
	return l.lacks(t, b)
}

// lacks returns how many of the acknowledged entries a backend lacks, and closes it.
func (l lost) lacks(t *testing.T, b *sqlite.Backend) (n int, err error) {
	defer func() { err = errors.Join(err, b.Close()) }()
	log := make(map[driver.Seq]string)
	for after := driver.Seq(0); ; {
		page, err := b.ReadLog(t.Context(), "a", after, 1000)
		if err != nil {
			return 0, err
		}
		for _, e := range page.Entries {
			after, log[e.Seq] = e.Seq, fmt.Sprint(e.Seq, int64(e.Token), " ", string(e.Payload))
		}
		if len(page.Entries) == 0 {
			break
		}
	}
	for _, line := range l.acked {
		var seq driver.Seq
		if _, err := fmt.Sscan(line, &seq); err != nil {
			return 0, fmt.Errorf("line %q: %w", line, err)
		}
		if log[seq] != line {
			n++
		}
	}
	return n, nil
}

// look opens a database without Tenure, as an administrator with an SQLite tool does. When the tool
// ends, it writes back or removes the files beside the database.
func look(t *testing.T, path string) {
	t.Helper()
	db, err := stdsql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	var result string
	err = db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&result)
	if err := errors.Join(err, db.Close()); err != nil || result != "ok" {
		t.Logf("integrity_check: %s, %v", result, err)
	}
}

// TestLostLogIsWrittenBack: processes that lost their log write it back when they end, or report
// that they failed. Several may end at the same time (I1).
func TestLostLogIsWrittenBack(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		l := loseLog(t, false)
		missing, err := l.missing(t)
		t.Logf("run %d: %d entries, %d missing; the processes ended with %v, opening with %v", i, len(l.acked), missing, l.ended, err)
		switch {
		case l.ended != nil && !errors.Is(err, driver.ErrStoreChanged):
			t.Errorf("the processes said %v, and the database opens: %v", l.ended, err)
		case l.ended == nil && missing > 0:
			t.Errorf("%d of %d acknowledged entries are missing, and the database opens with %v", missing, len(l.acked), err)
		case l.ended == nil && err != nil:
			t.Errorf("nothing is missing, and the database is refused: %v", err)
		}
	}
}

// loseLogOfTwo makes two processes use a database, removes its log, and ends the process that
// wrote.
func loseLogOfTwo(t *testing.T) (l lost, idle *process) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: processes that lose their log run in .ci/run")
	}
	l = lost{path: dbPath(t)}
	idle = start(t, "idle", l.path)
	idle.next(t, 1)
	writer := start(t, "writer", l.path)
	l.acked = writer.next(t, 30)
	if err := os.Remove(l.path + "-wal"); err != nil {
		t.Fatal(err)
	}
	writer.in.Close()
	l.acked = append(l.acked, writer.rest()...)
	if err := writer.cmd.Wait(); err != nil {
		t.Error(err)
	}
	return l, idle
}

func (l lost) nothingMissing(t *testing.T) {
	t.Helper()
	if missing, err := l.missing(t); missing > 0 || err != nil {
		t.Errorf("%d of %d acknowledged entries are missing, and the database opens with %v", missing, len(l.acked), err)
	}
}

// TestWrittenBackLogOpens: a database whose log was lost and written back can be opened. A process
// with nothing to write back was killed, so SQLite removed neither the log nor its index.
func TestWrittenBackLogOpens(t *testing.T) {
	t.Parallel()
	l, idle := loseLogOfTwo(t)
	refuse(t, l.path, "app", nil, driver.ErrStoreChanged, "end every process that uses it")
	idle.kill()
	if _, err := os.Stat(l.path + "-shm"); err != nil {
		t.Errorf("nothing is shown without the index: %v", err)
	}
	l.nothingMissing(t)
}

// TestLostLogOneByOne: after a log was lost, no process opens the database until every process that
// had the log has ended, even if an SQLite tool has created another log. Otherwise, the processes
// would write back data that is not in that log (I1).
func TestLostLogOneByOne(t *testing.T) {
	t.Parallel()
	l, idle := loseLogOfTwo(t)
	look(t, l.path)
	if _, err := os.Stat(l.path + "-wal"); err != nil {
		t.Errorf("nothing is shown without another log: %v", err)
	}
	refuse(t, l.path, "app", nil, driver.ErrStoreChanged, "end every process that uses it")
	idle.in.Close()
	if err := idle.cmd.Wait(); err != nil {
		t.Error(err)
	}
	l.nothingMissing(t)
}

// TestOpenedAtOnce: after a lost log was written back, several processes open the database at the
// same time. None of them mistakes another for a process that still has the log.
func TestOpenedAtOnce(t *testing.T) {
	t.Parallel()
	l := lost{path: dbPath(t)}
	idle := start(t, "idle", l.path)
	idle.next(t, 1)
	if err := os.Remove(l.path + "-wal"); err != nil {
		t.Fatal(err)
	}
	idle.in.Close()
	if err := idle.cmd.Wait(); err != nil {
		t.Error(err)
	}
	for range 5 {
		// This is the state that a killed process with nothing to write back leaves.
		if err := os.WriteFile(l.path+"-shm", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var processes []*process
		for range 4 {
			processes = append(processes, start(t, "idle", l.path))
		}
		for _, p := range processes {
			p.next(t, 1)
		}
		for _, p := range processes {
			p.in.Close()
			if err := p.cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestLostLogIsNotForgotten: if a log was lost and its processes were killed, the database is
// refused, whatever happens to its files afterwards (I1).
func TestLostLogIsNotForgotten(t *testing.T) {
	t.Parallel()
	l := lost{path: dbPath(t)}
	var processes []*process
	for i := range 3 {
		// The processes append so little that all of it is in the log.
		p := start(t, fmt.Sprint("some", i), l.path)
		processes = append(processes, p)
		l.acked = append(l.acked, p.next(t, 10)...)
	}
	for _, p := range processes {
		p.kill()
	}
	if err := os.Remove(l.path + "-wal"); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"as it is":          copied(t, l.path),
		"without the index": copied(t, l.path, "-shm"),
		"looked at":         copied(t, l.path),
	} {
		if name == "looked at" {
			look(t, path)
			if _, err := os.Stat(path + "-shm"); err == nil {
				t.Error("the index is still there: nothing is shown")
			}
		}
		refuse(t, path, "app", nil, driver.ErrStoreChanged, "end every process that uses it")
		refuse(t, path, "app", &sqlite.Options{NewRoster: true}, driver.ErrStoreChanged, "end every process that uses it")
	}
}

// TestLogLostInWrites: a database lost its log in the middle of writes, before the writers were
// killed. It can be opened only if SQLite had written everything back (I1).
func TestLogLostInWrites(t *testing.T) {
	t.Parallel()
	for range 3 {
		l := loseLog(t, true)
		for name, path := range map[string]string{
			"as it is":          copied(t, l.path),
			"without the index": copied(t, l.path, "-shm"),
			"looked at":         copied(t, l.path),
		} {
			if name == "looked at" {
				look(t, path)
			}
			b, err := sqlite.Open(t.Context(), path, "app", nil)
			if err != nil {
				if !errors.Is(err, driver.ErrStoreChanged) {
					t.Errorf("%s: %v, want ErrStoreChanged", name, err)
				}
				continue
			}
			missing, err := l.lacks(t, b)
			if missing > 0 || err != nil {
				t.Errorf("%s: opened, and %d of %d acknowledged entries are missing, %v", name, missing, len(l.acked), err)
			}
		}
	}
}

// TestCopyWithoutLog: a copy of the files without the log, made while processes had the database
// open, is refused. A copy with the log is accepted, although processes were killed and an
// administrator has opened it since (I1).
func TestCopyWithoutLog(t *testing.T) {
	t.Parallel()
	path := dbPath(t)
	before, err := sqlite.Open(t.Context(), path, "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	join(t, before, "before")
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	p := start(t, "p", path)
	l := lost{acked: p.next(t, 40)}
	p.kill()
	l.acked = append(l.acked, p.rest()...)
	for _, suffix := range []string{"", "-members"} {
		without := copied(t, path, suffix+"-wal", suffix+"-shm")
		refuse(t, without, "app", nil, driver.ErrStoreChanged, "end every process that uses it")
		for _, mark := range []string{"-tenure_transactions", "-members-tenure_transactions"} {
			if err := os.Remove(without + mark); err != nil && !os.IsNotExist(err) {
				t.Error(err)
			}
		}
	}
	for _, seen := range []bool{false, true} {
		l.path = copied(t, path)
		if seen {
			look(t, l.path)
			look(t, l.path+"-members")
		}
		if missing, err := l.missing(t); missing > 0 || err != nil {
			t.Errorf("looked at: %v; %d of %d acknowledged entries are missing, %v", seen, missing, len(l.acked), err)
		}
	}
}
