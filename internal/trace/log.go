package trace

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

const (
	// Suffix ends the name of each file.
	Suffix = ".tenure-trace.gz"
	// newSuffix follows Suffix until the file has its header. A process that dies before that
	// leaves the file under this name, and readers ignore it.
	newSuffix = ".new"

	// period is the time between two writes of records to the file, at which the wall clock is
	// also noted.
	period = time.Second
	// maxWaiting limits the bytes, as weight counts them, that wait in memory for the disk. If a
	// quarter of it is in use, the writer does not wait for the end of its period.
	maxWaiting = 32 << 20
	// retryAfter is how long the Log writes nothing after the disk failed.
	retryAfter = time.Minute
)

// Log writes the inputs and effects of one Elector's machine into files of a directory. It removes
// the oldest files of its node label, including those of earlier Runs. Its methods wait neither for
// the disk nor for the encoding of a step, because their caller holds the machine's lock. A step
// that does not fit into memory is lost, and the trace says so. A Log is safe for concurrent use.
type Log struct {
	o      Options
	label  string // begins the names of all files of the node label
	prefix string // begins the names of this Run's files

	mu      sync.Mutex
	waiting []item
	weight  int // of what waits
	steps   int64
	lost    int64 // records since the last one that was kept

	full chan struct{} // has an element when much waits
	done chan struct{} // closed by Close
	gone chan struct{} // closed when the writer has ended

	head  Header // of the next file; only the writer uses it and the fields below
	file  *os.File
	zip   *gzip.Writer
	lines *json.Encoder // into zip and sum
	sum   lineSum
	size  *counter
	retry time.Time // after a failure: when to make the next file
}

// item is a record, a step that becomes one, or the record of a call with its arguments and answer.
type item struct {
	rec   *Record
	at    fsm.Instant
	in    fsm.Input
	out   []fsm.Effect
	steps int64 // the number of steps before
}

// weight returns about how many bytes of memory an item keeps.
func (i *item) weight() int {
	n := int(reflect.TypeFor[item]().Size()) + len(i.out)*int(reflect.TypeFor[fsm.Effect]().Size())
	for k := range i.out {
		e := &i.out[k]
		n += 64 * (len(e.Claims) + len(e.Transfers) + len(e.Fences) + len(e.Suspects))
	}
	n += 64*(len(i.in.Shards)+len(i.in.Results)+len(i.in.Evictions)+len(i.in.Heirs)) + len(i.in.Reason)
	if v := i.in.View; v != nil {
		n += 64 * (len(v.Members) + len(v.Gone) + len(v.Beats) + len(v.Shards))
	}
	return n
}

// record returns the record to write for an item.
func (i *item) record() *Record {
	switch {
	case i.rec == nil:
		return NewRecord(i.at, &i.in, i.out)
	case len(i.out) > 0:
		asked, answer := effectOf(&i.out[0]), inputOf(&i.in)
		i.rec.Call.Asked, i.rec.Call.Answer = asked.hash(), answer.hash()
	}
	return i.rec
}

type counter struct {
	file *os.File
	n    int64
}

// lineSum sums lines without their ends, as a reader sees them.
type lineSum uint32

func (s *lineSum) Write(b []byte) (int, error) {
	*s = lineSum(crc32.Update(uint32(*s), crc32.IEEETable, bytes.TrimSuffix(b, []byte("\n"))))
	return len(b), nil
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.file.Write(b)
	c.n += int64(n)
	return n, err
}

// Options are the parameters of a Log. All are required.
type Options struct {
	Dir      string
	MaxBytes int64 // of all files of the node label together
	Info     driver.Info
	Config   *fsm.Config // of the machine before its first step
	// Clock returns an instant and the wall clock's time at it.
	Clock func() (fsm.Instant, time.Time)
	// Acks is called each second. It calls Acked with the commits acknowledged since the last
	// call.
	Acks func()
	// Warn is called if writing fails. It is not called again until writing has succeeded.
	Warn func(error)
}

// New returns a Log that keeps steps in memory until Start, up to the limit for a slow disk.
func New(o Options) *Log {
	l := &Log{
		o: o, head: *NewHeader(o.Info, o.Config),
		full: make(chan struct{}, 1), done: make(chan struct{}), gone: make(chan struct{}),
	}
	l.head.Runner = true
	return l
}

// Start makes the first file and starts writing. hostLock is the machine's, which is known only
// after New.
func (l *Log) Start(hostLock string) error {
	var id [8]byte
	for i := range id {
		id[i] = byte(rand.IntN(256))
	}
	_, now := l.o.Clock()
	l.label = fileName(l.o.Config.Member.Node) + "-"
	l.prefix = fmt.Sprintf("%s%s-%x", l.label, now.UTC().Format("20060102T150405Z"), id[:4])
	l.head.Run, l.head.Config.HostLock = hex.EncodeToString(id[:]), hostLock
	switch err := l.open(); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("tenure: TraceDir: %w: it has to be a directory in which this process can make files", err)
	case err != nil:
		l.failed(err)
	}
	go l.write()
	return nil
}

// fileName returns a node label as part of a file name. If the label is changed or cut, a hash
// keeps it unique.
func fileName(node string) string {
	var b strings.Builder
	for _, r := range node {
		switch {
		case b.Len() == 60:
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_':
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
	}
	if b.String() != node {
		fmt.Fprintf(&b, "_%x", hash(node))
	}
	return b.String()
}

// Step notes one step. The caller may reuse out after the call. The Log reads the values that in
// and out refer to later, so the caller must not change them.
func (l *Log) Step(now fsm.Instant, in *fsm.Input, out []fsm.Effect) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(item{at: now, in: *in, out: out})
	l.steps++
}

// Acked notes acknowledged commits.
func (l *Log) Acked(a Acks) { l.note(item{rec: &Record{Acks: &a}}) }

// put adds an item to waiting. The caller holds l.mu.
func (l *Log) put(i item) {
	if l.weight > maxWaiting {
		l.lost++
		return
	}
	if l.lost > 0 {
		l.waiting = append(l.waiting, item{rec: &Record{At: i.at, Lost: l.lost}, steps: l.steps})
		l.lost = 0
	}
	i.out, i.steps = slices.Clone(i.out), l.steps
	l.waiting = append(l.waiting, i)
	l.weight += i.weight()
	if l.weight > maxWaiting/4 {
		select {
		case l.full <- struct{}{}:
		default:
		}
	}
}

// Close may follow Start. It writes the waiting items and waits for the writer, at most for limit.
// Later steps and commits are not traced.
func (l *Log) Close(limit time.Duration) {
	close(l.done)
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-l.gone:
	case <-t.C:
		l.o.Warn(errors.New("the disk does not take the rest: the end is missing"))
	}
}

func (l *Log) write() {
	defer close(l.gone)
	tick := time.NewTicker(period)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-tick.C:
		case <-l.full:
		case <-l.done:
			ended = true
		}
		if err := l.flush(ended); err != nil {
			l.failed(err)
		}
	}
	if err := l.shut(); err != nil {
		l.o.Warn(fmt.Errorf("the end may be missing: %w", err))
	}
}

// failed ends the file. Records are dropped until the next file is made.
func (l *Log) failed(err error) {
	if l.retry.IsZero() {
		l.o.Warn(fmt.Errorf("%w: records are missing until the disk takes them", err))
	}
	_ = l.shut()
	l.retry = time.Now().Add(retryAfter)
	l.head.Part++ // a reader misses a file
}

// take removes and returns the waiting items. If the log has ended, no record follows them.
func (l *Log) take(ended bool) (what []item, steps int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, now := l.o.Clock()
	l.put(item{at: at, rec: &Record{At: at, Wall: now.UnixNano(), End: ended}})
	what = l.waiting
	l.waiting, l.weight = nil, 0
	return what, l.steps
}

func (l *Log) flush(ended bool) (err error) {
	l.o.Acks() // the runner keeps leases until this call
	if l.file == nil && !time.Now().Before(l.retry) {
		if err := l.open(); err != nil {
			return err
		}
	}
	what, steps := l.take(ended) // dropped while there is no file
	for i := 0; i < len(what) && l.file != nil && err == nil; i++ {
		if l.head.Steps = what[i].steps; l.size.n >= l.o.MaxBytes/8 {
			if err = l.shut(); err == nil {
				err = l.open()
			}
		}
		if err == nil {
			err = l.lines.Encode(what[i].record())
		}
	}
	if l.head.Steps = steps; l.file == nil || err != nil {
		return err
	}
	if err = l.sync(); err == nil {
		l.retry = time.Time{}
	}
	return err
}

// sync writes all lines and their checksum to the file.
func (l *Log) sync() error {
	return errors.Join(json.NewEncoder(l.zip).Encode(checksum{uint32(l.sum)}), l.zip.Flush())
}

// makeRoom removes the oldest files of the node label, so that one more fits into MaxBytes.
func (l *Log) makeRoom() error {
	entries, err := os.ReadDir(l.o.Dir)
	if err != nil {
		return err
	}
	var all []fs.FileInfo
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), l.label) && strings.Contains(e.Name(), Suffix) && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil { // otherwise it has been removed
				all = append(all, info)
			}
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), strings.Compare(b.Name(), a.Name()))
	})
	room := l.o.MaxBytes - l.o.MaxBytes/8
	for _, f := range all {
		room -= max(f.Size(), l.o.MaxBytes/256) // small files are also limited in number
		if room >= 0 {
			continue
		}
		if err := os.Remove(filepath.Join(l.o.Dir, f.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (l *Log) open() error {
	if err := l.makeRoom(); err != nil {
		return err
	}
	at, now := l.o.Clock()
	l.head.At, l.head.Wall = at, now.UnixNano()
	name := filepath.Join(l.o.Dir, fmt.Sprintf("%s-%04d%s", l.prefix, l.head.Part, Suffix))
	file, err := os.OpenFile(name+newSuffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	l.file, l.size = file, &counter{file: file}
	l.zip, _ = gzip.NewWriterLevel(l.size, gzip.BestSpeed) // the level is valid
	l.sum = 0
	l.lines = json.NewEncoder(io.MultiWriter(l.zip, &l.sum))
	_ = l.lines.Encode(&l.head) // sync returns its error
	if err = l.sync(); err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		l.file = nil
		return errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	l.head.Part++
	return nil
}

func (l *Log) shut() error {
	if l.file == nil {
		return nil
	}
	err := errors.Join(l.zip.Close(), l.file.Close())
	l.file = nil
	return err
}
