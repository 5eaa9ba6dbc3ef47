package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

var strangersFor = flag.Duration("serve.strangers", 3*time.Second, "how long TestServeStrangers lasts")

// A served is a process of "tenure serve" on SQLite, with a client that holds a lease.
type served struct {
	*testing.T
	cmd     *exec.Cmd
	log     *journal
	address string
	token   string
	client  http.Client
	lease   string
	fence   int64         // the token of the lease
	ended   chan struct{} // closed when the stream of states is over
}

func newServed(t *testing.T, ttl time.Duration) *served {
	t.Helper()
	p := sqlitePlace(t)
	p.run(exitOK, "init")
	x := &served{T: t, log: &journal{}, token: strings.Repeat("planted", 6), ended: make(chan struct{})}
	x.cmd = p.command(context.Background(), "serve", "--listen", "127.0.0.1:0", "--token-file", tokenFile(t, 0o600))
	x.cmd.Env = append(x.cmd.Env, "TENURE__TTL="+ttl.String())
	x.cmd.Stderr = x.log
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = x.cmd.Process.Signal(syscall.SIGTERM)
		if err := x.cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("serve: %v: %s", err, x.log)
		}
	})
	listening := regexp.MustCompile(`address=(127\.0\.0\.1:\d+)`)
	ample.Wait(t, "serve does not listen", func() bool {
		m := listening.FindStringSubmatch(x.log.String())
		if m != nil {
			x.address = m[1]
		}
		return m != nil
	})
	x.client.Transport = &http.Transport{DisableKeepAlives: true} // each request is a stranger first
	resp := x.request("POST", "/v1/shards/jobs/lease", "")
	states := bufio.NewScanner(resp.Body)
	for x.fence == 0 {
		if !states.Scan() {
			t.Fatalf("no lease: %v", states.Err())
		}
		if text, ok := strings.CutPrefix(states.Text(), "data: "); ok {
			var s struct {
				Lease string
				Token int64
			}
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				t.Fatal(err)
			}
			x.lease, x.fence = s.Lease, s.Token
		}
	}
	go func() {
		defer close(x.ended)
		for states.Scan() {
		}
	}()
	t.Cleanup(func() { _ = resp.Body.Close(); <-x.ended })
	return x
}

func (x *served) request(method, path, body string) *http.Response {
	x.Helper()
	resp, err := x.try(method, path, body)
	if err != nil {
		x.Fatal(err)
	}
	return resp
}

func (x *served) try(method, path, body string) (*http.Response, error) {
	r, err := http.NewRequest(method, "http://"+x.address+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+x.token)
	return x.client.Do(r)
}

// answer sends a request, and returns the status of the answer.
func (x *served) answer(method, path, body string) (int, error) {
	resp, err := x.try(method, path, body)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// TestServeStrangers: 400 clients without the token connect again and again. No request of the
// client with the token fails, and the client does not lose its lease.
func TestServeStrangers(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: .ci/run runs it")
	}
	const ttl = 10 * time.Second
	x := newServed(t, ttl)
	attacks := []string{
		"",
		"POST /v1/shards/jobs/lease HTTP/1.1\r\nHost: x\r\n",
		"POST /v1/shards/jobs/lease HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n",
		"POST /v1/shards/jobs/lease HTTP/1.1\r\nHost: x\r\nExpect: more\r\nContent-Length: 200000\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\nContent-Length: 3000\r\n\r\n",
		strings.Repeat("GET /v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n", 20),
		"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 1<<20),
		"no HTTP",
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var connections atomic.Int64
	for i := range 400 {
		all.Go(func() {
			for ctx.Err() == nil {
				c, err := net.Dial("tcp", x.address)
				if err != nil {
					continue
				}
				connections.Add(1)
				stop := context.AfterFunc(ctx, func() { _ = c.Close() })
				_, _ = io.WriteString(c, attacks[i%len(attacks)])
				_, _ = io.Copy(io.Discard, c)
				stop()
				_ = c.Close()
			}
		})
	}
	requests, failed := 0, 0
	var longest time.Duration
	for range ample.During(*strangersFor, 100*time.Millisecond) {
		for _, what := range []string{"beat", "append"} {
			body := ""
			if what == "append" {
				body = fmt.Sprintf(`{"token":%d,"text":"x"}`, x.fence)
			}
			begun := time.Now()
			status, err := x.answer("POST", "/v1/leases/"+x.lease+"/"+what, body)
			requests++
			longest = max(longest, time.Since(begun))
			if status != http.StatusOK {
				failed++
				t.Errorf("%s: got %d (%v) after %v", what, status, err, time.Since(begun))
			}
		}
	}
	cancel()
	all.Wait()
	select {
	case <-x.ended:
		t.Error("the lease was lost")
	default:
	}
	t.Logf("400 clients without the token for %v, on %d connections: %d of %d requests with it failed, the longest took %v",
		*strangersFor, connections.Load(), failed, requests, longest)
}

// TestServeMemory: whatever the bodies contain, and however large the answers are, the process uses
// less memory than its limit in deploy/kubernetes.
func TestServeMemory(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: the largest requests run in .ci/run")
	}
	const most, size, clients = 125_000_000, 2_680_000, 60
	manifest, err := os.ReadFile("../../deploy/kubernetes/sidecar.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if given := regexp.MustCompile(`limits: \{memory: (\d+)Mi\}`).FindSubmatch(manifest); given == nil {
		t.Fatal("the manifest has no limit of memory")
	} else if n, _ := strconv.Atoi(string(given[1])); n<<20 < most*5/4 {
		t.Errorf("the manifest gives %d MiB, want a quarter above %d MB", n, most/1_000_000)
	}
	fill := func(begin, part, end string) string {
		return begin + strings.Repeat(part, (size-len(begin)-len(end))/len(part)) + end
	}
	for _, kind := range []string{"empty operations", "operations", "one text", "escapes", "base64", "a number", "names", "nested", "blanks",
		"another lease", "an entry", "entries of 1 MB", "items of 1 MB", "tails that nobody reads"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			x := newServed(t, 24*time.Hour)
			token := fmt.Sprintf(`{"token":%d,`, x.fence)
			method, path, body, want := "POST", "/v1/leases/"+x.lease+"/commit", "", map[int]bool{400: true, 413: true}
			switch kind {
			case "empty operations":
				body = fill(token+`"ops":[`, "{},", "{}]}")
			case "operations":
				body = fill(token+`"ops":[`, `{"op":"append","text":""},`, `{"op":"append","text":""}]}`)
			case "one text":
				body = fill(token+`"ops":[{"op":"append","text":"`, "x", `"}]}`)
			case "escapes": // the largest that the store takes
				body = fill(token+`"ops":[{"op":"append","text":"`, `\u0020 `, `"}]}`)
				want = map[int]bool{200: true}
			case "base64":
				body = fill(token+`"ops":[{"op":"append","base64":"`, "AAAA", `"}]}`)
			case "a number":
				body = fill(token+`"ops":[{"op":"append","if_version":`, "9", `}]}`)
			case "names":
				body = fill(token+`"ops":[{"`, "x", `":1}]}`)
			case "nested":
				body = fill(token+`"ops":[`, "[", `]}`)
			case "blanks":
				body = fill(token, " ", `"ops":[]}`)
			case "another lease":
				path, body, want = "/v1/leases/ANOTHER/commit", fill(token+`"ops":[`, "{},", "{}]}"), map[int]bool{410: true}
			case "an entry":
				path, body = "/v1/leases/"+x.lease+"/append", fill(token+`"text":"`, "x", `"}`)
			case "entries of 1 MB", "items of 1 MB", "tails that nobody reads":
				value := `"text":"` + strings.Repeat("x", 1<<20-100)
				if kind == "tails that nobody reads" { // six bytes of JSON for each
					value = `"base64":"` + strings.Repeat("AQEB", (1<<20-100)/3)
				}
				for i := range 20 {
					op := `{"op":"append"`
					if kind == "items of 1 MB" {
						op = fmt.Sprintf(`{"op":"put","key":"k%d"`, i%2)
					}
					if status, err := x.answer(method, path, token+`"ops":[`+op+`,`+value+`"}]}`); status != 200 {
						t.Fatalf("fill the store: got %d (%v)", status, err)
					}
				}
				method, path, want = "GET", "/v1/shards/jobs/log?limit=1000", map[int]bool{200: true}
				if kind == "items of 1 MB" {
					path = "/v1/shards/jobs/item?key=k0"
				}
			}
			if method == "GET" {
				body = ""
			}
			var all sync.WaitGroup
			if kind == "tails that nobody reads" {
				x.unread(&all)
			}
			for range clients {
				all.Go(func() {
					switch status, err := x.answer(method, path, body); {
					case err != nil && strings.Contains(err.Error(), "reset") || err != nil && strings.Contains(err.Error(), "broken pipe"):
						// Refused before the whole body was sent.
					case !want[status] && status != 503:
						t.Errorf("got %d (%v), want one of %v", status, err, want)
					}
				})
			}
			all.Wait()
			peak := peakMemory(t, x.cmd.Process.Pid)
			t.Logf("%d requests of %d bytes: %d MB at the most", clients, len(body), peak/1_000_000)
			if peak > most {
				t.Errorf("the process took %d MB, want at most %d", peak/1_000_000, most/1_000_000)
			}
		})
	}
}

// unread opens the largest allowed number of streams of a log, and reads from none of them.
func (x *served) unread(all *sync.WaitGroup) {
	ctx, cancel := context.WithTimeout(x.Context(), 15*time.Second)
	x.Cleanup(cancel)
	var begun atomic.Int64
	for range 16 {
		all.Go(func() {
			r, err := http.NewRequestWithContext(ctx, "GET", "http://"+x.address+"/v1/shards/jobs/log/tail", nil)
			if err != nil {
				x.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+x.token)
			if resp, err := x.client.Do(r); err == nil {
				begun.Add(1)
				<-ctx.Done()
				_ = resp.Body.Close()
			}
		})
	}
	all.Wait()
	if begun.Load() == 0 {
		x.Error("no stream of the log has begun")
	}
}

// peakMemory returns a process's peak memory, in bytes.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(text, []byte("VmHWM:"))
	n, err := strconv.Atoi(strings.Fields(string(rest))[0])
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}
