package trace_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
	"github.com/tenure-go/tenure/internal/proof/ample"
	"github.com/tenure-go/tenure/internal/trace"
)

// period is the time between two writes of a log.
const period = time.Second

var logConfig = fsm.Config{Member: driver.Member{Node: "../a b\n", TTL: time.Second}, NewSession: func() driver.SessionID { return "s" }}

// start begins a log in dir, and counts the warnings.
func start(t *testing.T, dir string, maxBytes int64) (l *trace.Log, warned *atomic.Int32) {
	t.Helper()
	return startWith(t, dir, maxBytes, func() {})
}

// startWith calls acks each time before the log takes the waiting items.
func startWith(t *testing.T, dir string, maxBytes int64, acks func()) (l *trace.Log, warned *atomic.Int32) {
	t.Helper()
	warned = new(atomic.Int32)
	began := time.Now()
	l = trace.New(trace.Options{Dir: dir, MaxBytes: maxBytes, Info: driver.Info{Namespace: "ns", StoreID: "id"}, Config: &logConfig,
		Clock: func() (fsm.Instant, time.Time) { now := time.Now(); return fsm.Instant(now.Sub(began)), now }, Acks: acks,
		Warn: func(err error) { warned.Add(1); t.Log(err) }})
	if err := l.Start(""); err != nil {
		t.Fatal(err)
	}
	return l, warned
}

// files returns the files in a directory, while a log renames and removes files there.
func files(t *testing.T, dir string) (names []string, size int64) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return stillThere(t, all)
}

// stillThere omits files that were renamed or removed after the directory was read.
func stillThere(t *testing.T, all []os.DirEntry) (names []string, size int64) {
	t.Helper()
	for _, e := range all {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
		names, size = append(names, e.Name()), size+info.Size()
	}
	return names, size
}

// TestRotation: the total size of the files is limited, and their names are distinct. The remaining
// files are checked without their beginning.
func TestRotation(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const most = 65536
	l, warned := start(t, dir, most)
	l2, _ := start(t, dir, most) // beside it
	l2.Close(time.Minute)
	noise := fsm.Input{Kind: fsm.InFenced, Shard: "s"}
	n := 0
	ample.Wait(t, "no further file was begun", func() bool {
		n++
		for range 50 {
			noise.Owner = driver.Owner{Session: driver.SessionID(fmt.Sprintf("%x", time.Now().UnixNano())), Token: driver.Token(n)}
			l.Step(fsm.Instant(n), &noise, nil)
			l.Acked(trace.Acks{Fence: driver.Fence{Shard: "s", Token: 1}, From: driver.WriteNo(2 * n), To: driver.WriteNo(2 * n)})
		}
		names, size := files(t, dir)
		// A file ends after a flush of all waiting items. On a busy machine, more items are
		// waiting.
		if len(names) > 18 || size > 10*most {
			t.Fatalf("%q have %d bytes", names, size)
		}
		return strings.Contains(strings.Join(names, " "), "-0009")
	})
	l.Close(time.Minute)
	l.Step(0, &noise, nil) // a handler that returns late
	names, _ := files(t, dir)
	for _, n := range names {
		if !strings.HasPrefix(n, "___a_b__") || !strings.HasSuffix(n, trace.Suffix) {
			t.Errorf("a file is called %q", n)
		}
	}
	r, err := trace.Check(t.Context(), sources(t, dir), 0)
	if err != nil || len(r.Runs) != 1 || len(r.Unread) > 0 { // the files of l2 were the oldest
		t.Fatalf("%+v, %v", r, err)
	}
	run := r.Runs[0]
	if run.Replayed != 0 || len(run.Notes) != 1 || !strings.Contains(run.Notes[0], "it begins with step") || len(run.Files) < 2 {
		t.Errorf("the run: %+v", run)
	}
	if warned.Load() > 0 {
		t.Error("it warned")
	}
}

// TestRenamedBeside: a list of the files omits a file that a log renames at the same time.
func TestRenamedBeside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "b.new"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("four"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "b.new"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	if names, size := stillThere(t, all); !slices.Equal(names, []string{"a"}) || size != 4 {
		t.Errorf("%q have %d bytes", names, size)
	}
}

// TestRemovedBeside: a member may remove its oldest file after the directory or the file's header
// was read. The check of the other files does not fail then. A file that the caller named is
// reported as unread.
func TestRemovedBeside(t *testing.T) {
	t.Parallel()
	const want = `{"t":1,"i":{"k":"want","s":"s"},"o":[]}`
	for name, x := range map[string]struct {
		opened int // how often the first file is opened before it is gone
		files  int // that are checked
		note   string
	}{
		"before it is opened":   {0, 1, "it begins with step 2"},
		"before it is read":     {1, 1, "was removed before it was read"},
		"when it was read":      {2, 2, "steps are not compared after step 1"},
		"all before they are":   {-1, 0, ""},
		"named, before opened":  {0, 1, "it begins with step 2"},
		"named, before it read": {1, 1, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for part := range 2 {
				head := strings.Replace(goodHead, "{", fmt.Sprintf(`{"part":%d,"steps":%d,`, part, part), 1)
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("part%d%s", part, trace.Suffix)), zipped(t, head, want), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			all := sources(t, dir)
			if strings.HasPrefix(name, "named") {
				for i, s := range all {
					all[i] = trace.File(s.Name)
				}
			}
			gone := func(s trace.Source) {
				if err := os.Remove(s.Name); err != nil {
					t.Fatal(err)
				}
			}
			if x.opened < 0 {
				gone(all[0])
				gone(all[1])
			}
			first, open, opened := all[0], all[0].Open, 0
			all[0].Open = func() (io.ReadCloser, error) {
				if opened == x.opened {
					gone(first)
				}
				opened++
				return open()
			}
			r, err := trace.Check(t.Context(), all, 0)
			if x.files == 0 {
				if !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%+v, %v, want that a file is not there", r, err)
				}
				return
			}
			if err != nil || len(r.Runs) != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
			if run := r.Runs[0]; len(run.Files) != x.files || run.Steps != int64(x.files) || len(run.Notes) != 1 ||
				!strings.Contains(run.Notes[0], x.note) {
				t.Errorf("the run: %+v", run)
			}
			if named := strings.HasPrefix(name, "named"); named != (len(r.Unread) > 0) {
				t.Errorf("unread: %q", r.Unread)
			}
		})
	}
}

// TestDiskFails: if the disk accepts no more records, the member continues, with one warning. A
// minute after the disk accepts records again, records are written, and a reader sees the gap.
func TestDiskFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "traces")
		none := trace.New(trace.Options{Dir: dir, MaxBytes: 1 << 20, Config: &logConfig,
			Clock: func() (fsm.Instant, time.Time) { return 0, time.Now() }})
		if err := none.Start(""); err == nil || !strings.Contains(err.Error(), "it has to be a directory") {
			t.Errorf("a directory that does not exist: %v", err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		l, warned := start(t, dir, 2) // each record begins a file
		time.Sleep(period / 2)        // the next steps are between two flushes
		in := fsm.Input{Kind: fsm.InWake, Reason: strings.Repeat("x", 10_000)}
		away := func(warnings int32) {
			t.Helper()
			if err := os.RemoveAll(dir); err != nil { // the next file must not be created
				t.Fatal(err)
			}
			for range 100 { // more than memory is given
				for range 100 {
					l.Step(0, &in, nil)
				}
				time.Sleep(2 * time.Second)
			}
			if warned.Load() != warnings {
				t.Errorf("%d warnings, want %d", warned.Load(), warnings)
			}
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			l.Step(0, &in, nil)
			time.Sleep(2 * time.Second)
		}
		away(1)
		if all := sources(t, dir); len(all) == 0 {
			t.Error("nothing is written")
		}
		away(2)
		l.Close(time.Minute)
		r, err := trace.Check(t.Context(), sources(t, dir), 0)
		if err != nil || len(r.Runs) != 1 || len(r.Breaches) > 0 || len(r.Runs[0].Notes) == 0 ||
			!strings.Contains(r.Runs[0].Notes[0], "it begins with step") {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestLabelBytes: MaxBytes limits the size and number of a node label's files, including files of
// earlier processes. The Log removes no file of a label with the same beginning, and no file with a
// different form of name.
func TestLabelBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most, runs = 1 << 20, 12
		dir := t.TempDir()
		for _, name := range []string{"n-notes.txt", "n2-20000101T000000Z-00000000-0000" + trace.Suffix, "n" + trace.Suffix} {
			if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 2*most), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		long := strings.Repeat("n", 99)
		for _, node := range []string{"n/1", "N", long + "2"} {
			run(t, dir, node, most, 10)
		}
		before, _ := files(t, dir)
		for _, node := range []string{"n.1", long + "1"} { // whose files would have the same names, but for a hash
			run(t, dir, node, most/16, 5000)
		}
		for n := range runs {
			run(t, dir, "n", most, 5000)
			names, _ := files(t, dir)
			var size int64
			for _, name := range names {
				if !strings.HasPrefix(name, "n-2") {
					continue
				}
				info, err := os.Stat(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				size += info.Size()
			}
			if size > most+most/8 || n == runs-1 && size < most/2 {
				t.Errorf("after %d runs the files of the label have %d bytes", n+1, size)
			}
		}
		for range 300 { // that are restarted as soon as they have begun
			run(t, dir, "n", most, 0)
		}
		after, _ := files(t, dir)
		own := 0
		for _, name := range after {
			if strings.HasPrefix(name, "n-2") {
				own++
			}
		}
		if own > 256 || own < 100 {
			t.Errorf("the label has %d files", own)
		}
		for _, name := range before {
			if !slices.Contains(after, name) {
				t.Errorf("%s is gone", name)
			}
		}
	})
}

// run is a process that traces steps and ends.
func run(t *testing.T, dir, node string, most int64, steps int) {
	t.Helper()
	cfg := logConfig
	cfg.Member.Node = node
	began := time.Now()
	l := trace.New(trace.Options{Dir: dir, MaxBytes: most, Info: driver.Info{Namespace: "ns", StoreID: "id"}, Config: &cfg, Acks: func() {},
		Clock: func() (fsm.Instant, time.Time) { now := time.Now(); return fsm.Instant(now.Sub(began)), now },
		Warn:  func(err error) { t.Error(err) }})
	if err := l.Start(""); err != nil {
		t.Fatal(err)
	}
	for n := range steps {
		l.Step(fsm.Instant(n), &fsm.Input{Kind: fsm.InFenced, Shard: "s", Reason: fmt.Sprintf("%x", sha256.Sum256([]byte(fmt.Sprint(n, node))))}, nil)
	}
	time.Sleep(3 * period / 2)
	l.Close(time.Minute)
}

// TestLost: steps that do not fit into memory are missing, and a reader learns about the gap.
func TestLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	taken := make(chan struct{})
	l, _ := startWith(t, dir, 1<<30, func() {
		select {
		case taken <- struct{}{}:
		default:
		}
	})
	in := fsm.Input{Kind: fsm.InWake, Reason: strings.Repeat("x", 100_000)}
	const steps = 20_000 // 2 GB, most of which arrives faster than it can be written
	for range steps {
		l.Step(0, &in, nil)
	}
	for range 2 { // when it takes for the second time, the first has emptied memory
		select {
		case <-taken:
		case <-time.After(ample.Time):
			t.Fatal("the log takes nothing")
		}
	}
	l.Step(0, &in, nil)
	l.Close(time.Minute)
	r, err := trace.Check(t.Context(), sources(t, dir), 0)
	if err != nil {
		t.Fatal(err)
	}
	if run := r.Runs[0]; run.Steps > steps || run.Replayed >= run.Steps || len(run.Notes) != 1 || !strings.Contains(run.Notes[0], "records are missing") {
		t.Errorf("the run: %+v", run)
	}
}

// zipped returns a compressed file with these lines.
func zipped(t testing.TB, lines ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip, sum := gzip.NewWriter(&out), crc32.NewIEEE()
	for _, l := range lines {
		_, _ = sum.Write([]byte(l))
		if _, err := fmt.Fprintf(zip, "%s\n{\"sum\":%d}\n", l, sum.Sum32()); err != nil {
			t.Fatal(err)
		}
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const goodHead = `{"tenure_trace":1,"namespace":"ns","store_id":"id","run":"r","config":{"member":{"node":"n","ttl":1000000000},"interval":300000000,"margin":100000000,` +
	`"drain_budget":1,"resync":30000000000,"call_timeout":1000000000,"rank_delay":1,"backoff_min":1000000,"backoff_max":1000000000,"watch_all":16,"watch_few":3}}`

// cuts returns the beginnings of a file, each longer by a byte, starting with the header.
func cuts(t *testing.T) iter.Seq[[]byte] {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	put := func(line string) {
		if _, err := fmt.Fprintln(zip, line); err != nil {
			t.Fatal(err)
		}
	}
	put(goodHead)
	if err := zip.Flush(); err != nil {
		t.Fatal(err)
	}
	header := out.Len()
	for i := range 60 {
		put(fmt.Sprintf(`{"t":%d,"i":{"k":"want","s":"%x"}}`, i, sha256.Sum256([]byte{byte(i)})))
		if i%20 == 0 {
			if err := zip.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return func(yield func([]byte) bool) {
		every := 1
		if testing.Short() {
			every = 10
			header += rand.IntN(every)
			t.Logf("-short: every tenth cut, from byte %d", header)
		}
		for n := header; n <= out.Len() && yield(out.Bytes()[:n]); n += every {
		}
	}
}

// TestHostile: a file that is not a trace is refused, with the reason. A truncated trace is checked
// up to its end.
func TestHostile(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("-short: .ci/run runs it")
	}
	want := `{"t":1,"i":{"k":"want","s":"s"},"o":[]}`
	for name, x := range map[string]struct {
		file []byte
		err  string
	}{
		"empty":           {nil, "this is no trace"},
		"text":            {[]byte("hello, world, this is a longer text"), "this is no trace"},
		"no line":         {zipped(t), "this is no trace"},
		"no header":       {zipped(t, want), "no header"},
		"a later format":  {zipped(t, `{"tenure_trace":2}`), "format 2"},
		"no JSON":         {zipped(t, goodHead, `{"t":`), "line 2"},
		"unknown input":   {zipped(t, goodHead, `{"t":1,"i":{"k":"\u001b[31mboom"}}`), "no kind"},
		"a number":        {zipped(t, goodHead, `{"t":1e99}`), "line 2"},
		"unasked replies": {zipped(t, goodHead, `{"t":1,"i":{"k":"acquired","c":7,"r":[{},{"f":{"shard":"x","session":"y","token":-5}}]}}`), ""},
		"no view":         {zipped(t, goodHead, `{"t":1,"i":{"k":"observed"}}`), ""},
		"an effect":       {zipped(t, goodHead, `{"t":1,"i":{"k":"wake"},"o":[{"k":"grant"},{"k":"revoke"},{"k":"join"},{"k":"nonsense"}]}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := trace.Check(t.Context(), []trace.Source{source("file", x.file)}, 0)
			if x.err == "" && err != nil || x.err != "" && (err == nil || !strings.Contains(err.Error(), x.err) || !strings.HasPrefix(err.Error(), "file: ")) {
				t.Errorf("error %v, want %q", err, x.err)
			}
			if err != nil && strings.ContainsRune(err.Error(), '\x1b') {
				t.Errorf("the error has what a terminal acts on: %q", err)
			}
			_ = r
		})
	}
	long := zipped(t, goodHead, `{"t":1,"i":{"k":"want","s":"`+strings.Repeat("s", 65<<20)+`"}}`)
	if _, err := trace.Check(t.Context(), []trace.Source{source("file", long)}, 0); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("a line that is too long: %v", err)
	}
	good := zipped(t, append([]string{goodHead}, strings.Split(strings.Repeat(`{"t":1,"i":{"k":"wake"}}`+"\n", 5000), "\n")[:5000]...)...)
	r, err := trace.Check(t.Context(), []trace.Source{source("file", good[:len(good)-40])}, 0)
	if err != nil || r.Steps == 0 || len(r.Runs[0].Notes) != 1 || !strings.Contains(r.Runs[0].Notes[0], "ends in the middle") {
		t.Errorf("a file that was cut: %+v, %v", r, err)
	}
	for cut := range cuts(t) {
		if _, err := trace.Check(t.Context(), []trace.Source{source("file", cut)}, 0); err != nil {
			t.Fatalf("a file that was cut after %d bytes: %v", len(cut), err)
		}
	}
	twice := []trace.Source{source("one", good), source("two", good)}
	if r, err := trace.Check(t.Context(), twice, 0); err != nil || len(r.Runs) != 1 || r.Steps != 5000 || len(r.Breaches) > 0 ||
		!strings.Contains(strings.Join(r.Unread, " "), "name each file once") {
		t.Errorf("a file named twice: %+v, %v", r, err)
	}
	twice[1] = source("two", zipped(t, strings.Replace(goodHead, `"ns"`, `"other"`, 1)))
	if _, err := trace.Check(t.Context(), twice, 0); err == nil || !strings.Contains(err.Error(), "one namespace at a time") {
		t.Errorf("two namespaces: %v", err)
	}
}

// FuzzCheck: no file makes the checker panic.
func FuzzCheck(f *testing.F) {
	f.Add(`{"t":1,"i":{"k":"want","s":"s"},"o":[{"k":"join","c":1,"m":{"session":"x","node":"n","ttl":1}}]}`)
	f.Add(`{"t":9,"i":{"k":"observed","v":{"reset":true,"m":[{"session":"x"}],"s":[{"Shard":"s","Owner":{"token":3}}]}}}`)
	f.Add(`{"t":9,"a":{"f":{"shard":"s","token":3},"from":5,"to":2},"lost":3,"w":-1}`)
	f.Add(`{"t":9,"x":{"c":1,"k":"join","s":"x","at":3},"l":{"f":{"shard":"s","session":"x","token":3},"is":"begun","h":{"number":4,"seq":4,"token":2}}}`)
	f.Add(`{"t":9,"i":{"k":"want","s":"s"},"o":[{"k":"grant","f":{"shard":"s","session":"x","token":3},"until":9},{"k":"revoke","f":{"shard":"s","session":"x","token":3}}]}`)
	f.Add(`{"t":9,"x":{"k":"observe","at":1,"full":true},"i":{"k":"observed","v":{"b":[{}],"m":[{"session":"x"}],"g":["x"]},"sent":7},"o":[{"k":"resync"}]}`)
	f.Fuzz(func(t *testing.T, line string) {
		for _, head := range []string{goodHead, strings.Replace(goodHead, "{", `{"runner":true,`, 1)} {
			_, _ = trace.Check(t.Context(), []trace.Source{source("file", zipped(t, head, line, line))}, 0)
		}
	})
}
