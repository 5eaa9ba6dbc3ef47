package sidecar

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core"
)

// attacks are the data that clients without the token send, each on one connection.
var attacks = map[string]string{
	"nothing":             "",
	"half a header":       "POST /v1/shards/jobs/lease HTTP/1.1\r\nHost: x\r\n",
	"a body to come":      "POST /v1/shards/jobs/lease HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n",
	"a chunked body":      "POST /v1/shards/jobs/lease HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n",
	"an expected body":    "POST /v1/shards/jobs/lease HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 200000\r\n\r\n",
	"other expectations":  "POST /v1/shards/jobs/lease HTTP/1.1\r\nHost: x\r\nExpect: more\r\nContent-Length: 200000\r\n\r\n",
	"options":             "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
	"options with a body": "OPTIONS * HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\n",
	"pipelined":           strings.Repeat("GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n", 100),
	"a wrong token":       "GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer x\r\n\r\n",
	"many wrong tokens":   "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("Authorization: Bearer x\r\n", 500) + "\r\n",
	"a huge header":       "GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<20),
	"the preface of h2":   "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"an upgrade to h2":    "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n",
	"no HTTP":             "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}

// TestStranger: a connection without the token is closed soon, whatever it sends. The only possible
// answer is a refusal.
func TestStranger(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{})
		for name, text := range attacks {
			c, err := a.pipes.dial(w.Context(), "", "")
			if err != nil {
				w.Fatal(err)
			}
			begun := time.Now()
			go func() { _, _ = io.WriteString(c, text) }()
			answer, _ := io.ReadAll(c)
			if took := time.Since(begun); took > headerTime+time.Second {
				w.Errorf("%s: the connection was open for %v", name, took)
			}
			_ = c.Close()
			if s := string(answer); s != "" && (!strings.HasPrefix(s, "HTTP/1.1 4") || strings.Count(s, "HTTP/1.1") != 1) {
				w.Errorf("%s: got %.200q, want one refusal", name, s)
			}
		}
		synctest.Wait()
	})
}

// TestSilentStrangers: connections that send nothing delay a request with the token by at most
// strangerTime.
func TestSilentStrangers(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{})
		ctx, cancel := context.WithCancel(w.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		for range maxStrangers + 100 {
			all.Go(func() {
				if c, err := a.pipes.dial(ctx, "", ""); err == nil {
					defer c.Close()
					<-ctx.Done()
				}
			})
		}
		synctest.Wait()
		begun := time.Now()
		a.call(200, "", "GET", "/v1/openapi.json", "", nil)
		if took := time.Since(begun); took > 2*strangerTime {
			w.Errorf("a request with the token took %v", took)
		}
	})
}

// TestCommitStops: a commit is read only up to the store's limit on operations.
func TestCommitStops(t *testing.T) {
	t.Parallel()
	s := &Server{limits: core.Limits{WriteOps: 100, WriteBytes: 1 << 20}}
	body := strings.NewReader(`{"token":1,"ops":[` + strings.Repeat(`{"op":"append","text":""},`, 100_000))
	size := body.Len()
	var p *problem
	err := readBody(body, func(d *json.Decoder) error { _, _, err := s.decodeCommit(d); return err })
	if read := size - body.Len(); !errors.As(err, &p) || p.Code != codeTooLarge || read > size/100 {
		t.Errorf("%d operations where the store takes 100: got %v after %d of %d bytes", 100_000, err, read, size)
	}
}

// TestStrangers: any number of clients connect again and again without the token. Each request with
// the token is answered, on a separate connection, and the lease stays.
func TestStrangers(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{MaxRequests: 4, MaxLeases: 2, MaxTails: 1})
		one := a.contend("jobs", "")
		held := one.until(stateHeld)
		ctx, cancel := context.WithCancel(w.Context())
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		for range 600/len(attacks) + 1 {
			for _, text := range attacks {
				all.Go(func() {
					for ctx.Err() == nil {
						c, err := a.pipes.dial(ctx, "", "")
						if err != nil {
							return
						}
						stop := context.AfterFunc(ctx, func() { _ = c.Close() })
						go func() { _, _ = io.WriteString(c, text) }()
						_, _ = io.Copy(io.Discard, c)
						stop()
						_ = c.Close()
						time.Sleep(strangerTime / 10) // time stands still for those that are refused at once
					}
				})
			}
		}
		a.client.Transport.(*http.Transport).DisableKeepAlives = true
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(ttl / 60) {
			begun := time.Now()
			a.call(200, "", "POST", one.path("beat"), "", nil)
			one.append(200, "", held.Token, "x")
			if took := time.Since(begun); took > ttl/3 {
				w.Errorf("two requests took %v", took)
			}
		}
		if one.until(stateHeld).Token != held.Token {
			w.Errorf("the lease was lost")
		}
	})
}

// TestRequestDeadline: on every route, a request except a stream has a time limit for its body.
// Afterwards, the memory of the request is free again.
func TestRequestDeadline(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{MaxTails: 1, MaxRequests: 1})
		one := a.contend("jobs", "")
		held := one.until(stateHeld)
		for _, r := range append(Routes(), "GET /", "DELETE /v1/x", "POST /v1//x", "OPTIONS *") {
			method, path, _ := strings.Cut(r, " ")
			for _, lease := range []string{held.Lease, "ANOTHER"} {
				for _, header := range []string{"Content-Length: 200000", "Transfer-Encoding: chunked", "Content-Length: 20", "Content-Length: 99999999"} {
					a.call(200, "", "POST", one.path("beat"), "", nil)
					for len(one.states) > 0 { // a client that takes no states is gone
						<-one.states
					}
					path := strings.NewReplacer("{shard}", "more", "{lease}", lease).Replace(path)
					c, err := a.pipes.dial(w.Context(), "", "")
					if err != nil {
						w.Fatal(err)
					}
					begun := time.Now()
					go func() {
						_, _ = io.WriteString(c, method+" "+path+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+secret+"\r\n"+header+"\r\n\r\n")
					}()
					answer := readBeating(one, c)
					if took := time.Since(begun); took > bodyTime+time.Second {
						w.Errorf("%s %s with %s: the connection was open for %v: %.300s", method, path, header, took, answer)
					}
					_ = c.Close()
				}
			}
		}
		one.append(200, "", held.Token, "x")
		resp := a.request(w.Context(), "GET", "/v1/shards/jobs/log/tail", "") // its only place is free
		if resp.StatusCode != http.StatusOK {
			w.Errorf("the tail: got %s", resp.Status)
		}
		_ = resp.Body.Close()
	})
}

// readBeating reads a connection to its end, while the lease's client shows that it is alive.
func readBeating(l *lead, c net.Conn) []byte {
	done := make(chan []byte)
	go func() {
		text, _ := io.ReadAll(c)
		done <- text
	}()
	for {
		select {
		case text := <-done:
			return text
		case <-time.After(ttl / 3):
			l.call(200, "", "POST", l.path("beat"), "", nil)
		}
	}
}

// TestLargeBodies: bodies that do not arrive delay other large bodies for no longer than the time
// limit, and do not delay small bodies.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		a := w.start("a", Options{})
		one := a.contend("jobs", "")
		held := one.until(stateHeld)
		c, err := a.pipes.dial(w.Context(), "", "")
		if err != nil {
			w.Fatal(err)
		}
		defer c.Close()
		begun := time.Now()
		got := ask(c, "POST /v1/leases/ANOTHER/append HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+secret+"\r\nContent-Length: 4000000\r\n\r\n")
		if got != 410 || time.Since(begun) > 0 {
			w.Errorf("a large body for another's lease: got %d after %v, want 410 before it is read", got, time.Since(begun))
		}
		for range 5 {
			c, err := a.pipes.dial(w.Context(), "", "")
			if err != nil {
				w.Fatal(err)
			}
			defer c.Close()
			go func() {
				_, _ = io.WriteString(c, "POST "+one.path("append")+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+secret+
					"\r\nContent-Length: 4000000\r\n\r\n")
			}()
		}
		synctest.Wait()
		begun = time.Now()
		one.append(200, "", held.Token, "small")
		if took := time.Since(begun); took > time.Second {
			w.Errorf("a small body waited for %v", took)
		}
		large := strings.Repeat("x", 100<<10)
		statuses := make(chan int, 1)
		if c, err = a.pipes.dial(w.Context(), "", ""); err != nil {
			w.Fatal(err)
		}
		defer c.Close()
		go func() { // fails if the answer arrives before the body is read
			body := `{"token":1,"text":"` + large + `"}`
			_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", one.path("append"), secret,
				len(body), body)
		}()
		go func() {
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				w.Errorf("a large body: %v", err)
				statuses <- 0
				return
			}
			_ = resp.Body.Close()
			statuses <- resp.StatusCode
		}()
		for waiting := true; waiting; {
			select {
			case got := <-statuses:
				waiting = false
				if took := time.Since(begun); took > bodyTime+time.Second || got != 503 && got != 409 && got != 200 {
					w.Errorf("a large body was answered with %d after %v", got, took)
				}
			case <-time.After(ttl / 3):
				a.call(200, "", "POST", one.path("beat"), "", nil)
			}
		}
		time.Sleep(ttl / 2)
		a.call(200, "", "POST", one.path("beat"), "", nil)
	})
}

func TestUTF8(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": true, "a": true, "ä": true, "€x": true, "x\U0001F600": true, "\ufffd": true,
		"\xff": false, "a\xc3": false, "\xe2\x82": false, "\xe2\x82x": false, "\xf0\x9f\x98": false, "\xed\xa0\x80": false,
		"\xc0\x80": false, "\x80": false, "ä\x80": false,
		`"\ud83d\ude00"`: true, `"\uD83D\uDE00\u00e4"`: true, `"\\ud800"`: true, `"\\\n\ufffd\uE000"`: true, `"\\\\ud800"`: true,
		`"\ud800"`: false, `"\uDC00"`: false, `"\uDFFF\uD800"`: false, `"\ud800x"`: false, `"\ud800\n"`: false, `"\ud800\ud800\udc00"`: false,
		`"\ud800\u0041"`: false, `"\\\ud800"`: false, `"\ud800\\udc00"`: false, `{"\uDBFF":1}`: false, `"\udbff` + "ä" + `\udc00"`: false,
	} {
		for step := 1; step <= 5; step++ {
			r := &utf8Reader{from: &stepReader{text, step}}
			got, err := io.ReadAll(r)
			if (err == nil) != want || want && string(got) != text {
				t.Errorf("%q in steps of %d: got %q (%v), want that it passes: %v", text, step, got, err, want)
			}
		}
	}
}

// A stepReader returns a text in small parts.
type stepReader struct {
	text string
	step int
}

func (r *stepReader) Read(p []byte) (int, error) {
	if r.text == "" {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), r.step)], r.text)
	r.text = r.text[n:]
	return n, nil
}
