package bucket

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/core/driver"
)

// These constants limit objects, as they are written and as they are read.
const (
	maxEntry   = 4 << 20 // bytes of an entry of the log; a larger one would be uploaded in parts
	maxKey     = 2 << 10
	maxWriter  = 64
	maxPace    = 2 * time.Second
	maxRecords = 256 << 20 // size of all records of a namespace
	// headerSize is the length of an entry's format, nonce and predecessor.
	headerSize = len(entryFormat) + 2*len(nonce{})

	entryFormat      = "tenlog1\n"
	checkpointFormat = "tenchk1\n"
)

// nonce identifies an object of the log. The nonce before the first object is zero.
type nonce [16]byte

// entry is one object of the log.
type entry struct {
	nonce, prev nonce
	number      int64
	rev         kv.Rev        // revision of the store before this entry
	pace        time.Duration // time that a request of the writer takes
	writer      string
	txns        [][]kv.Op // each has one revision
	size        int       // encoded
}

func (e *entry) encode() []byte {
	b := append([]byte(entryFormat), e.nonce[:]...)
	b = append(b, e.prev[:]...)
	b = binary.AppendUvarint(b, uint64(e.number))
	b = binary.AppendUvarint(b, uint64(e.rev))
	b = binary.AppendUvarint(b, uint64(e.pace/time.Millisecond))
	b = appendString(b, e.writer)
	b = binary.AppendUvarint(b, uint64(len(e.txns)))
	for _, ops := range e.txns {
		b = binary.AppendUvarint(b, uint64(len(ops)))
		for _, op := range ops {
			b = appendString(b, op.Key)
			if op.Delete {
				b = append(b, 0)
				continue
			}
			b = binary.AppendUvarint(append(b, 1), uint64(len(op.Value)))
			b = append(b, op.Value...)
		}
	}
	sum := sha256.Sum256(b)
	b = append(b, sum[:]...)
	e.size = len(b)
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// size returns the length that a record or an operation counts for, which is more than its encoded
// length. It includes the memory of a small one.
func size(key string, value []byte) int { return len(key) + len(value) + 64 }

// decodeEntry decodes the object with the given number of a namespace.
func decodeEntry(text []byte, number int64, namespace string) (*entry, error) {
	d := newDecoder(bytes.NewReader(text), len(text), namespace)
	e := &entry{size: len(text)}
	d.format(entryFormat)
	d.full(e.nonce[:])
	d.full(e.prev[:])
	e.number, e.rev = int64(d.number()), kv.Rev(d.number())
	e.pace = time.Duration(min(d.number(), uint64(maxPace/time.Millisecond))) * time.Millisecond
	e.writer = string(d.bytes(maxWriter))
	if n := d.count(); n > 0 {
		e.txns = make([][]kv.Op, 0, min(n, 1024))
		room := maxEntry
		for range n {
			k := d.count()
			if k == 0 {
				d.fail("a transaction has no operation")
			}
			ops := make([]kv.Op, 0, min(k, 16))
			for range k {
				op := kv.Op{Key: d.key()}
				switch d.byte() {
				case 0:
					op.Delete = true
				case 1:
					op.Value = d.bytes(maxEntry)
				default:
					d.fail("an operation is neither a put nor a delete")
				}
				if room -= size(op.Key, op.Value); room < 0 {
					d.fail("it has too many operations")
				}
				if d.err != nil {
					break
				}
				ops = append(ops, op)
			}
			if d.err != nil {
				break
			}
			e.txns = append(e.txns, ops)
		}
	}
	d.end()
	if d.err == nil && e.number != number {
		d.fail(fmt.Sprintf("it says that its number is %d", e.number))
	}
	return e, d.err
}

// decoder reads an object. The first error stays. A count or length never exceeds the bytes that
// are left, so it cannot make the process allocate more than the object has.
type decoder struct {
	r         *bufio.Reader
	hash      hash.Hash
	left      int // before the hash at the end
	namespace string
	err       error
}

func newDecoder(r io.Reader, length int, namespace string) *decoder {
	d := &decoder{r: bufio.NewReader(r), hash: sha256.New(), left: length - sha256.Size, namespace: namespace}
	if d.left < 0 {
		d.fail("it is too short")
	}
	return d
}

func (d *decoder) fail(why string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", driver.ErrDamaged, why)
	}
}

// full fills b.
func (d *decoder) full(b []byte) {
	if d.err == nil && len(b) > d.left {
		d.fail("it is cut off")
	}
	if d.err != nil {
		return
	}
	if _, err := io.ReadFull(d.r, b); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		d.fail("it is cut off")
	} else if err != nil {
		d.err = err
	}
	d.left -= len(b)
	d.hash.Write(b)
}

func (d *decoder) byte() byte {
	var b [1]byte
	d.full(b[:])
	return b[0]
}

// number returns a number of at most 63 bits.
func (d *decoder) number() uint64 {
	var n uint64
	for shift := 0; ; shift += 7 {
		b := d.byte()
		if shift > 56 {
			d.fail("a number is too large")
		}
		if d.err != nil {
			return 0
		}
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return n
		}
	}
}

func (d *decoder) count() int {
	n := d.number()
	if d.err == nil && n > uint64(d.left) {
		d.fail("a length exceeds the object")
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

func (d *decoder) bytes(most int) []byte {
	n := d.count()
	if n > most {
		d.fail("a text is too long")
		return nil
	}
	b := make([]byte, n)
	d.full(b)
	return b
}

func (d *decoder) key() string {
	key := string(d.bytes(maxKey))
	if d.err == nil && !strings.HasPrefix(key, d.namespace+"/") {
		d.fail("a key is outside the namespace")
	}
	return key
}

func (d *decoder) format(want string) {
	b := make([]byte, len(want))
	if d.full(b); d.err == nil && string(b) != want {
		d.fail(fmt.Sprintf("it begins with %.20q instead of %q: a later version may have written it", b, want))
	}
}

// end checks the hash, after which nothing may follow.
func (d *decoder) end() {
	if d.err == nil && d.left != 0 {
		d.fail("something follows its end")
	}
	sum := d.hash.Sum(nil)
	var got [sha256.Size]byte
	d.left = sha256.Size
	if d.full(got[:]); d.err == nil && !bytes.Equal(sum, got[:]) {
		d.fail("its hash is different")
	}
}

// encodeTo writes a checkpoint of the state, and returns the first error.
func (c *checkpoint) encodeTo(w io.Writer) error {
	h := sha256.New()
	out := bufio.NewWriter(io.MultiWriter(w, h))
	b := append([]byte(checkpointFormat), c.id[:]...)
	b = append(b, c.nonce[:]...)
	b = binary.AppendUvarint(b, uint64(c.number))
	b = binary.AppendUvarint(b, uint64(c.rev))
	b = binary.AppendUvarint(b, uint64(len(c.pairs)))
	for _, p := range c.pairs {
		b = binary.AppendUvarint(appendString(b, p.Key), uint64(p.Rev))
		b = append(binary.AppendUvarint(b, uint64(len(p.Value))), p.Value...)
		if len(b) >= 1<<16 {
			if _, err := out.Write(b); err != nil {
				return err
			}
			b = b[:0]
		}
	}
	if _, err := out.Write(b); err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := w.Write(h.Sum(nil))
	return err
}

// checkpoint has all records at one number of the log.
type checkpoint struct {
	id, nonce nonce // of the first entry, and of the entry with this number
	number    int64
	rev       kv.Rev
	pairs     []kv.Pair // in the order of their keys
}

func decodeCheckpoint(r io.Reader, length int, number int64, namespace string, most int) (*checkpoint, error) {
	d := newDecoder(r, length, namespace)
	c := &checkpoint{}
	d.format(checkpointFormat)
	d.full(c.id[:])
	d.full(c.nonce[:])
	c.number, c.rev = int64(d.number()), kv.Rev(d.number())
	n := d.count()
	c.pairs = make([]kv.Pair, 0, min(n, 1024))
	total := 0
	for range n {
		p := kv.Pair{Key: d.key(), Rev: kv.Rev(d.number()), Value: d.bytes(maxEntry)}
		if d.err != nil {
			break
		}
		if k := len(c.pairs); k > 0 && c.pairs[k-1].Key >= p.Key || p.Rev <= 0 || p.Rev > c.rev {
			d.fail("its records are out of order, or have impossible revisions")
		}
		if total += size(p.Key, p.Value); total > most {
			d.fail("its records are too large")
		}
		c.pairs = append(c.pairs, p)
	}
	d.end()
	if d.err == nil && c.number != number {
		d.fail(fmt.Sprintf("it says that its number is %d", c.number))
	}
	return c, d.err
}
