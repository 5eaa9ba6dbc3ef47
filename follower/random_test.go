package follower

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
)

var (
	seeds = flag.Int("seeds", 30, "random runs of TestRandom")
	seed  = flag.Int("seed", 0, "the one run of TestRandom to play again")
)

// TestRandom follows the logs of a store with random faults. The stream restarts, and loses,
// duplicates and withholds entries. Calls fail, and logs are trimmed behind snapshots. The Applier
// also fails, and the follower restarts. At every instant, the applied entries are a prefix of each
// log. Once the faults are over, each whole log is applied (T4, T6, T7).
func TestRandom(t *testing.T) {
	from, to := 1, *seeds
	if *seed > 0 {
		from, to = *seed, *seed
	}
	for n := from; n <= to; n++ {
		t.Run(fmt.Sprint("seed ", n), func(t *testing.T) {
			bubble(t, func(w *world) { (&chaos{world: w, rnd: rand.New(rand.NewPCG(uint64(n), 0))}).run() })
		})
	}
}

type chaos struct {
	*world
	rnd    *rand.Rand
	b      *faultyBackend
	saved  inMemory // kept across restarts
	owner  *owner
	app    *application
	follow *follow
	faults atomic.Bool
	snap   map[driver.ShardID]*part
}

var errFault = errors.New("fault")

// hit returns true for one of n calls, on average, while there are faults. Inside the backend and
// the application, the Tailer's goroutines run one at a time, but in no fixed order. Therefore, a
// seed determines only the owner's schedule.
func (c *chaos) hit(n int) bool { return c.faults.Load() && rand.IntN(n) == 0 }

func (c *chaos) run() {
	c.b = &faultyBackend{Backend: c.open(), tail: c.tail, read: c.read}
	c.owner = newOwner(c, c.open(), "owner")
	c.snap = make(map[driver.ShardID]*part)
	c.saved.at = make(map[string]Position)
	c.app = newApplication(c)
	c.app.again = true
	c.app.fail = func(Batch) error {
		if c.hit(5) {
			return errFault
		}
		if c.hit(10) {
			time.Sleep(time.Duration(rand.IntN(3000)) * time.Millisecond)
		}
		return nil
	}
	c.faults.Store(true)
	c.start()
	shards := []driver.ShardID{"a", "b", "c"}
	for range 200 {
		s := shards[c.rnd.IntN(len(shards))]
		switch c.rnd.IntN(12) {
		case 0:
			c.owner.take(s)
		case 1:
			c.snapshot(s)
		case 2:
			c.follow.end()
			c.start()
		case 3:
			c.store.Compact()
		case 4:
			c.store.BreakWatches()
		case 5:
			time.Sleep(time.Duration(c.rnd.IntN(10)) * time.Second)
		default:
			c.owner.append(s, 1+c.rnd.IntN(90))
		}
		time.Sleep(time.Duration(c.rnd.IntN(300)) * time.Millisecond)
	}
	c.faults.Store(false)
	for _, s := range shards {
		c.follow.until(string(s), c.owner.head[s].Seq)
		if got := c.app.at(string(s)); got != c.owner.head[s].Seq {
			c.Errorf("shard %s: applied up to %d of %d", s, got, c.owner.head[s].Seq)
		}
	}
	c.follow.end()
}

func (c *chaos) start() {
	c.follow = run(c, c.b, &Options{Batch: 16, Buffer: 64 << 10, Resync: 5 * time.Second, BackoffMax: time.Second},
		Stored(&c.saved, c.app.apply, c.app.restore))
}

// snapshot writes a snapshot and trims the log behind it in one commit, as a Snapshotter does.
func (c *chaos) snapshot(s driver.ShardID) {
	head := c.owner.head[s]
	if head.Seq < head.Oldest+5 || head.Seq < 5 {
		return
	}
	page, err := c.owner.b.ReadLog(c.Context(), s, head.Seq-5, 1)
	if err != nil {
		c.Fatal(err)
	}
	at := page.Entries[0]
	state := stateAfter(at.Seq)
	p := &part{Name: fmt.Sprintf("%d-%d-%016x", at.Token, at.Seq, 0), Seq: at.Seq, Token: at.Token, Bytes: int64(len(state)),
		Sum: sum(state), Chunks: 1}
	text, err := json.Marshal(&manifest{Version: manifestVersion, Current: p})
	if err != nil {
		c.Fatal(err)
	}
	ops := []driver.Op{core.Put(manifestKey, text), core.Put(p.chunk(0), state),
		core.Trim(at.Seq - core.Seq(c.rnd.IntN(4)))}
	if old := c.snap[s]; old != nil && old.Name != p.Name {
		ops = append(ops, core.Delete(old.chunk(0)))
	}
	if c.snap[s] = p; at.Seq-3 >= head.Oldest {
		c.owner.commit(s, ops...)
	}
}

func (c *chaos) tail(_ context.Context, _ driver.Cursor, page *driver.TailPage, err error) (*driver.TailPage, error) {
	if err != nil {
		return nil, err
	}
	switch {
	case c.hit(10):
		return nil, errFault
	case c.hit(5):
		page.Entries = nil
	case c.hit(5):
		page.Entries = append(page.Entries, page.Entries...)
	case c.hit(5) && len(page.Entries) > 0:
		n := rand.IntN(len(page.Entries))
		page.Entries = slices.Delete(page.Entries, n, n+1)
	case c.hit(5):
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
	case c.hit(20):
		page.Cursor = ""
	}
	return page, nil
}

func (c *chaos) read(_ driver.ShardID, _ driver.Seq, page *driver.LogPage, err error) (*driver.LogPage, error) {
	switch {
	case err != nil:
		return nil, err
	case c.hit(8):
		return nil, errFault
	case c.hit(8):
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Millisecond)
	case c.hit(4) && len(page.Entries) > 2:
		page.Entries = page.Entries[:len(page.Entries)-1]
	}
	return page, nil
}
