package trace

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/fsm"
)

const (
	// Suffix ends the name of each file.
	Suffix = ".tenure-trace.gz"

	// period is how often what was traced goes into the file, and the wall clock is noted.
	period = time.Second
	// maxBuffer bounds what waits in memory, while the disk does not take it.
	maxBuffer = 4 << 20
)

// Log writes what one Elector's machine is given and does into files of a directory: the
// newest, and the one before. Its methods never wait for the disk. A step that does not fit into
// memory is lost, and a reader learns of that. Safe for concurrent use.
type Log struct {
	o      Options
	prefix string // of the files' names

	mu    sync.Mutex
	buf   bytes.Buffer
	enc   *json.Encoder
	steps int64
	lost  int64 // records since the last one that was kept

	done chan struct{} // closed by Close
	gone chan struct{} // closed when the writer has ended

	head  Header // of the writer, which alone uses what follows
	file  *os.File
	zip   *gzip.Writer
	size  *counter
	names []string // of the files that there are
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
	l := &Log{o: o, head: *NewHeader(o.Info, o.Config), done: make(chan struct{}), gone: make(chan struct{})}
	l.enc = json.NewEncoder(&l.buf)
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

// Step notes one step.
func (l *Log) Step(now fsm.Instant, in *fsm.Input, out []fsm.Effect) {
	r := NewRecord(now, in, out)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps++
	l.put(r)
}

// Acked notes commits that were acknowledged, with all numbers of the range.
func (l *Log) Acked(f driver.Fence, from, to driver.WriteNo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, _ := l.o.Clock()
	l.put(&Record{At: at, Acks: &Acks{Fence: f, From: from, To: to}})
}

// put adds a record to what waits. l.mu is held.
func (l *Log) put(r *Record) {
	if l.buf.Len() > maxBuffer {
		l.lost++
		return
	}
	if l.lost > 0 {
		_ = l.enc.Encode(&Record{At: r.At, Lost: l.lost}) // a buffer takes all, and the types are plain
		l.lost = 0
	}
	_ = l.enc.Encode(r)
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
		case <-l.done:
			return
		}
	}
}

// take removes what waits.
func (l *Log) take() (what []byte, steps int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, now := l.o.Clock()
	l.put(&Record{At: at, Wall: now.UnixNano()})
	what = bytes.Clone(l.buf.Bytes())
	l.buf.Reset()
	if l.buf.Cap() > maxBuffer/4 {
		l.buf = bytes.Buffer{}
	}
	return what, l.steps
}

func (l *Log) flush() error {
	l.o.Acks()
	what, steps := l.take()
	if _, err := l.zip.Write(what); err != nil {
		return err
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
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	l.names = append(l.names, name)
	l.file, l.size = file, &counter{file: file}
	l.zip, _ = gzip.NewWriterLevel(l.size, gzip.BestSpeed) // the level is valid
	err = json.NewEncoder(l.zip).Encode(&l.head)
	if err == nil {
		err = l.zip.Flush()
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
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
