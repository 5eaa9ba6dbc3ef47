package sqlite

import (
	"context"
	sqldriver "database/sql/driver"
	"errors"
	"os"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/tenure-go/tenure/core/driver"
)

// TestLateNumbers: a process that writes its number late does not overwrite a greater number, and
// no number is mistaken for a mark.
func TestLateNumbers(t *testing.T) {
	t.Parallel()
	st, o, _ := newStore(t)
	defer st.Close()
	count, err := openTransactions(st.data.path+"-other", o.TablePrefix)
	if count != nil || err == nil {
		t.Fatalf("the count of a database that is not there: %v", err)
	}
	count = st.data.count
	for n := int64(1000); n < 1000+2*numberSlots; n++ {
		count.committed(n + 1)
		count.committed(n)
		if last, mark, err := count.read(); err != nil || last != n+1 || mark != 0 {
			t.Fatalf("after %d and %d the last number is %d, and the mark %d: %v", n+1, n, last, mark, err)
		}
	}
}

// TestFailedCommitIsNotCounted: if the number of a failed commit were written, the commit would
// count as lost.
func TestFailedCommitIsNotCounted(t *testing.T) {
	t.Parallel()
	st, _, _ := newStore(t)
	defer st.Close()
	c, err := settled(st.data.path, userWait, flushed, st.data.check)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := counting{c, st.data.count}.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	on := conn.(*counted)
	for _, fails := range []bool{false, true, false} {
		var refuse int32
		if fails {
			refuse = 1
		}
		on.countedConn.(sqlite.HookRegisterer).RegisterCommitHook(func() int32 { return refuse })
		before, _, err := st.data.count.read()
		if err != nil {
			t.Fatal(err)
		}
		tx, err := on.BeginTx(t.Context(), sqldriver.TxOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := on.ExecContext(t.Context(), "UPDATE tenure_schema SET version = version", nil); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); fails != (err != nil) {
			t.Errorf("commit: %v, which is to fail: %v", err, fails)
		}
		after, _, err := st.data.count.read()
		if err != nil || fails && after != before || !fails && after != before+1 {
			t.Errorf("the last number is %d after it was %d, with a commit that fails: %v; %v", after, before, fails, err)
		}
	}
}

// TestOpeningWaitsForTheOther: two processes open a database whose log was lost. One waits for the
// other, and does not mistake that process for one that still has the log.
func TestOpeningWaitsForTheOther(t *testing.T) {
	t.Parallel()
	st, o, _ := newStore(t)
	path := st.data.path
	st.data.count.committed(1)
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	index := path + indexSuffix
	if err := os.WriteFile(index, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	free, err := alone(t.Context(), path, func() error {
		if err := os.Remove(path + logSuffix); err != nil { // as before the log has been made
			return err
		}
		go func() { opened <- checkLog(t.Context(), path, o.TablePrefix) }()
		select {
		case err := <-opened:
			return errors.Join(errors.New("opened while another process decides"), err)
		case <-time.After(500 * time.Millisecond):
			return os.Remove(index)
		}
	})
	if !free || err != nil {
		t.Fatalf("alone: %v, %v", free, err)
	}
	if err := <-opened; err != nil {
		t.Errorf("the other: %v", err)
	}
}

// TestAloneEnds: the end of a context does not prove that no process has the database open.
func TestAloneEnds(t *testing.T) {
	t.Parallel()
	st, o, _ := newStore(t)
	defer st.Close()
	st.data.count.committed(1)
	st.data.count.mark(logFile)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := checkLog(ctx, st.data.path, o.TablePrefix); !errors.Is(err, driver.ErrStoreChanged) {
		t.Errorf("%v, want ErrStoreChanged", err)
	}
}
