package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core/driver"
)

func TestCompile(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	for _, spec := range catalogue {
		if len(spec.params) == 0 {
			file.WriteString("-- name: " + spec.name + "\nSELECT 1;\n\n")
			continue
		}
		names := slices.Concat(spec.params[1:], spec.columns)
		slices.Reverse(names)
		file.WriteString("-- name: " + spec.name + "\nSELECT 1 FROM tenure_x WHERE ")
		for _, name := range names {
			file.WriteString("x = :" + name + " OR ")
		}
		file.WriteString(":" + spec.params[0] + "::text = ''\n;\n\n")
	}
	place := func(int) string { return "?" }
	s, err := Compile(file.String(), "my_", place)
	if err != nil {
		t.Fatal(err)
	}
	got := s.compiled[tailInsert]
	if want := "SELECT 1 FROM my_x WHERE x = ? OR ?::text = ''\n"; got.text != want {
		t.Errorf("got %q, want %q", got.text, want)
	}
	if args := s.bind(tailInsert, []any{"ns", 3}); args[0] != 3 || args[1] != "ns" {
		t.Errorf("arguments %v, want [3 ns]", args)
	}
	if got := s.compiled[itemsPut]; got.rows != 1 || s.bind(itemsPut, []any{"ns", "s", "k", 1, "bytes"})[0] != "bytes" {
		t.Errorf("a statement of columns is %+v", got)
	}
	// with returns the file with a different text of a statement, or without the statement if the
	// text is empty.
	with := func(name, text string) string {
		head := "-- name: " + name + "\n"
		before, after, _ := strings.Cut(file.String(), head)
		_, after, _ = strings.Cut(after, "\n;\n\n")
		if text != "" {
			text = head + text + "\n;\n\n"
		}
		return before + text + after
	}
	s, err = Compile(with("items_put", "SELECT :rows, :namespace"), "my_", place)
	if err != nil || s.compiled[itemsPut].rows != 0 || s.bind(itemsPut, []any{"ns", "[]"})[0] != "[]" {
		t.Errorf("a statement of rows: %v", err)
	}
	if s, err := Compile(with("items_delete", "SELECT :rows, :namespace"), "my_", place); err != nil || s.compiled[itemsDelete].rows != 0 {
		t.Errorf("a statement of rows without bytes: %v", err)
	}
	if s, err := Compile(with("logs_append", ""), "my_", place); err != nil || s.has(logsAppend) || !s.has(logsInsert) {
		t.Errorf("without the optional statement: %v", err)
	}
	_, err = Compile("-- name: more\nSELECT 1", "my_", place)
	for _, want := range []string{
		`no statement "shards_grant" (:namespace, :shards, :session, :token, :from, :revision, :note): add it`,
		`no statement "items_put" (:namespace; for each row :shard, :key, :version, :bytes): add it`,
		`statement "more" is not in the catalogue`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a file without statements: %v; want %s", err, want)
		}
	}
	for what, bad := range map[string]string{
		"a missing statement":    with("tail_insert", ""),
		"an unknown statement":   file.String() + "-- name: more\nSELECT 1",
		"an unknown parameter":   strings.Replace(file.String(), ":bucket", ":bucket OR :buckets", 1),
		"no parameter":           with("probe_update", "SELECT :id, :version"),
		"rows beside a column":   with("items_put", "SELECT :rows, :version, :namespace"),
		"each and one column":    with("items_delete", "SELECT each(64, :shard), :key, :namespace"),
		"each of a parameter":    with("items_delete", "SELECT each(64, :shard), each(64, :key), each(64, :namespace)"),
		"each of other numbers":  with("items_delete", "SELECT each(64, :shard), each(16, :key), :namespace"),
		"each of none":           with("items_delete", "SELECT each(0, :shard), each(0, :key), :namespace"),
		"each without rows":      with("tail_insert", "SELECT each(64, :bucket), :namespace"),
		"a prefix with a quote'": "",
	} {
		prefix := "my_"
		if bad == "" {
			prefix = "my'"
		}
		if _, err := Compile(bad, prefix, place); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}

// queued is a Runner that records the queued statements.
type queued struct {
	answer
	statements []Statement
	args       [][]any
}

func (q *queued) Queue(_ context.Context, s Statement, args []any, _ func(Row) error) error {
	q.statements, q.args = append(q.statements, s), append(q.args, args)
	return nil
}

// TestRowsOfABatch: a statement of each form gets all rows. If the rows fit, the statement for few
// rows or for one row is used.
func TestRowsOfABatch(t *testing.T) {
	t.Parallel()
	const eachRows = 64
	var s Statements
	place := func(int) string { return "?" }
	for of, text := range map[Statement]string{
		headsWrite: "SELECT :namespace, :rows",
		headsFew: "SELECT each(64, :shard), each(64, :number), each(64, :seq), " +
			"each(64, :oldest), each(64, :nonce), each(64, :token), :namespace",
		headWrite: "SELECT :token, :nonce, :oldest, :seq, :number, :shard, :namespace",
		itemsPut:  "SELECT :namespace, :rows",
	} {
		var err error
		if s.compiled[of], err = of.compile(text, "my_", place); err != nil {
			t.Fatal(err)
		}
	}
	if text := s.Text(headsFew); strings.Count(text, "?") != 6*eachRows+1 || !strings.HasPrefix(text, "SELECT ?, ?, ") {
		t.Errorf("each() became %.100s", text)
	}
	run := func(of Statement, n int) *queued {
		var rows [][]any
		for i := range n {
			rows = append(rows, []any{fmt.Sprint("s", i), i, i + 1, 1, 7, 5})
		}
		q := &queued{}
		if err := RunOn(q, &s).writeRows(t.Context(), of, rows, "ns"); err != nil {
			t.Fatal(err)
		}
		return q
	}
	if q := run(headsWrite, 1); q.statements[0] != headWrite || fmt.Sprint(q.args) != "[[5 7 1 1 0 s0 ns]]" {
		t.Errorf("one row: %v of %v", q.statements, q.args)
	}
	for _, n := range []int{2, eachRows} {
		q := run(headsWrite, n)
		if len(q.args) != 1 || q.statements[0] != headsFew || len(q.args[0]) != 6*eachRows+1 || q.args[0][6*eachRows] != "ns" {
			t.Fatalf("%d rows: %v of %v", n, q.statements, q.args)
		}
		for i := range eachRows { // filled up with the last
			row := min(i, n-1)
			if q.args[0][i] != fmt.Sprint("s", row) || q.args[0][2*eachRows+i] != row+1 {
				t.Errorf("%d rows: place %d has %v, %v", n, i, q.args[0][i], q.args[0][2*eachRows+i])
			}
		}
	}
	q := run(headsWrite, eachRows+1)
	if len(q.args) != 1 || q.statements[0] != headsWrite || strings.Count(q.args[0][1].(string), "[") != eachRows+2 {
		t.Errorf("many rows: %v of %v", q.statements, q.args)
	}
	q = &queued{}
	rows := [][]any{{"s", "k", 1, []byte("\x00<b>")}, {"s", "l", 2, []byte{}}}
	if err := RunOn(q, &s).writeRows(t.Context(), itemsPut, rows, "ns"); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(q.args), `[[ns [["s","k",1,"ADxiPg=="],["s","l",2,""]]]]`; got != want {
		t.Errorf("rows with bytes are %s, want %s", got, want)
	}
}

// closing is a store that can only be closed.
type closing struct {
	Store
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Config){
		"Name":              func(c *Config) { c.Name = "" },
		"Store":             func(c *Config) { c.Store = nil },
		"Statements":        func(c *Config) { c.Statements = nil },
		"Limits.BatchItems": func(c *Config) { c.Limits = driver.Limits{} },
		"Limits.WriteOps":   func(c *Config) { c.Limits.WriteOps = 0 },
		"Limits.WriteBytes": func(c *Config) { c.Limits.WriteBytes = 0 },
		"Limits.PollPeriod": func(c *Config) { c.Limits.PollPeriod = 0 },
		"Limits.MinTTL":     func(c *Config) { c.Limits.MinTTL = 0 },
		"Buckets":           func(c *Config) { c.Buckets = 0 },
		"namespace":         func(c *Config) { c.Namespace = "" },
	} {
		store := new(closing)
		cfg := Config{Name: "mine", Namespace: "app", Store: store, Statements: new(Statements), Buckets: 1,
			Limits: driver.Limits{BatchItems: 1, WriteOps: 1, WriteBytes: 1, PollPeriod: time.Second, MinTTL: time.Second}}
		spoil(&cfg)
		_, err := New(t.Context(), cfg)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
		if cfg.Store != nil && !store.closed {
			t.Errorf("without %s the store is left open", name)
		}
	}
}

func TestDecideClaim(t *testing.T) {
	t.Parallel()
	at := func(s driver.SessionID, token, from driver.Token) record {
		return record{owner: driver.Owner{Session: s, Token: token}, granted: from}
	}
	alive := map[driver.SessionID]bool{"me": true, "other": true}
	for _, c := range []struct {
		name    string
		claim   driver.Claim
		record  record
		granted bool
		err     error
	}{
		{"no record", driver.Claim{}, record{}, true, nil},
		{"released", driver.Claim{Seen: driver.Owner{Token: 3}}, at("", 3, 1), true, nil},
		{"holder dead", driver.Claim{Seen: driver.Owner{Session: "dead", Token: 3}}, at("dead", 3, 1), true, nil},
		{"holder alive", driver.Claim{Seen: driver.Owner{Session: "other", Token: 3}}, at("other", 3, 1), false, driver.ErrHeld},
		{"preempted", driver.Claim{Seen: driver.Owner{Session: "other", Token: 3}, Preempt: true}, at("other", 3, 1), true, nil},
		{"preempt another token", driver.Claim{Seen: driver.Owner{Session: "other", Token: 2}, Preempt: true}, at("other", 3, 2), false, driver.ErrHeld},
		{"stale seen", driver.Claim{Seen: driver.Owner{Token: 2}}, at("", 3, 1), false, driver.ErrHeld},
		{"repeated", driver.Claim{Seen: driver.Owner{Token: 2}}, at("me", 3, 2), false, nil},
		{"repeated after a transfer to self", driver.Claim{Seen: driver.Owner{Token: 2}}, at("me", 4, 3), false, driver.ErrHeld},
	} {
		d := decideClaim(c.claim, "me", c.record, alive)
		if d.grant != c.granted || !errors.Is(d.err, c.err) {
			t.Errorf("%s: granted %v, %v; want %v, %v", c.name, d.grant, d.err, c.granted, c.err)
		}
	}
}

func FuzzCursor(f *testing.F) {
	b := &Backend{id: "ID"}
	f.Add("o:ID:1:2:3")
	f.Add("o:ID:-1::zzzzzzzzzzzzzzzzz")
	f.Fuzz(func(t *testing.T, text string) {
		at, ok := b.parseCursor("o", driver.Cursor(text), 3)
		if !ok {
			return
		}
		again, ok := b.parseCursor("o", b.cursor("o", at...), 3)
		if !ok || again[0] != at[0] || again[1] != at[1] || again[2] != at[2] {
			t.Errorf("%q is %v, and its cursor %v", text, at, again)
		}
	})
}

func TestInBatches(t *testing.T) {
	t.Parallel()
	unknown := errors.New("connection lost")
	for _, c := range []struct {
		name   string
		failAt int
		err    error
		call   bool   // the call fails as a whole
		retry  string // of each item: "." applied, "?" unknown, "r" ErrRetry
	}{
		{"none fails", -1, nil, false, "......."},
		{"the first fails", 0, unknown, true, "......."},
		{"a later one is unknown", 3, unknown, false, "...???r"},
		{"a later one is refused", 3, driver.ErrRetry, false, "...rrrr"},
	} {
		got := []byte(".......")
		err := inBatches(7, upTo(7, 3), func(from, to int) error {
			if from == c.failAt {
				return c.err
			}
			return nil
		}, func(i int, err error) {
			got[i] = '?'
			if errors.Is(err, driver.ErrRetry) {
				got[i] = 'r'
			}
		})
		if (err != nil) != c.call || string(got) != c.retry {
			t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.retry)
		}
	}
}

// hinted is a store that only sends hints.
type hinted struct {
	Store
	hears atomic.Bool
	mu    sync.Mutex
	hint  chan struct{}
}

func (h *hinted) Check() error { return nil }

func (h *hinted) Hears() bool { return h.hears.Load() }

func (h *hinted) Changed(Readers) <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hint
}

func (h *hinted) broadcast() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.hint)
	h.hint = make(chan struct{})
}

// TestPollHints: even many hints without a change cost few looks. A hint for a change leads to a
// look immediately, or within the poll period.
func TestPollHints(t *testing.T) {
	t.Parallel()
	const (
		period = 50 * time.Millisecond
		most   = 8 // hints that count, each after twice the pause of the previous one
	)
	// wait returns how many looks a poll took, and how late it saw a change.
	wait := func(t *testing.T, hints func(*hinted) (changed time.Time)) (looks int, late time.Duration) {
		store := &hinted{hint: make(chan struct{})}
		b := &Backend{store: store, closing: make(chan struct{})}
		var changed atomic.Bool
		done := make(chan error, 1)
		var seen time.Time
		go func() {
			r := &reader{b: b, of: Observers, attention: &attention{pace: newPace(driver.Limits{PollPeriod: period})}}
			r.look = func(context.Context) (news, error) {
				looks++
				if seen = time.Now(); changed.Load() {
					return states, nil
				}
				return nothing, nil
			}
			done <- r.poll(t.Context())
		}()
		synctest.Wait()
		at := hints(store)
		changed.Store(true)
		store.broadcast()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		return looks, seen.Sub(at)
	}
	flood := func(s *hinted, d time.Duration) {
		const pause = 50 * time.Microsecond
		for range d / pause {
			s.broadcast()
			time.Sleep(pause)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		const long = 10 * time.Second
		looks, late := wait(t, func(s *hinted) time.Time { flood(s, long); return time.Now() })
		if limit := int(long/period) + most + 1; looks > limit || late > period {
			t.Errorf("a flood of %v took %d looks, and the change was seen after %v; want at most %d and %v", long, looks, late, limit, period)
		}
		for name, hints := range map[string]func(*hinted){
			"without a hint before": func(*hinted) { time.Sleep(time.Second + period/2) },
			"after a false hint": func(s *hinted) {
				time.Sleep(time.Second + period/2)
				s.broadcast()
				time.Sleep(2 * hintPause)
			},
			"after a flood": func(s *hinted) { flood(s, time.Second); time.Sleep(2*period + period/2) },
		} {
			if _, late := wait(t, func(s *hinted) time.Time { hints(s); return time.Now() }); late > 0 {
				t.Errorf("%s a change was seen after %v, want at once", name, late)
			}
		}
	})
}

// cells is any row of a table of logs.
type cells struct {
	first, last int64
	cuts        string
	payloads    []byte
}

func (c cells) Scan(dest ...any) error {
	*dest[1].(*driver.Seq), *dest[2].(*driver.Seq) = driver.Seq(c.first), driver.Seq(c.last)
	*dest[0].(*driver.ShardID) = "s"
	*dest[3].(*driver.Token), *dest[4].(*driver.WriteNo) = 1, 1
	*dest[6].(*[]byte), *dest[7].(*int64), *dest[8].(*[]byte) = []byte(c.cuts), int64(len(c.payloads)), c.payloads
	return nil
}

// FuzzChunk cuts any row into all of its entries, and into all of the payloads.
func FuzzChunk(f *testing.F) {
	f.Add(int64(3), int64(4), "[0,1,3]", []byte("abb"))
	f.Add(int64(3), int64(3), "[0,0]", []byte(nil))
	f.Add(int64(0), int64(1), "[0,5,3]", []byte("abc"))
	f.Add(int64(1), int64(1), "[-1,2]", []byte("ab"))
	f.Add(int64(-1<<63), int64(1<<63-1), "[0,1]", []byte("a"))
	f.Fuzz(func(t *testing.T, first, last int64, cuts string, payloads []byte) {
		b := &Backend{stmts: new(Statements)}
		c, err := b.scanChunk(cells{first, last, cuts, payloads})
		if err != nil {
			if !errors.Is(err, driver.ErrDamaged) {
				t.Error(err)
			}
			return
		}
		var all []byte
		for seq := c.first; seq <= c.last; seq++ {
			all = append(all, c.entry(seq).Payload...)
		}
		if string(all) != string(payloads) {
			t.Errorf("%q was cut into %q", payloads, all)
		}
	})
}
