package core

import (
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/proof/share"
)

// crash cuts the member off and ends its host lock, as the kernel does when a process dies. Its
// goroutines stay, but can do nothing.
func (m *member) crash() {
	m.link.Cut()
	m.mustNot(syscall.Close(m.lock.fd))
	m.lock = nil
}

func (m *member) mustNot(err error) {
	m.w.Helper()
	if err != nil {
		m.w.Fatal(err)
	}
}

func lockDir(dir string) func(*Options) { return func(o *Options) { o.LockDir = dir } }

// holding starts a member and waits until it holds shard s, for at most limit.
func (w *world) holding(limit time.Duration, change ...func(*Options)) (m *member, took time.Duration) {
	w.Helper()
	began := time.Now()
	m = w.member("a", change...)
	var h leases
	w.must(m.Contend(h.hold, "s"))
	for h.count() == 0 && time.Since(began) < limit {
		time.Sleep(time.Millisecond)
	}
	return m, time.Since(began)
}

// C14: a process that restarts on its host knows that the former process has ended.
func TestRestartedOnItsHost(t *testing.T) {
	dir := t.TempDir()
	bubble(t, func(w *world) {
		former, _ := w.holding(time.Minute, lockDir(dir))
		former.crash()
		again, took := w.holding(time.Minute, lockDir(dir))
		if took > ttl/10 {
			w.Errorf("it holds its shard after %v, want at most %v", took, ttl/10)
		}
		if got := again.said("peer a dead"); len(got) != 1 {
			w.Errorf("hooks say %q of the former process, want one death", again.said("peer"))
		}
		w.must(again.end())
		if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) > 0 {
			w.Errorf("after an orderly end there are %q", files)
		}
		former.stop()
	})
}

// C14: a lock that is missing, held, or not the recorded one proves nothing. The former process is
// silent and alive. It loses its shard after its TTL, as it would without any lock.
func TestOtherLocksSayNothing(t *testing.T) {
	for name, prepare := range map[string]func(w *world, dir string, former *member) (again func(*Options)){
		"held": func(w *world, dir string, _ *member) func(*Options) { return lockDir(dir) },
		"other temporary directory": func(w *world, _ string, former *member) func(*Options) {
			return lockDir(w.TempDir())
		},
		"deleted file": func(w *world, dir string, former *member) func(*Options) {
			w.must(os.Remove(former.lock.path))
			return lockDir(dir)
		},
		"inherited descriptor": func(w *world, dir string, former *member) func(*Options) {
			fd, err := syscall.Dup(former.lock.fd)
			w.must(err)
			w.Cleanup(func() { syscall.Close(fd) })
			w.must(syscall.Close(former.lock.fd))
			former.lock = nil
			return lockDir(dir)
		},
		"no lock": func(w *world, dir string, former *member) func(*Options) {
			former.crash()
			return lockDir(noLockDir)
		},
		"not to be opened": func(w *world, dir string, former *member) func(*Options) {
			former.crash()
			return lockDir(filepath.Join(dir, "missing"))
		},
		"a link in its place": func(w *world, dir string, former *member) func(*Options) {
			path := former.lock.path
			former.crash()
			w.must(os.Rename(path, path+".real"))
			w.must(os.Symlink(path+".real", path))
			return lockDir(dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			bubble(t, func(w *world) {
				former, _ := w.holding(time.Minute, lockDir(dir))
				former.link.Cut()
				_, took := w.holding(10*ttl, prepare(w, dir, former))
				if took < ttl*8/10 || took > 3*ttl {
					w.Errorf("the shard changed hands after %v, want about the TTL of %v", took, ttl)
				}
				former.stop()
			})
		})
	}
}

// C14: a record proves nothing if it was copied from another host or names the lock of another
// label. A record also proves nothing if its member still sends heartbeats.
func TestRecordsOfOthersSayNothing(t *testing.T) {
	for name, record := range map[string]func(id string) (node, lock string){
		"other boot":  func(id string) (string, string) { return "a", "00000000-" + id[9:] },
		"other file":  func(id string) (string, string) { return "a", id + "0" },
		"other label": func(id string) (string, string) { return "b", id },
		"no lock":     func(id string) (string, string) { return "a", "" },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			bubble(t, func(w *world) {
				m, _ := w.holding(time.Minute, lockDir(dir))
				node, lock := record(m.lock.id)
				s, err := m.tap.Backend.Join(w.Context(), driver.Member{Session: driver.SessionID(rand.Text()), Node: node, TTL: ttl,
					MemberState: driver.MemberState{Weight: 1, Meta: map[string]string{"_lock": lock}}})
				w.must(err)
				time.Sleep(ttl * 8 / 10)
				if err := s.Beat(w.Context()); err != nil {
					w.Errorf("the other was ended: %v", err)
				}
				if got := m.said("peer " + node + " dead"); len(got) > 0 {
					w.Errorf("hooks say %q", got)
				}
			})
		})
	}
}

// C14: two live processes with one label on one host never evict each other, regardless of the
// order in which they start and end.
func TestTwoOfOneLabelStayAlive(t *testing.T) {
	rounds := share.Of(t, "rounds", 1000, 100)
	dir := t.TempDir()
	bubble(t, func(w *world) {
		for round := range rounds {
			rng := mrand.New(mrand.NewPCG(uint64(round), 14))
			var both [2]*member
			for i := range both {
				both[i] = w.member("a", lockDir(dir))
				var h leases
				w.must(both[i].Contend(h.hold, fmt.Sprint("s", i)))
				time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
			}
			time.Sleep(ttl * 3 / 4)
			for _, m := range both {
				for _, what := range []string{"session session lost", "peer a dead", "peer a evicted"} {
					if got := m.said(what); len(got) > 0 {
						w.Fatalf("round %d: %s", round, strings.Join(got, ", "))
					}
				}
			}
			first := rng.IntN(2)
			w.must(both[first].end())
			time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond)
			w.must(both[1-first].end())
		}
	})
}

// A reserved key in Meta is refused, in Options and in updates.
func TestReservedMeta(t *testing.T) {
	meta := map[string]string{"_lock": "x"}
	if err := (&Options{Meta: meta}).Validate(Limits{}); err == nil || !strings.Contains(err.Error(), "rename it") {
		t.Errorf("options: %v", err)
	}
	bubble(t, func(w *world) {
		m := w.member("a")
		if err := m.Update(w.Context(), func(st *MemberState) { st.Meta = meta }); err == nil || !strings.Contains(err.Error(), "rename it") {
			w.Errorf("an update: %v", err)
		}
	})
}
