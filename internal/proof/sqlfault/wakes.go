package sqlfault

import (
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/ample"
)

// CheckWakes makes many commits while an Observe waits, and many changes of owner while a TailLog
// waits. These changes are irrelevant to the waiting call, and must not make the call poll (O3).
// The reader polls every 10 s, and may be the same backend as the writer. The calls argument counts
// the reader's calls.
func CheckWakes(t *testing.T, writer, reader driver.Backend, calls *Calls) {
	t.Helper()
	const changes, looks, poll = 200, 10, 10 * time.Second
	s := Join(t, writer, "n1")
	granted, _ := Acquire(t, s, Claims(1))
	fence, number := granted[0].Fence, driver.WriteNo(0)
	commit := func() {
		number++
		Commit(t, s, AppendOf(fence, number, []byte("entry")))
	}
	transfer := func() {
		res, err := s.Transfer(t.Context(), []driver.Transfer{{Fence: fence, To: s.ID()}})
		if err != nil || res[0].Err != nil {
			t.Fatal(res, err)
		}
		fence = res[0].Fence
	}
	view, err := reader.Observe(t.Context(), driver.ObserveQuery{})
	if err != nil {
		t.Fatal(err)
	}
	quiet := ample.Beside(t, 50*time.Millisecond, nil)
	check := func(reading string, wait func() error, other, own func()) {
		t.Helper()
		before := calls.Reads.Load()
		done := make(chan error, 1)
		go func() { done <- wait() }()
		for range changes {
			other()
		}
		changed := time.Now()
		ample.Wait(t, "O2: "+reading+" is not woken by a change that it waits for", func() bool {
			own()
			select {
			case err := <-done:
				if err != nil {
					t.Fatalf("%s: %v", reading, err)
				}
				return true
			case <-time.After(100 * time.Millisecond): // a hint may be lost
				return false
			}
		})
		quiet.AtMost("O2: "+reading+" polled, and no change woke it, which", time.Since(changed), poll/2)
		if n := calls.Reads.Load() - before; n > looks {
			t.Errorf("O3: %s made %d reads during %d changes that it does not wait for; want at most %d", reading, n,
				changes, looks)
		}
	}
	check("Observe", func() error {
		_, err := reader.Observe(t.Context(), driver.ObserveQuery{Since: view.Cursor})
		return err
	}, commit, transfer)
	tail, err := reader.TailLog(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	check("TailLog", func() error {
		_, err := reader.TailLog(t.Context(), tail.Cursor, 1)
		return err
	}, transfer, commit)
}
