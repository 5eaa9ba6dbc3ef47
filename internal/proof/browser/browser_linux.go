package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/servers"
)

const (
	startLimit = time.Minute // for the start of Chromium on a busy machine
	callLimit  = time.Minute // for the answer to a call
)

// Browser is a running Chromium without a window. The browser ends with the test. A Browser is safe
// for concurrent use.
type Browser struct {
	t   testing.TB
	to  io.Writer       // calls are written to it; guarded by mu
	ctx context.Context // ends with Chromium

	mu      sync.Mutex
	calls   int
	waiting map[int]chan answer
	said    []string // console messages, and refusals by the pages' policies
}

// answer is a message of the protocol: the answer to a call, or an event.
type answer struct {
	ID     int
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct{ Message string }
}

// Start starts Chromium, which can connect only to 127.0.0.1. If Chromium is missing, or if -short
// is set, Start skips the test. If the environment requires "chromium", Start fails the test
// instead.
func Start(t testing.TB) *Browser {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: tests with a browser run in make browser")
	}
	path, err := exec.LookPath("chromium")
	if err != nil {
		if servers.Required("chromium") {
			t.Fatal("there is no chromium, which " + servers.RequireVariable + " requires: make servers installs it")
		}
		t.Skip("there is no chromium: make servers installs it")
	}
	dir, err := os.MkdirTemp("/tmp", "tenure-browser-") // TMPDIR may be too long for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// For a moment, Chromium's processes may still write to the directory.
		ample.Soon(context.Background(), func() bool { return os.RemoveAll(dir) == nil })
	})
	callsIn, calls := pipe(t)
	answers, answersOut := pipe(t)
	ctx, ended := context.WithCancelCause(context.Background())
	b := &Browser{t: t, to: calls, ctx: ctx, waiting: make(map[int]chan answer)}
	//nolint:noctx // the cleanup below kills its group
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
		"--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--remote-debugging-pipe", "--user-data-dir="+dir)
	cmd.ExtraFiles = []*os.File{callsIn, answersOut} // 3 and 4
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir, "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = errors.Join(callsIn.Close(), answersOut.Close()) // the browser has them
	var all sync.WaitGroup
	all.Go(func() { ended(b.read(answers)) })
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // Chromium has nothing to save
		_ = cmd.Wait()
		_ = errors.Join(calls.Close(), answers.Close()) // no process reads or writes their other ends
		all.Wait()
	})
	b.call("", "Browser.getVersion", nil, nil, startLimit)
	return b
}

func pipe(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

// read reads messages until Chromium ends.
func (b *Browser) read(from io.Reader) error {
	messages := bufio.NewReader(from)
	for {
		line, err := messages.ReadBytes(0)
		if err != nil {
			return fmt.Errorf("chromium ended: %w", err)
		}
		var a answer
		if err := json.Unmarshal(line[:len(line)-1], &a); err != nil {
			return err
		}
		b.mu.Lock()
		switch a.Method {
		case "":
			if c := b.waiting[a.ID]; c != nil {
				c <- a
				delete(b.waiting, a.ID)
			}
		case "Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled":
			b.said = append(b.said, a.Method+": "+string(a.Params))
		}
		b.mu.Unlock()
	}
}

// call calls a method. If session is not empty, the method runs in that page's session.
func (b *Browser) call(session, method string, params, into any, limit time.Duration) {
	b.t.Helper()
	if params == nil {
		params = struct{}{}
	}
	c := make(chan answer, 1)
	b.mu.Lock()
	b.calls++
	id := b.calls
	b.waiting[id] = c
	message, err := json.Marshal(struct {
		ID      int    `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
		Session string `json:"sessionId,omitempty"`
	}{id, method, params, session})
	if err == nil {
		_, err = b.to.Write(append(message, 0))
	}
	b.mu.Unlock()
	if err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case a := <-c:
		if a.Error != nil {
			b.t.Fatalf("%s: %s", method, a.Error.Message)
		}
		if into != nil {
			if err := json.Unmarshal(a.Result, into); err != nil {
				b.t.Fatalf("%s: %v: %s", method, err, a.Result)
			}
		}
	case <-b.ctx.Done():
		b.t.Fatalf("%s: %v", method, context.Cause(b.ctx))
	case <-late.C:
		b.t.Fatalf("%s: no answer within %v", method, limit)
	}
}

// Complaints returns the errors and policy refusals that the pages reported on their consoles.
func (b *Browser) Complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.said...)
}

// Page is one tab. A Page is safe for concurrent use.
type Page struct {
	b       *Browser
	session string
}

// Options configures a Page.
type Options struct {
	Width, Height int     // CSS pixels
	Scale         float64 // device pixels per CSS pixel
	Dark, Phone   bool
}

// Open opens a page.
func (b *Browser) Open(url string, o Options) *Page {
	b.t.Helper()
	var target struct{ TargetID string }
	b.call("", "Target.createTarget", map[string]any{"url": "about:blank", "newWindow": true}, &target, startLimit)
	var attached struct{ SessionID string }
	b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached, startLimit)
	p := &Page{b: b, session: attached.SessionID}
	p.call("Runtime.enable", nil, nil)
	p.call("Log.enable", nil, nil)
	p.call("Page.enable", nil, nil)
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": o.Width, "height": o.Height, "deviceScaleFactor": max(o.Scale, 1), "mobile": o.Phone}, nil)
	scheme := "light"
	if o.Dark {
		scheme = "dark"
	}
	p.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	p.call("Page.navigate", map[string]any{"url": url}, nil)
	return p
}

func (p *Page) call(method string, params, into any) {
	p.b.t.Helper()
	p.b.call(p.session, method, params, into, callLimit)
}

// Eval evaluates a JavaScript expression, which may be a promise, and decodes its value into *into.
func (p *Page) Eval(expression string, into any) error {
	p.b.t.Helper()
	var out struct {
		Result struct {
			Value       json.RawMessage
			Description string
		}
		ExceptionDetails *struct{ Text string }
	}
	p.call("Runtime.evaluate", map[string]any{
		"expression": expression, "awaitPromise": true, "returnByValue": true}, &out)
	if out.ExceptionDetails != nil {
		return fmt.Errorf("%s: %s %s", expression, out.ExceptionDetails.Text, out.Result.Description)
	}
	if len(out.Result.Value) == 0 {
		return errors.New(expression + ": no value")
	}
	return json.Unmarshal(out.Result.Value, into)
}

// Await waits until an expression is true.
func (p *Page) Await(expression string) {
	p.b.t.Helper()
	var err error
	if !ample.Soon(p.b.t.Context(), func() (yes bool) {
		err = p.Eval(expression, &yes)
		return err == nil && yes
	}) {
		p.b.t.Fatalf("not within %v: %s (%v); the page said %s", ample.Time, expression, err,
			strings.Join(p.b.Complaints(), "\n"))
	}
}

// Press presses a key, such as "ArrowRight".
func (p *Page) Press(key string) {
	p.b.t.Helper()
	for _, kind := range []string{"rawKeyDown", "keyUp"} {
		p.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": codes(key)}, nil)
	}
}

// codes returns the key code of a key that the browser handles, or 0 for other keys.
func codes(key string) int {
	switch key {
	case "Tab":
		return 9
	case "Enter":
		return 13
	}
	return 0
}

// Screenshot returns the visible part of the page, as PNG.
func (p *Page) Screenshot() []byte {
	p.b.t.Helper()
	var out struct{ Data string }
	p.call("Page.captureScreenshot", map[string]any{"format": "png"}, &out)
	image, err := base64.StdEncoding.DecodeString(out.Data)
	if err != nil {
		p.b.t.Fatal(err)
	}
	return image
}
