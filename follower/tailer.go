package follower

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/core"
	"github.com/tenure-go/tenure/core/driver"
	"github.com/tenure-go/tenure/internal/errtext"
	"github.com/tenure-go/tenure/internal/goexit"
	"github.com/tenure-go/tenure/internal/rhythm"
	"github.com/tenure-go/tenure/internal/virtual"
)

// Tailer reads a namespace's decision logs for one process, and passes the entries to Appliers. All
// methods are safe for concurrent use.
type Tailer struct {
	b     core.Backend
	store string // the namespace's identity
	o     *Options
	pace  pacer
	draw  func(n int64) int64 // returns a random number from 0 to n-1
	reads chan struct{}       // a slot for each read in progress

	all   sync.WaitGroup // counts the goroutines of Run
	lines rhythm.Rhythm  // lines about failures, by Applier and shard

	mu       sync.Mutex
	phase    phase
	ctx      context.Context // the context of Run
	fail     context.CancelCauseFunc
	halted   error // why Run ends before its context has ended
	followed []*followed
	shards   map[core.ShardID]*shard
	buffered int // bytes in the buffers of all cursors
	sweep    uint64

	known  bool      // the heads were read at least once
	sure   time.Time // all entries acknowledged before this time are known
	proven instant   // when the latest successful read of all heads was sent
	asked  time.Time // when Fresh was last called
	broken error     // why the stream fails; nil while it works
	blind  error     // why reading the heads fails
	ended  chan struct{}
	ask    chan struct{} // holds a token while Fresh waits for a proof
}

type phase uint8

const (
	fresh phase = iota
	running
	stopped
)

type followed struct {
	name     string
	applier  Applier
	patterns []string
	slots    chan struct{} // one for each Apply in progress
}

// NewTailer returns a Tailer that reads from b. The caller closes b after Run has returned.
// NewTailer checks the options and does no I/O. Nil options mean the defaults.
func NewTailer(b core.Backend, o *Options) (*Tailer, error) {
	if b == nil {
		return nil, fmt.Errorf("tenure: %w: the backend is nil: open one first", core.ErrInvalid)
	}
	c, err := o.resolve()
	if err != nil {
		return nil, err
	}
	draw := rand.Int64N
	if h, ok := b.(virtual.Host); ok {
		draw = h.Process().Int64N
	}
	return &Tailer{
		draw: draw,
		b:    b, store: b.Info().StoreID, o: c,
		pace:   newPacer(c.ReadRate),
		lines:  rhythm.Rhythm{Keys: 4},
		reads:  make(chan struct{}, c.Reads),
		shards: make(map[core.ShardID]*shard),
		ended:  make(chan struct{}),
		ask:    make(chan struct{}, 1),
	}, nil
}

// Run follows shards with one Applier until ctx ends, with the default options. See Tailer.Follow
// and Tailer.Run.
func Run(ctx context.Context, b core.Backend, name string, a Applier, shards ...string) error {
	t, err := NewTailer(b, nil)
	if err != nil {
		return err
	}
	if err := t.Follow(name, a, shards...); err != nil {
		return err
	}
	return t.Run(ctx)
}

// Follow makes an Applier follow shards. Call Follow before Run. Each element of shards is a
// shard's name, or a prefix followed by "*" for several shards. A "*" alone means all shards except
// reserved shards, which must be named. Several Appliers may follow one shard, each at its own
// pace. The Applier's name appears in errors and events. The name must satisfy core.CheckShard and
// differ from the names of the other Appliers. The error matches core.ErrInvalid.
func (t *Tailer) Follow(name string, a Applier, shards ...string) error {
	if err := driver.CheckNode(name); err != nil {
		return err
	}
	if a == nil || len(shards) == 0 {
		return fmt.Errorf("tenure: %w: follower %q needs an Applier and at least one shard; \"*\" stands for all",
			core.ErrInvalid, name)
	}
	if s, ok := a.(*stored); ok && (s.apply == nil || s.positions == nil) {
		return fmt.Errorf("tenure: %w: follower %q has no function that applies entries, or no Positions", core.ErrInvalid, name)
	}
	for _, p := range shards {
		if prefix, ok := strings.CutSuffix(p, "*"); ok && prefix == "" {
			continue
		} else if err := core.CheckShard(prefix); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.phase != fresh {
		return fmt.Errorf("tenure: %w: follower %q comes after Run was called", core.ErrInvalid, name)
	}
	if slices.ContainsFunc(t.followed, func(f *followed) bool { return f.name == name }) {
		return fmt.Errorf("tenure: %w: there are two followers %q: give each its own name", core.ErrInvalid, name)
	}
	t.followed = append(t.followed, &followed{name: name, applier: a, patterns: slices.Clone(shards),
		slots: make(chan struct{}, t.o.Parallel)})
	return nil
}

func (f *followed) wants(s core.ShardID) bool {
	for _, p := range f.patterns {
		prefix, several := strings.CutSuffix(p, "*")
		switch {
		case !several && string(s) == p:
			return true
		case several && strings.HasPrefix(string(s), prefix) && (s[0] != '_' || prefix != ""):
			return true
		}
	}
	return false
}

// Run follows the shards until ctx ends. When ctx ends, Run cancels the Appliers' calls, waits
// until they return, and returns nil. Only these failures of the store or of an Applier end Run
// earlier:
//
//   - *StoreChangedError, or another error that matches core.ErrStoreChanged: applied entries are
//     no longer in the store (T8). Each later Run fails in the same way until an operator
//     intervenes.
//   - core.ErrClosed: the backend was closed.
//
// If an Applier does not return within Options.DrainBudget, the error matches ErrStuck, and Run
// leaves the Applier's goroutine behind. Call Run only once.
func (t *Tailer) Run(ctx context.Context) error {
	run, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	t.mu.Lock()
	if t.phase != fresh {
		t.mu.Unlock()
		return fmt.Errorf("tenure: %w: Run is called once; make another Tailer", core.ErrStopped)
	}
	t.phase, t.ctx, t.fail = running, run, fail
	t.mu.Unlock()

	t.all.Go(func() {
		if t.load(run) {
			t.all.Go(func() { t.resync(run) })
			t.all.Go(func() { t.pulse(run) })
			t.stream(run)
		}
	})
	<-run.Done()

	t.mu.Lock()
	t.phase, t.known = stopped, false
	close(t.ended)
	t.mu.Unlock()
	joined := make(chan struct{})
	go func() { defer close(joined); t.all.Wait() }()
	late := time.NewTimer(t.o.DrainBudget)
	defer late.Stop()
	var stuck error
	select {
	case <-joined:
	case <-late.C:
		stuck = t.stuck()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return errors.Join(t.halted, stuck)
}

func (t *Tailer) halt(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.halted == nil && t.ctx.Err() == nil {
		t.halted = err
		t.fail(err)
	}
}

func (t *Tailer) stuck() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.shards {
		for _, l := range s.cursors {
			if l.busy {
				return fmt.Errorf("tenure: %w: follower %q has not returned from shard %q within the drain budget: "+
					"make it return when its context ends", ErrStuck, l.f.name, s.id)
			}
		}
	}
	return fmt.Errorf("tenure: %w: a follower has not returned its positions within the drain budget: make Load "+
		"return when its context ends", ErrStuck)
}

func (t *Tailer) load(ctx context.Context) bool {
	for _, f := range t.followed {
		for attempt := 1; ; attempt++ {
			saved, err := t.positions(ctx, f)
			if err == nil {
				t.worked(f.name, "", attempt-1)
				t.resume(f, saved)
				break
			}
			if errors.Is(err, core.ErrStoreChanged) {
				t.halt(err)
				return false
			}
			err = errtext.Errorf("tenure: follower %q: loading its positions: %w", f.name, err)
			t.report(f.name, Position{}, attempt, err)
			if !t.backOff(ctx, attempt) {
				return false
			}
		}
	}
	return ctx.Err() == nil
}

// resume continues from the saved positions. Every shard with a position gets a cursor, so that the
// Tailer notices if the store loses the shard.
func (t *Tailer) resume(f *followed, saved map[core.ShardID]Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, p := range saved {
		if !f.wants(id) {
			continue
		}
		for _, l := range t.shard(id).cursors {
			if l.f == f {
				t.moveTo(l, p)
			}
		}
	}
}

func (t *Tailer) positions(ctx context.Context, f *followed) (map[core.ShardID]Position, error) {
	var cp Checkpoint
	err := goexit.Call(func() (err error) { cp, err = f.applier.Load(ctx); return err })
	if err != nil {
		return nil, err
	}
	if cp.Store != t.store && (cp.Store != "" || len(cp.Positions) > 0) {
		return nil, &StoreChangedError{Applier: f.name, Found: fmt.Sprintf("this is %q, they are of %q", t.store,
			cp.Store)}
	}
	saved := make(map[core.ShardID]Position, len(cp.Positions))
	for _, p := range cp.Positions {
		if err := p.check(); err != nil {
			return nil, err
		}
		saved[core.ShardID(p.Shard)] = p
	}
	return saved, nil
}
