package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/servers"
)

func TestMain(m *testing.M) {
	if os.Getenv(memberVariable) != "" {
		if err := memberProcess(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestQuick runs the rows in their quick form on each available store, and checks that every row
// that applies to a contender is measured. For contenders with a TTL of more than two seconds,
// TestQuick runs only two rows.
func TestQuick(t *testing.T) {
	t.Parallel()
	for _, s := range stores() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			shared := started(t, s)
			s.start = func(context.Context) (*running, error) {
				one := *shared
				one.closers = nil
				return &one, nil
			}
			slow := func(c contender) bool { return c.ttl > 2*time.Second }
			for _, w := range rows() {
				on := *s
				if w.name != "acquire1000" && w.name != "release" {
					on.contenders = slices.DeleteFunc(slices.Clone(s.contenders), slow)
				}
				checkRow(t, &on, w)
			}
		})
	}
}

// started returns the store's server, which runs until the test ends.
func started(t *testing.T, s *store) *running {
	t.Helper()
	on, err := s.start(t.Context())
	// Package servers has no Redis server, so no environment can require one.
	if errors.Is(err, servers.ErrUnavailable) && (s.name == "redis" || !servers.Required(servers.Kind(s.name))) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := on.close(); err != nil {
			t.Error(err)
		}
	})
	return on
}

func checkRow(t *testing.T, s *store, w row) {
	t.Helper()
	p := &plan{stores: []*store{s}, rows: []row{w}, rounds: 1, quick: true, log: io.Discard}
	r, err := p.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.versions[s.name] == "" {
		t.Errorf("%s has no version", s.name)
	}
	for _, c := range s.contenders {
		got := r.cells[key{s.name, w.name, c.name}]
		switch {
		case got == nil:
			t.Errorf("%s, %s: not measured", w.name, c.name)
		case errors.Is(got.err, errNone):
			if (c.ours || w.locks && !c.onlyShards) && w.name != "idle" {
				t.Errorf("%s, %s: %v", w.name, c.name, got.err)
			}
		case w.locks && c.onlyShards || !w.locks && c.onlyLocks:
			t.Errorf("%s, %s: measured, although it is not for that", w.name, c.name)
		case got.err != nil:
			t.Errorf("%s, %s: %v", w.name, c.name, got.err)
		case len(got.samples) != 1 || len(got.samples[0]) != len(w.figures):
			t.Errorf("%s, %s: got %v, want one sample of %d figures", w.name, c.name, got.samples, len(w.figures))
		}
	}
}

// made returns results for two stores, one of which is missing.
func made() (*results, *plan) {
	ours := contender{name: "Tenure", ours: true}
	p := &plan{
		stores: []*store{
			{name: "etcd", title: "etcd", contenders: []contender{ours, {name: "Election"}, {name: "third"}}},
			{name: "redis", title: "Redis", contenders: []contender{{name: "redsync"}}},
		},
		rows: []row{rows()[0], rows()[2]},
	}
	cellOf := func(samples ...[]float64) *cell { return &cell{samples: samples} }
	return &results{
		seen:     map[key]conditions{{store: "etcd", row: "acquire1000"}: {flush: 250 * time.Microsecond}},
		versions: map[string]string{"etcd": "3.7"}, missing: map[string]error{"redis": servers.ErrUnavailable},
		cells: map[key]*cell{
			{"etcd", "acquire1000", "Tenure"}:   cellOf([]float64{20}, []float64{10}, []float64{30}),
			{"etcd", "acquire1000", "Election"}: cellOf([]float64{1234}),
			{"etcd", "acquire1000", "third"}:    {err: fmt.Errorf("%w: at most 400", errNone)},
			{"etcd", "takeover", "Tenure"}:      cellOf([]float64{0.75, 0.75}),
			{"etcd", "takeover", "Election"}:    {err: errors.New("broken\nin two lines"), samples: [][]float64{{1, 1}}},
			{"etcd", "takeover", "third"}:       cellOf([]float64{math.Inf(1), 0.2}),
		},
	}, p
}

func TestTables(t *testing.T) {
	t.Parallel()
	r, p := made()
	var got bytes.Buffer
	r.tables(&got, p)
	const want = `### etcd 3.7

| | Tenure | Election | third | a flush |
|---|---|---|---|---|
| acquire 1,000 shards | 20.0 ms (10.0 to 30.0) | 1,234 ms, ×61.7 | -: at most 400 | 0.25 ms |
| takeover | 0.75 TTL; 0.75 s | failed | 0.2 s |  |

* Failed: Election, takeover: broken in two lines

### Redis

Not measured: server is not available.

`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}

	if points := r.points(p, "acquire"); len(points) != 2 {
		t.Errorf("a chart shows %d points, want 2", len(points))
	}
	r.seen[key{store: "etcd", row: "acquire1000"}] = conditions{flush: time.Millisecond, after: 0.3}
	got.Reset()
	r.tables(&got, p)
	const why = "withheld: others used 30 % of a core after it: end them, and measure again"
	const held = "| acquire 1,000 shards | " + why + " | " + why + " | -: at most 400 | 1.00 ms |\n"
	if !strings.Contains(got.String(), held) {
		t.Errorf("got\n%s\nwant the line\n%s", got.String(), held)
	}
	if points := r.points(p, "acquire"); len(points) > 0 {
		t.Errorf("a chart shows %d points of a row that is withheld", len(points))
	}
}

// TestOthers checks that the function others measures another process's use of a core.
func TestOthers(t *testing.T) {
	if cpuTime() == 0 {
		t.Skip("the system does not tell what its cores do")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	share, err := others(t.Context())
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	if err != nil || share < 2*quietShare {
		t.Errorf("beside a process that never waits others used %.2f of a core, %v", share, err)
	}
	if why := (conditions{before: share}).busy(); why == "" {
		t.Error("a row is not withheld beside a process that never waits")
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.0123: "0.012", 0.999: "1", 1: "1.00", 9.999: "10.0", 99.96: "100", 999.6: "1,000", 1234567: "1,234,567",
		math.Inf(1): "-", math.NaN(): "-",
	} {
		if got := number(v); got != want {
			t.Errorf("%v: got %q, want %q", v, got, want)
		}
	}
}

// TestPublish writes a document twice. The text outside the marks must stay the same, and every
// picture in the document must exist and be XML.
func TestPublish(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "doc.md")
	if err := os.WriteFile(path, []byte("# Title\n"+beginMark+"old\n"+endMark+"tail\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, p := made()
	for range 2 {
		if err := r.publish(p, path, []byte("new\n")); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "# Title\n" + beginMark + "\nnew\n![Time to acquire, in ms](doc/acquire.svg)\n\n" +
		"![Takeover after SIGKILL, in TTLs of its own](doc/takeover.svg)\n\n" + endMark + "tail\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, name := range []string{"acquire.svg", "takeover.svg"} {
		picture, err := os.ReadFile(filepath.Join(filepath.Dir(path), "doc", name))
		if err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(bytes.NewReader(picture))
		circles := 0
		for {
			token, err := d.Token()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
				circles++
			}
		}
		if want := map[string]int{"acquire.svg": 2, "takeover.svg": 1}[name]; circles != want {
			t.Errorf("%s: %d points, want %d", name, circles, want)
		}
	}
	if _, err := between([]byte("no marks"), nil); err == nil {
		t.Error("a document without marks is written")
	}
}
