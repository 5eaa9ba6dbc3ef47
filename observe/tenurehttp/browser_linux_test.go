package tenurehttp_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/memory"
	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/control"
	"github.com/tenure-go/tenure/effect"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/proof/browser"
	"github.com/tenure-go/tenure/internal/proof/loglines"
	"github.com/tenure-go/tenure/observe/tenurehttp"
	"github.com/tenure-go/tenure/sharding"
)

// tableOf returns the table of shards as the page shows it: name, owner and token.
const tableOf = `(() => {
	document.getElementById("table-box").open = true;
	return [...document.querySelectorAll("#rows tr")].map(tr => [...tr.children].map(td => td.textContent));
})()`

// TestBrowserBoard: a real browser shows a member's board before and after the member takes over
// from another member. The page shows the same data as /view.
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
			Node: node, TTL: 5 * time.Second, Hooks: j.Hooks(), Logger: slog.New(slog.DiscardHandler)})
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
	ample.Wait(t, "the first member does not get the shards", func() bool { return len(first.View().Leases) == len(shards) })
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

	// The keyboard works, too.
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

// TestBrowserOrder: events from all lists are shown newest first. Only consecutive events that are
// at most a second apart form one entry.
func TestBrowserOrder(t *testing.T) {
	t.Parallel()
	b := browser.Start(t)
	v := &core.View{Node: "n1", Session: "S1", Trusted: true}
	add := func(at int64, kind core.EventKind, err error, shards ...string) {
		for _, s := range shards {
			v.Moves = append(v.Moves, core.Event{At: time.Unix(at, 0), Fence: core.Fence{Shard: core.ShardID(s), Token: 7}, Kind: kind, Err: err})
		}
	}
	add(1000, core.LeaseEnded, core.ErrLapsed, "a", "b")
	add(2000, core.LeaseGranted, nil, "c", "d", "e")
	add(4000, core.LeaseEnded, core.ErrLapsed, "f")
	j := &tenurehttp.Journal{}
	j.Add(tenurehttp.Note{At: time.Unix(3000, 0), Kind: tenurehttp.NoteMember, Text: "n2 evicted"})
	s := serve(t, tenurehttp.Handler(newChanging(v), &tenurehttp.Options{Journal: j}))
	p := b.Open(s.URL+"/", browser.Options{Width: 1000, Height: 800})
	p.Await(`document.querySelectorAll("#log li").length === 4`)
	var got []string
	if err := p.Eval(`[...document.querySelectorAll("#log li")].map(li => [...li.querySelectorAll("p")].map(p => p.textContent).join("; "))`, &got); err != nil {
		t.Fatal(err)
	}
	const lapsed = "no heartbeat succeeded in time, so another member may have it"
	want := []string{
		"1 lease of n1 revoked; " + lapsed + "; f", "n2 evicted", "3 leases of n1 granted; c, d, e", "2 leases of n1 revoked; " + lapsed + "; a, b",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// codes are the letters of a member.
var codes = regexp.MustCompile(` \([A-Z]{2}\)$`)

// agree waits until the page's table has the same rows as /view.
func agree(t *testing.T, p *browser.Page, url string) {
	t.Helper()
	var rows, want [][]string
	if !ample.Soon(t.Context(), func() bool {
		want = nil
		for _, s := range viewAt(t, url).Shards {
			want = append(want, []string{s.Shard, cmp.Or(s.Node, "nobody"), fmt.Sprint(s.Token)})
		}
		if err := p.Eval(tableOf, &rows); err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			row[1] = codes.ReplaceAllString(row[1], "")
		}
		return slices.EqualFunc(rows, want, slices.Equal[[]string])
	}) {
		t.Errorf("the page shows %v, want %v", rows, want)
	}
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

// TestBrowserAside: the page marks a shard in quarantine, describes the quarantine in words, and
// later removes the mark and the description.
func TestBrowserAside(t *testing.T) {
	t.Parallel()
	b := browser.Start(t)
	source := newChanging(sample())
	p := b.Open(serve(t, tenurehttp.Handler(source, nil)).URL+"/", browser.Options{Width: 1000, Height: 800})
	p.Await(`document.getElementById("n-unowned").textContent === "1" && document.getElementById("tile-quarantined").hidden`)
	source.change(func(v *core.View) {
		v.Shards[2].Aside, v.Shards[2].AsideUntil = "in quarantine until noon", time.Now().Add(time.Hour)
		v.Shards = append(v.Shards, core.Ownership{Shard: "orders-4", Token: 1, Aside: "its range was merged"})
	})
	p.Await(`document.getElementById("n-quarantined").textContent === "1" && !document.getElementById("tile-quarantined").hidden`)
	p.Await(`document.getElementById("n-unowned").textContent === "0" && document.title.startsWith("1 in quarantine")`)
	p.Await(`document.querySelector("#log li.bad").textContent.includes("1 shard in quarantine")`)
	p.Await(`(document.getElementById("grid").focus(), true)`)
	p.Press("End")
	p.Await(`document.getElementById("cell").textContent === "orders-4: nobody: its range was merged, token 1"`)
	p.Press("ArrowLeft")
	p.Await(`document.getElementById("cell").textContent === "orders-3: nobody: in quarantine until noon, token 3"`)
	source.change(func(v *core.View) { v.Shards[2].Aside, v.Shards[2].AsideUntil = "", time.Time{} })
	p.Await(`document.getElementById("tile-quarantined").hidden && document.querySelector("#log li").textContent.includes("1 shard out of quarantine")`)
	if said := b.Complaints(); len(said) > 0 {
		t.Errorf("the page complains: %q", said)
	}
}

// TestBrowserPeople: a board shows what people look for. The member that serves the board comes
// first. Shards are in natural order, without Tenure's own shards. A member's letters are the same
// on every board, and strong colors mean a lot of load. Events show nodes, destinations and
// sentences.
func TestBrowserPeople(t *testing.T) {
	t.Parallel()
	b := browser.Start(t)
	id := func(i int) core.SessionID { return core.SessionID(fmt.Sprintf("%032x", i)) }
	v := &core.View{Trusted: true}
	for i := range 20 {
		v.Members = append(v.Members, core.Member{Session: id(i), Node: fmt.Sprintf("node-%d", i), TTL: 10 * time.Second})
	}
	p := &painted{}
	p.p.Store(&sharding.Picture{Ranges: equal(2, func(i int) string { return fmt.Sprintf("a-%d", 9+i) }),
		Loads: map[string]float64{"a-9": 100, "a-10": 1}})
	own := func(v *core.View, first int) {
		v.Shards = []core.Ownership{{Shard: "_assigner", Session: id(0), Node: "node-0", Token: 1}}
		for _, n := range []int{1, 10, 11, 12, 13, 14, 15, 2, 3, 4, 5, 6, 7, 8, 9} { // in the order of names
			owner := first + n%14
			v.Shards = append(v.Shards, core.Ownership{Shard: fmt.Sprintf("a-%d", n), Session: id(owner), Node: fmt.Sprintf("node-%d", owner),
				Token: core.Token(first + 1)})
		}
	}
	own(v, 0)
	v.Moves = []core.Event{{At: time.Unix(1000, 0), Fence: core.Fence{Shard: "a-3", Token: 7}, Kind: core.LeaseEnded, Err: core.ErrStalled}}
	var letters [2]string
	for i, self := range []int{7, 12} {
		seen := *v
		seen.Node, seen.Session = fmt.Sprintf("node-%d", self), id(self)
		if seen.Members = slices.Clone(v.Members); i == 1 {
			slices.Reverse(seen.Members[:10]) // the order in which a board first saw members has no effect
			slices.SortFunc(seen.Members, func(a, b core.Member) int { return cmp.Compare(a.Session, b.Session) })
		}
		j, source := &tenurehttp.Journal{}, newChanging(&seen)
		j.Add(tenurehttp.Note{Kind: tenurehttp.NoteSession, Text: "session lost: evicted by " + string(id(3))})
		page := b.Open(serve(t, tenurehttp.Handler(source, &tenurehttp.Options{Journal: j, Sharding: p.picture})).URL+"/",
			browser.Options{Width: 1280, Height: 1000})
		page.Await(`document.getElementById("n-shards").textContent === "15" && !document.getElementById("heat-help").hidden`)
		page.Await(fmt.Sprintf(`[...document.querySelectorAll("#members li")].map(li => li.dataset.node).slice(0, 4).join() === "node-%d,node-0,node-1,node-2"`, self))
		page.Await(`document.querySelector("[data-node=node-0] .count").textContent === "1"`) // a-14
		page.Await(`[...document.querySelectorAll("#ranges span")].map(e => Number(e.style.opacity).toFixed(2)).join() === "1.00,0.46"`)
		page.Await(`[...document.querySelectorAll("#log p")].some(p => p.textContent === "session lost: evicted by node-3")`)
		page.Await(`[...document.querySelectorAll("#log p.why")].some(p => p.textContent === "the handler reported no progress in time")`)
		page.Await(`(document.getElementById("grid").focus(), document.getElementById("cell").textContent !== "")`)
		page.Press("End")
		page.Await(`document.getElementById("cell").textContent.startsWith("a-15: ")`)
		page.Await(`(document.getElementById("table-box").open = true, document.querySelectorAll("#rows tr").length === 16)`)
		var rows [][]string
		if err := page.Eval(tableOf, &rows); err != nil || len(rows) != 16 || rows[2][0] != "a-2" || rows[10][0] != "a-10" {
			t.Errorf("%v, %v", rows, err)
		}
		for _, row := range rows {
			letters[i] += row[1] + "\n"
		}
		source.change(func(v *core.View) { own(v, 3) })
		page.Await(`[...document.querySelectorAll("#log p.why")].some(p => /^to node-3 \(1\), node-4 \(2\), .* and [0-9]+ more$/.test(p.textContent))`)
		picture(t, page, fmt.Sprintf("people-%d", i))
	}
	if letters[0] != letters[1] || !codes.MatchString(strings.TrimSpace(letters[0])) {
		t.Errorf("the boards show\n%s\nand\n%s", letters[0], letters[1])
	}
	if said := b.Complaints(); len(said) > 0 {
		t.Errorf("the page complains: %q", said)
	}
}

// TestBrowserManyShards prints how many frames per second a page with 10,000 shards draws while
// 1,000 of them move each second, on a wide screen and on a phone.
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
		p.Await(`document.documentElement.scrollWidth <= innerWidth`) // no content extends beyond the edge
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

// TestBrowserShares: for two members that share a keyspace, the page shows the ranges and loads
// that the members report, and splits and merges as they happen.
func TestBrowserShares(t *testing.T) {
	t.Parallel()
	b := browser.Start(t)
	store := memory.New()
	keys := sharding.Keyspace{Name: "orders", Shards: 4}
	var handlers []http.Handler
	for i := range 2 {
		handlers = append(handlers, keyed(t, store, fmt.Sprintf("n%d", i+1), keys, float64(1000*i)))
	}
	p := b.Open(serve(t, handlers[0]).URL+"/", browser.Options{Width: 1280, Height: 1000})
	p.Await(`document.querySelectorAll("#members li").length === 2 && document.querySelectorAll("#ranges span").length >= 4`)
	p.Await(`[...document.querySelectorAll("#log li p")].some(p => / split begun by the assigner, into orders-/.test(p.textContent))`)
	p.Await(`[...document.querySelectorAll("#log li p")].some(p => / split ended, into orders-/.test(p.textContent))`)
	p.Await(`document.querySelector("[data-node=n1] .load").textContent.match(/^load [1-9][0-9.,]*, [0-9.]+ % of all$/) !== null`)
	p.Await(`document.querySelector("[data-node=n2] .load").textContent.match(/^load [1-9][0-9.,]*, [0-9.]+ % of its capacity 1,000$/) !== null`)
	p.Await(`(document.getElementById("ranges").focus(), true)`)
	p.Press("Home")
	p.Await(`/^orders-[0-9]+: 0x0000000000000000 to 0x/.test(document.getElementById("range").textContent)`)
	p.Press("End")
	p.Await(`/ to 0x10000000000000000, [0-9.]+ % of the keyspace, n[12] \([A-Z]{2}\), load /.test(document.getElementById("range").textContent)`)
	p.Await(`(document.getElementById("table-box").open = true, !document.getElementById("load-head").hidden)`)
	p.Await(`[...document.querySelectorAll("#rows tr")].filter(tr => /^orders/.test(tr.textContent) &&
		Number(tr.children[3].textContent) > 0).length > 2`)
	picture(t, p, "shares")
	if said := b.Complaints(); len(said) > 0 {
		t.Errorf("the page complains: %q", said)
	}
}

func picture(t *testing.T, p *browser.Page, name string) {
	t.Helper()
	if dir := os.Getenv("TENURE_PICTURES"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".png"), p.Screenshot(), 0o600); err != nil {
			t.Error(err)
		}
	}
}

// keyed starts a member whose slices have the load of 200 keys, one of which is hot, and returns
// its board.
func keyed(t *testing.T, store *memory.Store, node string, keys sharding.Keyspace, capacity float64) http.Handler {
	t.Helper()
	backend, err := memory.Open(t.Context(), store, "board", nil)
	if err != nil {
		t.Fatal(err)
	}
	quiet, j := slog.New(slog.DiscardHandler), &tenurehttp.Journal{}
	e, err := core.NewElector(backend, &core.Options{Node: node, TTL: 5 * time.Second, Hooks: j.Hooks(), Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	var m *sharding.Manager
	m, err = sharding.NewManager(backend, e, func(ctx context.Context, l *core.Lease) error {
		s, err := m.OpenSlice(ctx, l, nil)
		if err != nil {
			return err
		}
		defer s.Close()
		for ctx.Err() == nil {
			for i := range 200 {
				s.Add(fmt.Sprint(i), 0.05)
			}
			s.Add("hot", 4)
			time.Sleep(50 * time.Millisecond)
		}
		return nil
	}, &sharding.Options{Keyspace: keys, Interval: 200 * time.Millisecond, Capacity: capacity, OnRange: j.Ranged,
		Logger: loglines.Failures("tenure: sharding: trying", func(err error) { t.Log(err) })})
	if err != nil {
		t.Fatal(err)
	}
	elect, end := context.WithCancel(context.Background())
	manage, stop := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { _ = e.Run(elect) })
	ran := make(chan error, 1)
	go func() { ran <- m.Run(manage) }()
	t.Cleanup(func() { stop(); end(); <-ran; all.Wait(); backend.Close() })
	return tenurehttp.Handler(e, &tenurehttp.Options{Journal: j, Sharding: m.Picture})
}

// TestBrowserSharesHostile: names and texts from other members stay text. The page combines many
// ranges into few, even on a phone.
func TestBrowserSharesHostile(t *testing.T) {
	t.Parallel()
	b := browser.Start(t)
	const evil = `"><img src=x onerror="document.title='pwned'">__proto__`
	v := sample()
	v.Members[0].Node, v.Shards[0].Node, v.Shards[0].Shard = evil, evil, evil
	p := &painted{}
	p.p.Store(&sharding.Picture{
		Ranges: equal(100_000, func(i int) string { return map[bool]string{true: evil, false: "orders-2"}[i%2 == 0] }),
		Loads:  map[string]float64{evil: 1e300, "__proto__": 1, "orders-2": 1e-300},
	})
	j := &tenurehttp.Journal{}
	page := b.Open(serve(t, tenurehttp.Handler(newChanging(v), &tenurehttp.Options{Journal: j, Sharding: p.picture})).URL+"/",
		browser.Options{Width: 390, Height: 844, Scale: 2, Phone: true, Dark: true})
	page.Await(`document.querySelectorAll("#ranges span").length === 256`)
	j.Ranged([]sharding.RangeEvent{{From: evil, To: []string{"orders-2"}, Rule: &control.Rule{Author: evil, Reason: evil}}})
	j.Ranged([]sharding.RangeEvent{{From: evil, To: []string{evil}, Why: evil}})
	page.Await(`[...document.querySelectorAll("#log li p")].some(p => p.textContent.endsWith("return of a range begun: \"><img src=x onerror=\"document.title='pwned'\">__proto__"))`)
	page.Await(`[...document.querySelectorAll("#log li p")].some(p => p.textContent.includes("split begun by a rule of \"><img"))`)
	page.Await(`document.querySelector("#members .load").textContent.includes("load 1E300")`)
	page.Await(`document.documentElement.scrollWidth <= innerWidth`)
	page.Await(`(document.getElementById("ranges").focus(), true)`)
	page.Press("End")
	page.Await(`document.getElementById("range").textContent.includes("2 owners, most is of") && document.images.length === 0`)
	picture(t, page, "hostile")
	if said := b.Complaints(); len(said) > 0 {
		t.Errorf("the page complains: %q", said)
	}
}

// TestBrowserEffects: the page shows how many effects wait, names of shards stay text, and decided
// effects disappear.
func TestBrowserEffects(t *testing.T) {
	t.Parallel()
	b := browser.Start(t)
	const evil = `"><img src=x onerror="document.title='pwned'">__proto__`
	c, began := &counted{}, time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	counts := effect.Counts{InDoubt: effect.Waiting{Number: 1200, Oldest: began}, Unresolved: effect.Waiting{Number: 2, Oldest: began}}
	for i := range 200 {
		counts.Shards = append(counts.Shards, effect.ShardCounts{Shard: fmt.Sprintf("orders-%d", i), InDoubt: 6})
	}
	counts.Shards = append(counts.Shards, effect.ShardCounts{Shard: evil, Unresolved: 2})
	c.c.Store(&counts)
	page := b.Open(serve(t, tenurehttp.Handler(newChanging(sample()), &tenurehttp.Options{Effects: c.counts})).URL+"/",
		browser.Options{Width: 390, Height: 844, Scale: 2, Phone: true, Dark: true})
	page.Await(`document.querySelectorAll("#effects li").length === 100 && document.getElementById("n-effects").textContent === "1,202"`)
	page.Await(`document.getElementById("n-unresolved").textContent === "2" && !document.getElementById("tile-unresolved").hidden`)
	page.Await(`document.querySelector("#effects li.bad").textContent.endsWith("__proto__: 2 effects in doubt, 2 for a person to decide")`)
	page.Await(`document.querySelectorAll("#effects li")[1].textContent === "orders-0: 6 effects in doubt"`)
	page.Await(`/^More shards have some\. The oldest began 0[12]\/07\/2026/.test(document.getElementById("effects-help").textContent)`)
	page.Await(`document.documentElement.scrollWidth <= innerWidth && document.images.length === 0`)
	picture(t, page, "effects")
	c.c.Store(&effect.Counts{})
	page.Await(`document.getElementById("effects-box").hidden && document.getElementById("tile-unresolved").hidden &&
		document.getElementById("n-effects").textContent === "0"`)
	if said := b.Complaints(); len(said) > 0 {
		t.Errorf("the page complains: %q", said)
	}
}
