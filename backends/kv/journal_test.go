package kv

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// feedWorld is a store with lanes, and one reader of them, at random.
type feedWorld struct {
	rng   *rand.Rand
	kind  feedKind
	keys  Keys
	rev   Rev
	now   time.Time
	named int
	lanes map[string]*worldLane
	wrote map[string][]Rev // of each group, the revisions at which it changed

	j        journal
	listed   Rev            // when the keys of the page before were listed
	shown    map[string]Rev // when its values were read
	told     Rev            // up to which a page was complete
	watching bool
	at       int64
	after    Rev
	knows    map[string]int // how many changes of a group the reader knows
	full     int            // how often it read all
	partial  int            // how often it was told what changed
}

type worldLane struct {
	lane
	values  []Pair // all that it had
	removed Rev    // 0: it is still there
}

// at is the lane's record at a revision, as it was read then.
func (l *worldLane) at(rev Rev) (p Pair, ok bool) {
	for _, v := range l.values {
		if v.Rev <= rev {
			p = v
		}
	}
	return p, p.Rev != 0 && (l.removed == 0 || rev < l.removed)
}

func (w *feedWorld) rev1() Rev { w.rev++; return w.rev }

// pick returns one of the lanes, and not the one named.
func (w *feedWorld) pick(not string) string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(w.lanes)), func(n string) bool {
		return n == not || w.lanes[n].removed != 0
	})
	if len(names) == 0 {
		return ""
	}
	return names[w.rng.IntN(len(names))]
}

// write changes a few records with their hints, and perhaps removes another lane.
func (w *feedWorld) write() {
	name := w.pick("")
	if name == "" || w.rng.IntN(30) == 0 {
		w.named++
		name = fmt.Sprint(w.kind.lanePrefix(), w.named)
		w.lanes[name] = &worldLane{}
	}
	l := w.lanes[name]
	rev := w.rev1()
	var names []string
	if w.rng.IntN(20) == 0 {
		if other := w.pick(name); other != "" {
			names = append(names, farewellTo(other, w.lanes[other].seq))
			w.lanes[other].removed = rev
		}
	}
	n := 1 + w.rng.IntN(3)
	if w.rng.IntN(60) == 0 {
		n = 200
	}
	seen := map[string]bool{}
	for range n {
		group := fmt.Sprintf("shard/%d", w.rng.IntN(300))
		if w.kind == logFeed {
			group = fmt.Sprintf("s%d", w.rng.IntN(300))
		}
		if seen[group] {
			continue
		}
		seen[group] = true
		w.wrote[group] = append(w.wrote[group], rev)
		if w.kind == logFeed {
			names = append(names, fmt.Sprintf("%s/%x", group, len(w.wrote[group])))
		} else {
			names = append(names, group)
		}
	}
	w.now = w.now.Add(time.Duration(w.rng.Int64N(int64(2 * time.Second))))
	l.lane = l.with(w.kind, names, w.now).written(rev)
	l.values = append(l.values, Pair{Key: w.keys.Feed(name), Value: l.encode(), Rev: rev})
}

// look shows the reader a page: of one revision, or with values of several.
func (w *feedWorld) look(torn bool) {
	between := func(from Rev) Rev {
		if !torn {
			return w.rev
		}
		return from + Rev(w.rng.Int64N(int64(w.rev-from)+1))
	}
	w.listed = between(w.listed)
	var page []Pair
	for _, name := range slices.Sorted(maps.Keys(w.lanes)) {
		l := w.lanes[name]
		if _, ok := l.at(w.listed); !ok {
			continue
		}
		w.shown[name] = between(max(w.listed, w.shown[name]))
		p, ok := l.at(w.shown[name])
		if !ok { // it was removed after it was listed
			w.look(false)
			return
		}
		page = append(page, p)
	}
	complete := w.listed
	if !w.j.look(page, complete, w.now) {
		w.told = 0
	}
	w.told = max(w.told, complete)
}

// read takes what the journal tells, as Watch and its caller do.
func (w *feedWorld) read(t *testing.T) {
	t.Helper()
	for range 3 {
		if !w.watching {
			if w.after < w.j.floor {
				w.readAll()
				continue
			}
			w.watching, w.at = true, w.j.lost
		}
		told, ok := w.j.since(w.at, w.after)
		if !ok {
			w.watching = false
			w.readAll()
			continue
		}
		w.at = w.j.seq
		for _, k := range told {
			if w.kind == stateFeed {
				group := strings.TrimPrefix(k.key, w.keys.State())
				w.knows[group] = len(w.wrote[group])
			} else if shard, last, ok := w.keys.splitChunk(k.key); ok {
				w.knows[string(shard)] = max(w.knows[string(shard)], int(last))
			}
		}
		if len(told) > 0 {
			w.partial++
		}
		w.after = max(w.after, w.told)
		break
	}
	if !w.watching {
		t.Fatalf("revision %d: reading all is not enough to watch from there", w.rev)
	}
	for group, revs := range w.wrote {
		for n, rev := range revs {
			if rev <= w.after && n >= w.knows[group] {
				t.Fatalf("up to revision %d everything was told, but not the change of %s at %d", w.after, group, rev)
			}
		}
	}
}

func (w *feedWorld) readAll() {
	w.full++
	w.after = w.rev
	for group, revs := range w.wrote {
		w.knows[group] = len(revs)
	}
}

// TestJournalMissesNothing: whatever pages a reader sees, torn or late, it knows
// everything up to the revision that it was told with, and in the end everything.
func TestJournalMissesNothing(t *testing.T) {
	t.Parallel()
	for k := range feedKinds {
		t.Run(k.lanePrefix(), func(t *testing.T) {
			t.Parallel()
			full, partial := 0, 0
			for seed := range uint64(12) {
				w := &feedWorld{
					rng: rand.New(rand.NewPCG(seed, uint64(k))), kind: k, keys: Keys{"n"}, now: time.Unix(0, 0),
					lanes: map[string]*worldLane{}, wrote: map[string][]Rev{}, shown: map[string]Rev{}, knows: map[string]int{},
				}
				w.j.init(w.keys, k)
				for range 400 {
					for range 1 + w.rng.IntN(4) {
						w.write()
					}
					// Who has not seen a lane that somebody removes by hand cannot know of it.
					byHand := seed%2 == 0
					if byHand && w.rng.IntN(100) == 0 {
						name := w.pick("")
						if _, known := w.shown[name]; known {
							w.lanes[name].removed = w.rev1()
						}
					}
					w.look(w.rng.IntN(2) == 0)
					switch n := w.rng.IntN(40); {
					case n == 0: // it failed, and goes on where it was
						w.watching = false
					case n == 1 && !byHand: // it read the state, and only now begins to watch
						w.watching, w.told = false, 0
						w.j = journal{}
						w.j.init(w.keys, k)
						w.look(w.rng.IntN(2) == 0)
					}
					if w.rng.IntN(4) > 0 {
						w.read(t)
					}
				}
				w.look(false)
				w.read(t)
				for group, revs := range w.wrote {
					if w.knows[group] != len(revs) {
						t.Fatalf("seed %d: of %d changes of %s the reader knows %d", seed, len(revs), group, w.knows[group])
					}
				}
				full, partial = full+w.full, partial+w.partial
			}
			if partial < 1000 || full < 100 || full > partial {
				t.Errorf("%d times told, %d times read in full: this shows little", partial, full)
			}
		})
	}
}

func TestJournalRemovedLanes(t *testing.T) {
	t.Parallel()
	keys := Keys{"n"}
	now := time.Unix(0, 0)
	pair := func(name string, rev Rev, l lane) Pair {
		return Pair{Key: keys.Feed(name), Value: l.encode(), Rev: rev}
	}
	two := lane{}.with(stateFeed, []string{"shard/1"}, now).with(stateFeed, []string{"shard/2"}, now)
	three := two.with(stateFeed, []string{"shard/3"}, now)
	for what, c := range map[string]struct {
		page []Pair
		lost bool // reads all
		sane bool
	}{
		"with a farewell":                              {[]Pair{pair("state-b", 9, lane{}.with(stateFeed, []string{farewellTo("state-a", 2)}, now))}, false, true},
		"with a farewell at a write missed":            {[]Pair{pair("state-b", 9, lane{}.with(stateFeed, []string{farewellTo("state-a", 3)}, now))}, true, true},
		"without a farewell":                           {nil, true, false},
		"not, but gone back":                           {[]Pair{pair("state-a", 3, lane{}.with(stateFeed, []string{"shard/1"}, now))}, true, false},
		"not, but damaged":                             {[]Pair{{Key: keys.Feed("state-a"), Value: []byte("x"), Rev: 9}}, true, true},
		"not, and went on":                             {[]Pair{pair("state-a", 9, three)}, false, true},
		"not, but missed":                              {[]Pair{pair("state-a", 9, lane{seq: 5, floor: 3})}, true, true},
		"beside one that came and went":                {[]Pair{pair("state-a", 4, two), pair("state-b", 9, lane{}.with(stateFeed, []string{farewellTo("state-c", 1)}, now))}, true, true},
		"beside one of which the beginning is missing": {[]Pair{pair("state-a", 4, two), pair("state-b", 9, lane{seq: 2, floor: 1})}, true, true},
	} {
		var j journal
		j.init(keys, stateFeed)
		if !j.look([]Pair{pair("state-a", 4, two)}, 4, now) {
			t.Fatal("the first page is not sane")
		}
		at := j.seq
		sane := j.look(c.page, 9, now)
		if sane != c.sane {
			t.Errorf("removed %s: sane is %v", what, sane)
		}
		if _, ok := j.since(at, 4); ok == c.lost {
			t.Errorf("removed %s: told is %v", what, ok)
		}
	}
}

func TestJournalStale(t *testing.T) {
	t.Parallel()
	keys := Keys{"n"}
	now := time.Unix(0, 0)
	var j journal
	j.init(keys, stateFeed)
	page := func(seq int64) []Pair {
		return []Pair{
			{Key: keys.Feed("state-mine"), Value: lane{seq: 1}.encode(), Rev: 1},
			{Key: keys.Feed("state-old"), Value: lane{seq: 1}.encode(), Rev: 2},
			{Key: keys.Feed("state-busy"), Value: lane{seq: seq}.encode(), Rev: Rev(10 * seq)},
		}
	}
	mine := func(name string) bool { return name == "state-mine" }
	j.look(page(1), 10, now)
	if name, _, ok := j.stale(now.Add(time.Minute-1), time.Minute, mine); ok {
		t.Errorf("%s is stale before its time", name)
	}
	now = now.Add(time.Minute)
	j.look(page(2), 20, now)
	if name, at, ok := j.stale(now, time.Minute, mine); !ok || name != "state-old" || at.rev != 2 || at.seq != 1 {
		t.Errorf("stale is %s, %+v, %v; want state-old", name, at, ok)
	}
}

// TestJournalBounded: what nobody reads is not kept for ever.
func TestJournalBounded(t *testing.T) {
	t.Parallel()
	keys := Keys{"n"}
	var j journal
	j.init(keys, stateFeed)
	j.look(nil, 1, time.Unix(0, 0))
	l := lane{}
	for n := range 3 * maxTold {
		l = l.with(stateFeed, []string{fmt.Sprintf("shard/%d", n)}, time.Unix(0, 0))
		j.look([]Pair{{Key: keys.Feed("state-a"), Value: l.encode(), Rev: Rev(n + 2)}}, Rev(n+2), time.Unix(0, 0))
	}
	if n := len(j.told.index); n != maxTold {
		t.Errorf("%d names are kept; want %d", n, maxTold)
	}
	if _, ok := j.since(1, 1); ok {
		t.Error("a reader that is too far behind is not told so")
	}
	if told, ok := j.since(j.seq-5, 1); !ok || len(told) != 5 {
		t.Errorf("a reader 5 behind is told %d names, %v", len(told), ok)
	}
	if j.floor != 2*maxTold+1 {
		t.Errorf("the floor is %d; want %d", j.floor, 2*maxTold+1)
	}
}
