package sidecar

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core"
)

func TestLease(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a, b := w.start("a", Options{}), w.start("b", Options{})
		one := a.contend("jobs", "")
		if s := one.until(stateWaiting); s.Lease == "" || s.TTL != ttl.Milliseconds() || s.Remaining != 0 || s.Token != 0 {
			w.Errorf("the first state: %+v", s)
		}
		held := one.until(stateHeld)
		if held.Token < 1 || *held.Fence != (core.Fence{Shard: "jobs", Session: held.Fence.Session, Token: held.Token}) ||
			held.Remaining < 1 || held.Remaining > ttl.Milliseconds() || *held.Head != (headState{0, 1}) {
			w.Errorf("held: %+v", held)
		}
		var done commitReply
		a.call(200, "", "POST", one.path("commit"), fmt.Sprintf(`{"token":%d,"ops":[{"op":"put","key":"a/b","text":"x","if_absent":true},
			{"op":"append","base64":"/wA="},{"op":"append","text":"two"},{"op":"delete","key":"c"}]}`, held.Token), &done)
		if done.Number < 1 || done.First != 1 || done.Last != 2 || len(done.Versions) != 4 || done.Versions[0] < 1 {
			w.Errorf("commit: got %+v", done)
		}
		var item itemReply
		b.call(200, "", "GET", "/v1/shards/jobs/item?key=a/b", "", &item)
		if item.Key != "a/b" || item.Version != done.Versions[0] || *item.Text != "x" {
			w.Errorf("item: got %+v", item)
		}
		a.call(412, codeConflict, "POST", one.path("commit"), fmt.Sprintf(`{"token":%d,"ops":[{"op":"put","key":"a/b","text":"y","if_absent":true}]}`, held.Token), nil)
		a.call(200, "", "POST", one.path("commit"), fmt.Sprintf(`{"token":%d,"ops":[{"op":"delete","key":"a/b","if_version":%d}]}`, held.Token, item.Version), nil)
		b.call(404, codeNotFound, "GET", "/v1/shards/jobs/item?key=a/b", "", nil)
		if got, want := b.entries("jobs"), []string{"\xff\x00", "two"}; !slices.Equal(got, want) {
			w.Errorf("log: got %q, want %q", got, want)
		}
		var who ownerReply
		synctest.Wait()
		b.call(200, "", "GET", "/v1/shards/jobs", "", &who)
		if who.Node != "a" || who.Token != held.Token || who.Session != held.Fence.Session {
			w.Errorf("owner: got %+v, want node a and the fence %+v", who, held.Fence)
		}

		two := b.contend("jobs", "")
		two.until(stateWaiting)
		a.call(200, "", "POST", one.path("release"), "", nil)
		if s := one.until(stateOver); s.Cause == "" || s.Token != 0 {
			w.Errorf("over: %+v", s)
		}
		next := two.until(stateHeld)
		if next.Token <= held.Token || next.Head.Seq != 2 {
			w.Errorf("the next lease: %+v, want a token above %d and the log's head", next, held.Token)
		}
		one.append(410, codeOver, held.Token, "late")
		a.call(410, codeOver, "POST", one.path("beat"), "", nil)
		a.call(410, codeOver, "POST", one.path("release"), "", nil)
		a.contend("jobs", "").until(stateWaiting) // the shard is free here again
	})
}

// TestSilent: a client that makes no request loses its lease exactly at its TTL.
func TestSilent(t *testing.T) {
	t.Parallel()
	for _, ms := range []int64{500, ttl.Milliseconds()} {
		inWorld(t, func(w *world) {
			a, b := w.start("a", Options{}), w.start("b", Options{})
			one := a.contend("jobs", fmt.Sprintf(`{"ttl_ms":%d}`, ms))
			held := one.until(stateHeld)
			two := b.contend("jobs", "")
			two.until(stateWaiting)
			for range 10 { // signs of life
				time.Sleep(time.Duration(ms) * time.Millisecond / 2)
				var s leaseState
				a.call(200, "", "POST", one.path("beat"), "", &s)
				b.call(200, "", "POST", two.path("beat"), "", nil)
				if s.State != stateHeld || s.Remaining > ms || s.Remaining < ms*9/10 && ms < ttl.Milliseconds()/2 {
					w.Fatalf("with ttl_ms %d after a beat: %+v", ms, s)
				}
			}
			last := time.Now()
			one.append(200, "", held.Token, "in time")
			time.Sleep(time.Duration(ms) * time.Millisecond / 2)
			b.call(200, "", "POST", two.path("beat"), "", nil)
			next := two.until(stateHeld)
			took := time.Since(last)
			if bound := time.Duration(ms) * time.Millisecond; took < bound || took > bound+bound/100 {
				w.Errorf("with ttl_ms %d the lease passed on after %v", ms, took)
			}
			one.append(410, codeOver, held.Token, "late")
			two.append(200, "", next.Token, "next")
			if got, want := b.entries("jobs"), []string{"in time", "next"}; !slices.Equal(got, want) {
				w.Errorf("log: got %q, want %q", got, want)
			}
			if s := one.until(stateOver); !strings.Contains(s.Cause, "no request for") {
				w.Errorf("over: %+v", s)
			}
		})
	}
}

// TestStreamEnds: a client whose connection closes loses its lease immediately.
func TestStreamEnds(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a, b := w.start("a", Options{}), w.start("b", Options{})
		one := a.contend("jobs", "")
		held := one.until(stateHeld)
		two := b.contend("jobs", "")
		two.until(stateWaiting)
		ended := time.Now()
		one.cancel()
		synctest.Wait()
		one.append(410, codeOver, held.Token, "late")
		two.until(stateHeld)
		if took := time.Since(ended); took > ttl/100 {
			w.Errorf("the lease passed on after %v", took)
		}
	})
}

// TestTokens: a write is accepted only under the current token.
func TestTokens(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{})
		one := a.contend("jobs", "")
		held := one.until(stateHeld)
		one.append(409, codeFenced, held.Token+1, "no")
		if held.Token > 1 {
			one.append(409, codeFenced, held.Token-1, "no")
		}
		a.link.Cut()
		for stop := time.Now().Add(2 * ttl); time.Now().Before(stop); time.Sleep(ttl / 4) {
			a.call(200, "", "POST", one.path("beat"), "", nil)
		}
		if lost := one.until(stateWaiting); lost.Cause == "" || lost.Remaining != 0 || lost.Token != 0 {
			w.Errorf("without the store: %+v", lost)
		}
		one.append(409, codeNotHeld, held.Token, "no")
		a.link.Heal()
		var again leaseState
		for again.State != stateHeld {
			time.Sleep(ttl / 4)
			a.call(200, "", "POST", one.path("beat"), "", &again)
		}
		if again.Token <= held.Token {
			w.Errorf("token %d after %d", again.Token, held.Token)
		}
		one.append(409, codeFenced, held.Token, "no")
		one.append(200, "", again.Token, "yes")
		if got := a.entries("jobs"); !slices.Equal(got, []string{"yes"}) {
			w.Errorf("log: got %q", got)
		}
	})
}

// TestStop: a sidecar that stops asks its clients to release their leases, and waits for a limited
// time.
func TestStop(t *testing.T) {
	t.Parallel()
	for _, willing := range []bool{true, false} {
		inWorld(t, func(w *world) {
			a := w.start("a", Options{})
			one, other := a.contend("jobs", ""), a.contend("other", "")
			held := one.until(stateHeld)
			other.until(stateHeld)
			begun := time.Now()
			a.stop()
			if s := one.until(stateStopping); s.Token != held.Token || s.Cause == "" {
				w.Errorf("stopping: %+v", s)
			}
			one.append(200, "", held.Token, "last words")
			a.call(503, codeStopping, "POST", "/v1/shards/more/lease", "", nil)
			for !willing {
				time.Sleep(ttl / 4)
				if one.beatsOnce(); one.last.State == stateOver {
					break
				}
			}
			if willing {
				a.call(200, "", "POST", one.path("release"), "", nil)
				a.call(200, "", "POST", other.path("release"), "", nil)
			}
			if err := <-a.done; err != nil {
				w.Error(err)
			}
			a.done <- nil
			took := time.Since(begun)
			if willing && took > time.Second || !willing && (took < 8*time.Second || took > 9*time.Second) {
				w.Errorf("willing %v: it ended after %v", willing, took)
			}
			if one.last.State != stateOver {
				one.until(stateOver)
			}
		})
	}
}

// beatsOnce shows once that the client is alive, unless the stream shows that the lease is over.
func (l *lead) beatsOnce() {
	for {
		select {
		case s, ok := <-l.states:
			if !ok {
				return
			}
			l.last = s
			continue
		default:
		}
		break
	}
	if l.last.State == stateStopping {
		resp := l.request(l.Context(), "POST", l.path("beat"), "")
		_ = resp.Body.Close()
	}
}

func TestTail(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{MaxTails: 1})
		one := a.contend("jobs", "")
		held := one.until(stateHeld)
		one.append(200, "", held.Token, "1")
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		resp := a.request(ctx, "GET", "/v1/shards/jobs/log/tail", "") //nolint:bodyclose // in the next line
		defer resp.Body.Close()
		a.call(503, codeBusy, "GET", "/v1/shards/jobs/log/tail", "", nil)
		lines := make(chan string, 1000)
		go func() {
			defer close(lines)
			for r := bufio.NewScanner(resp.Body); r.Scan(); {
				lines <- r.Text()
			}
		}()
		read := func() (e entry) {
			for text := range lines {
				if data, ok := strings.CutPrefix(text, "data: "); ok {
					if err := json.Unmarshal([]byte(data), &e); err != nil {
						w.Fatal(err)
					}
					return e
				}
			}
			w.Fatal("the tail has ended")
			return e
		}
		for i := range 200 {
			if e := read(); int(e.Seq) != i+1 || *e.Text != fmt.Sprint(i+1) || e.Token != held.Token {
				w.Fatalf("entry %d: got %+v", i+1, e)
			}
			one.append(200, "", held.Token, fmt.Sprint(i+2))
			if i == 100 { // long enough for a comment
				for range 20 {
					time.Sleep(ttl / 3)
					a.call(200, "", "POST", one.path("beat"), "", nil)
				}
			}
		}
		cancel()
		synctest.Wait()
		a.call(200, "", "POST", one.path("commit"), fmt.Sprintf(`{"token":%d,"ops":[{"op":"trim","through":10}]}`, held.Token), nil)
		a.call(410, codeTrimmed, "GET", "/v1/shards/jobs/log?after=3", "", nil)
		resp = a.request(w.Context(), "GET", "/v1/shards/jobs/log/tail?after=3", "") //nolint:bodyclose // in the next line
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || !strings.HasPrefix(string(text), "event: error\n") || !strings.Contains(string(text), `"oldest":11`) {
			w.Errorf("a tail below the oldest entry: got %s (%v)", text, err)
		}
	})
}

// TestUnreadTails: if many streams of large entries have no reader, only some of them keep entries
// in memory. These streams end, and other streams get their entries.
func TestUnreadTails(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		const tails = 12
		a := w.start("a", Options{})
		one, two := a.contend("jobs", ""), a.contend("small", "")
		held, small := one.until(stateHeld), two.until(stateHeld)
		for range 3 {
			one.append(200, "", held.Token, strings.Repeat("x", 1<<20))
		}
		two.append(200, "", small.Token, "few")
		ctx, cancel := context.WithCancel(w.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		var begun, ended atomic.Int64
		for range tails {
			all.Go(func() {
				resp := a.request(ctx, "GET", "/v1/shards/jobs/log/tail", "")
				begun.Add(1) // an entry is on its way
				<-ctx.Done()
				_ = resp.Body.Close()
			})
		}
		synctest.Wait()
		if n := begun.Load(); n != 1 {
			w.Errorf("%d of %d streams have an entry in memory, want 1", n, tails)
		}
		for shard, want := range map[string]int{"small": 1, "jobs": 3} {
			all.Go(func() {
				resp := a.request(ctx, "GET", "/v1/shards/"+shard+"/log/tail", "")
				defer resp.Body.Close()
				s := bufio.NewScanner(resp.Body)
				s.Buffer(nil, 2<<20)
				for got := 0; got < want && s.Scan(); {
					if strings.HasPrefix(s.Text(), "event: entry") {
						got++
					}
				}
				if s.Err() == nil {
					ended.Add(1)
				}
			})
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := ended.Load(); n != 2 {
			w.Errorf("%d of 2 streams that are read had their entries within two minutes", n)
		}
		a.server.mu.Lock()
		defer a.server.mu.Unlock()
		if n := a.server.tails; n != 0 {
			w.Errorf("%d streams are left, of which nobody reads one", n)
		}
	})
}

// TestRefused: bad input and requests without authority are refused, and nothing is
// written.
func TestRefused(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{MaxLeases: 2})
		one := a.contend("jobs", "")
		held := one.until(stateHeld)
		ops := func(list string) string { return fmt.Sprintf(`{"token":%d,"ops":[%s]}`, held.Token, list) }
		good := ops(`{"op":"append","text":"x"}`)
		long := strings.Repeat("x", 5<<20)
		for _, c := range []struct {
			status int
			code   string
			path   string
			body   string
		}{
			{400, codeInvalid, "/v1/shards/_control/lease", ""},
			{400, codeInvalid, "/v1/shards/a%2Fb/lease", ""},
			{400, codeInvalid, "/v1/shards/" + strings.Repeat("x", 129) + "/lease", ""},
			{400, codeInvalid, "/v1/shards/a/lease", `{"ttl_ms":99}`},
			{400, codeInvalid, "/v1/shards/a/lease", `{"ttl_ms":3001}`},
			{400, codeInvalid, "/v1/shards/a/lease", `{"ttl":3000}`},
			{400, codeInvalid, "/v1/shards/a/lease", `{}{}`},
			{400, codeInvalid, "/v1/shards/a/lease", `[]`},
			{409, codeContended, "/v1/shards/jobs/lease", ""},
			{404, codeNotFound, "/v1/shards/jobs", ""}, // by POST
			{404, codeNotFound, "/v1/nothing", ""},
			{410, codeOver, "/v1/leases/x/beat", ""},
			{410, codeOver, "/v1/leases/x/append", `{"token":1,"text":"x"}`},
			{400, codeInvalid, one.path("append"), `{"text":"x"}`},
			{400, codeInvalid, one.path("append"), `{"token":-1,"text":"x"}`},
			{400, codeInvalid, one.path("append"), fmt.Sprintf(`{"token":%d}`, held.Token)},
			{400, codeInvalid, one.path("append"), fmt.Sprintf(`{"token":%d,"text":"x","base64":"eA=="}`, held.Token)},
			{400, codeInvalid, one.path("append"), fmt.Sprintf(`{"token":%d,"base64":"?"}`, held.Token)},
			{400, codeInvalid, one.path("append"), fmt.Sprintf("{\"token\":%d,\"text\":\"\xff\"}", held.Token)},
			{400, codeInvalid, one.path("append"), fmt.Sprintf(`{"token":%d,"text":"\ud800"}`, held.Token)},
			{400, codeInvalid, one.path("commit"), ops(`{"op":"put","key":"k","text":"x\udc00"}`)},
			{413, codeTooLarge, one.path("append"), fmt.Sprintf(`{"token":%d,"text":%q}`, held.Token, long)},
			{413, codeTooLarge, one.path("append"), fmt.Sprintf(`{"token":%d,"text":%q}`, held.Token, long+long)},
			{400, codeInvalid, one.path("commit"), ops("")},
			{400, codeInvalid, one.path("commit"), ops(`{"op":"append","text":"x"},{"op":"steal"}`)},
			{400, codeInvalid, one.path("commit"), ops(`{"op":"append","text":"x","key":"k"}`)},
			{400, codeInvalid, one.path("commit"), ops(`{"op":"append","text":"x"},{"op":"put","key":"../x","text":"x"}`)},
			{400, codeInvalid, one.path("commit"), ops(`{"op":"put","key":"k"}`)},
			{400, codeInvalid, one.path("commit"), ops(`{"op":"put","text":"x"}`)},
			{400, codeInvalid, one.path("commit"), ops(`{"op":"put","key":"k","text":"x","if_version":-1}`)},
			{400, codeInvalid, one.path("commit"), ops(`{"op":"put","key":"k","text":"x","if_version":1,"if_absent":true}`)},
			{400, codeInvalid, one.path("commit"), ops(`{"op":"put","key":"k","text":"x"},{"op":"delete","key":"k"}`)},
			{400, codeInvalid, one.path("commit"), ops(`{"op":"delete","key":"k","if_absent":true}`)},
			{400, codeInvalid, one.path("commit"), ops(`{"op":"trim"}`)},
			{412, codeConflict, one.path("commit"), ops(`{"op":"append","text":"x"},{"op":"trim","through":5}`)},
			{400, codeInvalid, one.path("commit"), good[:len(good)-1]},
			{400, codeInvalid, one.path("commit"), good + "x"},
			{400, codeInvalid, one.path("commit"), `[]`},
			{400, codeInvalid, one.path("commit"), ``},
			{400, codeInvalid, one.path("commit"), fmt.Sprintf(`{"token":%d,"ops":{}}`, held.Token)},
			{400, codeInvalid, one.path("commit"), fmt.Sprintf(`{"token":%d,"ops":[{"op":"append","text":"x"}],"token":1}`, held.Token)},
			{400, codeInvalid, one.path("commit"), ops(`{"op":"append","text":"x"}],"ops":[`)},
			{400, codeInvalid, one.path("commit"), ops(`{"op":"append","text":"x"}],"` + long[:1<<20] + `":[`)},
			{400, codeInvalid, one.path("commit"), `{"token":` + strings.Repeat("9", 1<<20) + `}`},
			{400, codeInvalid, one.path("commit"), strings.Repeat("[", 1<<20)},
			{400, codeInvalid, one.path("commit"), ops(strings.Repeat("[", 1<<20))},
			{400, codeInvalid, one.path("append"), fmt.Sprintf(`{"token":%d,"text":%s}`, held.Token, strings.Repeat("9", 1<<20))},
			{413, codeTooLarge, one.path("commit"), ops(strings.Repeat(`{"op":"append","text":""},`, 100_000) + `{"op":"append","text":""}`)},
			{413, codeTooLarge, one.path("commit"), ops(`{"op":"append","text":"` + long[:3<<20] + `"},{"op":"append","text":"` + long[:2<<20] + `"}`)},
			{400, codeInvalid, one.path("beat"), strings.Repeat(" ", ignoredBody+1)},
		} {
			a.call(c.status, c.code, "POST", c.path, c.body, nil)
		}
		for path, code := range map[string]string{
			"/v1/shards/jobs/log?after=-1": codeInvalid, "/v1/shards/jobs/log?limit=0": codeInvalid,
			"/v1/shards/jobs/log?limit=1001": codeInvalid, "/v1/shards/jobs/log/tail?after=x": codeInvalid,
			"/v1/shards/jobs/item": codeInvalid, "/v1/shards/jobs/item?key=..": codeInvalid, "/v1/shards/_x": codeInvalid,
		} {
			a.call(400, code, "GET", path, "", nil)
		}
		a.call(404, codeNotFound, "GET", "/v1/shards/nobody", "", nil)

		a.contend("second", "")
		a.call(503, codeBusy, "POST", "/v1/shards/third/lease", "", nil)

		for _, token := range []string{"", "x", secret[1:], secret + "x"} {
			a.token = token
			for _, r := range append(Routes(), "GET /", "DELETE /v1/x") {
				method, path, _ := strings.Cut(r, " ")
				path = strings.NewReplacer("{shard}", "jobs", "{lock}", "x", "{lease}", held.Lease).Replace(path)
				a.call(401, codeNoToken, method, path, good, nil)
			}
		}
		a.token = secret
		if got := a.entries("jobs"); got != nil {
			w.Errorf("the log has %q, want nothing", got)
		}
		one.append(200, "", held.Token, "yes") // refused requests changed nothing
	})
}

// TestBusy: requests above the limit are refused, and connections above the limit are closed.
func TestBusy(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{MaxRequests: 1, MaxLeases: 1, MaxTails: 1})
		one := a.contend("jobs", "")
		one.until(stateHeld)
		body, writer := io.Pipe()
		r, err := http.NewRequestWithContext(w.Context(), "POST", "http://sidecar"+one.path("append"), body)
		if err != nil {
			w.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+secret)
		answered := make(chan int, 1)
		go func() {
			resp, err := a.client.Do(r)
			if err != nil {
				answered <- 0
				return
			}
			defer resp.Body.Close()
			answered <- resp.StatusCode
		}()
		synctest.Wait()
		a.call(503, codeBusy, "GET", "/v1/openapi.json", "", nil)
		a.call(200, "", "POST", one.path("beat"), "", nil)
		begun := time.Now()
		if got := <-answered; got != 400 { // a body that does not arrive has a time limit, too
			w.Errorf("a body that does not come: got %d, want 400", got)
		}
		if took := time.Since(begun); took > bodyTime {
			w.Errorf("a body that does not come was waited for %v", took)
		}
		_ = writer.Close()
		a.call(200, "", "GET", "/v1/openapi.json", "", nil)

		open := 0
		for range 3 * spareConns {
			c, err := a.pipes.dial(w.Context(), "", "")
			if err != nil {
				w.Fatal(err)
			}
			defer c.Close()
			if got := ask(c, "GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+secret+"\r\n\r\n"); got == 200 {
				open++
			} else if got != 0 {
				w.Errorf("a connection with the token: got %d, want 200, or that it is closed", got)
			}
		}
		if most := 3 + spareConns; open > most || open < spareConns {
			w.Errorf("%d connections are open, want at most %d", open, most)
		}
	})
}

// ask sends a request on a connection, and returns the status of the answer, or 0 if there is none.
func ask(c net.Conn, request string) int {
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(c, request); err != nil {
		return 0
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}
