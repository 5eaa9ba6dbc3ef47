// Package bombs tests that small, untrusted inputs cannot make a decoder allocate too much memory.
package bombs

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/internal/proof/ample"
)

const (
	factor = 4         // heap bytes per byte of the decoder's limit
	small  = 512 << 10 // heap bytes that any decoder may use
)

// A Decoder decodes up to Bytes bytes. Lists contains the paths of the lists and maps in its JSON,
// such as "shards" or "view.members". Test also puts bombs into each list and map in Lists.
type Decoder struct {
	Name   string
	Bytes  int
	Lists  []string
	Good   []byte                  // a valid record
	More   [][]byte                // further bombs, for a form other than JSON
	Decode func(data []byte) error // must refuse every bomb
}

// Test gives each decoder bombs whose length is the decoder's limit. With -short, Test skips four
// fifths of the bombs that are larger than a MiB. The decoder must refuse each bomb, and the heap
// must grow by less than four times the limit. Because Test measures the heap, nothing else may run
// at the same time.
func Test(t *testing.T, all ...Decoder) {
	for _, d := range all {
		if err := d.Decode(d.Good); err != nil {
			t.Errorf("%s: a good record %.200q is refused, so a bomb may be for another reason: %v", d.Name, d.Good, err)
		}
		grains := []string{"{}", "[[[[[[[[", `""`, "0", "[]", "[{}]", `{"a":{}}`, `"a":{}`, `"a":""`, `{"a":`}
		if testing.Short() && d.Bytes > 1<<20 {
			t.Logf("-short: 2 of %d grains for %s", len(grains), d.Name)
			grains = grains[:2]
		}
		for i, data := range d.More {
			t.Run(fmt.Sprintf("%s/%d", d.Name, i), func(t *testing.T) { d.try(t, data) })
		}
		for _, list := range append([]string{""}, d.Lists...) {
			for _, grain := range grains {
				t.Run(d.Name+"/"+list+"/"+grain, func(t *testing.T) { d.try(t, bomb(d.Bytes, list, grain)) })
			}
		}
	}
}

// bomb returns JSON of the given size that repeats grain in a list or an object at the path.
func bomb(size int, path, grain string) []byte {
	begin, end := "", ""
	if path != "" {
		for p := range strings.SplitSeq(path, ".") {
			begin, end = begin+`{"`+p+`":`, "}"+end
		}
	}
	separator := ","
	switch {
	case strings.HasPrefix(grain, `"a":`):
		begin, end = begin+"{", "}"+end
	case strings.HasSuffix(grain, "}") || strings.HasSuffix(grain, "]") || !strings.ContainsAny(grain, "[{"):
		begin, end = begin+"[", "]"+end
	default:
		separator = ""
	}
	n := max(1, (size-len(begin)-len(end))/(len(grain)+len(separator)))
	if separator != "" {
		return []byte(begin + strings.Repeat(grain+separator, n-1) + grain + end)
	}
	return append([]byte(begin), bytes.Repeat([]byte(grain), n)...)
}

func (d *Decoder) try(t *testing.T, data []byte) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before := m.HeapAlloc
	var peak atomic.Uint64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapAlloc))
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	returned := make(chan struct{})
	var err error
	go func() {
		defer close(returned)
		err = d.Decode(data)
	}()
	ample.Wait(t, d.Name+" returns", func() bool {
		select {
		case <-returned:
			return true
		default:
			return false
		}
	})
	if err == nil {
		t.Errorf("a bomb of %d bytes was read as a record, or not at all", len(data))
	}
	runtime.ReadMemStats(&m)
	close(stop)
	<-done
	grown := int64(max(peak.Load(), m.HeapAlloc)) - int64(before)
	if bound := int64(max(small, factor*d.Bytes)); grown > bound {
		t.Errorf("%d bytes made the heap grow by %d, want less than %d", len(data), grown, bound)
	}
}
