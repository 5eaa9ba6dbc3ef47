package sharding

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/sharding/assign"
)

type report struct {
	Session  core.SessionID
	Capacity float64
	Shards   []shardReport // the shards in any order, each name once
}

// For Parts, see meter.read.
type shardReport struct {
	Name  string
	Rate  float64
	Parts []assign.Part
}

// A report consists of a version byte, the session, the capacity, and the shards, sorted by name. A
// name omits the prefix that it shares with the preceding name. Each part's load is one byte,
// relative to the highest load among the shard's parts. The parts' loads add up to the shard's
// rate.
const (
	reportVersion = 1
	maxReportName = 128
	leastHot      = hotShare / 2 // the minimum share of a hot key in a report, after rounding
)

var errReport = errors.New("sharding: not a report of load")

// To shorten the report to limit bytes, encode first omits the shards' parts, beginning with the
// least loaded shard. Then, it omits whole shards in the same order. Every report contains the
// session and the capacity, which take at most 72 bytes.
func (r *report) encode(limit int) []byte {
	head := appendString([]byte{reportVersion}, string(r.Session))
	head = appendLoad(head, r.Capacity)
	type item struct {
		*shardReport
		parts []byte
		rank  int // position in the order of loads; the lowest load has rank 0
	}
	items := make([]item, len(r.Shards))
	for i := range items {
		items[i] = item{shardReport: &r.Shards[i], parts: r.Shards[i].appendParts(nil)}
	}
	slices.SortFunc(items, func(a, b item) int { return cmp.Or(cmp.Compare(a.Rate, b.Rate), strings.Compare(a.Name, b.Name)) })
	for i := range items {
		items[i].rank = i
	}
	slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.Name, b.Name) })
	n := len(items)
	// This function omits the parts of count shards. If count is above n, it also omits count-n
	// shards.
	omitting := func(count int) []byte {
		b := binary.AppendUvarint(slices.Clone(head), uint64(n-max(0, count-n)))
		last := ""
		for _, s := range items {
			if s.rank < count-n {
				continue
			}
			same := commonPrefix(last, s.Name)
			b = appendString(binary.AppendUvarint(b, uint64(same)), s.Name[same:])
			b, last = appendLoad(b, s.Rate), s.Name
			if s.rank < count {
				b = append(b, 0)
			} else {
				b = append(b, s.parts...)
			}
		}
		return b
	}
	return omitting(sort.Search(2*n, func(count int) bool { return len(omitting(count)) <= limit }))
}

func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// An invalid rate becomes 0.
func appendLoad(b []byte, x float64) []byte {
	if !(x > 0) {
		x = 0
	}
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(min(x, math.MaxFloat32))))
}

func isHot(p assign.Part, rate float64) bool {
	return p.Range.To == p.Range.From+1 && p.Load > leastHot*rate
}

// The first byte is 0 if there are no parts, and otherwise 1 plus the number of hot keys. The
// range's ends follow, with reversed bits, because their last bits are mostly 0. The loads of the
// range's parts come next, and the hot keys come last.
func (s *shardReport) appendParts(b []byte) []byte {
	if len(s.Parts) == 0 || !(float32(s.Rate) > 0) {
		return append(b, 0)
	}
	r := assign.Range{From: s.Parts[0].Range.From, To: s.Parts[len(s.Parts)-1].Range.To}
	var rest [bins]float64
	var hot []assign.Part
	most := 0.0
	for _, p := range s.Parts {
		if isHot(p, s.Rate) && len(hot) < maxHot {
			hot = append(hot, p)
			most = max(most, p.Load)
		} else {
			spread(&rest, r, p)
		}
	}
	most = max(most, slices.Max(rest[:]))
	if binWidth(r) == 0 || !(most > 0) || math.IsInf(most, 1) {
		return append(b, 0)
	}
	share := func(load float64) byte { return byte(math.Round(max(load, 0) / most * 255)) }
	b = append(b, byte(1+len(hot)))
	b = binary.AppendUvarint(b, bits.Reverse64(r.From))
	b = binary.AppendUvarint(b, bits.Reverse64(r.To))
	for _, x := range rest {
		b = append(b, share(x))
	}
	for _, p := range hot {
		b = append(binary.BigEndian.AppendUint64(b, p.Range.From), share(p.Load))
	}
	return b
}

// The result's shards are sorted by name.
func decodeReport(b []byte) (*report, error) {
	in := &reader{b: b}
	if v := in.byte(); in.err == nil && v != reportVersion {
		return nil, fmt.Errorf("sharding: a report of load has form %d, this version reads %d: bring all members to one version", v, reportVersion)
	}
	out := &report{Session: core.SessionID(in.text(64)), Capacity: readLoad(in)}
	if driver.CheckSession(out.Session) != nil {
		in.fail()
	}
	last := ""
	n := in.length(maxShards)
	out.Shards = slices.Grow(out.Shards, min(n, len(in.b)/8)) // a shard takes at least 8 bytes
	for range n {
		same := min(int(in.num(maxReportName)), len(last))
		s := shardReport{Name: last[:same] + in.text(maxReportName)}
		if s.Name <= last || core.CheckShard(s.Name) != nil {
			in.fail()
		}
		s.Rate = readLoad(in)
		s.Parts = readParts(in, s.Rate)
		if in.err != nil {
			break
		}
		out.Shards, last = append(out.Shards, s), s.Name
	}
	if in.err != nil || len(in.b) > 0 {
		return nil, errReport
	}
	return out, nil
}

func readLoad(in *reader) float64 {
	if len(in.b) < 4 {
		in.fail()
		return 0
	}
	x := float64(math.Float32frombits(binary.LittleEndian.Uint32(in.b)))
	if in.b = in.b[4:]; !(x >= 0) || math.IsInf(x, 1) {
		in.fail()
		return 0
	}
	return x
}

// readParts divides the rate among a shard's parts in proportion to their load bytes.
func readParts(in *reader, rate float64) []assign.Part {
	n := int(in.byte()) - 1
	if n < 0 {
		return nil
	}
	r := assign.Range{From: bits.Reverse64(in.num(math.MaxUint64)), To: bits.Reverse64(in.num(math.MaxUint64))}
	if n > maxHot || len(in.b) < bins+9*n || binWidth(r) == 0 || rate == 0 {
		in.fail()
		return nil
	}
	var rest [bins]float64
	hot, sum := make([]assign.Part, n), 0.0
	for i := range rest {
		rest[i] = float64(in.byte())
		sum += rest[i]
	}
	for i := range hot {
		h := binary.BigEndian.Uint64(in.b)
		in.b = in.b[8:]
		hot[i] = assign.Part{Range: assign.Range{From: h, To: h + 1}, Load: float64(in.byte())}
		sum += hot[i].Load
		if !r.Has(h) || i > 0 && h <= hot[i-1].Range.From {
			in.fail()
			return nil
		}
	}
	if sum == 0 {
		in.fail()
		return nil
	}
	for i := range rest {
		rest[i] *= rate / sum
	}
	for i := range hot {
		hot[i].Load *= rate / sum
	}
	return lay(r, &rest, hot)
}

func (r *report) total() float64 {
	sum := 0.0
	for i := range r.Shards {
		sum += r.Shards[i].Rate
	}
	return sum
}

// differs reports whether the assigner needs this report. The report last is the previous one, or
// nil. A member that has no load, and had none before, writes no report.
func (r *report) differs(last *report) bool {
	if last == nil {
		last = &report{}
	}
	total, before := r.total(), last.total()
	if total == 0 && before == 0 {
		return false
	}
	if r.Session != last.Session || r.Capacity != last.Capacity || len(r.Shards) != len(last.Shards) ||
		math.Abs(total-before) > before/10 {
		return true
	}
	known := make(map[string]*shardReport, len(last.Shards))
	for i := range last.Shards {
		known[last.Shards[i].Name] = &last.Shards[i]
	}
	for i := range r.Shards {
		s := &r.Shards[i]
		old := known[s.Name]
		if old == nil || s.newKey(old, total/50) {
			return true
		}
		if d := math.Abs(s.Rate - old.Rate); d > old.Rate/4 && d > total/50 {
			return true
		}
	}
	return false
}

// newKey reports whether a key whose load exceeds least has become hot.
func (s *shardReport) newKey(last *shardReport, least float64) bool {
	for _, p := range s.Parts {
		if isHot(p, s.Rate) && p.Load > least && !slices.ContainsFunc(last.Parts, func(q assign.Part) bool {
			return q.Range == p.Range && isHot(q, last.Rate)
		}) {
			return true
		}
	}
	return false
}

// A member reports at most once per interval, and all members together send at most 20 reports a
// second.
func reportEvery(members int, interval time.Duration) time.Duration {
	return max(interval, time.Duration(members)*time.Second/20)
}
