package tenurehttp

import (
	"bytes"
	"encoding/json"
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/sharding"
	"github.com/tenure-go/tenure/sharding/assign"
)

const (
	maxRanges   = 256         // if there are more ranges, neighboring ranges are combined
	maxLoads    = 4096        // maximum number of members whose loads are shown
	sharesEvery = time.Second // the minimum time between two looks
	sharesRest  = 20          // the minimum pause, as a multiple of the last look's duration
)

// A shares is immutable. If a *shares is nil, the handler shows neither ranges nor loads.
type shares struct {
	loads   map[string]float64              // the known loads, by shard
	members map[core.SessionID]memberShares // empty while no load is known
	ranges  []rangeJSON                     // ranges in the order of hashes

	elsewhere map[string]string // preferred zones by shard, for shards whose owner is in a different zone

	membersJSON, rangesJSON, elsewhereJSON json.RawMessage
}

// A capacity of 0 is unknown.
type memberShares struct {
	Load     float64 `json:"load"`
	Capacity float64 `json:"capacity,omitempty"`
}

// rangeJSON is one range of the keyspace, or several neighboring ranges combined.
type rangeJSON struct {
	Range assign.Range `json:"range"`
	Part  float64      `json:"part"`  // size as a fraction of the keyspace
	Shard string       `json:"shard"` // the first shard
	// Shards is the number of combined ranges. Owners is the number of these ranges' owners.
	Shards int `json:"shards"`
	Owners int `json:"owners"`
	// Session is the owner of the largest part. If no living member owns that part, Session is
	// empty.
	Session core.SessionID `json:"session,omitempty"`
	// Load is the sum of the known loads. If no load is known, Load is left out.
	Load *float64 `json:"load,omitempty"`
}

// shared reads the ranges and loads, for all streams and answers, at most once per sharesEvery.
func (h *handler) shared(v *core.View) *shares {
	if h.sharding == nil {
		return nil
	}
	h.sharesMu.Lock()
	defer h.sharesMu.Unlock()
	if began := time.Now(); !began.Before(h.sharesNext) {
		h.shares = newShares(h.sharding(), v)
		h.sharesNext = began.Add(max(sharesEvery, sharesRest*time.Since(began)))
	}
	return h.shares
}

func newShares(p sharding.Picture, v *core.View) *shares {
	s := &shares{loads: make(map[string]float64, len(p.Loads)), members: map[core.SessionID]memberShares{}}
	of := map[core.SessionID]float64{}
	for i := range v.Shards {
		o := &v.Shards[i]
		if x, known := p.Loads[o.Shard]; known && isLoad(x) {
			s.loads[o.Shard] = rounded(x)
			of[o.Session] = sum(of[o.Session], x)
		}
	}
	for i := range v.Members {
		if i >= maxLoads && v.Members[i].Session != v.Session {
			continue
		}
		m := memberShares{Load: rounded(of[v.Members[i].Session])}
		if c := p.Capacity[v.Members[i].Session]; isLoad(c) {
			m.Capacity = rounded(c)
		}
		if len(s.loads) > 0 {
			s.members[v.Members[i].Session] = m
		}
	}
	s.ranges, s.elsewhere = combine(p, v), make(map[string]string, len(p.Elsewhere))
	for shard, zone := range p.Elsewhere {
		if len(s.elsewhere) == maxRanges {
			break
		}
		s.elsewhere[cut(shard, maxShardName)] = cut(zone, maxZone)
	}
	s.membersJSON, _ = json.Marshal(s.members) // the loads are neither NaN nor infinite
	s.rangesJSON, _ = json.Marshal(s.ranges)
	s.elsewhereJSON, _ = json.Marshal(s.elsewhere)
	return s
}

// If there are more than maxRanges ranges, combine joins those that begin in the same part of the
// keyspace.
func combine(p sharding.Picture, v *core.View) []rangeJSON {
	out := []rangeJSON{}
	if p.Ranges == nil {
		return out
	}
	n, last := 0, uint64(0)
	for range p.Ranges {
		n++
	}
	widths := map[core.SessionID]float64{} // widths by owner, within the last element of out
	for shard, r := range p.Ranges {
		if r.Empty() {
			continue
		}
		at, _ := bits.Mul64(r.From, maxRanges)
		if len(out) == 0 || len(out) < maxRanges && (n <= maxRanges || at != last) {
			out = append(out, rangeJSON{Range: r, Shard: cut(shard, maxShardName)})
			clear(widths)
		}
		x := &out[len(out)-1]
		o, _ := v.Owner(shard)
		if o.Node == "" {
			o.Session = ""
		}
		// The width minus 1 is computed first, because a uint64 cannot represent 2^64, the number
		// of hashes in the whole keyspace.
		width := (float64(r.To-1-r.From) + 1) / math.Exp2(64)
		widths[o.Session] += width
		if x.Shards++; x.Shards == 1 || widths[o.Session] > widths[x.Session] {
			x.Session = o.Session
		}
		x.Range.To, x.Owners, x.Part = r.To, len(widths), x.Part+width
		if load, known := p.Loads[shard]; known && isLoad(load) {
			if x.Load == nil {
				x.Load = new(float64)
			}
			*x.Load = sum(*x.Load, load)
		}
		last = at
	}
	for i := range out {
		if out[i].Load != nil {
			*out[i].Load = rounded(*out[i].Load)
		}
	}
	return out
}

// Every valid name is shorter than maxShardName. At most maxZone bytes of a zone's name are shown.
const maxShardName, maxZone = 200, 64

func isLoad(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }

func sum(a, b float64) float64 { return min(a+b, math.MaxFloat64) }

// Loads are rounded to three digits, so that noise does not cause updates.
func rounded(x float64) float64 {
	y, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64)
	return min(y, math.MaxFloat64)
}

// If the shares differ from the last shares, news is true.
func (f *feed) share(u *update, s *shares) (news bool) {
	if s == nil {
		return false
	}
	if !bytes.Equal(s.membersJSON, f.memberLoads) {
		u.MemberLoads, f.memberLoads, news = s.membersJSON, s.membersJSON, true
	}
	if !bytes.Equal(s.rangesJSON, f.ranges) {
		u.Ranges, f.ranges, news = s.rangesJSON, s.rangesJSON, true
	}
	if !bytes.Equal(s.elsewhereJSON, f.elsewhere) {
		news = news || len(s.elsewhere) > 0 || f.elsewhere != nil
		u.Elsewhere, f.elsewhere = s.elsewhereJSON, s.elsewhereJSON
	}
	if len(s.loads) == 0 && len(f.loads) == 0 {
		return news
	}
	u.Loads = map[string]*float64{}
	loads := make(map[string]float64, len(f.loads))
	for i := range f.shards {
		name := f.shards[i].Shard
		x, known := s.loads[name]
		old, had := f.loads[name]
		switch {
		case known:
			if loads[name] = x; !had || x != old {
				u.Loads[name] = &x
			}
		case had:
			u.Loads[name] = nil
		}
	}
	f.loads = loads
	return news || len(u.Loads) > 0
}

func (s *shares) add(out *viewJSON) {
	if s == nil {
		return
	}
	out.Ranges = s.ranges
	for i := range out.Members {
		if x, known := s.members[core.SessionID(out.Members[i].Session)]; known {
			out.Members[i].Load = &x
		}
	}
	for i := range out.Shards {
		out.Shards[i].Elsewhere = s.elsewhere[out.Shards[i].Shard]
		if x, known := s.loads[out.Shards[i].Shard]; known {
			out.Shards[i].Load = &x
		}
	}
}
