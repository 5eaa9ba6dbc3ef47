package tenurehttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/internal/proof/browser"
	"github.com/tenure-go/tenure/observe/tenurehttp"
)

// tableOf is the table of shards as the page shows it: name, owner and token.
const tableOf = `(() => {
	document.getElementById("table-box").open = true;
	return [...document.querySelectorAll("#rows tr")].map(tr => [...tr.children].map(td => td.textContent));
})()`

// TestBrowserBoard has a real browser show the board of a member, before and after that
// one took over from another: the page shows what /view says.
func TestBrowserBoard(t *testing.T) {
	t.Parallel()
	b := browser.Start(t)
	store := memory.New()
	var shards []string
	for i := range 40 {
		shards = append(shards, fmt.Sprintf("orders-%02d", i))
	}
	start := func(node string, j *tenurehttp.Journal) (*core.Elector, func()) {
		backend, err := memory.Open(t.Context(), store, "board", nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := core.NewElector(backend, &core.Options{
			Node: node, TTL: 2 * time.Second, Hooks: j.Hooks(), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Contend(func(ctx context.Context, _ *core.Lease) error { <-ctx.Done(); return nil }, shards...); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		stop := func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			done <- nil
		}
		t.Cleanup(func() { stop(); backend.Close() })
		return e, stop
	}
	first, stop := start("n1", &tenurehttp.Journal{})
	for end := time.Now().Add(time.Minute); len(first.View().Leases) < len(shards); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the first member does not get the shards")
		}
	}
	j := &tenurehttp.Journal{}
	e, _ := start("n2", j)
	s := serve(t, tenurehttp.Handler(e, &tenurehttp.Options{Journal: j}))

	p := b.Open(s.URL+"/", browser.Options{Width: 1000, Height: 800})
	p.Await(`document.querySelectorAll("#members li").length === 2 && document.getElementById("n-unowned").textContent === "0"`)
	p.Await(`document.querySelectorAll("[data-node=n1] .count")[0].textContent !== "0"`)
	agree(t, p, s.URL)
	stop()
	p.Await(`document.querySelectorAll("[data-node=n2] .count")[0].textContent === "40"`)
	agree(t, p, s.URL)
	var log string
	if err := p.Eval(`document.getElementById("log").textContent`, &log); err != nil || log == "" {
		t.Errorf("what happened: %q, %v", log, err)
	}

	// By keyboard.
	for _, k := range []struct{ key, want string }{
		{"", "orders-00: n2 ("}, {"ArrowRight", "orders-01: "}, {"End", "orders-39: "}, {"ArrowLeft", "orders-38: "},
		{"Home", "orders-00: "},
	} {
		if k.key == "" {
			p.Await(`(document.getElementById("grid").focus(), true)`)
		} else {
			p.Press(k.key)
		}
		p.Await(fmt.Sprintf(`document.getElementById("cell").textContent.startsWith(%q)`, k.want))
	}
	if said := b.Complaints(); len(said) > 0 {
		t.Errorf("the page complains: %q", said)
	}
}

// TestBrowserOrder: what happened is shown newest first, whichever list has it, and only what
// follows each other within a second is one entry.
func TestBrowserOrder(t *testing.T) {
	t.Parallel()
	b := browser.Start(t)
	v := &core.View{Node: "n1", Session: "S1", Trusted: true}
	add := func(at int64, kind core.MoveKind, err error, shards ...string) {
		for _, s := range shards {
			v.Moves = append(v.Moves, core.Move{At: time.Unix(at, 0), Fence: core.Fence{Shard: core.ShardID(s), Token: 7}, Kind: kind, Err: err})
		}
	}
	add(1000, core.MoveRevoked, core.ErrLapsed, "a", "b")
	add(2000, core.MoveGranted, nil, "c", "d", "e")
	add(4000, core.MoveRevoked, core.ErrLapsed, "f")
	j := &tenurehttp.Journal{}
	j.Add(tenurehttp.Note{At: time.Unix(3000, 0), Kind: tenurehttp.NoteMember, Text: "n2 evicted"})
	s := serve(t, tenurehttp.Handler(newChanging(v), &tenurehttp.Options{Journal: j}))
	p := b.Open(s.URL+"/", browser.Options{Width: 1000, Height: 800})
	p.Await(`document.querySelectorAll("#log li").length === 4`)
	var got []string
	if err := p.Eval(`[...document.querySelectorAll("#log li")].map(li => [...li.querySelectorAll("p")].map(p => p.textContent).join("; "))`, &got); err != nil {
		t.Fatal(err)
	}
	lapsed := core.ErrLapsed.Error()
	want := []string{
		"1 lease of n1 revoked; " + lapsed + "; f", "n2 evicted", "3 leases of n1 granted; c, d, e", "2 leases of n1 revoked; " + lapsed + "; a, b",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// agree waits until the page's table has the rows that /view has.
func agree(t *testing.T, p *browser.Page, url string) {
	t.Helper()
	var rows, want [][]string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		want = nil
		for _, s := range viewAt(t, url).Shards {
			owner := s.Node + map[string]string{"n1": " (A)", "n2": " (B)", "": "nobody"}[s.Node]
			want = append(want, []string{s.Shard, owner, fmt.Sprint(s.Token)})
		}
		if err := p.Eval(tableOf, &rows); err != nil {
			t.Fatal(err)
		}
		if slices.EqualFunc(rows, want, slices.Equal[[]string]) {
			return
		}
	}
	t.Errorf("the page shows %v, want %v", rows, want)
}

func viewAt(t *testing.T, url string) (v tenurehttp.View) {
	t.Helper()
	resp, err := http.Get(url + "/view")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestBrowserManyShards prints how many frames a second a page of 10,000 shards draws
// while 1,000 of them move each second, on a wide screen and on a phone.
func TestBrowserManyShards(t *testing.T) {
	t.Parallel()
	const shards, moves, members = 10_000, 1_000, 20
	v := &core.View{Node: "n00", Session: "S0", Trusted: true}
	for i := range members {
		v.Members = append(v.Members, core.Member{
			Session: core.SessionID(fmt.Sprintf("S%d", i)), Node: fmt.Sprintf("n%02d", i), TTL: 10 * time.Second})
	}
	give := func(o *core.Ownership, to int) {
		o.Session, o.Node, o.Token = v.Members[to].Session, v.Members[to].Node, o.Token+1
	}
	for i := range shards {
		o := core.Ownership{Shard: fmt.Sprintf("orders-%05d", i)}
		give(&o, i*members/shards)
		v.Shards = append(v.Shards, o)
	}
	b := browser.Start(t)
	for name, o := range map[string]browser.Options{
		"wide": {Width: 1440, Height: 900}, "phone": {Width: 390, Height: 844, Scale: 2, Phone: true, Dark: true},
	} {
		source := newChanging(v)
		s := serve(t, tenurehttp.Handler(source, nil))
		p := b.Open(s.URL+"/", o)
		p.Await(`document.getElementById("n-shards").textContent === "10,000"`)
		p.Await(`document.documentElement.scrollWidth <= innerWidth`) // nothing beyond the edge
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			ticks := time.NewTicker(time.Second / 5)
			defer ticks.Stop()
			for n := 0; ; n++ {
				source.change(func(v *core.View) {
					for i := range moves / 5 {
						give(&v.Shards[(n*moves/5+i*49)%shards], (n+i)%members)
					}
				})
				select {
				case <-ticks.C:
				case <-stop:
					return
				}
			}
		}()
		var out struct{ Frames, Seconds, Moves float64 }
		err := p.Eval(`new Promise(done => {
			const began = performance.now(), before = document.querySelectorAll("#log li").length;
			let frames = 0;
			const count = now => {
				if (now - began < 3000) { frames++; requestAnimationFrame(count); return; }
				done({Frames: frames, Seconds: (now - began) / 1000, Moves: document.querySelectorAll("#log li").length - before});
			};
			requestAnimationFrame(count);
		})`, &out)
		close(stop)
		<-done
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.0f frames a second, %d shards, %d moves a second", name, out.Frames/out.Seconds, shards, moves)
		if out.Moves == 0 || out.Frames == 0 {
			t.Errorf("%s: %+v: the page shows no moves", name, out)
		}
	}
	if said := b.Complaints(); len(said) > 0 {
		t.Errorf("the page complains: %q", said)
	}
}
