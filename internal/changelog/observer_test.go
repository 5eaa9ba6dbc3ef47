package changelog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/backends/kv"
	"github.com/tenure-go/tenure/internal/kvkeys"
)

func keysOf(t *testing.T) kvkeys.Keys {
	t.Helper()
	keys, err := kvkeys.New("n")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// world is a store with change logs and one reader. Its events are random.
type world struct {
	rng   *rand.Rand
	kind  kind
	keys  kvkeys.Keys
	rev   kv.Rev
	now   time.Time
	named int
	logs  map[string]*worldLog
	wrote map[string][]kv.Rev // of each group, the revisions at which it changed

	o        observer
	listed   kv.Rev            // when the keys of the previous page were listed
	shown    map[string]kv.Rev // when its values were read
	complete kv.Rev            // up to which a page was complete
	watching bool
	at       int64
	after    kv.Rev
	knows    map[string]int // how many changes of a group the reader knows
	full     int            // how often it read all
	partial  int            // how often it read changed records
}

type worldLog struct {
	changeLog
	values  []kv.Pair // all that it had
	removed kv.Rev    // 0: it is still there
}

// at returns the change log's record at a revision.
func (l *worldLog) at(rev kv.Rev) (p kv.Pair, ok bool) {
	for _, v := range l.values {
		if v.Rev <= rev {
			p = v
		}
	}
	return p, p.Rev != 0 && (l.removed == 0 || rev < l.removed)
}

func (w *world) rev1() kv.Rev { w.rev++; return w.rev }

// pick returns one of the change logs, except the one named.
func (w *world) pick(not string) string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(w.logs)), func(n string) bool {
		return n == not || w.logs[n].removed != 0
	})
	if len(names) == 0 {
		return ""
	}
	return names[w.rng.IntN(len(names))]
}

// write changes a few records and writes their entries. It may also remove a change log.
func (w *world) write() {
	name := w.pick("")
	if name == "" || w.rng.IntN(30) == 0 {
		w.named++
		name = fmt.Sprint(w.kind.prefix(), w.named)
		w.logs[name] = &worldLog{}
	}
	l := w.logs[name]
	rev := w.rev1()
	var names []string
	if w.rng.IntN(20) == 0 {
		if other := w.pick(name); other != "" {
			names = append(names, tombstone(other, w.logs[other].seq))
			w.logs[other].removed = rev
		}
	}
	n := 1 + w.rng.IntN(3)
	if w.rng.IntN(60) == 0 {
		n = 200
	}
	seen := map[string]bool{}
	for range n {
		group := fmt.Sprintf("shard/%d", w.rng.IntN(300))
		if w.kind == logKind {
			group = fmt.Sprintf("s%d", w.rng.IntN(300))
		}
		if seen[group] {
			continue
		}
		seen[group] = true
		w.wrote[group] = append(w.wrote[group], rev)
		if w.kind == logKind {
			names = append(names, fmt.Sprintf("%s/%x", group, len(w.wrote[group])))
		} else {
			names = append(names, group)
		}
	}
	w.now = w.now.Add(time.Duration(w.rng.Int64N(int64(2 * time.Second))))
	l.changeLog = l.with(w.kind, names, w.now).written(rev)
	l.values = append(l.values, kv.Pair{Key: w.keys.ChangeLogs() + name, Value: l.encode(), Rev: rev})
}

// look shows the reader a page, whose values are from one revision or from several.
func (w *world) look(torn bool) {
	between := func(from kv.Rev) kv.Rev {
		if !torn {
			return w.rev
		}
		return from + kv.Rev(w.rng.Int64N(int64(w.rev-from)+1))
	}
	w.listed = between(w.listed)
	var page []kv.Pair
	for _, name := range slices.Sorted(maps.Keys(w.logs)) {
		l := w.logs[name]
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
	if !w.o.look(page, complete, w.now) {
		w.complete = 0
	}
	w.complete = max(w.complete, complete)
}

// read takes the observer's changes in the same way as Watch and its caller.
func (w *world) read(t *testing.T) {
	t.Helper()
	for range 3 {
		if !w.watching {
			if w.after < w.o.floor {
				w.readAll()
				continue
			}
			w.watching, w.at = true, w.o.lost
		}
		keys, ok := w.o.since(w.at, w.after)
		if !ok {
			w.watching = false
			w.readAll()
			continue
		}
		w.at = w.o.seq
		for _, k := range keys {
			if w.kind == stateKind {
				group := strings.TrimPrefix(k.key, w.keys.State())
				w.knows[group] = len(w.wrote[group])
			} else if name, ok := chunkName(w.keys, k.key); ok {
				shard, digits, _ := strings.Cut(name, "/")
				last, err := strconv.ParseInt(digits, 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				w.knows[shard] = max(w.knows[shard], int(last))
			}
		}
		if len(keys) > 0 {
			w.partial++
		}
		w.after = max(w.after, w.complete)
		break
	}
	if !w.watching {
		t.Fatalf("revision %d: reading all is not enough to watch from there", w.rev)
	}
	for group, revs := range w.wrote {
		for n, rev := range revs {
			if rev <= w.after && n >= w.knows[group] {
				t.Fatalf("up to revision %d it knows everything, but not the change of %s at %d", w.after, group, rev)
			}
		}
	}
}

func (w *world) readAll() {
	w.full++
	w.after = w.rev
	for group, revs := range w.wrote {
		w.knows[group] = len(revs)
	}
}

// TestObserverMissesNothing: even if pages are torn or late, a reader knows every change up to the
// pages' revision, and finally every change.
func TestObserverMissesNothing(t *testing.T) {
	t.Parallel()
	for k := range kinds {
		t.Run(k.prefix(), func(t *testing.T) {
			t.Parallel()
			full, partial := 0, 0
			for seed := range uint64(12) {
				w := &world{
					rng: rand.New(rand.NewPCG(seed, uint64(k))), kind: k, keys: keysOf(t), now: time.Unix(0, 0),
					logs: map[string]*worldLog{}, wrote: map[string][]kv.Rev{}, shown: map[string]kv.Rev{},
					knows: map[string]int{},
				}
				w.o.init(w.keys, k)
				for range 400 {
					for range 1 + w.rng.IntN(4) {
						w.write()
					}
					// A reader that has not seen a change log cannot know that somebody removed it
					// by hand.
					byHand := seed%2 == 0
					if byHand && w.rng.IntN(100) == 0 {
						name := w.pick("")
						if _, known := w.shown[name]; known {
							w.logs[name].removed = w.rev1()
						}
					}
					w.look(w.rng.IntN(2) == 0)
					switch n := w.rng.IntN(40); {
					case n == 0: // it failed, and goes on where it was
						w.watching = false
					case n == 1 && !byHand: // it read the state, and only now begins to watch
						w.watching, w.complete = false, 0
						w.o = observer{}
						w.o.init(w.keys, k)
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
						t.Fatalf("seed %d: of %d changes of %s the reader knows %d", seed, len(revs), group,
							w.knows[group])
					}
				}
				full, partial = full+w.full, partial+w.partial
			}
			if partial < 1000 || full < 100 || full > partial {
				t.Errorf("%d times in part, %d times in full: this shows little", partial, full)
			}
		})
	}
}

func TestObserverRemoved(t *testing.T) {
	t.Parallel()
	keys := keysOf(t)
	now := time.Unix(0, 0)
	pair := func(name string, rev kv.Rev, l changeLog) kv.Pair {
		return kv.Pair{Key: keys.ChangeLogs() + name, Value: l.encode(), Rev: rev}
	}
	removed := func(name string, seq int64) kv.Pair {
		return pair("state-b", 9, changeLog{}.with(stateKind, []string{tombstone(name, seq)}, now))
	}
	one := changeLog{}.with(stateKind, []string{"shard/1"}, now)
	two := one.with(stateKind, []string{"shard/2"}, now)
	three := two.with(stateKind, []string{"shard/3"}, now)
	damaged := kv.Pair{Key: keys.ChangeLogs() + "state-a", Value: []byte("x"), Rev: 9}
	headless := pair("state-b", 9, changeLog{seq: 2, floor: 1})
	for what, c := range map[string]struct {
		page []kv.Pair
		lost bool // reads all
		sane bool
	}{
		"with a tombstone":                   {[]kv.Pair{removed("state-a", 2)}, false, true},
		"with a tombstone at a write missed": {[]kv.Pair{removed("state-a", 3)}, true, true},
		"without a tombstone":                {nil, true, false},
		"not, but gone back":                 {[]kv.Pair{pair("state-a", 3, one)}, true, false},
		"not, but damaged":                   {[]kv.Pair{damaged}, true, true},
		"not, and went on":                   {[]kv.Pair{pair("state-a", 9, three)}, false, true},
		"not, but missed":                    {[]kv.Pair{pair("state-a", 9, changeLog{seq: 5, floor: 3})}, true, true},
		"beside one that came and went":      {[]kv.Pair{pair("state-a", 4, two), removed("state-c", 1)}, true, true},
		"beside one without its beginning":   {[]kv.Pair{pair("state-a", 4, two), headless}, true, true},
	} {
		var o observer
		o.init(keys, stateKind)
		if !o.look([]kv.Pair{pair("state-a", 4, two)}, 4, now) {
			t.Fatal("the first page is not sane")
		}
		at := o.seq
		sane := o.look(c.page, 9, now)
		if sane != c.sane {
			t.Errorf("removed %s: sane is %v", what, sane)
		}
		if _, ok := o.since(at, 4); ok == c.lost {
			t.Errorf("removed %s: in part is %v", what, ok)
		}
	}
}

func TestObserverStale(t *testing.T) {
	t.Parallel()
	keys := keysOf(t)
	now := time.Unix(0, 0)
	var o observer
	o.init(keys, stateKind)
	page := func(seq int64) []kv.Pair {
		return []kv.Pair{
			{Key: keys.ChangeLogs() + "state-mine", Value: changeLog{seq: 1}.encode(), Rev: 1},
			{Key: keys.ChangeLogs() + "state-old", Value: changeLog{seq: 1}.encode(), Rev: 2},
			{Key: keys.ChangeLogs() + "state-busy", Value: changeLog{seq: seq}.encode(), Rev: kv.Rev(10 * seq)},
		}
	}
	mine := func(name string) bool { return name == "state-mine" }
	o.look(page(1), 10, now)
	if name, _, ok := stale(o.logs, now.Add(time.Minute-1), time.Minute, mine); ok {
		t.Errorf("%s is stale before its time", name)
	}
	now = now.Add(time.Minute)
	o.look(page(2), 20, now)
	if name, at, ok := stale(o.logs, now, time.Minute, mine); !ok || name != "state-old" || at.rev != 2 || at.seq != 1 {
		t.Errorf("stale is %s, %+v, %v; want state-old", name, at, ok)
	}
}

// TestObserverBounded: an observer stays small even if nothing reads from it.
func TestObserverBounded(t *testing.T) {
	t.Parallel()
	keys := keysOf(t)
	var o observer
	o.init(keys, stateKind)
	o.look(nil, 1, time.Unix(0, 0))
	l := changeLog{}
	for n := range 3 * maxChanged {
		l = l.with(stateKind, []string{fmt.Sprintf("shard/%d", n)}, time.Unix(0, 0))
		rev := kv.Rev(n + 2)
		o.look([]kv.Pair{{Key: keys.ChangeLogs() + "state-a", Value: l.encode(), Rev: rev}}, rev, time.Unix(0, 0))
	}
	if n := o.order.Len(); n != maxChanged {
		t.Errorf("%d keys are kept; want %d", n, maxChanged)
	}
	if _, ok := o.since(1, 1); ok {
		t.Error("a reader that is too far behind is not refused")
	}
	if keys, ok := o.since(o.seq-5, 1); !ok || len(keys) != 5 {
		t.Errorf("a reader 5 behind has %d keys, %v", len(keys), ok)
	}
	if o.floor != 2*maxChanged+1 {
		t.Errorf("the floor is %d; want %d", o.floor, 2*maxChanged+1)
	}
}
