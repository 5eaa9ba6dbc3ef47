package core

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/listing"
)

// damaged collects a member's reports of damaged records.
type damaged struct {
	log   bytes.Buffer // written by one goroutine; read when all goroutines are durably blocked
	hooks []string
}

func (d *damaged) options(o *Options) {
	o.Logger = slog.New(slog.NewTextHandler(&d.log, nil))
	onEvent(o, func(e Event) {
		found, _ := errors.AsType[*DamagedError](e.Err)
		d.hooks = append(d.hooks, found.Key)
	}, RecordDamaged)
}

// lines returns the number of log lines that name a record.
func (d *damaged) lines(key string) (n int) {
	for line := range strings.SplitSeq(d.log.String(), "\n") {
		if strings.Contains(line, "damaged record") && strings.Contains(line, "key="+key) {
			n++
		}
	}
	return n
}

func (d *damaged) once(w *world, key string) {
	w.Helper()
	synctest.Wait()
	if n := d.lines(key); n != 1 || len(d.hooks) != 1 || d.hooks[0] != key {
		w.Errorf("%s: %d lines, hooks %q; want one of each:\n%s", key, n, d.hooks, d.log.String())
	}
}

// TestDamagedHead: commits to a shard with a damaged head fail immediately, and succeed once the
// head is repaired. Other shards continue. The log, the hook and the view report the damage once.
func TestDamagedHead(t *testing.T) {
	bubble(t, func(w *world) {
		var told damaged
		m := w.member("a", told.options)
		var bad, good leases
		w.must(m.Contend(bad.hold, "bad"))
		w.must(m.Contend(good.hold, "good"))
		lease, other := bad.await(w, 1), good.await(w, 1)
		_, err := lease.Append(w.Context(), []byte("before"))
		w.must(err)
		const key = "test/!head/bad"
		sound, _ := w.store.Record(key)
		w.store.Tamper(key, []byte("junk"))
		for range 3 {
			began := time.Now()
			_, err := lease.Append(w.Context(), []byte("x"))
			if d, ok := errors.AsType[*DamagedError](err); !ok || d.Key != key || d.Shard != "bad" || !NotApplied(err) || time.Since(began) > ttl/10 {
				w.Errorf("after %v: %v; want a DamagedError of %s at once", time.Since(began), err, key)
			}
			_, err = other.Append(w.Context(), []byte("x"))
			w.must(err)
		}
		told.once(w, key)
		if v := m.View(); len(v.Damaged) != 1 || v.Damaged[0].Key != key || v.DamagedTotal != 1 {
			w.Errorf("the view has %+v, %d in all; want %s", v.Damaged, v.DamagedTotal, key)
		}
		w.store.Tamper(key, sound)
		if n, err := lease.Append(w.Context(), []byte("after")); n != 2 || err != nil {
			w.Errorf("when the head is mended: entry %d, %v", n, err)
		}
		time.Sleep(3 * time.Minute)
		if v := m.View(); len(v.Damaged) != 0 || v.DamagedTotal != 1 {
			w.Errorf("3 minutes after it was mended the view has %+v, %d in all", v.Damaged, v.DamagedTotal)
		}
	})
}

// TestDamagedUnknown: if a commit has an unknown outcome and the head is damaged, the commit does
// not wait for the end of the lease.
func TestDamagedUnknown(t *testing.T) {
	bubble(t, func(w *world) {
		m := w.member("a")
		var h leases
		w.must(m.Contend(h.hold, "s"))
		lease := h.await(w, 1)
		m.tap.onCommit(func(next driver.Session, ctx context.Context, wr []driver.Write) ([]driver.CommitResult, error) {
			m.tap.onCommit(nil)
			w.store.Tamper("test/!head/s", []byte("junk"))
			return nil, errors.New("no reply")
		})
		began := time.Now()
		_, err := lease.Append(w.Context(), []byte("x"))
		if took := time.Since(began); !errors.Is(err, ErrUnknown) || took > ttl/10 {
			w.Errorf("after %v: %v; want ErrUnknown soon", took, err)
		}
	})
}

// TestDamagedShardIsNotServed: members do not repeatedly claim a shard with a damaged head. Its
// handler is never called, and the members can stop immediately.
func TestDamagedShardIsNotServed(t *testing.T) {
	for what, key := range map[string]string{"head": "test/!head/bad", "record": "test/!state/shard/bad"} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(w *world) {
				first := w.member("first")
				var served leases
				w.must(first.Contend(served.hold, "bad"))
				_, err := served.await(w, 1).Append(w.Context(), []byte("x"))
				w.must(err)
				w.must(first.end())
				w.store.Tamper(key, []byte("junk"))

				var told damaged
				a, b := w.member("a", told.options), w.member("b")
				claims := 0
				a.tap.onReply(func(kind string, do func()) {
					if kind == callAcquire {
						claims++
					}
					do()
				})
				var bad, good leases
				for _, m := range []*member{a, b} {
					w.must(m.Contend(bad.hold, "bad"))
					w.must(m.Contend(good.hold, "good"))
				}
				good.await(w, 1)
				const minutes = 20
				time.Sleep(minutes * time.Minute)
				synctest.Wait()
				if bad.count() > 0 || good.count() > 1 {
					w.Errorf("%d handlers of the damaged shard were called, and %d of the other", bad.count(), good.count())
				}
				grants := len(a.said("grant bad")) + len(b.said("grant bad"))
				if grants > 2 || claims > 5*minutes { // one each, and a claim every 15 to 30 s
					w.Errorf("%d grants of the damaged shard, %d claims of one member in %d minutes", grants, claims, minutes)
				}
				if o, _ := a.View().Owner("bad"); o.Session != "" && what == "head" {
					w.Errorf("session %s keeps a shard that it cannot serve", o.Session)
				}
				told.once(w, key)
				began := time.Now()
				if err := errors.Join(a.end(), b.end()); err != nil || time.Since(began) > ttl {
					w.Errorf("stopping took %v, %v", time.Since(began), err)
				}
			})
		})
	}
}

// TestDamageIsNotRepeated: a record whose damage keeps changing is named only once a minute.
// Records beyond a limit are counted but not named.
func TestDamageIsNotRepeated(t *testing.T) {
	bubble(t, func(w *world) {
		var told damaged
		m := w.member("a", told.options)
		var h leases
		w.must(m.Contend(h.hold, "s"))
		h.await(w, 1)
		const minutes = 10
		for i := range minutes * 60 {
			w.store.Tamper("test/!head/s", []byte([]string{"junk", "1 held"}[i%2]))
			_, err := h.await(w, 1).Append(w.Context(), []byte("x"))
			if !errors.Is(err, ErrDamaged) {
				w.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n := told.lines("test/!head/s"); n < 2 || n > minutes+1 {
			w.Errorf("%d lines in %d minutes of a record that changes every second:\n%s", n, minutes, told.log.String())
		}
		for i := range 5000 {
			w.store.Tamper(fmt.Sprint("test/!state/shard/\x1b[2J", i), bytes.Repeat([]byte{'x'}, 5000))
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		lines := strings.Count(told.log.String(), "\n")
		if v := m.View(); len(v.Damaged) != listing.MaxDamaged || lines > minutes+2*listing.MaxDamaged+20 {
			w.Errorf("%d lines, %d records in the view", lines, len(v.Damaged))
		}
		for _, d := range m.View().Damaged {
			if strings.Contains(d.Error(), "\x1b") || len(d.Key) > 256 {
				w.Errorf("the view has the name %q", d.Key)
			}
		}
		if strings.Contains(told.log.String(), "\x1b") || len(told.log.String()) > 100_000 {
			w.Errorf("the log has %d bytes, or a name as it was", len(told.log.String()))
		}
	})
}
