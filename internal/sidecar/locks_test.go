package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/lock"
)

// locksUntil requests a lock until a context ends. It returns the stream when it has the lock, and
// otherwise the status.
func (x *side) locksUntil(ctx context.Context, name, body string) (*lead, int, string) {
	x.Helper()
	ctx, cancel := context.WithCancel(ctx)
	r, err := http.NewRequestWithContext(ctx, "POST", "http://sidecar/v1/locks/"+name, strings.NewReader(body))
	if err != nil {
		x.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+x.token)
	resp, err := x.client.Do(r)
	if err != nil {
		cancel()
		return nil, 0, ""
	}
	if resp.StatusCode == http.StatusOK {
		l := x.reads(resp, cancel)
		l.last = <-l.states
		return l, resp.StatusCode, ""
	}
	defer cancel()
	defer resp.Body.Close()
	var p struct{ Error problem }
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		x.Error(err)
	}
	return nil, resp.StatusCode, p.Error.Code
}

func (x *side) locks(name, body string) *lead {
	x.Helper()
	l, status, code := x.locksUntil(context.Background(), name, body)
	if l == nil {
		x.Fatalf("lock %s: %d %s", name, status, code)
	}
	if l.last.State != stateHeld || l.last.Token < 1 || l.last.Fence.Shard != core.ShardID(driver.LockPrefix+name) {
		x.Fatalf("the first state of lock %s: %+v", name, l.last)
	}
	return l
}

// held expects that another client holds a lock.
func (x *side) held(name, body string) {
	x.Helper()
	x.call(http.StatusConflict, codeHeld, "POST", "/v1/locks/"+name, body, nil)
}

func (l *lead) unlock() {
	l.Helper()
	l.call(200, "", "POST", l.path("release"), "", nil)
}

// waits begins n requests that wait for a lock, and returns the channel on which they report their
// results.
func (x *side) waits(n int, name, body string) chan *lead {
	had := make(chan *lead, n)
	for range n {
		go func() {
			l, _, _ := x.locksUntil(context.Background(), name, body)
			had <- l
		}()
		synctest.Wait()
	}
	return had
}

const patient = `{"wait_ms":60000}`

// TestLock: of the clients of this and other sidecars, one at a time has a lock. Clients get the
// lock in the order of their requests, with increasing tokens. Their commits are fenced, and a free
// lock leaves no record.
func TestLock(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a, b := w.start("a", Options{}), w.start("b", Options{})
		one := a.locks("x", "")
		a.held("x", "")
		b.held("x", `{"wait_ms":0}`)
		begun := time.Now()
		b.held("x", `{"wait_ms":500}`)
		if took := time.Since(begun); took < 500*time.Millisecond || took > 600*time.Millisecond {
			w.Errorf("it was waited for %v", took)
		}
		first, second := a.waits(1, "x", patient), a.waits(1, "x", patient)
		token := one.last.Token
		one.unlock()
		two := <-first
		if two.last.Token <= token || len(second) > 0 {
			w.Errorf("token %d after %d, and %d others", two.last.Token, token, len(second))
		}
		one.append(410, codeOver, token, "late")
		other := b.waits(1, "x", patient)
		two.unlock()
		for range 2 { // between sidecars they take turns
			select {
			case l := <-second:
				l.unlock()
			case l := <-other:
				l.unlock()
			}
		}
		synctest.Wait()
		if n := len(w.store.Keys("test/!state/shard/")); n > 0 {
			w.Errorf("%d records are left of a free lock", n)
		}
		// Data committed under a lock stays, and the next holder finds it.
		four := b.locks("x", "")
		four.append(200, "", four.last.Token, "under it")
		four.append(409, codeFenced, token, "zombie")
		if got := a.entries(driver.LockPrefix + "x"); len(got) != 1 || got[0] != "under it" {
			w.Errorf("log: got %q", got)
		}
		four.call(409, codeNoEffects, "POST", four.path("effects/begin"), fmt.Sprintf(`{"token":%d,"key":"k"}`, four.last.Token), nil)
		four.call(409, codeNoEffects, "GET", four.path("effects"), "", nil)
		four.unlock()
		if five := a.locks("x", patient); five.last.Head.Seq != 1 {
			w.Errorf("the next one: %+v", five.last)
		}
	})
}

// TestLockNames: hostile names and bodies are refused before anything is sent to the store.
func TestLockNames(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{})
		a.locks("x", "").unlock()
		before := w.store.Counts().Writes
		for _, name := range []string{"a b", "a/b", "../x", "ä", "x\n", "x\x00", "%", "a\\b", "\xff", "x?y=z", "*", strings.Repeat("x", lock.MaxName+1),
			strings.Repeat("\x00", 5000), "_lock./x"} {
			a.call(400, codeInvalid, "POST", "/v1/locks/"+url.PathEscape(name), "", nil)
		}
		for _, body := range []string{`{"wait_ms":-1}`, `{"wait_ms":3600001}`, `{"wait_ms":"1s"}`, `{"wait_ms":1e99}`, `{"wait":1}`, `{"ttl_ms":99}`,
			`{"ttl_ms":3001}`, `[]`, `{}{}`} {
			a.call(400, codeInvalid, "POST", "/v1/locks/y", body, nil)
		}
		for _, path := range []string{"/v1/locks/", "/v1/locks", "/v1/locks/..", "/v1/locks/y/lease"} {
			a.call(404, codeNotFound, "POST", path, "", nil)
		}
		a.call(404, codeNotFound, "DELETE", "/v1/locks/y", "", nil)
		a.call(400, codeInvalid, "POST", "/v1/shards/_lock.y/lease", "", nil) // it would wait for ever, and leave a lease
		a.call(404, codeNotFound, "GET", "/v1/shards/_lock.y", "", nil)
		synctest.Wait()
		if n := w.store.Counts().Writes - before; n > 0 {
			w.Errorf("%d writes", n)
		}
		for _, name := range []string{strings.Repeat("x", lock.MaxName), "_", "_control", "_lock.x", "-", "..."} {
			l := a.locks(name, "")
			synctest.Wait()
			var o ownerReply
			a.call(200, "", "GET", "/v1/shards/_lock."+name, "", &o)
			if o.Node != "a" || o.Token != l.last.Token {
				w.Errorf("lock %s: the owner is %+v", name, o)
			}
			l.unlock()
		}
	})
}

// TestLockOfAnother: a client that does not know a lock's id can neither release the lock, nor
// write under it, nor keep it alive. A second release does not affect the next holder.
func TestLockOfAnother(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{})
		one, other := a.locks("x", ""), a.locks("y", "")
		for _, id := range []string{"x", "_lock.x", "", one.last.Lease[1:], strings.ToLower(one.last.Lease), fmt.Sprint(one.last.Token)} {
			if id != "" {
				a.call(410, codeOver, "POST", "/v1/leases/"+id+"/release", "", nil)
			}
		}
		other.append(409, codeFenced, one.last.Token, "with the token of x")
		other.unlock()
		a.held("x", "")
		had := a.waits(1, "x", patient)
		one.unlock()
		two := <-had
		a.call(410, codeOver, "POST", one.path("release"), "", nil) // unlocked twice
		a.held("x", "")
		if s := one.until(stateOver); s.Cause != "released by the client" {
			w.Errorf("over: %+v", s)
		}
		two.append(200, "", two.last.Token, "still mine")
	})
}

// TestLockReleasedAtOnce: many concurrent releases of one lock are all answered, and the next
// holder keeps the lock.
func TestLockReleasedAtOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{})
		one := a.locks("x", "")
		had := a.waits(1, "x", patient)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				resp := a.request(w.Context(), "POST", one.path("release"), "")
				_ = resp.Body.Close()
				if resp.StatusCode != 200 && resp.StatusCode != 410 {
					w.Errorf("a release: %s", resp.Status)
				}
			})
		}
		all.Wait()
		two := <-had
		two.append(200, "", two.last.Token, "mine")
		a.held("x", "")
	})
}

// TestLockClientGone: if a client goes away, its lock and its place in the queue are released
// immediately. A silent client loses the lock at its TTL, which begins when the client gets the
// lock.
func TestLockClientGone(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a, b := w.start("a", Options{}), w.start("b", Options{})
		one := a.locks("x", "")
		ctx, goes := context.WithCancel(w.Context())
		gone := make(chan int, 1)
		go func() {
			_, status, _ := a.locksUntil(ctx, "x", patient)
			gone <- status
		}()
		synctest.Wait()
		had := a.waits(1, "x", `{"wait_ms":60000,"ttl_ms":500}`)
		for range 20 { // longer than any TTL
			time.Sleep(ttl / 4)
			a.call(200, "", "POST", one.path("beat"), "", nil)
		}
		goes()
		if <-gone != 0 {
			w.Error("a request that was given up was answered")
		}
		synctest.Wait()
		begun := time.Now()
		one.cancel()
		two := <-had
		if took := time.Since(begun); took > ttl/100 {
			w.Errorf("the lock passed on after %v", took)
		}
		if left := time.Duration(two.last.Remaining) * time.Millisecond; left < 490*time.Millisecond {
			w.Errorf("the client that waited may be silent for %v", left)
		}
		begun = time.Now()
		three := (<-b.waits(1, "x", patient))
		if took := time.Since(begun); took < 490*time.Millisecond || took > 550*time.Millisecond {
			w.Errorf("the lock of a silent client passed on after %v", took)
		}
		if s := two.until(stateOver); !strings.Contains(s.Cause, "no request for") {
			w.Errorf("over: %+v", s)
		}
		two.append(410, codeOver, two.last.Token, "late")
		three.unlock()
	})
}

// TestLockNotTaken: a client that goes away while it waits keeps neither the lock nor a place.
func TestLockNotTaken(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{MaxLeases: 3})
		for i := range 200 {
			one := a.locks("x", "")
			ctx, goes := context.WithCancel(w.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				if l, _, _ := a.locksUntil(ctx, "x", patient); l != nil {
					l.cancel()
				}
			}()
			if i%2 == 0 {
				synctest.Wait()
			}
			go goes()
			one.cancel()
			<-done
			synctest.Wait()
		}
		synctest.Wait()
		a.server.mu.Lock()
		defer a.server.mu.Unlock()
		if n := len(a.server.leases); n > 0 {
			w.Errorf("%d places are taken", n)
		}
	})
}

// TestLockLost: a lost lock is over, and is not taken again. Releasing a lost lock has no effect.
func TestLockLost(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a, b := w.start("a", Options{}), w.start("b", Options{})
		one := a.locks("x", "")
		token := one.last.Token
		had := b.waits(1, "x", patient)
		a.link.Cut()
		begun := time.Now()
		for over := false; !over; {
			time.Sleep(ttl / 8)
			resp := a.request(w.Context(), "POST", one.path("beat"), "")
			_ = resp.Body.Close()
			over = resp.StatusCode != 200
			if took := time.Since(begun); took > ttl+ttl/8 {
				w.Fatalf("the client believes in the lock for %v", took)
			}
		}
		if s := one.until(stateOver); s.Cause == "" || s.Token != 0 || s.Remaining != 0 {
			w.Errorf("over: %+v", s)
		}
		a.call(503, codeStore, "POST", "/v1/locks/other", `{"wait_ms":100}`, nil) // nobody has it
		two := <-had
		one.append(410, codeOver, token, "zombie")
		a.call(410, codeOver, "POST", one.path("release"), "", nil)
		a.link.Heal()
		for range 8 {
			time.Sleep(ttl / 4)
			b.call(200, "", "POST", two.path("beat"), "", nil)
		}
		a.call(410, codeOver, "POST", one.path("release"), "", nil)
		two.append(200, "", two.last.Token, "mine")
		a.held("x", "")
		two.unlock()
		a.locks("x", patient).unlock()
	})
}

// TestLocksWait: thousands of requests wait for one lock without calls to the store, and get the
// lock one after another. Requests beyond the number of places, and requests that wait too long,
// are refused.
func TestLocksWait(t *testing.T) {
	t.Parallel()
	const many = 2000
	inWorld(t, func(w *world) {
		a := w.start("a", Options{MaxLeases: many + 1})
		one := a.locks("x", "")
		had := make(chan *lead, many)
		late := make(chan string, many)
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() {
				body := patient
				if i%10 > 0 {
					body = `{"wait_ms":1000}`
				}
				l, _, code := a.locksUntil(context.Background(), "x", body)
				if l == nil {
					late <- code
					return
				}
				had <- l
			})
		}
		synctest.Wait()
		a.call(503, codeBusy, "POST", "/v1/locks/y", "", nil)
		before := w.store.Counts().Writes
		for range 4 {
			time.Sleep(ttl / 4)
			a.call(200, "", "POST", one.path("beat"), "", nil)
		}
		if n := w.store.Counts().Writes - before; n > 5 {
			w.Errorf("%d writes while %d requests waited", n, many)
		}
		if len(late) != many*9/10 {
			w.Errorf("%d of %d requests have waited long enough", len(late), many*9/10)
		}
		a.locks("y", "").unlock()
		token := one.last.Token
		one.unlock()
		for range many / 10 {
			l := <-had
			if l.last.Token <= token {
				w.Fatalf("token %d after %d", l.last.Token, token)
			}
			token = l.last.Token
			l.unlock()
		}
		all.Wait()
		for range many * 9 / 10 {
			if code := <-late; code != codeHeld {
				w.Fatalf("a request that waited is told %s", code)
			}
		}
	})
}

// TestLockNamesWait: thousands of requests wait for as many locks that another sidecar holds.
func TestLockNamesWait(t *testing.T) {
	t.Parallel()
	const many = 300
	inWorld(t, func(w *world) {
		a, b := w.start("a", Options{MaxLeases: many, MaxRequests: many}), w.start("b", Options{MaxLeases: many})
		var held []*lead
		for i := range many {
			held = append(held, b.locks(fmt.Sprint("x", i), ""))
		}
		before := w.store.Counts().Writes
		var all sync.WaitGroup
		for i := range many {
			all.Go(func() {
				l, status, code := a.locksUntil(context.Background(), fmt.Sprint("x", i), patient)
				if l == nil {
					w.Errorf("x%d: %d %s", i, status, code)
					return
				}
				l.unlock()
			})
		}
		synctest.Wait()
		if n := w.store.Counts().Writes - before; n > 10 {
			w.Errorf("%d writes while %d requests waited", n, many)
		}
		for _, l := range held {
			l.unlock()
		}
		all.Wait()
		synctest.Wait()
		if n := len(w.store.Keys("test/!state/shard/")); n > 0 {
			w.Errorf("%d records are left", n)
		}
	})
}

// TestLockStop: a sidecar that stops asks its clients to release their locks, and informs the
// waiting clients.
func TestLockStop(t *testing.T) {
	t.Parallel()
	for _, willing := range []bool{true, false} {
		inWorld(t, func(w *world) {
			a := w.start("a", Options{})
			one := a.locks("x", "")
			type answer struct {
				status int
				code   string
			}
			told := make(chan answer, 1)
			go func() {
				_, status, code := a.locksUntil(context.Background(), "x", patient)
				told <- answer{status, code}
			}()
			synctest.Wait()
			begun := time.Now()
			a.stop()
			if s := one.until(stateStopping); s.Token < 1 || s.Cause == "" {
				w.Errorf("stopping: %+v", s)
			}
			if got := <-told; got != (answer{503, codeStopping}) || time.Since(begun) > time.Second {
				w.Errorf("the request that waited was told %v after %v", got, time.Since(begun))
			}
			one.append(200, "", one.last.Token, "last words")
			if willing {
				one.unlock()
			}
			for !willing && one.last.State != stateOver {
				time.Sleep(ttl / 4)
				one.beatsOnce()
			}
			if err := <-a.done; err != nil {
				w.Error(err)
			}
			a.done <- nil
			if took := time.Since(begun); willing && took > time.Second || !willing && (took < 8*time.Second || took > 9*time.Second) {
				w.Errorf("willing %v: it ended after %v", willing, took)
			}
		})
	}
}
