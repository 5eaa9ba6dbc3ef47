package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/browser"
)

var screenshots = flag.String("screenshots", "", "folder for pictures of the board")

// output collects the output of a run, and finds the board's address in it.
type output struct {
	mu   sync.Mutex
	text strings.Builder
	url  chan string
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(b)
	if m := regexp.MustCompile(`the board is at (\S+)\n`).FindStringSubmatch(o.text.String()); m != nil && o.url != nil {
		o.url <- m[1]
		o.url = nil
	}
	return len(b), nil
}

// playing starts a run with a board, and returns its address. The run ends with the test.
func playing(t *testing.T, more ...string) (url string) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	args := append([]string{"-board", "127.0.0.1:0", "-json"}, more...)
	ctx, cancel := context.WithCancel(context.Background())
	found := make(chan string, 1)
	progress := &output{url: found}
	done := make(chan int, 1)
	go func() {
		runtime.LockOSThread() // the members end with it
		done <- run(ctx, args, io.Discard, progress)
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != exitOK && code != exitInterrupted {
			t.Errorf("exit code %d: %s", code, progress.text.String())
		}
		if resp, err := http.Get(url); err == nil {
			resp.Body.Close()
			t.Error("the board answers after the run")
		}
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
			t.Errorf("a child is left: process %d, %v", pid, err)
		}
	})
	select {
	case url = <-found:
		return url
	case <-time.After(ample.Time):
		t.Fatal("the run prints no address")
		return ""
	}
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %s: %s", url, err, resp.Status, body)
	}
	return string(body)
}

// TestBrowserFlightBoard shows the board of a run in a real browser. Before and after the takeover
// of a killed member's airports, the board agrees with /view. It is not parallel, because it looks
// for child processes.
func TestBrowserFlightBoard(t *testing.T) {
	url := playing(t, "-duration", "60s", "-stay", "-ttl", "2s")
	b := browser.Start(t) // it ends before the check for child processes
	p := b.Open(url, browser.Options{Width: 1280, Height: 1060})
	night := b.Open(url, browser.Options{Width: 390, Height: 844, Scale: 2, Phone: true, Dark: true})
	p.Await(`document.getElementById("n-unowned").textContent === "0" && document.querySelectorAll("#members li").length === 3 &&
		[...document.querySelectorAll("#members .count")].every(c => +c.textContent > 60)`)
	before := agreeing(t, p, url)
	picture(t, p, "before")

	// The member that was killed is gone, and the others have its airports.
	p.Await(`[...document.querySelectorAll("#members .gone .count")].some(c => c.textContent === "0") &&
		document.getElementById("log").textContent.includes("taken over") && document.getElementById("n-unowned").textContent === "0"`)
	picture(t, p, "after")
	picture(t, night, "phone")
	after := agreeing(t, p, url)
	if slices.EqualFunc(before, after, slices.Equal[[]string]) {
		t.Error("no airport changed hands")
	}
	var drawn bool
	if err := p.Eval(`(() => {
		const map = document.getElementById("map"), all = map.getContext("2d").getImageData(0, 0, map.width, map.height).data;
		const found = new Set();
		for (let i = 0; i < all.length; i += 4) found.add(all[i] << 16 | all[i + 1] << 8 | all[i + 2]);
		return found.size > 3 && !document.getElementById("map-box").hidden;
	})()`, &drawn); err != nil || !drawn {
		t.Errorf("there are no airports on the map: %v", err)
	}
	if said := b.Complaints(); len(said) > 0 {
		t.Errorf("the page complains: %q", said)
	}
	metrics := fetch(t, url+"metrics")
	for _, series := range []string{
		`tenure_members{member="observer"}`, `tenure_leases{member="member-`, `tenure_peer_events_total{event="gone",member="observer"}`,
	} {
		if !strings.Contains(metrics, series) {
			t.Errorf("/metrics lacks %s", series)
		}
	}
}

// agreeing reads all pages of the page's table until the table has the same airports as /view, and
// returns them.
func agreeing(t *testing.T, p *browser.Page, url string) (rows [][]string) {
	t.Helper()
	var want [][]string
	if !ample.Soon(t.Context(), func() bool {
		var v struct {
			Shards []struct {
				Shard, Node string
				Token       core.Token
			}
		}
		if err := json.Unmarshal([]byte(fetch(t, url+"view")), &v); err != nil {
			t.Fatal(err)
		}
		want = nil
		for _, s := range v.Shards {
			want = append(want, []string{s.Shard, s.Node, fmt.Sprint(s.Token)})
		}
		if err := p.Eval(`(() => {
			document.getElementById("table-box").open = true;
			const rows = [];
			while (!document.getElementById("before").disabled) document.getElementById("before").click();
			for (;;) {
				showTable();
				for (const tr of document.querySelectorAll("#rows tr")) {
					const [name, owner, token] = [...tr.children].map(td => td.textContent);
					rows.push([name, owner.includes("gone") || owner === "nobody" ? "" : owner.replace(/ \(.*/, ""), token]);
				}
				if (document.getElementById("after").disabled) break;
				document.getElementById("after").click();
			}
			document.getElementById("table-box").open = false;
			return rows;
		})()`, &rows); err != nil {
			t.Fatal(err)
		}
		return slices.EqualFunc(rows, want, slices.Equal[[]string])
	}) {
		t.Errorf("the page shows %v, want %v", rows, want)
	}
	return rows
}

// picture writes a picture of the page, if the flag asks for one.
func picture(t *testing.T, p *browser.Page, name string) {
	t.Helper()
	if *screenshots == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*screenshots, "board-"+name+".png"), p.Screenshot(), 0o600); err != nil {
		t.Fatal(err)
	}
}
