package tenuretest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"
)

// step is the beginning or the end of a member's fault.
type step struct {
	at     time.Duration // time since the world began
	member int
	fault  Faults
	on     bool
}

// schedule returns the beginnings and ends of the faults. The result depends only on the seed. Each
// member has one fault at a time. If there are several members, at least one member has no fault at
// any time.
func (w *World) schedule() []step {
	rnd := rand.New(rand.NewPCG(w.seed, 3))
	kinds := w.o.Faults.kinds()
	from := time.Since(w.start)
	ttl := w.o.TTL
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(rnd.Int64N(int64(most-least)))
	}
	free := make([]time.Duration, len(w.slots)) // when the member's last fault ends
	var out []step
	for at := from; ; {
		at += between(ttl/20, 3*ttl/2)
		if at >= from+w.o.Length || len(w.slots) == 0 {
			break
		}
		m := rnd.IntN(len(w.slots))
		kind, length := kinds[rnd.IntN(len(kinds))], between(ttl/20, 3*ttl)
		down := 0
		for i := range free {
			if i != m && free[i] > at {
				down++
			}
		}
		if free[m] > at || len(w.slots) > 1 && down == len(w.slots)-1 {
			continue
		}
		free[m] = at + length
		out = append(out, step{at, m, kind, true}, step{free[m], m, kind, false})
	}
	slices.SortStableFunc(out, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return out
}

func (f Faults) kinds() []Faults {
	var out []Faults
	for k := Pause; k <= Crash; k <<= 1 {
		if f&k != 0 {
			out = append(out, k)
		}
	}
	return out
}

// String returns the names of the kinds in the set.
func (f Faults) String() string {
	names := map[Faults]string{Pause: "pause", Suspend: "suspend", Cut: "cut", LostReply: "lost reply", Crash: "crash"}
	text := ""
	for _, k := range f.kinds() {
		if text != "" {
			text += ", "
		}
		text += names[k]
	}
	return cmp.Or(text, "none")
}
