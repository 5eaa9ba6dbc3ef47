package trace

import (
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

const (
	// Suffix ends the name of each file.
	Suffix = ".tenure-trace.gz"
	// newSuffix follows it until the file has its header. A process that dies before leaves the file
	// under this name, and no reader looks at it.
	newSuffix = ".new"

	// period is how often what was traced goes into the file, and the wall clock is noted.
	period = time.Second
	// maxWaiting bounds what waits in memory, while the disk does not take it, by the bytes
	// that weight counts. The writer does not wait for its next second where a quarter of it is
	// in use.
	maxWaiting = 32 << 20
)

// Log writes what one Elector's machine is given and does into files of a directory: the
// newest, and the one before. Its methods wait neither for the disk nor for a step to be put into
// words: the machine's lock is held meanwhile. A step that does not fit into memory is lost, and a
// reader learns of that. Safe for concurrent use.
type Log struct {
	o      Options
	prefix string // of the files' names

	mu      sync.Mutex
	waiting []item
	weight  int // of what waits
	steps   int64
	lost    int64 // records since the last one that was kept

	full chan struct{} // has one when much waits
	done chan struct{} // closed by Close
	gone chan struct{} // closed when the writer has ended

	head  Header // of the writer, which alone uses what follows
	file  *os.File
	zip   *gzip.Writer
	size  *counter
	names []string // of the files that there are
}

// item is a record, a step that is to become one, or the record of a call with what was asked for
// and answered.
type item struct {
	rec *Record
	at  fsm.Instant
	in  fsm.Input
	out []fsm.Effect
}

// weight is about how many bytes of memory an item keeps.
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

// record is what is written of an item.
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

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.file.Write(b)
	c.n += int64(n)
	return n, err
}

// Options are what a Log needs. All are required.
type Options struct {
	Dir      string
	MaxBytes int64 // of the files together
	Info     driver.Info
	Config   *fsm.Config // of the machine before its first step
	// Clock gives an instant and the wall clock's time at it.
	Clock func() (fsm.Instant, time.Time)
	// Acks is called each second, to call Acked with what was acknowledged since.
	Acks func()
	// Warn is called once, if writing fails, after which nothing is traced any more.
	Warn func(error)
}

// New returns a Log that keeps steps in memory until Start, as many as it keeps for a slow disk.
func New(o Options) *Log {
	l := &Log{
		o: o, head: *NewHeader(o.Info, o.Config),
		full: make(chan struct{}, 1), done: make(chan struct{}), gone: make(chan struct{}),
	}
	l.head.Runner = true
	return l
}

// Start makes the first file and begins to write. hostLock is that of the machine, which it gets
// after it was made.
func (l *Log) Start(hostLock string) error {
	var id [8]byte
	for i := range id {
		id[i] = byte(rand.IntN(256))
	}
	at, now := l.o.Clock()
	l.prefix = fmt.Sprintf("%s-%s-%x", fileName(l.o.Config.Member.Node), now.UTC().Format("20060102T150405Z"), id[:4])
	l.head.Run, l.head.At, l.head.Wall, l.head.Config.HostLock = hex.EncodeToString(id[:]), at, now.UnixNano(), hostLock
	if err := l.open(); err != nil {
		return fmt.Errorf("tenure: TraceDir: %w: it has to be a directory in which this process can make files", err)
	}
	go l.write()
	return nil
}

// fileName is a node label as a part of a file's name.
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
	return b.String()
}

// Step notes one step. out is the caller's again when it returns; what in and out refer to is
// read later, and nobody may change it.
func (l *Log) Step(now fsm.Instant, in *fsm.Input, out []fsm.Effect) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps++
	l.put(item{at: now, in: *in, out: out})
}

// Acked notes commits.
func (l *Log) Acked(a Acks) { l.note(item{rec: &Record{Acks: &a}}) }

// put adds an item to what waits. l.mu is held.
func (l *Log) put(i item) {
	if l.weight > maxWaiting {
		l.lost++
		return
	}
	if l.lost > 0 {
		l.waiting = append(l.waiting, item{rec: &Record{At: i.at, Lost: l.lost}})
		l.lost = 0
	}
	i.out = slices.Clone(i.out)
	l.waiting = append(l.waiting, i)
	l.weight += i.weight()
	if l.weight > maxWaiting/4 {
		select {
		case l.full <- struct{}{}:
		default:
		}
	}
}

// Close, after Start, writes what waits and joins the writer, unless the disk hangs for longer than limit.
// Steps and commits after it are not traced.
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
		if err := l.flush(); err != nil {
			l.o.Warn(fmt.Errorf("%w: nothing is traced any more", err))
			l.stop()
			return
		}
	}
	if err := l.shut(); err != nil {
		l.o.Warn(fmt.Errorf("the end may be missing: %w", err))
	}
}

// stop has what comes be dropped, and waits for Close.
func (l *Log) stop() {
	_ = l.shut()
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		l.o.Acks() // which keeps leases until then
		l.take()
		select {
		case <-tick.C:
		case <-l.full:
		case <-l.done:
			return
		}
	}
}

// take removes what waits.
func (l *Log) take() (what []item, steps int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, now := l.o.Clock()
	l.put(item{at: at, rec: &Record{At: at, Wall: now.UnixNano()}})
	what = l.waiting
	l.waiting, l.weight = nil, 0
	return what, l.steps
}

func (l *Log) flush() error {
	l.o.Acks()
	what, steps := l.take()
	enc := json.NewEncoder(l.zip)
	for i := range what {
		if err := enc.Encode(what[i].record()); err != nil {
			return err
		}
	}
	if err := l.zip.Flush(); err != nil {
		return err
	}
	if l.size.n < l.o.MaxBytes/2 {
		return nil
	}
	if err := l.shut(); err != nil {
		return err
	}
	l.head.Part++
	l.head.Steps = steps
	at, now := l.o.Clock()
	l.head.At, l.head.Wall = at, now.UnixNano()
	return l.open()
}

// open makes the next file, and removes the one before the last.
func (l *Log) open() error {
	if len(l.names) > 1 {
		if err := os.Remove(l.names[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		l.names = l.names[1:]
	}
	name := filepath.Join(l.o.Dir, fmt.Sprintf("%s-%04d%s", l.prefix, l.head.Part, Suffix))
	file, err := os.OpenFile(name+newSuffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	l.file, l.size = file, &counter{file: file}
	l.zip, _ = gzip.NewWriterLevel(l.size, gzip.BestSpeed) // the level is valid
	err = json.NewEncoder(l.zip).Encode(&l.head)
	if err == nil {
		err = l.zip.Flush()
	}
	if err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		l.file = nil
		return errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	l.names = append(l.names, name)
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
