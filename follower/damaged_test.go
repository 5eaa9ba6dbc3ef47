package follower

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

// TestDamagedLog: if a log cannot be read, the failures are logged at growing intervals, although
// the Tailer tries again more often. When the log is repaired, the follower continues.
func TestDamagedLog(t *testing.T) {
	bubble(t, func(w *world) {
		o := newOwner(w, w.open(), "owner")
		o.append("s", 5)
		o.take("s")
		b := &faultyBackend{Backend: w.open()}
		b.read = func(shard driver.ShardID, _ driver.Seq, page *driver.LogPage, err error) (*driver.LogPage, error) {
			if err == nil && len(page.Entries) > 0 {
				return nil, driver.Damaged("log/s/5", shard, "its cuts do not fit")
			}
			return page, err
		}
		l := newApplication(w)
		var log bytes.Buffer // read only while all goroutines are durably blocked
		failures := 0
		r := run(w, b, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil)),
			OnEvent: func(e Event) {
				if e.Kind == Failed && errors.Is(e.Err, core.ErrDamaged) {
					failures++
				}
			}}, Memory(l.apply, nil))
		const minutes = 10
		time.Sleep(minutes * time.Minute)
		synctest.Wait()
		if n := strings.Count(log.String(), "log/s/5"); n != 3 || failures <= n {
			w.Errorf("%d failures, of which %d are logged in %d minutes", failures, n, minutes)
		}
		b.mu.Lock()
		b.read = nil
		b.mu.Unlock()
		r.until("s", 5)
		r.end()
	})
}
