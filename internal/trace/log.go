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
	// Suffix is the extension of the file names.
	Suffix = ".tenure-trace.gz"
	// Until a file has a header, newSuffix follows Suffix in its name. If the process dies before
	// writing the header, the file keeps this name, and readers ignore it.
	newSuffix = ".new"

	// The writer writes once per period, and records the wall clock with each write.
	period = time.Second
	// This limits the total weight of the items that wait in memory for the disk. If more than a
	// quarter of the limit is in use, the writer writes before the end of its period.
	maxWaiting = 32 << 20
	// The Log stops writing for this time after a disk failure.
	retryAfter = time.Minute
)

// Log writes the inputs and effects of one Elector's machine to files in a directory. It removes
// the node label's oldest files, including those of earlier runs. The methods of a Log wait neither
// for the disk nor for the encoding of a step, because their caller holds the state machine's lock.
// If the memory for waiting steps is full, the Log drops a step, and the trace records the loss. A
// Log is safe for concurrent use.
type Log struct {
	o      Options
	label  string // prefix of the names of all files of the node label
	prefix string // prefix of the names of this Run's files

	mu      sync.Mutex
	waiting []item
	weight  int // weight of the waiting items
	steps   int64
	lost    int64 // number of records lost since the last record that was kept

	full chan struct{} // contains an element when the writer should not wait
	done chan struct{} // closed by Close
	gone chan struct{} // closed when the writer has ended

	head  Header // header of the next file; only the writer uses this field and the fields below
	file  *os.File
	zip   *gzip.Writer
	lines *json.Encoder // encodes into zip and sum
	sum   lineSum
	size  *counter
	retry time.Time // after a failure, the time to create the next file
}

// An item is a record, a step that becomes a record, or the record of a call with its arguments and
// answer.
type item struct {
	rec   *Record
	at    fsm.Instant
	in    fsm.Input
	out   []fsm.Effect
	steps int64 // the number of steps before this item
}

// weight estimates the memory, in bytes, that an item uses.
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

// A lineSum excludes line ends, because a reader sees the lines without them.
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

// Options contains the parameters of a Log. All fields are required.
type Options struct {
	Dir      string
	MaxBytes int64 // maximum size of all files of the node label together
	Info     driver.Info
	Config   *fsm.Config // configuration of the machine before its first step
	// Clock returns an instant and the corresponding wall-clock time.
	Clock func() (fsm.Instant, time.Time)
	// Acks is called once a second. Acks must call Log.Acked with the commits that were
	// acknowledged since the last call.
	Acks func()
	// Warn is called when a write fails, and not again until a write has succeeded.
	Warn func(error)
}

// New returns a Log. Until Start is called, the Log keeps steps in memory, within the same limit as
// for a slow disk.
func New(o Options) *Log {
	l := &Log{
		o: o, head: *NewHeader(o.Info, o.Config),
		full: make(chan struct{}, 1), done: make(chan struct{}), gone: make(chan struct{}),
	}
	l.head.Runner = true
	return l
}

// Start creates the first file and starts writing. The name of the host lock is not yet known when
// New is called.
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

// fileName converts a node label to a part of a file name. A label that is changed or shortened
// gets a hash, so that the name stays unique.
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

// Step records one step. The caller may reuse the slice out after the call. Because the Log later
// reads the values to which in and out refer, the caller must not change these values.
func (l *Log) Step(now fsm.Instant, in *fsm.Input, out []fsm.Effect) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(item{at: now, in: *in, out: out})
	l.steps++
}

// Acked records acknowledged commits.
func (l *Log) Acked(a Acks) { l.note(item{rec: &Record{Acks: &a}}) }

// The caller must hold l.mu.
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

// Close makes the writer write the waiting items, and waits for it within the time limit. Call
// Close only after Start. Later steps and commits are not traced.
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

// After an error, the Log ends the file, and drops records until it creates the next file.
func (l *Log) failed(err error) {
	if l.retry.IsZero() {
		l.o.Warn(fmt.Errorf("%w: records are missing until the disk takes them", err))
	}
	_ = l.shut()
	l.retry = time.Now().Add(retryAfter)
	l.head.Part++ // a reader misses a file
}

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
	what, steps := l.take(ended) // the items are dropped while there is no file
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

func (l *Log) sync() error {
	return errors.Join(json.NewEncoder(l.zip).Encode(checksum{uint32(l.sum)}), l.zip.Flush())
}

// makeRoom removes the node label's oldest files until one more file fits into MaxBytes.
func (l *Log) makeRoom() error {
	entries, err := os.ReadDir(l.o.Dir)
	if err != nil {
		return err
	}
	var all []fs.FileInfo
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), l.label) && strings.Contains(e.Name(), Suffix) && e.Type().IsRegular() {
			if info, err := e.Info(); err == nil { // otherwise, the file has been removed
				all = append(all, info)
			}
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), strings.Compare(b.Name(), a.Name()))
	})
	room := l.o.MaxBytes - l.o.MaxBytes/8
	for _, f := range all {
		room -= max(f.Size(), l.o.MaxBytes/256) // this minimum also limits the number of small files
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
